// Orders of an agent to a shim, as files in the shim's folder: what was ordered stays ordered,
// whether the shim has begun yet or the agent has ended since, and the second time changes nothing.
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

enum class Order : uint8_t {
  notify,     // the signal of launch.json, to the rank's first process only
  terminate,  // SIGTERM to all processes of the rank
  kill,       // SIGKILL to all of them, until none is left
  give_up,    // nothing by itself: how the rank ends from now on is its node's doing (Exit)
};
constexpr std::array<Order, 4> kOrders = {Order::notify, Order::terminate, Order::kill,
                                          Order::give_up};

// The name of its file: "order.kill".
std::string order_file(Order order);

// The shim's side.
class Orders {
 public:
  Orders(io::Disk& disk, std::string dir);

  // To be polled for reading; -1: the machine has no notifications left, look every kLookNs.
  int fd() const { return events_ ? events_->fd() : -1; }
  void look();
  void give(Order order) { given_[static_cast<size_t>(order)] = true; }
  bool has(Order order) const { return given_[static_cast<size_t>(order)]; }

 private:
  io::Disk& disk_;
  const std::string dir_;
  std::optional<io::DirEvents> events_;
  std::array<bool, kOrders.size()> given_ = {};
};
constexpr int64_t kLookNs = kSecond / 5;

}  // namespace ff::shim
