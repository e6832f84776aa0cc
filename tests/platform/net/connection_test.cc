// The conformance suite over every transport that this machine offers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/net/connection_conformance.h"
#include "platform/net/shm_pair.h"
#include "platform/net/socket_ends.h"
#include "platform/net/tls_pair.h"

namespace ff::net {
namespace {

class SocketPair final : public TestedPair {
 public:
  explicit SocketPair(const Address& address) {
    SocketEnds ends = connected_sockets(loop_, address);
    client = connection(std::move(ends.client));
    server = connection(std::move(ends.server));
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
    return std::make_unique<Connection>(loop_, stream_of(loop_, std::move(socket)), nullptr);
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::deque<std::vector<std::byte>> memory_;
};

template <class Pair, class... Arguments>
PairMaker maker(std::string name, Arguments... arguments) {
  return {std::move(name), [=] { return std::make_unique<Pair>(arguments...); }};
}

std::unique_ptr<TestedPair> huge_pair() {
  if (!offers_huge()) return nullptr;
  return std::make_unique<ShmPair>(SharedRegion::Kind::huge);
}

// IPv6 may be off.
std::unique_ptr<TestedPair> tcp6_pair() {
  const Address address{"::1", 0, ""};
  SystemClock clock;
  SystemLoop loop(clock);
  if (!SocketListener::listen(loop, address)) return nullptr;
  return std::make_unique<SocketPair>(address);
}

std::string maker_name(const testing::TestParamInfo<PairMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Sockets, ConnectionConformance,
                         testing::Values(maker<SocketPair>("tcp", Address{"127.0.0.1", 0, ""}),
                                         PairMaker{"tcp6", tcp6_pair},
                                         maker<SocketPair>("unix", unix_test_address())),
                         maker_name);

INSTANTIATE_TEST_SUITE_P(Shm, ConnectionConformance,
                         testing::Values(maker<ShmPair>("sealed", SharedRegion::Kind::sealed),
                                         PairMaker{"huge", huge_pair}),
                         maker_name);

INSTANTIATE_TEST_SUITE_P(Tls, ConnectionConformance, testing::Values(maker<TlsPair>("tls")),
                         maker_name);

}  // namespace
}  // namespace ff::net
