// A client's copy of the routing, kept up to date from the managers. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "platform/base/wait.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

// Fetches the next page of changes and applies it, once the keyring has tickets for its nodes
// (null: no key); returns whether it was the last one. Errors: those of the managers, and refused
// (Routing::apply).
Task<Result<bool>> fetch_routing_page(ManagerClient& managers, Routing& routing,
                                      auth::Keyring* keyring, int64_t now_s, int64_t try_ns,
                                      int64_t deadline_ns);

class RoutingCache {
 public:
  // `changed` is called after every update.
  RoutingCache(rpc::ClientContext& context, const std::vector<net::Address>& managers,
               std::function<void()> changed);

  const Routing& routing() const { return routing_; }
  // Fetches changes periodically, and after refresh(). Runs until cancelled. Call once.
  Task<void> run();
  // Call when a response says that the routing is outdated.
  void refresh() { refresh_requested_.set(); }
  // Error of the last attempt; nothing when it succeeded.
  const std::optional<Error>& last_error() const { return last_error_; }
  Task<void> close() { return managers_.close(); }

 private:
  Task<Result<void>> fetch();

  Loop& loop_;
  auth::Keyring* const keyring_;
  ManagerClient managers_;
  const std::function<void()> changed_;
  Routing routing_;
  Event refresh_requested_;
  std::optional<Error> last_error_;
};

}  // namespace ff::cluster
