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
      // The sender must not wait until all nodes below have the piece.
      if (piece.route.down_to.count > 0 && peers_[channel.node]->connection->pushes_files()) {
        send_slot(channel.node, kArrived, channel.direction, chunk.slot);
      }
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
  send_slot(node, kCredit, direction, slot);
}

void Pipeline::send_slot(uint32_t node, uint32_t method, Direction direction, uint32_t slot) {
  std::string message;
  append_le(message, static_cast<uint32_t>(direction));
  append_le(message, slot);
  send(node, method, message);
}

// Reserves the next position in the channel; the bytes follow with set_send_data().
void Pipeline::enqueue_send(uint32_t node, Direction direction, InflightPiece& piece) {
  send_channel(node, direction).items.push_back({.piece = &piece});
  piece.unsent++;
}

void Pipeline::set_send_data(uint32_t node, Direction direction, InflightPiece& piece,
                             const SendData& data) {
  SendChannel& channel = send_channel(node, direction);
  for (SendChannel::Item& item : channel.items) {
    if (item.piece == &piece) item.data = data;
  }
  channel.changed->set();
}

Task<void> Pipeline::send_loop(uint32_t node, Direction direction) {
  SendChannel& channel = *peers_[node]->sending[static_cast<size_t>(direction)];
  net::Connection& connection = *peers_[node]->connection;
  for (;;) {
    while (channel.items.empty() || !channel.items.front().data || channel.free.empty()) {
      channel.changed->reset();
      const auto waited = co_await channel.changed->wait();
      if (!waited) co_return;
    }
    InflightPiece& piece = *channel.items.front().piece;
    const SendData data = *channel.items.front().data;
    const uint32_t slot = channel.free.back();  // the last one that the peer has used
    channel.free.pop_back();
    const net::FilePlace place{
        .fd = data.region->fd(),
        .offset = static_cast<uint64_t>(data.bytes.data() - data.region->memory().data())};
    const uint64_t at = slot * channel.slot_bytes;
    const auto pushed = co_await connection.push_file(*channel.window, at, data.bytes, place);
    if (!pushed) co_return;  // receive_loop() reports the error
    if (connection.pushes_files()) channel.unconfirmed[slot] = &piece;
    std::string message;
    append_le(message, static_cast<uint32_t>(direction));
    append_le(message, slot);
    append_le(message, piece.number());
    append_le(message, piece.index);
    append_le(message, static_cast<uint64_t>(data.bytes.size()));
    append_le(message, data.crc);
    send(node, kChunk, message);
    channel.items.pop_front();
    if (!connection.pushes_files()) on_sent(piece);
  }
}

// A channel no longer reads what it has sent of the piece.
void Pipeline::on_sent(InflightPiece& piece) {
  piece.unsent--;
  if (piece.unsent > 0 || !piece.is_done_locally) return;
  retire_pieces();
  admit_pieces();
}

}  // namespace ff::collective
