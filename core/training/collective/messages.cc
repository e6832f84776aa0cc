// messages.cc: posting, copying and waiting.
#include "training/collective/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "platform/base/units.h"
#include "training/collective/job_failure.h"

namespace ff::collective {

namespace {

// The longest time until a failed job or a stop is noticed.
constexpr int64_t kMessagePollNs = 50 * kMillisecond;
// For rank 0 to find the straggler among all hosts.
constexpr int64_t kStragglerCheckNs = 5 * kSecond;
// More bytes bypass the caches: they would be evicted before the receiver reads them.
constexpr uint64_t kCachedMessageBytes = 4 * kMiB;

void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (bytes < kCachedMessageBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  const void* const source = from;
  void* const target = to;
  const simd::ReduceSpec what{.type = simd::DataType::u8, .non_temporal = true};
  simd::reduce_arrays(what, {{&source, 1}, {&target, 1}, bytes});
}

}  // namespace

bool Messages::is_local(uint32_t rank) const {
  const HostRank& self = group_.self();
  return rank >= self.first_rank && rank < self.first_rank + self.ranks;
}

std::string Messages::name_of(uint32_t rank) const {
  return world_ != nullptr ? world_->name_of(rank) : group_.name_of(rank);
}

// "send of 16 bytes to rank 3, tag 7".
std::string Messages::text_of(const Message& message) const {
  const bool sends = message.kind == MessageTable::Kind::send;
  std::string text = fmt::format("{} of {} bytes {} ", sends ? "send" : "receive", message.bytes,
                                 sends ? "to" : "from");
  text += message.peer == kAnyRank ? "any rank" : fmt::format("rank {}", message.peer);
  // Other tags are of collective operations.
  if (message.tag <= UINT32_MAX) text += fmt::format(", tag {}", message.tag);
  return text;
}

MessageTable::Posting Messages::posting_of(const Message& message) const {
  uint32_t queue_row = group_.self().rank;
  if (message.kind == MessageTable::Kind::send) {
    queue_row = is_local(message.peer) ? message.peer - group_.self().first_rank : kRelayRow;
  }
  return {.row = group_.self().rank, .kind = message.kind, .queue_row = queue_row};
}

Result<MessageTable::Posted> Messages::post(const Message& message, const MessageRequest& request,
                                            bool enters) {
  const MessageTable::Posting posting = posting_of(message);
  auto posted = enters ? table_.post(posting, request) : table_.match(posting, request);
  if (posted || posted.error().code == Errc::busy) return posted;
  if (posted.error().code == Errc::deadline) {
    const auto owner = table_.lock_owner(posting.queue_row);
    if (owner) group_.operations().set_failed_rank({.rank = *owner % kRelayRow, .timed_out = true});
    group_.wake_leader();
  }
  if (auto failure = job_failure(group_, text_of(message))) return std::move(*failure);
  return posted;
}

Result<void> Messages::start(Message& message) {
  const std::lock_guard lock(starting_);
  const bool sends = message.kind == MessageTable::Kind::send;
  MessageRequest request{.source = sends ? own_rank() : message.peer,
                         .destination = sends ? message.peer : own_rank(),
                         .tag = message.tag,
                         .bytes = message.bytes};
  if (const bool stays_here = world_ == nullptr || is_local(message.peer); stays_here) {
    FF_TRY(const auto posted, post(message, request, false));
    if (posted.match) return transfer(message, *posted.match);
  }
  if (message.bytes > 0) {
    FF_TRY(request.memory, message.memory->share(message.offset, message.bytes, sends));
  }
  FF_TRY(const auto posted, post(message, request, true));
  if (!posted.own) return transfer(message, *posted.match);
  message.entry = posted.own;
  const bool is_outbound = sends && !is_local(message.peer);
  if (posted.match || is_outbound) group_.wake_leader();
  return {};
}

// The other end has posted its message before: copies the bytes, and completes both.
Result<void> Messages::transfer(Message& message, uint32_t match) {
  const MessageRequest& theirs = table_.request(match);
  const bool sends = message.kind == MessageTable::Kind::send;
  const uint32_t rank = sends ? theirs.destination : theirs.source;
  if (theirs.bytes != message.bytes) {
    message.error = mismatch_error(message, {.rank = rank, .bytes = theirs.bytes});
  } else if (message.bytes > 0) {
    const uint32_t local = MessageTable::row_of(match);
    FF_TRY(std::byte* const memory, group_.resolve(local, theirs.memory, theirs.bytes));
    std::byte* const own = message.memory->memory().data() + message.offset;
    copy_bytes(sends ? memory : own, sends ? own : memory, message.bytes);
  }
  message.peer = rank;
  table_.complete(match);
  return {};
}

// "rank 0 sends 16 bytes, tag 7, to rank 1 (process 4711), which receives 32 bytes".
Error Messages::mismatch_error(const Message& message, const MessageTable::Peer& peer) const {
  const bool sends = message.kind == MessageTable::Kind::send;
  const uint32_t sender = sends ? own_rank() : peer.rank;
  const uint32_t receiver = sends ? peer.rank : own_rank();
  const std::string tag =
      message.tag <= UINT32_MAX ? fmt::format(" with tag {}", message.tag) : std::string();
  return fail(Errc::usage, "{} sends {} bytes{} to {}, which receives {} bytes", name_of(sender),
              sends ? message.bytes : peer.bytes, tag, name_of(receiver),
              sends ? peer.bytes : message.bytes);
}

// A rank that has left, without which the message cannot arrive.
std::optional<uint32_t> Messages::departed_peer(const Message& message) const {
  const OperationTable& operations = group_.operations();
  const uint32_t first_rank = group_.self().first_rank;
  if (message.peer != kAnyRank && is_local(message.peer)) {
    return operations.has_departed(message.peer - first_rank) ? std::optional(message.peer)
                                                              : std::nullopt;
  }
  if (operations.is_relay_closed()) return first_rank;  // rank 0 of this host
  if (message.peer != kAnyRank || world_ != nullptr) return std::nullopt;
  std::optional<uint32_t> left;
  for (uint32_t local = 0; local < operations.ranks(); local++) {
    if (local == group_.self().rank) continue;
    if (!operations.has_departed(local)) return std::nullopt;
    left = local;
  }
  return left;
}

Result<void> Messages::wait(Message& message, int64_t until_ns, const std::string& context) {
  if (message.entry) {
    const bool is_known = message.peer != kAnyRank;
    table_.set_awaited(group_.self().rank, is_known ? std::optional(message.peer) : std::nullopt);
    auto done = wait_done(message, until_ns, context);
    table_.set_awaited(group_.self().rank, std::nullopt);
    FF_TRY(std::move(done));
    const MessageTable::Peer peer = table_.peer(*message.entry);
    message.peer = peer.rank;
    if (peer.bytes != message.bytes) {
      message.error = mismatch_error(message, peer);
    } else if (message.kind == MessageTable::Kind::receive && message.bytes > 0) {
      message.memory->store(message.offset, message.bytes);
    }
    table_.release(*message.entry);
    message.entry.reset();
  }
  if (!message.error) return {};
  return Error(*message.error).with_context(context);
}

Result<void> Messages::wait_done(const Message& message, int64_t until_ns,
                                 const std::string& context) {
  Clock& clock = stop_.clock();
  const auto is_done = [&] { return table_.state(*message.entry) == MessageTable::State::done; };
  for (;;) {
    const auto left = departed_peer(message);
    const int64_t until_poll_ns = std::min(until_ns, clock.steady_ns() + kMessagePollNs);
    (void)table_.wait(group_.self().rank, clock, until_poll_ns,
                      [&] { return is_done() || group_.operations().has_failed(); });
    if (is_done()) return {};
    if (auto failure = job_failure(group_, context + text_of(message))) return std::move(*failure);
    FF_TRY(stop_.check());
    if (left && table_.state(*message.entry) == MessageTable::State::queued) {
      return operation_error(context + text_of(message),
                             fmt::format("{} has left", name_of(*left)));
    }
    if (clock.steady_ns() >= until_ns) return straggler_error(message, context);
  }
}

// Fails the job: the peer is late, or a rank for which the peer waits.
Error Messages::straggler_error(const Message& message, const std::string& context) {
  OperationTable& operations = group_.operations();
  const uint32_t first_rank = group_.self().first_rank;
  const std::string what = context + text_of(message);
  if (message.peer == kAnyRank) {
    Error error = operation_error(
        what, fmt::format("no rank has sent it within {}", format_duration(limit_ns_)));
    error.code = Errc::deadline;
    operations.set_async_error(error);
    group_.wake_leader();
    return error;
  }
  uint32_t straggler = last_awaited(message.peer, [&](uint32_t rank) {
    return is_local(rank) ? table_.awaited(rank - first_rank) : std::nullopt;
  });
  if (world_ != nullptr) {
    // Rank 0 asks the other hosts. If it does not answer, it is late itself.
    operations.request_message_check(message.peer);
    group_.wake_leader();
    Clock& clock = stop_.clock();
    (void)operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + kStragglerCheckNs,
                          [&] { return operations.has_failed(); });
    if (auto failure = job_failure(group_, what)) return std::move(*failure);
    straggler = first_rank;
  }
  operations.set_failed_rank({.rank = straggler - first_rank, .timed_out = true});
  group_.wake_leader();
  const bool sends = message.kind == MessageTable::Kind::send;
  const bool is_peer = straggler == message.peer;
  const char* const late = !is_peer ? "is late" : sends ? "has not received it" : "has not sent it";
  Error error = operation_error(
      what, fmt::format("{} {} within {}", name_of(straggler), late, format_duration(limit_ns_)));
  error.code = Errc::deadline;
  return error;
}

void Messages::withdraw(Message& message) {
  if (!message.entry) return;
  const auto withdrawn = table_.withdraw(*message.entry);
  if (withdrawn && *withdrawn) message.entry.reset();
}

}  // namespace ff::collective
