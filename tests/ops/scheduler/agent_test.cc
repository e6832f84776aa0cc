// The state of an agent, without loop, scheduler or ranks: folders, ports, the lease file, rotated
// logs, and output of other programs. tests/e2e/schedule_agent_test.cc covers the rest, with real
// processes.
#include "ops/scheduler/agent.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ops/scheduler/node_user.h"
#include "ops/scheduler/rank_environment.h"
#include "ops/scheduler/untrusted_dir.h"
#include "ops/shim/rank_lease.h"
#include "ops/shim/rank_log.h"
#include "platform/auth/key.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::scheduler {
namespace {

namespace fs = std::filesystem;

// The folder of an agent, and orders to it.
class NodeReconcilerTest : public testing::Test {
 protected:
  void SetUp() override {
    // An unprivileged agent runs tasks of its own user only.
    owner_ = ::geteuid() == 0 ? 65534 : ::geteuid();
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
  }
  void open() {
    reconciler_.reset();
    auto opened = NodeReconciler::open(disk_, clock_, options());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    reconciler_ = *std::move(opened);
  }
  NodeReconciler::Options options() const {
    return {.dir = dir_ / "agent",
            .tasks = dir_ / "tasks",
            .shim = {"/no/such/program"},
            .cgroup = "",
            .zone = "east",
            .uid = ::geteuid(),
            .logs = limits_};
  }
  wire::Order order(uint64_t task, OrderAction action) const {
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
  NodeReconciler::Report turn(std::vector<wire::Order> orders) {
    wire::SyncReply reply;
    reply.set_scheduler("s");
    for (wire::Order& one : orders) *reply.add_orders() = std::move(one);
    return reconciler_->reconcile(std::move(reply));
  }
  size_t folders(const std::string& in) const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(dir_ / in), fs::directory_iterator()));
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  uint32_t owner_ = 0;
  LogRetention limits_{.keep_ns = 3600 * kSecond};
  std::unique_ptr<NodeReconciler> reconciler_;
};

TEST_F(NodeReconcilerTest, WhatIsPreparedIsFoundAgain) {
  open();
  auto report = turn({order(1, OrderAction::prepare), order(2, OrderAction::prepare)});
  ASSERT_EQ(report.held.size(), 2u);
  EXPECT_EQ(report.scheduler, "s");
  for (const wire::Held& held : report.held) {
    EXPECT_TRUE(held.prepared()) << held.text();
    EXPECT_EQ(held.ranks_size(), 2);
    EXPECT_EQ(held.ranks(1).state(), static_cast<uint32_t>(RankState::waiting));
  }
  EXPECT_NE(report.held[0].port(), 0u);
  EXPECT_NE(report.held[0].port(), report.held[1].port());
  const auto again = turn({order(1, OrderAction::prepare), order(2, OrderAction::prepare)});
  EXPECT_EQ(again.change_key, report.change_key);
  open();
  EXPECT_EQ(reconciler_->reconcile({}).change_key, report.change_key);
  // An incomplete record does not count.
  ASSERT_EQ(::unlink((dir_ / "agent/attempts/1.1/attempt.json").c_str()), 0);
  open();
  report = reconciler_->reconcile({});
  ASSERT_EQ(report.held.size(), 1u);
  EXPECT_EQ(report.held[0].task(), 2u);
  EXPECT_EQ(folders("agent/attempts"), 1u);
  EXPECT_EQ(folders("tasks"), 1u);
  EXPECT_TRUE(turn({order(2, OrderAction::terminate)}).held.empty());
  EXPECT_EQ(folders("agent/attempts"), 0u);
  EXPECT_EQ(folders("tasks"), 0u);
}

TEST_F(NodeReconcilerTest, APortIsHeldUntilRanksMayHaveIt) {
  SeededRng rng(7);
  auto first = PortReservation::reserve({}, rng);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->port() % kPortBlock, 0u);
  // Neither another agent of this machine nor this one can reserve it.
  SeededRng same(7);
  const auto second = PortReservation::reserve({}, same);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(first->port(), second->port());
  const uint32_t port = first->port();
  first->release();
  SeededRng once_more(7);
  EXPECT_EQ(PortReservation::reserve({}, once_more)->port(), port);
  SeededRng taken(7);
  EXPECT_NE(PortReservation::reserve({port}, taken)->port(), port);
}

TEST_F(NodeReconcilerTest, RootHasNoTasks) {
  open();
  wire::Order root = order(1, OrderAction::prepare);
  root.mutable_owner()->set_uid(0);
  auto report = turn({root});
  ASSERT_EQ(report.held.size(), 1u);
  EXPECT_FALSE(report.held[0].prepared());
  EXPECT_EQ(report.held[0].text(), "root cannot own tasks");
  EXPECT_EQ(folders("agent/attempts"), 0u);
  // It is reported as long as it is ordered.
  EXPECT_EQ(turn({root}).held.size(), 1u);
  root.set_action(static_cast<uint32_t>(OrderAction::terminate));
  EXPECT_TRUE(turn({root}).held.empty());
}

TEST_F(NodeReconcilerTest, NothingStartsWithoutALease) {
  open();
  (void)turn({order(1, OrderAction::prepare)});
  const auto state = [](const NodeReconciler::Report& report) {
    return report.held[0].ranks(0).state();
  };
  EXPECT_EQ(state(turn({order(1, OrderAction::run)})), static_cast<uint32_t>(RankState::waiting));
  EXPECT_EQ(reconciler_->live_ranks(), 0u);
  // With a lease the start is attempted; the program does not exist.
  reconciler_->set_lease(clock_.steady_ns(), 3600 * kSecond);
  const auto report = turn({order(1, OrderAction::run)});
  EXPECT_EQ(state(report), static_cast<uint32_t>(RankState::exited));
  EXPECT_EQ(report.held[0].ranks(0).status(), 127 << 8);
  EXPECT_NE(report.held[0].ranks(0).text().find("/no/such/program"), std::string::npos);
  EXPECT_EQ(reconciler_->live_ranks(), 0u);
  // The next agent knows it, too, and cleans it up on order.
  open();
  EXPECT_EQ(reconciler_->reconcile({}).change_key, report.change_key);
  EXPECT_TRUE(turn({order(1, OrderAction::clean_up)}).held.empty());
  EXPECT_EQ(folders("agent/attempts"), 0u);
  EXPECT_EQ(folders("agent/ended"), 1u);
}

TEST_F(NodeReconcilerTest, OldLogsAreRemoved) {
  for (const std::string name : {"1.1", "2.1"}) {
    fs::create_directories(dir_ / ("agent/ended/" + name));
    std::ofstream(dir_ / ("agent/ended/" + name + "/0.log")) << "x";
  }
  ASSERT_TRUE(disk_.set_mtime(dir_ / "agent/ended/1.1", clock_.wall_ns() - 7200 * kSecond).ok());
  open();
  (void)reconciler_->reconcile({});
  EXPECT_FALSE(fs::exists(dir_ / "agent/ended/1.1"));
  EXPECT_TRUE(fs::exists(dir_ / "agent/ended/2.1"));
}

// The parts of the logs of one attempt that a node keeps at most.
TEST_F(NodeReconcilerTest, TheRanksOfAnAttemptShareTheLimitOfItsLogs) {
  limits_.user_bytes = 16 * kMiB;
  open();
  reconciler_->set_lease(clock_.steady_ns(), 3600 * kSecond);
  for (const uint32_t processes : {1, 2, 100}) {
    const uint64_t task = 100 + processes;
    wire::Order one = order(task, OrderAction::prepare);
    one.mutable_spec()->set_processes(processes);
    (void)turn({one});
    one.set_action(static_cast<uint32_t>(OrderAction::run));
    (void)turn({one});
    const auto text = io::read_file(
        disk_, dir_ / fmt::format("agent/attempts/{}.1/rank.0/launch.json", task), kMiB);
    ASSERT_TRUE(text.ok()) << text.error().message;
    const auto launch = shim::parse_launch(*text);
    ASSERT_TRUE(launch.ok()) << launch.error().message;
    const uint64_t share = 4 * kMiB / processes;
    EXPECT_EQ(launch->log.file_bytes * launch->log.files, std::max(share, 256 * kKiB));
  }
}

TEST_F(NodeReconcilerTest, AUsersLogsHaveALimitOnTheNode) {
  limits_.user_bytes = 3 * kMiB;
  open();
  reconciler_->set_lease(clock_.steady_ns(), 3600 * kSecond);
  for (uint64_t task = 1; task <= 8; task++) {
    (void)turn({order(task, OrderAction::prepare)});
    (void)turn({order(task, OrderAction::run)});
    std::ofstream(dir_ / fmt::format("agent/attempts/{}.1/0.log", task)) << std::string(kMiB, 'x');
    EXPECT_TRUE(turn({order(task, OrderAction::clean_up)}).held.empty());
    EXPECT_TRUE(fs::exists(dir_ / fmt::format("agent/ended/{}.1/0.log", task)));
    EXPECT_EQ(folders("agent/ended"), std::min<size_t>(task, 2));
  }
}

TEST_F(NodeReconcilerTest, ATaskMustReachItsFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has tasks of others";
  open();
  ASSERT_EQ(::chmod((dir_ / "tasks").c_str(), 0700), 0);
  const auto report = turn({order(1, OrderAction::prepare)});
  EXPECT_FALSE(report.held[0].prepared());
  EXPECT_NE(report.held[0].text().find("Permission denied"), std::string::npos);
  EXPECT_EQ(folders("agent/attempts"), 0u);
  EXPECT_EQ(folders("tasks"), 0u);
}

TEST_F(NodeReconcilerTest, TheLeaseOutlivesItsAgent) {
  open();
  const int64_t sent_ns = clock_.steady_ns();
  reconciler_->set_lease(sent_ns, 3600 * kSecond);
  (void)reconciler_->reconcile({});
  open();
  EXPECT_EQ(reconciler_->lease_until_ns(), sent_ns + 3600 * kSecond);
  const auto is_refused = [&](const shim::RankLease& lease, size_t cut = 0) {
    const std::string text = shim::lease_text(lease);
    std::ofstream(dir_ / "agent/lease") << text.substr(0, text.size() - cut);
    open();
    return reconciler_->lease_until_ns() == 0;
  };
  const std::string boot = reconciler_->boot();
  const shim::RankLease good{.boot = boot, .renewed_ns = sent_ns, .lease_ns = 3600 * kSecond};
  EXPECT_TRUE(is_refused({.boot = "other", .renewed_ns = sent_ns, .lease_ns = 3600 * kSecond}));
  EXPECT_TRUE(is_refused({.boot = boot, .renewed_ns = sent_ns, .lease_ns = 0}));
  EXPECT_TRUE(is_refused({.boot = boot, .renewed_ns = INT64_MAX / 2, .lease_ns = kSecond}));
  EXPECT_TRUE(is_refused(good, 1));
  EXPECT_TRUE(is_refused(good, shim::lease_text(good).size()));
  EXPECT_FALSE(is_refused(good));
  // A longer, older text.
  std::ofstream(dir_ / "agent/lease") << shim::lease_text(good) << "left over";
  open();
  EXPECT_EQ(reconciler_->lease_until_ns(), good.until_ns());
}

TEST_F(NodeReconcilerTest, AfterAnotherBootNothingIsPrepared) {
  open();
  (void)turn({order(1, OrderAction::prepare)});
  const std::string path = dir_ / "agent/attempts/1.1/attempt.json";
  const auto text = io::read_file(disk_, path, kMiB);
  ASSERT_TRUE(text.ok());
  auto record = parse_attempt(*text);
  ASSERT_TRUE(record.ok());
  record->boot = "another";
  std::ofstream(path) << to_json(*record);
  open();
  EXPECT_TRUE(reconciler_->reconcile({}).held.empty());
  // An unreadable file is an error.
  (void)turn({order(2, OrderAction::prepare)});
  std::ofstream(dir_ / "agent/attempts/2.1/attempt.json") << "{}";
  reconciler_.reset();
  const auto opened = NodeReconciler::open(disk_, clock_, options());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Errc::corrupt);
}

// As a child does that a killed agent has forked, until it executes its program.
TEST_F(NodeReconcilerTest, ALockThatIsReleasedSoonIsWaitedFor) {
  struct ReleasingClock final : Clock {
    std::unique_ptr<io::File> lock;
    int64_t now_ns = 0;
    int64_t wall_ns() override { return now_ns; }
    int64_t steady_ns() override { return now_ns; }
    void sleep_ns(int64_t ns) override {
      now_ns += ns;
      lock.reset();
    }
  };
  ReleasingClock clock;
  ASSERT_TRUE(io::make_dirs(disk_, dir_ / "agent", 0711).ok());
  clock.lock = io::lock_file(disk_, dir_ / "agent/lock").value();
  ASSERT_NE(clock.lock, nullptr);
  {
    const auto opened = NodeReconciler::open(disk_, clock, options());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }
  // Another agent keeps it.
  const auto other = io::lock_file(disk_, dir_ / "agent/lock").value();
  const auto refused = NodeReconciler::open(disk_, clock, options());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
}

TEST(AttemptRecord, ReadsWhatItWrites) {
  const AttemptRecord record{.scheduler = "s\xff",
                             .task = UINT64_MAX,
                             .attempt = 3,
                             .node_rank = 7,
                             .processes = 8,
                             .port = 23'450,
                             .uid = 1000,
                             .user = shim::RankUser{.uid = 1000, .gid = 100, .groups = {4, 27}},
                             .login = LoginAccount{.name = "ada", .home = "/h\xff", .shell = "/s"},
                             .boot = "b"};
  const auto read = parse_attempt(to_json(record));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(record));
  EXPECT_EQ(read->user->groups, record.user->groups);
  EXPECT_EQ(read->login, record.login);
  // An agent of an earlier release did not write the login.
  AttemptRecord earlier = record;
  earlier.login.reset();
  EXPECT_FALSE(parse_attempt(to_json(earlier))->login.has_value());
  AttemptRecord none = record;
  none.processes = 0;
  EXPECT_FALSE(parse_attempt(to_json(none)).ok());
  EXPECT_EQ(text_of(*parse_attempt_name("12.3")), "12.3");
  for (const char* const text : {"", "12", "12.", "12.3.4", "012.3", "12.3x", "12.4294967296"}) {
    EXPECT_FALSE(parse_attempt_name(text).has_value()) << text;
  }
}

TEST(AttemptKey, IsOneOfItsAttempt) {
  auth::Key cluster = {};
  cluster[0] = std::byte{1};
  const AttemptIdentity job{.scheduler = "s", .task = 1, .attempt = 2};
  EXPECT_EQ(attempt_key(cluster, job), attempt_key(cluster, job));
  EXPECT_NE(attempt_key(cluster, job), cluster);
  for (const AttemptIdentity& other :
       {AttemptIdentity{.scheduler = "t", .task = 1, .attempt = 2},
        AttemptIdentity{.scheduler = "s", .task = 2, .attempt = 2},
        AttemptIdentity{.scheduler = "s", .task = 1, .attempt = 3}}) {
    EXPECT_NE(attempt_key(cluster, job), attempt_key(cluster, other));
  }
}

TEST(NodeUser, ReadsWhatGetentSays) {
  const auto ada = parse_passwd("ada:x:1000:100:Ada Lovelace:/home/ada:/bin/sh");
  ASSERT_TRUE(ada.has_value());
  EXPECT_EQ(ada->name, "ada");
  EXPECT_EQ(ada->gid, 100u);
  EXPECT_EQ(ada->home, "/home/ada");
  EXPECT_EQ(ada->shell, "/bin/sh");
  const auto bare = parse_passwd("svc:x:1000:100:::");
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->home, "/");
  EXPECT_EQ(bare->shell, "/bin/sh");
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
  EXPECT_EQ(nobody->ids.gid, 65534u);
  const passwd* const known = ::getpwuid(65534);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(nobody->login.name, known->pw_name);
  EXPECT_EQ(nobody->login.home, known->pw_dir);
  EXPECT_EQ(nobody->login.shell, known->pw_shell);
  EXPECT_EQ(find_login(65534, clock)->home, known->pw_dir);
  EXPECT_EQ(find_user(4'123'456, clock).error().code, Errc::not_found);
  EXPECT_TRUE(check_dir_access(nullptr, "/", clock).ok());
  EXPECT_EQ(check_dir_access(nullptr, "/no/such/folder", clock).error().code, Errc::not_found);
  if (::geteuid() != 0) return;
  io::TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  EXPECT_TRUE(check_dir_access(nullptr, dir.path(), clock).ok());
  EXPECT_EQ(check_dir_access(&nobody->ids, dir.path(), clock).error().code, Errc::refused);
}

TEST(UntrustedDir, NeverFollowsALink) {
  io::TempDir dir;
  fs::create_directories(dir / "outside");
  std::ofstream(dir / "outside/file") << "kept";
  fs::create_directories(dir / "tree/a/b");
  std::ofstream(dir / "tree/a/b/file") << "gone";
  fs::create_directory_symlink(dir / "outside", dir / "tree/link");
  fs::create_directory_symlink(dir / "outside", dir / "tree/a/b/link");
  EXPECT_TRUE(remove_untrusted_dir(dir / "tree").ok());
  EXPECT_FALSE(fs::exists(dir / "tree"));
  EXPECT_TRUE(fs::exists(dir / "outside/file"));
  EXPECT_TRUE(remove_untrusted_dir(dir / "tree").ok());
  fs::create_directory_symlink(dir / "outside", dir / "tree");
  EXPECT_TRUE(remove_untrusted_dir(dir / "tree").ok());
  EXPECT_TRUE(fs::exists(dir / "outside/file"));
  std::string deep = dir / "deep";
  for (int i = 0; i < kUntrustedDepthMax + 2; i++) deep += "/d";
  fs::create_directories(deep);
  EXPECT_FALSE(remove_untrusted_dir(dir / "deep").ok());
}

// A reader that follows a log gets every kept byte once, and learns how many bytes were removed.
TEST(TaskLogs, OffsetsCountWhatIsGone) {
  io::TempDir dir;
  io::SystemDisk disk;
  SystemClock clock;
  const std::string path = dir / "0.log";
  shim::LogLimits limits{.path = path, .file_bytes = 64 * kKiB, .files = 3, .rate = 0};
  shim::RankLog log(disk, clock, limits);
  EXPECT_EQ(RotatedLog::open(disk, path)->end(), 0u);
  std::string followed;
  bool lost = false;
  for (int i = 0; i < 20'000; i++) {
    log.write(fmt::format("line {}\n", i));
    if (i % 1000 != 0 && i != 19'999) continue;
    const auto files = RotatedLog::open(disk, path);
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
    const auto line = shim::parse_rank_log_line(text);
    if (text.empty() || (line && line->own)) continue;
    ASSERT_TRUE(line.has_value()) << text;
    ASSERT_EQ(line->text, fmt::format("line {}", next++));
  }
  EXPECT_EQ(next, 20'000);
  // A removed offset: reads from the first kept byte.
  const auto files = RotatedLog::open(disk, path);
  const auto first = files->read(files->begin(), 100);
  EXPECT_EQ(*first, followed.substr(files->begin(), 100));
}

// An attempt is moved to `ended` before the folders of its shims are removed, file by file.
TEST(TaskLogs, OfAnAttemptThatIsPutAwayHasEnded) {
  io::TempDir dir;
  io::SystemDisk disk;
  const std::string attempt = dir / "attempts/7.1", exit = attempt + "/rank.0/exit";
  fs::create_directories(attempt + "/rank.0");
  fs::create_directories(dir / "ended");
  std::ofstream(attempt + "/" + kAttemptFile) << to_json({.task = 7, .attempt = 1, .processes = 1});
  std::ofstream(attempt + "/0.log") << "a line\n";
  const TaskLogs logs(disk, dir / "attempts", dir / "ended");
  wire::LogRequest request;
  request.set_task(7);
  const auto has_ended = [&] {
    const auto reply = logs.read(request, std::nullopt);
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    return reply.ok() && reply->data() == "a line\n" && reply->ended();
  };
  EXPECT_FALSE(has_ended());
  std::ofstream(exit) << "{}";
  EXPECT_TRUE(has_ended());
  fs::rename(attempt, dir / "ended/7.1");
  EXPECT_TRUE(has_ended());
  fs::remove(dir / "ended/7.1/rank.0/exit");
  EXPECT_TRUE(has_ended());
  fs::remove(dir / "ended/7.1/rank.0");
  EXPECT_TRUE(has_ended());
}

}  // namespace
}  // namespace ff::scheduler
