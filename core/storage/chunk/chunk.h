// What a chunk is to those who store and replicate it: its name, the version that counts, the one
// that may follow, and the update that makes it.
//
// Versions grow by one with every update, removal included. An update is first stored as pending
// and then committed; there is at most one pending version (storage.md, "Chains").
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"

namespace ff::chunk {

// A file's inode and the number of the chunk in it: a file's chunks follow one another.
struct ChunkId {
  uint64_t inode = 0;
  uint64_t index = 0;
  auto operator<=>(const ChunkId&) const = default;
};
std::string to_string(const ChunkId& id);  // "12.5"
// The one that comes next in order.
constexpr ChunkId next(const ChunkId& id) {
  return id.index == UINT64_MAX ? ChunkId{id.inode + 1, 0} : ChunkId{id.inode, id.index + 1};
}

// A share of a disk, one replica of one chain.
using TargetId = uint64_t;

// Who wrote: updates of one channel of one client come one after the other, and are known again by
// their sequence.
struct Writer {
  uint64_t client = 0;
  uint64_t channel = 0;
  uint64_t sequence = 0;
  auto operator<=>(const Writer&) const = default;
};

// One version as its content looks from outside.
struct VersionState {
  uint64_t version = 0;   // 0: absent
  uint64_t length = 0;    // bytes
  uint32_t checksum = 0;  // CRC32C of them
  bool removed = false;   // a tombstone: reads find nothing, versions go on
  bool operator==(const VersionState&) const = default;
};

struct PendingState {
  VersionState image = {};
  Writer writer = {};
  bool operator==(const PendingState&) const = default;
};

struct ChunkState {
  VersionState committed = {};
  uint64_t chain_version = 0;  // of the chain, when `committed` was
  std::optional<PendingState> pending = {};
  bool operator==(const ChunkState&) const = default;
};

// What is kept of the last update of a channel, so that it is never done twice.
struct ChannelResult {
  uint64_t sequence = 0;
  ChunkId id = {};
  VersionState image = {};  // what the update made of the chunk
  bool committed = false;   // false: stored as pending
  int64_t used_ns = 0;      // wall clock
  bool operator==(const ChannelResult&) const = default;
};

enum class Change : uint8_t {
  write,    // `data` at `offset`; a gap before it becomes zeros
  replace,  // the whole chunk becomes `data`
  resize,   // cut or filled up with zeros to `length`
  remove,
  clear,  // `length` bytes at `offset` become zeros, as far as the chunk has them; one that has no
          // others goes. Asked of a chain's head, which makes a write or a removal of it.
};

// Bytes of a version that are not what was stored.
struct Damage {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The update that makes version `version`, the successor of the committed one.
struct Update {
  TargetId target = 0;
  ChunkId id = {};
  uint64_t version = 0;
  Writer writer = {};
  Change change = Change::write;
  uint64_t offset = 0;      // write
  uint64_t length = 0;      // resize, clear
  ByteView data = {};       // write, replace; lives until the update is done
  uint64_t chunk_size = 0;  // bytes the chunk may have, at most kChunkMax
  // Of the whole new version, when it is known: nothing is stored when it comes out differently.
  std::optional<uint32_t> checksum = {};
  // Of the chain: then the version is committed at once, and never pending.
  std::optional<uint64_t> committed_under = {};
  // replace, with a checksum: places of `data` that are damaged, and read as damaged here too; the
  // checksum is of what they were.
  std::vector<Damage> damaged = {};
  // Asked of a chain's head: nothing is done unless this is the committed version.
  std::optional<uint64_t> only_version = {};
};

}  // namespace ff::chunk
