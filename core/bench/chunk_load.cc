// chunk_load.cc: workers on one loop, as many as operations in flight, each with its own memory.
#include "bench/chunk_load.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/gate.h"
#include "base/system_loop.h"
#include "chunk/store.h"
#include "io/async.h"
#include "io/buffers.h"
#include "io/files.h"

namespace ff::bench {
namespace {

constexpr uint64_t kChunkBytes = kMiB;
constexpr uint64_t kSmallBytes = 4 * kKiB;
constexpr uint64_t kChunksOfFile = 64;  // of one inode, as a striped file has in one chain
constexpr chunk::TargetId kTarget = 1;

chunk::ChunkId id_of(uint64_t index) {
  return {.inode = 1 + index / kChunksOfFile, .index = index % kChunksOfFile};
}

// What can be measured: a file, or a store.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual Task<Result<void>> write(uint64_t index, ByteView from) = 0;
  virtual Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) = 0;
  virtual Task<Result<void>> sync() = 0;
};

class RawFile final : public Subject {
 public:
  RawFile(io::Disk& disk, Loop& loop, std::unique_ptr<io::File> file, unsigned depth)
      : queue_(disk, loop, depth), file_(std::move(file)) {}
  static Result<std::unique_ptr<io::File>> make(io::Disk& disk, const ChunkLoad& load) {
    FF_TRY(auto file,
           disk.open(io::join(load.dir, "raw"),
                     {.access = io::Access::read_write, .create = true, .direct = true}));
    FF_TRY(file->truncate(load.bytes));
    FF_TRY(file->reserve(0, load.bytes));
    return file;
  }

  Task<Result<void>> write(uint64_t index, ByteView from) override {
    return queue_.write(*file_, from, index * kChunkBytes);
  }
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override {
    FF_CO_TRY(co_await queue_.read(*file_, into, index * kChunkBytes + offset));
    co_return Result<void>();
  }
  Task<Result<void>> sync() override { return queue_.sync(*file_); }

 private:
  io::AsyncQueue queue_;
  std::unique_ptr<io::File> file_;
};

class StoreSubject final : public Subject {
 public:
  explicit StoreSubject(chunk::Store& store) : store_(store) {}

  Task<Result<void>> write(uint64_t index, ByteView from) override {
    const chunk::Update update{.target = kTarget,
                               .id = id_of(index),
                               .version = 1,
                               .writer = {.client = 1, .channel = index % 64, .sequence = index},
                               .data = from,
                               .chunk_size = kChunkBytes};
    FF_CO_TRY(co_await store_.write(update));
    FF_CO_TRY(co_await store_.commit(kTarget, update.id, 1, 1));
    co_return Result<void>();
  }
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override {
    const chunk::ReadRequest request{.target = kTarget, .id = id_of(index), .offset = offset};
    FF_CO_TRY(co_await store_.read(request, into));
    co_return Result<void>();
  }
  Task<Result<void>> sync() override { return store_.sync(); }

 private:
  chunk::Store& store_;
};

// One pass over a subject: `count` operations, `depth` at once.
struct Pass {
  enum class Kind : uint8_t { write, read, small_read };
  Subject& subject;
  Loop& loop;
  const Stop& stop;
  Progress& progress;
  Rng& rng;
  const ChunkLoad& load;
  Kind kind = Kind::write;
  uint64_t count = 0;
  uint64_t next = 0;
  std::optional<Error> error = {};
};

Task<void> work(Pass& pass, ByteSpan memory) {
  const uint64_t chunks = pass.load.bytes / kChunkBytes;
  while (pass.next < pass.count && !pass.error) {
    const uint64_t index = pass.next++;
    Result<void> done;
    if (auto stopped = pass.stop.check(); !stopped) {
      done = std::move(stopped);
    } else if (pass.kind == Pass::Kind::write) {
      done = co_await pass.subject.write(index, memory);
    } else if (pass.kind == Pass::Kind::read) {
      done = co_await pass.subject.read(index, 0, memory);
    } else {
      const uint64_t offset = pass.rng.below(kChunkBytes / kSmallBytes) * kSmallBytes;
      const ByteSpan into = memory.first(kSmallBytes);
      done = co_await pass.subject.read(pass.rng.below(chunks), offset, into);
    }
    pass.progress.done += pass.kind == Pass::Kind::small_read ? kSmallBytes : kChunkBytes;
    if (!done) pass.error = std::move(done).error();
  }
}

Task<void> work_all(Pass& pass, const io::Buffers& buffers) {
  Gate gate(pass.loop);
  for (size_t i = 0; i < buffers.count(); ++i) gate.spawn(work(pass, buffers.slot(i)));
  co_await gate.wait_empty();
  if (pass.kind != Pass::Kind::write || pass.error) co_return;
  if (auto synced = co_await pass.subject.sync(); !synced) pass.error = std::move(synced).error();
}

// Bytes a second.
Result<double> run_pass(Pass pass) {
  const bool small = pass.kind == Pass::Kind::small_read;
  pass.count = small ? pass.load.small_reads : pass.load.bytes / kChunkBytes;
  const uint64_t size = small ? kSmallBytes : kChunkBytes;
  FF_TRY(const auto buffers,
         io::Buffers::make(small ? pass.load.small_depth : pass.load.depth, size));
  std::ranges::fill(buffers.all(), std::byte{0x5a});
  const int64_t began = pass.loop.now_ns();
  run_task(pass.loop, work_all(pass, buffers));
  if (pass.error) return std::move(*pass.error);
  const double seconds = static_cast<double>(pass.loop.now_ns() - began) / 1e9;
  return static_cast<double>(pass.count * size) / std::max(seconds, 1e-9);
}

struct Context {
  io::Disk& disk;
  Loop& loop;
  const Stop& stop;
  Progress& progress;
  Rng& rng;
  const ChunkLoad& load;
};

// Each pass of one beside that of the other; who goes first changes, for some disks are faster for
// a while and slower after it.
Result<void> measure(const Context& on, Subject& raw, Subject& store, ChunkFigures& figures) {
  const auto pass = [&](Subject& subject, Pass::Kind kind) {
    return run_pass({.subject = subject,
                     .loop = on.loop,
                     .stop = on.stop,
                     .progress = on.progress,
                     .rng = on.rng,
                     .load = on.load,
                     .kind = kind});
  };
  struct Part {
    Pass::Kind kind;
    double ChunkSpeed::*speed;
  };
  const Part parts[] = {{Pass::Kind::write, &ChunkSpeed::write},
                        {Pass::Kind::read, &ChunkSpeed::read},
                        {Pass::Kind::small_read, &ChunkSpeed::small_read}};
  for (const Part& part : parts) {
    for (const bool store_now : {on.load.store_first, !on.load.store_first}) {
      ChunkSpeed& speed = store_now ? figures.store : figures.raw;
      FF_TRY(speed.*part.speed, pass(store_now ? store : raw, part.kind));
    }
  }
  return {};
}

chunk::StoreOptions store_options(io::Disk& disk, Loop& loop, Rng& rng, const std::string& dir) {
  return {.disk = disk, .loop = loop, .rng = rng, .dir = dir, .cluster = "bench", .boot = "bench"};
}

Result<std::unique_ptr<chunk::Store>> make_store(const chunk::StoreOptions& options) {
  const chunk::Identity identity{.cluster = "bench", .disk = "bench"};
  FF_TRY(chunk::Store::create(options, identity));
  FF_TRY(auto store, run_task(options.loop, chunk::Store::open(options)));
  FF_TRY(run_task(options.loop, store->create_target(kTarget, 1)));
  return store;
}

}  // namespace

Result<ChunkFigures> run_chunk_load(io::Disk& disk, const Stop& stop, Progress& progress, Rng& rng,
                                    const ChunkLoad& load) {
  SystemLoop loop(stop.clock());
  const Context on{disk, loop, stop, progress, rng, load};
  ChunkFigures figures;
  FF_TRY(auto file, RawFile::make(disk, load));
  figures.direct = file->direct();
  RawFile raw(disk, loop, std::move(file), std::max(load.depth, load.small_depth));
  auto options = store_options(disk, loop, rng, io::join(load.dir, "store"));
  options.depth = std::max(load.depth, load.small_depth);
  FF_TRY(auto store, make_store(options));
  StoreSubject subject(*store);
  FF_TRY(measure(on, raw, subject, figures));
  FF_TRY(run_task(loop, store->close()));
  return figures;
}

namespace {

// Rows of chunks that are all alike, block after block.
Result<void> fill_metadata(const chunk::StoreOptions& options, const Stop& stop, uint64_t chunks) {
  constexpr uint64_t kRowsAtOnce = 10000;
  FF_TRY(auto metadata, chunk::Metadata::open(options.disk, chunk::metadata_path(options.dir),
                                              options.loop.clock(), options.rng));
  chunk::RowChanges rows;
  for (uint64_t i = 0; i < chunks; ++i) {
    const chunk::Class of = chunk::class_for(kChunkBytes);
    chunk::Record record;
    record.chain_version = 1;
    record.committed.state = {.version = 1 + i % 5, .length = kChunkBytes, .checksum = 1};
    record.committed.block = chunk::Place{.of = of, .number = i};
    const chunk::ChunkId id = id_of(i);
    rows.push_back({.key = key_of(chunk::Table::chunk, {kTarget, id.inode, id.index}),
                    .body = encode(record)});
    if (rows.size() < kRowsAtOnce && i + 1 < chunks) continue;
    FF_TRY(stop.check());
    FF_TRY(metadata.apply(rows));
    rows.clear();
  }
  return metadata.flush();
}

}  // namespace

Result<OpenFigures> run_open(io::Disk& disk, const Stop& stop, Rng& rng, const std::string& dir,
                             uint64_t chunks) {
  SystemLoop loop(stop.clock());
  const auto options = store_options(disk, loop, rng, dir);
  FF_TRY(auto store, make_store(options));
  FF_TRY(run_task(loop, store->close()));
  store.reset();
  FF_TRY(fill_metadata(options, stop, chunks));
  // Once to make the files as long as they must be, then the time counts.
  FF_TRY(store, run_task(loop, chunk::Store::open(options)));
  FF_TRY(run_task(loop, store->close()));
  store.reset();
  OpenFigures figures;
  FF_TRY(const auto info, disk.info(chunk::metadata_path(dir)));
  figures.metadata_bytes = info.size;
  const int64_t began = loop.now_ns();
  FF_TRY(store, run_task(loop, chunk::Store::open(options)));
  figures.seconds = static_cast<double>(loop.now_ns() - began) / 1e9;
  if (store->targets().at(0).chunks != chunks) {
    return fail(Errc::failed, "{}: {} chunks were stored, {} are there", dir, chunks,
                store->targets().at(0).chunks);
  }
  FF_TRY(run_task(loop, store->close()));
  return figures;
}

}  // namespace ff::bench
