// What the steps of a store (store.h) take and give, and how a store is opened.
//
// Chunks themselves, their versions and updates are in chunk.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/committer.h"

namespace ff::chunk {

// How long tombstones and channel results stay after their last use: longer than any client goes on
// trying (60 s), with room for clocks that differ.
constexpr int64_t kKeptNs = 600 * kSecond;

// What a store finds when it opens its disk.
enum class LastEnd : uint8_t {
  closed,      // close() had ended, or the disk is new
  stopped,     // the process had died, on this boot of the machine: nothing is lost
  other_boot,  // it had died on another boot: unsynced steps may be gone
};

struct TargetInfo {
  TargetId id = 0;
  uint64_t chain = 0;
  uint64_t state = 0;  // the owner's
  bool lossy = false;  // power was lost since that was set: unsynced steps may be gone
  uint64_t chunks = 0;
  uint64_t removed = 0;  // of the chunks
  uint64_t bytes = 0;
  uint64_t last_inode = 0;  // of the chunks, the highest
  uint64_t damaged = 0;     // of them: lost or damaged, or not known to be sound
};

struct ChunkInfo {
  ChunkId id = {};
  ChunkState state = {};
};

// Of a file: which chunks there are, removed ones left out, in order.
struct ChunksAsked {
  uint64_t inode = 0;
  uint64_t from = 0;          // index
  uint64_t end = UINT64_MAX;  // before this one
  size_t limit = 0;           // chunks
  uint64_t step = 0;          // not 0: how long the first one's run is
  uint64_t run_max = 0;
};
struct ChunksPage {
  std::vector<ChunkInfo> chunks = {};
  uint64_t run = 0;  // so many, from the first one on, are there, each `step` behind the one before
  uint64_t next = 0;  // index to go on at; 0: that was all
};

enum class Which : uint8_t { committed, pending };

struct ReadRequest {
  TargetId target = 0;
  ChunkId id = {};
  Which which = Which::committed;
  uint64_t offset = 0;
  // The memory is for the kernel alone to write (net/connection.h, reach()): the bytes are not
  // looked at here, and whoever gets them compares them with the checksum.
  bool unseen = false;
};

struct ReadDone {
  VersionState state = {};  // of the version that was read
  uint64_t bytes = 0;       // fewer than asked for at the chunk's end
  uint32_t checksum = 0;    // CRC32C of those
};

// A whole chunk as another replica has it.
struct Install {
  TargetId target = 0;
  ChunkId id = {};
  VersionState state = {};  // its length is the data's, its checksum is compared
  uint64_t chain_version = 0;
  ByteView data = {};
  std::vector<Damage> damaged = {};  // of the data, as in Update
  // Whose update has made it, when it is not older than what else is known of its channel: its
  // result is kept, too.
  std::optional<Writer> writer = {};
};

struct ChannelInfo {
  uint64_t client = 0;
  uint64_t channel = 0;
  ChannelResult result = {};
};

struct ScrubPage {
  uint64_t chunks = 0;  // looked at
  uint64_t bytes = 0;
  std::vector<ChunkId> bad = {};
  std::optional<ChunkId> next = {};  // nothing: that was the last
};

// What is as small goes to the page cache: a copy costs less than what a direct write takes of the
// processor, and no time.
constexpr uint64_t kPagedMax = 32 * kKiB;

struct StoreOptions {
  io::Disk& disk;
  Loop& loop;
  Rng& rng;
  std::string dir;
  std::string cluster;
  std::string boot;  // of the machine, /proc/sys/kernel/random/boot_id
  CommitOn commit_on = CommitOn::thread;
  bool direct = true;              // O_DIRECT where the file system has it; false: the page cache
  uint64_t paged_max = kPagedMax;  // bytes of a write that waits for no disk (Blocks::write)
  unsigned depth = 64;             // I/O operations in flight
};

}  // namespace ff::chunk
