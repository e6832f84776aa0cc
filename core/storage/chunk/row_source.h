// Sources of rows in ascending order, and the merge of several: a checkpoint combines the log with
// runs (sorted_run.h), and opening a disk reads all of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "storage/chunk/rows.h"

namespace ff::chunk {

class RowSource {
 public:
  virtual ~RowSource() = default;
  // The next row in the order of keys, an erased range before the row of its first key; nothing at
  // the end. Valid until the next call. Erased ranges concern older sources only.
  virtual Result<std::optional<RowView>> next() = 0;
};

// Changes in the order of the log, combined: the newest state of each row.
class LogRows {
 public:
  // Applies the rows of one entry. Errors: corrupt (malformed).
  Result<void> apply(std::string_view rows);
  bool empty() const { return rows_.empty() && ranges_.empty(); }
  // Must not outlive this, nor meet changes of it.
  std::unique_ptr<RowSource> source() const;

 private:
  class Source;
  std::map<std::string, std::optional<std::string>, std::less<>> rows_;  // nothing: erased
  std::map<std::string, std::string, std::less<>> ranges_;  // erased: begin -> end, exclusive
};

// Rows of several sources; the state of a row in a newer source replaces that in older ones.
class RowMerge final : public RowSource {
 public:
  // `newest_first`: the sources. `whole`: no older rows exist, so erased rows are left out.
  RowMerge(std::vector<std::unique_ptr<RowSource>> newest_first, bool whole);
  Result<std::optional<RowView>> next() override;

 private:
  struct Input {
    std::unique_ptr<RowSource> source;
    std::optional<RowView> row = {};
    std::string erased_to = {};  // end of the erased ranges that began so far
  };
  bool replaced(const Input& input) const;

  std::vector<Input> inputs_;  // newest first
  const bool whole_;
  bool begun_ = false;
  Input* taken_ = nullptr;  // its row was returned or dropped
  std::string last_key_;    // of the last row; empty: none
};

}  // namespace ff::chunk
