// peer_messages.cc: messages between nodes, lost connections, and how a job fails on all nodes.
#include <algorithm>
#include <cstring>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/simd/crc32c.h"
#include "training/collective/message_reader.h"
#include "training/collective/pipeline_state.h"

namespace ff::collective {

namespace {

constexpr int64_t kStatusTimeoutNs = 2 * kSecond;
// After a lost connection: another node may report the reason within this time.
constexpr int64_t kDisconnectGraceNs = 300 * kMillisecond;
constexpr int64_t kFlushNs = kSecond;
constexpr size_t kAnnouncedMax = 4096;  // operations that another node may be ahead

Error malformed(const char* what) { return fail(Errc::corrupt, "a malformed {} arrived", what); }

}  // namespace

void Pipeline::send(uint32_t node, uint32_t method, std::string_view message, uint64_t number) {
  const Peer& peer = *peers_[node];
  if (peer.said_goodbye && method != kAcknowledge) return;
  peer.connection->send({.kind = net::FrameKind::call, .call = number, .method = method}, message);
}

void Pipeline::send_to_all(uint32_t method, std::string_view message, uint64_t number) {
  for (uint32_t node = 0; node < nodes(); node++) {
    if (peers_[node] != nullptr) send(node, method, message, number);
  }
}

Task<void> Pipeline::receive_loop(uint32_t node) {
  net::Connection& connection = *peers_[node]->connection;
  for (;;) {
    auto frame = co_await connection.receive();
    if (!frame) {
      if (!gate_.cancellation().requested()) gate_.spawn(handle_disconnect(node, frame.error()));
      co_return;
    }
    if (auto handled = handle_message(node, *frame); !handled) {
      gate_.spawn(handle_disconnect(node, handled.error()));
      co_return;
    }
  }
}

Result<void> Pipeline::handle_message(uint32_t node, const net::Frame& frame) {
  if (frame.head.kind != net::FrameKind::call) return malformed("message");
  const ByteView message = as_bytes(frame.message);
  const uint64_t number = frame.head.call;
  switch (frame.head.method) {
    case kAnnounce: {
      CollectiveRequest request;
      if (message.size() != sizeof request) return malformed("operation");
      std::memcpy(&request, message.data(), sizeof request);
      if (!is_valid(request)) return malformed("operation");
      handle_announcement(node, number, request);
      return {};
    }
    case kWindow: return handle_window(node, message);
    case kCredit: return handle_credit(node, message);
    case kArrived: return handle_arrived(node, message);
    case kChunk: return handle_chunk(node, message);
    case kFailed: {
      if (message.empty() || static_cast<size_t>(message[0]) >= kErrcCount)
        return malformed("error");
      send(node, kAcknowledge, {});
      fail_job(Error{static_cast<Errc>(message[0]), printable(frame.message.substr(1)), {}});
      return {};
    }
    case kDeparted: {
      MessageReader reader(message);
      const auto rank = reader.read<uint32_t>();
      const auto posted = reader.read<uint64_t>();
      if (!reader.at_end() || rank >= mesh_.world.ranks()) return malformed("rank");
      peers_[node]->departed[rank] = posted;
      for (uint64_t started = posted; started < next_; started++) check_departed(started);
      relay_->rank_departed(rank);
      return {};
    }
    case kStatusRequest: send(node, kStatusReply, encode_status()); return {};
    case kStatusReply: handle_status(node, message); return {};
    case kGoodbye:
      peers_[node]->said_goodbye = true;
      for (uint32_t rank = 0; rank < mesh_.world.nodes[node].ranks(); rank++) {
        relay_->rank_departed(mesh_.world.nodes[node].first_rank + rank);
      }
      ballots_->lose(node);
      send(node, kAcknowledge, {});
      return {};
    case BlockRelay::kBlocks:
    case BlockRelay::kStored:
      return failed_ ? Result<void>()
                     : block_relay_->handle(node, frame.head.method, number, message);
    case NodeBallots::kMethod: return ballots_->handle(node, message);
    case kAcknowledge: peers_[node]->acknowledged = true; return {};
    default: return failed_ ? Result<void>() : relay_->handle(node, frame.head.method, message);
  }
}

MessageRelay::Links Pipeline::relay_links() {
  return {
      .connection = [this](uint32_t node) -> net::Connection& { return *peers_[node]->connection; },
      .send = [this](uint32_t node, uint32_t method,
                     std::string_view message) { send(node, method, message); },
      .fail_job = [this](Error error) { fail_job(std::move(error)); },
      .fail_link = [this](uint32_t node,
                          const std::string& what) { fail_job(corrupt_link(node, what)); }};
}

BlockRelay::Links Pipeline::block_links() {
  return {.send = [this](uint32_t node, uint32_t method, std::string_view message,
                         uint64_t number) { send(node, method, message, number); },
          .fail_job = [this](Error error) { fail_job(std::move(error)); },
          .complete =
              [this](uint64_t number) {
                group_.operations().complete(number);
                if (is_drained()) drained_.set();
              }};
}

NodeBallots::Links Pipeline::ballot_links() {
  return {.send = [this](uint32_t node,
                         const std::string& message) { send(node, NodeBallots::kMethod, message); },
          .flush = [this] { return flush(); }};
}

Task<void> Pipeline::flush() {
  const int64_t until_ns = loop_.now_ns() + kFlushNs;
  for (auto& peer : peers_) {
    if (peer == nullptr || peer->connection->failed()) continue;
    (void)co_await with_deadline(loop_, until_ns, "a node", peer->connection->wait_flushed());
  }
}

Result<void> Pipeline::handle_window(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto direction = reader.read<uint32_t>();
  const auto slots = reader.read<uint32_t>();
  const auto slot_bytes = reader.read<uint64_t>();
  net::RemoteBuffer buffer;
  buffer.token = reader.read<uint64_t>();
  buffer.size = reader.read<uint64_t>();
  buffer.address = reader.read<uint64_t>();
  buffer.key = reader.read<uint32_t>();
  if (!reader.at_end() || direction > 1 || slots != kSlots || slot_bytes != kSlotBytes ||
      buffer.size != kSlots * kSlotBytes) {
    return malformed("window");
  }
  SendChannel& channel = send_channel(node, static_cast<Direction>(direction));
  if (channel.window) return malformed("window");
  channel.window = buffer;
  channel.slot_bytes = slot_bytes;
  for (uint32_t slot = 0; slot < slots; slot++) channel.free.push_back(slot);
  channel.changed->set();
  return {};
}

Result<void> Pipeline::handle_credit(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto direction = reader.read<uint32_t>();
  const auto slot = reader.read<uint32_t>();
  if (!reader.at_end() || direction > 1 || slot >= kSlots) return malformed("slot");
  SendChannel& channel = send_channel(node, static_cast<Direction>(direction));
  if (!channel.window || std::ranges::find(channel.free, slot) != channel.free.end()) {
    return malformed("slot");
  }
  channel.free.push_back(slot);
  channel.changed->set();
  confirm(channel, slot);
  return {};
}

Result<void> Pipeline::handle_arrived(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto direction = reader.read<uint32_t>();
  const auto slot = reader.read<uint32_t>();
  if (!reader.at_end() || direction > 1 || slot >= kSlots) return malformed("slot");
  confirm(send_channel(node, static_cast<Direction>(direction)), slot);
  return {};
}

// The peer has what was sent into the slot.
void Pipeline::confirm(SendChannel& channel, uint32_t slot) {
  const auto sent = channel.unconfirmed.extract(slot);
  if (sent && !failed_) on_sent(*sent.mapped());
}

Result<void> Pipeline::handle_chunk(uint32_t node, ByteView message) {
  MessageReader reader(message);
  const auto direction = reader.read<uint32_t>();
  ReceiveChannel::Chunk chunk;
  chunk.slot = reader.read<uint32_t>();
  chunk.number = reader.read<uint64_t>();
  chunk.index = reader.read<uint64_t>();
  chunk.bytes = reader.read<uint64_t>();
  chunk.crc = reader.read<uint32_t>();
  if (!reader.at_end() || direction > 1 || chunk.slot >= kSlots || chunk.bytes > kSlotBytes) {
    return malformed("piece");
  }
  const auto& channel = peers_[node]->receiving[direction];
  if (channel == nullptr || channel->arrived.size() >= kSlots) return malformed("piece");
  const ByteView bytes = channel->window->memory().subspan(chunk.slot * kSlotBytes, chunk.bytes);
  if (const uint32_t crc = simd::crc32c(bytes); crc != chunk.crc) {
    fail_job(corrupt_link(node, fmt::format("piece {} of operation {} arrived with CRC32C {:08x} "
                                            "instead of {:08x}",
                                            chunk.index, chunk.number, crc, chunk.crc)));
    return {};
  }
  channel->arrived.push_back(chunk);
  match_arrivals(*channel);
  return {};
}

// What arrived from the node is not what it sent.
Error Pipeline::corrupt_link(uint32_t node, const std::string& what) const {
  return fail(Errc::corrupt, "the link from {} to {} corrupts data: {}",
              mesh_.world.name_of(mesh_.world.nodes[node].first_rank),
              mesh_.world.name_of(group_.self().first_rank), what);
}

// Sends the request to the next node, which compares it with its own: any mismatch is found.
void Pipeline::announce_operation(const OperationState& op) {
  CollectiveRequest request = op.request;
  request.in = request.out = {};
  const std::string_view message =
      as_text({reinterpret_cast<const std::byte*>(&request), sizeof request});
  send((mesh_.self + 1) % nodes(), kAnnounce, message, op.number);
  const auto known = announced_.find(op.number);
  const uint32_t before = (mesh_.self + nodes() - 1) % nodes();
  if (known == announced_.end()) {
    own_requests_[op.number] = request;
  } else {
    const CollectiveRequest theirs = known->second;
    announced_.erase(known);
    compare_requests(op.number, before, theirs);
  }
}

void Pipeline::handle_announcement(uint32_t node, uint64_t number,
                                   const CollectiveRequest& request) {
  if (number >= next_) {
    if (announced_.size() >= kAnnouncedMax) {
      return fail_job(fail(Errc::corrupt, "{} is {} operations ahead",
                           mesh_.world.name_of(mesh_.world.nodes[node].first_rank),
                           announced_.size()));
    }
    announced_[number] = request;
    return;
  }
  compare_requests(number, node, request);
}

void Pipeline::compare_requests(uint64_t number, uint32_t node, const CollectiveRequest& theirs) {
  const auto found = own_requests_.find(number);
  const CollectiveRequest mine =
      found != own_requests_.end() ? found->second : group_.operations().request(number, 0);
  if (found != own_requests_.end()) own_requests_.erase(found);
  if (agree(mine, theirs)) return;
  fail_job(fail(Errc::usage, "operation {}: {} requested {}, {} requested {}", number,
                mesh_.world.name_of(mesh_.world.nodes[node].first_rank), text_of(theirs),
                mesh_.world.name_of(group_.self().first_rank), text_of(mine)));
}

// Fails the job if a rank of another node has left before this operation.
void Pipeline::check_departed(uint64_t number) {
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    for (const auto& [rank, posted] : peer->departed) {
      if (posted > number) continue;
      return fail_job(fail(Errc::unreachable, "{} has left after {} operations",
                           mesh_.world.name_of(rank), posted));
    }
  }
}

// The connection is closed or sent nonsense. If the node ended because of an error elsewhere, that
// error arrives within kDisconnectGraceNs and is reported instead.
Task<void> Pipeline::handle_disconnect(uint32_t node, Error why) {
  ballots_->lose(node);
  const std::string name = mesh_.world.name_of(mesh_.world.nodes[node].first_rank);
  if (why.code == Errc::corrupt) {
    peers_[node]->connection->close(why);
    fail_job(corrupt_link(node, why.message));
    co_return;
  }
  if (peers_[node]->said_goodbye || failed_) co_return;
  if (!co_await sleep_for(loop_, kDisconnectGraceNs)) co_return;
  fail_job(fail(Errc::unreachable, "{} is gone ({})", name, why.message));
}

// Every node forwards the first error, so that a node which then ends has sent its reason.
void Pipeline::fail_job(Error error) {
  if (failed_) return;
  failed_ = true;
  send_to_all(kFailed, std::string(1, static_cast<char>(error.code)) + error.message);
  group_.operations().set_async_error(error);
  drained_.set();
}

// Asks all nodes for their status, and fails the job with the straggler that `find` returns.
Task<void> Pipeline::find_straggler(std::function<std::optional<Error>()> find) {
  for (auto& peer : peers_) {
    if (peer != nullptr) peer->status.reset();
  }
  send_to_all(kStatusRequest, {});
  const int64_t until_ns = loop_.now_ns() + kStatusTimeoutNs;
  const auto all_answered = [this] {
    return std::ranges::all_of(
        peers_, [](const auto& peer) { return peer == nullptr || peer->status.has_value(); });
  };
  while (!all_answered() && loop_.now_ns() < until_ns) {
    const auto waited = co_await sleep_for(loop_, 10 * kMillisecond);
    if (!waited) co_return;
  }
  if (auto error = find()) fail_job(std::move(*error));
}

std::optional<Error> Pipeline::silent_node() const {
  for (uint32_t node = 0; node < nodes(); node++) {
    if (peers_[node] == nullptr || peers_[node]->status) continue;
    return fail(Errc::deadline, "{} does not answer",
                mesh_.world.name_of(mesh_.world.nodes[node].first_rank));
  }
  return std::nullopt;
}

Pipeline::RankStatus Pipeline::status_of(uint32_t rank) const {
  const uint32_t node = mesh_.world.node_of(rank);
  const uint32_t local = rank - mesh_.world.nodes[node].first_rank;
  if (peers_[node] != nullptr) return (*peers_[node]->status)[local];
  const OperationTable& operations = group_.operations();
  return {.posted = operations.posted(local), .awaited = operations.messages().awaited(local)};
}

// Of an operation; nothing if it is complete by now.
std::optional<Error> Pipeline::straggler_of(uint64_t number) const {
  if (group_.operations().is_complete(number)) return std::nullopt;
  if (auto error = silent_node()) return error;
  const World& world = mesh_.world;
  std::optional<Error> working;
  for (uint32_t rank = 0; rank < world.ranks(); rank++) {
    const RankStatus status = status_of(rank);
    if (status.posted <= number) {
      if (status.awaited) return message_straggler(rank);
      return fail(Errc::deadline, "{} has not started it; it had started {} operations",
                  world.name_of(rank), status.posted);
    }
    if (status.current == number + 1 && !working) {
      working = fail(Errc::deadline, "{} has not finished its part; it had started {} operations",
                     world.name_of(rank), status.posted);
    }
  }
  return working.value_or(fail(Errc::deadline, "all ranks still work on it"));
}

// A rank waits for a message to or from `peer`.
Error Pipeline::message_straggler(uint32_t peer) const {
  if (auto error = silent_node()) return std::move(*error);
  const uint32_t straggler =
      last_awaited(peer, [this](uint32_t rank) { return status_of(rank).awaited; });
  return fail(Errc::deadline, "{} is late with a message; it had started {} operations",
              mesh_.world.name_of(straggler), status_of(straggler).posted);
}

std::string Pipeline::encode_status() const {
  const OperationTable& operations = group_.operations();
  std::string message;
  for (uint32_t rank = 0; rank < operations.ranks(); rank++) {
    append_le(message, operations.posted(rank));
    append_le(message, operations.current_operation(rank));
    const auto awaited = operations.messages().awaited(rank);
    append_le(message, awaited ? *awaited + 1 : uint32_t{0});
  }
  return message;
}

void Pipeline::handle_status(uint32_t node, ByteView message) {
  std::vector<RankStatus> status;
  MessageReader reader(message);
  while (reader.more()) {
    RankStatus one{.posted = reader.read<uint64_t>(), .current = reader.read<uint64_t>()};
    const auto awaited = reader.read<uint32_t>();
    if (awaited > mesh_.world.ranks()) return;
    if (awaited != 0) one.awaited = awaited - 1;
    status.push_back(one);
  }
  if (status.size() == mesh_.world.nodes[node].ranks()) peers_[node]->status = std::move(status);
}

}  // namespace ff::collective
