// Orders of an agent to a shim, as files in the folder of the shim: an order persists, whether the
// shim has started yet or the agent has exited since, and repetition has no effect.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/dir_events.h"
#include "platform/io/disk.h"

namespace ff::shim {

enum class ShimOrder : uint8_t {
  notify,     // sends the signal of launch.json to the first process of the rank
  terminate,  // SIGTERM to all processes of the rank
  kill,       // SIGKILL to all of them, until none is left
  abandon,    // no action: from now on the end of the rank is attributed to its node
};
constexpr std::array<ShimOrder, 4> kShimOrders = {ShimOrder::notify, ShimOrder::terminate,
                                                  ShimOrder::kill, ShimOrder::abandon};

// The file name: "order.kill".
std::string order_file(ShimOrder order);

// The side of the shim: the orders received so far.
class OrderQueue {
 public:
  OrderQueue(io::Disk& disk, std::string dir);

  // A descriptor to poll for reading; -1: inotify is exhausted, call poll() every kOrderPollNs.
  int fd() const { return events_ ? events_->fd() : -1; }
  void poll();
  void add(ShimOrder order) { received_[static_cast<size_t>(order)] = true; }
  bool has(ShimOrder order) const { return received_[static_cast<size_t>(order)]; }

 private:
  io::Disk& disk_;
  const std::string dir_;
  std::optional<io::DirEvents> events_;
  std::array<bool, kShimOrders.size()> received_ = {};
};
constexpr int64_t kOrderPollNs = kSecond / 5;

}  // namespace ff::shim
