// names.cc: making, naming and removing; and how a change is done once.
#include "storage/meta/names.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "platform/rpc/error_wire.h"
#include "storage/meta/records.h"

namespace ff::meta {

Names::Names(kv::Engine& engine, Clock& clock, Options options)
    : engine_(engine), clock_(clock), options_(std::move(options)) {}

Task<Result<void>> Names::look(kv::Function function) {
  auto looking = engine_.look(std::move(function), deadline());
  co_return co_await std::move(looking);
}

Task<Result<void>> Names::change(kv::Function function) {
  auto changing = engine_.run_soon(std::move(function), deadline());
  co_return co_await std::move(changing);
}

Task<Result<void>> Names::sync() {
  auto syncing = engine_.sync(deadline());
  co_return co_await std::move(syncing);
}

Task<Result<void>> Names::view(kv::Function function) {
  auto viewing = engine_.view(std::move(function), deadline());
  co_return co_await std::move(viewing);
}

// An error has changed nothing, and may come out otherwise when it is asked for again.
Task<Result<Inode>> Names::once(Request request, Body body, bool durable) {
  if (request.slot >= kSlots) co_return fail(Errc::usage, "slot {} of a client", request.slot);
  Inode result;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kAnswer, request.client, request.slot);
    auto reading = read_record<wire::Answer>(txn, key);
    FF_CO_TRY(const auto before, co_await std::move(reading));
    if (before && before->sequence() == request.sequence) {
      if (before->has_error()) co_return rpc::from_wire(before->error());
      FF_CO_TRY(result, inode_of(before->reply()));
      co_return Result<void>();
    }
    if (before && before->sequence() > request.sequence) {
      co_return fail(Errc::refused, "overtaken by a later request of its slot");
    }
    auto doing = body(txn);
    FF_CO_TRY(result, co_await std::move(doing));
    wire::Inode reply;
    to_wire(result, reply);
    wire::Answer answer;
    answer.set_sequence(request.sequence);
    answer.set_reply(reply.SerializeAsString());
    txn.put(key, answer.SerializeAsString());
    co_return Result<void>();
  };
  auto running = durable ? engine_.run(std::move(function), deadline())
                         : engine_.run_soon(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(running));
  co_return result;
}

Task<Result<bool>> Names::give_up(Request request, Error error) {
  if (request.slot >= kSlots) co_return true;
  bool given_up = false;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kAnswer, request.client, request.slot);
    auto reading = read_record<wire::Answer>(txn, key);
    FF_CO_TRY(const auto before, co_await std::move(reading));
    given_up = !before || before->sequence() < request.sequence;
    if (!given_up) co_return Result<void>();
    wire::Answer answer;
    answer.set_sequence(request.sequence);
    rpc::to_wire(error, *answer.mutable_error());
    txn.put(key, answer.SerializeAsString());
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  FF_CO_TRY(co_await std::move(running));
  co_return given_up;
}

Task<Result<void>> Names::make_root() {
  const int64_t now_ns = clock_.wall_ns();
  kv::Function function = [now_ns](kv::Txn& txn) -> Task<Result<void>> {
    auto finding = find_inode(txn, kRoot);
    FF_CO_TRY(const auto found, co_await std::move(finding));
    if (found) co_return Result<void>();
    put_inode(txn, {.id = kRoot,
                    .kind = Kind::directory,
                    .mode = 0755,
                    .links = 2,
                    .atime_ns = now_ns,
                    .mtime_ns = now_ns,
                    .ctime_ns = now_ns,
                    .btime_ns = now_ns,
                    .parent = kRoot});
    touch(txn, kRoot, now_ns);
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  co_return co_await std::move(running);
}

Task<Result<Inode>> Names::stat(InodeId id) {
  Inode inode;
  kv::Function function = [&inode, id](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_inode(txn, id);
    FF_CO_TRY(auto found, co_await std::move(reading));
    auto timing = with_times(txn, std::move(found));
    FF_CO_TRY(inode, co_await std::move(timing));
    co_return Result<void>();
  };
  auto viewing = look(std::move(function));
  FF_CO_TRY(co_await std::move(viewing));
  co_return inode;
}

namespace {

// What a new inode takes from whoever makes it and where.
Inode born(const Caller& caller, const Inode& dir, const Names::Make& make, InodeId id,
           int64_t now_ns) {
  Inode inode{.id = id,
              .kind = make.kind,
              .mode = make.mode & 07777,
              .uid = caller.uid,
              .gid = caller.gid,
              .links = make.kind == Kind::directory ? 2U : 1U,
              .atime_ns = now_ns,
              .mtime_ns = now_ns,
              .ctime_ns = now_ns,
              .btime_ns = now_ns,
              .target = make.target,
              .device = make.device};
  if ((dir.mode & kSetGid) != 0) {
    inode.gid = dir.gid;
    if (inode.is(Kind::directory)) inode.mode |= kSetGid;
  }
  if (inode.is(Kind::directory)) {
    inode.parent = dir.id;
    inode.layout = make.layout.value_or(dir.layout);
  }
  // Nobody gives rights of a group that is not his.
  const bool runs_as_group = inode.is(Kind::file) && (inode.mode & kSetGid) != 0;
  if (runs_as_group && !caller.root() && !caller.in(inode.gid)) inode.mode &= ~kSetGid;
  return inode;
}

Result<Layout> file_layout(Layout wanted, const Tables& tables, uint64_t seed) {
  wanted = with_defaults(wanted);
  const auto found = tables.find(wanted.table);
  if (found == tables.end()) {
    Error error =
        fail(Errc::failed, "the cluster has no chain table {} for new files", wanted.table);
    error.hint = "Make chains: ff admin plan --apply";
    error.sys = ENOSPC;
    return error;
  }
  wanted.version = found->second;
  wanted.seed = seed;
  FF_TRY(check_layout(wanted));
  return wanted;
}

Result<void> check_opened(const Caller& caller, const Inode& inode, uint32_t rights,
                          const std::string& what) {
  if (inode.is(Kind::directory) && (rights & kMayWrite) != 0) return errno_error(EISDIR, what);
  if (inode.is(Kind::symlink)) return errno_error(ELOOP, what);
  if (inode.links == 0) return errno_error(ENOENT, what);
  return check_access(caller, inode, rights, what);
}

// A file that is there, for make() that does not mind.
Task<Result<Inode>> open_entry(kv::Txn& txn, const Caller& caller, Entry entry,
                               const Names::Make& make, const std::string& what, int64_t now_ns) {
  auto reading = read_inode(txn, entry.inode);
  FF_CO_TRY(auto inode, co_await std::move(reading));
  if (inode.is(Kind::directory)) co_return errno_error(EISDIR, what);
  FF_CO_TRY(check_opened(caller, inode, make.rights, what));
  if (make.session && inode.is(Kind::file)) put_session(txn, inode.id, *make.session, now_ns);
  co_return inode;
}

}  // namespace

Task<Result<Inode>> Names::make(Caller caller, Request request, InodeId dir, std::string name,
                                Make make) {
  FF_CO_TRY(check_name(name));
  if (make.target.size() > kTargetMax) co_return errno_error(ENAMETOOLONG, "the link's target");
  if (make.kind == Kind::symlink && make.target.empty()) co_return errno_error(ENOENT, "''");
  const bool device = make.kind == Kind::character || make.kind == Kind::block;
  if (device && !caller.root()) co_return errno_error(EPERM, printable(name));
  auto numbering = options_.ids.next(deadline());
  FF_CO_TRY(const InodeId id, co_await std::move(numbering));
  const uint64_t seed = options_.rng.next();
  const auto tables = options_.tables();
  const auto room = options_.room ? options_.room() : nullptr;
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = printable(name);
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading = read_dir(txn, dir, name);
    FF_CO_TRY(Inode parent, co_await std::move(reading));
    FF_CO_TRY(check_access(caller, parent, kMaySearch, what));
    auto finding = find_entry(txn, dir, name);
    FF_CO_TRY(const auto there, co_await std::move(finding));
    if (there && (make.kind != Kind::file || make.exclusive)) co_return errno_error(EEXIST, what);
    if (there) {
      auto opening = open_entry(txn, caller, *there, make, what, now_ns);
      co_return co_await std::move(opening);
    }
    FF_CO_TRY(check_access(caller, parent, kMayWrite, what));
    Inode inode = born(caller, parent, make, id, now_ns);
    if (inode.is(Kind::file)) {
      Layout wanted = make.layout.value_or(parent.layout);
      if (wanted.chunk_size == 0) wanted.chunk_size = make.chunk_size;
      FF_CO_TRY(inode.layout, file_layout(wanted, *tables, seed));
      if (room != nullptr) inode.layout = placed(inode.layout, *room);
    }
    put_inode(txn, inode);
    put_entry(txn, dir, name, {id, inode.kind});
    touch(txn, dir, now_ns);
    if (make.session && inode.is(Kind::file)) put_session(txn, id, *make.session, now_ns);
    if (inode.is(Kind::directory)) {
      if (parent.links >= kLinksMax) co_return errno_error(EMLINK, what);
      parent.links++;
      put_inode(txn, parent);
      touch(txn, id, now_ns);
    }
    co_return inode;
  };
  auto doing = once(request, std::move(body));
  co_return co_await std::move(doing);
}

Task<Result<Inode>> Names::open(Caller caller, InodeId id, uint32_t rights,
                                std::optional<SessionId> session) {
  const int64_t now_ns = clock_.wall_ns();
  Inode result;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_inode(txn, id);
    FF_CO_TRY(result, co_await std::move(reading));
    FF_CO_TRY(check_opened(caller, result, rights, fmt::format("inode {}", id)));
    if (session && result.is(Kind::file)) put_session(txn, id, *session, now_ns);
    co_return Result<void>();
  };
  auto opening = session ? change(std::move(function)) : look(std::move(function));
  FF_CO_TRY(co_await std::move(opening));
  co_return result;
}

Task<Result<Inode>> Names::link(Caller caller, Request request, InodeId id, InodeId dir,
                                std::string name) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = printable(name);
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading_dir = read_dir(txn, dir, name);
    FF_CO_TRY(const Inode parent, co_await std::move(reading_dir));
    FF_CO_TRY(check_access(caller, parent, kMaySearch, what));
    auto finding = find_entry(txn, dir, name);
    FF_CO_TRY(const auto there, co_await std::move(finding));
    if (there) co_return errno_error(EEXIST, what);
    auto reading = read_inode(txn, id);
    FF_CO_TRY(Inode inode, co_await std::move(reading));
    FF_CO_TRY(check_access(caller, parent, kMayWrite, what));
    if (inode.is(Kind::directory)) co_return errno_error(EPERM, what + ": of a directory");
    if (inode.links == 0) co_return errno_error(ENOENT, fmt::format("inode {}", id));
    if (inode.links >= kLinksMax) co_return errno_error(EMLINK, what);
    inode.links++;
    inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    put_entry(txn, dir, name, {id, inode.kind});
    touch(txn, dir, now_ns);
    co_return inode;
  };
  auto doing = once(request, std::move(body));
  co_return co_await std::move(doing);
}

Task<Result<Inode>> Names::unlink(Caller caller, Request request, InodeId dir, std::string name,
                                  std::optional<SessionId> holder) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = printable(name);
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading = child_of(txn, caller, dir, name);
    FF_CO_TRY(auto found, co_await std::move(reading));
    FF_CO_TRY(check_removal(caller, found.dir, found.inode, what));
    if (found.inode.is(Kind::directory)) co_return errno_error(EISDIR, what);
    txn.erase(keys::dentry(dir, name));
    touch(txn, dir, now_ns);
    auto dropping = drop_name(txn, found.inode, holder, now_ns);
    FF_CO_TRY(co_await std::move(dropping));
    co_return found.inode;
  };
  auto doing = once(request, std::move(body));
  co_return co_await std::move(doing);
}

Task<Result<Inode>> Names::rmdir(Caller caller, Request request, InodeId dir, std::string name) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = printable(name);
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading = child_of(txn, caller, dir, name);
    FF_CO_TRY(auto found, co_await std::move(reading));
    FF_CO_TRY(check_removal(caller, found.dir, found.inode, what));
    if (!found.inode.is(Kind::directory)) co_return errno_error(ENOTDIR, what);
    auto looking = is_empty(txn, found.inode.id);
    FF_CO_TRY(const bool empty, co_await std::move(looking));
    if (!empty) co_return errno_error(ENOTEMPTY, what);
    take_out_dir(txn, found.dir, name, now_ns);
    auto dropping = drop_name(txn, found.inode, std::nullopt, now_ns);
    FF_CO_TRY(co_await std::move(dropping));
    co_return found.inode;
  };
  auto doing = once(request, std::move(body));
  co_return co_await std::move(doing);
}

Task<Result<Inode>> Names::remove_tree(Caller caller, Request request, InodeId dir,
                                       std::string name) {
  FF_CO_TRY(check_name(name));
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = printable(name);
  auto looking = lookup(caller, dir, name);
  auto top = co_await std::move(looking);
  // Not there: by an earlier run of this, perhaps.
  if (top && top->is(Kind::directory)) {
    auto checking = check_tree(caller, top->id);
    FF_CO_TRY(co_await std::move(checking));
  }
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading = child_of(txn, caller, dir, name);
    FF_CO_TRY(auto found, co_await std::move(reading));
    FF_CO_TRY(check_removal(caller, found.dir, found.inode, what));
    if (!found.inode.is(Kind::directory)) co_return errno_error(ENOTDIR, what);
    if (!top || found.inode.id != top->id) {
      co_return fail(Errc::busy, "{}: is another directory now", what);
    }
    take_out_dir(txn, found.dir, name, now_ns);
    found.inode.links = 0;  // nothing is made in it any more
    put_inode(txn, found.inode);
    txn.put(keys::of(keys::kTree, found.inode.id), "");
    co_return found.inode;
  };
  auto doing = once(request, std::move(body));
  co_return co_await std::move(doing);
}

Task<Result<void>> Names::alive(uint64_t client) {
  kv::Function function = [client](kv::Txn& txn) -> Task<Result<void>> {
    const std::string key = keys::of(keys::kClient, client);
    auto reading = read_record<wire::Counter>(txn, key);
    FF_CO_TRY(const auto before, co_await std::move(reading));
    wire::Counter counter;
    counter.set_next(before ? before->next() + 1 : 1);
    txn.put(key, counter.SerializeAsString());
    co_return Result<void>();
  };
  auto running = change(std::move(function));
  co_return co_await std::move(running);
}

}  // namespace ff::meta
