// Inodes: what the file system knows of a file, a directory, a link. And how a file's bytes are
// spread over chains (storage.md, "Metadata").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "storage/cluster/routing.h"
#include "storage/meta/meta.pb.h"

namespace ff::meta {

using InodeId = uint64_t;
constexpr InodeId kRoot = 1;

constexpr size_t kNameMax = 255;     // bytes of a name in a directory (POSIX NAME_MAX)
constexpr size_t kTargetMax = 4095;  // bytes of a symbolic link's target (PATH_MAX less the NUL)
constexpr uint32_t kLinksMax = 65'000;
constexpr uint64_t kLengthMax = INT64_MAX;  // of a file, bytes: what off_t can say
constexpr uint32_t kStripeMax = 256;        // chains of a file
constexpr uint32_t kXattrsMax = 64;         // of an inode: they are removed in one transaction
constexpr size_t kXattrNameMax = 255;       // bytes, as Linux has it
constexpr size_t kXattrValueMax = 64 * kKiB;

// The numbers are on disk and on the wire.
enum class Kind : uint8_t {
  file = 1,
  directory = 2,
  symlink = 3,
  fifo = 4,
  socket = 5,
  character = 6,
  block = 7,
};

// Chunk i of a file lies on the chain that chain_of() names: a stripe of so many chains of a
// version of a table, drawn by `seed`, which take turns.
struct Layout {
  cluster::TableId table = 0;
  uint64_t version = 0;     // 0 of a directory's: the newest when a file is made
  uint64_t chunk_size = 0;  // a power of two of bytes
  uint32_t stripe = 0;
  uint64_t seed = 0;
  bool operator==(const Layout&) const = default;
};
constexpr uint64_t kDefaultChunkSize = kMiB;
constexpr uint32_t kDefaultStripe = 4;
constexpr cluster::TableId kDefaultTable = 1;
// What is 0 of table, chunk size and stripe, by default.
Layout with_defaults(Layout layout);

// The chains of a file's stripe, in order: chunk i lies on the i-th of them, modulo their number.
// Fewer than the layout says where the table has fewer.
std::vector<cluster::ChainId> stripe_of(const Layout& layout,
                                        const std::vector<cluster::ChainId>& table);

// The chains of a file by its layout. Errc::failed: the routing has no such table.
Result<std::vector<cluster::ChainId>> chains_of(const cluster::Routing& routing,
                                                const Layout& layout);

struct Inode {
  InodeId id = 0;
  Kind kind = Kind::file;
  uint32_t mode = 0;  // 07777
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t links = 0;  // of a directory: two and its subdirectories
  int64_t atime_ns = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  int64_t btime_ns = 0;  // when it was made
  // File: its length as far as writers have told; nothing is known of bytes past it.
  uint64_t length = 0;
  uint64_t floor = 0;        // no shorter, whatever storage holds
  uint64_t truncations = 0;  // what was told of a length under an older number does not count
  bool cutting = false;      // bytes from `cut_to` on are still to be removed
  uint64_t cut_to = 0;
  uint64_t changes = 0;     // of the bytes, as far as told: equal, they are what they were
  Layout layout = {};       // of a directory: what new files get; table 0: as its parent says
  InodeId parent = 0;       // of a directory; the root's is itself
  std::string target = {};  // of a symbolic link
  uint64_t device = 0;      // of a character or block device
  uint32_t xattrs = 0;      // how many it has
  bool operator==(const Inode&) const = default;

  bool is(Kind other) const { return kind == other; }
};

// One open file of one client.
struct SessionId {
  uint64_t client = 0;
  uint64_t number = 0;
  bool operator==(const SessionId&) const = default;
};

void to_wire(const Inode& inode, wire::Inode& out);
// Errc::corrupt: numbers that nothing writes.
Result<Inode> from_wire(const wire::Inode& inode);
void to_wire(const Layout& layout, wire::Layout& out);
Layout from_wire(const wire::Layout& layout);

// Errc::usage with its errno: not a name that a directory can hold.
Result<void> check_name(std::string_view name);
// A layout as a user gives it.
Result<void> check_layout(const Layout& layout);

}  // namespace ff::meta
