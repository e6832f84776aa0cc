// orders.cc: looking for the files of orders.
#include "ops/shim/orders.h"

#include <utility>

#include "platform/io/files.h"

namespace ff::shim {

std::string order_file(Order order) {
  switch (order) {
    case Order::notify: return "order.notify";
    case Order::terminate: return "order.terminate";
    case Order::kill: return "order.kill";
    case Order::give_up: return "order.give-up";
  }
  return "order.kill";
}

Orders::Orders(io::Disk& disk, std::string dir) : disk_(disk), dir_(std::move(dir)) {
  // First the notifications, then a look: nothing falls between.
  auto events = io::DirEvents::open(dir_);
  if (events) events_.emplace(*std::move(events));
  look();
}

void Orders::look() {
  if (events_) (void)events_->take();
  for (const Order order : kOrders) {
    if (has(order)) continue;
    const auto there = io::exists(disk_, io::join(dir_, order_file(order)));
    if (there && *there) give(order);
  }
}

}  // namespace ff::shim
