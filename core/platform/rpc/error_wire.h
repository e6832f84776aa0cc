// Errors and slices as messages of wire.proto.
#pragma once

#include "platform/base/result.h"
#include "platform/net/bulk.h"
#include "platform/rpc/wire.pb.h"

namespace ff::rpc {

void to_wire(const Error& error, wire::Error& out);
// Text of the peer is escaped: it may end on a terminal.
Error from_wire(const wire::Error& error);

void to_wire(const net::Slice& slice, wire::Slice& out);
net::Slice from_wire(const wire::Slice& slice);

}  // namespace ff::rpc
