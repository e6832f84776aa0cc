// Reads the bytes of extents in order into memory, with all checks, and compares two lists of
// extents. For diff, for copies of a tensor on several ranks, and for headers; bulk restores use
// read_worker.h. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/io/buffers.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// A part of one extent.
struct ExtentPart {
  const ChunkExtent* extent = nullptr;
  uint64_t from = 0;  // in the extent
  uint64_t length = 0;
  bool whole() const { return length == extent->length; }
};

// Walks extents front to back.
class ExtentCursor {
 public:
  explicit ExtentCursor(const std::vector<ChunkExtent>& extents) : extents_(extents) {}
  bool ended() const { return at_ == extents_.size(); }
  // Bytes left in the current extent.
  uint64_t left() const { return extents_[at_].length - from_; }
  bool in_zeros() const { return !extents_[at_].chunk; }
  // The next `length` bytes, at most left().
  ExtentPart take(uint64_t length);

 private:
  const std::vector<ChunkExtent>& extents_;
  size_t at_ = 0;
  uint64_t from_ = 0;
};

// Whether two parts of one length refer to the same stored bytes.
bool same_stored_bytes(const ExtentPart& a, const ExtentPart& b);

// Reads parts of one checkpoint; caches the last chunk.
class ExtentReader {
 public:
  // `name` is for error messages.
  static Result<ExtentReader> make(Context& context, const Store& store, StepName name);
  // The bytes of a part, valid until the next call. Errc::corrupt names chunk, tensors and files.
  Result<ByteView> read(const ExtentPart& part);

 private:
  ExtentReader(Context& context, const Store& store, StepName name, io::Buffers memory)
      : context_(&context), store_(&store), name_(std::move(name)), memory_(std::move(memory)) {}
  Result<void> load(const simd::Digest& chunk);

  Context* context_;
  const Store* store_;
  StepName name_;
  io::Buffers memory_;  // the chunk's file; decompressed data; zeros
  std::optional<simd::Digest> chunk_;
  ByteView data_;  // of chunk_
};

struct ReaderPair {
  ExtentReader& a;
  ExtentReader& b;
};

// The number of bytes in parts that differ. Equal chunks are not read, different CRC32Cs prove a
// difference, the rest is read and compared. The excess of a longer list counts as different.
Result<uint64_t> differing_bytes(ReaderPair readers, const std::vector<ChunkExtent>& a,
                                 const std::vector<ChunkExtent>& b);

}  // namespace ff::checkpoint
