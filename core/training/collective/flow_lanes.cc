// flow_lanes.cc: windows of slots, and pieces in order through them.
#include "platform/base/check.h"
#include "training/collective/flow_parts.h"

namespace ff::collective {

Flow::Sending& Flow::sending(uint32_t node, Way way) {
  auto& lane = peers_[node]->sending[static_cast<size_t>(way)];
  if (lane == nullptr) {
    lane = std::make_unique<Sending>();
    lane->changed = std::make_unique<Event>(loop_);
    gate_.spawn(send_lane(node, way));
  }
  return *lane;
}

Flow::Receiving& Flow::receiving(uint32_t node, Way way) {
  auto& lane = peers_[node]->receiving[static_cast<size_t>(way)];
  if (lane == nullptr) {
    lane = std::make_unique<Receiving>();
    lane->node = node;
    lane->way = way;
    if (auto opened = open(node, way, *lane); !opened) fault(std::move(opened).error());
  }
  return *lane;
}

Result<void> Flow::open(uint32_t node, Way way, Receiving& lane) {
  FF_TRY(lane.window, group_.make_region(kSlots * kSlotBytes));
  share_(*lane.window);
  const ByteSpan memory = lane.window->memory().first(kSlots * kSlotBytes);
  FF_TRY(lane.exposure, peers_[node]->connection->expose_sink(memory));
  const net::Slice& slice = lane.exposure.slice();
  std::string message;
  append_le(message, static_cast<uint32_t>(way));
  append_le(message, kSlots);
  append_le(message, kSlotBytes);
  append_le(message, slice.token);
  append_le(message, slice.size);
  append_le(message, slice.address);
  append_le(message, slice.key);
  tell(node, kWindow, message);
  return {};
}

// Pieces that have come, with those that wait for them.
void Flow::match(Receiving& lane) {
  while (!failed_ && !lane.came.empty() && !lane.expected.empty()) {
    const Receiving::Chunk chunk = lane.came.front();
    Moving& piece = *lane.expected.front();
    const uint64_t bytes = lane.way == Way::up ? piece.up : piece.down;
    if (chunk.number != piece.number() || chunk.index != piece.index || chunk.bytes != bytes) {
      // The nodes do not agree on what this operation is; what each asks for is on its way.
      return;
    }
    lane.came.pop_front();
    lane.expected.pop_front();
    if (lane.way == Way::down) {
      piece.result_slot = chunk.slot;
      piece.result_came = true;
    } else {
      const Below& below = piece.route.up_from;
      for (uint32_t i = 0; i < below.count; i++) {
        if (below.node[i] == lane.node) piece.partial_slots[i] = chunk.slot;
      }
      piece.partials_missing--;
    }
    advance(piece);
  }
}

void Flow::give_back(uint32_t node, Way way, uint32_t slot) {
  std::string message;
  append_le(message, static_cast<uint32_t>(way));
  append_le(message, slot);
  tell(node, kCredit, message);
}

// It will be sent there, before all later ones.
void Flow::enqueue(uint32_t node, Way way, Moving& piece) {
  sending(node, way).items.push_back({.piece = &piece});
  piece.to_send++;
}

// Here are its bytes.
void Flow::offer(uint32_t node, Way way, Moving& piece, ByteView bytes) {
  Sending& lane = sending(node, way);
  for (Sending::Item& item : lane.items) {
    if (item.piece == &piece) item.bytes = bytes;
  }
  lane.changed->set();
}

Task<void> Flow::send_lane(uint32_t node, Way way) {
  Sending& lane = *peers_[node]->sending[static_cast<size_t>(way)];
  net::Connection& connection = *peers_[node]->connection;
  for (;;) {
    while (lane.items.empty() || !lane.items.front().bytes || lane.free.empty()) {
      lane.changed->reset();
      const auto waited = co_await lane.changed->wait();
      if (!waited) co_return;
    }
    Moving& piece = *lane.items.front().piece;
    const ByteView bytes = *lane.items.front().bytes;
    const uint32_t slot = lane.free.front();
    lane.free.pop_front();
    auto pushing = connection.push(*lane.window, slot * lane.slot_bytes, bytes);
    const auto pushed = co_await std::move(pushing);
    if (!pushed) co_return;  // who listens there says why
    std::string message;
    append_le(message, static_cast<uint32_t>(way));
    append_le(message, slot);
    append_le(message, piece.number());
    append_le(message, piece.index);
    append_le(message, static_cast<uint64_t>(bytes.size()));
    tell(node, kChunk, message);
    lane.items.pop_front();
    piece.to_send--;
    if (piece.to_send == 0 && piece.is_done_here) {
      retire();
      admit();
    }
  }
}

}  // namespace ff::collective
