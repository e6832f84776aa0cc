// work_queue.cc: a ring of items; a thread that increments `claimed` owns that item.
#include "training/collective/work_queue.h"

#include "platform/base/check.h"

namespace ff::collective {

struct WorkQueue::Memory {
  struct Slot {
    std::atomic<uint64_t> finished;  // ticket + 1 of the last item that was finished here
    // Of the item, for threads that read it before they lose the race to claim it.
    std::atomic<uint64_t> number;
    WorkItem item;
  };
  alignas(64) std::atomic<uint64_t> pushed;
  alignas(64) std::atomic<uint64_t> claimed;
  std::atomic<uint64_t> finished;
  alignas(64) Slot slots[kWorkItemsMax];
};

size_t WorkQueue::bytes() { return sizeof(Memory); }

WorkQueue::WorkQueue(void* memory) : memory_(static_cast<Memory*>(memory)) {}

bool WorkQueue::has_room() const {
  const uint64_t ticket = memory_->pushed.load(std::memory_order_relaxed);
  return ticket < kWorkItemsMax || is_finished(ticket - kWorkItemsMax);
}

uint64_t WorkQueue::push(const WorkItem& item) {
  const uint64_t ticket = memory_->pushed.load(std::memory_order_relaxed);
  Memory::Slot& slot = memory_->slots[ticket % kWorkItemsMax];
  FF_CHECK(has_room());
  slot.item = item;
  slot.number.store(item.number, std::memory_order_relaxed);
  memory_->pushed.store(ticket + 1, std::memory_order_release);
  return ticket;
}

bool WorkQueue::is_finished(uint64_t ticket) const {
  const Memory::Slot& slot = memory_->slots[ticket % kWorkItemsMax];
  return slot.finished.load(std::memory_order_acquire) > ticket;
}

uint64_t WorkQueue::finished() const { return memory_->finished.load(std::memory_order_acquire); }

uint64_t WorkQueue::waiting() const {
  const uint64_t claimed = memory_->claimed.load(std::memory_order_relaxed);
  const uint64_t pushed = memory_->pushed.load(std::memory_order_acquire);
  return pushed > claimed ? pushed - claimed : 0;
}

std::optional<WorkQueue::Claimed> WorkQueue::claim(std::atomic<uint64_t>& current) {
  uint64_t ticket = memory_->claimed.load(std::memory_order_relaxed);
  bool tried = false;
  while (ticket < memory_->pushed.load(std::memory_order_acquire)) {
    tried = true;
    const Memory::Slot& slot = memory_->slots[ticket % kWorkItemsMax];
    current.store(slot.number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (!memory_->claimed.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
      continue;
    }
    return Claimed{.ticket = ticket, .item = slot.item};
  }
  if (tried) current.store(0, std::memory_order_relaxed);
  return std::nullopt;
}

void WorkQueue::finish(uint64_t ticket) {
  memory_->finished.fetch_add(1, std::memory_order_acq_rel);
  Memory::Slot& slot = memory_->slots[ticket % kWorkItemsMax];
  slot.finished.store(ticket + 1, std::memory_order_release);
}

}  // namespace ff::collective
