// What the cluster manager keeps in the KV store, and its lease there. Ids and versions are 64-bit
// big-endian, so that they sort as numbers; values are messages of cluster.proto.
//
//   CONF "cluster"          Cluster: its id, the routing version; put by every change
//   LEAS "cluster"          Lease of the primary
//   CONF "fill"             Fill: how full disks are, now and then
//   NODE id                 Node            CHAN id    Chain
//   TABL id version         Table           CONF "loss" chain version    Loss
//   NODE, CHAN, TABL, CONF "loss"           guards of these ranges (kv::Txn::range)
//
// Every write checks in its own transaction that the lease still has the writer's epoch: a primary
// that was deposed, and does not know it yet, can write nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/task.h"
#include "platform/kv/engine.h"
#include "storage/cluster/fill.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

struct Lease {
  uint64_t epoch = 0;       // 0: nobody has ever held it
  uint64_t renewal = 0;     // grows within an epoch
  std::string holder = {};  // its address; empty: given up
  uint64_t token = 0;       // of the holder's process
  bool operator==(const Lease&) const = default;
};

struct Stored {
  std::optional<Routing> routing = {};  // nothing: no cluster yet
  std::vector<Loss> losses = {};
};

// Deadlines: steady. Errors beside those named: kv::Engine's; a write may then have been made.
class Store {
 public:
  explicit Store(kv::Engine& engine) : engine_(engine) {}

  Task<Result<Lease>> lease(int64_t deadline_ns);
  // The next epoch, for `holder`, if the lease is still as it was `seen`. Errc::exists: it is not.
  Task<Result<Lease>> take(Lease seen, std::string holder, uint64_t token, int64_t deadline_ns);
  // Of all of these: Errc::refused: deposed.
  Task<Result<Lease>> renew(Lease held, int64_t deadline_ns);
  Task<Result<void>> give_up(Lease held, int64_t deadline_ns);
  // Errc::exists: there is a cluster already.
  Task<Result<void>> init(Lease held, std::string cluster, int64_t deadline_ns);
  Task<Result<void>> write(Lease held, Proposal proposal, int64_t deadline_ns);

  Task<Result<void>> keep_fill(Lease held, Fill fill, int64_t deadline_ns);

  Task<Result<Stored>> load(int64_t deadline_ns);
  Task<Result<Fill>> fill(int64_t deadline_ns);
  // Of the routing; 0: no cluster yet.
  Task<Result<uint64_t>> version(int64_t deadline_ns);

 private:
  Task<Result<Lease>> change(Lease expected, Lease next, int64_t deadline_ns);
  Task<Result<void>> run_held(Lease held, kv::Function function, int64_t deadline_ns);

  kv::Engine& engine_;
};

}  // namespace ff::cluster
