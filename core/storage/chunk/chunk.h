// Identity, versions and updates of a chunk, shared by the chunk store and chain replication.
//
// Every update, removal included, increments the version by one. A replica first stores an update
// as pending and then commits it; a chunk has at most one pending version (storage.md, "Chains").
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"

namespace ff::chunk {

// Inode of the file and index of the chunk in it. The chunks of a file are adjacent in this order.
struct ChunkId {
  uint64_t inode = 0;
  uint64_t index = 0;
  auto operator<=>(const ChunkId&) const = default;
};
std::string to_string(const ChunkId& id);  // "12.5"
// The successor in this order.
constexpr ChunkId next(const ChunkId& id) {
  return id.index == UINT64_MAX ? ChunkId{id.inode + 1, 0} : ChunkId{id.inode, id.index + 1};
}

// One replica of a chain, on one disk.
using TargetId = uint64_t;

// Identifies an update so that retries are recognized. A client sends the updates of one channel
// one after the other, with increasing sequence numbers (3FS: update channels).
struct RequestId {
  uint64_t client = 0;
  uint64_t channel = 0;
  uint64_t sequence = 0;
  auto operator<=>(const RequestId&) const = default;
};

// Version, length and checksum of a chunk as visible to clients.
struct VersionState {
  uint64_t version = 0;   // 0: the chunk does not exist
  uint64_t length = 0;    // bytes
  uint32_t checksum = 0;  // CRC32C of the content
  bool removed = false;   // tombstone: reads return not_found, version numbers continue
  bool operator==(const VersionState&) const = default;
};

struct PendingState {
  VersionState state = {};
  RequestId request_id = {};
  bool operator==(const PendingState&) const = default;
};

struct ChunkState {
  VersionState committed = {};
  uint64_t chain_version = 0;  // chain version under which `committed` was committed
  std::optional<PendingState> pending = {};
  bool operator==(const ChunkState&) const = default;
};

// Result of the last update of a channel; it answers retries without applying them again.
struct ChannelResult {
  uint64_t sequence = 0;
  ChunkId id = {};
  VersionState state = {};  // of the chunk after the update
  bool committed = false;   // false: still pending
  int64_t used_ns = 0;      // wall clock
  bool operator==(const ChannelResult&) const = default;
};

enum class UpdateType : uint8_t {
  write,     // writes `data` at `offset`; fills a gap before it with zeros
  replace,   // replaces the whole chunk by `data`
  truncate,  // cuts the chunk, or extends it with zeros, to `length`
  remove,
  punch_hole,  // zeros `length` bytes at `offset` within the current length; removes the
               // chunk when that covers all of it. The head turns it into write or remove.
};

// Bytes of a version that do not match what was stored.
struct DamagedRange {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// An update that produces `version`, the successor of the committed version.
struct Update {
  TargetId target = 0;
  ChunkId id = {};
  uint64_t version = 0;
  RequestId request_id = {};
  UpdateType type = UpdateType::write;
  uint64_t offset = 0;      // write
  uint64_t length = 0;      // resize, clear
  ByteView data = {};       // write, replace; must live until the update has finished
  uint64_t chunk_size = 0;  // maximum length of the chunk in bytes, at most kChunkMax
  // Expected checksum of the whole new version; on a mismatch nothing is stored.
  std::optional<uint32_t> checksum = {};
  // When set: commits the version at once under this chain version; it is never pending.
  std::optional<uint64_t> commit_chain_version = {};
  // replace with a checksum: ranges of `data` that are damaged; reads of them fail here too. The
  // checksum is that of the undamaged data.
  std::vector<DamagedRange> damaged = {};
  // Checked by the head: the update does nothing unless this is the committed version.
  std::optional<uint64_t> expected_version = {};
};

}  // namespace ff::chunk
