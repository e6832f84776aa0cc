// plan.cc: lengths, then the bytes that change, then where they go.
#include "storage/chunk/plan.h"

#include <algorithm>

namespace ff::chunk {
namespace {

uint64_t granules_of(uint64_t length, Class of) {
  return align_up(length, granule_bytes(of)) / granule_bytes(of);
}

// The new length and the new bytes.
Result<Plan> extent(const Base& base, const Update& update) {
  Plan plan;
  switch (update.change) {
    case Change::write:
      if (update.offset > kChunkMax || update.data.size() > kChunkMax) {
        return fail(Errc::usage, "{} bytes at {} do not fit into any chunk", update.data.size(),
                    update.offset);
      }
      plan.length = base.length;
      if (update.data.empty()) break;
      plan.from = std::min(update.offset, base.length);
      plan.to = update.offset + update.data.size();
      plan.length = std::max(base.length, plan.to);
      break;
    case Change::replace: plan.length = plan.to = update.data.size(); break;
    case Change::resize:
      plan.length = update.length;
      plan.from = std::min(base.length, update.length);
      plan.to = update.length;
      break;
    case Change::remove: break;
    case Change::clear: return fail(Errc::usage, "what a clear makes of a chunk is not decided");
  }
  if (update.chunk_size == 0 || update.chunk_size > kChunkMax) {
    return fail(Errc::usage, "a chunk size of {} bytes: 1 to {}", update.chunk_size, kChunkMax);
  }
  if (plan.length > update.chunk_size) {
    return fail(Errc::usage, "{} bytes in a chunk of {}", plan.length, update.chunk_size);
  }
  return plan;
}

// Tries to keep the base's block. False when it must be written anew.
bool keep_block(const Base& base, const Update& update, Plan& plan) {
  if (!base.of || update.change == Change::replace) return false;
  if (plan.length > block_bytes(*base.of)) return false;
  plan.of = *base.of;
  const uint64_t granule = plan.granule();
  plan.first = plan.from / granule;
  plan.end = granules_of(plan.to, plan.of);
  const bool cut = plan.length < base.length;
  if (plan.from == plan.to && (!cut || plan.length % granule == 0)) plan.end = plan.first;
  if (plan.end <= plan.first) {
    plan.first = plan.end = 0;
    return true;
  }
  if (plan.first == 0 && plan.end * granule >= plan.length && base.length > 0) return false;
  plan.slots = std::min(plan.end, std::max(plan.first, base.filled)) - plan.first;
  const uint64_t room = has_pieces(plan.of) ? kPieces - base.slots : 0;
  return plan.slots <= room;
}

Class class_of_new(const Base& base, const Update& update, uint64_t length) {
  const bool fresh = !base.of || update.change == Change::replace || length < base.length;
  if (fresh) return class_for(length);
  return length > block_bytes(*base.of) ? class_for(update.chunk_size) : *base.of;
}

}  // namespace

Result<Plan> plan_update(const Base& base, const Update& update) {
  FF_TRY(Plan plan, extent(base, update));
  if (plan.length == 0 || keep_block(base, update, plan)) return plan;
  plan.whole = true;
  plan.of = class_of_new(base, update, plan.length);
  plan.first = 0;
  plan.end = granules_of(plan.length, plan.of);
  plan.slots = 0;
  return plan;
}

}  // namespace ff::chunk
