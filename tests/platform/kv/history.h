// Checks whether a recorded history of transactions is strictly serializable: searches for an order
// that respects real time (a transaction that ended before another began comes first) and in which
// each one reads exactly what it has read. A transaction with unknown outcome may come anywhere
// after its begin, or not at all. (Wing and Gong's algorithm with memoized states.)
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "platform/kv/engine.h"

namespace ff::kv {

struct Recorded {
  // A read: one key (`end` empty), or a range.
  struct Read {
    std::string begin;
    std::string end;
    std::map<std::string, std::string> found;
  };
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t begin_ns = 0;
  int64_t end_ns = kNever;  // kNever: the outcome is unknown
  std::vector<Read> reads;
  Txn::Writes writes;
};

class HistorySearch {
 public:
  // `clients[c]`: the transactions of client c, in order. An unknown outcome is the last one of its
  // client.
  explicit HistorySearch(const std::vector<std::vector<Recorded>>& clients)
      : clients_(clients), next_(clients.size(), 0) {}

  bool serializable() { return search(); }
  // Number of transactions of each client in the longest order found.
  const std::vector<size_t>& longest() const { return longest_; }

 private:
  using State = std::map<std::string, std::string>;

  const Recorded* head(size_t client) const {
    return next_[client] < clients_[client].size() ? &clients_[client][next_[client]] : nullptr;
  }

  bool search() {
    if (!met_.emplace(next_, state_).second) return false;
    size_t placed = 0, known = 0;
    int64_t first_end_ns = Recorded::kNever;
    for (size_t c = 0; c < clients_.size(); c++) {
      placed += next_[c];
      const Recorded* const one = head(c);
      if (one == nullptr || one->end_ns == Recorded::kNever) continue;
      known++;
      first_end_ns = std::min(first_end_ns, one->end_ns);
    }
    if (placed > longest_sum_ || longest_.empty()) {
      longest_ = next_;
      longest_sum_ = placed;
    }
    if (known == 0) return true;
    for (size_t c = 0; c < clients_.size(); c++) {
      const Recorded* const one = head(c);
      if (one == nullptr || one->begin_ns > first_end_ns || !sees(*one)) continue;
      const State before = state_;
      apply(*one);
      next_[c]++;
      if (search()) return true;
      next_[c]--;
      state_ = before;
    }
    return false;
  }

  bool sees(const Recorded& one) const {
    for (const auto& read : one.reads) {
      State found;
      if (read.end.empty()) {
        if (const auto at = state_.find(read.begin); at != state_.end()) found.insert(*at);
      } else {
        found.insert(state_.lower_bound(read.begin), state_.lower_bound(read.end));
      }
      if (found != read.found) return false;
    }
    return true;
  }
  void apply(const Recorded& one) {
    for (const auto& [key, value] : one.writes) {
      if (value) {
        state_[key] = *value;
      } else {
        state_.erase(key);
      }
    }
  }

  const std::vector<std::vector<Recorded>>& clients_;
  State state_;
  std::vector<size_t> next_;  // of each client
  std::vector<size_t> longest_;
  size_t longest_sum_ = 0;
  std::set<std::pair<std::vector<size_t>, State>> met_;
};

}  // namespace ff::kv
