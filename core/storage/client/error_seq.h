// Errors that came after the call which had caused them was answered: bytes written behind that no
// storage node took, writes or names that servers have lost. They belong to the inode, in a
// sequence, as Linux keeps them (errseq_t): every open file description that was open at the time
// is told of the newest, once, by its own fsync(2). No call of one takes the report away from
// another, and close(2) repeats it as often as it is asked, since a dup and a fork close, too.
//
// Who finds out late that something is lost calls FileSystem::report(inode, error), no more. Who
// has the inode open (a client::File, a mount's Handle, its Directory) took a Cursor when it was
// opened, and asks with it last of all, when everything else of the fsync is done and nothing can
// be interrupted any more:  co_return state->errors.tell(cursor);
#pragma once

#include <cstdint>
#include <utility>

#include "platform/base/result.h"

namespace ff::client {

class ErrorSeq {
 public:
  // What an open file description was told of.
  class Cursor {
    friend class ErrorSeq;
    uint64_t told_ = 0;
    uint64_t opened_ = 0;
  };

  void record(Error error) {
    last_ = std::move(error);
    count_++;
    seen_ = false;
  }
  // An error that no fsync has told anybody of is the new opener's, too: who writes may have closed
  // the file, and left fsync(2) to another program.
  Cursor open() const {
    Cursor cursor;
    cursor.told_ = seen_ || count_ == 0 ? count_ : count_ - 1;
    cursor.opened_ = count_;
    return cursor;
  }
  // Of fsync(2): the newest error, if there is one that the cursor was not told of. Now it was.
  Result<void> tell(Cursor& cursor) {
    if (cursor.told_ == count_) return {};
    cursor.told_ = cursor.opened_ = count_;
    seen_ = true;
    return last_;
  }
  // Of close(2): the newest that came since the cursor was opened, or told. It stays to be told.
  Result<void> look(const Cursor& cursor) const {
    if (cursor.opened_ == count_) return {};
    return last_;
  }
  // Nobody was told of the newest by an fsync.
  bool unseen() const { return count_ > 0 && !seen_; }

 private:
  Error last_ = {};
  uint64_t count_ = 0;
  bool seen_ = false;
};

}  // namespace ff::client
