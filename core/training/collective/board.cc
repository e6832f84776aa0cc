// board.cc: counters in shared memory, and sleeping on them.
#include "training/collective/board.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "platform/base/check.h"
#include "training/collective/plan.h"

namespace ff::collective {

namespace {

constexpr uint64_t kBoardMagic = 0x3231445242464646;  // "FFFBRD12"
// Longer than a rank that runs takes to finish a piece; shorter than waking it up costs twice.
constexpr int64_t kSpinNs = 10'000;

uint64_t tagged(uint64_t number, uint64_t pieces) { return number << 32 | pieces; }

}  // namespace

size_t Board::bytes() {
  return align_up(sizeof(Header), alignof(Job)) + kJobs * sizeof(Job) + Turns::bytes();
}

Board::Board(ByteSpan memory) {
  FF_CHECK(memory.size() >= bytes());
  FF_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % alignof(Job) == 0);
  header_ = reinterpret_cast<Header*>(memory.data());
  jobs_ = reinterpret_cast<Job*>(memory.data() + align_up(sizeof(Header), alignof(Job)));
}

Board Board::make(ByteSpan memory, const Shape& shape) {
  FF_CHECK(shape.ranks > 0 && shape.ranks <= kHostRanksMax);
  Board board(memory);
  board.header_->magic = kBoardMagic;
  board.header_->ranks = shape.ranks;
  board.header_->has_neighbours = shape.has_neighbours;
  return board;
}

Result<Board> Board::open(ByteSpan memory, const Shape& shape) {
  if (memory.size() < bytes()) return fail(Errc::corrupt, "the ranks' shared memory is too small");
  Board board(memory);
  if (board.header_->magic != kBoardMagic) {
    return fail(Errc::corrupt, "the ranks' shared memory is of another version of ff");
  }
  if (board.header_->ranks != shape.ranks) {
    return fail(Errc::corrupt, "the ranks' shared memory is of {} ranks, not {}",
                board.header_->ranks, shape.ranks);
  }
  if ((board.header_->has_neighbours != 0) != shape.has_neighbours) {
    return fail(Errc::usage, "the ranks of this host do not agree on how many the job has");
  }
  return board;
}

bool Board::post(uint32_t rank, uint64_t number, const Request& request) {
  Job& one = job(number);
  one.requests[rank] = request;
  header_->rank[rank].posted.store(number + 1, std::memory_order_release);
  const uint64_t arrived = one.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  const bool is_last = arrived == (number / kJobs + 1) * ranks();
  if (is_last) begin(number);
  return is_last;
}

// By the last one to post.
void Board::begin(uint64_t number) {
  Job& one = job(number);
  one.disagrees = 0;
  for (uint32_t rank = 1; rank < ranks() && one.disagrees == 0; rank++) {
    if (agree(one.requests[rank], one.requests[0])) continue;
    one.disagrees = rank + 1;
    one.asked = one.requests[rank];
    one.first = one.requests[0];
  }
  const Request& first = one.requests[0];
  const bool waits = header_->has_neighbours != 0;
  const bool none = one.disagrees != 0 || waits;
  one.pieces = none ? 0 : pieces_of(first, ranks(), piece_elements(first));
  FF_CHECK(one.pieces <= UINT32_MAX);
  one.left.store(one.pieces, std::memory_order_relaxed);
  one.remaining.store(tagged(number, one.pieces), std::memory_order_release);
  one.ready.store(number + 1, std::memory_order_release);
  if (waits) return;
  if (one.pieces == 0) return end(number);
  ring(Bell::work);
}

void Board::end(uint64_t number) {
  job(number).ended.store(number + 1, std::memory_order_release);
  ring(Bell::done);
}

Turns Board::turns() const { return Turns(jobs_ + kJobs); }

std::optional<Turns::Taken> Board::take_turn(Worker worker) {
  return turns().take(header_->rank[worker.rank].works[worker.thread]);
}

void Board::finish_turn(Worker worker, uint64_t ticket) {
  turns().finish(ticket);
  header_->rank[worker.rank].works[worker.thread].store(0, std::memory_order_release);
}

uint64_t Board::posted(uint32_t rank) const {
  return header_->rank[rank].posted.load(std::memory_order_acquire);
}
bool Board::ready(uint64_t number) const {
  return job(number).ready.load(std::memory_order_acquire) > number;
}
bool Board::ended(uint64_t number) const {
  const Job& one = job(number);
  if (one.ended.load(std::memory_order_acquire) <= number) return false;
  // What another thread of this process has finished is seen already, for it was before the end;
  // this says so to who follows one process alone (ThreadSanitizer).
  (void)one.left.load(std::memory_order_acquire);
  (void)turns().finished();
  return true;
}

std::optional<uint64_t> Board::take(Worker worker, uint64_t number) {
  Job& one = job(number);
  auto& works = header_->rank[worker.rank].works[worker.thread];
  uint64_t remaining = one.remaining.load(std::memory_order_acquire);
  bool tried = false;
  // Of another number: it has ended, and the slot serves a later one.
  while (remaining > tagged(number, 0) && remaining <= tagged(number, UINT32_MAX)) {
    tried = true;
    works.store(number + 1, std::memory_order_relaxed);  // before: whoever stops here is known
    if (one.remaining.compare_exchange_weak(remaining, remaining - 1, std::memory_order_acq_rel)) {
      return one.pieces - (remaining - tagged(number, 0));
    }
  }
  if (tried) works.store(0, std::memory_order_relaxed);
  return std::nullopt;
}

void Board::finish(Worker worker, uint64_t number) {
  if (job(number).left.fetch_sub(1, std::memory_order_acq_rel) == 1) end(number);
  header_->rank[worker.rank].works[worker.thread].store(0, std::memory_order_release);
}

const Request& Board::request(uint64_t number, uint32_t rank) const {
  (void)posted(rank);  // as in ended()
  return job(number).requests[rank];
}

std::optional<Board::Disagreement> Board::disagrees(uint64_t number) const {
  const Job& one = job(number);
  if (one.disagrees == 0) return std::nullopt;
  return Disagreement{.rank = one.disagrees - 1, .asked = one.asked, .first = one.first};
}

std::optional<uint32_t> Board::works_on(uint64_t number) const {
  for (uint32_t rank = 0; rank < ranks(); rank++) {
    for (const auto& works : header_->rank[rank].works) {
      if (works.load(std::memory_order_relaxed) == number + 1) return rank;
    }
  }
  return std::nullopt;
}

uint64_t Board::works(uint32_t rank) const {
  uint64_t most = 0;
  for (const auto& works : header_->rank[rank].works) {
    most = std::max(most, works.load(std::memory_order_relaxed));
  }
  return most;
}

Board::Works Board::hand_over_works(uint32_t from, uint32_t to) {
  Works works = {};
  for (size_t i = 0; i < works.size(); i++) {
    works[i] = header_->rank[from].works[i].exchange(0, std::memory_order_relaxed);
    if (works[i] != 0) header_->rank[to].works[i].store(works[i], std::memory_order_relaxed);
  }
  return works;
}

void Board::take_works_back(uint32_t from, uint32_t to, const Works& works) {
  for (size_t i = 0; i < works.size(); i++) {
    uint64_t handed = works[i];
    if (handed == 0) continue;
    header_->rank[to].works[i].compare_exchange_strong(handed, 0, std::memory_order_relaxed);
    header_->rank[from].works[i].store(works[i], std::memory_order_relaxed);
  }
}

void Board::set_lost(Lost lost) {
  uint32_t none = 0;
  const uint32_t word = (lost.rank + 1) | (lost.is_late ? kLate : 0);
  if (!header_->lost.compare_exchange_strong(none, word)) return;
  ring(Bell::work);
  ring(Bell::done);
}

std::optional<Board::Lost> Board::lost() const {
  const uint32_t word = header_->lost.load(std::memory_order_acquire);
  if (word == 0) return std::nullopt;
  return Lost{.rank = (word & ~kLate) - 1, .is_late = (word & kLate) != 0};
}

void Board::set_fault(const Error& error) {
  uint32_t none = 0;
  if (!header_->fault.compare_exchange_strong(none, 1)) return;
  header_->fault_code = static_cast<uint32_t>(error.code);
  error.message.copy(header_->fault_text, kFaultBytes - 1);
  header_->fault.store(2, std::memory_order_release);
  ring(Bell::work);
  ring(Bell::done);
}

std::optional<Error> Board::fault() const {
  if (header_->fault.load(std::memory_order_acquire) != 2) return std::nullopt;
  return Error{static_cast<Errc>(header_->fault_code), header_->fault_text, {}};
}

void Board::ask_late(uint64_t number) {
  uint64_t asked = header_->asked_late.load(std::memory_order_relaxed);
  while (asked < number + 1 && !header_->asked_late.compare_exchange_weak(asked, number + 1)) {
  }
}
std::optional<uint64_t> Board::asked_late() const {
  const uint64_t asked = header_->asked_late.load(std::memory_order_acquire);
  return asked != 0 ? std::optional(asked - 1) : std::nullopt;
}

void Board::set_world(const Place& place, uint64_t bytes) {
  header_->world = place;
  header_->world_bytes.store(bytes, std::memory_order_release);
  ring(Bell::done);
}
std::optional<std::pair<Place, uint64_t>> Board::world() const {
  const uint64_t bytes = header_->world_bytes.load(std::memory_order_acquire);
  if (bytes == 0) return std::nullopt;
  return std::pair(header_->world, bytes);
}

void Board::set_left(uint32_t rank) {
  header_->rank[rank].left.store(1, std::memory_order_release);
  ring(Bell::done);
}

bool Board::left(uint32_t rank) const {
  return header_->rank[rank].left.load(std::memory_order_acquire) != 0;
}

bool Board::wait(Bell bell, Clock& clock, int64_t until_ns,
                 const std::function<bool()>& until) const {
  auto& word = header_->bells[static_cast<size_t>(bell)];
  const int64_t spin_until_ns = clock.steady_ns() + kSpinNs;
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    if (until()) return true;
    const int64_t now_ns = clock.steady_ns();
    if (now_ns >= until_ns) return false;
    if (now_ns < spin_until_ns) continue;
    const int64_t left_ns = std::min<int64_t>(until_ns - now_ns, 3600 * kSecond);
    const timespec time{.tv_sec = left_ns / kSecond, .tv_nsec = left_ns % kSecond};
    (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr,
                    0);
  }
}

void Board::ring(Bell bell, int waiters) const {
  auto& word = header_->bells[static_cast<size_t>(bell)];
  word.fetch_add(1, std::memory_order_acq_rel);
  (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, waiters, nullptr,
                  nullptr, 0);
}

}  // namespace ff::collective
