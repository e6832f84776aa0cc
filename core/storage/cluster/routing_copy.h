// A client's copy of the routing, which follows the managers'. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "platform/base/wait.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

// Asks for the next page of what is new, and takes it over; whether that was all. Errors: those of
// the managers, and refused (Routing::apply).
Task<Result<bool>> next_page(ManagerClient& managers, Routing& routing, int64_t try_ns,
                             int64_t deadline_ns);

class RoutingCopy {
 public:
  // `changed` is called with every newer version.
  RoutingCopy(rpc::ClientContext& context, const std::vector<net::Address>& managers,
              std::function<void()> changed);

  const Routing& routing() const { return routing_; }
  // Asks for what is new, now and then, and when refresh() says so. Until cancelled. Once.
  Task<void> run();
  // Somebody was told that it is old.
  void refresh() { asked_.set(); }
  // Why the last attempt failed; nothing when it did not.
  const std::optional<Error>& trouble() const { return trouble_; }
  Task<void> close() { return managers_.close(); }

 private:
  Task<Result<void>> ask();

  Loop& loop_;
  ManagerClient managers_;
  const std::function<void()> changed_;
  Routing routing_;
  Event asked_;
  std::optional<Error> trouble_;
};

}  // namespace ff::cluster
