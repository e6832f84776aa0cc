// save_worker.cc: moving inputs into chunk files, several at a time.
#include "ckpt/save_worker.h"

#include <fmt/format.h>

#include <cstring>

#include "ckpt/chunk_file.h"
#include "simd/crc32c.h"

namespace ff::ckpt {
namespace {

constexpr size_t kSlots = 6;  // chunks in flight a worker: enough to keep a fast disk busy
constexpr size_t kSlotBytes = kHeadBytes + kChunkBytes + 2 * io::kDirectAlign;

}  // namespace

SaveWorker::SaveWorker(SaveShared& shared) : shared_(shared), context_(shared.context) {}

Result<void> SaveWorker::set_up() {
  queue_ = context_.disk.make_queue({.depth = kSlots});
  FF_TRY(buffers_, io::Buffers::make(kSlots, kSlotBytes));
  const std::array<ByteSpan, 1> all = {buffers_->all()};
  queue_->register_buffers(all);
  slots_.resize(kSlots);
  for (size_t i = 0; i < kSlots; i++) slots_[i].memory = buffers_->slot(i);
  if (shared_.compress) packed_.resize(kChunkBytes);
  return {};
}

Result<void> SaveWorker::run(SaveShared& shared) {
  SaveWorker worker(shared);
  FF_TRY(worker.set_up());
  for (bool more = true; !worker.error_ && !shared.failed.load();) {
    FF_TRY(shared.context.stop.check());
    FF_TRY(shared.lease.renew_if_due());  // also while a stream has nothing yet
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

// Gives every free slot a job. False once there are none left.
Result<bool> SaveWorker::feed() {
  for (auto& slot : slots_) {
    while (!slot.busy && !error_) {
      FF_TRY(auto next, shared_.planner.next(slot.memory.subspan(kHeadBytes, kChunkBytes)));
      if (!next.job) return next.more;
      slot.job = std::move(*next.job);
      slot.stored = {};
      slot.busy = true;
      start(slot);
      queue_->poll();  // hands its write over now, not after the other slots' digests
    }
  }
  return true;
}

void SaveWorker::check(Result<void> result) {
  if (!result && !error_) error_ = std::move(result).error();
}

void SaveWorker::start(Slot& slot) {
  Job& job = slot.job;
  if (job.length == 0 || job.hole) {
    if (job.hole) shared_.zero_bytes += job.length;
    finish(slot);
  } else if (job.filled) {
    process(slot);
  } else {
    auto cached = job.file->read_cached(data(slot), job.offset);
    if (!cached) {
      check(std::move(cached).error());
    } else if (*cached) {
      process(slot);
    } else {
      read_direct(slot);
    }
  }
}

// Reads the blocks around the range and moves the range to where it belongs in the slot.
void SaveWorker::read_direct(Slot& slot) {
  const Job& job = slot.job;
  const uint64_t unit = job.file->direct() ? io::kDirectAlign : 1;
  const uint64_t begin = align_down(job.offset, unit);
  const uint64_t end = align_up(job.offset + job.length, unit);
  const uint64_t skip = job.offset - begin;
  queue_->read(*job.file, slot.memory.subspan(kHeadBytes, end - begin), begin,
               [this, &slot, skip](Result<size_t> got) {
                 if (!got) return check(std::move(got).error());
                 if (*got < skip + slot.job.length) {
                   return check(fail(Errc::failed, "{}: it shrank while being saved",
                                     slot.job.file->path()));
                 }
                 std::byte* at = slot.memory.data() + kHeadBytes;
                 if (skip != 0) std::memmove(at, at + skip, slot.job.length);
                 process(slot);
               });
}

void SaveWorker::process(Slot& slot) {
  const ByteView bytes = data(slot);
  if (simd::all_zero(bytes)) {
    shared_.zero_bytes += bytes.size();
    return finish(slot);
  }
  const auto print = simd::fingerprint(shared_.store.digest_kind(), bytes);
  slot.stored.chunk = print.digest;
  if (slot.job.pieces.size() == 1) {
    slot.stored.crcs = {print.crc32c};
  } else {
    size_t at = 0;
    for (const auto& piece : slot.job.pieces) {
      slot.stored.crcs.push_back(simd::crc32c(bytes.subspan(at, piece.length)));
      at += piece.length;
    }
  }
  auto known = already_stored(slot, print.digest);
  if (!known) return check(std::move(known).error());
  if (*known) return finish(slot);
  if (shared_.compare_only) {
    return check(Error{Errc::refused, "the inputs differ from the checkpoint that exists",
                       "Save under another step, or give --replace to swap it."});
  }
  check(write(slot, print));
}

// Whether the chunk is in this save already or, with an intact head, in the store. One that a
// pruner has moved to the trash is taken back.
Result<bool> SaveWorker::already_stored(Slot& slot, const simd::Digest& digest) {
  {
    const std::lock_guard lock(shared_.mutex);
    if (!shared_.seen.insert(digest).second) return true;
  }
  const std::string path = shared_.store.chunk_path(digest);
  auto file = context_.disk.open(path, {.direct = true});
  if (!file && file.error().code == Errc::not_found) {
    const auto restored = context_.disk.rename(shared_.store.trash_path(digest), path);
    if (restored) file = context_.disk.open(path, {.direct = true});
  }
  if (!file) {
    if (file.error().code == Errc::not_found) return false;
    return std::move(file).error();
  }
  // The head goes where write() would put it: the slot's first block is free.
  FF_TRY(const size_t got, (*file)->read_at(slot.memory.first(kHeadBytes), 0));
  FF_TRY(const auto info, (*file)->info());
  const auto head = decode_head(slot.memory.first(got));
  if (!head || head->digest != digest || head->file_length() != info.size ||
      head->raw_length != slot.job.length) {
    return false;  // damaged: it is written again
  }
  shared_.chunks_reused++;
  return true;
}

Result<void> SaveWorker::write(Slot& slot, const simd::Fingerprint& print) {
  ChunkHead head{.codec = Codec::raw,
                 .raw_length = slot.job.length,
                 .stored_length = slot.job.length,
                 .raw_crc = print.crc32c,
                 .stored_crc = print.crc32c,
                 .digest = print.digest};
  if (shared_.compress) {
    if (const size_t packed = compress_chunk(data(slot), packed_); packed != 0) {
      std::memcpy(slot.memory.data() + kHeadBytes, packed_.data(), packed);
      head.codec = Codec::zstd;
      head.stored_length = packed;
      head.stored_crc = simd::crc32c(ByteView(packed_).first(packed));
    }
  }
  encode_head(head, slot.memory.data());
  const uint64_t length = head.file_length();
  const uint64_t used = kHeadBytes + head.stored_length;
  std::memset(slot.memory.data() + used, 0, length - used);
  slot.unfinished = fmt::format("{}/{}", shared_.lease.folder(), shared_.next_file++);
  FF_TRY(slot.out,
         context_.disk.open(
             slot.unfinished,
             {.access = io::Access::write, .create = true, .exclusive = true, .direct = true}));
  shared_.chunks_new++;
  shared_.bytes_written += length;
  queue_->write(*slot.out, slot.memory.first(length), 0, [this, &slot](Result<size_t> done) {
    if (!done) return check(std::move(done).error());
    written(slot);
  });
  return {};
}

void SaveWorker::written(Slot& slot) {
  queue_->sync(*slot.out, [this, &slot](Result<size_t> done) {
    if (!done) return check(std::move(done).error());
    check(put_in_place(slot));
  });
}

Result<void> SaveWorker::put_in_place(Slot& slot) {
  slot.out.reset();
  FF_TRY(context_.disk.rename(slot.unfinished, shared_.store.chunk_path(*slot.stored.chunk)));
  finish(slot);
  return {};
}

void SaveWorker::finish(Slot& slot) {
  context_.progress.done += slot.job.length;
  check(shared_.recorder.done(std::move(slot.job), std::move(slot.stored)));
  slot.busy = false;
}

}  // namespace ff::ckpt
