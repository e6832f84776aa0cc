// An open directory, listed page by page; each page shows the names at the time it is read. A name
// that exists all the time appears once; a name created or removed meanwhile may appear or not.
// Owned by one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/wait.h"
#include "storage/client/inode_state.h"
#include "storage/client/recovery_table.h"
#include "storage/meta/meta_client.h"

namespace ff::mount {

class DirectoryHandle {
 public:
  // All outlive it. `parent`: the inode of "..".
  DirectoryHandle(Loop& loop, meta::MetaClient& metadata, meta::Caller caller, meta::InodeView dir,
                  meta::InodeId parent, std::shared_ptr<client::InodeState> state);

  const meta::Inode& inode() const { return dir_.inode; }

  // To continue after an entry, read from its position plus one. The first position is 0.
  struct Entry {
    uint64_t position = 0;
    meta::MetaClient::DirEntry listed;
    int64_t fetched_ns = 0;  // when its attributes were fetched
  };
  // Entries from `position` on, at least one unless there are none; "." and ".." come first.
  // Position 0 starts a new listing. The pointers are valid until the next call. `with_inodes`: if
  // a page must be fetched, fetch the inodes of its entries, too.
  Task<Result<std::vector<const Entry*>>> read(uint64_t position, bool with_inodes);
  // The caller has sent the entries up to this one to a program: a successor of this process
  // continues after it. `number`: of the handle.
  void on_sent(client::RecoveryTable& recovery, uint64_t number, const Entry& last);
  // Continues the listing of a predecessor: the next entry has this position and follows that name.
  void restore(client::RecoveryTable::Record position);
  // The record of the handle itself.
  client::RecoveryTable::Record record = {};
  // The last step of fsync(2): a writeback error that this handle has not reported yet.
  const client::ErrorSeq::Cursor& cursor() const { return error_cursor_; }
  void restore_cursor(client::ErrorSeq::Cursor cursor) { error_cursor_ = cursor; }
  Result<void> writeback_error() { return state_->errors.check_and_advance(error_cursor_); }

 private:
  Task<Result<void>> load_page(uint64_t position, bool with_inodes);

  Loop& loop_;
  Semaphore lock_;
  meta::MetaClient& metadata_;
  const meta::Caller caller_;
  const meta::InodeView dir_;
  const std::shared_ptr<client::InodeState> state_;
  client::ErrorSeq::Cursor error_cursor_;
  const std::vector<Entry> dots_;
  // The start of each page and the name before it, for programs that seek back.
  struct Page {
    uint64_t position = 0;
    std::string after = {};
  };
  std::vector<Page> pages_;
  size_t page_ = 0;             // index in `pages_` of the loaded page
  std::vector<Entry> entries_;  // of the loaded page
  bool end_ = false;            // it is the last page
  client::RecoveryTable::Record position_;
};

}  // namespace ff::mount
