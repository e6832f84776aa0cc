// The file system operations of a mount, as FUSE requests them (linux/fuse.h) and POSIX defines
// them, on top of client::FileSystem. Owned by one loop; runs in simulation, too.
//
// Close-to-open consistency with other mounts: an open sees what was written before the last close
// elsewhere. Pages stay cached across opens while no other client changes the file. The kernel
// caches names and attributes for kCacheTimeoutNs; an open detects a name that leads to another
// inode meanwhile.
//
// Errors carry the errno for the kernel (Error::sys).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/chain/buffer_pool.h"
#include "storage/client/file_system.h"
#include "storage/mount/directory_handle.h"
#include "storage/mount/inode_table.h"
#include "storage/mount/kernel_cache.h"

namespace ff::mount {

// Entry timeout and attribute timeout of the kernel (fuse_entry_out).
constexpr int64_t kCacheTimeoutNs = kSecond;

class Operations {
 public:
  // All outlive it. `memory`: for data on its way to programs. `root`: the mounted directory.
  Operations(client::FileSystem& files, chain::BufferPool& memory, KernelCache& kernel,
             meta::InodeView root);

  // Continues the open files and directories that the predecessor left in the recovery table
  // (client/recovery_table.h). Call it before all other operations.
  Task<Result<void>> restore();
  // meta::Caller::origin of a request of the kernel, by its unique number. The kernel repeats it
  // with another bit. 0: there is no recovery table.
  uint64_t origin_of(uint64_t unique) const;
  // The kernel has repeated all requests of the predecessor.
  void end_restored_origins();
  // Closes all open files and writes what is buffered.
  Task<void> close();

  meta::InodeId root() const { return root_; }
  InodeTable& inodes() { return inodes_; }
  client::FileSystem& files() { return files_; }
  size_t open_files() const { return handles_.size(); }

  // Names. lookup(), mknod(), link() and create() count one lookup of the kernel (FUSE_FORGET).
  Task<Result<meta::Inode>> lookup(meta::Caller caller, meta::InodeId dir, std::string name);
  void forget(meta::InodeId inode, uint64_t lookups) { inodes_.forget(inode, lookups); }
  struct Attributes {
    meta::Inode inode;
    int64_t fetched_ns = 0;  // when the attributes were fetched
  };
  Task<Result<Attributes>> getattr(meta::InodeId inode);
  struct SetAttributes {
    meta::Namespace::Attributes to = {};
    std::optional<uint64_t> length = {};
    std::optional<uint64_t> handle = {};  // a handle that is open for writing
    // The kernel wants set-user-ID and set-group-ID cleared: a truncation of a user, or a chown(2)
    // that changes nothing.
    bool drop_set_ids = false;
  };
  Task<Result<meta::Inode>> setattr(meta::Caller caller, meta::InodeId inode, SetAttributes change);
  Task<Result<meta::Inode>> mknod(meta::Caller caller, meta::InodeId dir, std::string name,
                                  meta::Namespace::CreateOptions make);
  Task<Result<void>> unlink(meta::Caller caller, meta::InodeId dir, std::string name);
  Task<Result<void>> rmdir(meta::Caller caller, meta::InodeId dir, std::string name);
  struct Rename {
    meta::InodeId from_dir = 0;
    std::string from = {};
    meta::InodeId to_dir = 0;
    std::string to = {};
    bool no_replace = false;
    bool exchange = false;
  };
  Task<Result<void>> rename(meta::Caller caller, Rename rename);
  Task<Result<meta::Inode>> link(meta::Caller caller, meta::InodeId inode, meta::InodeId dir,
                                 std::string name);
  // Removes a directory with everything in it.
  Task<Result<void>> remove_tree(meta::Caller caller, meta::InodeId dir, std::string name);

  // Extended attributes. set_xattr() without a value removes the attribute.
  Task<Result<std::string>> get_xattr(meta::Caller caller, meta::InodeId inode, std::string name);
  Task<Result<std::vector<std::string>>> list_xattrs(meta::InodeId inode);
  Task<Result<void>> set_xattr(meta::Caller caller, meta::InodeId inode, std::string name,
                               std::optional<std::string> value, meta::Namespace::XattrMode mode);

  // Files: operations_files.cc. `flags` as in open(2).
  struct Opened {
    uint64_t handle = 0;
    bool direct = false;
    bool keep_cache = false;
  };
  Task<Result<Opened>> open(meta::Caller caller, meta::InodeId inode, uint32_t flags);
  // What the predecessor opened for this origin without answering. Nothing: open it.
  struct Unanswered {
    Opened opened;
    meta::InodeId inode = 0;
  };
  std::optional<Unanswered> unanswered(uint64_t origin) const;
  struct Created {
    meta::Inode inode;
    Opened opened;
  };
  Task<Result<Created>> create(meta::Caller caller, meta::InodeId dir, std::string name,
                               uint32_t mode, uint32_t flags);
  struct Data {
    chain::BufferPool::Buffer memory = {};
    ByteView bytes = {};
  };
  // Reads into `room` if it is large enough, else into memory of its own.
  Task<Result<Data>> read(uint64_t handle, uint64_t offset, uint64_t size, ByteSpan room);
  struct Write {
    uint64_t offset = 0;
    ByteView from = {};
    client::File::BufferOwner buffer_owner = {};  // keeps `from` unchanged while it is held
    uint32_t flags = 0;                           // current flags of the file (fcntl(2))
    bool drop_set_ids = false;
    bool from_page_cache = false;  // writeback of mapped pages, without a known program
    uint64_t origin = 0;           // meta::Caller::origin
    bool appends() const;
  };
  Task<Result<void>> write(uint64_t handle, Write write);
  // close(2), also of a dup(2), and exec(2): writes everything and publishes the length. Returns an
  // error that happened since; sync() still reports it.
  Task<Result<void>> flush(uint64_t handle);
  // Reports the newest writeback error once per handle. Only this and O_DSYNC writes consume it.
  Task<Result<void>> sync(uint64_t handle);
  // The program got what sync() or sync_dir() returned: a successor does not report it again.
  void on_sync_answered(uint64_t handle);
  Task<Result<void>> sync_dir(uint64_t handle);
  // Syncs all open files, as syncfs(2).
  Task<Result<void>> sync_all();
  // The last descriptor of the handle is closed.
  Task<void> release(uint64_t handle);
  // `mode`: as in fallocate(2).
  Task<Result<void>> allocate(uint64_t handle, int mode, uint64_t offset, uint64_t size);
  // `whence`: SEEK_DATA or SEEK_HOLE.
  Task<Result<uint64_t>> seek(uint64_t handle, uint64_t offset, int whence);
  // For rings (ring_registry.h): the file of an inode that a program of this user has open for
  // reading or writing. Null: there is none.
  std::shared_ptr<client::File> find_open_file(meta::InodeId inode, uint32_t uid, bool for_writing);
  // A write through a ring; bypasses the page cache.
  Task<Result<void>> write_from_ring(uint32_t uid, meta::InodeId inode, uint64_t offset,
                                     ByteView from);
  // Call after a write that bypassed the page cache: invalidates the pages.
  Task<void> after_direct_write(meta::InodeId inode, uint64_t offset, uint64_t size);

  // Directories.
  Task<Result<uint64_t>> open_dir(meta::Caller caller, meta::InodeId inode);
  // Null: no such handle.
  std::shared_ptr<DirectoryHandle> directory(uint64_t handle);
  void release_dir(uint64_t handle) { dirs_.erase(handle); }
  // Entries of the directory up to `last` are on their way to a program.
  void on_listed(uint64_t handle, const DirectoryHandle::Entry& last);

 private:
  meta::InodeRef ref(meta::InodeId inode) const;
  std::optional<meta::SessionId> new_holder(uint64_t origin);
  void hold_removed(const meta::InodeView& removed, std::optional<meta::SessionId> holder);
  FileHandleRef handle(uint64_t number) const;
  const meta::Inode* recent_dir(const CachedInodeRef& cached) const;
  Task<Result<meta::InodeView>> view_to_list(meta::Caller caller, meta::InodeId inode);
  uint64_t add(FileHandleRef handle);
  Result<void> check_name_current(CachedInode& cached, const meta::Inode& inode);
  Task<Result<meta::InodeView>> open_inode(meta::Caller caller, CachedInode& cached,
                                           uint32_t rights);
  Task<Result<void>> truncate(meta::Caller caller, CachedInode& cached, uint64_t length);
  bool page_cache_valid(CachedInode& cached, const meta::Inode& inode);
  static void publish_snapshot(const CachedInode& cached);
  Opened add_open(const CachedInodeRef& cached, uint32_t uid, uint32_t flags, uint64_t origin);
  void record(FileHandle& handle, uint64_t number, uint64_t origin);
  Task<Result<void>> restore_handle(client::RecoveryTable::Record record);
  void restore_dir(client::RecoveryTable::Record record);
  Task<Result<void>> restore_handles();
  Task<Result<void>> write_through(FileHandle& handle, Write write);
  Task<Result<void>> drop_set_ids(CachedInode& cached);
  void drop_misplaced_pages(CachedInode& cached, uint64_t offset, uint64_t size);
  Task<void> close_files(CachedInode& cached);

  client::FileSystem& files_;
  chain::BufferPool& memory_;
  KernelCache& kernel_;
  const meta::InodeId root_;
  InodeTable inodes_;
  std::unordered_map<uint64_t, FileHandleRef> handles_;
  std::unordered_map<uint64_t, std::shared_ptr<DirectoryHandle>> dirs_;
  uint64_t last_handle_ = 0;
  std::unordered_map<uint64_t, Unanswered> unanswered_;  // by origin
  client::ErrorSeq::Cursor error_cursor_;                // of sync_all()
};

}  // namespace ff::mount
