// operation_table.cc: counters in shared memory.
#include "training/collective/operation_table.h"

#include <algorithm>

#include "platform/base/check.h"
#include "training/collective/piece.h"

namespace ff::collective {

namespace {

constexpr uint64_t kTableMagic = 0x3531445242464646;  // "FFFBRD15"

uint64_t tagged(uint64_t number, uint64_t pieces) { return number << 32 | pieces; }

}  // namespace

size_t OperationTable::bytes() {
  return align_up(sizeof(Header), alignof(Slot)) + kInflightMax * sizeof(Slot) +
         WorkQueue::bytes() + align_up(MessageTable::bytes(), alignof(Slot)) + VoteTable::bytes();
}

OperationTable::OperationTable(ByteSpan memory) {
  FF_CHECK(memory.size() >= bytes());
  FF_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % alignof(Slot) == 0);
  header_ = reinterpret_cast<Header*>(memory.data());
  slots_ = reinterpret_cast<Slot*>(memory.data() + align_up(sizeof(Header), alignof(Slot)));
}

OperationTable OperationTable::make(ByteSpan memory, const Shape& shape) {
  FF_CHECK(shape.ranks > 0 && shape.ranks <= kHostRanksMax);
  OperationTable table(memory);
  table.header_->magic = kTableMagic;
  table.header_->ranks = shape.ranks;
  table.header_->has_peers = shape.has_peers;
  return table;
}

Result<OperationTable> OperationTable::open(ByteSpan memory, const Shape& shape) {
  if (memory.size() < bytes()) return fail(Errc::corrupt, "the ranks' shared memory is too small");
  OperationTable table(memory);
  if (table.header_->magic != kTableMagic) {
    return fail(Errc::corrupt, "another version of ff made the ranks' shared memory");
  }
  if (table.header_->ranks != shape.ranks) {
    return fail(Errc::corrupt, "the ranks' shared memory was made for {} ranks, not {}",
                table.header_->ranks, shape.ranks);
  }
  if ((table.header_->has_peers != 0) != shape.has_peers) {
    return fail(Errc::usage, "the ranks of this host were started with different world sizes");
  }
  return table;
}

bool OperationTable::post(uint32_t rank, uint64_t number, const CollectiveRequest& request) {
  Slot& one = slot(number);
  one.requests[rank] = request;
  header_->rank[rank].posted.store(number + 1, std::memory_order_release);
  const uint64_t arrived = one.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  const bool is_last = arrived == (number / kInflightMax + 1) * ranks();
  if (is_last) begin(number);
  return is_last;
}

// Called by the last rank to post.
void OperationTable::begin(uint64_t number) {
  Slot& one = slot(number);
  one.mismatched_rank = 0;
  for (uint32_t rank = 1; rank < ranks() && one.mismatched_rank == 0; rank++) {
    if (agree(one.requests[rank], one.requests[0])) continue;
    one.mismatched_rank = rank + 1;
    one.mismatched = one.requests[rank];
    one.expected = one.requests[0];
  }
  const CollectiveRequest& first = one.requests[0];
  const bool has_peers = header_->has_peers != 0;
  const bool none = one.mismatched_rank != 0 || has_peers;
  one.pieces = none ? 0 : piece_count(first, ranks(), piece_elements(first));
  FF_CHECK(one.pieces <= UINT32_MAX);
  one.unfinished.store(one.pieces, std::memory_order_relaxed);
  one.unclaimed.store(tagged(number, one.pieces), std::memory_order_release);
  one.ready.store(number + 1, std::memory_order_release);
  if (has_peers) return;
  if (one.pieces == 0) return complete(number);
  wake(Futex::work);
}

void OperationTable::complete(uint64_t number) {
  slot(number).completed.store(number + 1, std::memory_order_release);
  wake(Futex::done);
}

WorkQueue OperationTable::work_queue() const { return WorkQueue(slots_ + kInflightMax); }

MessageTable OperationTable::messages() const {
  return MessageTable(reinterpret_cast<std::byte*>(slots_ + kInflightMax) + WorkQueue::bytes(),
                      [table = *this] { return table.has_failed(); });
}

VoteTable OperationTable::votes() const {
  return VoteTable(reinterpret_cast<std::byte*>(slots_ + kInflightMax) + WorkQueue::bytes() +
                   align_up(MessageTable::bytes(), alignof(Slot)));
}

std::optional<WorkQueue::Claimed> OperationTable::claim_work(Worker worker) {
  return work_queue().claim(header_->rank[worker.rank].current[worker.thread]);
}

void OperationTable::finish_work(Worker worker, uint64_t ticket) {
  work_queue().finish(ticket);
  header_->rank[worker.rank].current[worker.thread].store(0, std::memory_order_release);
}

uint64_t OperationTable::posted(uint32_t rank) const {
  return header_->rank[rank].posted.load(std::memory_order_acquire);
}
bool OperationTable::is_ready(uint64_t number) const {
  return slot(number).ready.load(std::memory_order_acquire) > number;
}
bool OperationTable::is_complete(uint64_t number) const {
  const Slot& one = slot(number);
  if (one.completed.load(std::memory_order_acquire) <= number) return false;
  // The writes of other threads happened before the completion. ThreadSanitizer follows one process
  // only, so these loads show it the order between threads of this one.
  (void)one.unfinished.load(std::memory_order_acquire);
  (void)work_queue().finished();
  return true;
}

std::optional<uint64_t> OperationTable::claim_piece(Worker worker, uint64_t number) {
  Slot& one = slot(number);
  auto& current = header_->rank[worker.rank].current[worker.thread];
  uint64_t unclaimed = one.unclaimed.load(std::memory_order_acquire);
  bool tried = false;
  // Another number: this operation is complete, and the slot serves a later one.
  while (unclaimed > tagged(number, 0) && unclaimed <= tagged(number, UINT32_MAX)) {
    tried = true;
    current.store(number + 1, std::memory_order_relaxed);  // before: a rank that stops here is seen
    if (one.unclaimed.compare_exchange_weak(unclaimed, unclaimed - 1, std::memory_order_acq_rel)) {
      return one.pieces - (unclaimed - tagged(number, 0));
    }
  }
  if (tried) current.store(0, std::memory_order_relaxed);
  return std::nullopt;
}

void OperationTable::finish_piece(Worker worker, uint64_t number) {
  if (slot(number).unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) complete(number);
  header_->rank[worker.rank].current[worker.thread].store(0, std::memory_order_release);
}

const CollectiveRequest& OperationTable::request(uint64_t number, uint32_t rank) const {
  (void)posted(rank);  // as in is_complete()
  return slot(number).requests[rank];
}

std::optional<OperationTable::Mismatch> OperationTable::mismatch(uint64_t number) const {
  const Slot& one = slot(number);
  if (one.mismatched_rank == 0) return std::nullopt;
  return Mismatch{
      .rank = one.mismatched_rank - 1, .posted = one.mismatched, .expected = one.expected};
}

std::optional<uint32_t> OperationTable::find_worker(uint64_t number) const {
  for (uint32_t rank = 0; rank < ranks(); rank++) {
    for (const auto& current : header_->rank[rank].current) {
      if (current.load(std::memory_order_relaxed) == number + 1) return rank;
    }
  }
  return std::nullopt;
}

uint64_t OperationTable::current_operation(uint32_t rank) const {
  uint64_t latest = 0;
  for (const auto& current : header_->rank[rank].current) {
    latest = std::max(latest, current.load(std::memory_order_relaxed));
  }
  return latest;
}

OperationTable::WorkMarks OperationTable::reassign_work(uint32_t from, uint32_t to) {
  WorkMarks marks = {};
  for (size_t i = 0; i < marks.size(); i++) {
    marks[i] = header_->rank[from].current[i].exchange(0, std::memory_order_relaxed);
    if (marks[i] != 0) header_->rank[to].current[i].store(marks[i], std::memory_order_relaxed);
  }
  return marks;
}

void OperationTable::restore_work(uint32_t from, uint32_t to, const WorkMarks& marks) {
  for (size_t i = 0; i < marks.size(); i++) {
    uint64_t mark = marks[i];
    if (mark == 0) continue;
    header_->rank[to].current[i].compare_exchange_strong(mark, 0, std::memory_order_relaxed);
    header_->rank[from].current[i].store(marks[i], std::memory_order_relaxed);
  }
}

void OperationTable::set_failed_rank(FailedRank failed) {
  uint32_t none = 0;
  const uint32_t word = (failed.rank + 1) | (failed.timed_out ? kTimedOut : 0);
  if (!header_->failed_rank.compare_exchange_strong(none, word)) return;
  wake(Futex::work);
  wake(Futex::done);
}

bool OperationTable::has_failed() const {
  return header_->failed_rank.load(std::memory_order_acquire) != 0 ||
         header_->error_state.load(std::memory_order_acquire) == 2;
}

std::optional<OperationTable::FailedRank> OperationTable::failed_rank() const {
  const uint32_t word = header_->failed_rank.load(std::memory_order_acquire);
  if (word == 0) return std::nullopt;
  return FailedRank{.rank = (word & ~kTimedOut) - 1, .timed_out = (word & kTimedOut) != 0};
}

void OperationTable::set_async_error(const Error& error) {
  uint32_t none = 0;
  if (!header_->error_state.compare_exchange_strong(none, 1)) return;
  header_->error_code = static_cast<uint32_t>(error.code);
  error.message.copy(header_->error_text, kErrorTextBytes - 1);
  header_->error_state.store(2, std::memory_order_release);
  wake(Futex::work);
  wake(Futex::done);
}

std::optional<Error> OperationTable::async_error() const {
  if (header_->error_state.load(std::memory_order_acquire) != 2) return std::nullopt;
  return Error{static_cast<Errc>(header_->error_code), header_->error_text, {}};
}

void OperationTable::request_straggler_check(uint64_t number) {
  uint64_t asked = header_->straggler_check.load(std::memory_order_relaxed);
  while (asked < number + 1 && !header_->straggler_check.compare_exchange_weak(asked, number + 1)) {
  }
}
std::optional<uint64_t> OperationTable::straggler_check() const {
  const uint64_t asked = header_->straggler_check.load(std::memory_order_acquire);
  return asked != 0 ? std::optional(asked - 1) : std::nullopt;
}

void OperationTable::request_message_check(uint32_t peer) {
  header_->message_check.store(peer + 1, std::memory_order_release);
}
std::optional<uint32_t> OperationTable::take_message_check() {
  const uint32_t peer = header_->message_check.exchange(0, std::memory_order_acq_rel);
  return peer != 0 ? std::optional(peer - 1) : std::nullopt;
}

void OperationTable::set_world_table(const SharedAddress& address, uint64_t bytes) {
  header_->world_table = address;
  header_->world_table_bytes.store(bytes, std::memory_order_release);
  wake(Futex::done);
}
std::optional<std::pair<SharedAddress, uint64_t>> OperationTable::world_table() const {
  const uint64_t bytes = header_->world_table_bytes.load(std::memory_order_acquire);
  if (bytes == 0) return std::nullopt;
  return std::pair(header_->world_table, bytes);
}

void OperationTable::set_departed(uint32_t rank) {
  header_->rank[rank].departed.store(1, std::memory_order_release);
  wake(Futex::done);
}

bool OperationTable::has_departed(uint32_t rank) const {
  return header_->rank[rank].departed.load(std::memory_order_acquire) != 0;
}

void OperationTable::set_relay_closed() {
  header_->relay_closed.store(1, std::memory_order_release);
}
bool OperationTable::is_relay_closed() const {
  return header_->relay_closed.load(std::memory_order_acquire) != 0;
}

bool OperationTable::wait(Futex futex, Clock& clock, int64_t until_ns,
                          const std::function<bool()>& until) const {
  return header_->futexes[static_cast<size_t>(futex)].wait(clock, until_ns, until);
}

void OperationTable::wake(Futex futex, int waiters) const {
  header_->futexes[static_cast<size_t>(futex)].wake(waiters);
}

}  // namespace ff::collective
