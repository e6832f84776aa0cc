// wire.cc: field by field.
#include "storage/chain/wire.h"

namespace ff::chain {

wire::Chunk to_wire(const chunk::ChunkId& id) {
  wire::Chunk out;
  out.set_inode(id.inode);
  out.set_index(id.index);
  return out;
}

wire::Writer to_wire(const chunk::Writer& writer) {
  wire::Writer out;
  out.set_client(writer.client);
  out.set_channel(writer.channel);
  out.set_sequence(writer.sequence);
  return out;
}

wire::Image to_wire(const chunk::VersionState& image) {
  wire::Image out;
  out.set_version(image.version);
  out.set_length(image.length);
  out.set_checksum(image.checksum);
  out.set_removed(image.removed);
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
  *out.mutable_image() = to_wire(info.result.image);
  out.set_used_ns(info.result.used_ns);
  return out;
}

chunk::ChunkId from_wire(const wire::Chunk& id) { return {id.inode(), id.index()}; }

chunk::Writer from_wire(const wire::Writer& writer) {
  return {writer.client(), writer.channel(), writer.sequence()};
}

chunk::VersionState from_wire(const wire::Image& image) {
  return {.version = image.version(),
          .length = image.length(),
          .checksum = image.checksum(),
          .removed = image.removed()};
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
                     .image = from_wire(result.image()),
                     .committed = true,
                     .used_ns = result.used_ns()}};
}

Result<chunk::Update> from_wire(const wire::WriteRequest& request) {
  if (request.change() > static_cast<uint32_t>(chunk::Change::clear)) {
    return fail(Errc::usage, "change {} of a chunk is none", request.change());
  }
  std::optional<uint64_t> only_version;
  if (request.has_only_version()) only_version = request.only_version();
  return chunk::Update{.target = request.place().target(),
                       .id = from_wire(request.chunk()),
                       .writer = from_wire(request.writer()),
                       .change = static_cast<chunk::Change>(request.change()),
                       .offset = request.offset(),
                       .length = request.length(),
                       .chunk_size = request.chunk_size(),
                       .only_version = only_version};
}

void to_wire(const chunk::Update& update, wire::WriteRequest& out) {
  *out.mutable_chunk() = to_wire(update.id);
  *out.mutable_writer() = to_wire(update.writer);
  out.set_change(static_cast<uint32_t>(update.change));
  out.set_offset(update.offset);
  out.set_length(update.length);
  out.set_chunk_size(update.chunk_size);
  if (update.only_version) out.set_only_version(*update.only_version);
}

}  // namespace ff::chain
