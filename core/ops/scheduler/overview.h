// The JSON behind the web page of the scheduler (page.h): tasks and nodes now, use over the last
// day. Its size is bounded, and it states how much was left out. It is rebuilt at most once a
// second, however many clients ask. Control bytes in names are escaped (printable()).
//
// The map of nodes (names, places) is large and changes rarely, so it has a version; the overview
// holds one state per node, in the order of the map.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/scheduler/scheduler_state.h"
#include "ops/scheduler/state_text.h"
#include "ops/scheduler/utilization.h"
#include "platform/base/metrics.h"

namespace ff::scheduler {

class Overview {
 public:
  static constexpr size_t kRowsMax = 100;      // of each table
  static constexpr size_t kNodesMax = 20'000;  // of the map
  static constexpr int64_t kSampleNs = 5 * kSecond;

  // Registers gauges of tasks and nodes; null: none.
  explicit Overview(Metrics* metrics);

  // The scheduler state is loaded.
  void load(const wire::Use& use, SchedulerState::Now now);
  void changed(const SchedulerState::Changes& changed);
  // Call it every kSampleNs.
  void sample(const SchedulerState& scheduler, SchedulerState::Now now);
  wire::Use use() const { return use_.record(); }

  // `query`: "find=WORDS", percent-encoded: only tasks whose user, title, id, state or partition
  // contain all of the words.
  std::string json(const SchedulerState& scheduler, SchedulerState::Now now,
                   std::string_view query);
  std::string map_json(const SchedulerState& scheduler, SchedulerState::Now now);

 private:
  struct Counts {
    std::array<uint64_t, kNodeStateCount> nodes{};
    std::array<uint64_t, static_cast<size_t>(TaskPhase::finished)> tasks{};
  };
  Counts count(const SchedulerState& scheduler, const std::vector<wire::ListedNode>& nodes) const;
  void position_nodes(const std::vector<wire::ListedNode>& nodes);
  std::string build(const SchedulerState& scheduler, SchedulerState::Now now,
                    std::string_view query);

  Utilization use_;
  int64_t sampled_ns_ = 0;  // steady

  uint64_t map_version_ = 0;
  uint64_t positions_version_ = 0;       // of map_positions_
  std::vector<uint32_t> map_positions_;  // index in the map, of the nodes in order of names

  int64_t cached_ns_ = 0;
  uint64_t cached_version_ = 0;                             // of the map
  std::map<std::string, std::string, std::less<>> cached_;  // by query

  std::array<Gauge*, kNodeStateCount> node_gauges_{};
  std::array<Gauge*, static_cast<size_t>(TaskPhase::finished)> task_gauges_{};
};

}  // namespace ff::scheduler
