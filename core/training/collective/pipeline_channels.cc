// pipeline_channels.cc: channels between two nodes: windows of slots, and pieces in order.
#include "platform/base/check.h"
#include "training/collective/pipeline_state.h"

namespace ff::collective {

Pipeline::SendChannel& Pipeline::send_channel(uint32_t node, Direction direction) {
  auto& channel = peers_[node]->sending[static_cast<size_t>(direction)];
  if (channel == nullptr) {
    channel = std::make_unique<SendChannel>();
    channel->changed = std::make_unique<Event>(loop_);
    gate_.spawn(send_loop(node, direction));
  }
  return *channel;
}

Pipeline::ReceiveChannel& Pipeline::receive_channel(uint32_t node, Direction direction) {
  auto& channel = peers_[node]->receiving[static_cast<size_t>(direction)];
  if (channel == nullptr) {
    channel = std::make_unique<ReceiveChannel>();
    channel->node = node;
    channel->direction = direction;
    if (auto opened = open_window(node, direction, *channel); !opened)
      fail_job(std::move(opened).error());
  }
  return *channel;
}

Result<void> Pipeline::open_window(uint32_t node, Direction direction, ReceiveChannel& channel) {
  FF_TRY(channel.window, group_.make_region(kSlots * kSlotBytes));
  register_memory_(*channel.window);
  const ByteSpan memory = channel.window->memory().first(kSlots * kSlotBytes);
  FF_TRY(channel.exposure, peers_[node]->connection->expose_sink(memory));
  const net::RemoteBuffer& buffer = channel.exposure.buffer();
  std::string message;
  append_le(message, static_cast<uint32_t>(direction));
  append_le(message, kSlots);
  append_le(message, kSlotBytes);
  append_le(message, buffer.token);
  append_le(message, buffer.size);
  append_le(message, buffer.address);
  append_le(message, buffer.key);
  send(node, kWindow, message);
  return {};
}

// Gives arrived chunks to the pieces that expect them.
void Pipeline::match_arrivals(ReceiveChannel& channel) {
  while (!failed_ && !channel.arrived.empty() && !channel.expected.empty()) {
    const ReceiveChannel::Chunk chunk = channel.arrived.front();
    InflightPiece& piece = *channel.expected.front();
    const uint64_t bytes = channel.direction == Direction::up ? piece.bytes_up : piece.bytes_down;
    if (chunk.number != piece.number() || chunk.index != piece.index || chunk.bytes != bytes) {
      // The nodes requested different operations; the announcements will show which.
      return;
    }
    channel.arrived.pop_front();
    channel.expected.pop_front();
    if (channel.direction == Direction::down) {
      piece.result_slot = chunk.slot;
      piece.result_crc = chunk.crc;
      piece.result_arrived = true;
    } else {
      const Children& below = piece.route.up_from;
      for (uint32_t i = 0; i < below.count; i++) {
        if (below.node[i] == channel.node) piece.partial_slots[i] = chunk.slot;
      }
      piece.partials_missing--;
    }
    advance_piece(piece);
  }
}

void Pipeline::return_credit(uint32_t node, Direction direction, uint32_t slot) {
  std::string message;
  append_le(message, static_cast<uint32_t>(direction));
  append_le(message, slot);
  send(node, kCredit, message);
}

// Reserves the next position in the channel; the bytes follow with set_send_data().
void Pipeline::enqueue_send(uint32_t node, Direction direction, InflightPiece& piece) {
  send_channel(node, direction).items.push_back({.piece = &piece});
  piece.unsent++;
}

void Pipeline::set_send_data(uint32_t node, Direction direction, InflightPiece& piece,
                             ByteView bytes, uint32_t crc) {
  SendChannel& channel = send_channel(node, direction);
  for (SendChannel::Item& item : channel.items) {
    if (item.piece != &piece) continue;
    item.bytes = bytes;
    item.crc = crc;
  }
  channel.changed->set();
}

Task<void> Pipeline::send_loop(uint32_t node, Direction direction) {
  SendChannel& channel = *peers_[node]->sending[static_cast<size_t>(direction)];
  net::Connection& connection = *peers_[node]->connection;
  for (;;) {
    while (channel.items.empty() || !channel.items.front().bytes || channel.free.empty()) {
      channel.changed->reset();
      const auto waited = co_await channel.changed->wait();
      if (!waited) co_return;
    }
    InflightPiece& piece = *channel.items.front().piece;
    const ByteView bytes = *channel.items.front().bytes;
    const uint32_t crc = channel.items.front().crc;
    const uint32_t slot = channel.free.front();
    channel.free.pop_front();
    const auto pushed = co_await connection.push(*channel.window, slot * channel.slot_bytes, bytes);
    if (!pushed) co_return;  // receive_loop() reports the error
    std::string message;
    append_le(message, static_cast<uint32_t>(direction));
    append_le(message, slot);
    append_le(message, piece.number());
    append_le(message, piece.index);
    append_le(message, static_cast<uint64_t>(bytes.size()));
    append_le(message, crc);
    send(node, kChunk, message);
    channel.items.pop_front();
    piece.unsent--;
    if (piece.unsent == 0 && piece.is_done_locally) {
      retire_pieces();
      admit_pieces();
    }
  }
}

}  // namespace ff::collective
