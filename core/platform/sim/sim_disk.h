// A Disk in memory with the weakest guarantees that POSIX allows, driven by a seed.
// Single-threaded.
//
// Faults that users must tolerate:
// - power_loss(): of each file the content and size of the last sync survive, and at random any
//   part of later changes: pages of 4 KiB in any order, pages torn at 512-byte sectors, the size
//   without the data (zeros) or the data without the size. Of each directory the entries of the
//   last sync_dir survive, and at random later changes. A synced file may be gone if its name was
//   not synced; a synced name may lead to an empty file. All open handles are invalid afterwards.
// - crash_at(): the machine stops at the given operation; all operations fail (is_crash()) until
//   power_loss() or kill(). Queued writes may have happened or not.
// - fail_at(), set_fault(): operations fail with an errno. A failed write may have written a
//   prefix. As on Linux, after a failed sync later ones succeed although the data that was unsynced
//   then is not durable, also for other processes: write it again.
// - set_capacity(): Errc::disk_full; a failed write has written what fit.
// - A queue completes operations in any order; a queued sync covers only completed writes. On a
//   loop each operation takes a random virtual time, sometimes a hundred times the usual one, even
//   while the process is paused.
//
// Guarantees:
// - rename is atomic, also at a power loss.
// - Changes to one name survive in order, and so do renames of directories.
// - No bytes of other files appear in a file; synced data stays intact, except for flip_bit().
// - Modes, modification times, links and targets of symbolic links are durable with the name.
// - Users and permissions are not enforced; sockets, devices and the like do not exist.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "platform/sim/sim_content.h"

namespace ff::sim {

struct SimInode;
class SimFile;
class SimQueue;

// Kinds of operations for set_fault(). `name`: all changes of directories, modes and times.
enum class SimOp : uint8_t { open, read, write, sync, name, sync_dir };

// True for errors of operations during a crash, or on a handle from before it.
bool is_crash(const Error& error);

class SimDisk final : public io::Disk {
 public:
  // `clock` provides modification times. Files and queues must not outlive the disk.
  SimDisk(uint64_t seed, Clock& clock);
  ~SimDisk() override;

  // Number of mutating operations so far: writes, truncations, reservations, syncs, opens that may
  // create or truncate, changes of names. Operation n is the one that starts at mutations() == n.
  uint64_t mutations() const { return mutations_; }
  void crash_at(uint64_t operation) { crash_at_ = operation; }
  // Crashes now. Call it before the objects of a killed process are destroyed: their destructors
  // may write and sync (SQLite copies its log when it is closed).
  void crash();
  bool crashed() const { return crashed_; }
  void fail_at(uint64_t operation, int err) { failures_[operation] = err; }
  void set_fault(SimOp kind, double probability, int err);  // probability 0: no more faults
  // Maximum time of queued operations on a loop; 0: the default.
  void set_slow(int64_t slowest_ns) { slowest_ns_ = slowest_ns; }
  void power_loss();
  // All processes die, the machine survives: handles are invalid, no data is lost.
  void kill();

  void set_capacity(uint64_t bytes) { capacity_ = bytes / kPage; }
  void set_read_only(bool read_only) { read_only_ = read_only; }
  // Flips one bit of a file's content, counted from the lowest bit of the first byte.
  Result<void> flip_bit(const std::string& path, uint64_t bit);

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenOptions options) override;
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override;
  Result<io::FileInfo> info(const std::string& path) override;
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override;
  Result<void> make_dir(const std::string& path, uint32_t mode) override;
  Result<void> remove(const std::string& path) override;
  Result<void> remove_dir(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<void> set_mode(const std::string& path, uint32_t mode) override;
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override;
  Result<void> sync_dir(const std::string& dir) override;
  Result<io::Space> space(const std::string& path) override;
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override;

 private:
  friend class SimFile;
  friend class SimQueue;
  using InodeRef = std::shared_ptr<SimInode>;

  // The result of a path walk: the entry `name` of `dir`; `node` is null if it does not exist.
  // `dir` is null for paths that end in "/", "." or "..", which name a node but no entry.
  struct PathLookup {
    InodeRef dir;
    std::string name;
    InodeRef node;
  };
  // A directory entry and its new node (null: removed).
  struct Entry {
    InodeRef dir;
    std::string name;
    InodeRef node;
  };
  // An atomic change of one or two entries that no sync_dir() has covered.
  struct NameChange {
    std::vector<Entry> entries;
    bool moves_dir = false;
  };
  struct Fault {
    double probability = 0;
    int err = 0;
  };

  // Resolves `path`; returns an errno, 0 on success.
  int walk(const std::string& path, bool follow_last, PathLookup& found);
  // The existing node at `path`.
  Result<InodeRef> find(const std::string& path, bool follow_last);

  // Returns the fault for an operation, if any; counts the operation if it mutates.
  Result<void> inject_fault(SimOp kind, bool mutates, const std::string& path);
  void restart();
  InodeRef new_inode(io::FileKind kind, uint32_t mode);
  // Creates the node of a new entry; returns an errno such as ENOSPC.
  int make_inode(const PathLookup& found, io::FileKind kind, uint32_t mode, InodeRef& node);
  int check_rename(const PathLookup& from, const PathLookup& to, const InodeRef& moved) const;
  void apply(NameChange change);
  static void make_durable(const NameChange& change);
  void drop_unsynced_names(Survival survival);
  void recount_blocks();
  void release_if_gone(SimInode& node);
  bool take_blocks(uint64_t blocks);
  static io::FileInfo info_of(const SimInode& node);

  SeededRng rng_;
  Clock& clock_;
  int64_t slowest_ns_ = 0;
  InodeRef root_;
  std::vector<NameChange> unsynced_names_;
  std::vector<std::weak_ptr<SimInode>> dirs_;
  std::vector<SimQueue*> queues_;
  uint64_t next_inode_ = 1;
  uint64_t handle_epoch_ = 0;  // grows when handles die

  uint64_t mutations_ = 0;
  uint64_t crash_at_ = UINT64_MAX;
  bool crashed_ = false;
  bool read_only_ = false;
  std::map<uint64_t, int> failures_;  // by operation number
  std::map<SimOp, Fault> faults_;
  uint64_t capacity_;  // blocks of kPage
  uint64_t used_ = 0;  // blocks
};

}  // namespace ff::sim
