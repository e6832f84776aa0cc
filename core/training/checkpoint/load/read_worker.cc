// read_worker.cc: fetches and checks chunks and writes their bytes, several at a time.
#include "training/checkpoint/load/read_worker.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <list>

#include "platform/io/buffers.h"
#include "platform/simd/crc32c.h"
#include "training/checkpoint/format/chunk_file.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kReadSlots = 6;                   // chunks in flight per worker
constexpr size_t kEdgesInFlight = 4 * kReadSlots;  // edge blocks in flight
// A chunk file, and space to shift its data by up to a block.
constexpr size_t kReadSlotBytes = kChunkFileMax + io::kDirectAlign;
// Pieces of one job (slices of tensors may be very small).
constexpr size_t kJobPiecesMax = 65536;

struct Shared {
  ReadPlan& plan;
  std::mutex source_mutex;
  std::mutex bad_mutex;
  std::atomic<bool> failed{false};
};

class ReadWorker {
 public:
  static Result<void> run(Shared& shared);

 private:
  struct Slot {
    ByteSpan memory;
    bool busy = false;
    ReadJob job;
    std::unique_ptr<io::File> chunk;
  };

  explicit ReadWorker(Shared& shared) : shared_(shared), context_(shared.plan.context) {}
  Result<void> set_up();
  Result<bool> feed();
  Result<void> start(Slot& slot);
  Result<void> fetched(Slot& slot, size_t length);
  Result<void> place(Slot& slot, ByteView data);
  Result<void> write_edge(const std::shared_ptr<OutFile>& file, OutFile::FullEdge full);
  Result<void> report_damage(Slot& slot, const std::string& reason);
  Result<void> finish(Slot& slot);
  void check(Result<void> result) {
    if (!result && !error_) error_ = std::move(result).error();
  }

  Shared& shared_;
  Context& context_;
  std::optional<io::Buffers> buffers_;
  std::vector<Slot> slots_;
  std::vector<std::byte> scratch_;  // unpacked data
  struct Edge {
    std::shared_ptr<OutFile> file;
    OutFile::FullEdge full;
  };
  std::list<Edge> edges_;  // being written
  std::optional<Error> error_;
  std::unique_ptr<io::IoQueue> queue_;  // last: it waits for I/O on the members above
};

Result<void> ReadWorker::set_up() {
  queue_ = context_.disk.make_queue({.depth = kReadSlots + kEdgesInFlight});
  FF_TRY(buffers_, context_.disk.make_buffers(kReadSlots, kReadSlotBytes));
  const std::array<ByteSpan, 1> all = {buffers_->all()};
  queue_->register_buffers(all);
  slots_.resize(kReadSlots);
  for (size_t i = 0; i < kReadSlots; i++) slots_[i].memory = buffers_->slot(i);
  scratch_.resize(kChunkBytes);
  return {};
}

Result<void> ReadWorker::run(Shared& shared) {
  ReadWorker worker(shared);
  FF_TRY(worker.set_up());
  for (bool more = true; !worker.error_ && !shared.failed.load();) {
    FF_TRY(worker.context_.stop.check());
    if (more) {
      FF_TRY(more, worker.feed());
    }
    if (worker.queue_->in_flight() > 0) {
      worker.queue_->run();
    } else if (!more) {
      break;
    }
  }
  if (worker.error_) return std::move(*worker.error_);
  return {};
}

Result<bool> ReadWorker::feed() {
  for (auto& slot : slots_) {
    while (!slot.busy && !error_) {
      FF_TRY(context_.stop.check());  // jobs without a chunk do not leave this loop
      {
        const std::lock_guard lock(shared_.source_mutex);
        FF_TRY(auto job, shared_.plan.source.next());
        if (!job) return false;
        slot.job = std::move(*job);
      }
      slot.busy = true;
      FF_TRY(start(slot));
    }
  }
  return true;
}

Result<void> ReadWorker::start(Slot& slot) {
  ReadJob& job = slot.job;
  if (!job.chunk) {
    if (job.file && job.zeros > 0) FF_TRY(job.file->add_zeros(job.out_offset, job.zeros));
    if (job.file && job.literal) {
      FF_TRY(job.file->write(job.out_offset, as_bytes(*job.literal)));
    }
    return finish(slot);
  }
  auto file = open_chunk_file(context_.disk, shared_.plan.store, *job.chunk, true);
  if (!file) {
    if (file.error().code == Errc::corrupt) return report_damage(slot, file.error().message);
    return std::move(file).error();
  }
  slot.chunk = std::move(*file);
  FF_TRY(const auto info, slot.chunk->info());
  if (info.size > kChunkFileMax || info.size % io::kDirectAlign != 0) {
    return report_damage(slot, "the file length is impossible for a chunk");
  }
  queue_->read(*slot.chunk, slot.memory.first(info.size), 0, [this, &slot](Result<size_t> got) {
    if (!got) {
      // An I/O error of the device is damage, like a flipped bit.
      return check(report_damage(slot, got.error().message));
    }
    check(fetched(slot, *got));
  });
  return {};
}

Result<void> ReadWorker::fetched(Slot& slot, size_t length) {
  const auto& job = slot.job;
  const auto data = open_chunk(slot.memory.first(length), *job.chunk, scratch_, shared_.plan.deep);
  if (!data) return report_damage(slot, data.error().message);
  for (const auto& piece : job.pieces) {
    if (uint64_t{piece.chunk_offset} + piece.length > data->size()) {
      return report_damage(slot, "the index refers to bytes beyond the chunk's end");
    }
    if (piece.crc && simd::crc32c(data->subspan(piece.chunk_offset, piece.length)) != *piece.crc) {
      return report_damage(slot, "its bytes do not match the CRC32C in the index");
    }
  }
  if (!job.file) return finish(slot);
  return place(slot, *data);
}

// Writes the pieces. A single run of bytes, the usual case, is written from the slot
// asynchronously.
Result<void> ReadWorker::place(Slot& slot, ByteView data) {
  ReadJob& job = slot.job;
  const ReadPiece& first = job.pieces.front();
  uint64_t run = first.length;
  for (size_t i = 1; i < job.pieces.size(); i++) {
    const ReadPiece& piece = job.pieces[i];
    if (piece.chunk_offset != first.chunk_offset + run ||
        piece.out_offset != first.out_offset + run) {
      run = 0;
      break;
    }
    run += piece.length;
  }
  if (run == 0 || !job.file->direct()) {
    for (const auto& piece : job.pieces) {
      FF_TRY(job.file->write(piece.out_offset, data.subspan(piece.chunk_offset, piece.length)));
    }
    return finish(slot);
  }
  std::byte* at = slot.memory.data() + kHeadBytes + job.file->alignment_offset(first.out_offset);
  if (data.data() + first.chunk_offset != at) {
    std::memmove(at, data.data() + first.chunk_offset, run);
  }
  std::vector<OutFile::FullEdge> full;
  const ByteView body = job.file->split_edges(first.out_offset, {at, run}, full);
  for (auto& edge : full) FF_TRY(write_edge(job.file, std::move(edge)));
  if (body.empty()) return finish(slot);
  queue_->write(job.file->file(), body, job.file->body_offset(first.out_offset),
                [this, &slot](Result<size_t> done) {
                  if (!done) return check(std::move(done).error());
                  check(finish(slot));
                });
  return {};
}

// Do not wait for this small write: that would wait for the large ones before it.
Result<void> ReadWorker::write_edge(const std::shared_ptr<OutFile>& file, OutFile::FullEdge full) {
  if (edges_.size() == kEdgesInFlight) {
    return file->file().write_at(full.block->bytes, full.offset);
  }
  file->add_writer();
  const auto edge = edges_.insert(edges_.end(), {file, std::move(full)});
  queue_->write(file->file(), edge->full.block->bytes, edge->full.offset,
                [this, edge](Result<size_t> done) {
                  if (!done) return check(std::move(done).error());
                  check(edge->file->remove_writer());
                  edges_.erase(edge);
                });
  return {};
}

Result<void> ReadWorker::report_damage(Slot& slot, const std::string& reason) {
  {
    const std::lock_guard lock(shared_.bad_mutex);
    FF_TRY(shared_.plan.on_damage(*slot.job.chunk, reason));
  }
  return finish(slot);
}

Result<void> ReadWorker::finish(Slot& slot) {
  context_.progress.done += slot.job.bytes();
  if (slot.job.file) FF_TRY(slot.job.file->remove_writer());
  if (shared_.plan.lease != nullptr) FF_TRY(shared_.plan.lease->renew_if_due());
  slot.job = {};
  slot.chunk.reset();
  slot.busy = false;
  return {};
}

}  // namespace

uint64_t ReadJob::bytes() const {
  uint64_t sum = zeros + (literal ? literal->size() : 0);
  for (const auto& piece : pieces) sum += piece.length;
  return sum;
}

void JobBuilder::push(ReadJob job) {
  if (job.file) job.file->add_writer();
  ready_.push_back(std::move(job));
}

void JobBuilder::flush() {
  FF_CHECK(waiting_.empty());
  push_open();
}

void JobBuilder::push_open() {
  if (open_) push(std::move(*open_));
  open_.reset();
}

std::optional<ReadJob> JobBuilder::take() {
  while (ready_.empty() && !waiting_.empty()) {
    Waiting& waiting = waiting_.front();
    const ChunkExtent& extent = (*waiting.extents)[waiting.next++];
    add(extent, 0, extent.length, waiting.file, waiting.out_offset);
    waiting.out_offset += extent.length;
    if (waiting.next == waiting.extents->size()) waiting_.pop_front();
  }
  if (ready_.empty()) return std::nullopt;
  auto job = std::move(ready_.front());
  ready_.pop_front();
  return job;
}

void JobBuilder::add(const ChunkExtent& extent, uint64_t from, uint64_t length,
                     const std::shared_ptr<OutFile>& file, uint64_t out_offset) {
  FF_CHECK(from + length <= extent.length);
  if (length == 0) return;
  if (!extent.chunk) {
    push_open();
    ReadJob zeros;
    zeros.out_offset = out_offset;
    zeros.zeros = length;
    zeros.file = file;
    push(std::move(zeros));
    return;
  }
  if (open_ && (open_->chunk != extent.chunk || open_->file != file ||
                open_->pieces.size() == kJobPiecesMax)) {
    push_open();
  }
  if (!open_) {
    open_.emplace();
    open_->chunk = extent.chunk;
    open_->file = file;
  }
  ReadPiece piece{.chunk_offset = static_cast<uint32_t>(extent.offset + from),
                  .length = static_cast<uint32_t>(length),
                  .out_offset = out_offset,
                  .crc = {}};
  if (length == extent.length) piece.crc = extent.crc;
  open_->pieces.push_back(piece);
}

void JobBuilder::add_all(Extents extents, const std::shared_ptr<OutFile>& file,
                         uint64_t out_offset) {
  if (extents->empty()) return;
  waiting_.push_back({std::move(extents), 0, file, out_offset});
}

void JobBuilder::add_all(std::vector<ChunkExtent> extents, const std::shared_ptr<OutFile>& file,
                         uint64_t out_offset) {
  add_all(std::make_shared<const std::vector<ChunkExtent>>(std::move(extents)), file, out_offset);
}

void JobBuilder::literal(std::shared_ptr<const std::string> bytes,
                         const std::shared_ptr<OutFile>& file, uint64_t out_offset) {
  flush();
  ReadJob job;
  job.literal = std::move(bytes);
  job.out_offset = out_offset;
  job.file = file;
  push(std::move(job));
}

Result<void> run_reads(ReadPlan& plan) {
  Shared shared{.plan = plan, .source_mutex = {}, .bad_mutex = {}};
  return run_workers(plan.context.threads, shared.failed,
                     [&](unsigned) { return ReadWorker::run(shared); });
}

}  // namespace ff::checkpoint
