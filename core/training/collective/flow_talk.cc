// flow_talk.cc: what nodes say to each other, and what they cannot go on with.
#include <algorithm>
#include <cstring>

#include "platform/base/check.h"
#include "platform/base/text.h"
#include "training/collective/flow_parts.h"
#include "training/collective/numbers.h"

namespace ff::collective {

namespace {

constexpr int64_t kAnswerNs = 2 * kSecond;  // for the others to say how far they are
// For word of why a node has ended, by way of others.
constexpr int64_t kRumourNs = 300 * kMillisecond;
constexpr size_t kAnnouncedMax = 4096;  // operations that a node may be ahead

Error garbled(const char* what) {
  return fail(Errc::corrupt, "it says no {} as a node does", what);
}

}  // namespace

void Flow::tell(uint32_t node, uint32_t what, std::string_view message, uint64_t number) {
  const Peer& peer = *peers_[node];
  if (peer.said_bye && what != kSeen) return;
  peer.connection->send({.kind = net::FrameKind::call, .call = number, .method = what}, message);
}

void Flow::tell_all(uint32_t what, std::string_view message, uint64_t number) {
  for (uint32_t node = 0; node < nodes(); node++) {
    if (peers_[node] != nullptr) tell(node, what, message, number);
  }
}

Task<void> Flow::listen(uint32_t node) {
  net::Connection& connection = *peers_[node]->connection;
  for (;;) {
    auto receiving = connection.receive();
    auto frame = co_await std::move(receiving);
    if (!frame) {
      if (!gate_.cancel().requested()) gate_.spawn(lose(node, frame.error()));
      co_return;
    }
    if (auto heard = hear(node, *frame); !heard) {
      gate_.spawn(lose(node, heard.error()));
      co_return;
    }
  }
}

Result<void> Flow::hear(uint32_t node, const net::Frame& frame) {
  if (frame.head.kind != net::FrameKind::call) return garbled("word");
  const ByteView message = as_bytes(frame.message);
  const uint64_t number = frame.head.call;
  switch (frame.head.method) {
    case kAnnounce: {
      Request request;
      if (message.size() != sizeof request) return garbled("operation");
      std::memcpy(&request, message.data(), sizeof request);
      if (!is_valid(request)) return garbled("operation");
      hear_announced(node, number, request);
      return {};
    }
    case kWindow: return hear_window(node, message);
    case kCredit: return hear_credit(node, message);
    case kChunk: return hear_chunk(node, message);
    case kFault: {
      if (message.empty() || static_cast<size_t>(message[0]) >= kErrcs) return garbled("fault");
      tell(node, kSeen, {});
      fault(Error{static_cast<Errc>(message[0]), printable(frame.message.substr(1)), {}});
      return {};
    }
    case kLeft: {
      Numbers numbers(message);
      const auto rank = numbers.next<uint32_t>();
      const auto posted = numbers.next<uint64_t>();
      if (!numbers.at_end() || rank >= mesh_.world.ranks()) return garbled("rank");
      peers_[node]->left[rank] = posted;
      for (uint64_t begun = posted; begun < next_; begun++) check_left(begun);
      return {};
    }
    case kAsk: tell(node, kStatus, status()); return {};
    case kStatus: hear_status(node, message); return {};
    case kBye:
      peers_[node]->said_bye = true;
      tell(node, kSeen, {});
      return {};
    case kSeen: peers_[node]->has_seen = true; return {};
    default: return garbled("word");
  }
}

Result<void> Flow::hear_window(uint32_t node, ByteView message) {
  Numbers numbers(message);
  const auto way = numbers.next<uint32_t>();
  const auto slots = numbers.next<uint32_t>();
  const auto slot_bytes = numbers.next<uint64_t>();
  net::Slice slice;
  slice.token = numbers.next<uint64_t>();
  slice.size = numbers.next<uint64_t>();
  slice.address = numbers.next<uint64_t>();
  slice.key = numbers.next<uint32_t>();
  if (!numbers.at_end() || way > 1 || slots != kSlots || slot_bytes != kSlotBytes ||
      slice.size != kSlots * kSlotBytes) {
    return garbled("window");
  }
  Sending& lane = sending(node, static_cast<Way>(way));
  if (lane.window) return garbled("window");
  lane.window = slice;
  lane.slot_bytes = slot_bytes;
  for (uint32_t slot = 0; slot < slots; slot++) lane.free.push_back(slot);
  lane.changed->set();
  return {};
}

Result<void> Flow::hear_credit(uint32_t node, ByteView message) {
  Numbers numbers(message);
  const auto way = numbers.next<uint32_t>();
  const auto slot = numbers.next<uint32_t>();
  if (!numbers.at_end() || way > 1 || slot >= kSlots) return garbled("slot");
  Sending& lane = sending(node, static_cast<Way>(way));
  if (!lane.window || std::ranges::find(lane.free, slot) != lane.free.end()) {
    return garbled("slot");
  }
  lane.free.push_back(slot);
  lane.changed->set();
  return {};
}

Result<void> Flow::hear_chunk(uint32_t node, ByteView message) {
  Numbers numbers(message);
  const auto way = numbers.next<uint32_t>();
  Receiving::Chunk chunk;
  chunk.slot = numbers.next<uint32_t>();
  chunk.number = numbers.next<uint64_t>();
  chunk.index = numbers.next<uint64_t>();
  chunk.bytes = numbers.next<uint64_t>();
  if (!numbers.at_end() || way > 1 || chunk.slot >= kSlots || chunk.bytes > kSlotBytes) {
    return garbled("piece");
  }
  const auto& lane = peers_[node]->receiving[way];
  if (lane == nullptr || lane->came.size() >= kSlots) return garbled("piece");
  lane->came.push_back(chunk);
  match(*lane);
  return {};
}

// To the next node, which compares: so any two that differ are found.
void Flow::announce(const Op& op) {
  Request request = op.request;
  request.in = request.out = {};
  const std::string_view message =
      as_text({reinterpret_cast<const std::byte*>(&request), sizeof request});
  tell((mesh_.self + 1) % nodes(), kAnnounce, message, op.number);
  const auto known = announced_.find(op.number);
  const uint32_t before = (mesh_.self + nodes() - 1) % nodes();
  if (known == announced_.end()) {
    asked_[op.number] = request;
  } else {
    const Request theirs = known->second;
    announced_.erase(known);
    compare(op.number, before, theirs);
  }
}

void Flow::hear_announced(uint32_t node, uint64_t number, const Request& request) {
  if (number >= next_) {
    if (announced_.size() >= kAnnouncedMax) {
      return fault(fail(Errc::corrupt, "{} is {} operations ahead",
                        mesh_.world.name_of(mesh_.world.nodes[node].first_rank),
                        announced_.size()));
    }
    announced_[number] = request;
    return;
  }
  compare(number, node, request);
}

void Flow::compare(uint64_t number, uint32_t node, const Request& theirs) {
  const auto found = asked_.find(number);
  const Request mine = found != asked_.end() ? found->second : group_.board().request(number, 0);
  if (found != asked_.end()) asked_.erase(found);
  if (agree(mine, theirs)) return;
  fault(fail(Errc::usage, "operation {}: {} asks for {}, {} for {}", number,
             mesh_.world.name_of(mesh_.world.nodes[node].first_rank), text_of(theirs),
             mesh_.world.name_of(group_.self().first_rank), text_of(mine)));
}

// A rank that has left before this operation.
void Flow::check_left(uint64_t number) {
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    for (const auto& [rank, posted] : peer->left) {
      if (posted > number) continue;
      return fault(fail(Errc::unreachable, "{} has left after {} operations",
                        mesh_.world.name_of(rank), posted));
    }
  }
}

// A connection has ended. If the node had heard of a fault elsewhere, so will this one.
Task<void> Flow::lose(uint32_t node, Error why) {
  const std::string name = mesh_.world.name_of(mesh_.world.nodes[node].first_rank);
  if (why.code == Errc::corrupt) {
    peers_[node]->connection->close(why);
    fault(fail(Errc::corrupt, "{}: {}", name, why.message));
    co_return;
  }
  if (peers_[node]->said_bye || failed_) co_return;
  if (!co_await after(loop_, kRumourNs)) co_return;
  fault(fail(Errc::unreachable, "{} is gone ({})", name, why.message));
}

// Passed on by all that hear of it: so a node that then ends has said why.
void Flow::fault(Error error) {
  if (failed_) return;
  failed_ = true;
  tell_all(kFault, std::string(1, static_cast<char>(error.code)) + error.message);
  group_.board().set_fault(error);
  drained_.set();
}

// Asks all nodes how far they are, and says who is late.
Task<void> Flow::find_late(uint64_t number) {
  for (auto& peer : peers_) {
    if (peer != nullptr) peer->status.reset();
  }
  tell_all(kAsk, {});
  const int64_t until_ns = loop_.now_ns() + kAnswerNs;
  const auto all_said = [this] {
    return std::ranges::all_of(
        peers_, [](const auto& peer) { return peer == nullptr || peer->status.has_value(); });
  };
  while (!all_said() && loop_.now_ns() < until_ns) {
    const auto waited = co_await after(loop_, 10 * kMillisecond);
    if (!waited) co_return;
  }
  if (!group_.board().ended(number)) fault(late(number));
}

Error Flow::late(uint64_t number) const {
  const World& world = mesh_.world;
  const auto name = [&](uint32_t rank) { return world.name_of(rank); };
  for (uint32_t node = 0; node < nodes(); node++) {
    if (peers_[node] != nullptr && !peers_[node]->status) {
      return fail(Errc::deadline, "{} does not answer", name(world.nodes[node].first_rank));
    }
  }
  std::optional<Error> works;
  for (uint32_t rank = 0; rank < world.ranks(); rank++) {
    const uint32_t node = world.node_of(rank);
    const uint32_t local = rank - world.nodes[node].first_rank;
    const bool here = peers_[node] == nullptr;
    const uint64_t posted =
        here ? group_.board().posted(local) : (*peers_[node]->status)[local].first;
    const uint64_t at = here ? 0 : (*peers_[node]->status)[local].second;
    if (posted <= number) {
      return fail(Errc::deadline, "{} has not begun it; it had begun {} operations", name(rank),
                  posted);
    }
    if (at == number + 1 && !works) {
      works = fail(Errc::deadline, "{} has not finished its part; it had begun {} operations",
                   name(rank), posted);
    }
  }
  return works.value_or(fail(Errc::deadline, "all ranks are at work on it still"));
}

std::string Flow::status() const {
  const Board& board = group_.board();
  std::string message;
  for (uint32_t rank = 0; rank < board.ranks(); rank++) {
    append_le(message, board.posted(rank));
    append_le(message, board.works(rank));
  }
  return message;
}

void Flow::hear_status(uint32_t node, ByteView message) {
  std::vector<std::pair<uint64_t, uint64_t>> said;
  Numbers numbers(message);
  while (numbers.more()) {
    const auto posted = numbers.next<uint64_t>();
    said.emplace_back(posted, numbers.next<uint64_t>());
  }
  if (said.size() == mesh_.world.nodes[node].ranks()) peers_[node]->status = std::move(said);
}

}  // namespace ff::collective
