// Conversion between the structs of chunk/ and the messages of chain.proto. Data from peers is
// validated.
#pragma once

#include "platform/base/result.h"
#include "storage/chain/chain.pb.h"
#include "storage/chunk/chunk_store_types.h"

namespace ff::chain {

wire::Chunk to_wire(const chunk::ChunkId& id);
wire::Writer to_wire(const chunk::RequestId& request_id);
wire::Image to_wire(const chunk::VersionState& state);
wire::ListedChunk to_wire(const chunk::ChunkInfo& info);
wire::ChannelResult to_wire(const chunk::ChannelInfo& info);

chunk::ChunkId from_wire(const wire::Chunk& id);
chunk::RequestId from_wire(const wire::Writer& request_id);
chunk::VersionState from_wire(const wire::Image& state);
// Request id and pending version are not transmitted.
chunk::ChunkInfo from_wire(const wire::ListedChunk& listed);
// Only results of committed updates are transmitted.
chunk::ChannelInfo from_wire(const wire::ChannelResult& result);

// Converts all fields except target, version and data. Errors: usage (unknown update type).
Result<chunk::Update> from_wire(const wire::WriteRequest& request);
void to_wire(const chunk::Update& update, wire::WriteRequest& out);

}  // namespace ff::chain
