// A Disk in memory that behaves as badly as POSIX allows, from a seed. One thread.
//
// What it does to its callers, and they must survive:
// - power_loss(): of every file survive the content and size of its last sync, and by chance any
//   part of what came later: pages of 4 KiB in any order, a page torn at 512-byte sectors, the size
//   without the data (zeros) or the data without the size. Of every directory survive the entries
//   of its last sync_dir, and by chance later changes. A synced file whose name was not synced can
//   be gone; a synced name can lead to an empty file. Every open handle is dead afterwards.
// - crash_at(): the machine stops at an operation; from there all fails (is_crash) until
//   power_loss() or kill(). Queued writes not yet finished may have happened or not.
// - fail_at(), set_fault(): operations fail with an errno. A failed write may have written a
//   prefix. After a failed sync the file can report success and yet lose what it had unsynced (so
//   does Linux): write the data again to another file.
// - set_capacity(): Errc::disk_full; a failed write has written what fitted.
// - A queue finishes operations in any order; a queued sync covers only writes already finished. On
//   a loop each takes a virtual time of its own, now and then a hundred times the usual one, also
//   while the process is stopped.
//
// What it never does:
// - rename is never half done: after a power loss it happened or it did not.
// - Changes to one name survive in their order, and renames of directories among themselves.
// - No bytes of other files appear in a file; what was synced stays intact, unless flip_bit.
// - Modes, modification times, links and symbolic link targets are durable with the name.
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

struct SimNode;
class SimFile;
class SimQueue;

// What can be made to fail with a probability. `name` is every change of a directory, mode or time.
enum class SimOp : uint8_t { open, read, write, sync, name, sync_dir };

// True for the error of an operation that met a crash or a handle that did not outlive one.
bool is_crash(const Error& error);

class SimDisk final : public io::Disk {
 public:
  // The clock gives modification times. Files and queues must not outlive the disk.
  SimDisk(uint64_t seed, Clock& clock);
  ~SimDisk() override;

  // Mutating operations so far: writes, truncations, reservations, syncs, opens that may create or
  // truncate, changes of names. Operation number n is the one that finds mutations() == n.
  uint64_t mutations() const { return mutations_; }
  void crash_at(uint64_t operation) { crash_at_ = operation; }
  // At once. Whoever plays a process that dies calls it before its objects go: their destructors
  // would write and sync what a dead process does not (SQLite copies its log when it is closed).
  void crash();
  bool crashed() const { return crashed_; }
  void fail_at(uint64_t operation, int err) { failures_[operation] = err; }
  void set_fault(SimOp kind, double probability, int err);  // 0: never again
  // Operations of queues on a loop take up to so long; 0: as usual again.
  void set_slow(int64_t slowest_ns) { slowest_ns_ = slowest_ns; }
  void power_loss();
  // The processes die and the machine lives: handles are dead, nothing is lost.
  void kill();

  void set_capacity(uint64_t bytes) { capacity_ = bytes / kPage; }
  void set_read_only(bool read_only) { read_only_ = read_only; }
  // Bit `bit` of a file's content, counted from its first byte's lowest bit.
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

 private:
  friend class SimFile;
  friend class SimQueue;
  using NodeRef = std::shared_ptr<SimNode>;

  // Where a path leads: the entry `name` of `dir`, whose node may be missing. `dir` is null for
  // paths that end in "/", "." or "..": these name a node and no entry.
  struct Place {
    NodeRef dir;
    std::string name;
    NodeRef node;
  };
  // One entry of one directory and what it holds from now on (null: nothing).
  struct Entry {
    NodeRef dir;
    std::string name;
    NodeRef node;
  };
  // An atomic change of one or two entries that no sync_dir has covered yet.
  struct NameChange {
    std::vector<Entry> entries;
    bool moves_dir = false;
  };
  struct Fault {
    double probability = 0;
    int err = 0;
  };

  // Errno of following `path`, 0 for success.
  int walk(const std::string& path, bool follow_last, Place& place);
  // The existing node at `path`.
  Result<NodeRef> find(const std::string& path, bool follow_last);

  // The faults that meet an operation; counts it when it mutates.
  Result<void> admit(SimOp kind, bool mutates, const std::string& path);
  void restart();
  NodeRef new_node(io::FileKind kind, uint32_t mode);
  // Space for a new entry's node, or ENOSPC.
  int make_node(const Place& place, io::FileKind kind, uint32_t mode, NodeRef& node);
  int check_rename(const Place& from, const Place& to, const NodeRef& moved) const;
  void apply(NameChange change);
  static void settle(const NameChange& change);
  void lose_names(Fate fate);
  void recount();
  void release_if_gone(SimNode& node);
  bool take_blocks(uint64_t blocks);
  static io::FileInfo info_of(const SimNode& node);

  SeededRng rng_;
  Clock& clock_;
  int64_t slowest_ns_ = 0;
  NodeRef root_;
  std::vector<NameChange> unsynced_names_;
  std::vector<std::weak_ptr<SimNode>> dirs_;
  std::vector<SimQueue*> queues_;
  uint64_t next_inode_ = 1;
  uint64_t life_ = 0;  // grows when handles die

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
