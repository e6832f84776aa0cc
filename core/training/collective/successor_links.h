// The successors (successor.h) that have connected to this leader: their handshakes, and what they
// report. Any number may try, as only those that hold the job's key get that far. Used by the loop
// of pipeline.h only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "platform/base/gate.h"
#include "platform/net/transport.h"
#include "training/collective/successor_messages.h"
#include "training/collective/world.h"

namespace ff::collective {

class SuccessorLinks {
 public:
  struct Handler {
    std::function<void(uint32_t node, const SuccessorReport& report)> report;
    std::function<void(uint32_t node)> lost;  // the one that reported last
  };
  // `listener` may be null. `self`: this node. The world outlives this.
  SuccessorLinks(Loop& loop, std::unique_ptr<net::Listener> listener, const World& world,
                 uint32_t self, Handler handler);

  // To the successor of the node, if it is connected.
  void send(uint32_t node, SuccessorMethod method, std::string_view message);
  // Refuses them from now on: they try another leader.
  void refuse_all();
  Task<void> close();

 private:
  Task<void> accept();
  Task<void> serve(std::unique_ptr<net::IncomingConnection> incoming);
  Task<Result<SuccessorHello>> greet(net::Connection& connection);
  Task<Result<void>> receive(uint32_t node, net::Connection& connection);

  Loop& loop_;
  std::unique_ptr<net::Listener> listener_;
  const World& world_;
  const uint32_t self_;
  const Handler handler_;
  bool refuses_ = false;
  std::map<uint32_t, net::Connection*> links_;  // by node: the latest successor
  Gate gate_;
};

}  // namespace ff::collective
