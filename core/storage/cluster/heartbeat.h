// Heartbeat of a node to the manager, and its response. A response extends the lease of the node
// (timing.h), counted from the sending of the heartbeat, and only once the node has applied the
// routing in the response.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/cluster/routing.h"

namespace ff::cluster {

// Size of the data of a target.
struct TargetSize {
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t last_inode = 0;  // highest inode of its chunks
  bool operator==(const TargetSize&) const = default;
};

struct TargetReport {
  TargetId target = 0;
  ChainId chain = 0;
  LocalTargetState local = LocalTargetState::offline;
  uint64_t chain_version = 0;  // chain version of this report; the node confirms that version
  uint64_t copied = 0;         // bytes copied so far, and in total
  uint64_t to_copy = 0;
  std::optional<TargetSize> size = {};
  bool operator==(const TargetReport&) const = default;
};

// Target `from` gets no response from its successor `to`.
struct UnreachableTarget {
  ChainId chain = 0;
  uint64_t chain_version = 0;
  TargetId from = 0;
  TargetId to = 0;
  auto operator<=>(const UnreachableTarget&) const = default;
};

// Disk errors are reported here; the affected targets are reported offline.
struct DiskUsage {
  DiskId disk = 0;
  uint64_t used = 0;       // bytes
  std::string error = {};  // empty: none
  bool operator==(const DiskUsage&) const = default;
};

struct Heartbeat {
  std::string cluster = {};  // empty: the node belongs to none yet
  NodeInfo node = {};        // `draining` and `changed` are ignored
  uint64_t sequence = 0;     // increasing; an older heartbeat is refused
  uint64_t routing_version = 0;
  std::vector<TargetReport> targets = {};  // all targets of the node; empty after its start
  std::vector<DiskUsage> disks = {};
  std::vector<UnreachableTarget> unreachable = {};
};

// The chain version that all serving predecessors of a target have confirmed. A target that has
// become serving answers reads only once all predecessors know that: one further up the chain may
// still consider itself the tail, and return data that others no longer return.
struct Predecessor {
  TargetId target = 0;
  uint64_t confirmed_version = 0;
  bool operator==(const Predecessor&) const = default;
};

struct HeartbeatResponse {
  RoutingDelta changes = {};  // since the routing version of the heartbeat
  std::vector<Predecessor> predecessors =
      {};  // for each serving target of the node that is no head
};

}  // namespace ff::cluster
