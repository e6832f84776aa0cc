// routing.cc: what has changed since a version, and taking such changes over.
#include "storage/cluster/routing.h"

#include <algorithm>

namespace ff::cluster {

namespace {

constexpr size_t kNumberBytes = 11;  // a 64-bit varint and its tag

size_t message_bytes(const Chain& chain) {
  return 6 * kNumberBytes + 9 * kNumberBytes * chain.targets.size() +
         12 * kNumberBytes * chain.aside.size();
}
size_t message_bytes(const Table& table) {
  return 4 * kNumberBytes + kNumberBytes * table.chains.size();
}

template <class Records>
void measure(const Records& records, uint64_t known, std::map<uint64_t, size_t>& bytes) {
  for (const auto& [id, record] : records) {
    if (record.changed > known) bytes[record.changed] += message_bytes(record);
  }
}

template <class Records, class Record>
void pick(const Records& records, const Changes& changes, std::vector<Record>& out) {
  for (const auto& [id, record] : records) {
    if (record.changed > changes.since && record.changed <= changes.to) out.push_back(record);
  }
}

}  // namespace

size_t message_bytes(const Node& node) {
  size_t bytes = 8 * kNumberBytes + node.name.size() + node.domain.size();
  for (const std::string& address : node.addresses) bytes += kNumberBytes + address.size();
  for (const Disk& disk : node.disks) bytes += 4 * kNumberBytes + disk.path.size();
  return bytes;
}

std::string_view name_of(State state) {
  switch (state) {
    case State::serving: return "serving";
    case State::lastsrv: return "lastsrv";
    case State::syncing: return "syncing";
    case State::waiting: return "waiting";
    case State::offline: return "offline";
  }
  return "unknown";
}

std::string_view name_of(Local local) {
  switch (local) {
    case Local::uptodate: return "uptodate";
    case Local::online: return "online";
    case Local::offline: return "offline";
  }
  return "unknown";
}

const Node* Routing::node(NodeId id) const {
  const auto found = nodes.find(id);
  return found == nodes.end() ? nullptr : &found->second;
}

const Chain* Routing::chain(ChainId id) const {
  const auto found = chains.find(id);
  return found == chains.end() ? nullptr : &found->second;
}

const Table* Routing::table(TableId id) const {
  const auto behind = tables.upper_bound({id, UINT64_MAX});
  if (behind == tables.begin()) return nullptr;
  const Table& last = std::prev(behind)->second;
  return last.id == id ? &last : nullptr;
}

Changes Routing::since(uint64_t known, size_t bytes) const {
  Changes changes{.cluster = cluster, .since = known, .to = std::max(known, version)};
  if (known >= version) return changes;  // nearly every heartbeat: not all records for nothing
  std::map<uint64_t, size_t> by_version;
  measure(nodes, known, by_version);
  measure(chains, known, by_version);
  measure(tables, known, by_version);
  size_t total = 0;
  uint64_t last = 0;  // that still fits
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

Result<void> Routing::apply(const Changes& changes) {
  if (!cluster.empty() && changes.cluster != cluster) {
    return fail(Errc::refused, "routing of cluster {}, but this belongs to cluster {}",
                changes.cluster, cluster);
  }
  if (changes.since > version || changes.to < version) {
    return fail(Errc::refused, "routing {} to {}, but this holds {}", changes.since, changes.to,
                version);
  }
  cluster = changes.cluster;
  version = changes.to;
  for (const Node& node : changes.nodes) nodes[node.id] = node;
  for (const Chain& chain : changes.chains) {
    Chain& own = chains[chain.id];
    if (chain.version >= own.version) own = chain;
  }
  for (const Table& table : changes.tables) tables[{table.id, table.version}] = table;
  return {};
}

const Target* find_target(const Chain& chain, TargetId id) {
  const auto found =
      std::ranges::find_if(chain.targets, [id](const Target& target) { return target.id == id; });
  return found == chain.targets.end() ? nullptr : &*found;
}

const SetAside* find_aside(const Chain& chain, TargetId id) {
  const auto found = std::ranges::find(chain.aside, id, &SetAside::target);
  return found == chain.aside.end() ? nullptr : &*found;
}

}  // namespace ff::cluster
