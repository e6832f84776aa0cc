// overview.cc: rows of tasks, states of nodes, and the cache between requests.
#include "ops/scheduler/overview.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "platform/base/text.h"

namespace ff::scheduler {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kCacheNs = kSecond;
constexpr size_t kCachedMax = 8;  // number of queries
constexpr size_t kTitleMax = 120;
constexpr size_t kWhyMax = 300;
constexpr size_t kQueryMax = 400;

constexpr size_t index(auto value) { return static_cast<size_t>(value); }

Json seconds(int64_t ns) { return ns == 0 ? Json() : Json(ns / kSecond); }

// For names that may contain any bytes.
std::string shown(std::string_view text) { return printable(text); }

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high < 0 ? -1 : hex_digit(text[i + 2]);
    out += low < 0 ? text[i] : static_cast<char>(high * 16 + low);
    if (low >= 0) i += 2;
  }
  return out;
}

// The search words; a task must match all.
class Search {
 public:
  explicit Search(std::string_view query) {
    constexpr std::string_view kFind = "find=";
    if (!query.starts_with(kFind)) return;
    const std::string text = lower(percent_decoded(query.substr(kFind.size(), kQueryMax)));
    for (const std::string_view word : split(text, ' ')) {
      if (!word.empty()) words_.emplace_back(word);
    }
  }
  bool all() const { return words_.empty(); }
  bool matches(const wire::Task& task) const {
    if (all()) return true;
    const std::string text = lower(fmt::format(
        "{}\n{}\n{}\n{}\n{}", task.id(), shown(task.owner().name()),
        shown(short_title(task, kTitleMax)), task_state(task), shown(task.spec().group())));
    return std::ranges::all_of(
        words_, [&](const std::string& word) { return text.find(word) != text.npos; });
  }

 private:
  std::vector<std::string> words_;
};

// The time of the last state change.
int64_t since_ns(const wire::Task& task) {
  const wire::Attempt* const current = last_attempt(task);
  switch (phase_of(task)) {
    case TaskPhase::preparing: return current == nullptr ? 0 : current->placed();
    case TaskPhase::running: return current == nullptr ? 0 : current->started();
    case TaskPhase::stopping: return current == nullptr ? 0 : current->asked();
    case TaskPhase::finished: return task.finished();
    default: return current == nullptr ? task.submitted() : current->ended();
  }
}

Json row(const SchedulerState& scheduler, const wire::Task& task, SchedulerState::Now now) {
  const auto waiting = scheduler.waiting(task.id());
  const wire::Attempt* const current = last_attempt(task);
  std::string why = shown(reason_text(task, waiting ? &*waiting : nullptr, now.wall_ns));
  if (why.size() > kWhyMax) why = shown(why.substr(0, kWhyMax)) + "...";
  Json json = {{"task", task.id()},
               {"title", shown(short_title(task, kTitleMax))},
               {"user", shown(task.owner().name())},
               {"priority", priority_text(task.spec())},
               {"group", shown(task.spec().group())},
               {"nodes", task.spec().nodes()},
               {"state", task_state(task)},
               {"since_s", seconds(since_ns(task))},
               {"why", std::move(why)}};
  const bool ran = current != nullptr && current->started() != 0 && current->ended() != 0;
  json["ran_s"] = ran ? Json((current->ended() - current->started()) / kSecond) : Json();
  return json;
}

// The first rows, and the number of all.
template <class Tasks>
Json table(const SchedulerState& scheduler, SchedulerState::Now now, const Tasks& tasks) {
  Json rows = Json::array();
  for (size_t i = 0; i < std::min(tasks.size(), Overview::kRowsMax); i++) {
    rows.push_back(row(scheduler, *tasks[i], now));
  }
  const size_t more = tasks.size() - rows.size();
  return {{"rows", std::move(rows)}, {"more", more}};
}

// In the order in which they will start, as far as known: explicit priority, then age.
bool is_earlier(const wire::Task* a, const wire::Task* b) {
  const auto rank = [](const wire::Task* task) {
    const bool suspended = phase_of(*task) == TaskPhase::suspended;
    const bool has_one = task->spec().has_priority();
    const uint32_t priority = has_one ? task->spec().priority() : 0;
    return std::tuple(suspended, !has_one, UINT32_MAX - priority, task->id());
  };
  return rank(a) < rank(b);
}

bool is_newer(const wire::Task* a, const wire::Task* b) {
  return std::pair(since_ns(*a), a->id()) > std::pair(since_ns(*b), b->id());
}

void sort_first(std::vector<const wire::Task*>& tasks, auto before) {
  const auto end =
      tasks.begin() + static_cast<ptrdiff_t>(std::min(tasks.size(), Overview::kRowsMax));
  std::partial_sort(tasks.begin(), end, tasks.end(), before);
}

Json spans_json(const Utilization& use) {
  Json spans = Json::array();
  for (const auto& [begin_ns, span] : use.spans()) {
    spans.push_back({begin_ns / kSecond, span.busy_ns / kSecond, span.in_service_ns / kSecond});
  }
  return {{"span_s", Utilization::kSpanNs / kSecond},
          {"day_s", Utilization::kSpans * Utilization::kSpanNs / kSecond},
          {"spans", std::move(spans)}};
}

}  // namespace

Overview::Overview(Metrics* metrics) {
  if (metrics == nullptr) return;
  for (size_t i = 0; i < node_gauges_.size(); i++) {
    std::string state(node_state_name(static_cast<NodeState>(i)));
    std::ranges::replace(state, ' ', '_');
    node_gauges_[i] = &metrics->gauge("ff_sched_nodes", "Nodes by state", {{"state", state}});
  }
  for (size_t i = 0; i < task_gauges_.size(); i++) {
    const std::string phase(task_phase_name(static_cast<TaskPhase>(i)));
    task_gauges_[i] =
        &metrics->gauge("ff_sched_tasks", "Tasks that are not finished", {{"phase", phase}});
  }
}

void Overview::load(const wire::Use& use, SchedulerState::Now now) {
  use_.load(use);
  sampled_ns_ = now.steady_ns;
  // Differs from the versions of earlier processes: web pages stay open across a restart.
  map_version_ = static_cast<uint64_t>(now.wall_ns / kMillisecond);
}

void Overview::changed(const SchedulerState::Changes& changed) {
  if (!changed.nodes.empty()) map_version_++;
}

Overview::Counts Overview::count(const SchedulerState& scheduler,
                                 const std::vector<wire::ListedNode>& nodes) const {
  Counts counts;
  for (const wire::ListedNode& node : nodes) counts.nodes[index(node_state_of(node))]++;
  for (const uint64_t id : scheduler.unfinished())
    counts.tasks[index(phase_of(*scheduler.task(id)))]++;
  return counts;
}

void Overview::sample(const SchedulerState& scheduler, SchedulerState::Now now) {
  const Counts counts = count(scheduler, scheduler.listed_nodes(now));
  const uint64_t busy = counts.nodes[index(NodeState::busy)];
  const uint64_t free = counts.nodes[index(NodeState::free)];
  use_.add(now.wall_ns, now.steady_ns - sampled_ns_, {.busy = busy, .in_service = busy + free});
  sampled_ns_ = now.steady_ns;
  for (size_t i = 0; i < node_gauges_.size(); i++) {
    if (node_gauges_[i] != nullptr) node_gauges_[i]->set(static_cast<int64_t>(counts.nodes[i]));
  }
  for (size_t i = 0; i < task_gauges_.size(); i++) {
    if (task_gauges_[i] != nullptr) task_gauges_[i]->set(static_cast<int64_t>(counts.tasks[i]));
  }
}

std::string Overview::json(const SchedulerState& scheduler, SchedulerState::Now now,
                           std::string_view query) {
  const bool is_old = now.steady_ns - cached_ns_ >= kCacheNs || cached_version_ != map_version_;
  if (is_old || cached_.size() >= kCachedMax) {
    cached_.clear();
    cached_ns_ = now.steady_ns;
    cached_version_ = map_version_;
  }
  const auto found = cached_.find(query);
  if (found != cached_.end()) return found->second;
  return cached_[std::string(query)] = build(scheduler, now, query);
}

std::string Overview::build(const SchedulerState& scheduler, SchedulerState::Now now,
                            std::string_view query) {
  const auto nodes = scheduler.listed_nodes(now);
  const Counts counts = count(scheduler, nodes);
  Json json = {{"now_s", now.wall_ns / kSecond}};
  for (size_t i = 0; i < counts.tasks.size(); i++) {
    json["tasks"][task_phase_name(static_cast<TaskPhase>(i))] = counts.tasks[i];
  }
  for (size_t i = 0; i < counts.nodes.size(); i++) {
    json["nodes"][node_state_name(static_cast<NodeState>(i))] = counts.nodes[i];
  }
  json["use"] = spans_json(use_);

  const Search search(query);
  std::vector<const wire::Task*> active, queue, finished;
  for (const uint64_t id : scheduler.unfinished()) {
    const wire::Task& task = *scheduler.task(id);
    if (search.matches(task)) (SchedulerState::has_nodes(task) ? active : queue).push_back(&task);
  }
  size_t checked = 0;
  for (auto one = scheduler.finished().rbegin(); one != scheduler.finished().rend(); ++one) {
    if (checked++ == kRowsMax) break;
    const wire::Task& task = *scheduler.task(one->second);
    if (search.matches(task)) finished.push_back(&task);
  }
  sort_first(active, is_newer);
  sort_first(queue, is_earlier);
  json["active"] = table(scheduler, now, active);
  json["queue"] = table(scheduler, now, queue);
  json["finished"] = table(scheduler, now, finished);

  position_nodes(nodes);
  const size_t shown_nodes = std::min(nodes.size(), kNodesMax);
  std::string states(shown_nodes, '0');
  std::vector<uint64_t> holds(shown_nodes, 0);
  for (size_t i = 0; i < nodes.size(); i++) {
    if (map_positions_[i] >= shown_nodes) continue;
    states[map_positions_[i]] = static_cast<char>('0' + index(node_state_of(nodes[i])));
    holds[map_positions_[i]] = nodes[i].task();
  }
  json["map"] = map_version_;
  json["states"] = std::move(states);
  json["holds"] = std::move(holds);
  return json.dump();
}

// By zone and leaf, then by name.
void Overview::position_nodes(const std::vector<wire::ListedNode>& nodes) {
  if (positions_version_ == map_version_ && map_positions_.size() == nodes.size()) return;
  std::vector<uint32_t> order(nodes.size());
  for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    const wire::Node &left = nodes[a].node(), &right = nodes[b].node();
    return std::tie(left.zone(), left.leaf()) < std::tie(right.zone(), right.leaf());
  });
  map_positions_.resize(nodes.size());
  for (uint32_t place = 0; place < order.size(); place++) map_positions_[order[place]] = place;
  positions_version_ = map_version_;
}

std::string Overview::map_json(const SchedulerState& scheduler, SchedulerState::Now now) {
  const auto nodes = scheduler.listed_nodes(now);
  position_nodes(nodes);
  std::vector<const wire::Node*> placed(nodes.size());
  for (size_t i = 0; i < nodes.size(); i++) placed[map_positions_[i]] = &nodes[i].node();
  const size_t more = placed.size() - std::min(placed.size(), kNodesMax);
  placed.resize(placed.size() - more);
  Json zones = Json::array();
  const wire::Node* before = nullptr;
  for (const wire::Node* const node : placed) {
    const bool new_zone = before == nullptr || before->zone() != node->zone();
    if (new_zone) zones.push_back({{"zone", shown(node->zone())}, {"leaves", Json::array()}});
    Json& leaves = zones.back()["leaves"];
    if (new_zone || before->leaf() != node->leaf()) {
      leaves.push_back({{"leaf", shown(node->leaf())}, {"nodes", Json::array()}});
    }
    const std::string marks = fmt::format("{}", fmt::join(node->marks(), " "));
    leaves.back()["nodes"].push_back(
        {shown(node->name()), shown(node->group()), shown(marks), shown(drained_text(*node))});
    before = node;
  }
  Json states = Json::array();
  for (size_t i = 0; i < kNodeStateCount; i++) {
    states.push_back(node_state_name(static_cast<NodeState>(i)));
  }
  const Json json = {{"map", map_version_},
                     {"states", std::move(states)},
                     {"zones", std::move(zones)},
                     {"more", more}};
  return json.dump();
}

}  // namespace ff::scheduler
