// What a node tells the manager every second, and what it is told. An answered heartbeat is the
// node's leave to serve (timing.h), counted from when it was sent, and only once the node holds the
// routing that the answer brings.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/cluster/routing.h"

namespace ff::cluster {

// How much a target holds.
struct Size {
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t last_inode = 0;  // of its chunks, the highest
  bool operator==(const Size&) const = default;
};

struct TargetReport {
  TargetId target = 0;
  ChainId chain = 0;
  Local local = Local::offline;
  uint64_t chain_version = 0;  // under which this holds; so the node has confirmed that version
  uint64_t copied = 0;         // bytes of the copy under way, and of all of it
  uint64_t to_copy = 0;
  std::optional<Size> size = {};
  bool operator==(const TargetReport&) const = default;
};

// The first target has called the one after it for a while, and was not answered.
struct Unreachable {
  ChainId chain = 0;
  uint64_t chain_version = 0;
  TargetId from = 0;
  TargetId to = 0;
  auto operator<=>(const Unreachable&) const = default;
};

// Errors of a disk go here: the targets it takes down are reported offline.
struct DiskUse {
  DiskId disk = 0;
  uint64_t used = 0;         // bytes
  std::string trouble = {};  // empty: none
  bool operator==(const DiskUse&) const = default;
};

struct Heartbeat {
  std::string cluster = {};  // empty: the node belongs to none yet
  Node node = {};            // `draining` and `changed` mean nothing
  uint64_t sequence = 0;     // grows; a report that was overtaken is refused
  uint64_t routing_version = 0;
  std::vector<TargetReport> targets = {};  // all that the node has, or none: it has just started
  std::vector<DiskUse> disks = {};
  std::vector<Unreachable> unreachable = {};
};

// The chain version that all targets which serve before this one have confirmed. A target that has
// become serving answers reads only once they all know: the nearest alone is not enough, for one
// further ahead may still take itself for the last, and read what others no longer do.
struct Predecessor {
  TargetId target = 0;
  uint64_t confirmed = 0;
  bool operator==(const Predecessor&) const = default;
};

struct HeartbeatAnswer {
  Changes changes = {};                        // since the heartbeat's routing version
  std::vector<Predecessor> predecessors = {};  // for each of the node's serving targets but heads
};

}  // namespace ff::cluster
