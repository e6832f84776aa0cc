// A client of one gateway, for programs that change a store through its owner: requests of the
// Redis protocol on one connection, all of a call at once.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/auth/secret_memory.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/net/stream.h"
#include "platform/net/tls.h"

namespace ff::gateway {

struct GatewayAccess {
  std::shared_ptr<const net::TlsContext> certificates = {};  // null: without TLS
  auth::SecretText password = {};                            // empty: the gateway has no keys
};

class GatewayClient {
 public:
  // `address`: as Store::owner() returns it. `access` outlives the client.
  GatewayClient(Loop& loop, std::string address, const GatewayAccess& access);

  using Words = std::vector<std::string_view>;
  struct Reply {
    bool is_error = false;
    std::string text;  // of a simple string, an error ("ERR ..."), or an integer
  };
  // Connects if there is no connection. The replies in the order of the requests, which must stay
  // until the call has ended. After an error, nobody knows which requests were carried out.
  // Errc::unreachable; Errc::refused: of the gateway, or its certificate; Errc::corrupt: not the
  // protocol. Calls run one after the other.
  Task<Result<std::vector<Reply>>> call(std::span<const Words> requests);

 private:
  // Bytes to send: texts that are made for it, and words where they are.
  struct Outgoing {
    std::vector<std::unique_ptr<std::string>> texts;
    std::vector<ByteView> pieces;
    void add(const Words& words);
    void finish();
  };

  Task<Result<void>> connect();
  Task<Result<std::unique_ptr<net::Stream>>> open_stream();
  Task<Result<std::vector<Reply>>> exchange(std::span<const Words> requests);
  Task<Result<void>> send(std::vector<ByteView>& pieces);
  Task<Result<void>> receive(size_t count, std::vector<Reply>& replies);
  Task<Result<std::string>> next_line();

  Loop& loop_;
  const std::string address_;
  const GatewayAccess& access_;
  std::unique_ptr<net::Stream> stream_;  // null: not connected
  std::string received_;
  size_t parsed_ = 0;  // bytes of it
  Semaphore calling_;
};

}  // namespace ff::gateway
