// Tickets: the keys with which a client proves itself to storage nodes. It asks a manager for them
// when it learns of a node, and again before they end (auth/keyring.h).
#pragma once

#include <cstdint>
#include <vector>

#include "platform/auth/keyring.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

// The service as which clients know the node: without a name if its daemon has no key.
auth::Service service_of(const NodeInfo& node);
// The entity of the node's daemon; empty without a key.
std::optional<auth::Entity> entity_of(const NodeInfo& node);

// Fetches the tickets that `keyring` lacks for these nodes. Null: the process has no key.
Task<Result<void>> fetch_tickets(ManagerClient& managers, auth::Keyring* keyring,
                                 std::vector<const NodeInfo*> nodes, int64_t now_s, int64_t try_ns,
                                 int64_t deadline_ns);

}  // namespace ff::cluster
