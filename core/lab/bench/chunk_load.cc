// chunk_load.cc: a chunk store under load, and one with many chunks.
#include "lab/bench/chunk_load.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/base/wait.h"
#include "platform/io/async.h"
#include "platform/io/buffers.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_store.h"

namespace ff::bench {
namespace {

constexpr uint64_t kChunksOfFile = 64;  // of one inode, as a striped file has in one chain
constexpr chunk::TargetId kTarget = 1;

chunk::ChunkId id_of(uint64_t index) {
  return {.inode = 1 + index / kChunksOfFile, .index = index % kChunksOfFile};
}

class StoreSubject final : public BenchTarget {
 public:
  StoreSubject(chunk::ChunkStore& store, Loop& loop) : store_(store), loop_(loop) {}

  Task<Result<void>> write(uint64_t index, ByteView from) override {
    return update(index, 0, from);
  }
  // One at a time in each chunk, as chains do.
  Task<Result<void>> overwrite(uint64_t index, uint64_t offset, ByteView from) override {
    FF_CO_TRY(const auto hold,
              co_await locks_.try_emplace(index, loop_, 1).first->second.acquire(1));
    co_return co_await update(index, offset, from);
  }
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override {
    const chunk::ReadRequest request{.target = kTarget, .id = id_of(index), .offset = offset};
    FF_CO_TRY(co_await store_.read(request, into));
    co_return Result<void>();
  }
  Task<Result<void>> sync() override { return store_.sync(); }

 private:
  Task<Result<void>> update(uint64_t index, uint64_t offset, ByteView from) {
    const chunk::ChunkId id = id_of(index);
    FF_CO_TRY(const chunk::ChunkState state, store_.state(kTarget, id));
    const uint64_t version = state.committed.version + 1;
    const chunk::Update update{
        .target = kTarget,
        .id = id,
        .version = version,
        .request_id = {.client = 1, .channel = index % 64, .sequence = ++sequence_},
        .offset = offset,
        .data = from,
        .chunk_size = kChunkBytes};
    FF_CO_TRY(co_await store_.write(update));
    FF_CO_TRY(co_await store_.commit(kTarget, id, version, 1));
    co_return Result<void>();
  }

  chunk::ChunkStore& store_;
  Loop& loop_;
  uint64_t sequence_ = 0;
  std::map<uint64_t, Semaphore> locks_;  // of chunks
};

chunk::ChunkStoreOptions store_options(io::Disk& disk, Loop& loop, Rng& rng,
                                       const std::string& dir) {
  return {
      .disk = disk, .loop = loop, .rng = rng, .dir = dir, .cluster = "bench", .boot_id = "bench"};
}

Result<std::unique_ptr<chunk::ChunkStore>> make_store(const chunk::ChunkStoreOptions& options) {
  const chunk::DiskIdentity identity{.cluster = "bench", .disk = "bench"};
  FF_TRY(chunk::ChunkStore::create(options, identity));
  FF_TRY(auto store, run_task(options.loop, chunk::ChunkStore::open(options)));
  FF_TRY(run_task(options.loop, store->create_target(kTarget, 1)));
  return store;
}

}  // namespace

Result<ChunkBenchResult> run_chunk_load(io::Disk& disk, const StopToken& stop, Progress& progress,
                                        Rng& rng, const ChunkLoad& load) {
  SystemLoop loop(stop.clock());
  FF_TRY(const auto memory, io::Buffers::make(1, memory_required(load.passes)));
  const PassContext on{loop, stop, progress, rng, load.passes, memory.all()};
  ChunkBenchResult figures;
  FF_TRY(const auto raw, RawFile::make(disk, loop, io::join(load.dir, "raw"), load.passes));
  figures.direct = raw->direct();
  auto options = store_options(disk, loop, rng, io::join(load.dir, "store"));
  FF_TRY(const io::Space space, disk.space(load.dir));
  options.log = chunk::metadata_log_limits(space.total);
  options.queue_depth = std::max(load.passes.depth, load.passes.small_depth);
  FF_TRY(auto store, make_store(options));
  StoreSubject subject(*store, loop);
  const MeasuredTarget of_raw{*raw, figures.raw};
  const MeasuredTarget of_store{subject, figures.store};
  FF_TRY(load.store_first ? run_passes(on, of_store, &of_raw) : run_passes(on, of_raw, &of_store));
  FF_TRY(run_task(loop, store->close()));
  return figures;
}

namespace {

constexpr chunk::SizeClass kOpenClass = 0;
constexpr uint64_t kOpenBytes = chunk::block_bytes(kOpenClass);

// Sparse data, and the checksums of its zeros.
Result<void> make_block_files(io::Disk& disk, const std::string& dir, uint64_t chunks) {
  constexpr uint64_t kChecksumsAtOnce = kMiB;
  const io::OpenOptions create{.access = io::AccessMode::write, .create = true};
  const std::string stem = io::join(dir, chunk::class_name(kOpenClass));
  FF_TRY(const auto data, disk.open(stem + ".data", create));
  FF_TRY(data->truncate(chunks * kOpenBytes));
  FF_TRY(const auto checksums, disk.open(stem + ".crc", create));
  const std::string unit(chunk::checksum_unit_bytes(kOpenClass), '\0');
  std::string block;
  while (block.size() < kChecksumsAtOnce) append_le(block, simd::crc32c(as_bytes(unit)));
  const uint64_t size = chunks * chunk::checksum_units(kOpenClass) * sizeof(uint32_t);
  for (uint64_t at = 0; at < size; at += block.size()) {
    FF_TRY(checksums->write_at(as_bytes(block).first(std::min(block.size(), size - at)), at));
  }
  return {};
}

// Anonymous memory of this process: resident pages without shared ones (proc(5), statm).
Result<uint64_t> memory_in_use(io::Disk& disk) {
  constexpr uint64_t kPageBytes = 4096;
  FF_TRY(const std::string text, io::read_file(disk, "/proc/self/statm", kKiB));
  uint64_t size = 0;
  uint64_t resident = 0;
  uint64_t shared = 0;
  std::istringstream(text) >> size >> resident >> shared;
  return (resident - shared) * kPageBytes;
}

// Rows of chunks that are all alike, block after block. Returns the size of the metadata.
Result<uint64_t> fill_metadata(const chunk::ChunkStoreOptions& options, const StopToken& stop,
                               uint64_t chunks) {
  constexpr uint64_t kRowsAtOnce = 10000;
  const chunk::MetadataOptions of_metadata{
      .disk = options.disk, .dir = options.dir, .disk_id = {}, .rng = options.rng};
  FF_TRY(const auto metadata, chunk::Metadata::open(of_metadata));
  FF_TRY(metadata->start());
  chunk::RowChanges rows;
  for (uint64_t i = 0; i < chunks; ++i) {
    chunk::ChunkRecord record;
    record.chain_version = 1;
    record.committed.state = {.version = 1 + i % 5, .length = kOpenBytes, .checksum = 1};
    record.committed.block = chunk::BlockLocation{.size_class = kOpenClass, .number = i};
    const chunk::ChunkId id = id_of(i);
    rows.push_back({.key = key_of(chunk::RowKind::chunk, {kTarget, id.inode, id.index}),
                    .body = encode(record)});
    if (rows.size() < kRowsAtOnce && i + 1 < chunks) continue;
    FF_TRY(stop.check());
    FF_TRY(metadata->apply(rows));
    metadata->checkpoint_if_needed();
    rows.clear();
  }
  FF_TRY(metadata->flush());
  return metadata->stored_bytes();
}

}  // namespace

Result<OpenResult> measure_open(io::Disk& disk, const StopToken& stop, Rng& rng,
                                const std::string& dir, uint64_t chunks) {
  SystemLoop loop(stop.clock());
  const auto options = store_options(disk, loop, rng, dir);
  FF_TRY(auto store, make_store(options));
  FF_TRY(run_task(loop, store->close()));
  store.reset();
  OpenResult figures;
  FF_TRY(figures.metadata_bytes, fill_metadata(options, stop, chunks));
  FF_TRY(make_block_files(disk, dir, chunks));
  FF_TRY(const uint64_t memory_before, memory_in_use(disk));
  const int64_t began = loop.now_ns();
  FF_TRY(store, run_task(loop, chunk::ChunkStore::open(options)));
  figures.seconds = to_seconds(loop.now_ns() - began);
  FF_TRY(const uint64_t memory, memory_in_use(disk));
  figures.memory_bytes = memory - std::min(memory, memory_before);
  if (store->targets().at(0).chunks != chunks) {
    return fail(Errc::failed, "{}: {} chunks were stored, {} are there", dir, chunks,
                store->targets().at(0).chunks);
  }
  if (store->damaged_at_open() > 0) {
    return fail(Errc::failed, "{}: {} chunks are damaged", dir, store->damaged_at_open());
  }
  FF_TRY(run_task(loop, store->close()));
  return figures;
}

}  // namespace ff::bench
