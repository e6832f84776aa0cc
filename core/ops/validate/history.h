// What this node was like before: every run with every value, and what was adopted as its
// inventory. One SQLite file under the state folder (`base/state_dir.h`).
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
  std::string boot = {};  // which boot of the machine it was in (/proc/sys/kernel/random/boot_id)
  std::string log_file = {};  // a saved log that was read instead of the machine's own
  Level level = Level::quick;
  Verdict verdict = Verdict::pass;
  double seconds = 0;
};

class History {
 public:
  // Opens or makes the file. Errors: those of db::Database::open.
  static Result<History> open(const std::string& path, Clock& clock);

  // Where open() put the file that it found corrupt; empty: it was sound.
  const std::string& moved_aside() const { return database_.moved_aside(); }

  Result<void> add(const RunRecord& run, const std::vector<Finding>& findings);
  // The newest first.
  Result<std::vector<RunRecord>> runs(size_t most);
  Result<std::vector<Finding>> findings(int64_t run);
  // Every part whose value has a better side in the last runs, and what it was in each, the oldest
  // first.
  struct Value {
    int64_t wall_ns = 0;
    double value = 0;
    Verdict verdict = Verdict::pass;
    std::string load = {};  // who else worked the machine
  };
  struct Series {
    std::string name, part, unit;
    std::vector<Value> values = {};
  };
  Result<std::vector<Series>> series(size_t runs);
  // What a part is held against: values that passed, undisturbed, since the node was adopted.
  Result<std::vector<double>> baseline(const std::string& name, const std::string& part);
  // The newest value of each part in this boot, by name and part.
  using Values = std::map<std::pair<std::string, std::string>, double>;
  Result<Values> last_values(const std::string& boot);
  // When the machine's own log was last read; 0: never.
  Result<int64_t> last_log();

  // Nothing: this node was never adopted.
  Result<std::optional<Inventory>> inventory();
  Result<void> adopt(const Inventory& inventory, int64_t wall_ns);

 private:
  explicit History(db::Database database) : database_(std::move(database)) {}
  db::Database database_;
};

// Whether a value has drifted from those before it, to the bad side: beyond 7 % and 4 median
// absolute deviations from their median, and by more than 7 % worse than any of them. The last
// keeps machines quiet whose values jump between two levels, as those of guests do.
struct Drift {
  // Runs that are looked at, and that there must be.
  static constexpr size_t kRuns = 20, kLeast = 5;
  size_t runs = 0;  // fewer than kLeast: nothing else is known
  double median = 0;
  double bound = 0;  // the worst value that is no drift
  bool bad = false;
};
Drift drift_of(double value, Better better, std::vector<double> before);

// Of a finding that passes and has a better side, says what came out: degraded with "the last N
// runs" as source, or that there is no baseline yet.
void hold_against(Finding& finding, const std::vector<double>& before);

}  // namespace ff::validate
