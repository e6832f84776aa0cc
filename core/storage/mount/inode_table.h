// The inodes that the kernel knows or that programs have open: lookup counts, cache state, and the
// open file that all programs of this mount share. Owned by one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "platform/base/wait.h"
#include "storage/client/file.h"
#include "storage/meta/meta_client.h"

namespace ff::mount {

// The state of one open(2) of a program.
struct FileHandle;

struct CachedInode {
  CachedInode(Loop& loop, meta::InodeId inode) : id(inode), open_lock(loop, 1) {}

  const meta::InodeId id;
  uint64_t lookups = 0;    // the lookup count of the kernel (FUSE_FORGET)
  std::string proof = {};  // needed by users with tokens (meta/service.h)
  meta::InodeRef ref() const { return {.id = id, .proof = proof}; }

  // When a name was last resolved to this inode, and its ctime then or after our own last change. A
  // newer ctime on the server means that another client changed or removed a name.
  int64_t lookup_ns = 0;
  int64_t ctime_ns = 0;

  // Length and mtime that replies have given to the kernel since it last had to drop them. Of
  // replies that overlap, the kernel may keep either: only one value is certain.
  struct KernelAttributes {
    uint64_t length = 0;
    int64_t mtime_ns = 0;
    bool operator==(const KernelAttributes&) const = default;
  };
  std::optional<KernelAttributes> kernel_attributes = {};
  bool kernel_attributes_differ = false;  // replies had different values
  void on_reply(const meta::Inode& inode);
  // The kernel drops them, and ignores replies of requests that it sent before.
  void on_kernel_drops() {
    kernel_attributes.reset();
    kernel_attributes_differ = false;
  }
  // Whether the kernel can have no other length and mtime than these.
  bool kernel_knows(const meta::Inode& inode) const;

  // When an open last fetched the attributes that file() has. 0: they may be outdated.
  int64_t opened_ns = 0;
  uint64_t changes = 0;  // by this mount

  // Cached attributes of a directory, with changes through this mount applied: the kernel asks for
  // them after each change of an entry.
  std::optional<meta::Inode> cached_dir = {};
  int64_t cached_dir_ns = 0;
  // A name in this directory was created or removed.
  void on_entry_changed(int64_t wall_ns, int subdirs);
  int64_t entry_ns = 0;  // time of the last such change, clock of the servers

  // The Inode::data_version that the page cache of the kernel reflects; none: the pages must not be
  // used.
  std::optional<uint64_t> pages_version = {};
  uint64_t counted_writes = 0;  // File::reported_writes() already counted in it

  Semaphore open_lock;  // serializes open and close
  // All writing programs share one file, so that they see each other's writes, in order.
  std::shared_ptr<client::File> writer = {};
  std::shared_ptr<client::File> reader = {};
  std::set<FileHandle*> handles = {};
  // The session that keeps the chunks of an open file without a name.
  std::optional<meta::SessionId> holder = {};
  // client/recovery_table.h: of the holder; of the proof.
  client::RecoveryTable::Record holder_record = {};
  client::RecoveryTable::Record proof_record = {};

  // Null: not open.
  const std::shared_ptr<client::File>& file() const { return writer != nullptr ? writer : reader; }
  // Adds the reported writes of this mount to `pages_version`.
  void count_own_writes();
};
using CachedInodeRef = std::shared_ptr<CachedInode>;

struct FileHandle {
  CachedInodeRef inode = {};
  uint32_t uid = 0;  // user who opened it
  bool reads = false;
  bool writes = false;
  bool direct = false;                   // bypasses the page cache of the kernel
  client::ErrorSeq::Cursor cursor = {};  // position among the writeback errors
  client::RecoveryTable::Record record = {};
};
using FileHandleRef = std::shared_ptr<FileHandle>;

class InodeTable {
 public:
  // `recovery` keeps the proofs of inodes; may be null.
  explicit InodeTable(Loop& loop, client::RecoveryTable* recovery = nullptr)
      : loop_(loop), recovery_(recovery) {}

  // Creates an entry if there is none.
  CachedInodeRef get_or_create(meta::InodeId inode);
  // Null: unknown.
  CachedInodeRef find(meta::InodeId inode) const;
  // The kernel gets this inode from a lookup, and counts it.
  CachedInode& add_lookup(const meta::InodeView& view);
  // A reply gives these attributes to the kernel.
  void on_reply(const meta::Inode& inode);
  // Takes the proofs that a predecessor left.
  void restore_proofs();
  // Caches the attributes of a directory that a server has just returned.
  void cache_directory(const meta::Inode& inode);
  void on_entry_changed(meta::InodeId dir, int64_t wall_ns, int subdirs);
  // Drops the cached attributes of a directory, which may be wrong.
  void drop_directory(meta::InodeId dir);
  // Takes the attributes that one of our own changes returned.
  void on_changed(const meta::Inode& inode);
  // FUSE_FORGET: the kernel drops `lookups` references.
  void forget(meta::InodeId inode, uint64_t lookups);
  // Removes the entry if neither the kernel nor a program uses it.
  void drop_if_unused(const CachedInodeRef& cached);

  size_t size() const { return inodes_.size(); }
  // All inodes with open handles.
  std::vector<CachedInodeRef> open_inodes() const;
  // All inodes with a file, for which a handle may be open or not.
  std::vector<CachedInodeRef> with_files() const;

 private:
  void set_proof(CachedInode& cached, const std::string& proof);
  void drop_unused(meta::InodeId inode);

  Loop& loop_;
  client::RecoveryTable* const recovery_;
  std::unordered_map<meta::InodeId, CachedInodeRef> inodes_;
};

}  // namespace ff::mount
