// An open directory: its names page by page, as they are when each page is read. A name that is
// there all the while comes once; one that is made or removed meanwhile may come or not. Owned by
// one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/wait.h"
#include "storage/client/inode_state.h"
#include "storage/meta/meta_client.h"

namespace ff::mount {

class Directory {
 public:
  // All outlive it. `parent`: what ".." is.
  Directory(Loop& loop, meta::MetaClient& names, meta::Caller caller, meta::Seen dir,
            meta::InodeId parent, std::shared_ptr<client::InodeState> state);

  const meta::Inode& inode() const { return dir_.inode; }

  // Where one goes on behind an entry is its position plus one; the first is at 0.
  struct Entry {
    uint64_t position = 0;
    meta::MetaClient::Listed listed;
    int64_t seen_ns = 0;  // when its inode was
  };
  // Entries from `position` on, at least one unless there are none; "." and ".." come first. From 0
  // it begins anew. They are good until the next call.
  Task<Result<std::vector<const Entry*>>> read(uint64_t position);
  // What fsync(2) tells last of all: an error that came late, and was not told here.
  Result<void> late_error() { return state_->errors.tell(told_); }

 private:
  Task<Result<void>> turn_to(uint64_t position);

  Loop& loop_;
  Semaphore turn_;
  meta::MetaClient& names_;
  const meta::Caller caller_;
  const meta::Seen dir_;
  const std::shared_ptr<client::InodeState> state_;
  client::ErrorSeq::Cursor told_;
  const std::vector<Entry> dots_;
  // Where pages begin, and after which name each was listed: for programs that go back.
  struct Page {
    uint64_t position = 0;
    std::string after = {};
  };
  std::vector<Page> pages_;
  size_t page_ = 0;             // of `pages_`, the one that is here
  std::vector<Entry> entries_;  // of that
  bool end_ = false;            // there is none behind it
};

}  // namespace ff::mount
