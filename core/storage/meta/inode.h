// Inodes: the attributes of a file, directory or link, and how the bytes of a file are striped over
// chains (storage.md, "Metadata").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "storage/cluster/routing.h"
#include "storage/meta/meta.pb.h"

namespace ff::meta {

using InodeId = uint64_t;
constexpr InodeId kRoot = 1;

constexpr size_t kNameMax = 255;  // bytes of a name in a directory (POSIX NAME_MAX)
constexpr size_t kSymlinkTargetMax =
    4095;  // bytes of a symbolic link's target (PATH_MAX less the NUL)
constexpr uint32_t kHardLinksMax = 65'000;
constexpr uint64_t kLengthMax = INT64_MAX;  // of a file, bytes: the limit of off_t
constexpr uint32_t kStripeMax = 256;        // chains of a file
constexpr uint32_t kXattrsMax = 64;         // per inode: one transaction removes them all
constexpr size_t kXattrNameMax = 255;       // bytes, as in Linux
constexpr size_t kXattrValueMax = 64 * kKiB;

// The numbers are stored on disk and sent over the wire.
enum class InodeType : uint8_t {
  file = 1,
  directory = 2,
  symlink = 3,
  fifo = 4,
  socket = 5,
  character = 6,
  block = 7,
};

// The stripe of a file: `stripe` chains drawn by `seed` from a version of a chain table. Chunk i
// lies on chain i modulo the stripe (stripe_chains()).
struct Layout {
  cluster::TableId table = 0;
  uint64_t version = 0;     // 0 in a directory's layout: the newest when a file is created
  uint64_t chunk_size = 0;  // a power of two of bytes
  uint32_t stripe = 0;
  uint64_t seed = 0;
  bool operator==(const Layout&) const = default;
};
constexpr uint64_t kDefaultChunkSize = kMiB;
constexpr uint32_t kDefaultStripe = 4;
constexpr cluster::TableId kDefaultTable = 1;
// Replaces table, chunk size and stripe by their defaults where they are 0.
Layout with_defaults(Layout layout);

// The chains of a file's stripe, in order: chunk i lies on the i-th of them, modulo their number.
// The result is shorter than the stripe if the table has fewer chains.
std::vector<cluster::ChainId> stripe_chains(const Layout& layout,
                                            const std::vector<cluster::ChainId>& table);

// How stripe_chains() draws from a table of `chains` chains: it swaps chain i with chain swaps[i],
// for i = 0, 1, ...; then the first chains of the table are the stripe.
std::vector<size_t> stripe_swaps(const Layout& layout, size_t chains);

// The chains of a file by its layout. Errc::failed: the routing has no such table.
Result<std::vector<cluster::ChainId>> chains_of(const cluster::Routing& routing,
                                                const Layout& layout);

// Identifies one file that one client has open for writing.
struct SessionId {
  uint64_t client = 0;
  uint64_t number = 0;
  bool operator==(const SessionId&) const = default;
};

struct Inode {
  InodeId id = 0;
  InodeType kind = InodeType::file;
  uint32_t mode = 0;  // 07777
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t links = 0;  // of a directory: 2 plus its subdirectories
  int64_t atime_ns = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  int64_t btime_ns = 0;  // time of creation
  // File: the length that writers have reported; storage may hold bytes past it.
  uint64_t length = 0;
  uint64_t min_length = 0;    // the file is at least this long, whatever storage holds
  uint64_t truncate_seq = 0;  // reports of a length with an older number are ignored
  bool truncating = false;    // storage still has bytes behind `truncate_to` to remove
  uint64_t truncate_to = 0;
  uint64_t data_version = 0;  // changes with every reported change of the bytes
  Layout layout = {};         // of a directory: for new files; table 0: inherited
  InodeId parent = 0;         // of a directory; the root is its own parent
  std::string target = {};    // of a symbolic link
  uint64_t device = 0;        // of a character or block device
  uint32_t xattrs = 0;        // number of extended attributes
  uint64_t delegate = 0;      // of a directory: the lease that holds its delegation; 0: none
  // Of a file: while this session lasts, its client keeps bytes for which storage has no room.
  std::optional<SessionId> unstored = {};
  bool operator==(const Inode&) const = default;

  bool is(InodeType other) const { return kind == other; }
};

void to_wire(const Inode& inode, wire::Inode& out);
// Errc::corrupt: a field has a value that no version writes.
Result<Inode> from_wire(const wire::Inode& inode);
void to_wire(const Layout& layout, wire::Layout& out);
Layout from_wire(const wire::Layout& layout);

// Errc::usage with an errno: the name is not valid in a directory.
Result<void> check_name(std::string_view name);
// Errc::usage with EINVAL: no valid layout of a file.
Result<void> check_layout(const Layout& layout);

}  // namespace ff::meta
