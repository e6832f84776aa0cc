// verbs_bulk.cc: pushes and pulls as RDMA WRITEs and READs, with a limited number in flight.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>

#include "platform/net/verbs_queue_pair_work_request.h"

namespace ff::net {

Result<void> VerbsQueuePair::post_bulk(BulkSlot slot, const RemoteBuffer& buffer, uint64_t offset,
                                       ByteSpan local, uint32_t key) {
  const uint16_t index = free_slots_.back();
  ibv_sge place = {};
  place.addr = reinterpret_cast<uintptr_t>(local.data());
  place.length = static_cast<uint32_t>(local.size());
  place.lkey = key;
  ibv_send_wr work = {};
  work.wr_id = WorkRequestId{WorkRequestId::Kind::bulk, index}.id();
  work.sg_list = &place;
  work.num_sge = 1;
  work.opcode = slot.verb == BulkVerb::write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.wr.rdma.remote_addr = buffer.address + offset;
  work.wr.rdma.rkey = buffer.key;
  ibv_send_wr* bad = nullptr;
  const int err = ::ibv_post_send(pair_.get(), &work, &bad);
  if (err != 0) return errno_error(err, device_.name() + ": RDMA");
  free_slots_.pop_back();
  slot.transfer->begin();
  slots_[index] = std::move(slot);
  return {};
}

void VerbsQueuePair::complete_slot(uint16_t index, bool well) {
  if (slots_[index].transfer == nullptr) return;
  const BulkSlot slot = std::exchange(slots_[index], BulkSlot());
  free_slots_.push_back(index);
  slot.transfer->end(well);
}

Task<Result<void>> VerbsQueuePair::transfer(BulkVerb verb, RemoteBuffer buffer, uint64_t offset,
                                            ByteSpan local) {
  if (local.empty()) co_return Result<void>();
  const std::shared_ptr<VerbsQueuePair> self = shared_from_this();
  const auto use = verb == BulkVerb::write ? VerbsRegistrationCache::Use::send
                                           : VerbsRegistrationCache::Use::receive;
  FF_CO_TRY(const auto hold, device_.registrations().acquire(local, use));
  Semaphore& room = verb == BulkVerb::write ? writes_ : *reads_;
  const size_t most = std::min(kBulkBytes, device_.port().message_max);
  Transfer transfer(*this);
  Result<void> end;
  while (end.ok() && !local.empty()) {
    auto unit = co_await room.acquire(1);
    if (!unit) {
      end = std::move(unit).error();
    } else if (pair_ == nullptr || closed_) {
      end = closed_error();
    } else {
      const ByteSpan part = local.first(std::min(local.size(), most));
      BulkSlot slot{&transfer, verb, std::move(*unit)};
      end = post_bulk(std::move(slot), buffer, offset, part, hold.local_key());
      local = local.subspan(part.size());
      offset += part.size();
    }
  }
  // The device uses the memory until then, even if this task is cancelled.
  co_await transfer.wait_idle().shielded();
  if (end.ok() && transfer.broken()) co_return closed_error();
  co_return end;
}

}  // namespace ff::net
