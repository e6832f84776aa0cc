// A chunk store on a simulated disk: open, kill, power loss, reopen. Single-threaded and
// deterministic for a seed.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_world.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_store.h"

namespace ff::chunk {

inline const std::string kDir = "/disk";
constexpr TargetId kTarget = 7;

inline std::string bytes_of(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::string text(size, '\0');
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = rng.next();
    std::memcpy(text.data() + at, &word, std::min<size_t>(8, size - at));
  }
  return text;
}

// Paths of the files of the metadata whose names begin so.
inline std::vector<std::string> metadata_files(io::Disk& disk, std::string_view prefix) {
  std::vector<std::string> paths;
  const auto entries = disk.list(kDir);
  FF_CHECK(entries.ok());
  for (const io::DirEntry& entry : *entries) {
    if (entry.name.starts_with(prefix)) paths.push_back(kDir + "/" + entry.name);
  }
  return paths;
}

// Path of the first segment of the log that the index of disk-1 names.
inline std::string first_segment(io::Disk& disk) {
  const auto index = read_checkpoint(disk, kDir);
  FF_CHECK(index.ok());
  for (const std::string& path : metadata_files(disk, "chunks.log-")) {
    const auto file = disk.open(path, {});
    FF_CHECK(file.ok());
    const auto header = read_header(**file, simd::crc32c(as_bytes(std::string_view("disk-1"))));
    if (header && *header && (*header)->sequence == index->segment) return path;
  }
  return "";
}

class ChunkWorld {
 public:
  // Small segments, so that checkpoints of the metadata are frequent, in two of three worlds. Few
  // chunks stay in use.
  explicit ChunkWorld(uint64_t seed)
      : rng(seed),
        disk(seed, world.clock()),
        memory(seed, world.clock()),
        log_segment_bytes(seed % 3 == 2 ? kLogSegmentBytes : (12 + seed % 3 * 8) * kKiB),
        checkpoint_segments(1 + seed / 3 % 3),
        used_chunks_max(seed % 4) {
    FF_CHECK(memory.make_dir("/shm", 0777).ok() && memory.sync_dir("/").ok());
  }

  ChunkStoreOptions options() {
    return {.disk = disk,
            .loop = world.loop(),
            .rng = rng,
            .dir = kDir,
            .cluster = "cluster-1",
            .boot_id = boot,
            .commit_on = CommitOn::loop,
            .log = {.segment_bytes = log_segment_bytes,
                    .checkpoint_segments = checkpoint_segments,
                    .data_segments_max = data_segments_max},
            .crc_cache_bytes = used_chunks_max < 2 ? 0 : kCrcCacheBytes,
            .used_chunks_max = used_chunks_max,
            .memory_disk = &memory,
            .memory_dir = "/shm"};
  }
  DiskIdentity identity() const { return {.cluster = "cluster-1", .disk = "disk-1", .node = 5}; }

  Result<void> create() { return ChunkStore::create(options(), identity()); }
  Result<void> open() {
    FF_CHECK(!store);
    auto opened = run(ChunkStore::open(options()));
    if (!opened) return std::move(opened).error();
    store = std::move(*opened);
    return {};
  }
  // Creates a disk with one target, all durable.
  void make() {
    ASSERT_TRUE(io::ok(create()));
    ASSERT_TRUE(io::ok(open()));
    ASSERT_TRUE(io::ok(run(store->create_target(kTarget, 70))));
    ASSERT_TRUE(io::ok(run(store->sync())));
  }
  void close() {
    ASSERT_TRUE(io::ok(run(store->close())));
    store.reset();
  }
  void kill() {
    crash();
    disk.kill();
    memory.kill();
  }
  void power_loss() {
    crash();
    disk.power_loss();
    memory.power_loss();
    boot += "+";
  }
  // The process dies, the disk loses what is not flushed, and the machine goes on.
  void device_loss() {
    crash();
    disk.power_loss();
    memory.kill();
  }
  void crash() {
    disk.crash();
    memory.crash();
    store.reset();
  }

  template <class T>
  T run(Task<T> task) {
    return run_task(world.loop(), std::move(task));
  }

  Update update(ChunkId id, UpdateType change, std::string_view data, uint64_t offset = 0) {
    const auto state = store->state(kTarget, id);
    return {.target = kTarget,
            .id = id,
            .version = state->committed.version + 1,
            .request_id = {.client = 1, .channel = id.index, .sequence = ++sequence_},
            .type = change,
            .offset = offset,
            .data = as_bytes(data),
            .chunk_size = chunk_size};
  }
  Result<ChunkState> pend(const Update& update) { return run(store->write(update)); }
  // Stores the update as pending and commits it.
  Result<ChunkState> apply(const Update& update) {
    FF_TRY(const ChunkState pending, pend(update));
    (void)pending;
    return run(store->commit(update.target, update.id, update.version, 3));
  }
  Result<ChunkState> write(ChunkId id, std::string_view data, uint64_t offset = 0) {
    return apply(update(id, UpdateType::write, data, offset));
  }
  Result<ChunkState> replace(ChunkId id, std::string_view data) {
    return apply(update(id, UpdateType::replace, data));
  }
  Result<ChunkState> resize(ChunkId id, uint64_t length) {
    Update made = update(id, UpdateType::truncate, {});
    made.length = length;
    return apply(made);
  }
  Result<ChunkState> remove(ChunkId id) { return apply(update(id, UpdateType::remove, {})); }

  // The content of a version; "(CODE)" for an error.
  std::string get(ChunkId id, VersionKind which = VersionKind::committed) {
    std::string text(kChunkMax / 8, '\0');
    return read(id, 0, text.size(), which);
  }
  std::string read(ChunkId id, uint64_t offset, size_t size,
                   VersionKind which = VersionKind::committed) {
    std::string text(size, '\0');
    const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
    const ReadRequest request{.target = kTarget, .id = id, .kind = which, .offset = offset};
    const auto done = run(store->read(request, into));
    if (!done) return "(" + std::string(errc_name(done.error().code)) + ")";
    text.resize(done->bytes);
    return text;
  }

  sim::SimWorld world;
  SeededRng rng;
  sim::SimDisk disk;
  sim::SimDisk memory;  // files that live as long as the machine runs
  uint64_t log_segment_bytes;
  size_t checkpoint_segments;
  size_t data_segments_max = kDataSegmentsMax;  // 0: small updates go to overlays
  size_t used_chunks_max;
  std::string boot = "boot-1";
  uint64_t chunk_size = kMiB;
  std::unique_ptr<ChunkStore> store;

 private:
  uint64_t sequence_ = 0;
};

}  // namespace ff::chunk
