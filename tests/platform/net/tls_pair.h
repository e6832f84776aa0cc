// Two ends of a TLS connection on one loop: the handshake of both, and a pair for the suite.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/net/socket_ends.h"
#include "platform/net/test_certificates.h"
#include "platform/net/tested_pair.h"
#include "platform/net/tls.h"

namespace ff::net {

using TlsResult = Result<std::unique_ptr<TlsStream>>;

struct TlsEnds {
  std::optional<TlsResult> client;
  std::optional<TlsResult> server;
};

struct TlsParties {
  std::shared_ptr<const TlsContext> client;
  std::shared_ptr<const TlsContext> server;
  TlsServer expected = {.host = "127.0.0.1", .service = {}};
};

inline Task<void> keep(Task<TlsResult> task, std::optional<TlsResult>& result) {
  result = co_await std::move(task);
}

inline TlsEnds shake_hands(Loop& loop, const TlsParties& parties) {
  SocketEnds sockets = connected_sockets(loop, Address{"127.0.0.1", 0, ""});
  TlsEnds ends;
  Gate gate(loop);
  gate.spawn(keep(TlsStream::connect(stream_of(loop, std::move(sockets.client)), parties.client,
                                     parties.expected),
                  ends.client));
  gate.spawn(keep(TlsStream::accept(stream_of(loop, std::move(sockets.server)), parties.server),
                  ends.server));
  run_task(loop, gate.wait_empty());
  return ends;
}

class TlsPair final : public TestedPair {
 public:
  TlsPair() {
    const TestCertificate authority({.name = "authority", .authority = true});
    const TestCertificate node = authority.issue({.name = "node", .hosts = "IP:127.0.0.1"});
    TestFiles files;
    const auto context = files.context(node, authority.pem());
    TlsEnds ends = shake_hands(loop_, {context, context});
    FF_CHECK(ends.client->ok() && ends.server->ok());
    client = std::make_unique<Connection>(loop_, std::move(**ends.client), nullptr);
    server = std::make_unique<Connection>(loop_, std::move(**ends.server), nullptr);
  }
  ~TlsPair() override {
    client.reset();
    server.reset();
  }
  Loop& loop() override { return loop_; }
  ByteSpan memory(size_t size) override {
    return memory_.emplace_back(std::vector<std::byte>(size));
  }

 private:
  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace ff::net
