// save_worker.cc: moving inputs into chunk files, several at a time.
#include "training/checkpoint/save/save_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "platform/simd/crc32c.h"
#include "training/checkpoint/format/chunk_file.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kSaveSlots = 8;  // chunks in flight per worker: enough for a fast disk
constexpr size_t kSaveSlotBytes = kHeadBytes + kChunkBytes + 2 * io::kDirectAlign;
// Cached input is read and fingerprinted in pieces that fit the L2 cache.
constexpr size_t kWindowBytes = 256 * kKiB;
constexpr size_t kSyncBatch = 64;    // chunks synced together
constexpr size_t kUnsyncedMax = 96;  // written and not synced; bounds the open files of a worker

}  // namespace

Result<bool> CommittedChunks::contains(const simd::Digest& chunk) {
  const std::lock_guard lock(mutex_);
  if (!chunks_) {
    SortedSet<ChunkKey> found;
    FF_TRY(auto reader, IndexReader::open(disk_, index_path_));
    for (;;) {
      FF_TRY(const auto record, reader.next());
      if (!record) break;
      const auto* extents = extents_of(*record);
      if (extents == nullptr) continue;
      for (const auto& extent : *extents) {
        if (extent.chunk) found.add(chunk_key(*extent.chunk));
      }
    }
    found.sort_unique();
    chunks_ = std::move(found);
  }
  return chunks_->contains(chunk_key(chunk));
}

SaveWorker::SaveWorker(SaveShared& shared)
    : shared_(shared),
      context_(shared.context),
      print_(shared.store.digest_kind()),
      digest_(shared.store.digest_kind()) {}

Result<void> SaveWorker::set_up() {
  queue_ = context_.disk.make_queue({.depth = kSaveSlots + kSyncBatch});
  FF_TRY(buffers_, context_.disk.make_buffers(kSaveSlots, kSaveSlotBytes));
  slots_.resize(kSaveSlots);
  for (size_t i = 0; i < kSaveSlots; i++) slots_[i].memory = buffers_->slot(i);
  window_.resize(kWindowBytes);
  if (shared_.compress) packed_.resize(kChunkBytes);
  return {};
}

Result<void> SaveWorker::run(SaveShared& shared) {
  SaveWorker worker(shared);
  FF_TRY(worker.set_up());
  for (bool more = true; !worker.error_ && !shared.failed.load();) {
    FF_TRY(shared.context.stop.check());
    FF_TRY(shared.lease.renew_if_due());  // also while a stream has no data
    if (more && worker.unsynced_.size() < kUnsyncedMax) {
      FF_TRY(more, worker.feed());
    }
    worker.sync_chunks(!more && worker.busy_ == 0);
    if (worker.queue_->in_flight() > 0) {
      worker.queue_->run();
    } else if (!more) {
      break;
    }
  }
  if (worker.error_) return std::move(*worker.error_);
  return {};
}

// Starts a job in every free slot. False when no jobs are left.
Result<bool> SaveWorker::feed() {
  for (auto& slot : slots_) {
    while (!slot.busy && !error_) {
      FF_TRY(auto next, shared_.planner.next(slot.memory.subspan(kHeadBytes, kChunkBytes)));
      if (!next.job) return next.more;
      slot.job = std::move(*next.job);
      slot.busy = true;
      busy_++;
      check(start(slot));
      queue_->poll();  // submits its write now, not after the digests of other slots
    }
  }
  return true;
}

void SaveWorker::check(Result<void> result) {
  if (!result && !error_) error_ = std::move(result).error();
}

Result<void> SaveWorker::start(Slot& slot) {
  const SaveJob& job = slot.job;
  slot.kept = true;
  slot.looked_up = false;
  if (job.length == 0 || job.hole) return finish_zeros(slot);
  if (job.filled) return fingerprint_and_go_on(slot);
  // Each piece needs its CRC, so the data must stay in memory.
  return read(slot, !expect_known_ || job.pieces.size() > 1);
}

Result<void> SaveWorker::read(Slot& slot, bool keep) {
  FF_TRY(const auto print, read_cached(slot, keep));
  if (print) return go_on(slot, *print);
  read_direct(slot);
  return {};
}

// Reads and fingerprints the job's bytes from the page cache; nothing when they are not cached.
// Bytes that are not kept go through a small window that fits the CPU cache, and need no CRC32C: a
// stored chunk has it in its head.
Result<std::optional<simd::Fingerprint>> SaveWorker::read_cached(Slot& slot, bool keep) {
  slot.kept = keep;
  slot.zero = true;
  for (uint64_t at = 0; at < slot.job.length; at += kWindowBytes) {
    const uint64_t length = std::min(kWindowBytes, slot.job.length - at);
    const ByteSpan into = keep ? data(slot).subspan(at, length) : ByteSpan(window_).first(length);
    FF_TRY(const bool there, slot.job.file->read_cached(into, slot.job.offset + at));
    if (!there) {
      print_.finish();  // reset them
      digest_.finish();
      return std::optional<simd::Fingerprint>();
    }
    slot.zero = slot.zero && simd::all_zero(into);
    keep ? print_.update(into) : digest_.update(into);
  }
  return std::optional(keep ? print_.finish() : simd::Fingerprint{.digest = digest_.finish()});
}

// Reads the aligned blocks around the range and moves the range to its position in the slot.
void SaveWorker::read_direct(Slot& slot) {
  const SaveJob& job = slot.job;
  const uint64_t unit = job.file->direct() ? io::kDirectAlign : 1;
  const uint64_t begin = align_down(job.offset, unit);
  const uint64_t end = align_up(job.offset + job.length, unit);
  const uint64_t skip = job.offset - begin;
  queue_->read(*job.file, slot.memory.subspan(kHeadBytes, end - begin), begin,
               [this, &slot, skip](Result<size_t> got) {
                 if (!got) return check(std::move(got).error());
                 if (*got < skip + slot.job.length) {
                   return check(fail(Errc::failed, "{}: the file became shorter while ff saved it",
                                     slot.job.file->path()));
                 }
                 std::byte* at = slot.memory.data() + kHeadBytes;
                 if (skip != 0) std::memmove(at, at + skip, slot.job.length);
                 slot.kept = true;
                 check(fingerprint_and_go_on(slot));
               });
}

Result<void> SaveWorker::fingerprint_and_go_on(Slot& slot) {
  slot.zero = simd::all_zero(data(slot));
  return go_on(slot, slot.zero ? simd::Fingerprint()
                               : simd::fingerprint(shared_.store.digest_kind(), data(slot)));
}

// Continues with the fingerprint: zeros are not stored, other data is stored once.
Result<void> SaveWorker::go_on(Slot& slot, const simd::Fingerprint& print) {
  if (slot.looked_up) {  // the second read, which keeps the data
    if (print.digest != slot.print.digest) {
      return fail(Errc::failed, "{}: the file changed while ff saved it", slot.job.file->path());
    }
    slot.print = print;
    return slot.known ? finish_known(slot) : write(slot);
  }
  if (slot.zero) return finish_zeros(slot);
  slot.print = print;
  slot.looked_up = true;
  {
    const std::lock_guard lock(shared_.mutex);
    slot.known = !shared_.seen.insert(print.digest).second;
  }
  if (!slot.known) return look_up(slot);
  return slot.kept ? finish_known(slot) : read(slot, true);
}

// Whether the store has the chunk with an intact head. Restores a chunk that a pruner has moved to
// the trash.
Result<void> SaveWorker::look_up(Slot& slot) {
  const std::string path = shared_.store.chunk_path(slot.print.digest);
  auto file = context_.disk.open(path, {.direct = true});
  if (!file && file.error().code == Errc::not_found && shared_.trash) {
    const auto restored = context_.disk.rename(shared_.store.trash_path(slot.print.digest), path);
    if (restored) file = context_.disk.open(path, {.direct = true});
  }
  if (!file) {
    if (file.error().code == Errc::not_found) return store(slot);
    return std::move(file).error();
  }
  slot.file = std::move(*file);
  // The head is read into the first block of the slot, which is free until write().
  queue_->read(*slot.file, slot.memory.first(kHeadBytes), 0, [this, &slot](Result<size_t> got) {
    if (!got) return check(std::move(got).error());
    check(check_head(slot, *got));
  });
  return {};
}

Result<void> SaveWorker::check_head(Slot& slot, size_t length) {
  FF_TRY(const auto info, slot.file->info());
  slot.file.reset();
  const auto head = decode_head(slot.memory.first(length));
  if (!head || head->digest != slot.print.digest || head->file_length() != info.size ||
      head->raw_length != slot.job.length || (slot.kept && head->raw_crc != slot.print.crc32c)) {
    return store(slot);  // damaged: it is written again
  }
  slot.print.crc32c = head->raw_crc;
  shared_.chunks_reused++;
  expect_known_ = true;
  return finish_known(slot);
}

Result<void> SaveWorker::store(Slot& slot) {
  if (shared_.wanted != nullptr && !shared_.wanted->contains(slot.print.digest)) {
    return finish_known(slot);
  }
  if (shared_.committed != nullptr) {
    FF_TRY(const bool named, shared_.committed->contains(slot.print.digest));
    if (!named) {
      shared_.differs = true;
      return fail(Errc::refused, "the inputs differ from the existing checkpoint");
    }
  }
  expect_known_ = false;
  return slot.kept ? write(slot) : read(slot, true);
}

Result<void> SaveWorker::write(Slot& slot) {
  ChunkHead head{.codec = Codec::raw,
                 .raw_length = slot.job.length,
                 .stored_length = slot.job.length,
                 .raw_crc = slot.print.crc32c,
                 .stored_crc = slot.print.crc32c,
                 .digest = slot.print.digest};
  slot.stored = stored_job(slot);  // before compression overwrites the data
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
  FF_TRY(slot.file,
         context_.disk.open(
             slot.unfinished,
             {.access = io::AccessMode::write, .create = true, .exclusive = true, .direct = true}));
  shared_.chunks_new++;
  shared_.bytes_written += length;
  queue_->write(*slot.file, slot.memory.first(length), 0, [this, &slot](Result<size_t> done) {
    if (!done) return check(std::move(done).error());
    written(slot);
  });
  return {};
}

void SaveWorker::written(Slot& slot) {
  unsynced_.push_back({.file = std::move(slot.file),
                       .path = std::move(slot.unfinished),
                       .job = std::move(slot.job),
                       .stored = std::move(slot.stored)});
  release(slot);
}

// Submits a full batch of syncs (or the `rest`) once the batch before it is done.
void SaveWorker::sync_chunks(bool rest) {
  if (!syncing_.empty() || (!rest && unsynced_.size() < kSyncBatch)) return;
  while (!unsynced_.empty() && syncing_.size() < kSyncBatch) {
    const auto chunk = unsynced_.begin();
    syncing_.splice(syncing_.end(), unsynced_, chunk);
    queue_->sync(*chunk->file, [this, chunk](Result<size_t> done) {
      if (!done) return check(std::move(done).error());
      check(put_in_place(*chunk));
      syncing_.erase(chunk);
    });
  }
}

Result<void> SaveWorker::put_in_place(Unsynced& chunk) {
  chunk.file.reset();
  FF_TRY(context_.disk.rename(chunk.path, shared_.store.chunk_path(*chunk.stored.chunk)));
  return shared_.recorder.done(std::move(chunk.job), std::move(chunk.stored));
}

// The index entry of a job whose data is in a chunk.
StoredJob SaveWorker::stored_job(const Slot& slot) const {
  StoredJob stored{.chunk = slot.print.digest, .crcs = {}};
  if (slot.job.pieces.size() == 1) {
    stored.crcs = {slot.print.crc32c};
    return stored;
  }
  ByteView rest = data(slot);
  for (const auto& piece : slot.job.pieces) {
    stored.crcs.push_back(simd::crc32c(rest.first(piece.length)));
    rest = rest.subspan(piece.length);
  }
  return stored;
}

Result<void> SaveWorker::finish_known(Slot& slot) { return finish(slot, stored_job(slot)); }

Result<void> SaveWorker::finish_zeros(Slot& slot) {
  shared_.zero_bytes += slot.job.length;
  return finish(slot, {});
}

Result<void> SaveWorker::finish(Slot& slot, StoredJob stored) {
  SaveJob job = std::move(slot.job);
  release(slot);
  return shared_.recorder.done(std::move(job), std::move(stored));
}

void SaveWorker::release(Slot& slot) {
  context_.progress.done += slot.job.length;
  slot.busy = false;
  busy_--;
}

}  // namespace ff::checkpoint
