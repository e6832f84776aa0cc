// update_plan.cc: the new length, the changed bytes, and where they are written.
#include "storage/chunk/update_plan.h"

#include <algorithm>

namespace ff::chunk {
namespace {

uint64_t units_of(uint64_t length, SizeClass size_class) {
  return align_up(length, checksum_unit_bytes(size_class)) / checksum_unit_bytes(size_class);
}

// Computes the new length and the range of new bytes.
Result<UpdatePlan> changed_range(const BaseVersion& base, const Update& update) {
  UpdatePlan plan;
  switch (update.type) {
    case UpdateType::write:
      if (update.offset > kChunkMax || update.data.size() > kChunkMax) {
        return fail(Errc::usage, "{} bytes at offset {} exceed the largest chunk",
                    update.data.size(), update.offset);
      }
      plan.length = base.length;
      if (update.data.empty()) break;
      plan.data_begin = std::min(update.offset, base.length);
      plan.data_end = update.offset + update.data.size();
      plan.length = std::max(base.length, plan.data_end);
      break;
    case UpdateType::replace: plan.length = plan.data_end = update.data.size(); break;
    case UpdateType::truncate:
      plan.length = update.length;
      plan.data_begin = std::min(base.length, update.length);
      plan.data_end = update.length;
      break;
    case UpdateType::remove: break;
    case UpdateType::punch_hole:
      return fail(Errc::usage, "punch_hole must be turned into write or remove first");
  }
  if (update.chunk_size == 0 || update.chunk_size > kChunkMax) {
    return fail(Errc::usage, "chunk size {}: must be 1 to {} bytes", update.chunk_size, kChunkMax);
  }
  if (plan.length > update.chunk_size) {
    return fail(Errc::usage, "{} bytes exceed the chunk size of {}", plan.length,
                update.chunk_size);
  }
  return plan;
}

// Plans the update within the block of the base. Returns false when the version must be rewritten
// to a new block.
bool keep_block(const BaseVersion& base, const Update& update, UpdatePlan& plan) {
  if (!base.size_class || update.type == UpdateType::replace) return false;
  if (plan.length > block_bytes(*base.size_class)) return false;
  plan.size_class = *base.size_class;
  const uint64_t unit_bytes = plan.unit_bytes();
  plan.first_unit = plan.data_begin / unit_bytes;
  plan.end_unit = units_of(plan.data_end, plan.size_class);
  const bool cut = plan.length < base.length;
  if (plan.data_begin == plan.data_end && (!cut || plan.length % unit_bytes == 0))
    plan.end_unit = plan.first_unit;
  if (plan.end_unit <= plan.first_unit) {
    plan.first_unit = plan.end_unit = 0;
    return true;
  }
  if (plan.first_unit == 0 && plan.end_unit * unit_bytes >= plan.length && base.length > 0)
    return false;
  plan.replaced_units =
      std::min(plan.end_unit, std::max(plan.first_unit, base.filled_units)) - plan.first_unit;
  plan.to_log = base.log_has_room && plan.replaced_units > 0 &&
                plan.data_end - plan.data_begin <= kLoggedUpdateMax &&
                plan.replaced_units * unit_bytes <= kLoggedUnitsMax;
  const uint64_t room = has_overlay(plan.size_class) ? kOverlaySlots - base.used_slots : 0;
  return plan.to_log || plan.replaced_units <= room;
}

SizeClass new_size_class(const BaseVersion& base, const Update& update, uint64_t length) {
  const bool fresh = !base.size_class || update.type == UpdateType::replace || length < base.length;
  if (fresh) return size_class_for(length);
  return length > block_bytes(*base.size_class) ? size_class_for(update.chunk_size)
                                                : *base.size_class;
}

}  // namespace

Result<UpdatePlan> plan_update(const BaseVersion& base, const Update& update) {
  FF_TRY(UpdatePlan plan, changed_range(base, update));
  if (plan.length == 0 || keep_block(base, update, plan)) return plan;
  plan.rewrite = true;
  plan.size_class = new_size_class(base, update, plan.length);
  plan.first_unit = 0;
  plan.end_unit = units_of(plan.length, plan.size_class);
  plan.replaced_units = 0;
  return plan;
}

}  // namespace ff::chunk
