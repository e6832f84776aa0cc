// The transport over TCP and Unix sockets, plain.
#pragma once

#include <memory>

#include "net/transport.h"

namespace ff::net {

class TcpTransport final : public Transport {
 public:
  Task<Result<std::unique_ptr<Connection>>> connect(Loop& loop, Address to) override;
  Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& at) override;
};

}  // namespace ff::net
