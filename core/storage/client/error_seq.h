// Writeback errors: errors that happen after the call that caused them was acknowledged, when
// storage refuses bytes of write-behind or a server loses bytes or metadata changes. They belong to
// the inode, in a sequence as in Linux (errseq_t): each open file description gets the newest error
// once, from its own fsync(2). No description consumes the report of another. close(2) repeats the
// error each time, since a dup and a fork close, too.
//
// Code that detects a loss calls FileSystem::report_lost(inode, error) and nothing else. An opener
// of the inode (client::File, mount::FileHandle, mount::DirectoryHandle) takes a Cursor with
// sample() when it opens. Its fsync checks the cursor last, after everything that may be cancelled:
// co_return state->errors.check_and_advance(cursor);
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "platform/base/result.h"

namespace ff::client {

class ErrorSeq {
 public:
  // The position of one open file description in the sequence.
  class Cursor {
   public:
    uint64_t seen() const { return seen_; }
    uint64_t opened() const { return opened_; }

   private:
    friend class ErrorSeq;
    uint64_t seen_ = 0;
    uint64_t opened_ = 0;
  };

  void record(Error error) {
    last_ = std::move(error);
    count_++;
    reported_ = false;
    if (on_change_) on_change_(*this);
  }
  // `on_change` is called after each change (client/recovery_table.h).
  void watch(std::function<void(const ErrorSeq&)> on_change) { on_change_ = std::move(on_change); }
  // The sequence of a predecessor of this process, and a cursor of it.
  void restore(Error last, uint64_t count, bool reported) {
    last_ = std::move(last);
    count_ = count;
    reported_ = reported;
  }
  static Cursor restored_cursor(uint64_t seen, uint64_t opened) {
    Cursor cursor;
    cursor.seen_ = seen;
    cursor.opened_ = opened;
    return cursor;
  }
  const Error& last() const { return last_; }
  uint64_t count() const { return count_; }
  // Returns a cursor for a new opener. It still sees an error that no fsync has reported: the
  // writer may have closed the file and left fsync(2) to another program.
  Cursor sample() const {
    Cursor cursor;
    cursor.seen_ = reported_ || count_ == 0 ? count_ : count_ - 1;
    cursor.opened_ = count_;
    return cursor;
  }
  // For fsync(2): the newest error if the cursor has not seen it; marks it as seen.
  Result<void> check_and_advance(Cursor& cursor) {
    if (cursor.seen_ == count_) return {};
    cursor.seen_ = cursor.opened_ = count_;
    reported_ = true;
    if (on_change_) on_change_(*this);
    return last_;
  }
  // For close(2): the newest error since the cursor was opened or advanced. fsync(2) still reports
  // it.
  Result<void> check(const Cursor& cursor) const {
    if (cursor.opened_ == count_) return {};
    return last_;
  }
  // Whether no fsync has reported the newest error yet.
  bool has_unreported() const { return count_ > 0 && !reported_; }

 private:
  Error last_ = {};
  uint64_t count_ = 0;
  bool reported_ = false;
  std::function<void(const ErrorSeq&)> on_change_ = {};
};

}  // namespace ff::client
