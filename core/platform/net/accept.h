// Connections of clients that speak a protocol of others (HTTP, Redis's), with or without TLS.
#pragma once

#include <functional>
#include <memory>

#include "platform/base/gate.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/net/socket.h"
#include "platform/net/stream.h"
#include "platform/net/tls.h"

namespace ff::net {

// Accepts until `gate`, in which it runs, is closed. Pauses after an error, which it logs: no file
// descriptors may be left. `listener` must outlive it.
Task<void> accept_sockets(Gate& gate, SocketListener& listener, std::function<void(Socket)> use);

// The stream of an accepted socket. `certificates` null: without TLS; else the handshake has ended.
// Errors: those of TlsStream::accept(); deadline (the client does not shake hands).
Task<Result<std::unique_ptr<Stream>>> open_accepted(Loop& loop, Socket socket,
                                                    std::shared_ptr<const TlsContext> certificates);

}  // namespace ff::net
