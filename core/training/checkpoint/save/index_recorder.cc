// index_recorder.cc: finished jobs in any order, index lines in order.
#include "training/checkpoint/save/index_recorder.h"

namespace ff::checkpoint {
namespace {

// Adds one piece; neighbouring zeros become one extent.
void append_extent(std::vector<ChunkExtent>& extents, ChunkExtent extent) {
  if (extent.length == 0) return;
  if (!extent.chunk && !extents.empty() && !extents.back().chunk) {
    extents.back().length += extent.length;
    return;
  }
  extents.push_back(std::move(extent));
}

}  // namespace

Result<void> IndexRecorder::done(SaveJob job, StoredJob stored) {
  const std::lock_guard lock(mutex_);
  job.file.reset();  // its data is stored; let the file close
  if (job.sequence != next_) {
    early_.emplace(job.sequence, std::pair(std::move(job), std::move(stored)));
    return {};
  }
  FF_TRY(write(job, stored));
  next_++;
  for (auto it = early_.begin(); it != early_.end() && it->first == next_; next_++) {
    FF_TRY(write(it->second.first, it->second.second));
    it = early_.erase(it);
  }
  return {};
}

Result<void> IndexRecorder::write(SaveJob& job, const StoredJob& stored) {
  uint32_t offset = 0;
  for (size_t i = 0; i < job.pieces.size(); i++) {
    SavePiece& piece = job.pieces[i];
    if (piece.starts) {
      FF_CHECK(!open_);
      open_ = std::move(piece.starts);
    }
    FF_CHECK(open_.has_value());
    ChunkExtent extent{.chunk = stored.chunk,
                       .offset = stored.chunk ? offset : 0,
                       .length = piece.length,
                       .crc = stored.chunk ? stored.crcs.at(i) : 0};
    std::visit([&](auto& record) { append_extent(record.extents, std::move(extent)); }, *open_);
    offset += static_cast<uint32_t>(job.hole ? 0 : piece.length);
    if (piece.ends) FF_TRY(close_record());
  }
  return {};
}

Result<void> IndexRecorder::close_record() {
  if (auto* file = std::get_if<FileRecord>(&*open_)) {
    if (file->kind == EntryKind::opaque) {  // a stream's size is known only now
      file->size = 0;
      for (const auto& extent : file->extents) file->size += extent.length;
    }
    report_.files++;
    report_.bytes += file->size;
    FF_TRY(writer_.add(*file));
  } else {
    report_.tensors++;
    FF_TRY(writer_.add(std::get<TensorRecord>(*open_)));
  }
  open_.reset();
  return {};
}

Result<EndRecord> IndexRecorder::finish() {
  FF_CHECK(early_.empty() && !open_);
  return writer_.finish();
}

}  // namespace ff::checkpoint
