// message_relay.cc: ready, grant, parts.
#include "training/collective/message_relay.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/units.h"
#include "platform/simd/crc32c.h"
#include "training/collective/message_reader.h"

namespace ff::collective {

namespace {

constexpr uint64_t kPartBytes = 512 * kKiB;
constexpr int64_t kFinishPollNs = 2 * kMillisecond;

Error malformed_message() { return fail(Errc::corrupt, "a malformed message of a rank arrived"); }

}  // namespace

MessageRelay::MessageRelay(Loop& loop, HostGroup& group, const World& world, uint32_t node,
                           Links links)
    : loop_(loop),
      group_(group),
      world_(world),
      node_(node),
      links_(std::move(links)),
      table_(group.operations().messages()),
      gate_(loop) {}

Task<void> MessageRelay::close() {
  co_await gate_.close(fail(Errc::interrupted, "the communicator is closed"));
}

void MessageRelay::poll() {
  if (auto polled = poll_table(); !polled) links_.fail_job(std::move(polled).error());
}

Result<void> MessageRelay::poll_table() {
  for (;;) {
    FF_TRY(const auto send, table_.take_outbound());
    if (!send) break;
    const MessageRequest& request = table_.request(*send);
    const uint32_t node = world_.node_of(request.destination);
    outgoing_[*send] = node;
    std::string message;
    append_le(message, *send);
    append_le(message, request.source);
    append_le(message, request.destination);
    append_le(message, request.tag);
    append_le(message, request.bytes);
    links_.send(node, kReady, message);
  }
  for (auto next = posted_.begin(); next != posted_.end();) {
    const auto [message, ready] = *next;
    if (table_.state(message) != MessageTable::State::matched) {
      ++next;
      continue;
    }
    next = posted_.erase(next);
    const uint32_t receive = *table_.peer(message).message;
    table_.release(message);
    FF_TRY(grant(ready, receive));
  }
  while (!waiting_.empty()) {
    auto posted = post_ready(waiting_.front());
    if (!posted && posted.error().code == Errc::busy) break;
    FF_TRY(posted);
    waiting_.pop_front();
  }
  return check_departed();
}

Result<void> MessageRelay::post_ready(const Ready& ready) {
  const MessageTable::Posting posting{.row = kRelayRow,
                                      .kind = MessageTable::Kind::send,
                                      .queue_row = local_of(ready.request.destination)};
  FF_TRY(const auto posted, table_.post(posting, ready.request));
  if (posted.match) return grant(ready, *posted.match);
  posted_[*posted.own] = ready;
  return {};
}

// Both ends are known: exposes the memory of the receive.
Result<void> MessageRelay::grant(const Ready& ready, uint32_t receive) {
  const MessageRequest theirs = table_.request(receive);
  const bool moves = theirs.bytes == ready.request.bytes && theirs.bytes > 0;
  unmatched_[ready.node]--;
  net::RemoteBuffer buffer;
  if (moves) {
    Incoming& incoming = incoming_[receive];
    incoming.node = ready.node;
    incoming.bytes = theirs.bytes;
    const uint32_t local = MessageTable::row_of(receive);
    FF_TRY(std::byte* const memory, group_.resolve(local, theirs.memory, theirs.bytes));
    incoming.memory = {memory, theirs.bytes};
    FF_TRY(incoming.exposure, links_.connection(ready.node).expose_sink(incoming.memory));
    buffer = incoming.exposure.buffer();
  }
  std::string message;
  append_le(message, ready.send);
  append_le(message, theirs.destination);
  append_le(message, theirs.bytes);
  append_le(message, receive);
  append_le(message, buffer.token);
  append_le(message, buffer.size);
  append_le(message, buffer.address);
  append_le(message, buffer.key);
  links_.send(ready.node, kGrant, message);
  if (!moves) table_.complete(receive);
  return {};
}

Task<void> MessageRelay::finish(int64_t until_ns) {
  while (loop_.now_ns() < until_ns) {
    const auto busy = is_busy();
    if (!busy || !*busy) break;
    if (!co_await sleep_for(loop_, kFinishPollNs)) break;
    poll();
  }
  group_.operations().set_relay_closed();
}

// Whether a rank of this host still waits for another host.
Result<bool> MessageRelay::is_busy() {
  if (!outgoing_.empty() || !incoming_.empty() || pushing_ > 0) return true;
  for (uint32_t local = 0; local < group_.self().ranks; local++) {
    FF_TRY(const bool waits, table_.waits_for(local, [this](uint32_t source) {
      return source != kAnyRank && world_.node_of(source) != node_;
    }));
    if (waits) return true;
  }
  return false;
}

Result<void> MessageRelay::handle(uint32_t node, uint32_t method, ByteView message) {
  switch (method) {
    case kReady: return handle_ready(node, message);
    case kGrant: return handle_grant(node, message);
    case kPart: return handle_part(node, message);
    default: return malformed_message();
  }
}

Result<void> MessageRelay::handle_ready(uint32_t node, ByteView message) {
  MessageReader reader(message);
  Ready ready{.node = node, .send = reader.read<uint32_t>()};
  ready.request.source = reader.read<uint32_t>();
  ready.request.destination = reader.read<uint32_t>();
  ready.request.tag = reader.read<uint64_t>();
  ready.request.bytes = reader.read<uint64_t>();
  const MessageRequest& request = ready.request;
  if (!reader.at_end() || request.source >= world_.ranks() ||
      request.destination >= world_.ranks() || world_.node_of(request.source) != node ||
      world_.node_of(request.destination) != node_ ||
      unmatched_[node] >= uint64_t{kMessagesMax} * world_.nodes[node].ranks()) {
    return malformed_message();
  }
  unmatched_[node]++;
  waiting_.push_back(ready);
  poll();
  return {};
}

Result<void> MessageRelay::handle_grant(uint32_t node, ByteView message) {
  MessageReader reader(message);
  Grant grant{.send = reader.read<uint32_t>()};
  MessageTable::Peer peer;
  peer.rank = reader.read<uint32_t>();
  peer.bytes = reader.read<uint64_t>();
  grant.receive = reader.read<uint32_t>();
  grant.memory.token = reader.read<uint64_t>();
  grant.memory.size = reader.read<uint64_t>();
  grant.memory.address = reader.read<uint64_t>();
  grant.memory.key = reader.read<uint32_t>();
  const auto sent = outgoing_.find(grant.send);
  if (!reader.at_end() || sent == outgoing_.end() || sent->second != node) {
    return malformed_message();
  }
  outgoing_.erase(sent);
  const MessageRequest& request = table_.request(grant.send);
  const bool moves = peer.bytes == request.bytes && request.bytes > 0;
  if (peer.rank != request.destination || (moves && grant.memory.size != request.bytes)) {
    return malformed_message();
  }
  table_.set_peer(grant.send, peer);
  if (!moves) {
    table_.complete(grant.send);
    return {};
  }
  const uint32_t local = MessageTable::row_of(grant.send);
  auto memory = group_.resolve(local, request.memory, request.bytes);
  if (!memory) {
    links_.fail_job(std::move(memory).error());
    return {};
  }
  gate_.spawn(push(node, grant, {*memory, request.bytes}));
  return {};
}

Task<void> MessageRelay::push(uint32_t node, Grant grant, ByteView bytes) {
  net::Connection& connection = links_.connection(node);
  pushing_++;
  for (uint64_t at = 0; at < bytes.size(); at += kPartBytes) {
    const ByteView part = bytes.subspan(at, std::min<uint64_t>(kPartBytes, bytes.size() - at));
    const uint32_t crc = simd::crc32c(part);
    const auto pushed = co_await connection.push(grant.memory, at, part);
    if (!pushed) co_return;  // the pipeline's receive loop reports the error
    std::string message;
    append_le(message, grant.receive);
    append_le(message, at);
    append_le(message, static_cast<uint64_t>(part.size()));
    append_le(message, crc);
    links_.send(node, kPart, message);
  }
  pushing_--;
  table_.complete(grant.send);
}

Result<void> MessageRelay::handle_part(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto receive = reader.read<uint32_t>();
  const auto offset = reader.read<uint64_t>();
  const auto bytes = reader.read<uint64_t>();
  const auto crc = reader.read<uint32_t>();
  const auto found = incoming_.find(receive);
  if (!reader.at_end() || found == incoming_.end() || found->second.node != node) {
    return malformed_message();
  }
  Incoming& incoming = found->second;
  if (offset != incoming.received || bytes == 0 || bytes > incoming.bytes - offset) {
    return malformed_message();
  }
  if (const uint32_t got = simd::crc32c(incoming.memory.subspan(offset, bytes)); got != crc) {
    const MessageRequest& request = table_.request(receive);
    links_.fail_link(
        node, fmt::format("bytes {} to {} of a message to {} arrived with CRC32C "
                          "{:08x} instead of {:08x}",
                          offset, offset + bytes, world_.name_of(request.destination), got, crc));
    return {};
  }
  incoming.received += bytes;
  if (incoming.received < incoming.bytes) return {};
  incoming_.erase(found);
  table_.complete(receive);
  return {};
}

void MessageRelay::rank_departed(uint32_t rank) {
  departed_.insert(rank);
  poll();
}

// Fails the job if a rank of this host waits for one that has left.
Result<void> MessageRelay::check_departed() {
  const auto left = [&](uint32_t rank) {
    return fail(Errc::unreachable, "{} has left", world_.name_of(rank));
  };
  for (const auto& [send, node] : outgoing_) {
    const uint32_t destination = table_.request(send).destination;
    if (departed_.contains(destination)) return left(destination);
  }
  for (const uint32_t rank : departed_) {
    for (uint32_t local = 0; local < group_.self().ranks; local++) {
      FF_TRY(const bool waits,
             table_.waits_for(local, [rank](uint32_t source) { return source == rank; }));
      if (waits) return left(rank);
    }
  }
  return {};
}

}  // namespace ff::collective
