// What a decision is made from: the nodes, the tasks, and what each user may have. Names are
// numbers here (Names), so that a decision over thousands of tasks compares no text.
//
// The rules are HAI Platform's (paper VI-C): a node is given out as a whole; tasks take turns on
// nodes by priority and, within one priority, in the order they were first submitted; a gang starts
// with all of its nodes or not at all.
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

constexpr uint32_t kNobody = UINT32_MAX;    // no task, no node
constexpr uint32_t kAnywhere = UINT32_MAX;  // any zone
constexpr int64_t kNever = INT64_MAX;

// Text as small numbers, from 0; the same text has the same number.
class Names {
 public:
  uint32_t of(std::string_view text);
  const std::string& text(uint32_t number) const { return texts_.at(number); }

 private:
  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::vector<std::string> texts_;
};

// Priorities as users write them, lowest first; a Level is a place in this row.
constexpr std::array<uint32_t, 6> kPriorities = {0, 10, 20, 30, 40, 50};
constexpr size_t kLevels = kPriorities.size();
using Level = uint8_t;
constexpr Level kUsualLevel = 3;  // 30
std::optional<Level> level_of(uint32_t priority);

struct Node {
  uint32_t group = 0;  // resource type
  uint32_t zone = 0;
  uint32_t leaf = 0;                 // switch; each is in one zone
  std::vector<uint32_t> marks = {};  // in order
  bool usable = true;                // alive, and not drained
  uint32_t task = kNobody;           // who holds it: an index into Picture::tasks
};

struct Demand {
  uint32_t nodes = 1;
  uint32_t group = 0;
  uint32_t zone = kAnywhere;
  std::vector<uint32_t> marks = {};  // that each node must have; in order
};

enum class Phase : uint8_t { waiting, running, stopping };

// A task, as far as the decision sees it: all of its nodes, or none.
struct Gang {
  uint64_t order = 0;  // when it was first submitted: no two have the same
  uint32_t user = 0;
  Demand demand = {};
  std::optional<Level> level = kUsualLevel;  // nothing: as high as the user's quota has room for
  int64_t limit_ns = 0;                      // how long it may run; 0: as long as it likes
  int64_t min_run_ns = 0;                    // so long it is not interrupted
  int64_t ready_ns = 0;                      // not started before

  Phase phase = Phase::waiting;
  // While it has nodes:
  std::vector<uint32_t> nodes = {};
  Level charged = 0;  // the level it was started at
  int64_t started_ns = 0;
  int64_t saved_ns = 0;  // what it did before then is safe; started_ns until something is
};

// How many nodes of a group a user may hold at a level at once.
class Quotas {
 public:
  void set(uint32_t user, uint32_t group, Level level, uint32_t nodes);
  // Nothing: as many as there are.
  std::optional<uint32_t> limit(uint32_t user, uint32_t group, Level level) const;

 private:
  std::map<std::tuple<uint32_t, uint32_t, Level>, uint32_t> limits_;
};

struct Picture {
  std::vector<Node> nodes;
  std::vector<Gang> tasks;  // those that wait or hold nodes
  Quotas quotas;
  // How long a task that is asked to stop may take: to answer, to save, to end.
  int64_t stop_ns = 30 * kSecond + 300 * kSecond + 30 * kSecond;
};

}  // namespace ff::scheduler
