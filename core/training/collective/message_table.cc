// message_table.cc: queues of messages, linked by index, and the lock of each row.
#include "training/collective/message_table.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <set>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "training/collective/futex_word.h"

namespace ff::collective {

struct alignas(64) MessageTable::Message {
  std::atomic<State> state;
  Kind kind;
  uint32_t queue_row;
  uint32_t next;  // in its queue: index + 1; 0: the last
  uint32_t peer;  // index + 1
  uint32_t peer_rank;
  uint64_t peer_bytes;
  MessageRequest request;
};

struct MessageTable::Row {
  struct Queue {
    uint32_t head, tail;  // index + 1; 0: empty
  };
  alignas(64) std::atomic<uint32_t> lock;  // row of the owner + 1, and kContended
  Queue queues[2];                         // by Kind; guarded by `lock`
  alignas(64) FutexWord done;
  std::atomic<uint32_t> awaited;  // rank + 1
  std::atomic<uint32_t> cursor;   // where the owner looks for a free message next
  Message messages[kMessagesMax];
};

struct MessageTable::Memory {
  Row rows[kHostRanksMax + 1];
  std::atomic<uint32_t> used;
};

namespace {

constexpr uint32_t kContended = 1u << 31;
constexpr long kLockPollNs = 20 * kMillisecond;
constexpr int kLockPolls = 500;  // 10 s: its owner is stopped

bool matches(const MessageRequest& one, const MessageRequest& other) {
  const bool sources =
      one.source == other.source || one.source == kAnyRank || other.source == kAnyRank;
  return sources && one.destination == other.destination && one.tag == other.tag;
}

}  // namespace

// Holds the lock of a row.
class MessageTable::Lock {
 public:
  static Result<Lock> acquire(Row& row, uint32_t self, const std::function<bool()>& has_failed) {
    const uint32_t mine = self + 1;
    for (int i = 0; i < 100; i++) {
      uint32_t none = 0;
      if (row.lock.compare_exchange_weak(none, mine, std::memory_order_acquire)) return Lock(&row);
    }
    for (int polls = 0; polls < kLockPolls;) {
      uint32_t value = row.lock.load(std::memory_order_relaxed);
      if (value == 0) {
        if (row.lock.compare_exchange_weak(value, mine | kContended, std::memory_order_acquire)) {
          return Lock(&row);
        }
        continue;
      }
      if ((value & kContended) == 0 &&
          !row.lock.compare_exchange_weak(value, value | kContended, std::memory_order_relaxed)) {
        continue;
      }
      if (has_failed()) return fail(Errc::unreachable, "the job has failed");
      const timespec time{.tv_sec = 0, .tv_nsec = kLockPollNs};
      const long waited = ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&row.lock), FUTEX_WAIT,
                                    value | kContended, &time, nullptr, 0);
      if (waited != 0) polls++;
    }
    return fail(Errc::deadline, "a rank holds the lock of messages and does not release it");
  }
  ~Lock() {
    if (row_ == nullptr) return;
    const uint32_t before = row_->lock.exchange(0, std::memory_order_release);
    if ((before & kContended) == 0) return;
    (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&row_->lock), FUTEX_WAKE, 1, nullptr,
                    nullptr, 0);
  }
  Lock(Lock&& other) noexcept : row_(std::exchange(other.row_, nullptr)) {}
  Lock& operator=(Lock&&) = delete;

 private:
  explicit Lock(Row* row) : row_(row) {}
  Row* row_;
};

size_t MessageTable::bytes() { return sizeof(Memory) + alignof(Memory); }

MessageTable::MessageTable(void* memory, std::function<bool()> has_failed)
    : memory_(reinterpret_cast<Memory*>(
          align_up(reinterpret_cast<uintptr_t>(memory), alignof(Memory)))),
      has_failed_(std::move(has_failed)) {}

MessageTable::Message& MessageTable::at(uint32_t message) const {
  FF_CHECK(row_of(message) <= kRelayRow);
  return memory_->rows[row_of(message)].messages[message % kMessagesMax];
}

Result<MessageTable::Posted> MessageTable::match(const Posting& posting,
                                                 const MessageRequest& request) {
  return post(posting, request, false);
}
Result<MessageTable::Posted> MessageTable::post(const Posting& posting,
                                                const MessageRequest& request) {
  return post(posting, request, true);
}

Result<MessageTable::Posted> MessageTable::post(const Posting& posting,
                                                const MessageRequest& request, bool enters) {
  Row& row = memory_->rows[posting.queue_row];
  FF_TRY(const Lock lock, Lock::acquire(row, posting.row, has_failed_));
  const auto found = find(row, posting, request);
  const bool is_relayed = found && row_of(*found) == kRelayRow;
  Posted posted;
  if (!enters && (!found || is_relayed)) return posted;
  if (!found || is_relayed) {
    memory_->used.store(1, std::memory_order_relaxed);
    FF_TRY(posted.own, allocate(posting.row));
    Message& own = at(*posted.own);
    own.kind = posting.kind;
    own.queue_row = posting.queue_row;
    own.next = own.peer = 0;
    own.request = request;
    (void)own.state.exchange(found ? State::matched : State::queued, std::memory_order_acq_rel);
  }
  if (!found) {
    Row::Queue& queue = row.queues[static_cast<size_t>(posting.kind)];
    append(queue.head, queue.tail, *posted.own);
    return posted;
  }
  posted.match = found;
  unlink(row, *found);
  Message& other = at(*found);
  const uint32_t rank = posting.kind == Kind::send ? request.source : request.destination;
  set_peer(*found, {.message = posted.own, .rank = rank, .bytes = request.bytes});
  if (posted.own) {
    set_peer(*posted.own,
             {.message = found, .rank = other.request.source, .bytes = other.request.bytes});
  }
  (void)other.state.exchange(State::matched, std::memory_order_acq_rel);
  return posted;
}

// The oldest message in the queue of the other kind that matches.
std::optional<uint32_t> MessageTable::find(Row& row, const Posting& posting,
                                           const MessageRequest& request) {
  // Sends to other hosts only match there.
  if (posting.queue_row == kRelayRow) return std::nullopt;
  const Kind other = posting.kind == Kind::send ? Kind::receive : Kind::send;
  for (uint32_t next = row.queues[static_cast<size_t>(other)].head; next != 0;) {
    const Message& message = at(next - 1);
    const uint32_t following = next_of(next - 1);
    if (matches(message.request, request)) return next - 1;
    next = following;
  }
  return std::nullopt;
}

Result<uint32_t> MessageTable::allocate(uint32_t row) {
  Row& own = memory_->rows[row];
  const uint32_t first = own.cursor.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMessagesMax; i++) {
    const uint32_t slot = (first + i) % kMessagesMax;
    if (own.messages[slot].state.load(std::memory_order_acquire) != State::free) continue;
    own.cursor.store(slot + 1, std::memory_order_relaxed);
    return row * kMessagesMax + slot;
  }
  return fail(Errc::busy, "{} messages are unfinished: wait for some of them first", kMessagesMax);
}

// Ranks write to messages that others have posted while they hold the lock of the queue; whoever
// uses the place next has seen that the message is done, which comes later. If another process
// completes it, ThreadSanitizer, which follows one process only, does not see that: this shows it
// the order, and so do the exchanges of `state`. The state of a message in a queue does not change
// meanwhile.
void MessageTable::show_order(Message& message) {
  State now = message.state.load(std::memory_order_acquire);
  (void)message.state.compare_exchange_strong(now, now, std::memory_order_acq_rel,
                                              std::memory_order_acquire);
}

uint32_t MessageTable::next_of(uint32_t message) const {
  const Message& one = at(message);
  (void)one.state.load(std::memory_order_acquire);  // see show_order()
  return one.next;
}

void MessageTable::append(uint32_t& head, uint32_t& tail, uint32_t message) {
  if (tail == 0) {
    head = message + 1;
  } else {
    at(tail - 1).next = message + 1;
    show_order(at(tail - 1));
  }
  tail = message + 1;
}

void MessageTable::unlink(Row& row, uint32_t message) {
  Message& gone = at(message);
  Row::Queue& queue = row.queues[static_cast<size_t>(gone.kind)];
  const uint32_t after = next_of(message);
  uint32_t before = 0;
  for (uint32_t next = queue.head; next != message + 1; next = next_of(next - 1)) {
    FF_CHECK(next != 0);
    before = next;
  }
  if (before == 0) {
    queue.head = after;
  } else {
    at(before - 1).next = after;
    show_order(at(before - 1));
  }
  if (queue.tail == message + 1) queue.tail = before;
  gone.next = 0;
  show_order(gone);
}

bool MessageTable::is_used() const { return memory_->used.load(std::memory_order_relaxed) != 0; }

Result<std::optional<uint32_t>> MessageTable::take_outbound() {
  Row& row = memory_->rows[kRelayRow];
  FF_TRY(const Lock lock, Lock::acquire(row, kRelayRow, has_failed_));
  const uint32_t first = row.queues[static_cast<size_t>(Kind::send)].head;
  if (first == 0) return std::optional<uint32_t>();
  unlink(row, first - 1);
  (void)at(first - 1).state.exchange(State::matched, std::memory_order_acq_rel);
  return std::optional<uint32_t>(first - 1);
}

Result<bool> MessageTable::waits_for(uint32_t row_index,
                                     const std::function<bool(uint32_t source)>& is_sender) {
  Row& row = memory_->rows[row_index];
  FF_TRY(const Lock lock, Lock::acquire(row, kRelayRow, has_failed_));
  for (uint32_t next = row.queues[static_cast<size_t>(Kind::receive)].head; next != 0;) {
    const Message& message = at(next - 1);
    const uint32_t following = next_of(next - 1);
    if (is_sender(message.request.source)) return true;
    next = following;
  }
  return false;
}

MessageTable::State MessageTable::state(uint32_t message) const {
  return at(message).state.load(std::memory_order_acquire);
}

const MessageRequest& MessageTable::request(uint32_t message) const {
  // Threads of this process that have written the memory of that rank before have completed its
  // messages, which other processes then saw. ThreadSanitizer follows one process only, so this
  // load shows it the order.
  (void)memory_->rows[row_of(message)].done.load();
  return at(message).request;
}

MessageTable::Peer MessageTable::peer(uint32_t message) const {
  const Message& one = at(message);
  Peer peer{.rank = one.peer_rank, .bytes = one.peer_bytes};
  if (one.peer != 0) peer.message = one.peer - 1;
  return peer;
}

void MessageTable::set_peer(uint32_t message, const Peer& peer) {
  Message& one = at(message);
  one.peer = peer.message ? *peer.message + 1 : 0;
  one.peer_rank = peer.rank;
  one.peer_bytes = peer.bytes;
}

void MessageTable::complete(uint32_t message) {
  (void)at(message).state.exchange(State::done, std::memory_order_acq_rel);
  memory_->rows[row_of(message)].done.wake();
}

void MessageTable::release(uint32_t message) {
  (void)at(message).state.exchange(State::free, std::memory_order_acq_rel);
  memory_->rows[row_of(message)].cursor.store(message % kMessagesMax, std::memory_order_relaxed);
}

Result<bool> MessageTable::withdraw(uint32_t message) {
  Message& one = at(message);
  Row& row = memory_->rows[one.queue_row];
  FF_TRY(const Lock lock, Lock::acquire(row, row_of(message), has_failed_));
  if (state(message) != State::queued) return false;
  unlink(row, message);
  release(message);
  return true;
}

bool MessageTable::wait(uint32_t row, Clock& clock, int64_t until_ns,
                        const std::function<bool()>& until) {
  return memory_->rows[row].done.wait(clock, until_ns, until);
}

void MessageTable::set_awaited(uint32_t row, std::optional<uint32_t> rank) {
  memory_->rows[row].awaited.store(rank ? *rank + 1 : 0, std::memory_order_relaxed);
}
std::optional<uint32_t> MessageTable::awaited(uint32_t row) const {
  const uint32_t rank = memory_->rows[row].awaited.load(std::memory_order_relaxed);
  return rank != 0 ? std::optional(rank - 1) : std::nullopt;
}

std::optional<uint32_t> MessageTable::lock_owner(uint32_t row) const {
  const uint32_t owner = memory_->rows[row].lock.load(std::memory_order_relaxed) & ~kContended;
  if (owner == 0) return std::nullopt;
  return owner - 1;
}

uint32_t last_awaited(uint32_t rank,
                      const std::function<std::optional<uint32_t>(uint32_t rank)>& awaited) {
  std::set<uint32_t> seen = {rank};
  uint32_t last = rank;
  for (auto next = awaited(last); next; next = awaited(last)) {
    if (!seen.insert(*next).second) return rank;  // they wait for each other
    last = *next;
  }
  return last;
}

}  // namespace ff::collective
