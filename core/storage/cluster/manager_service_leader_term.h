// One term of a manager as primary: its lease, its decisions, and the calls that wait for it.
// Created when the lease is acquired, ended when it is lost; calls in progress keep it alive and
// see that it is over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "platform/base/wait.h"
#include "storage/cluster/adoption.h"
#include "storage/cluster/cluster_store.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/manager_service.h"

namespace ff::cluster {

// Error of every call except init while there is no cluster.
Error no_cluster();

struct ManagerService::LeaderTerm {
  LeaderTerm(Loop& loop, LeaderLease held, int64_t until)
      : lease(std::move(held)),
        since_ns(loop.now_ns()),
        lease_until_ns(until),
        write_lock(loop, 1),
        changed(loop),
        published(loop),
        ended(loop) {}

  // Ends the term for any reason; later calls get no response.
  void end() {
    over = true;
    changed.set();
    published.set();
    ended.set();
  }
  // Responses for operators and users.
  wire::StatusReply status(int64_t now_ns) const;
  wire::SpaceReply space() const;

  LeaderLease lease;
  const int64_t since_ns;
  int64_t lease_until_ns;  // steady clock of this machine
  bool over = false;
  std::optional<Manager> manager;  // nothing: no cluster yet
  Adoption adoption;               // used while the manager has halted
  std::vector<DataLoss> losses;
  DiskUtilization utilization;         // as saved in the store
  int64_t utilization_ns = INT64_MIN;  // time of the last check
  Semaphore write_lock;                // held from the decision to the storing of a change
  Event changed;                       // set when a report may cause a change
  Event published;                     // pulsed after each published change
  Event ended;
};

}  // namespace ff::cluster
