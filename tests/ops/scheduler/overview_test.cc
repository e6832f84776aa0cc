// JSON of the scheduler page: names of any bytes, more tasks and nodes than it shows, the use of
// the last day.
#include "ops/scheduler/overview.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ops/scheduler/simulated_nodes.h"

namespace ff::scheduler {
namespace {

using nlohmann::json;

class OverviewTest : public testing::Test {
 protected:
  OverviewTest() {
    state_.begin(now_);
    overview_.load({}, now_);
  }
  uint64_t submit(const std::string& name, uint32_t nodes = 1, std::optional<uint32_t> level = 30,
                  const std::string& user = "ada") {
    wire::SubmitRequest request;
    request.mutable_owner()->set_uid(static_cast<uint32_t>(1000 + user.size() + users_++ / 5000));
    request.mutable_owner()->set_name(user);
    wire::Spec& spec = *request.mutable_spec();
    spec.set_name(name);
    spec.add_argv("train");
    spec.set_cwd("/");
    spec.set_nodes(nodes);
    spec.set_processes(1);
    spec.set_group("default");
    if (level) spec.set_priority(*level);
    const auto id = state_.submit(std::move(request), SubmittedBy::user, now_);
    EXPECT_TRUE(id.ok());
    changed();
    return id.value();
  }
  void control(uint64_t id, TaskControl what) {
    EXPECT_TRUE(state_.control(id, what, now_).ok());
    changed();
  }
  SimulatedNode& join(const std::string& name, const std::string& zone, const std::string& leaf) {
    auto& node = nodes_.emplace_back(std::make_unique<SimulatedNode>(name, 0));
    node->facts().set_zone(zone);
    node->facts().set_leaf(leaf);
    report(*node);
    return *node;
  }
  void report(SimulatedNode& node) {
    EXPECT_TRUE(state_.apply_report(node.request(), now_).ok());
    changed();
  }
  // Every node prepares and runs what it is ordered to.
  void run() {
    for (int i = 0; i < 4; i++) {
      (void)state_.tick(now_);
      for (auto& node : nodes_) {
        node->apply("s", state_.orders(node->name()), INT64_MAX / 2, now_.steady_ns, tasks_);
        report(*node);
      }
    }
  }
  void changed() { overview_.changed(state_.take_changes()); }
  void pass(int64_t ns) {
    now_.steady_ns += ns;
    now_.wall_ns += ns;
  }
  json shown(std::string_view query = "") { return json::parse(text(query)); }
  // A second later: the cache has expired.
  std::string text(std::string_view query = "") {
    pass(kSecond);
    return overview_.json(state_, now_, query);
  }
  json map() { return json::parse(overview_.map_json(state_, now_)); }
  static std::vector<uint64_t> ids(const json& table) {
    std::vector<uint64_t> ids;
    for (const json& row : table["rows"]) ids.push_back(row["task"]);
    return ids;
  }

  Metrics metrics_;
  SchedulerState::Now now_ = {.steady_ns = 1000 * kSecond, .wall_ns = 1'700'000'400 * kSecond};
  SchedulerState state_{"s", {}, {}, {.tasks = 100'000, .tasks_per_user = 100'000}};
  Overview overview_{&metrics_};
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
  std::map<uint64_t, SimulatedTask> tasks_;
  size_t users_ = 0;
};

TEST_F(OverviewTest, NothingYet) {
  const json all = shown();
  EXPECT_EQ(all["states"], "");
  for (const char* const table : {"active", "queue", "finished"}) {
    EXPECT_EQ(all[table], json({{"rows", json::array()}, {"more", 0}})) << table;
  }
  EXPECT_EQ(all["use"]["spans"], json::array());
  EXPECT_EQ(map()["zones"], json::array());
}

TEST_F(OverviewTest, NamesOfAnyBytes) {
  const std::string evil = "</script>\x1b[31m\r\"\\ \xff \xe2\x80\xae";
  submit(evil, 1, 30, "u" + evil);
  std::string long_name;
  while (long_name.size() < 190) long_name += "\xe2\x98\x83";  // a snowman of three bytes
  submit(long_name);
  SimulatedNode& node = join("n\x1b<b>", "z</script>", "l\n");
  node.facts().add_marks("m\x9b=1");
  report(node);
  EXPECT_TRUE(state_.drain("n\x1b<b>", true, "bad\r<i>", now_).ok());
  changed();
  for (const std::string& made : {text(), overview_.map_json(state_, now_)}) {
    for (const char c : made) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
  const json rows = shown()["queue"]["rows"];
  EXPECT_EQ(rows[0]["title"], "</script>\\x1b[31m\\x0d\"\\ \\xff \xe2\x80\xae");
  EXPECT_EQ(rows[0]["user"], "u</script>\\x1b[31m\\x0d\"\\ \\xff \xe2\x80\xae");
  const std::string title = rows[1]["title"];
  EXPECT_TRUE(title.starts_with("\xe2\x98\x83") && title.ends_with("\xe2\x98\x83...")) << title;
  EXPECT_LE(title.size(), 120u);
  const json zone = map()["zones"][0];
  EXPECT_EQ(zone["zone"], "z</script>");
  EXPECT_EQ(zone["leaves"][0]["leaf"], "l\\x0a");
  EXPECT_EQ(zone["leaves"][0]["nodes"][0],
            json({"n\\x1b<b>", "default", "m\\x9b=1", "bad\\x0d<i>"}));
}

TEST_F(OverviewTest, MoreThanItShows) {
  for (int i = 0; i < 10'000; i++) {
    join(fmt::format("n{:05}", i), i % 2 == 0 ? "b" : "a", fmt::format("leaf{}", i % 400));
  }
  for (int i = 0; i < 15'000; i++) submit(fmt::format("task {}", i));
  const json all = shown();
  EXPECT_EQ(all["queue"]["rows"].size(), 100u);
  EXPECT_EQ(all["queue"]["more"], 14'900);
  EXPECT_EQ(all["tasks"]["queued"], 15'000);
  EXPECT_EQ(all["nodes"]["free"], 10'000);
  EXPECT_TRUE(all["states"] == std::string(10'000, '0'));
  EXPECT_EQ(all["holds"].size(), 10'000u);
  EXPECT_LT(text().size(), 200'000u);
  // The number of a task is one more than that in its name.
  const auto has = [](int number) {
    return fmt::to_string(number).find("149") != std::string::npos;
  };
  size_t expected = 0;
  for (int i = 0; i < 15'000; i++) expected += has(i) || has(i + 1) ? 1 : 0;
  const json some = shown("find=ada%20TASK%20149");
  EXPECT_EQ(some["queue"]["rows"].size() + some["queue"]["more"].get<size_t>(), expected);
  EXPECT_EQ(some["tasks"]["queued"], 15'000);
  EXPECT_EQ(shown("find=bob")["queue"]["rows"].size(), 0u);
  EXPECT_EQ(shown("find=%2")["queue"]["rows"].size(), 0u);
  EXPECT_EQ(shown("find=%20%20")["queue"]["more"], 14'900);
  const json zones = map()["zones"];
  ASSERT_EQ(zones.size(), 2u);
  EXPECT_EQ(zones[0]["zone"], "a");
  EXPECT_EQ(zones[0]["leaves"].size(), 200u);
  EXPECT_EQ(map()["more"], 0);
}

TEST_F(OverviewTest, NodesBeyondTheMapAreCounted) {
  for (size_t i = 0; i < Overview::kNodesMax + 5; i++) join(fmt::format("n{:05}", i), "a", "l");
  EXPECT_EQ(map()["more"], 5);
  EXPECT_EQ(shown()["states"].get<std::string>().size(), Overview::kNodesMax);
  EXPECT_EQ(shown()["nodes"]["free"], Overview::kNodesMax + 5);
}

TEST_F(OverviewTest, TheQueueInTheOrderOfItsTurn) {
  const uint64_t low = submit("low", 1, 10), any = submit("any", 1, {});
  const uint64_t suspended = submit("suspended", 1, 50);
  const uint64_t high = submit("high", 1, 40), later = submit("later", 1, 40);
  control(suspended, TaskControl::suspend);
  EXPECT_EQ(ids(shown()["queue"]), (std::vector<uint64_t>{high, later, low, any, suspended}));
  EXPECT_EQ(shown()["queue"]["rows"][3]["priority"], "auto");
}

TEST_F(OverviewTest, StatesOfNodesAndWhatTheyHold) {
  join("n2", "b", "l2");
  join("n1", "b", "l1");
  SimulatedNode& node = join("n3", "a", "l9");
  tasks_[1] = {.work_ns = kSecond * 1'000'000};
  EXPECT_EQ(submit("train", 2), 1u);
  const uint64_t waits = submit("waits", 3);
  run();
  EXPECT_TRUE(state_.drain("n3", true, "memory", now_).ok());
  changed();
  json all = shown();
  // Zone a first, then by leaf.
  EXPECT_EQ(all["states"], "611");
  EXPECT_EQ(all["holds"], json({0, 1, 1}));
  EXPECT_EQ(ids(all["active"]), (std::vector<uint64_t>{1}));
  EXPECT_EQ(all["active"]["rows"][0]["state"], "running");
  EXPECT_EQ(all["queue"]["rows"][0]["task"], waits);
  (void)state_.tick(now_);
  const auto waiting = state_.waiting(waits);
  ASSERT_TRUE(waiting.has_value());
  const wire::Task& task = *state_.task(waits);
  EXPECT_EQ(shown()["queue"]["rows"][0]["why"], reason_text(task, &*waiting, now_.wall_ns));
  const auto version = all["map"];
  EXPECT_EQ(map()["map"], version);
  pass(20 * kSecond);
  all = shown();
  EXPECT_EQ(all["states"], "644");  // no node has reported
  EXPECT_EQ(all["map"], version);
  node.facts().set_leaf("l8");
  report(node);
  EXPECT_NE(shown()["map"], version);
}

TEST_F(OverviewTest, TheNewestThatHaveFinished) {
  std::vector<uint64_t> newest;
  for (int i = 0; i < 120; i++) {
    pass(kSecond);
    const uint64_t id = submit("one");
    control(id, TaskControl::stop);
    newest.insert(newest.begin(), id);
  }
  newest.resize(Overview::kRowsMax);
  EXPECT_EQ(ids(shown()["finished"]), newest);
  EXPECT_EQ(shown()["finished"]["rows"][0]["state"], "stopped");
  EXPECT_EQ(shown()["finished"]["rows"][0]["why"], "stopped before it ran");
  // So does a scheduler that has just started.
  Overview other(nullptr);
  other.load({}, now_);
  EXPECT_EQ(ids(json::parse(other.json(state_, now_, ""))["finished"]), newest);
}

TEST_F(OverviewTest, IsMadeOnceASecond) {
  submit("first");
  const std::string first = text();
  submit("second");
  EXPECT_EQ(overview_.json(state_, now_, ""), first);
  EXPECT_EQ(json::parse(overview_.json(state_, now_, "find=second"))["queue"]["rows"].size(), 1u);
  EXPECT_EQ(shown()["queue"]["rows"].size(), 2u);
  join("n1", "a", "l");  // the map contains it at once
  EXPECT_EQ(json::parse(overview_.json(state_, now_, ""))["map"], map()["map"]);
}

TEST_F(OverviewTest, Gauges) {
  join("n1", "a", "l");
  submit("waits", 2);
  overview_.sample(state_, now_);
  const std::string text = metrics_.text();
  for (const char* const line :
       {"ff_sched_nodes{state=\"free\"} 1\n", "ff_sched_nodes{state=\"not_heard_of\"} 0\n",
        "ff_sched_tasks{phase=\"queued\"} 1\n", "ff_sched_tasks{phase=\"running\"} 0\n"}) {
    EXPECT_NE(text.find(line), text.npos) << line << text;
  }
  EXPECT_EQ(text.find("ada"), text.npos);
}

TEST_F(OverviewTest, TheUseOfNodesInService) {
  for (const char* const name : {"n1", "n2", "n3", "n4"}) join(name, "a", "l");
  EXPECT_TRUE(state_.drain("n4", true, "", now_).ok());
  tasks_[submit("train")] = {.work_ns = kSecond * 1'000'000};
  run();
  overview_.sample(state_, now_);
  const int64_t begin_s = now_.wall_ns / kSecond / 600 * 600;
  for (int i = 0; i < 10; i++) {
    pass(5 * kSecond);
    for (auto& node : nodes_) report(*node);
    overview_.sample(state_, now_);
  }
  EXPECT_EQ(shown()["use"]["spans"], json({{begin_s, 50, 150}}));
}

TEST(Utilization, OfOneDay) {
  constexpr int64_t kBegin = 1'700'000'400 * kSecond;
  Utilization use;
  for (int64_t at = kBegin; at < kBegin + 30 * 3600 * kSecond; at += 5 * kSecond) {
    use.add(at, 5 * kSecond, {.busy = 9'000, .in_service = 10'000});
  }
  EXPECT_EQ(use.spans().size(), 144u);
  const auto& span = use.spans().rbegin()->second;
  EXPECT_EQ(span.busy_ns, 9'000 * 600 * kSecond);
  EXPECT_EQ(span.in_service_ns, 10'000 * 600 * kSecond);
  Utilization again;
  again.load(use.record());
  EXPECT_EQ(again.record().SerializeAsString(), use.record().SerializeAsString());
  // A day without a scheduler: no data, and older data is dropped.
  again.add(kBegin + 60 * 3600 * kSecond, 30 * 3600 * kSecond, {.busy = 1, .in_service = 1});
  ASSERT_EQ(again.spans().size(), 1u);
  EXPECT_EQ(again.spans().begin()->second.in_service_ns, 600 * kSecond);
  // The clock was set back: no span lies in the future.
  use.add(kBegin, 5 * kSecond, {.busy = 0, .in_service = 1});
  EXPECT_EQ(use.spans().size(), 1u);
}

}  // namespace
}  // namespace ff::scheduler
