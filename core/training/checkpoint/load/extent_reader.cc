// extent_reader.cc: reading and comparing extents.
#include "training/checkpoint/load/extent_reader.h"

#include <algorithm>
#include <cstring>

#include "platform/simd/crc32c.h"
#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/load/restore.h"

namespace ff::checkpoint {
namespace {

enum Slot : size_t { kFile, kUnpacked, kZeros, kSlots };

Result<bool> equal(ReaderPair readers, const ExtentPart& a, const ExtentPart& b) {
  if (same_stored_bytes(a, b)) return true;
  const bool both_known = a.whole() && b.whole() && a.extent->chunk && b.extent->chunk;
  if (both_known && a.extent->crc != b.extent->crc) return false;
  // Extents of zeros have any length, so compare them in steps that fit the buffers.
  for (uint64_t done = 0; done < a.length;) {
    const uint64_t step = std::min(a.length - done, kChunkBytes);
    FF_TRY(const auto left, readers.a.read({a.extent, a.from + done, step}));
    FF_TRY(const auto right, readers.b.read({b.extent, b.from + done, step}));
    if (std::memcmp(left.data(), right.data(), step) != 0) return false;
    done += step;
  }
  return true;
}

}  // namespace

ExtentPart ExtentCursor::take(uint64_t length) {
  const ExtentPart part{&extents_[at_], from_, length};
  FF_CHECK(length <= left());
  from_ += length;
  if (from_ == extents_[at_].length) {
    at_++;
    from_ = 0;
  }
  return part;
}

bool same_stored_bytes(const ExtentPart& a, const ExtentPart& b) {
  if (a.extent->chunk != b.extent->chunk) return false;
  return !a.extent->chunk || a.extent->offset + a.from == b.extent->offset + b.from;
}

Result<ExtentReader> ExtentReader::make(Context& context, const Store& store, StepName name) {
  FF_TRY(auto memory, io::Buffers::make(kSlots, kChunkFileMax));
  return ExtentReader(context, store, std::move(name), std::move(memory));
}

Result<void> ExtentReader::load(const simd::Digest& chunk) {
  if (chunk_ == chunk) return {};
  chunk_.reset();
  const auto damaged = [&](const std::string& reason) {
    return damaged_chunk(context_->disk, *store_, name_, chunk, reason);
  };
  FF_TRY(context_->stop.check());
  auto file = open_chunk_file(context_->disk, *store_, chunk, false);
  if (!file && file.error().code == Errc::corrupt) return damaged(file.error().message);
  if (!file) return std::move(file).error();
  FF_TRY(const size_t got, (*file)->read_at(memory_.slot(kFile), 0));
  const auto data =
      open_chunk(memory_.slot(kFile).first(got), chunk, memory_.slot(kUnpacked), false);
  if (!data) return damaged(data.error().message);
  data_ = *data;
  chunk_ = chunk;
  return {};
}

Result<ByteView> ExtentReader::read(const ExtentPart& part) {
  const ChunkExtent& extent = *part.extent;
  if (!extent.chunk) {
    FF_CHECK(part.length <= kChunkBytes);
    return ByteView(memory_.slot(kZeros)).first(part.length);  // fresh memory, never written
  }
  FF_TRY(load(*extent.chunk));
  if (extent.offset + part.from + part.length > data_.size()) {
    return damaged_chunk(context_->disk, *store_, name_, *extent.chunk,
                         "the index refers to bytes beyond its end");
  }
  const ByteView bytes = data_.subspan(extent.offset + part.from, part.length);
  if (part.whole() && simd::crc32c(bytes) != extent.crc) {
    return damaged_chunk(context_->disk, *store_, name_, *extent.chunk,
                         "its bytes do not match the CRC32C in the index");
  }
  return bytes;
}

Result<uint64_t> differing_bytes(ReaderPair readers, const std::vector<ChunkExtent>& a,
                                 const std::vector<ChunkExtent>& b) {
  uint64_t differing = 0;
  ExtentCursor left(a);
  ExtentCursor right(b);
  while (!left.ended() && !right.ended()) {
    const uint64_t length = std::min(left.left(), right.left());
    const ExtentPart part = left.take(length);
    FF_TRY(const bool same, equal(readers, part, right.take(length)));
    if (!same) differing += length;
  }
  for (ExtentCursor* rest : {&left, &right}) {
    while (!rest->ended()) differing += rest->take(rest->left()).length;
  }
  return differing;
}

}  // namespace ff::checkpoint
