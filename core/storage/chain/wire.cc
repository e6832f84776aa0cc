// wire.cc: field by field conversions.
#include "storage/chain/wire.h"

namespace ff::chain {

wire::Chunk to_wire(const chunk::ChunkId& id) {
  wire::Chunk out;
  out.set_inode(id.inode);
  out.set_index(id.index);
  return out;
}

wire::Writer to_wire(const chunk::RequestId& request_id) {
  wire::Writer out;
  out.set_client(request_id.client);
  out.set_channel(request_id.channel);
  out.set_sequence(request_id.sequence);
  return out;
}

wire::Image to_wire(const chunk::VersionState& state) {
  wire::Image out;
  out.set_version(state.version);
  out.set_length(state.length);
  out.set_checksum(state.checksum);
  out.set_removed(state.removed);
  return out;
}

wire::ListedChunk to_wire(const chunk::ChunkInfo& info) {
  wire::ListedChunk out;
  *out.mutable_chunk() = to_wire(info.id);
  *out.mutable_committed() = to_wire(info.state.committed);
  out.set_chain_version(info.state.chain_version);
  out.set_pending(info.state.pending.has_value());
  return out;
}

wire::ChannelResult to_wire(const chunk::ChannelInfo& info) {
  wire::ChannelResult out;
  out.set_client(info.client);
  out.set_channel(info.channel);
  out.set_sequence(info.result.sequence);
  *out.mutable_chunk() = to_wire(info.result.id);
  *out.mutable_image() = to_wire(info.result.state);
  out.set_used_ns(info.result.used_ns);
  return out;
}

chunk::ChunkId from_wire(const wire::Chunk& id) { return {id.inode(), id.index()}; }

chunk::RequestId from_wire(const wire::Writer& request_id) {
  return {request_id.client(), request_id.channel(), request_id.sequence()};
}

chunk::VersionState from_wire(const wire::Image& state) {
  return {.version = state.version(),
          .length = state.length(),
          .checksum = state.checksum(),
          .removed = state.removed()};
}

chunk::ChunkInfo from_wire(const wire::ListedChunk& listed) {
  chunk::ChunkInfo info{.id = from_wire(listed.chunk())};
  info.state.committed = from_wire(listed.committed());
  info.state.chain_version = listed.chain_version();
  if (listed.pending()) info.state.pending.emplace();
  return info;
}

chunk::ChannelInfo from_wire(const wire::ChannelResult& result) {
  return {.client = result.client(),
          .channel = result.channel(),
          .result = {.sequence = result.sequence(),
                     .id = from_wire(result.chunk()),
                     .state = from_wire(result.image()),
                     .committed = true,
                     .used_ns = result.used_ns()}};
}

Result<chunk::Update> from_wire(const wire::WriteRequest& request) {
  if (request.change() > static_cast<uint32_t>(chunk::UpdateType::punch_hole)) {
    return fail(Errc::usage, "unknown update type {}", request.change());
  }
  std::optional<uint64_t> expected_version;
  if (request.has_only_version()) expected_version = request.only_version();
  return chunk::Update{.target = request.place().target(),
                       .id = from_wire(request.chunk()),
                       .request_id = from_wire(request.writer()),
                       .type = static_cast<chunk::UpdateType>(request.change()),
                       .offset = request.offset(),
                       .length = request.length(),
                       .chunk_size = request.chunk_size(),
                       .expected_version = expected_version};
}

void to_wire(const chunk::Update& update, wire::WriteRequest& out) {
  *out.mutable_chunk() = to_wire(update.id);
  *out.mutable_writer() = to_wire(update.request_id);
  out.set_change(static_cast<uint32_t>(update.type));
  out.set_offset(update.offset);
  out.set_length(update.length);
  out.set_chunk_size(update.chunk_size);
  if (update.expected_version) out.set_only_version(*update.expected_version);
}

}  // namespace ff::chain
