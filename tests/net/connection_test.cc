// The conformance suite over TCP and Unix sockets of this machine, and what only sockets have.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/system_loop.h"
#include "net/connection_conformance.h"
#include "net/socket.h"

namespace ff::net {
namespace {

Task<Result<std::vector<Socket>>> connect_both(Loop& loop, SocketListener& listener) {
  FF_CO_TRY(auto client, co_await connect_socket(loop, listener.address()));
  FF_CO_TRY(auto server, co_await listener.accept());
  std::vector<Socket> both;
  both.push_back(std::move(client));
  both.push_back(std::move(server));
  co_return both;
}

class SocketPair final : public TestedPair {
 public:
  // Null where the machine has no such address (IPv6 may be off).
  static std::unique_ptr<TestedPair> make(const Address& address) {
    std::unique_ptr<SocketPair> pair(new SocketPair);
    auto listener = SocketListener::listen(pair->loop_, address);
    if (!listener) return nullptr;
    pair->connect(**listener);
    return pair;
  }
  void connect(SocketListener& listener) {
    auto sockets = run_task(loop_, connect_both(loop_, listener));
    FF_CHECK(sockets.ok());
    client = connection(std::move(sockets->at(0)));
    server = connection(std::move(sockets->at(1)));
  }
  ~SocketPair() override {
    client.reset();
    server.reset();
  }
  Loop& loop() override { return loop_; }
  ByteSpan memory(size_t size) override {
    return memory_.emplace_back(std::vector<std::byte>(size));
  }

 private:
  std::unique_ptr<Connection> connection(Socket socket) {
    auto stream = SocketStream::make(loop_, std::move(socket));
    FF_CHECK(stream.ok());
    return std::make_unique<Connection>(loop_, std::move(*stream), nullptr);
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::deque<std::vector<std::byte>> memory_;
};

std::string maker_name(const testing::TestParamInfo<PairMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Sockets, ConnectionConformance,
    testing::Values(
        PairMaker{"tcp",
                  [] {
                    return SocketPair::make(Address{"127.0.0.1", 0, ""});
                  }},
        PairMaker{"tcp6",
                  [] {
                    return SocketPair::make(Address{"::1", 0, ""});
                  }},
        PairMaker{"unix",
                  [] {
                    return SocketPair::make(Address{"", 0, fmt::format("@ff-test-{}", ::getpid())});
                  }}),
    maker_name);

}  // namespace
}  // namespace ff::net
