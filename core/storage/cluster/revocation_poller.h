// Keeps the revocations of a server current that is no member of the cluster and sends no
// heartbeats, such as a scheduler: asks the managers for them again and again.
#pragma once

#include <vector>

#include "platform/auth/keyring.h"
#include "platform/base/gate.h"
#include "storage/cluster/manager_client.h"

namespace ff::cluster {

class RevocationPoller {
 public:
  // The role of this process must be one of auth::kOperators. `keyring`: of this process. Both
  // outlive it.
  RevocationPoller(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                   auth::Keyring& keyring)
      : loop_(context.loop), keyring_(keyring), managers_(context, managers), gate_(loop_) {}

  void start() { gate_.spawn(run()); }
  Task<void> close();

 private:
  Task<void> run();

  Loop& loop_;
  auth::Keyring& keyring_;
  ManagerClient managers_;
  Gate gate_;
};

}  // namespace ff::cluster
