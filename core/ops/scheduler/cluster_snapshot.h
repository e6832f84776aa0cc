// The input of a scheduling pass: nodes, tasks, and quotas of users. Names are replaced by numbers
// (StringInterner), so that a pass over thousands of tasks compares no strings.
//
// The rules are those of HAI Platform (Fire-Flyer paper, VI-C): a node is allocated as a whole;
// tasks share nodes over time by priority and, within one priority, in order of submission; a gang
// starts with all of its nodes or not at all.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "platform/base/clock.h"

namespace ff::scheduler {

constexpr uint32_t kNoIndex = UINT32_MAX;  // no task, no node
constexpr uint32_t kAnyZone = UINT32_MAX;  // the task accepts any zone
constexpr int64_t kNever = INT64_MAX;

// Maps strings to small numbers from 0; equal strings get the same number.
class StringInterner {
 public:
  uint32_t id(std::string_view text);
  const std::string& text(uint32_t number) const { return texts_.at(number); }

 private:
  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::vector<std::string> texts_;
};

// Priorities as users write them, lowest first. A PriorityLevel is an index into this array.
constexpr std::array<uint32_t, 6> kPriorities = {0, 10, 20, 30, 40, 50};
constexpr size_t kPriorityLevels = kPriorities.size();
using PriorityLevel = uint8_t;
constexpr PriorityLevel kDefaultLevel = 3;  // 30
std::optional<PriorityLevel> priority_level(uint32_t priority);

struct SnapshotNode {
  uint32_t partition = 0;
  uint32_t zone = 0;
  uint32_t leaf = 0;                  // leaf switch; each is in one zone
  std::vector<uint32_t> labels = {};  // sorted
  bool usable = true;                 // its agent reports, and it is not drained
  uint32_t task = kNoIndex;           // the task that holds it: index into ClusterSnapshot::tasks
};

struct ResourceRequest {
  uint32_t nodes = 1;
  uint32_t partition = 0;
  uint32_t zone = kAnyZone;
  std::vector<uint32_t> labels = {};  // required of each node; sorted
};

enum class GangPhase : uint8_t { waiting, running, stopping };

// A task as a scheduling pass sees it: it holds all of its nodes, or none.
struct Gang {
  uint64_t order = 0;  // order of first submission; unique
  uint32_t user = 0;
  ResourceRequest request = {};
  std::optional<PriorityLevel> level =
      kDefaultLevel;       // nothing: as high as the user's quota has room for
  int64_t limit_ns = 0;    // maximum run time; 0: none
  int64_t min_run_ns = 0;  // not preempted before it ran for so long
  int64_t ready_ns = 0;    // earliest start

  GangPhase phase = GangPhase::waiting;
  // While the task holds nodes:
  std::vector<uint32_t> nodes = {};
  PriorityLevel charged_level = 0;  // whose quota the nodes count against
  int64_t started_ns = 0;
  int64_t saved_ns = 0;  // time of the last save; before the first one started_ns
};

// Maximum number of nodes of a partition that a user may hold at a level at once.
class Quotas {
 public:
  void set(uint32_t user, uint32_t partition, PriorityLevel level, uint32_t nodes);
  // Nothing: no limit.
  std::optional<uint32_t> limit(uint32_t user, uint32_t partition, PriorityLevel level) const;

 private:
  std::map<std::tuple<uint32_t, uint32_t, PriorityLevel>, uint32_t> limits_;
};

struct ClusterSnapshot {
  std::vector<SnapshotNode> nodes;
  std::vector<Gang> tasks;  // those that wait or hold nodes
  Quotas quotas;
  // Maximum time from the request to stop until the nodes are free: acknowledge, save, terminate.
  int64_t stop_ns = 30 * kSecond + 300 * kSecond + 30 * kSecond;
};

}  // namespace ff::scheduler
