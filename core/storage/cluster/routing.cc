// routing.cc: computing and applying deltas.
#include "storage/cluster/routing.h"

#include <algorithm>

namespace ff::cluster {

namespace {

constexpr size_t kNumberBytes = 11;  // 64-bit varint with its tag

size_t message_bytes(const Chain& chain) {
  return 6 * kNumberBytes + 9 * kNumberBytes * chain.targets.size() +
         12 * kNumberBytes * chain.aside.size();
}
size_t message_bytes(const ChainTable& table) {
  return 4 * kNumberBytes + kNumberBytes * table.chains.size();
}

template <class Records>
void measure(const Records& records, uint64_t known, std::map<uint64_t, size_t>& bytes) {
  for (const auto& [id, record] : records) {
    if (record.changed > known) bytes[record.changed] += message_bytes(record);
  }
}

template <class Records, class Record>
void pick(const Records& records, const RoutingDelta& changes, std::vector<Record>& out) {
  for (const auto& [id, record] : records) {
    if (record.changed > changes.since && record.changed <= changes.to) out.push_back(record);
  }
}

}  // namespace

size_t message_bytes(const NodeInfo& node) {
  size_t bytes = 8 * kNumberBytes + node.name.size() + node.domain.size();
  for (const std::string& address : node.addresses) bytes += kNumberBytes + address.size();
  for (const DiskInfo& disk : node.disks) bytes += 4 * kNumberBytes + disk.path.size();
  return bytes;
}

std::string_view name_of(TargetState state) {
  switch (state) {
    case TargetState::serving: return "serving";
    case TargetState::lastsrv: return "lastsrv";
    case TargetState::syncing: return "syncing";
    case TargetState::waiting: return "waiting";
    case TargetState::offline: return "offline";
  }
  return "unknown";
}

std::string_view name_of(LocalTargetState local) {
  switch (local) {
    case LocalTargetState::uptodate: return "uptodate";
    case LocalTargetState::online: return "online";
    case LocalTargetState::offline: return "offline";
  }
  return "unknown";
}

const NodeInfo* Routing::node(NodeId id) const {
  const auto found = nodes.find(id);
  return found == nodes.end() ? nullptr : &found->second;
}

const Chain* Routing::chain(ChainId id) const {
  const auto found = chains.find(id);
  return found == chains.end() ? nullptr : &found->second;
}

const ChainTable* Routing::table(TableId id) const {
  const auto behind = tables.upper_bound({id, UINT64_MAX});
  if (behind == tables.begin()) return nullptr;
  const ChainTable& last = std::prev(behind)->second;
  return last.id == id ? &last : nullptr;
}

RoutingDelta Routing::delta_since(uint64_t known, size_t bytes) const {
  RoutingDelta changes{.cluster = cluster, .since = known, .to = std::max(known, version)};
  if (known >= version) return changes;  // the common case: avoids a scan of all records
  std::map<uint64_t, size_t> by_version;
  measure(nodes, known, by_version);
  measure(chains, known, by_version);
  measure(tables, known, by_version);
  size_t total = 0;
  uint64_t last = 0;  // last version that fits
  for (const auto& [at, size] : by_version) {
    total += size;
    if (last != 0 && total > bytes) {
      changes.to = last;
      changes.complete = false;
      break;
    }
    last = at;
  }
  pick(nodes, changes, changes.nodes);
  pick(chains, changes, changes.chains);
  pick(tables, changes, changes.tables);
  return changes;
}

Result<void> Routing::apply(const RoutingDelta& changes) {
  if (!cluster.empty() && changes.cluster != cluster) {
    return fail(Errc::refused, "routing is of cluster {}, but this process belongs to cluster {}",
                changes.cluster, cluster);
  }
  if (changes.since > version || changes.to < version) {
    return fail(Errc::refused, "cannot apply routing changes {} to {} to version {}", changes.since,
                changes.to, version);
  }
  cluster = changes.cluster;
  version = changes.to;
  for (const NodeInfo& node : changes.nodes) nodes[node.id] = node;
  for (const Chain& chain : changes.chains) {
    Chain& own = chains[chain.id];
    if (chain.version >= own.version) own = chain;
  }
  for (const ChainTable& table : changes.tables) tables[{table.id, table.version}] = table;
  return {};
}

const Target* find_target(const Chain& chain, TargetId id) {
  const auto found =
      std::ranges::find_if(chain.targets, [id](const Target& target) { return target.id == id; });
  return found == chain.targets.end() ? nullptr : &*found;
}

const SetAside* find_set_aside(const Chain& chain, TargetId id) {
  const auto found = std::ranges::find(chain.aside, id, &SetAside::target);
  return found == chain.aside.end() ? nullptr : &*found;
}

}  // namespace ff::cluster
