// namespace.cc: creates, links and removes; applies each request exactly once.
#include "storage/meta/namespace.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "platform/rpc/error_wire.h"
#include "storage/meta/namespace_steps.h"
#include "storage/meta/records.h"

namespace ff::meta {

Namespace::Namespace(kv::Engine& engine, Clock& clock, Options options)
    : engine_(engine), clock_(clock), options_(std::move(options)) {}

Task<Result<void>> Namespace::view_inline(kv::TxnFunction function) {
  co_return co_await engine_.view_inline(std::move(function), deadline());
}

Task<Result<void>> Namespace::change(kv::TxnFunction function) {
  co_return co_await engine_.run_async_commit(std::move(function), deadline());
}

Task<Result<void>> Namespace::sync() { co_return co_await engine_.sync(deadline()); }

Task<Result<void>> Namespace::view(kv::TxnFunction function) {
  co_return co_await engine_.view(std::move(function), deadline());
}

// An error leaves no reply: a retry may have another result.
Task<Result<Inode>> Namespace::execute_once(RequestId request, std::vector<std::string> reads,
                                            Body body, bool durable) {
  if (request.slot >= kSlots) co_return fail(Errc::usage, "invalid slot {}", request.slot);
  Inode result;
  const std::string key = keys::of(keys::kReply, request.client, request.slot);
  reads.push_back(key);
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(co_await txn.prefetch(reads));
    FF_CO_TRY(const auto before, co_await read_record<wire::Answer>(txn, key));
    if (before && before->sequence() == request.sequence) {
      if (before->has_error()) co_return rpc::from_wire(before->error());
      FF_CO_TRY(result, parse_inode(before->reply()));
      co_return Result<void>();
    }
    if (before && before->sequence() > request.sequence) {
      co_return fail(Errc::refused, "the slot has a later request");
    }
    FF_CO_TRY(result, co_await body(txn));
    wire::Inode reply;
    to_wire(result, reply);
    wire::Answer answer;
    answer.set_sequence(request.sequence);
    answer.set_reply(reply.SerializeAsString());
    txn.put(key, answer.SerializeAsString());
    co_return Result<void>();
  };
  auto running = durable ? engine_.run(std::move(function), deadline())
                         : engine_.run_async_commit(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(running));
  co_return result;
}

Task<Result<bool>> Namespace::record_refusal(RequestId request, Error error) {
  if (request.slot >= kSlots) co_return true;
  bool recorded = false;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kReply, request.client, request.slot);
    FF_CO_TRY(const auto before, co_await read_record<wire::Answer>(txn, key));
    recorded = !before || before->sequence() < request.sequence;
    if (!recorded) co_return Result<void>();
    wire::Answer answer;
    answer.set_sequence(request.sequence);
    rpc::to_wire(error, *answer.mutable_error());
    txn.put(key, answer.SerializeAsString());
    co_return Result<void>();
  };
  FF_CO_TRY(co_await engine_.run(std::move(function), deadline()));
  co_return recorded;
}

Task<Result<void>> Namespace::create_root() {
  const int64_t now_ns = clock_.wall_ns();
  kv::TxnFunction function = [now_ns](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto found, co_await find_inode(txn, kRoot));
    if (found) co_return Result<void>();
    put_inode(txn, {.id = kRoot,
                    .kind = InodeType::directory,
                    .mode = 0755,
                    .links = 2,
                    .atime_ns = now_ns,
                    .mtime_ns = now_ns,
                    .ctime_ns = now_ns,
                    .btime_ns = now_ns,
                    .parent = kRoot});
    touch_dir(txn, kRoot, now_ns);
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

Task<Result<Inode>> Namespace::stat(InodeId id, Caller caller) {
  Inode inode;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(auto found, co_await read_inode(txn, id));
    FF_CO_TRY(co_await check_undelegated(txn, found, caller.lease));
    FF_CO_TRY(inode, co_await with_times(txn, std::move(found)));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view_inline(std::move(function)));
  co_return inode;
}

namespace {

Result<Layout> file_layout(Layout wanted, const TableVersions& tables, uint64_t seed) {
  wanted = with_defaults(wanted);
  const auto found = tables.find(wanted.table);
  if (found == tables.end()) {
    Error error =
        fail(Errc::failed, "the cluster has no chain table {} for new files", wanted.table);
    error.hint = "Create chains: ff admin plan --apply";
    error.sys = ENOSPC;
    return error;
  }
  wanted.version = found->second;
  wanted.seed = seed;
  FF_TRY(check_layout(wanted));
  return wanted;
}

// Opens an existing file for a create() that is not exclusive.
Task<Result<Inode>> open_existing(kv::Txn& txn, const Caller& caller, Dentry entry,
                                  const Namespace::CreateOptions& create, const std::string& what,
                                  int64_t now_ns) {
  FF_CO_TRY(auto inode, co_await read_inode(txn, entry.inode));
  if (inode.is(InodeType::directory)) co_return errno_error(EISDIR, what);
  FF_CO_TRY(check_open(caller, inode, create.rights, what));
  if ((create.rights & kMayWrite) != 0) {
    FF_CO_TRY(co_await check_stored(txn, inode, create.session));
  }
  if (create.session && inode.is(InodeType::file))
    put_session(txn, inode.id, *create.session, now_ns);
  co_return inode;
}

}  // namespace

Task<Result<Inode>> create_step(kv::Txn& txn, const Caller& caller, InodeId dir,
                                const std::string& name, const Namespace::CreateOptions& create,
                                const NewInode& made, int64_t now_ns) {
  const std::string what = printable(name);
  FF_CO_TRY(Inode parent, co_await read_dir(txn, dir, name, caller.lease));
  FF_CO_TRY(check_access(caller, parent, kMaySearch, what));
  FF_CO_TRY(const auto there, co_await find_dentry(txn, dir, name));
  if (there && (create.kind != InodeType::file || create.exclusive))
    co_return errno_error(EEXIST, what);
  if (there) {
    co_return co_await open_existing(txn, caller, *there, create, what, now_ns);
  }
  FF_CO_TRY(check_access(caller, parent, kMayWrite, what));
  Inode inode = new_inode(caller, parent, create, made.id, now_ns);
  if (inode.is(InodeType::file)) {
    FF_CO_TRY(inode.layout, made.layout(wanted_layout(parent, create)));
  }
  if (inode.is(InodeType::directory)) {
    if (parent.links >= kHardLinksMax) co_return errno_error(EMLINK, what);
    inode.delegate = made.delegate;
    parent.links++;
    put_inode(txn, parent);
    touch_dir(txn, inode.id, now_ns);
  }
  put_inode(txn, inode);
  put_dentry(txn, dir, name, {inode.id, inode.kind});
  touch_dir(txn, dir, now_ns);
  if (create.session && inode.is(InodeType::file))
    put_session(txn, inode.id, *create.session, now_ns);
  co_return inode;
}

Task<Result<Inode>> Namespace::create(Caller caller, RequestId request, InodeId dir,
                                      std::string name, CreateOptions create) {
  FF_CO_TRY(check_create(caller, name, create));
  NewInode made;
  FF_CO_TRY(made.id, co_await options_.ids.next(deadline()));
  const uint64_t seed = options_.rng.next();
  const auto tables = options_.tables();
  const auto usage = options_.usage ? options_.usage() : nullptr;
  made.layout = [&](Layout wanted) -> Result<Layout> {
    FF_TRY(const Layout layout, file_layout(wanted, *tables, seed));
    return usage != nullptr ? with_free_chains(layout, *usage) : layout;
  };
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    co_return co_await create_step(txn, caller, dir, name, create, made, now_ns);
  };
  std::vector<std::string> reads = {keys::inode(dir), keys::dentry(dir, name)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Result<Layout> Namespace::new_file_layout(Layout wanted) {
  const auto tables = options_.tables();
  FF_TRY(const Layout layout, file_layout(wanted, *tables, options_.rng.next()));
  const auto usage = options_.usage ? options_.usage() : nullptr;
  return usage != nullptr ? with_free_chains(layout, *usage) : layout;
}

Task<Result<Inode>> Namespace::open(Caller caller, InodeId id, uint32_t rights,
                                    std::optional<SessionId> session, bool drops_set_ids) {
  const int64_t now_ns = clock_.wall_ns();
  const bool drops = drops_set_ids && (rights & kMayWrite) != 0 && !caller.is_root();
  Inode result;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(result, co_await read_inode(txn, id));
    FF_CO_TRY(co_await check_undelegated(txn, result, caller.lease));
    FF_CO_TRY(check_open(caller, result, rights, fmt::format("inode {}", id)));
    if ((rights & kMayWrite) != 0) FF_CO_TRY(co_await check_stored(txn, result, session));
    if (session && result.is(InodeType::file)) put_session(txn, id, *session, now_ns);
    if (drops && without_set_ids(result) != result.mode) {
      result.mode = without_set_ids(result);
      result.ctime_ns = now_ns;
      put_inode(txn, result);
    }
    co_return Result<void>();
  };
  auto opening = session || drops ? change(std::move(function)) : view_inline(std::move(function));
  FF_CO_TRY(co_await std::move(opening));
  co_return result;
}

Task<Result<void>> Namespace::check_open_file(Caller caller, InodeId id, uint32_t rights,
                                              std::optional<SessionId> session) {
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const Inode inode, co_await read_inode(txn, id));
    const std::string what = fmt::format("inode {}", id);
    if (caller.uid != inode.uid) {
      FF_CO_TRY(check_access(caller, inode, rights, what));
    }
    if (!session) co_return Result<void>();
    FF_CO_TRY(const auto open, co_await txn.get(keys::session(id, *session)));
    if (!open) co_return errno_error(EBADF, what + ": it is not open for writing any more");
    co_return Result<void>();
  };
  co_return co_await view_inline(std::move(function));
}

Task<Result<Inode>> link_step(kv::Txn& txn, const Caller& caller, InodeId id, InodeId dir,
                              const std::string& name, int64_t now_ns) {
  const std::string what = printable(name);
  FF_CO_TRY(const Inode parent, co_await read_dir(txn, dir, name, caller.lease));
  FF_CO_TRY(check_access(caller, parent, kMaySearch, what));
  FF_CO_TRY(const auto there, co_await find_dentry(txn, dir, name));
  if (there) co_return errno_error(EEXIST, what);
  FF_CO_TRY(Inode inode, co_await read_inode(txn, id));
  FF_CO_TRY(check_access(caller, parent, kMayWrite, what));
  if (inode.is(InodeType::directory)) co_return errno_error(EPERM, what + ": of a directory");
  if (inode.links == 0) co_return errno_error(ENOENT, fmt::format("inode {}", id));
  if (inode.links >= kHardLinksMax) co_return errno_error(EMLINK, what);
  inode.links++;
  inode.ctime_ns = now_ns;
  put_inode(txn, inode);
  put_dentry(txn, dir, name, {id, inode.kind});
  touch_dir(txn, dir, now_ns);
  co_return inode;
}

Task<Result<Inode>> Namespace::link(Caller caller, RequestId request, InodeId id, InodeId dir,
                                    std::string name) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    co_return co_await link_step(txn, caller, id, dir, name, now_ns);
  };
  std::vector<std::string> reads = {keys::inode(dir), keys::dentry(dir, name), keys::inode(id)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Task<Result<Inode>> unlink_step(kv::Txn& txn, const Caller& caller, InodeId dir,
                                const std::string& name, std::optional<SessionId> holder,
                                int64_t now_ns) {
  const std::string what = printable(name);
  FF_CO_TRY(auto found, co_await find_child(txn, caller, dir, name));
  FF_CO_TRY(check_removal(caller, found.dir, found.inode, what));
  if (found.inode.is(InodeType::directory)) co_return errno_error(EISDIR, what);
  txn.erase(keys::dentry(dir, name));
  touch_dir(txn, dir, now_ns);
  FF_CO_TRY(co_await drop_link(txn, found.inode, holder, now_ns));
  co_return found.inode;
}

Task<Result<Inode>> Namespace::unlink(Caller caller, RequestId request, InodeId dir,
                                      std::string name, std::optional<SessionId> holder) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    co_return co_await unlink_step(txn, caller, dir, name, holder, now_ns);
  };
  std::vector<std::string> reads = {keys::inode(dir), keys::dentry(dir, name)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Task<Result<Inode>> rmdir_step(kv::Txn& txn, const Caller& caller, InodeId dir,
                               const std::string& name, int64_t now_ns) {
  const std::string what = printable(name);
  FF_CO_TRY(auto found, co_await find_child(txn, caller, dir, name));
  FF_CO_TRY(check_removal(caller, found.dir, found.inode, what));
  if (!found.inode.is(InodeType::directory)) co_return errno_error(ENOTDIR, what);
  FF_CO_TRY(const bool empty, co_await is_empty(txn, found.inode.id));
  if (!empty) co_return errno_error(ENOTEMPTY, what);
  unlink_dir(txn, found.dir, name, now_ns);
  FF_CO_TRY(co_await drop_link(txn, found.inode, std::nullopt, now_ns));
  co_return found.inode;
}

Task<Result<Inode>> Namespace::rmdir(Caller caller, RequestId request, InodeId dir,
                                     std::string name) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    co_return co_await rmdir_step(txn, caller, dir, name, now_ns);
  };
  std::vector<std::string> reads = {keys::inode(dir), keys::dentry(dir, name)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Task<Result<Inode>> Namespace::remove_tree(Caller caller, RequestId request, InodeId dir,
                                           std::string name) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = printable(name);
  auto top = co_await lookup(caller, dir, name);
  // If it does not exist, an earlier attempt may have removed it.
  if (top && top->is(InodeType::directory)) {
    FF_CO_TRY(co_await check_tree_removal(caller, top->id));
  }
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    FF_CO_TRY(auto found, co_await find_child(txn, caller, dir, name));
    FF_CO_TRY(check_removal(caller, found.dir, found.inode, what));
    if (!found.inode.is(InodeType::directory)) co_return errno_error(ENOTDIR, what);
    if (!top || found.inode.id != top->id) {
      co_return fail(Errc::busy, "{}: was replaced by another directory meanwhile", what);
    }
    unlink_dir(txn, found.dir, name, now_ns);
    found.inode.links = 0;  // nothing can be created in it any more
    put_inode(txn, found.inode);
    txn.put(keys::of(keys::kRemovedTree, found.inode.id), "");
    co_return found.inode;
  };
  std::vector<std::string> reads = {keys::inode(dir), keys::dentry(dir, name)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Task<Result<void>> Namespace::renew_client(uint64_t client) {
  kv::TxnFunction function = [client](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kClient, client);
    FF_CO_TRY(const auto before, co_await read_record<wire::Counter>(txn, key));
    wire::Counter counter;
    counter.set_next(before ? before->next() + 1 : 1);
    txn.put(key, counter.SerializeAsString());
    co_return Result<void>();
  };
  co_return co_await change(std::move(function));
}

}  // namespace ff::meta
