// store.cc: keys, and transactions that may run more than once with the same effect.
#include "storage/cluster/store.h"

#include <fmt/format.h>

#include <utility>

#include "platform/kv/backup.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

constexpr char kClusterKey[] = "CONFcluster";
constexpr char kFillKey[] = "CONFfill";
constexpr char kLeaseKey[] = "LEAScluster";
constexpr char kNodes[] = "NODE";
constexpr char kChains[] = "CHAN";
constexpr char kTables[] = "TABL";
constexpr char kLosses[] = "CONFloss";

// Records read at once: some hundred kilobytes of chains.
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
  return fail(Errc::corrupt, "the cluster's database holds a {} that cannot be read", what);
}

wire::Lease to_wire(const Lease& lease) {
  wire::Lease out;
  out.set_epoch(lease.epoch);
  out.set_renewal(lease.renewal);
  out.set_holder(lease.holder);
  out.set_token(lease.token);
  return out;
}

Task<Result<Lease>> read_lease(kv::Txn& txn) {
  auto reading = txn.get(kLeaseKey);
  FF_CO_TRY(const auto value, co_await std::move(reading));
  if (!value) co_return Lease();
  FF_CO_TRY(const auto message, read_message<wire::Lease>("lease", *value));
  Lease lease{.epoch = message.epoch(),
              .renewal = message.renewal(),
              .holder = message.holder(),
              .token = message.token()};
  co_return lease;
}

// All records whose keys are the prefix and 64-bit numbers, to `take`: Result<void>(Message).
template <class Message, class Take>
Task<Result<void>> read_all(kv::Txn& txn, std::string prefix, std::string_view what, Take take) {
  // The bare prefix is the guard.
  kv::Range range{
      .begin = prefix + std::string(1, '\0'), .end = kv::end_of_prefix(prefix), .limit = kPage};
  for (;;) {
    auto reading = txn.range(range, prefix);
    FF_CO_TRY(const auto page, co_await std::move(reading));
    for (const kv::Entry& entry : page) {
      FF_CO_TRY(const auto message, read_message<Message>(what, entry.value));
      FF_CO_TRY(take(message));
    }
    if (page.size() < kPage) co_return Result<void>();
    range.begin = page.back().key + std::string(1, '\0');
  }
}

Task<Result<Stored>> read_cluster(kv::Txn& txn) {
  Stored stored;
  auto marking = txn.get(kv::kRestoring);
  FF_CO_TRY(const auto mark, co_await std::move(marking));
  if (mark) {
    Error error = fail(Errc::refused, "a restore into this store was cut short");
    error.hint = "Repeat it: ff admin restore.";
    co_return error;
  }
  auto reading = txn.get(kClusterKey);
  FF_CO_TRY(const auto value, co_await std::move(reading));
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
  const Changes& changes = proposal.changes;
  put_cluster(txn, changes.cluster, changes.to);
  for (const Node& node : changes.nodes) {
    txn.put(key_of(kNodes, {node.id}), to_wire(node).SerializeAsString());
  }
  for (const Chain& chain : changes.chains) {
    txn.put(key_of(kChains, {chain.id}), to_wire(chain).SerializeAsString());
  }
  for (const Table& table : changes.tables) {
    txn.put(key_of(kTables, {table.id, table.version}), to_wire(table).SerializeAsString());
  }
  if (!changes.nodes.empty()) txn.put(kNodes, "");
  if (!changes.chains.empty()) txn.put(kChains, "");
  if (!changes.tables.empty()) txn.put(kTables, "");
  if (!proposal.loss) return;
  const Loss& loss = *proposal.loss;
  txn.put(key_of(kLosses, {loss.chain, loss.version}), to_wire(loss).SerializeAsString());
  txn.put(kLosses, "");
}

Error deposed(const Lease& held, const Lease& now) {
  return fail(Errc::refused, "this manager was primary in epoch {}, and {} is in epoch {}",
              held.epoch, now.holder.empty() ? "nobody" : now.holder, now.epoch);
}

}  // namespace

Task<Result<Lease>> Store::lease(int64_t deadline_ns) {
  Lease lease;
  kv::Function function = [&lease](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_lease(txn);
    FF_CO_TRY(lease, co_await std::move(reading));
    co_return Result<void>();
  };
  auto viewing = engine_.view(std::move(function), deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
  co_return lease;
}

// From `expected` to `next`; that it is `next` already is an answer that was lost.
Task<Result<Lease>> Store::change(Lease expected, Lease next, int64_t deadline_ns) {
  Lease found;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_lease(txn);
    FF_CO_TRY(found, co_await std::move(reading));
    if (found == next) co_return Result<void>();
    if (found != expected) co_return deposed(expected, found);
    txn.put(kLeaseKey, to_wire(next).SerializeAsString());
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline_ns);
  FF_CO_TRY(co_await std::move(running));
  co_return next;
}

Task<Result<Lease>> Store::take(Lease seen, std::string holder, uint64_t token,
                                int64_t deadline_ns) {
  Lease next{.epoch = seen.epoch + 1, .renewal = 1, .holder = std::move(holder), .token = token};
  auto changing = change(std::move(seen), std::move(next), deadline_ns);
  auto taken = co_await std::move(changing);
  if (!taken && taken.error().code == Errc::refused) taken.error().code = Errc::exists;
  co_return taken;
}

Task<Result<Lease>> Store::renew(Lease held, int64_t deadline_ns) {
  Lease next = held;
  next.renewal++;
  auto changing = change(std::move(held), std::move(next), deadline_ns);
  co_return co_await std::move(changing);
}

Task<Result<void>> Store::give_up(Lease held, int64_t deadline_ns) {
  Lease next = held;
  next.holder.clear();
  auto changing = change(std::move(held), std::move(next), deadline_ns);
  FF_CO_TRY(co_await std::move(changing));
  co_return Result<void>();
}

// `function` once the epoch holds; it outlives the run.
Task<Result<void>> Store::run_held(Lease held, kv::Function function, int64_t deadline_ns) {
  kv::Function checked = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_lease(txn);
    FF_CO_TRY(const Lease now, co_await std::move(reading));
    if (now.epoch != held.epoch || now.token != held.token) co_return deposed(held, now);
    auto running = function(txn);
    co_return co_await std::move(running);
  };
  auto running = engine_.run(std::move(checked), deadline_ns);
  co_return co_await std::move(running);
}

Task<Result<void>> Store::init(Lease held, std::string cluster, int64_t deadline_ns) {
  kv::Function function = [&cluster](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = txn.get(kClusterKey);
    FF_CO_TRY(const auto value, co_await std::move(reading));
    if (value) {
      FF_CO_TRY(const auto there, read_message<wire::Cluster>("cluster", *value));
      if (there.id() == cluster) co_return Result<void>();  // by an earlier run of this
      co_return fail(Errc::exists, "this is cluster {} already", there.id());
    }
    put_cluster(txn, cluster, 1);
    co_return Result<void>();
  };
  auto running = run_held(std::move(held), std::move(function), deadline_ns);
  co_return co_await std::move(running);
}

Task<Result<void>> Store::write(Lease held, Proposal proposal, int64_t deadline_ns) {
  kv::Function function = [&proposal](kv::Txn& txn) -> Task<Result<void>> {
    put_proposal(txn, proposal);
    co_return Result<void>();
  };
  auto running = run_held(std::move(held), std::move(function), deadline_ns);
  co_return co_await std::move(running);
}

Task<Result<void>> Store::keep_fill(Lease held, Fill fill, int64_t deadline_ns) {
  wire::Fill message;
  for (const auto& [place, percent] : fill) {
    wire::DiskFill& disk = *message.add_disks();
    disk.set_node(place.node);
    disk.set_disk(place.disk);
    disk.set_percent(percent);
  }
  kv::Function function = [&message](kv::Txn& txn) -> Task<Result<void>> {
    txn.put(kFillKey, message.SerializeAsString());
    co_return Result<void>();
  };
  auto running = run_held(std::move(held), std::move(function), deadline_ns);
  co_return co_await std::move(running);
}

Task<Result<Fill>> Store::fill(int64_t deadline_ns) {
  Fill fill;
  kv::Function function = [&fill](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = txn.get(kFillKey);
    FF_CO_TRY(const auto value, co_await std::move(reading));
    if (!value) co_return Result<void>();
    FF_CO_TRY(const auto message, read_message<wire::Fill>("fill of disks", *value));
    fill.clear();
    for (const auto& disk : message.disks()) fill[{disk.node(), disk.disk()}] = disk.percent();
    co_return Result<void>();
  };
  auto viewing = engine_.view(std::move(function), deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
  co_return fill;
}

Task<Result<Stored>> Store::load(int64_t deadline_ns) {
  Stored stored;
  kv::Function function = [&stored](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_cluster(txn);
    FF_CO_TRY(stored, co_await std::move(reading));
    co_return Result<void>();
  };
  auto viewing = engine_.view(std::move(function), deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
  co_return stored;
}

Task<Result<uint64_t>> Store::version(int64_t deadline_ns) {
  uint64_t version = 0;
  kv::Function function = [&version](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = txn.get(kClusterKey);
    FF_CO_TRY(const auto value, co_await std::move(reading));
    if (!value) co_return Result<void>();
    FF_CO_TRY(const auto cluster, read_message<wire::Cluster>("cluster", *value));
    version = cluster.version();
    co_return Result<void>();
  };
  auto viewing = engine_.view(std::move(function), deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
  co_return version;
}

}  // namespace ff::cluster
