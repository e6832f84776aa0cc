// What a mount knows of the inodes that the kernel knows, or that programs have open: the kernel's
// references, what its caches hold, and the one open file that all programs of this mount share.
// Owned by one loop.
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

// One open(2) of a program.
struct Handle;

struct Node {
  Node(Loop& loop, meta::InodeId inode) : id(inode), turn(loop, 1) {}

  const meta::InodeId id;
  uint64_t lookups = 0;    // the kernel's references
  std::string proof = {};  // of a token's holder (meta/service.h)
  meta::Ref ref() const { return {.id = id, .proof = proof}; }

  // Since a name was last seen to lead here, and the ctime then, or after what was changed here:
  // when others have renamed the inode, or removed a name of it, its ctime is another.
  int64_t named_ns = 0;
  int64_t ctime_ns = 0;

  // A directory as it was when it was last asked for, with what was changed through this mount
  // since: whenever something is made in it the kernel asks for it again.
  std::optional<meta::Inode> dir = {};
  int64_t dir_ns = 0;
  // A name in it was made or removed then.
  void entry_changed(int64_t wall_ns, int subdirs);
  int64_t entry_ns = 0;  // the last time of those, by the servers' clock

  // Inode::changes that the kernel's pages stand for; nothing: they are not to be used.
  std::optional<uint64_t> pages = {};
  uint64_t told = 0;  // File::times_told() that it counts already

  Semaphore turn;  // one opens or closes at a time
  // Programs that write share a file, so that they see what the others wrote, and in order.
  std::shared_ptr<client::File> writer = {};
  std::shared_ptr<client::File> reader = {};
  std::set<Handle*> handles = {};
  // Keeps the bytes of a file that has lost its last name here.
  std::optional<meta::SessionId> holder = {};

  // Null: it is not open.
  const std::shared_ptr<client::File>& file() const { return writer != nullptr ? writer : reader; }
  // What was changed by this mount since, the pages know of.
  void count_own_changes();
};
using NodeRef = std::shared_ptr<Node>;

struct Handle {
  NodeRef node = {};
  uint32_t uid = 0;  // who has opened it
  bool reads = false;
  bool writes = false;
  bool direct = false;                   // past the kernel's pages
  client::ErrorSeq::Cursor cursor = {};  // late errors that it was told of
};
using HandleRef = std::shared_ptr<Handle>;

class Nodes {
 public:
  explicit Nodes(Loop& loop) : loop_(loop) {}

  // Made when it is not known.
  NodeRef at(meta::InodeId inode);
  // Null when it is not.
  NodeRef find(meta::InodeId inode) const;
  // The kernel was told of it by a name, which it counts; null for what it is not to count.
  Node& named(const meta::Seen& seen);
  // A server has just told of it: of a directory it is kept.
  void looked_at(const meta::Inode& inode);
  void entry_changed(meta::InodeId dir, int64_t wall_ns, int subdirs);
  // What is kept of it may be wrong.
  void forget_dir(meta::InodeId dir);
  // What a change of our own has made of it.
  void changed(const meta::Inode& inode);
  // The kernel has given references back.
  void forget(meta::InodeId inode, uint64_t lookups);
  // Nobody has it open any more.
  void let_go(const NodeRef& node);

  size_t size() const { return nodes_.size(); }
  // Those with handles.
  std::vector<NodeRef> open() const;

 private:
  void drop_unused(meta::InodeId inode);

  Loop& loop_;
  std::unordered_map<meta::InodeId, NodeRef> nodes_;
};

}  // namespace ff::mount
