// What the scheduler's page shows (page.h), as JSON: tasks and nodes now, use over the last day. Of
// a large cluster it is bounded, and says how much more there is; it is made at most once a second,
// however many ask. Control bytes in names are made visible (printable()).
//
// The map of nodes (names, where they stand) is large and changes rarely: it has a version, and the
// overview has a state for each of its nodes, in its order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/scheduler/book.h"
#include "ops/scheduler/utilisation.h"
#include "ops/scheduler/words.h"
#include "platform/base/metrics.h"

namespace ff::scheduler {

class Overview {
 public:
  static constexpr size_t kRowsMax = 100;      // of each table
  static constexpr size_t kNodesMax = 20'000;  // of the map
  static constexpr int64_t kSampleNs = 5 * kSecond;

  // Gauges of tasks and nodes; null: none.
  explicit Overview(Metrics* metrics);

  // The book is loaded.
  void begin(const wire::Use& use, Book::Now now);
  void changed(const Book::Changed& changed);
  // Every kSampleNs.
  void sample(const Book& book, Book::Now now);
  wire::Use use() const { return use_.kept(); }

  // `query`: "find=WORDS", percent-encoded: only tasks whose user, title, number, state or group
  // have all of the words.
  std::string json(const Book& book, Book::Now now, std::string_view query);
  std::string map_json(const Book& book, Book::Now now);

 private:
  struct Counts {
    std::array<uint64_t, kNodeStateCount> nodes{};
    std::array<uint64_t, static_cast<size_t>(TaskPhase::finished)> tasks{};
  };
  Counts count(const Book& book, const std::vector<wire::ListedNode>& nodes) const;
  void place_nodes(const std::vector<wire::ListedNode>& nodes);
  std::string make(const Book& book, Book::Now now, std::string_view query);

  Utilisation use_;
  int64_t sampled_ns_ = 0;  // steady

  uint64_t map_version_ = 0;
  uint64_t placed_version_ = 0;   // that `places_` is of
  std::vector<uint32_t> places_;  // in the map, of the nodes in the order of their names

  int64_t made_ns_ = 0;
  uint64_t made_version_ = 0;                             // of the map
  std::map<std::string, std::string, std::less<>> made_;  // by query

  std::array<Gauge*, kNodeStateCount> node_gauges_{};
  std::array<Gauge*, static_cast<size_t>(TaskPhase::finished)> task_gauges_{};
};

}  // namespace ff::scheduler
