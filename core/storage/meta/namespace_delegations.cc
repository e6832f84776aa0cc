// namespace_delegations.cc: leases, the delegations that depend on them, and batches of changes. A
// directory is delegated while its inode names a lease that has a record; ending a lease ends all
// of its delegations, so no other record needs to change.
#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/batch_prefetch.h"
#include "storage/meta/namespace_steps.h"
#include "storage/meta/records.h"
#include "storage/meta/service.h"

namespace ff::meta {

namespace {

// All names must fit into one message (net/frame.h).
constexpr size_t kListBytes = 640 * kKiB;
constexpr size_t kListedBytes = 24;  // of a name, its inode number and kind

Error lease_lost_error() {
  Error error = fail(Errc::stale,
                     "the lease of this client has ended, and with it its directory delegations: "
                     "it was out of reach for too long");
  error.sys = EKEYEXPIRED;
  return error;
}

Task<Result<std::optional<wire::DelegationLease>>> find_lease(kv::Txn& txn, uint64_t lease) {
  co_return co_await read_record<wire::DelegationLease>(txn, keys::of(keys::kLease, lease));
}

void put_lease(kv::Txn& txn, uint64_t lease, const wire::DelegationLease& record) {
  txn.put(keys::of(keys::kLease, lease), record.SerializeAsString());
}

// Numbers are used in the order of the grants, so that none is used twice.
Result<void> take_granted_id(wire::DelegationLease& lease, InodeId id) {
  for (int i = 0; i < lease.ids_size(); i++) {
    if (id < lease.ids(i).first() || id >= lease.ids(i).end()) continue;
    lease.mutable_ids(i)->set_first(id + 1);
    lease.mutable_ids()->DeleteSubrange(0, i);
    return {};
  }
  return fail(Errc::refused, "inode number {} was not granted to this client", id);
}

// Grants numbers from `first` on. Returns the first one of the grant, which a client may ask for
// again because it got no answer; 0: it is an earlier grant, or was used.
InodeId grant_ids(wire::DelegationLease& lease, uint64_t grant, InodeId first, uint64_t count) {
  if (grant != 0 && grant <= lease.grants()) {
    if (grant < lease.grants() || lease.ids_size() == 0) return 0;
    const wire::InodeRange& last = lease.ids(lease.ids_size() - 1);
    return last.end() - last.first() == count ? last.first() : 0;
  }
  if (static_cast<uint64_t>(lease.ids_size()) == kIdGrantsMax) {
    lease.mutable_ids()->DeleteSubrange(0, 1);
  }
  wire::InodeRange& range = *lease.add_ids();
  range.set_first(first);
  range.set_end(first + count);
  lease.set_grants(lease.grants() + 1);
  return first;
}

// A version without numbers changes `recalled` alone.
void fit_recall_numbers(wire::DelegationLease& lease) {
  lease.mutable_recall_numbers()->Resize(lease.recalled_size(), 0);
}

void forget_recall(wire::DelegationLease& lease, InodeId dir) {
  fit_recall_numbers(lease);
  for (int i = lease.recalled_size() - 1; i >= 0; i--) {
    if (lease.recalled(i) != dir) continue;
    lease.mutable_recalled()->erase(lease.recalled().begin() + i);
    lease.mutable_recall_numbers()->erase(lease.recall_numbers().begin() + i);
  }
}

Caller batch_caller(const wire::Who& who, uint64_t lease) {
  return {.uid = who.uid(),
          .gid = who.gid(),
          .groups = {who.groups().begin(), who.groups().end()},
          .lease = lease};
}

SessionId batch_session(const wire::Session& session) {
  return {session.client(), session.number()};
}

std::optional<SessionId> holder_of(const wire::RemoveRequest& request) {
  if (!request.has_holder()) return std::nullopt;
  return batch_session(request.holder());
}

// The transaction of a batch.
class Batch {
 public:
  Batch(kv::Txn& txn, uint64_t number, wire::DelegationLease& lease, const TableVersions& tables)
      : txn_(txn), number_(number), lease_(lease), tables_(tables) {}

  Task<Result<void>> apply(const wire::BatchOperation& operation);

 private:
  Task<Result<void>> check_held(InodeId dir);
  Task<Result<void>> make(const wire::MakeRequest& request, int64_t now_ns);
  Task<Result<void>> rename(const wire::RenameRequest& request, int64_t now_ns);
  Task<Result<void>> set_attributes(const wire::SetAttributesRequest& request, int64_t now_ns);
  Task<Result<void>> wrote(const wire::WroteRequest& request, int64_t now_ns);
  Task<Result<void>> open(const wire::OpenRequest& request, int64_t now_ns);
  Task<Result<void>> give_back(InodeId dir);

  kv::Txn& txn_;
  const uint64_t number_;
  wire::DelegationLease& lease_;
  const TableVersions& tables_;
  std::set<InodeId> held_;  // directories known to be delegated to the lease
};

Task<Result<void>> Batch::check_held(InodeId dir) {
  if (held_.contains(dir)) co_return Result<void>();
  FF_CO_TRY(const auto inode, co_await find_inode(txn_, dir));
  if (!inode) co_return errno_error(ENOENT, fmt::format("inode {}", dir));
  if (inode->delegate != number_) {
    co_return fail(Errc::refused, "directory {} is not delegated to this client", dir);
  }
  held_.insert(dir);
  co_return Result<void>();
}

Task<Result<void>> Batch::make(const wire::MakeRequest& request, int64_t now_ns) {
  const InodeId dir = request.place().dir().inode();
  FF_CO_TRY(co_await check_held(dir));
  const bool known =
      request.kind() >= 1 && request.kind() <= static_cast<uint32_t>(InodeType::block);
  if (!known) co_return fail(Errc::usage, "invalid inode kind {}", request.kind());
  Namespace::CreateOptions create{.kind = static_cast<InodeType>(request.kind()),
                                  .mode = request.mode(),
                                  .target = request.target(),
                                  .device = request.device()};
  if (request.has_session()) create.session = batch_session(request.session());
  const Caller caller = batch_caller(request.who(), number_);
  FF_CO_TRY(check_create(caller, request.place().name(), create));
  FF_CO_TRY(take_granted_id(lease_, request.inode()));
  NewInode inode;
  inode.id = request.inode();
  inode.delegate = number_;
  inode.layout = [&](const Layout&) -> Result<Layout> {
    const Layout layout = from_wire(request.layout());
    FF_TRY(check_layout(layout));
    const auto table = tables_.find(layout.table);
    const bool exists =
        table != tables_.end() && layout.version >= 1 && layout.version <= table->second;
    if (exists) return layout;
    return fail(Errc::refused, "the cluster has no version {} of chain table {}", layout.version,
                layout.table);
  };
  FF_CO_TRY(co_await create_step(txn_, caller, dir, request.place().name(), create, inode, now_ns));
  if (create.kind == InodeType::directory) held_.insert(inode.id);
  co_return Result<void>();
}

Task<Result<void>> Batch::rename(const wire::RenameRequest& request, int64_t now_ns) {
  FF_CO_TRY(check_name(request.from().name()));
  FF_CO_TRY(check_name(request.to().name()));
  FF_CO_TRY(co_await check_held(request.from().dir().inode()));
  FF_CO_TRY(co_await check_held(request.to().dir().inode()));
  Namespace::Rename rename{.from_dir = request.from().dir().inode(),
                           .from = request.from().name(),
                           .to_dir = request.to().dir().inode(),
                           .to = request.to().name(),
                           .no_replace = request.no_replace()};
  if (request.has_holder()) rename.holder = batch_session(request.holder());
  const Caller caller = batch_caller(request.who(), number_);
  FF_CO_TRY(co_await rename_step(txn_, caller, rename, now_ns));
  co_return Result<void>();
}

Task<Result<void>> Batch::set_attributes(const wire::SetAttributesRequest& request,
                                         int64_t now_ns) {
  const Namespace::Attributes to = attributes_of(request);
  const Caller caller = batch_caller(request.who(), number_);
  FF_CO_TRY(co_await set_attributes_step(txn_, caller, request.inode().inode(), to, now_ns));
  co_return Result<void>();
}

Task<Result<void>> Batch::wrote(const wire::WroteRequest& request, int64_t now_ns) {
  const Namespace::LengthReport report{.min_length = request.end(),
                                       .truncate_seq = request.truncations(),
                                       .mtime_ns = request.mtime_ns(),
                                       .closed = request.closed(),
                                       .unstored = request.unstored()};
  FF_CO_TRY(co_await report_length_step(txn_, request.inode(), batch_session(request.session()),
                                        report, now_ns));
  co_return Result<void>();
}

Task<Result<void>> Batch::open(const wire::OpenRequest& request, int64_t now_ns) {
  const InodeId id = request.inode().inode();
  FF_CO_TRY(const Inode inode, co_await read_inode(txn_, id));
  const Caller caller = batch_caller(request.who(), number_);
  const std::string what = fmt::format("inode {}", id);
  FF_CO_TRY(check_open(caller, inode, request.rights(), what));
  if (inode.is(InodeType::file)) put_session(txn_, id, batch_session(request.session()), now_ns);
  co_return Result<void>();
}

Task<Result<void>> Batch::give_back(InodeId dir) {
  held_.erase(dir);
  forget_recall(lease_, dir);
  FF_CO_TRY(auto inode, co_await find_inode(txn_, dir));
  if (!inode || inode->delegate != number_) co_return Result<void>();
  inode->delegate = 0;
  put_inode(txn_, *inode);
  co_return Result<void>();
}

Task<Result<void>> Batch::apply(const wire::BatchOperation& operation) {
  const int64_t now_ns = operation.now_ns();
  switch (operation.what_case()) {
    case wire::BatchOperation::kMake: co_return co_await make(operation.make(), now_ns);
    case wire::BatchOperation::kLink: {
      const auto& link = operation.link();
      const InodeId dir = link.place().dir().inode();
      FF_CO_TRY(check_name(link.place().name()));
      FF_CO_TRY(co_await check_held(dir));
      const Caller caller = batch_caller(link.who(), number_);
      FF_CO_TRY(
          co_await link_step(txn_, caller, link.inode().inode(), dir, link.place().name(), now_ns));
      co_return Result<void>();
    }
    case wire::BatchOperation::kUnlink: {
      const auto& unlink = operation.unlink();
      const InodeId dir = unlink.place().dir().inode();
      FF_CO_TRY(co_await check_held(dir));
      const Caller caller = batch_caller(unlink.who(), number_);
      FF_CO_TRY(co_await unlink_step(txn_, caller, dir, unlink.place().name(), holder_of(unlink),
                                     now_ns));
      co_return Result<void>();
    }
    case wire::BatchOperation::kRmdir: {
      const auto& rmdir = operation.rmdir();
      const InodeId dir = rmdir.place().dir().inode();
      FF_CO_TRY(co_await check_held(dir));
      const Caller caller = batch_caller(rmdir.who(), number_);
      FF_CO_TRY(co_await rmdir_step(txn_, caller, dir, rmdir.place().name(), now_ns));
      co_return Result<void>();
    }
    case wire::BatchOperation::kRename: co_return co_await rename(operation.rename(), now_ns);
    case wire::BatchOperation::kSetAttributes:
      co_return co_await set_attributes(operation.set_attributes(), now_ns);
    case wire::BatchOperation::kWrote: co_return co_await wrote(operation.wrote(), now_ns);
    case wire::BatchOperation::kOpen: co_return co_await open(operation.open(), now_ns);
    case wire::BatchOperation::kGiveBack: co_return co_await give_back(operation.give_back());
    default: break;
  }
  co_return fail(Errc::usage, "a batch has an unknown operation");
}

}  // namespace

// A lease that is lost in a power failure has granted nothing that was durable.
Task<Result<void>> Namespace::create_lease(LeaseRenewal renewal) {
  Body body = [renewal](kv::Txn& txn) -> Task<Result<Inode>> {
    wire::DelegationLease lease;
    lease.set_client(renewal.client);
    put_lease(txn, renewal.lease, lease);
    // The reply of a slot is a valid inode.
    co_return co_await read_inode(txn, kRoot);
  };
  std::vector<std::string> reads = {keys::inode(kRoot)};
  FF_CO_TRY(co_await execute_once(*renewal.request, std::move(reads), std::move(body)));
  co_return Result<void>();
}

Task<Result<Namespace::LeaseState>> Namespace::renew_lease(LeaseRenewal renewal) {
  LeaseState state;
  if (renewal.lease == 0) co_return fail(Errc::usage, "a lease must not have the number 0");
  if (renewal.request) {
    FF_CO_TRY(co_await create_lease(renewal));
    renewal.fresh = false;
  }
  InodeId fresh = 0;
  if (renewal.ids > 0) {
    FF_CO_TRY(fresh, co_await options_.ids.next(deadline(), renewal.ids));
  }
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(auto lease, co_await find_lease(txn, renewal.lease));
    state.live = lease ? !lease->ending() : renewal.fresh;
    if (renewal.end) txn.erase(keys::of(keys::kLease, renewal.lease));
    if (!state.live || renewal.end) co_return Result<void>();
    if (!lease) lease.emplace();
    lease->set_client(renewal.client);
    lease->set_beat(lease->beat() + 1);
    if (renewal.ids > 0) state.first = grant_ids(*lease, renewal.grant, fresh, renewal.ids);
    put_lease(txn, renewal.lease, *lease);
    state.recalled.assign(lease->recalled().begin(), lease->recalled().end());
    co_return Result<void>();
  };
  FF_CO_TRY(co_await change(std::move(function)));
  co_return state;
}

Task<Result<Namespace::Delegation>> Namespace::delegate(uint64_t lease, InodeId dir) {
  Delegation made;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    made = {};
    FF_CO_TRY(const auto record, co_await find_lease(txn, lease));
    if (!record || record->ending()) co_return lease_lost_error();
    auto reading = read_dir(txn, dir, fmt::format("inode {}", dir), lease);
    FF_CO_TRY(Inode inode, co_await std::move(reading));
    FF_CO_TRY(const auto names,
              co_await txn.range(keys::range_of(keys::kDentry, dir, kDelegatedNamesMax + 1),
                                 keys::times(dir)));
    size_t bytes = 0;
    for (const kv::Entry& name : names) bytes += name.key.size() + kListedBytes;
    if (names.size() > kDelegatedNamesMax || bytes > kListBytes) co_return Result<void>();
    for (const kv::Entry& name : names) {
      FF_CO_TRY(const Dentry entry, parse_dentry(name));
      made.entries.push_back({.name = std::string(keys::name_of(name.key)),
                              .id = entry.inode,
                              .kind = entry.kind,
                              .inode = std::nullopt});
    }
    inode.delegate = lease;
    put_inode(txn, inode);
    FF_CO_TRY(made.dir, co_await with_times(txn, std::move(inode)));
    made.granted = true;
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), deadline()));
  co_return made;
}

Task<Result<std::vector<InodeId>>> Namespace::apply_batch(RequestId request,
                                                          wire::BatchRequest batch) {
  const auto tables = options_.tables();
  std::vector<InodeId> recalled;
  const BatchPrefetch prefetch(batch);
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    FF_CO_TRY(auto lease, co_await find_lease(txn, batch.lease()));
    if (!lease || lease->ending()) co_return lease_lost_error();
    FF_CO_TRY(co_await prefetch.prefetch_rest(txn));
    Batch applied(txn, batch.lease(), *lease, *tables);
    for (const wire::BatchOperation& operation : batch.operations()) {
      FF_CO_TRY(co_await applied.apply(operation));
    }
    recalled.assign(lease->recalled().begin(), lease->recalled().end());
    lease->set_beat(lease->beat() + 1);
    put_lease(txn, batch.lease(), *lease);
    // The reply that a retry gets is a valid inode; the client knows the results.
    co_return co_await read_inode(txn, kRoot);
  };
  FF_CO_TRY(co_await execute_once(request, prefetch.first_keys(), std::move(body)));
  co_return recalled;
}

Task<Result<Namespace::HolderState>> Namespace::holder_state(DelegationConflict conflict) {
  HolderState state;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    state = {};
    FF_CO_TRY(const auto inode, co_await find_inode(txn, conflict.dir));
    if (!inode || inode->delegate != conflict.lease) co_return Result<void>();
    FF_CO_TRY(const auto lease, co_await find_lease(txn, conflict.lease));
    if (!lease) co_return Result<void>();
    state = {.holds = true, .ending = lease->ending(), .beat = lease->beat()};
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view_inline(std::move(function)));
  co_return state;
}

Task<Result<uint64_t>> Namespace::mark_recalled(DelegationConflict conflict) {
  uint64_t number = 0;
  kv::TxnFunction function = [conflict, &number](kv::Txn& txn) -> Task<Result<void>> {
    number = 0;
    FF_CO_TRY(auto lease, co_await find_lease(txn, conflict.lease));
    if (!lease) co_return Result<void>();
    fit_recall_numbers(*lease);
    const auto& recalled = lease->recalled();
    const auto place = std::ranges::find(recalled, conflict.dir) - recalled.begin();
    if (place < recalled.size()) {
      number = lease->recall_numbers(static_cast<int>(place));
      co_return Result<void>();
    }
    number = lease->recalls() + 1;
    lease->set_recalls(number);
    lease->add_recalled(conflict.dir);
    lease->add_recall_numbers(number);
    put_lease(txn, conflict.lease, *lease);
    co_return Result<void>();
  };
  FF_CO_TRY(co_await change(std::move(function)));
  co_return number;
}

Task<Result<void>> Namespace::refuse_renewals(uint64_t number) {
  kv::TxnFunction function = [number](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(auto lease, co_await find_lease(txn, number));
    if (!lease) co_return Result<void>();
    lease->set_ending(true);
    put_lease(txn, number, *lease);
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

Task<Result<void>> Namespace::end_lease(uint64_t number, uint64_t beat) {
  kv::TxnFunction function = [number, beat](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto lease, co_await find_lease(txn, number));
    if (lease && lease->beat() == beat) txn.erase(keys::of(keys::kLease, number));
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

}  // namespace ff::meta
