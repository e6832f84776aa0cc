// The bytes behind extents, read in order into memory, all checks made; and what two lists of
// extents have in common. For comparing (diff, copies of a tensor on several ranks) and headers;
// bulk restores go through read_worker.h. One thread.
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
  const Extent* extent = nullptr;
  uint64_t from = 0;  // in the extent
  uint64_t length = 0;
  bool whole() const { return length == extent->length; }
};

// Walks extents front to back.
class ExtentCursor {
 public:
  explicit ExtentCursor(const std::vector<Extent>& extents) : extents_(extents) {}
  bool ended() const { return at_ == extents_.size(); }
  // Bytes left in the extent at hand.
  uint64_t left() const { return extents_[at_].length - from_; }
  // The next `length` bytes, at most left().
  ExtentPart take(uint64_t length);

 private:
  const std::vector<Extent>& extents_;
  size_t at_ = 0;
  uint64_t from_ = 0;
};

// Whether two parts of one length are the same bytes by their places alone.
bool same_place(const ExtentPart& a, const ExtentPart& b);

// Reads parts of one checkpoint; keeps the chunk read last.
class ExtentReader {
 public:
  // `name` is for messages.
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
  io::Buffers memory_;  // the chunk's file; room to unpack; zeros
  std::optional<simd::Digest> chunk_;
  ByteView data_;  // of chunk_
};

struct ReaderPair {
  ExtentReader& a;
  ExtentReader& b;
};

// How many of the bytes lie in parts that differ: equal chunks need no look, different CRC32Cs
// prove a difference, and what is left is read. Lists of different length differ in the rest, too.
Result<uint64_t> differing_bytes(ReaderPair readers, const std::vector<Extent>& a,
                                 const std::vector<Extent>& b);

}  // namespace ff::checkpoint
