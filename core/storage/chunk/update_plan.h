// Decides where an update is written, from lengths alone, so that it can be tested without a disk.
//
// A version that changes little keeps the block of its predecessor: units behind all units ever
// written go in place. If few other units change, their data goes to the log of the metadata, with
// the row that references it; a background pass moves it to the block (chunk_store_log.cc). More
// units, or those for which the log has no room, go to overlay slots. A version that changes much,
// outgrows its block or finds no free slots gets a new block.
#pragma once

#include <cstdint>
#include <optional>

#include "platform/base/result.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/layout.h"

namespace ff::chunk {

// The relevant properties of the version before the update.
struct BaseVersion {
  uint64_t length = 0;                       // 0 when absent or removed
  std::optional<SizeClass> size_class = {};  // of its block
  uint64_t filled_units = 0;                 // units of the block written so far, from the first on
  uint64_t used_slots = 0;                   // overlay slots in use
  bool log_has_room = false;
};

// Largest data of an update that goes to the log, and largest size of its units.
constexpr uint64_t kLoggedUpdateMax = 32 * kKiB;
constexpr uint64_t kLoggedUnitsMax = 64 * kKiB;

struct UpdatePlan {
  uint64_t length = 0;  // length of the new version
  // Bytes [data_begin, data_end) of the new version are new: data of the update, or zeros.
  uint64_t data_begin = 0;
  uint64_t data_end = 0;

  SizeClass size_class = 0;  // of the block, when the length is not 0
  bool rewrite = false;      // writes all of it to a new block
  uint64_t first_unit = 0;   // units [first_unit, end_unit) are written
  uint64_t end_unit = 0;
  // So many of them, the first ones, have older data in the block: they go to the log, or else to
  // overlay slots, from BaseVersion::used_slots on.
  uint64_t replaced_units = 0;
  bool to_log = false;

  uint64_t unit_bytes() const { return checksum_unit_bytes(size_class); }
  // Byte range of the written units, cut at the end of the chunk.
  uint64_t begin_byte() const { return first_unit * unit_bytes(); }
  uint64_t end_byte() const { return std::min(end_unit * unit_bytes(), length); }
};

// Errors: usage (the chunk would exceed chunk_size, or chunk_size is not in 1..kChunkMax).
Result<UpdatePlan> plan_update(const BaseVersion& base, const Update& update);

}  // namespace ff::chunk
