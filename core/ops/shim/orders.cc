// orders.cc: reads the order files.
#include "ops/shim/orders.h"

#include <utility>

#include "platform/io/files.h"

namespace ff::shim {

std::string order_file(ShimOrder order) {
  switch (order) {
    case ShimOrder::notify: return "order.notify";
    case ShimOrder::terminate: return "order.terminate";
    case ShimOrder::kill: return "order.kill";
    case ShimOrder::abandon: return "order.give-up";
  }
  return "order.kill";
}

OrderQueue::OrderQueue(io::Disk& disk, std::string dir) : disk_(disk), dir_(std::move(dir)) {
  // First watch, then read: no order is missed in between.
  auto events = io::DirEvents::open(dir_);
  if (events) events_.emplace(*std::move(events));
  poll();
}

void OrderQueue::poll() {
  if (events_) (void)events_->read_names();
  for (const ShimOrder order : kShimOrders) {
    if (has(order)) continue;
    const auto there = io::exists(disk_, io::join(dir_, order_file(order)));
    if (there && *there) add(order);
  }
}

}  // namespace ff::shim
