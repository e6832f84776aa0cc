// Nodes of a job in one process: each rank is a thread, and each node listens at a port of its own,
// as if it were a host.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "training/collective/ranks.h"

namespace ff::collective {

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// A port of loopback that was free a moment ago.
inline uint16_t free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  return ntohs(at.sin_port);
}

inline auth::Key key_of(uint8_t byte) {
  auth::Key key;
  key.fill(std::byte{byte});
  return key;
}

struct Nodes {
  std::vector<uint32_t> ranks;          // of each
  std::vector<std::string> zones = {};  // of each; none: one for all
  PipelineOptions pipeline = {};
  net::NetMode mode = net::NetMode::tcp;
  CommunicatorOptions options = {};
  std::string host = "127.0.0.1";     // an address of this machine
  std::optional<auth::Key> key = {};  // other addresses than loopback need one
  bool trusted_network = false;       // no encryption after the proof of the key
  std::string job = new_job();
  uint16_t port = free_port();

  uint32_t total() const {
    uint32_t sum = 0;
    for (const uint32_t count : ranks) sum += count;
    return sum;
  }
  Network network(uint32_t node) const {
    Network network{.ranks = total(), .pipeline = pipeline};
    network.at.host = host;
    network.at.port = port;
    network.transport.mode = mode;
    network.transport.trusted_network = trusted_network;
    network.key = key;
    if (!zones.empty()) network.zone = zones[node];
    return network;
  }
  HostRank rank(uint32_t node, uint32_t local) const {
    uint32_t first = 0;
    for (uint32_t i = 0; i < node; i++) first += ranks[i];
    return {.rank = local,
            .ranks = ranks[node],
            .first_rank = first,
            .job = fmt::format("{}-{}", job, node)};
  }
};

// Each rank in a thread.
inline void with_nodes(const Nodes& nodes, const std::function<void(Communicator&)>& body) {
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      threads.emplace_back([&, node, local] {
        auto joined =
            Communicator::join(nodes.rank(node, local), stop, nodes.options, nodes.network(node));
        ASSERT_TRUE(joined.ok()) << joined.error().message;
        body(**joined);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ff::collective
