// What an agent holds, without a loop, a scheduler or ranks: folders, ports, the lease's file, logs
// of several files, and what is read of other programs. tests/e2e/schedule_agent_test.cc has the
// rest, with real processes.
#include "ops/scheduler/agent.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ops/scheduler/foreign_tree.h"
#include "ops/scheduler/node_user.h"
#include "ops/scheduler/rank_environment.h"
#include "ops/shim/lease.h"
#include "ops/shim/rank_log.h"
#include "platform/auth/key.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::scheduler {
namespace {

namespace fs = std::filesystem;

// An agent's folder, and orders to it.
class HoldingsTest : public testing::Test {
 protected:
  void SetUp() override {
    // An agent that is not root runs its own user's tasks alone.
    owner_ = ::geteuid() == 0 ? 65534 : ::geteuid();
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
  }
  void open() {
    holdings_.reset();
    auto opened = Holdings::open(disk_, clock_, options());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    holdings_ = *std::move(opened);
  }
  Holdings::Options options() const {
    return {.dir = dir_ / "agent",
            .tasks = dir_ / "tasks",
            .shim = {"/no/such/program"},
            .cgroup = "",
            .key = {},
            .uid = ::geteuid(),
            .keep_logs_ns = 3600 * kSecond};
  }
  wire::Order order(uint64_t task, Action action) const {
    wire::Order order;
    order.set_task(task);
    order.set_attempt(1);
    order.set_action(static_cast<uint32_t>(action));
    order.mutable_owner()->set_uid(owner_);
    order.mutable_spec()->add_argv("/bin/true");
    order.mutable_spec()->set_cwd("/");
    order.mutable_spec()->set_nodes(1);
    order.mutable_spec()->set_processes(2);
    order.set_first_address("127.0.0.1");
    return order;
  }
  Holdings::Report turn(std::vector<wire::Order> orders) {
    wire::SyncReply reply;
    reply.set_scheduler("s");
    for (wire::Order& one : orders) *reply.add_orders() = std::move(one);
    return holdings_->turn(std::move(reply));
  }
  size_t folders(const std::string& in) const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(dir_ / in), fs::directory_iterator()));
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  uint32_t owner_ = 0;
  std::unique_ptr<Holdings> holdings_;
};

TEST_F(HoldingsTest, WhatIsPreparedIsFoundAgain) {
  open();
  auto report = turn({order(1, Action::prepare), order(2, Action::prepare)});
  ASSERT_EQ(report.held.size(), 2u);
  EXPECT_EQ(report.scheduler, "s");
  for (const wire::Held& held : report.held) {
    EXPECT_TRUE(held.prepared()) << held.text();
    EXPECT_EQ(held.ranks_size(), 2);
    EXPECT_EQ(held.ranks(1).state(), static_cast<uint32_t>(RankState::waiting));
  }
  EXPECT_NE(report.held[0].port(), 0u);
  EXPECT_NE(report.held[0].port(), report.held[1].port());
  const auto again = turn({order(1, Action::prepare), order(2, Action::prepare)});
  EXPECT_EQ(again.news, report.news);
  open();
  EXPECT_EQ(holdings_->turn({}).news, report.news);
  // One that was never written down to its end is none.
  ASSERT_EQ(::unlink((dir_ / "agent/attempts/1.1/attempt.json").c_str()), 0);
  open();
  report = holdings_->turn({});
  ASSERT_EQ(report.held.size(), 1u);
  EXPECT_EQ(report.held[0].task(), 2u);
  EXPECT_EQ(folders("agent/attempts"), 1u);
  EXPECT_EQ(folders("tasks"), 1u);
  EXPECT_TRUE(turn({order(2, Action::terminate)}).held.empty());
  EXPECT_EQ(folders("agent/attempts"), 0u);
  EXPECT_EQ(folders("tasks"), 0u);
}

TEST_F(HoldingsTest, APortIsHeldUntilRanksMayHaveIt) {
  SeededRng rng(7);
  auto first = PortHold::find({}, rng);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->port() % kPortBlock, 0u);
  // Neither another agent of this machine nor this one gets it.
  SeededRng same(7);
  const auto second = PortHold::find({}, same);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(first->port(), second->port());
  const uint32_t port = first->port();
  first->let_go();
  SeededRng once_more(7);
  EXPECT_EQ(PortHold::find({}, once_more)->port(), port);
  SeededRng taken(7);
  EXPECT_NE(PortHold::find({port}, taken)->port(), port);
}

TEST_F(HoldingsTest, RootHasNoTasks) {
  open();
  wire::Order root = order(1, Action::prepare);
  root.mutable_owner()->set_uid(0);
  auto report = turn({root});
  ASSERT_EQ(report.held.size(), 1u);
  EXPECT_FALSE(report.held[0].prepared());
  EXPECT_EQ(report.held[0].text(), "root has no tasks");
  EXPECT_EQ(folders("agent/attempts"), 0u);
  // It is told for as long as it is asked for.
  EXPECT_EQ(turn({root}).held.size(), 1u);
  root.set_action(static_cast<uint32_t>(Action::terminate));
  EXPECT_TRUE(turn({root}).held.empty());
}

TEST_F(HoldingsTest, NothingStartsWithoutALease) {
  open();
  (void)turn({order(1, Action::prepare)});
  const auto state = [](const Holdings::Report& report) { return report.held[0].ranks(0).state(); };
  EXPECT_EQ(state(turn({order(1, Action::run)})), static_cast<uint32_t>(RankState::waiting));
  EXPECT_EQ(holdings_->living(), 0u);
  // With one it is tried, and here there is no such program.
  holdings_->set_lease(clock_.steady_ns(), 3600 * kSecond);
  const auto report = turn({order(1, Action::run)});
  EXPECT_EQ(state(report), static_cast<uint32_t>(RankState::exited));
  EXPECT_EQ(report.held[0].ranks(0).status(), 127 << 8);
  EXPECT_NE(report.held[0].ranks(0).text().find("/no/such/program"), std::string::npos);
  EXPECT_EQ(holdings_->living(), 0u);
  // That is known to the next agent, too, which puts it away when it is told to.
  open();
  EXPECT_EQ(holdings_->turn({}).news, report.news);
  EXPECT_TRUE(turn({order(1, Action::forget)}).held.empty());
  EXPECT_EQ(folders("agent/attempts"), 0u);
  EXPECT_EQ(folders("agent/ended"), 1u);
}

TEST_F(HoldingsTest, OldLogsAreRemoved) {
  for (const std::string name : {"1.1", "2.1"}) {
    fs::create_directories(dir_ / ("agent/ended/" + name));
    std::ofstream(dir_ / ("agent/ended/" + name + "/0.log")) << "x";
  }
  ASSERT_TRUE(disk_.set_mtime(dir_ / "agent/ended/1.1", clock_.wall_ns() - 7200 * kSecond).ok());
  open();
  (void)holdings_->turn({});
  EXPECT_FALSE(fs::exists(dir_ / "agent/ended/1.1"));
  EXPECT_TRUE(fs::exists(dir_ / "agent/ended/2.1"));
}

TEST_F(HoldingsTest, ATaskMustReachItsFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has tasks of others";
  open();
  ASSERT_EQ(::chmod((dir_ / "tasks").c_str(), 0700), 0);
  const auto report = turn({order(1, Action::prepare)});
  EXPECT_FALSE(report.held[0].prepared());
  EXPECT_NE(report.held[0].text().find("Permission denied"), std::string::npos);
  EXPECT_EQ(folders("agent/attempts"), 0u);
  EXPECT_EQ(folders("tasks"), 0u);
}

TEST_F(HoldingsTest, TheLeaseOutlivesItsAgent) {
  open();
  const int64_t sent_ns = clock_.steady_ns();
  holdings_->set_lease(sent_ns, 3600 * kSecond);
  (void)holdings_->turn({});
  open();
  EXPECT_EQ(holdings_->lease_until_ns(), sent_ns + 3600 * kSecond);
  const auto is_refused = [&](const shim::Lease& lease, size_t cut = 0) {
    const std::string text = shim::lease_text(lease);
    std::ofstream(dir_ / "agent/lease") << text.substr(0, text.size() - cut);
    open();
    return holdings_->lease_until_ns() == 0;
  };
  const std::string boot = holdings_->boot();
  const shim::Lease good{.boot = boot, .success_ns = sent_ns, .lease_ns = 3600 * kSecond};
  EXPECT_TRUE(is_refused({.boot = "other", .success_ns = sent_ns, .lease_ns = 3600 * kSecond}));
  EXPECT_TRUE(is_refused({.boot = boot, .success_ns = sent_ns, .lease_ns = 0}));
  EXPECT_TRUE(is_refused({.boot = boot, .success_ns = INT64_MAX / 2, .lease_ns = kSecond}));
  EXPECT_TRUE(is_refused(good, 1));
  EXPECT_TRUE(is_refused(good, shim::lease_text(good).size()));
  EXPECT_FALSE(is_refused(good));
  // A longer text that was there before.
  std::ofstream(dir_ / "agent/lease") << shim::lease_text(good) << "left over";
  open();
  EXPECT_EQ(holdings_->lease_until_ns(), good.until_ns());
}

TEST_F(HoldingsTest, AfterAnotherBootNothingIsPrepared) {
  open();
  (void)turn({order(1, Action::prepare)});
  const std::string path = dir_ / "agent/attempts/1.1/attempt.json";
  const auto text = io::read_file(disk_, path, kMiB);
  ASSERT_TRUE(text.ok());
  auto record = parse_attempt(*text);
  ASSERT_TRUE(record.ok());
  record->boot = "another";
  std::ofstream(path) << to_json(*record);
  open();
  EXPECT_TRUE(holdings_->turn({}).held.empty());
  // What cannot be read is nothing to guess at.
  (void)turn({order(2, Action::prepare)});
  std::ofstream(dir_ / "agent/attempts/2.1/attempt.json") << "{}";
  holdings_.reset();
  const auto opened = Holdings::open(disk_, clock_, options());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Errc::corrupt);
}

TEST(AttemptRecord, ReadsWhatItWrites) {
  const AttemptRecord record{.scheduler = "s\xff",
                             .task = UINT64_MAX,
                             .attempt = 3,
                             .node_rank = 7,
                             .processes = 8,
                             .port = 23'450,
                             .uid = 1000,
                             .user = shim::User{.uid = 1000, .gid = 100, .groups = {4, 27}},
                             .boot = "b"};
  const auto read = parse_attempt(to_json(record));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(record));
  EXPECT_EQ(read->user->groups, record.user->groups);
  AttemptRecord none = record;
  none.processes = 0;
  EXPECT_FALSE(parse_attempt(to_json(none)).ok());
  EXPECT_EQ(text_of(*parse_attempt_name("12.3")), "12.3");
  for (const char* const text : {"", "12", "12.", "12.3.4", "012.3", "12.3x", "12.4294967296"}) {
    EXPECT_FALSE(parse_attempt_name(text).has_value()) << text;
  }
}

TEST(JobKey, IsOneOfItsAttempt) {
  auth::Key cluster = {};
  cluster[0] = std::byte{1};
  const JobName job{.scheduler = "s", .task = 1, .attempt = 2};
  EXPECT_EQ(job_key(cluster, job), job_key(cluster, job));
  EXPECT_NE(job_key(cluster, job), cluster);
  for (const JobName& other : {JobName{.scheduler = "t", .task = 1, .attempt = 2},
                               JobName{.scheduler = "s", .task = 2, .attempt = 2},
                               JobName{.scheduler = "s", .task = 1, .attempt = 3}}) {
    EXPECT_NE(job_key(cluster, job), job_key(cluster, other));
  }
}

TEST(NodeUser, ReadsWhatGetentSays) {
  const auto ada = parse_passwd("ada:x:1000:100:Ada Lovelace:/home/ada:/bin/sh");
  ASSERT_TRUE(ada.has_value());
  EXPECT_EQ(ada->name, "ada");
  EXPECT_EQ(ada->gid, 100u);
  for (const char* const text :
       {"", "ada", "ada:x:1000", "ada:x:-1:100:", ":x:1:1:", "ada:x:4294967295:1:"}) {
    EXPECT_FALSE(parse_passwd(text).has_value()) << text;
  }
  EXPECT_EQ(parse_groups("ada                  4 24 27", "ada"),
            (std::vector<uint32_t>{4, 24, 27}));
  EXPECT_EQ(parse_groups("ada", "ada"), std::vector<uint32_t>{});
  EXPECT_EQ(parse_groups("eve 4", "ada"), std::nullopt);
  EXPECT_EQ(parse_groups("ada 4 x", "ada"), std::nullopt);
  EXPECT_EQ(parse_port_range("32768\t60999\n"), 32'768u);
  EXPECT_EQ(parse_port_range("x"), 32'768u);
}

TEST(NodeUser, IsAskedOfThisMachine) {
  SystemClock clock;
  const auto nobody = find_user(65534, clock);
  ASSERT_TRUE(nobody.ok()) << nobody.error().message;
  EXPECT_EQ(nobody->gid, 65534u);
  EXPECT_EQ(find_user(4'123'456, clock).error().code, Errc::not_found);
  EXPECT_TRUE(check_folder(nullptr, "/", clock).ok());
  EXPECT_EQ(check_folder(nullptr, "/no/such/folder", clock).error().code, Errc::not_found);
  if (::geteuid() != 0) return;
  io::TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  EXPECT_TRUE(check_folder(nullptr, dir.path(), clock).ok());
  EXPECT_EQ(check_folder(&*nobody, dir.path(), clock).error().code, Errc::refused);
}

TEST(ForeignTree, NeverFollowsALink) {
  io::TempDir dir;
  fs::create_directories(dir / "outside");
  std::ofstream(dir / "outside/file") << "kept";
  fs::create_directories(dir / "tree/a/b");
  std::ofstream(dir / "tree/a/b/file") << "gone";
  fs::create_directory_symlink(dir / "outside", dir / "tree/link");
  fs::create_directory_symlink(dir / "outside", dir / "tree/a/b/link");
  EXPECT_TRUE(remove_foreign_tree(dir / "tree").ok());
  EXPECT_FALSE(fs::exists(dir / "tree"));
  EXPECT_TRUE(fs::exists(dir / "outside/file"));
  EXPECT_TRUE(remove_foreign_tree(dir / "tree").ok());
  fs::create_directory_symlink(dir / "outside", dir / "tree");
  EXPECT_TRUE(remove_foreign_tree(dir / "tree").ok());
  EXPECT_TRUE(fs::exists(dir / "outside/file"));
  std::string deep = dir / "deep";
  for (int i = 0; i < kTreeDeep + 2; i++) deep += "/d";
  fs::create_directories(deep);
  EXPECT_FALSE(remove_foreign_tree(dir / "deep").ok());
}

// Whatever is kept of a log, a reader that follows it gets every byte once, and of what is gone it
// is told how much that was.
TEST(KeptLogs, OffsetsCountWhatIsGone) {
  io::TempDir dir;
  io::SystemDisk disk;
  SystemClock clock;
  const std::string path = dir / "0.log";
  shim::LogLimits limits{.path = path, .file_bytes = 64 * kKiB, .files = 3, .rate = 0};
  shim::RankLog log(disk, clock, limits);
  EXPECT_EQ(LogFiles::open(disk, path)->end(), 0u);
  std::string followed;
  bool lost = false;
  for (int i = 0; i < 20'000; i++) {
    log.hear(fmt::format("line {}\n", i));
    if (i % 1000 != 0 && i != 19'999) continue;
    const auto files = LogFiles::open(disk, path);
    ASSERT_TRUE(files.ok()) << files.error().message;
    ASSERT_GE(files->end(), followed.size());
    ASSERT_LE(files->begin(), followed.size());
    lost = lost || files->begin() > 0;
    const auto more = files->read(followed.size(), UINT64_MAX);
    ASSERT_TRUE(more.ok());
    followed += *more;
    ASSERT_EQ(followed.size(), files->end());
  }
  EXPECT_TRUE(lost);
  int next = 0;
  for (const auto text : split(followed, '\n')) {
    const auto line = shim::parse_log_line(text);
    if (text.empty() || (line && line->own)) continue;
    ASSERT_TRUE(line.has_value()) << text;
    ASSERT_EQ(line->text, fmt::format("line {}", next++));
  }
  EXPECT_EQ(next, 20'000);
  // From a byte that is gone: from the first that is there.
  const auto files = LogFiles::open(disk, path);
  const auto first = files->read(files->begin(), 100);
  EXPECT_EQ(*first, followed.substr(files->begin(), 100));
}

}  // namespace
}  // namespace ff::scheduler
