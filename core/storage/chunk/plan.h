// What an update writes where: decided from lengths alone, so that it can be tested without a disk.
//
// A version that changes little keeps its predecessor's block: granules behind all that were ever
// written go in place, others to slots of a second block. One that changes much, outgrows its block
// or finds no slots gets a block of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "platform/base/result.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/layout.h"

namespace ff::chunk {

// The version that the update follows, as far as it matters.
struct Base {
  uint64_t length = 0;           // 0 when there is none, or it is removed
  std::optional<Class> of = {};  // of its block, which has
  uint64_t filled = 0;           // this many granules written, from the first on
  uint64_t slots = 0;            // used in its second block
};

struct Plan {
  uint64_t length = 0;  // of the new version
  // Its bytes [from, to) are new: the update's data, zeros where that has none.
  uint64_t from = 0;
  uint64_t to = 0;

  Class of = 0;        // of its block, when the length is not 0
  bool whole = false;  // it gets a new block, all of it is written
  uint64_t first = 0;  // granules [first, end) are written
  uint64_t end = 0;
  uint64_t slots = 0;  // the first ones of them go to slots, from Base::slots on

  uint64_t granule() const { return granule_bytes(of); }
  // The bytes of the written granules, without what lies behind the chunk's end.
  uint64_t begin_byte() const { return first * granule(); }
  uint64_t end_byte() const { return std::min(end * granule(), length); }
};

// Errors: usage when the chunk would be longer than the update's chunk_size, or that is not
// between 1 and kChunkMax.
Result<Plan> plan_update(const Base& base, const Update& update);

}  // namespace ff::chunk
