// Parameters, results and options of the chunk store (chunk_store.h).
//
// Chunk ids, versions and updates are in chunk.h.
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

// How long tombstones and channel results are kept after their last use: longer than any client
// retries (60 s), with a margin for clock skew.
constexpr int64_t kRetentionNs = 600 * kSecond;

// How the last use of the disk ended.
enum class ShutdownKind : uint8_t {
  clean,              // closed properly, or the disk is new
  process_died,       // the process ended without close(), same boot: nothing is lost
  machine_restarted,  // the machine was restarted since: unsynced updates may be lost
  writes_lost,        // same boot, but the disk has lost acknowledged changes (acked_position.h)
};

struct TargetInfo {
  TargetId id = 0;
  uint64_t chain = 0;
  uint64_t state = 0;       // the owner's
  bool power_lost = false;  // unsynced updates may have been lost since `state` was set
  uint64_t chunks = 0;
  uint64_t removed = 0;  // of them, tombstones
  uint64_t bytes = 0;
  uint64_t last_inode = 0;  // highest inode of the chunks
  uint64_t damaged = 0;     // of the chunks: known or suspected to be damaged or lost
};

struct ChunkInfo {
  ChunkId id = {};
  ChunkState state = {};
};

// Query for the existing chunks of a file in a range, in order, without removed ones.
struct ChunkRangeQuery {
  uint64_t inode = 0;
  uint64_t from = 0;          // index
  uint64_t end = UINT64_MAX;  // exclusive
  size_t limit = 0;           // chunks
  uint64_t step = 0;          // not 0: also count the run that starts at the first chunk
  uint64_t run_max = 0;
};
struct ChunkRangePage {
  std::vector<ChunkInfo> chunks = {};
  uint64_t run =
      0;  // number of chunks `step` apart that exist without a gap, from the first one on
  uint64_t next = 0;  // index to continue at; 0: complete
};

enum class VersionKind : uint8_t { committed, pending };

struct ReadRequest {
  TargetId target = 0;
  ChunkId id = {};
  VersionKind kind = VersionKind::committed;
  uint64_t offset = 0;
  // The store does not look at the bytes because the memory belongs to another process
  // (net/connection.h, reach()). The receiver compares them with the checksum.
  bool zero_copy = false;
};

struct ReadResult {
  VersionState state = {};  // version that was read
  uint64_t bytes = 0;       // less than requested at the end of the chunk
  uint32_t checksum = 0;    // CRC32C of these bytes
};

// A whole chunk received from another replica.
struct ChunkCopy {
  TargetId target = 0;
  ChunkId id = {};
  VersionState state = {};  // length equals that of `data`; the checksum is verified
  uint64_t chain_version = 0;
  ByteView data = {};
  std::vector<DamagedRange> damaged = {};  // as in Update
  // The update that produced it; its channel result is stored too unless a newer one is known.
  std::optional<RequestId> request_id = {};
};

struct ChannelInfo {
  uint64_t client = 0;
  uint64_t channel = 0;
  ChannelResult result = {};
};

struct ScrubPage {
  uint64_t chunks = 0;  // chunks that were read
  uint64_t bytes = 0;
  std::vector<ChunkId> damaged = {};
  std::optional<ChunkId> next = {};  // nothing: complete
};

// Writes up to this size go through the page cache: a copy costs less CPU than a direct write, and
// no wait.
constexpr uint64_t kBufferedWriteMax = 32 * kKiB;

// CRCs of the blocks of a disk in memory: enough for 64 GiB in chunks of 1 MiB.
constexpr uint64_t kCrcCacheBytes = 64 * kMiB;

// Chunks of a target that keep the objects of their versions: some MiB.
constexpr size_t kUsedChunksMax = 16'384;

struct ChunkStoreOptions {
  io::Disk& disk;
  Loop& loop;
  Rng& rng;
  std::string dir;
  std::string cluster;
  std::string boot_id;  // boot id of the machine: /proc/sys/kernel/random/boot_id
  CommitOn commit_on = CommitOn::thread;
  MetadataLogLimits log = {};  // of the log of the metadata
  uint64_t crc_cache_bytes = kCrcCacheBytes;
  size_t used_chunks_max = kUsedChunksMax;  // of a target, in ChunkTable
  bool direct = true;  // use O_DIRECT where the file system supports it; false: page cache
  uint64_t buffered_write_max =
      kBufferedWriteMax;      // largest write that goes through the page cache (BlockStore::write)
  unsigned queue_depth = 64;  // I/O operations in flight
  // A store of this disk has failed in this boot. The kernel may have dropped pages that it could
  // not write, and still show them: open() writes everything again that was not durable, and
  // reports unsynced updates as lost.
  bool after_failure = false;
  // A directory outside the disk that lives as long as the machine runs: the store keeps there up
  // to where it has acknowledged changes. Null: nowhere.
  io::Disk* memory_disk = nullptr;
  std::string memory_dir = {};
};

}  // namespace ff::chunk
