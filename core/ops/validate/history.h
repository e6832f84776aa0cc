// The history of this node: every run with all values, and the adopted inventory. One SQLite file
// in the state directory (`base/state_dir.h`).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/validate/check.h"
#include "platform/base/clock.h"
#include "platform/db/database.h"

namespace ff::validate {

struct RunRecord {
  int64_t id = 0;
  int64_t wall_ns = 0;
  std::string boot = {};  // boot id (/proc/sys/kernel/random/boot_id)
  RunLevel level = RunLevel::quick;
  Verdict verdict = Verdict::pass;
  double seconds = 0;
};

class History {
 public:
  // Opens or creates the file. Errors: those of db::Database::open.
  static Result<History> open(const std::string& path, Clock& clock);

  // The new path of a corrupt file that open() moved; empty: the file was intact.
  const std::string& moved_aside() const { return database_.moved_aside(); }

  Result<void> add(const RunRecord& run, const std::vector<Finding>& findings);
  // Newest first.
  Result<std::vector<RunRecord>> runs(size_t most);
  Result<std::vector<Finding>> findings(int64_t run);
  // Every part whose value has a good direction in the last runs, with its values, oldest first.
  struct Value {
    int64_t wall_ns = 0;
    double value = 0;
    Verdict verdict = Verdict::pass;
    std::string load = {};  // other load on the machine
  };
  struct Series {
    std::string name, part, unit;
    std::vector<Value> values = {};
  };
  Result<std::vector<Series>> series(size_t runs);
  // The values that a part is compared with: passed, without other load, since the node was
  // adopted.
  Result<std::vector<double>> baseline(const std::string& name, const std::string& part);
  // The newest value of each part since the given boot, by name and part.
  using Values = std::map<std::pair<std::string, std::string>, double>;
  Result<Values> last_values(const std::string& boot);
  // When the log of the machine was last read; 0: never.
  Result<int64_t> last_log();

  // Nothing: this node was never adopted.
  Result<std::optional<Inventory>> inventory();
  Result<void> adopt(const Inventory& inventory, int64_t wall_ns);

 private:
  explicit History(db::Database database) : database_(std::move(database)) {}
  db::Database database_;
};

// Whether a value is significantly worse than the values before it: beyond 7 % and 4 median
// absolute deviations from their median, and more than 7 % worse than any of them. The last
// condition avoids false alarms on machines whose values alternate between two levels, as those of
// virtual machines do.
struct Drift {
  // Number of runs that are compared, and the minimum.
  static constexpr size_t kRuns = 20, kLeast = 5;
  size_t runs = 0;  // fewer than kLeast: the other fields are unset
  double median = 0;
  double bound = 0;  // the worst value that is accepted
  bool bad = false;
};
Drift drift_of(double value, Better better, std::vector<double> before);

// Compares a passed finding that has a good direction with earlier values: it becomes degraded with
// "the last N runs" as source, or states that there is no baseline yet.
void compare_with_baseline(Finding& finding, const std::vector<double>& before);

}  // namespace ff::validate
