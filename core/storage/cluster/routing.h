// Routing: the nodes, the targets on them, the chains of targets, and the state of each target
// (storage.md, "Objects"). Managers store it in the KV store; nodes and clients keep copies and
// follow it by `version`: a holder of version k requests the records changed since k. Records are
// never removed, so these are the complete difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::cluster {

using NodeId = uint64_t;    // chosen by the node, stored on its disks; never 0
using DiskId = uint64_t;    // likewise; unique within its node
using TargetId = uint64_t;  // given by the manager
using ChainId = uint64_t;   // given by the manager
using TableId = uint64_t;   // chosen by the operator

// Limits: every member keeps all of it in memory and transfers it in a few messages.
constexpr size_t kNodesMax = 4096;
constexpr size_t kDisksMax = 256;   // of a node
constexpr size_t kReplicasMax = 8;  // per chain
constexpr size_t kChainsMax = 100'000;
constexpr size_t kTextMax = 256;      // maximum length of names, paths and addresses in bytes
constexpr size_t kAddressesMax = 16;  // of a node

// Public state of a target (3FS: public state), in the order of the targets in a chain. The numbers
// are stored and transmitted.
enum class TargetState : uint8_t {
  serving = 1,  // has all acknowledged data; reads and writes
  lastsrv = 2,  // last serving target, now gone: the chain waits for it
  syncing = 3,  // receives updates and copies from its predecessor; no reads
  waiting = 4,  // alive, waits until its predecessor can copy to it
  offline = 5,
};
// Local state, as reported by its node (3FS: local state).
enum class LocalTargetState : uint8_t {
  uptodate = 1,  // serves, or is copied completely under the reported chain version
  online = 2,    // alive, may lack data
  offline = 3,   // not usable
};
std::string_view name_of(TargetState state);
std::string_view name_of(LocalTargetState local);

struct Target {
  TargetId id = 0;
  NodeId node = 0;
  DiskId disk = 0;
  TargetState state = TargetState::offline;
  bool created = false;   // its node has created it; it is never created again, since an empty one
                          // would lose data
  bool draining = false;  // being drained by the operator
  bool stop = false;      // its node must stop it and report it offline
  // Data it had when it last left the chain: everything acknowledged under chain versions up to
  // `complete_version` (0: it was never complete), and part of the data up to `written_version`. A
  // serving target has everything.
  uint64_t complete_version = 0;
  uint64_t written_version = 0;
  uint64_t chunks = 0;  // as reported then
  uint64_t bytes = 0;
  bool operator==(const Target&) const = default;
};

// A replica that was set aside when another one was promoted after a data loss
// (Manager::accept_loss). Its node keeps it unchanged; nothing is copied to it.
struct SetAside {
  TargetId target = 0;
  NodeId node = 0;
  DiskId disk = 0;
  uint64_t complete_version = 0;  // as in Target
  uint64_t written_version = 0;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  int64_t wall_ns = 0;         // time of the decision (wall clock)
  uint64_t changed = 0;        // routing version that set it aside
  bool dropped = false;        // its node must remove it
  uint64_t missing_below = 0;  // Chain::missing_below before the decision
  bool operator==(const SetAside&) const = default;
};

struct Chain {
  ChainId id = 0;
  uint64_t version = 0;  // incremented by every change of the targets
  std::vector<Target> targets = {};
  uint64_t changed = 0;  // routing version of this record
  std::vector<SetAside> aside = {};
  // After the promotion of an incomplete target: an absent chunk of an inode below this is missing,
  // not a hole. 0: nothing is known to be missing.
  uint64_t missing_below = 0;
  uint64_t lost_version = 0;  // last chain version that gave up data; 0: none
  bool operator==(const Chain&) const = default;
};

struct DiskInfo {
  DiskId id = 0;
  std::string path = {};
  uint64_t capacity = 0;  // bytes
  // The shard of the daemon that owns the disk (chain/storage_shard.h); nothing: it has no shards.
  std::optional<uint32_t> shard = {};
  bool operator==(const DiskInfo&) const = default;
};

struct NodeInfo {
  NodeId id = 0;
  std::string name = {};    // for display
  uint64_t generation = 0;  // increases with each start of its process
  std::vector<std::string> addresses = {};
  std::string domain = {};  // failure domain, such as a rack or a host; empty: the node itself
  std::vector<DiskInfo> disks = {};
  bool draining = false;
  uint64_t changed = 0;
  std::string identity = {};  // of the key of its daemon (auth/entity.h); empty: it has none
  bool operator==(const NodeInfo&) const = default;
};

// Files reference table and version, so a version never changes.
struct ChainTable {
  TableId id = 0;
  uint64_t version = 0;
  std::vector<ChainId> chains = {};
  uint64_t changed = 0;
  bool operator==(const ChainTable&) const = default;
};
using TableKey = std::pair<TableId, uint64_t>;

// Difference of two routing versions: the current state of all records whose `changed` is in
// (since, to].
struct RoutingDelta {
  std::string cluster = {};
  uint64_t since = 0;
  uint64_t to = 0;
  bool complete = true;  // false: request the rest from `to` on
  std::vector<NodeInfo> nodes = {};
  std::vector<Chain> chains = {};
  std::vector<ChainTable> tables = {};
  size_t size() const { return nodes.size() + chains.size() + tables.size(); }
};

struct Routing {
  std::string cluster = {};  // cluster id; empty: none yet
  uint64_t version = 0;      // incremented by every change
  std::map<NodeId, NodeInfo> nodes = {};
  std::map<ChainId, Chain> chains = {};
  std::map<TableKey, ChainTable> tables = {};

  const NodeInfo* node(NodeId id) const;
  const Chain* chain(ChainId id) const;
  // The newest version of the table.
  const ChainTable* table(TableId id) const;
  // Changes since version `known`: at most about `bytes` of message size, but at least one version.
  RoutingDelta delta_since(uint64_t known, size_t bytes) const;
  // Errc::refused, without any change: another cluster, not newer, or a gap between the versions.
  Result<void> apply(const RoutingDelta& changes);
};

// Upper bound of the message size of a record in bytes.
size_t message_bytes(const NodeInfo& node);

// Null when the chain has no such target.
const Target* find_target(const Chain& chain, TargetId id);
inline Target* find_target(Chain& chain, TargetId id) {
  return const_cast<Target*>(find_target(std::as_const(chain), id));
}
const SetAside* find_set_aside(const Chain& chain, TargetId id);

}  // namespace ff::cluster
