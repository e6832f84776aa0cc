// The operations of a mount, as the kernel asks for them (linux/fuse.h) and POSIX means them, over
// the client of the cluster's file system. Owned by one loop; the same in simulation.
//
// Close-to-open consistency with other mounts: an open sees what was written by whoever has closed
// before. The kernel's pages stay across opens while nobody else has changed the file. Names and
// attributes are believed for a second; an open notices a name that leads elsewhere since.
//
// Errors carry the errno for the kernel (Error::sys).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/chain/memory.h"
#include "storage/client/file_system.h"
#include "storage/mount/directory.h"
#include "storage/mount/kernel.h"
#include "storage/mount/nodes.h"

namespace ff::mount {

// For how long the kernel believes names and attributes.
constexpr int64_t kBelievedNs = kSecond;

class Operations {
 public:
  // All outlive it. `memory`: where data on its way to programs lies. `root`: what is mounted.
  Operations(client::FileSystem& files, chain::Memory& memory, Kernel& kernel, meta::Seen root);

  // Files that are still open are closed, with what was written to them.
  Task<void> close();

  meta::InodeId root() const { return root_; }
  Nodes& nodes() { return nodes_; }
  client::FileSystem& files() { return files_; }
  size_t open_files() const { return handles_.size(); }

  // Names. What lookup(), make(), link() and create() return is counted as known to the kernel.
  Task<Result<meta::Inode>> lookup(meta::Caller caller, meta::InodeId dir, std::string name);
  void forget(meta::InodeId inode, uint64_t lookups) { nodes_.forget(inode, lookups); }
  struct Looked {
    meta::Inode inode;
    int64_t seen_ns = 0;  // since then it is believed
  };
  Task<Result<Looked>> look(meta::InodeId inode);
  struct Change {
    meta::Names::Attributes to = {};
    std::optional<uint64_t> length = {};
    std::optional<uint64_t> handle = {};  // the file is open for writing
  };
  Task<Result<meta::Inode>> change(meta::Caller caller, meta::InodeId inode, Change change);
  Task<Result<meta::Inode>> make(meta::Caller caller, meta::InodeId dir, std::string name,
                                 meta::Names::Make make);
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
  // A directory and all that is in it.
  Task<Result<void>> remove_tree(meta::Caller caller, meta::InodeId dir, std::string name);

  // Attributes that users give; `value` nothing: it goes.
  Task<Result<std::string>> get_xattr(meta::Caller caller, meta::InodeId inode, std::string name);
  Task<Result<std::vector<std::string>>> list_xattrs(meta::InodeId inode);
  Task<Result<void>> set_xattr(meta::Caller caller, meta::InodeId inode, std::string name,
                               std::optional<std::string> value, meta::Names::XattrMode mode);

  // Files: operations_files.cc. `flags` are those of open(2).
  struct Opened {
    uint64_t handle = 0;
    bool direct = false;
    bool keep_pages = false;
  };
  Task<Result<Opened>> open(meta::Caller caller, meta::InodeId inode, uint32_t flags);
  struct Created {
    meta::Inode inode;
    Opened opened;
  };
  Task<Result<Created>> create(meta::Caller caller, meta::InodeId dir, std::string name,
                               uint32_t mode, uint32_t flags);
  struct Data {
    chain::Memory::Bytes memory = {};
    uint64_t size = 0;
    ByteView view() const { return memory.span().first(size); }
  };
  Task<Result<Data>> read(uint64_t handle, uint64_t offset, uint64_t size);
  struct Write {
    uint64_t offset = 0;
    ByteView from = {};
    client::File::Keeper keeper = {};  // keeps `from` as it is, for as long as it is held
    uint32_t flags = 0;                // as the file has them now
    bool drop_set_ids = false;
    bool from_pages = false;  // of a mapping, by nobody in particular
    bool appends() const;
  };
  Task<Result<void>> write(uint64_t handle, Write write);
  // close(2) of a program, or of a dup(2), or exec(2) of its child: everything is acknowledged, and
  // known to others; or an error that came since, which stays for sync().
  Task<Result<void>> flush(uint64_t handle);
  // Of late errors the newest is told once to each handle, by nothing but this and O_DSYNC.
  Task<Result<void>> sync(uint64_t handle);
  Task<Result<void>> sync_dir(uint64_t handle);
  // Whatever is open.
  Task<Result<void>> sync_all();
  // The last of its programs has closed it.
  Task<void> release(uint64_t handle);
  // `mode` as of fallocate(2).
  Task<Result<void>> allocate(uint64_t handle, int mode, uint64_t offset, uint64_t size);
  // SEEK_DATA or SEEK_HOLE.
  Task<Result<uint64_t>> seek(uint64_t handle, uint64_t offset, int whence);
  // For rings (rings.h): the file of an inode that a program of that user has open so. Null: none.
  std::shared_ptr<client::File> open_file(meta::InodeId inode, uint32_t uid, bool for_writing);
  // As by such a program, past the kernel's pages.
  Task<Result<void>> write_of_ring(uint32_t uid, meta::InodeId inode, uint64_t offset,
                                   ByteView from);
  // Bytes were written past the kernel's pages.
  Task<void> wrote_past_pages(meta::InodeId inode, uint64_t offset, uint64_t size);

  // Directories.
  Task<Result<uint64_t>> open_dir(meta::Caller caller, meta::InodeId inode);
  // Null: not open.
  std::shared_ptr<Directory> directory(uint64_t handle);
  void release_dir(uint64_t handle) { dirs_.erase(handle); }

 private:
  meta::Ref ref(meta::InodeId inode) const;
  std::optional<meta::SessionId> holder();
  void hold(const meta::Seen& removed, std::optional<meta::SessionId> holder);
  HandleRef handle(uint64_t number) const;
  uint64_t add(HandleRef handle);
  Result<void> check_named(Node& node, const meta::Inode& inode);
  Task<Result<meta::Seen>> open_node(meta::Caller caller, Node& node, uint32_t rights);
  Task<Result<void>> cut(meta::Caller caller, Node& node, uint64_t length);
  bool pages_stand(Node& node, const meta::Inode& inode);
  Opened opened(const NodeRef& node, uint32_t uid, uint32_t flags);
  Task<Result<void>> write_now(Handle& handle, Write write);
  Task<Result<void>> drop_set_ids(Node& node);
  void wrote_elsewhere(Node& node, uint64_t offset, uint64_t size);
  Task<void> close_files(Node& node);

  client::FileSystem& files_;
  chain::Memory& memory_;
  Kernel& kernel_;
  const meta::InodeId root_;
  Nodes nodes_;
  std::unordered_map<uint64_t, HandleRef> handles_;
  std::unordered_map<uint64_t, std::shared_ptr<Directory>> dirs_;
  uint64_t last_handle_ = 0;
  client::ErrorSeq::Cursor told_;  // of sync_all()
};

}  // namespace ff::mount
