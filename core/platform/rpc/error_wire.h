// Conversions of errors, remote buffers and revocations to and from the messages of wire.proto.
#pragma once

#include "platform/auth/revocations.h"
#include "platform/base/result.h"
#include "platform/net/bulk.h"
#include "platform/rpc/wire.pb.h"

namespace ff::rpc {

void to_wire(const Error& error, wire::Error& out);
// Escapes the peer's text, since it may be printed on a terminal.
Error from_wire(const wire::Error& error);

void to_wire(const net::RemoteBuffer& buffer, wire::Slice& out);
net::RemoteBuffer from_wire(const wire::Slice& buffer);

void to_wire(const auth::Revocations& revocations, wire::Revocations& out);
auth::Revocations from_wire(const wire::Revocations& revocations);

}  // namespace ff::rpc
