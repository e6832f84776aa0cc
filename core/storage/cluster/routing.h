// Routing: which nodes there are, which targets lie on them, which chains the targets form and in
// which state each is (storage.md, "Objects"). Managers keep it in the KV store; nodes and clients
// hold copies and learn of changes by `version`: whoever holds version k asks for what has changed
// since. Nothing is ever removed, so the records changed since k are the whole difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"

namespace ff::cluster {

using NodeId = uint64_t;    // chosen by the node once, kept on its disks; not 0
using DiskId = uint64_t;    // the same; unique within its node
using TargetId = uint64_t;  // given by the manager
using ChainId = uint64_t;   // given by the manager
using TableId = uint64_t;   // chosen by the operator

// Every member of a cluster must hold all of it in memory and send it in a few messages.
constexpr size_t kNodesMax = 4096;
constexpr size_t kDisksMax = 256;   // of a node
constexpr size_t kReplicasMax = 8;  // targets of a chain
constexpr size_t kChainsMax = 100'000;
constexpr size_t kTextMax = 256;      // names, paths, addresses; bytes
constexpr size_t kAddressesMax = 16;  // of a node

// What everybody knows of a target, in the order in which a chain has its targets. The numbers are
// on disk and on the wire.
enum class State : uint8_t {
  serving = 1,  // holds all that was acknowledged; reads and writes
  lastsrv = 2,  // the last that served, gone: the chain waits for it
  syncing = 3,  // written to, and copied to, by its predecessor
  waiting = 4,  // alive, until its predecessor can copy
  offline = 5,
};
// What its own node says of it.
enum class Local : uint8_t {
  uptodate = 1,  // serves, or has been copied in full under the chain version it reports
  online = 2,    // alive, may lack data
  offline = 3,   // serves nothing
};
std::string_view name_of(State state);
std::string_view name_of(Local local);

struct Target {
  TargetId id = 0;
  NodeId node = 0;
  DiskId disk = 0;
  State state = State::offline;
  bool created = false;   // its node has made it: never again, for an empty one would lose data
  bool draining = false;  // the operator wants it out
  bool stop = false;      // its node is to stop it and report it offline
  // What it had when it last left: all that was acknowledged under chain versions up to `held` (0:
  // it was never complete), and some of what came up to `wrote`. A target that serves has all.
  uint64_t held = 0;
  uint64_t wrote = 0;
  uint64_t chunks = 0;  // as its node told then
  uint64_t bytes = 0;
  bool operator==(const Target&) const = default;
};

// A replica that was left behind when another was promoted in the place of data that is lost
// (Manager::accept_loss). Its node keeps it as it is; nothing is copied to it.
struct SetAside {
  TargetId target = 0;
  NodeId node = 0;
  DiskId disk = 0;
  uint64_t held = 0;  // as Target's
  uint64_t wrote = 0;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  int64_t wall_ns = 0;      // since when
  uint64_t changed = 0;     // the routing version that set it aside
  bool dropped = false;     // its node is to remove it
  uint64_t lost_below = 0;  // Chain's, before
  bool operator==(const SetAside&) const = default;
};

struct Chain {
  ChainId id = 0;
  uint64_t version = 0;  // grows with every change of the targets
  std::vector<Target> targets = {};
  uint64_t changed = 0;  // the routing version that brought this record
  std::vector<SetAside> aside = {};
  // A target that was not complete was promoted: a chunk that is not there, of an inode below this,
  // is missing, not a hole. 0: nothing is known to be missing.
  uint64_t lost_below = 0;
  uint64_t lost_version = 0;  // the chain version that last gave up data; 0: none has
  bool operator==(const Chain&) const = default;
};

struct Disk {
  DiskId id = 0;
  std::string path = {};
  uint64_t capacity = 0;  // bytes
  bool operator==(const Disk&) const = default;
};

struct Node {
  NodeId id = 0;
  std::string name = {};    // for people
  uint64_t generation = 0;  // of its process, grows with each start
  std::vector<std::string> addresses = {};
  std::string domain = {};  // what fails as one: a rack, a host; empty: the node itself
  std::vector<Disk> disks = {};
  bool draining = false;
  uint64_t changed = 0;
  bool operator==(const Node&) const = default;
};

// Files name table and version, so a version never changes.
struct Table {
  TableId id = 0;
  uint64_t version = 0;
  std::vector<ChainId> chains = {};
  uint64_t changed = 0;
  bool operator==(const Table&) const = default;
};
using TableKey = std::pair<TableId, uint64_t>;

// Records as they are now, for whoever holds version `since`. Their `changed` is in (since, to].
struct Changes {
  std::string cluster = {};
  uint64_t since = 0;
  uint64_t to = 0;
  bool complete = true;  // `to` is the newest version; else the rest is asked for
  std::vector<Node> nodes = {};
  std::vector<Chain> chains = {};
  std::vector<Table> tables = {};
  size_t size() const { return nodes.size() + chains.size() + tables.size(); }
};

struct Routing {
  std::string cluster = {};  // the cluster's id; empty: belongs to none yet
  uint64_t version = 0;      // raised by every change of anything
  std::map<NodeId, Node> nodes = {};
  std::map<ChainId, Chain> chains = {};
  std::map<TableKey, Table> tables = {};

  const Node* node(NodeId id) const;
  const Chain* chain(ChainId id) const;
  // The newest version.
  const Table* table(TableId id) const;
  // At most about `bytes` of messages, but at least one version.
  Changes since(uint64_t known, size_t bytes) const;
  // Errc::refused, and nothing is changed: of another cluster, not newer, or behind a gap.
  Result<void> apply(const Changes& changes);
};

// An upper estimate of the bytes that a record takes in a message.
size_t message_bytes(const Node& node);

// Null when the chain has no such target.
const Target* find_target(const Chain& chain, TargetId id);
inline Target* find_target(Chain& chain, TargetId id) {
  return const_cast<Target*>(find_target(std::as_const(chain), id));
}
const SetAside* find_aside(const Chain& chain, TargetId id);

}  // namespace ff::cluster
