// Reserves a TCP port (MASTER_PORT) on the first node of a gang before any rank runs.
//
// The port lies below the ephemeral range of the kernel, so that no connection takes it between
// prepare and the bind(2) of the program. Ports are given out in blocks of ten: `ff allreduce`
// listens at MASTER_PORT + 5. The agent keeps both ports bound until the ranks start; attempt.json
// records the port, so no other attempt gets it.
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
constexpr uint32_t kSecondPort = 5;  // offset in a block: collective/environment.h

class PortReservation {
 public:
  PortReservation() = default;

  // Binds a free port that is not in `taken`.
  static Result<PortReservation> reserve(const std::set<uint32_t>& taken, Rng& rng);
  // Binds the same port again after a restart of the agent; without effect when another process
  // uses it.
  static PortReservation restore(uint32_t port);

  uint32_t port() const { return port_; }
  // Closes the sockets, so that the ranks can bind the port.
  void release() {
    first_ = Fd();
    second_ = Fd();
  }

 private:
  uint32_t port_ = 0;
  Fd first_, second_;
};

// The first ephemeral port, from the text of ip_local_port_range: "32768\t60999\n".
uint32_t parse_port_range(const std::string& text);

}  // namespace ff::scheduler
