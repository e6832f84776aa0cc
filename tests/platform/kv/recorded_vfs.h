// An SQLite VFS over the system's default that records the synced content and the later writes of
// each file. A test can create the files that a power loss at this moment could leave, with any
// part of the unsynced writes. Names are durable at once. One instance at a time.
#pragma once

#include <sqlite3.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/check.h"
#include "platform/base/rng.h"

namespace ff::kv {

class RecordedVfs {
 public:
  // Files that are opened from now on use it.
  RecordedVfs() {
    FF_CHECK(current() == nullptr);
    current() = this;
    vfs_ = *real_;
    vfs_.zName = "recorded";
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.xOpen = &open;
    vfs_.xDelete = &remove;
    FF_CHECK(sqlite3_vfs_register(&vfs_, 1) == SQLITE_OK);
  }
  ~RecordedVfs() {
    sqlite3_vfs_unregister(&vfs_);
    FF_CHECK(sqlite3_vfs_register(real_, 1) == SQLITE_OK);
    current() = nullptr;
  }
  RecordedVfs(const RecordedVfs&) = delete;
  RecordedVfs& operator=(const RecordedVfs&) = delete;

  // Makes syncs fail from now on, or succeed again.
  void fail_syncs(bool fails) {
    const std::lock_guard lock(mutex_);
    fails_ = fails;
  }
  size_t syncs() const {
    const std::lock_guard lock(mutex_);
    return syncs_;
  }
  size_t bytes_of(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(path);
    return found == files_.end() ? 0 : found->second.now;
  }
  // Copies a directory in a state that a power loss now may leave. `all`: all writes survive.
  void leave(const std::string& dir, const std::string& into, Rng& rng, bool all = false) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, recorded] : files_) {
      if (!path.starts_with(dir + "/")) continue;
      std::string bytes = recorded.synced;
      for (const Change& change : recorded.later) {
        if (all || rng.below(2) == 0) apply(bytes, change, all ? 0 : rng.below(4));
      }
      std::ofstream out(into + path.substr(path.rfind('/')), std::ios::binary | std::ios::trunc);
      out << bytes;
    }
  }

 private:
  struct File {
    sqlite3_file base;
    std::string* path;  // null: nobody's
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  struct Change {
    uint64_t at = 0;  // of bytes that were written; else the new length
    bool written = true;
    std::string bytes = {};
  };
  struct Recorded {
    std::string synced = {};
    std::vector<Change> later = {};
    size_t now = 0;  // bytes
  };

  static RecordedVfs*& current() {
    static RecordedVfs* one = nullptr;
    return one;
  }
  static File& file_of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
  // `torn`: 0: the whole write; else the number of quarters of it, in whole sectors.
  static void apply(std::string& bytes, const Change& change, uint64_t torn) {
    if (!change.written) return bytes.resize(change.at);
    const size_t all = change.bytes.size();
    const size_t size = torn == 0 ? all : all * torn / 4 / 512 * 512;
    if (bytes.size() < change.at + size) bytes.resize(change.at + size);
    bytes.replace(change.at, size, change.bytes, 0, size);
  }

  static int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
    File& own = file_of(file);
    own.base.pMethods = nullptr;
    own.path = nullptr;
    const int status = real_->xOpen(real_, name, own.real(), flags, out);
    if (own.real()->pMethods == nullptr) return status;
    own.base.pMethods = &kMethods;
    if (status != SQLITE_OK || name == nullptr) return status;
    const std::lock_guard lock(current()->mutex_);
    const auto [recorded, fresh] = current()->files_.try_emplace(name);
    if (fresh) {  // what was left before is durable
      std::ifstream in(name, std::ios::binary);
      recorded->second.synced.assign(std::istreambuf_iterator<char>(in), {});
      recorded->second.now = recorded->second.synced.size();
    }
    own.path = new std::string(name);
    return status;
  }
  static int remove(sqlite3_vfs*, const char* name, int sync) {
    const std::lock_guard lock(current()->mutex_);
    current()->files_.erase(name);
    return real_->xDelete(real_, name, sync);
  }
  static int close(sqlite3_file* file) {
    delete file_of(file).path;
    return file_of(file).real()->pMethods->xClose(file_of(file).real());
  }
  // Records and executes the operation atomically.
  template <class Do>
  static int change(sqlite3_file* file, Change what, Do doing) {
    const std::lock_guard lock(current()->mutex_);
    const int status = doing();
    if (status != SQLITE_OK || file_of(file).path == nullptr) return status;
    Recorded& recorded = current()->files_[*file_of(file).path];
    const size_t end = what.at + what.bytes.size();
    recorded.now = what.written ? std::max(recorded.now, end) : end;
    recorded.later.push_back(std::move(what));
    return status;
  }
  static int write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
    std::string bytes(static_cast<const char*>(from), static_cast<size_t>(size));
    sqlite3_file* const real = file_of(file).real();
    return change(file, {.at = static_cast<uint64_t>(at), .bytes = std::move(bytes)},
                  [&] { return real->pMethods->xWrite(real, from, size, at); });
  }
  static int truncate(sqlite3_file* file, sqlite3_int64 size) {
    sqlite3_file* const real = file_of(file).real();
    return change(file, {.at = static_cast<uint64_t>(size), .written = false},
                  [&] { return real->pMethods->xTruncate(real, size); });
  }
  // Does not sync the real file, to save time.
  static int sync(sqlite3_file* file, int) {
    RecordedVfs& all = *current();
    const std::lock_guard lock(all.mutex_);
    if (all.fails_) return SQLITE_IOERR_FSYNC;
    ++all.syncs_;
    if (file_of(file).path == nullptr) return SQLITE_OK;
    Recorded& recorded = all.files_[*file_of(file).path];
    for (const Change& change : recorded.later) apply(recorded.synced, change, 0);
    recorded.later.clear();
    return SQLITE_OK;
  }
  template <auto kMember, class... A>
  static int pass(sqlite3_file* file, A... args) {
    sqlite3_file* const real = file_of(file).real();
    return (real->pMethods->*kMember)(real, args...);
  }
  static void barrier(sqlite3_file* file) {
    sqlite3_file* const real = file_of(file).real();
    real->pMethods->xShmBarrier(real);
  }

  using M = sqlite3_io_methods;
  static constexpr M kMethods = {
      .iVersion = 2,
      .xClose = &close,
      .xRead = &pass<&M::xRead, void*, int, sqlite3_int64>,
      .xWrite = &write,
      .xTruncate = &truncate,
      .xSync = &sync,
      .xFileSize = &pass<&M::xFileSize, sqlite3_int64*>,
      .xLock = &pass<&M::xLock, int>,
      .xUnlock = &pass<&M::xUnlock, int>,
      .xCheckReservedLock = &pass<&M::xCheckReservedLock, int*>,
      .xFileControl = &pass<&M::xFileControl, int, void*>,
      .xSectorSize = &pass<&M::xSectorSize>,
      .xDeviceCharacteristics = &pass<&M::xDeviceCharacteristics>,
      .xShmMap = &pass<&M::xShmMap, int, int, int, void volatile**>,
      .xShmLock = &pass<&M::xShmLock, int, int, int>,
      .xShmBarrier = &barrier,
      .xShmUnmap = &pass<&M::xShmUnmap, int>,
      .xFetch = nullptr,
      .xUnfetch = nullptr,
  };

  static inline sqlite3_vfs* const real_ = sqlite3_vfs_find("unix");
  sqlite3_vfs vfs_ = {};
  mutable std::mutex mutex_;
  std::map<std::string, Recorded> files_;  // by path
  size_t syncs_ = 0;
  bool fails_ = false;
};

}  // namespace ff::kv
