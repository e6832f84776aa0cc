// turns.cc: a ring of turns; who raises `taken` has one.
#include "training/collective/turns.h"

#include "platform/base/check.h"

namespace ff::collective {

struct Turns::Memory {
  struct Slot {
    std::atomic<uint64_t> done;  // ticket + 1 of the last that was done here
    // Of the turn: for those who lose the race for it, and may see the next one's.
    std::atomic<uint64_t> number;
    Turn turn;
  };
  alignas(64) std::atomic<uint64_t> published;
  alignas(64) std::atomic<uint64_t> taken;
  std::atomic<uint64_t> finished;
  alignas(64) Slot slots[kTurns];
};

size_t Turns::bytes() { return sizeof(Memory); }

Turns::Turns(void* memory) : memory_(static_cast<Memory*>(memory)) {}

uint64_t Turns::publish(const Turn& turn) {
  const uint64_t ticket = memory_->published.load(std::memory_order_relaxed);
  Memory::Slot& slot = memory_->slots[ticket % kTurns];
  FF_CHECK(ticket < kTurns || done(ticket - kTurns));
  slot.turn = turn;
  slot.number.store(turn.number, std::memory_order_relaxed);
  memory_->published.store(ticket + 1, std::memory_order_release);
  return ticket;
}

bool Turns::done(uint64_t ticket) const {
  return memory_->slots[ticket % kTurns].done.load(std::memory_order_acquire) > ticket;
}

uint64_t Turns::finished() const { return memory_->finished.load(std::memory_order_acquire); }

uint64_t Turns::waiting() const {
  const uint64_t taken = memory_->taken.load(std::memory_order_relaxed);
  const uint64_t published = memory_->published.load(std::memory_order_acquire);
  return published > taken ? published - taken : 0;
}

std::optional<Turns::Taken> Turns::take(std::atomic<uint64_t>& works) {
  uint64_t ticket = memory_->taken.load(std::memory_order_relaxed);
  bool tried = false;
  while (ticket < memory_->published.load(std::memory_order_acquire)) {
    tried = true;
    const Memory::Slot& slot = memory_->slots[ticket % kTurns];
    works.store(slot.number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (!memory_->taken.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) {
      continue;
    }
    return Taken{.ticket = ticket, .turn = slot.turn};
  }
  if (tried) works.store(0, std::memory_order_relaxed);
  return std::nullopt;
}

void Turns::finish(uint64_t ticket) {
  memory_->finished.fetch_add(1, std::memory_order_acq_rel);
  memory_->slots[ticket % kTurns].done.store(ticket + 1, std::memory_order_release);
}

}  // namespace ff::collective
