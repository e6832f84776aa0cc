// A TCP port for a gang to meet at, found on its first node before any of its ranks runs.
//
// It comes from below the ports that the kernel gives to connections, so that none takes it by
// chance between the attempt's start and its program's bind(2), and in blocks of ten: `ff
// allreduce` listens at MASTER_PORT + 5. Until the ranks start the agent has both bound; whom a
// port was given to the agent knows from attempt.json, so that no other attempt gets it.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "platform/base/fd.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"

namespace ff::scheduler {

constexpr uint32_t kFirstPort = 20'000;
constexpr uint32_t kPortBlock = 10;
constexpr uint32_t kSecondPort = 5;  // of a block: collective/environment.h

class PortHold {
 public:
  PortHold() = default;

  // One that nobody has, and none of `taken`.
  static Result<PortHold> find(const std::set<uint32_t>& taken, Rng& rng);
  // That one again, after the agent was started anew; one that somebody has meanwhile is not held.
  static PortHold again(uint32_t port);

  uint32_t port() const { return port_; }
  // The ranks may have it.
  void let_go() {
    first_ = Fd();
    second_ = Fd();
  }

 private:
  uint32_t port_ = 0;
  Fd first_, second_;
};

// The first port that the kernel gives to connections, of "32768\t60999\n".
uint32_t parse_port_range(const std::string& text);

}  // namespace ff::scheduler
