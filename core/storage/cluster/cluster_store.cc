// cluster_store.cc: keys, and transactions that are idempotent because they may run more than once.
#include "storage/cluster/cluster_store.h"

#include <fmt/format.h>

#include <utility>

#include "platform/kv/backup.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

constexpr char kClusterKey[] = "CONFcluster";
constexpr char kUtilizationKey[] = "CONFfill";
constexpr char kLeaseKey[] = "LEAScluster";
constexpr char kNodes[] = "NODE";
constexpr char kChains[] = "CHAN";
constexpr char kTables[] = "TABL";
constexpr char kLosses[] = "CONFloss";

// Records per page: some hundred kilobytes of chains.
constexpr size_t kPage = 4096;

std::string key_of(std::string_view prefix, std::initializer_list<uint64_t> numbers) {
  std::string key(prefix);
  for (const uint64_t number : numbers) append_be(key, number);
  return key;
}

template <class Message>
Result<Message> read_message(std::string_view what, const std::string& bytes) {
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return fail(Errc::corrupt, "the cluster database has a malformed {} record", what);
}

wire::Lease to_wire(const LeaderLease& lease) {
  wire::Lease out;
  out.set_epoch(lease.epoch);
  out.set_renewal(lease.renewal);
  out.set_holder(lease.holder);
  out.set_token(lease.token);
  return out;
}

Task<Result<LeaderLease>> get_lease(kv::Txn& txn) {
  FF_CO_TRY(const auto value, co_await txn.get(kLeaseKey));
  if (!value) co_return LeaderLease();
  FF_CO_TRY(const auto message, read_message<wire::Lease>("lease", *value));
  LeaderLease lease{.epoch = message.epoch(),
                    .renewal = message.renewal(),
                    .holder = message.holder(),
                    .token = message.token()};
  co_return lease;
}

// Reads all records whose keys are the prefix and 64-bit numbers, and passes each to `take`:
// Result<void>(Message).
template <class Message, class Take>
Task<Result<void>> read_all(kv::Txn& txn, std::string prefix, std::string_view what, Take take) {
  // The prefix itself is the key of the guard.
  kv::Range range{
      .begin = prefix + std::string(1, '\0'), .end = kv::end_of_prefix(prefix), .limit = kPage};
  for (;;) {
    FF_CO_TRY(const auto page, co_await txn.range(range, prefix));
    for (const kv::Entry& entry : page) {
      FF_CO_TRY(const auto message, read_message<Message>(what, entry.value));
      FF_CO_TRY(take(message));
    }
    if (page.size() < kPage) co_return Result<void>();
    range.begin = page.back().key + std::string(1, '\0');
  }
}

Task<Result<StoredCluster>> read_cluster(kv::Txn& txn) {
  StoredCluster stored;
  FF_CO_TRY(const auto mark, co_await txn.get(kv::kRestoring));
  if (mark) {
    Error error = fail(Errc::refused, "a restore into this store is incomplete");
    error.hint = "Repeat it: ff admin restore.";
    co_return error;
  }
  FF_CO_TRY(const auto value, co_await txn.get(kClusterKey));
  if (!value) co_return stored;
  FF_CO_TRY(const auto cluster, read_message<wire::Cluster>("cluster", *value));
  Routing routing;
  routing.cluster = cluster.id();
  routing.version = cluster.version();
  auto nodes = read_all<wire::Node>(txn, kNodes, "node", [&](const auto& node) -> Result<void> {
    FF_TRY(routing.nodes[node.id()], from_wire(node));
    return {};
  });
  FF_CO_TRY(co_await std::move(nodes));
  auto chains =
      read_all<wire::Chain>(txn, kChains, "chain", [&](const auto& chain) -> Result<void> {
        FF_TRY(routing.chains[chain.id()], from_wire(chain));
        return {};
      });
  FF_CO_TRY(co_await std::move(chains));
  auto tables =
      read_all<wire::Table>(txn, kTables, "chain table", [&](const auto& table) -> Result<void> {
        routing.tables[{table.id(), table.version()}] = from_wire(table);
        return {};
      });
  FF_CO_TRY(co_await std::move(tables));
  auto losses = read_all<wire::Loss>(txn, kLosses, "loss", [&](const auto& loss) -> Result<void> {
    stored.losses.push_back(from_wire(loss));
    return {};
  });
  FF_CO_TRY(co_await std::move(losses));
  stored.routing = std::move(routing);
  co_return stored;
}

void put_cluster(kv::Txn& txn, const std::string& id, uint64_t version) {
  wire::Cluster cluster;
  cluster.set_id(id);
  cluster.set_version(version);
  txn.put(kClusterKey, cluster.SerializeAsString());
}

void put_proposal(kv::Txn& txn, const Proposal& proposal) {
  const RoutingDelta& changes = proposal.changes;
  put_cluster(txn, changes.cluster, changes.to);
  for (const NodeInfo& node : changes.nodes) {
    txn.put(key_of(kNodes, {node.id}), to_wire(node).SerializeAsString());
  }
  for (const Chain& chain : changes.chains) {
    txn.put(key_of(kChains, {chain.id}), to_wire(chain).SerializeAsString());
  }
  for (const ChainTable& table : changes.tables) {
    txn.put(key_of(kTables, {table.id, table.version}), to_wire(table).SerializeAsString());
  }
  if (!changes.nodes.empty()) txn.put(kNodes, "");
  if (!changes.chains.empty()) txn.put(kChains, "");
  if (!changes.tables.empty()) txn.put(kTables, "");
  if (!proposal.loss) return;
  const DataLoss& loss = *proposal.loss;
  txn.put(key_of(kLosses, {loss.chain, loss.version}), to_wire(loss).SerializeAsString());
  txn.put(kLosses, "");
}

Error deposed(const LeaderLease& held, const LeaderLease& now) {
  return fail(Errc::refused, "this manager was primary in epoch {}, but {} is primary in epoch {}",
              held.epoch, now.holder.empty() ? "nobody" : now.holder, now.epoch);
}

}  // namespace

Task<Result<LeaderLease>> ClusterStore::read_lease(int64_t deadline_ns) {
  LeaderLease lease;
  kv::TxnFunction function = [&lease](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(lease, co_await get_lease(txn));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline_ns));
  co_return lease;
}

// Replaces `expected` by `next`. Finding `next` already means that an earlier response was lost.
Task<Result<LeaderLease>> ClusterStore::swap_lease(LeaderLease expected, LeaderLease next,
                                                   int64_t deadline_ns) {
  LeaderLease found;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(found, co_await get_lease(txn));
    if (found == next) co_return Result<void>();
    if (found != expected) co_return deposed(expected, found);
    txn.put(kLeaseKey, to_wire(next).SerializeAsString());
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), deadline_ns));
  co_return next;
}

Task<Result<LeaderLease>> ClusterStore::acquire_lease(LeaderLease seen, std::string holder,
                                                      uint64_t token, int64_t deadline_ns) {
  LeaderLease next{
      .epoch = seen.epoch + 1, .renewal = 1, .holder = std::move(holder), .token = token};
  auto taken = co_await swap_lease(std::move(seen), std::move(next), deadline_ns);
  if (!taken && taken.error().code == Errc::refused) taken.error().code = Errc::exists;
  co_return taken;
}

Task<Result<LeaderLease>> ClusterStore::renew_lease(LeaderLease held, int64_t deadline_ns) {
  LeaderLease next = held;
  next.renewal++;
  co_return co_await swap_lease(std::move(held), std::move(next), deadline_ns);
}

Task<Result<void>> ClusterStore::release_lease(LeaderLease held, int64_t deadline_ns) {
  LeaderLease next = held;
  next.holder.clear();
  FF_CO_TRY(co_await swap_lease(std::move(held), std::move(next), deadline_ns));
  co_return Result<void>();
}

// Runs `function` in a transaction that checks the epoch; it must outlive the run.
Task<Result<void>> ClusterStore::run_as_holder(LeaderLease held, kv::TxnFunction function,
                                               int64_t deadline_ns) {
  kv::TxnFunction checked = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const LeaderLease now, co_await get_lease(txn));
    if (now.epoch != held.epoch || now.token != held.token) co_return deposed(held, now);
    co_return co_await function(txn);
  };
  co_return co_await engine_.run(std::move(checked), deadline_ns);
}

Task<Result<void>> ClusterStore::init(LeaderLease held, std::string cluster, int64_t deadline_ns) {
  kv::TxnFunction function = [&cluster](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto value, co_await txn.get(kClusterKey));
    if (value) {
      FF_CO_TRY(const auto there, read_message<wire::Cluster>("cluster", *value));
      if (there.id() == cluster) co_return Result<void>();  // by an earlier run of this transaction
      co_return fail(Errc::exists, "the store already belongs to cluster {}", there.id());
    }
    put_cluster(txn, cluster, 1);
    co_return Result<void>();
  };
  co_return co_await run_as_holder(std::move(held), std::move(function), deadline_ns);
}

Task<Result<void>> ClusterStore::write(LeaderLease held, Proposal proposal, int64_t deadline_ns) {
  kv::TxnFunction function = [&proposal](kv::Txn& txn) -> Task<Result<void>> {
    put_proposal(txn, proposal);
    co_return Result<void>();
  };
  co_return co_await run_as_holder(std::move(held), std::move(function), deadline_ns);
}

Task<Result<void>> ClusterStore::write_utilization(LeaderLease held, DiskUtilization utilization,
                                                   int64_t deadline_ns) {
  wire::Fill message;
  for (const auto& [location, percent] : utilization) {
    wire::DiskFill& disk = *message.add_disks();
    disk.set_node(location.node);
    disk.set_disk(location.disk);
    disk.set_percent(percent);
  }
  kv::TxnFunction function = [&message](kv::Txn& txn) -> Task<Result<void>> {
    txn.put(kUtilizationKey, message.SerializeAsString());
    co_return Result<void>();
  };
  co_return co_await run_as_holder(std::move(held), std::move(function), deadline_ns);
}

Task<Result<DiskUtilization>> ClusterStore::read_utilization(int64_t deadline_ns) {
  DiskUtilization utilization;
  kv::TxnFunction function = [&utilization](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto value, co_await txn.get(kUtilizationKey));
    if (!value) co_return Result<void>();
    FF_CO_TRY(const auto message, read_message<wire::Fill>("disk utilization", *value));
    utilization.clear();
    for (const auto& disk : message.disks())
      utilization[{disk.node(), disk.disk()}] = disk.percent();
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline_ns));
  co_return utilization;
}

Task<Result<StoredCluster>> ClusterStore::load(int64_t deadline_ns) {
  StoredCluster stored;
  kv::TxnFunction function = [&stored](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(stored, co_await read_cluster(txn));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline_ns));
  co_return stored;
}

Task<Result<uint64_t>> ClusterStore::read_version(int64_t deadline_ns) {
  uint64_t version = 0;
  kv::TxnFunction function = [&version](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto value, co_await txn.get(kClusterKey));
    if (!value) co_return Result<void>();
    FF_CO_TRY(const auto cluster, read_message<wire::Cluster>("cluster", *value));
    version = cluster.version();
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.view(std::move(function), deadline_ns));
  co_return version;
}

}  // namespace ff::cluster
