// The structs of chunk/ as messages of chain.proto, and back. What comes from a peer is checked.
#pragma once

#include "platform/base/result.h"
#include "storage/chain/chain.pb.h"
#include "storage/chunk/steps.h"

namespace ff::chain {

wire::Chunk to_wire(const chunk::ChunkId& id);
wire::Writer to_wire(const chunk::Writer& writer);
wire::Image to_wire(const chunk::VersionState& image);
wire::ListedChunk to_wire(const chunk::ChunkInfo& info);
wire::ChannelResult to_wire(const chunk::ChannelInfo& info);

chunk::ChunkId from_wire(const wire::Chunk& id);
chunk::Writer from_wire(const wire::Writer& writer);
chunk::VersionState from_wire(const wire::Image& image);
// Its writer and the pending image are not told.
chunk::ChunkInfo from_wire(const wire::ListedChunk& listed);
// As committed: no others are told.
chunk::ChannelInfo from_wire(const wire::ChannelResult& result);

// All but target, version and data. Errors: usage for a change that is none.
Result<chunk::Update> from_wire(const wire::WriteRequest& request);
void to_wire(const chunk::Update& update, wire::WriteRequest& out);

}  // namespace ff::chain
