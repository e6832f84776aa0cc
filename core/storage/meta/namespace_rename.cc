// namespace_rename.cc: renames. A directory must not be moved below itself. Its ancestors are read
// before the transaction, together with the counter RENM, which every move of a directory
// increments. If RENM has changed in the transaction, they are read again.
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/namespace_steps.h"
#include "storage/meta/records.h"

namespace ff::meta {

// The state read before the transaction.
struct Namespace::DirectoryMoves {
  uint64_t moves = 0;  // value of RENM
  InodeId from = 0;    // the directories that move; 0: not a directory
  InodeId to = 0;
};

namespace {

// Source and target of a rename, as read in the transaction.
struct Places {
  const Caller& caller;
  const Namespace::Rename& rename;
  const std::string what;
  const std::string what_to;
  Inode from_dir = {};
  Inode to_dir = {};
  Inode source = {};
  std::optional<Inode> replaced = {};

  bool same_dir() const { return rename.from_dir == rename.to_dir; }
  Task<Result<void>> read(kv::Txn& txn);
  Result<void> check() const;
  Result<void> check_kinds() const;
  Result<void> check_leaves(const Inode& inode, const std::string& name) const;
};

Task<Result<void>> Places::read(kv::Txn& txn) {
  FF_CO_TRY(auto found, co_await find_child(txn, caller, rename.from_dir, rename.from));
  from_dir = std::move(found.dir);
  source = std::move(found.inode);
  FF_CO_TRY(to_dir, co_await read_dir(txn, rename.to_dir, rename.to, caller.lease));
  FF_CO_TRY(check_access(caller, to_dir, kMaySearch, what_to));
  FF_CO_TRY(const auto entry, co_await find_dentry(txn, rename.to_dir, rename.to));
  if (!entry) co_return Result<void>();
  FF_CO_TRY(replaced, co_await read_dentry_inode(txn, *entry, what_to));
  FF_CO_TRY(co_await check_undelegated(txn, *replaced, caller.lease));
  co_return Result<void>();
}

// Moving a directory changes its "..", which needs write permission on it.
Result<void> Places::check_leaves(const Inode& inode, const std::string& name) const {
  if (same_dir() || !inode.is(InodeType::directory)) return {};
  return check_access(caller, inode, kMayWrite, name);
}

Result<void> Places::check_kinds() const {
  if (source.is(InodeType::directory) && !replaced->is(InodeType::directory)) {
    return errno_error(ENOTDIR, what_to);
  }
  if (!source.is(InodeType::directory) && replaced->is(InodeType::directory)) {
    return errno_error(EISDIR, what_to);
  }
  return {};
}

Result<void> Places::check() const {
  if (rename.no_replace && replaced) return errno_error(EEXIST, what_to);
  if (rename.exchange && !replaced) return errno_error(ENOENT, what_to);
  FF_TRY(check_removal(caller, from_dir, source, what));
  FF_TRY(check_leaves(source, what));
  if (!replaced) return check_access(caller, to_dir, kMayWrite | kMaySearch, what_to);
  FF_TRY(check_removal(caller, to_dir, *replaced, what_to));
  if (rename.exchange) return check_leaves(*replaced, what_to);
  return check_kinds();
}

// Removes the replaced target, or returns ENOTEMPTY.
Task<Result<void>> drop_replaced(kv::Txn& txn, Places& places, int64_t now_ns) {
  Inode& gone = *places.replaced;
  if (gone.is(InodeType::directory)) {
    FF_CO_TRY(const bool empty, co_await is_empty(txn, gone.id));
    if (!empty) co_return errno_error(ENOTEMPTY, places.what_to);
    places.to_dir.links--;
  }
  co_return co_await drop_link(txn, gone, places.rename.holder, now_ns);
}

// Moves `inode` from `left` to `dir`.
Result<void> move_in(kv::Txn& txn, Inode& inode, Inode& left, Inode& dir, int64_t now_ns) {
  inode.ctime_ns = now_ns;
  if (inode.is(InodeType::directory) && left.id != dir.id) {
    if (dir.links >= kHardLinksMax) return errno_error(EMLINK, fmt::format("inode {}", dir.id));
    inode.parent = dir.id;
    left.links--;
    dir.links++;
  }
  put_inode(txn, inode);
  return {};
}

Task<Result<Inode>> apply(kv::Txn& txn, Places& places, int64_t now_ns) {
  const Namespace::Rename& rename = places.rename;
  // If both names refer to one inode, POSIX keeps both.
  if (places.replaced && places.replaced->id == places.source.id) co_return places.source;
  if (places.replaced && !rename.exchange) {
    FF_CO_TRY(co_await drop_replaced(txn, places, now_ns));
  }
  // Both directories may be the same record.
  Inode& to_dir = places.same_dir() ? places.from_dir : places.to_dir;
  if (places.same_dir()) places.from_dir.links = places.to_dir.links;
  FF_CO_TRY(move_in(txn, places.source, places.from_dir, to_dir, now_ns));
  put_dentry(txn, rename.to_dir, rename.to, {places.source.id, places.source.kind});
  if (rename.exchange) {
    Inode& other = *places.replaced;
    FF_CO_TRY(move_in(txn, other, to_dir, places.from_dir, now_ns));
    put_dentry(txn, rename.from_dir, rename.from, {other.id, other.kind});
  } else {
    txn.erase(keys::dentry(rename.from_dir, rename.from));
  }
  const bool dirs = places.source.is(InodeType::directory) ||
                    (places.replaced && places.replaced->is(InodeType::directory));
  if (dirs) put_inode(txn, places.from_dir);
  if (dirs && !places.same_dir()) put_inode(txn, to_dir);
  touch_dir(txn, rename.from_dir, now_ns);
  touch_dir(txn, rename.to_dir, now_ns);
  co_return places.source;
}

// EINVAL: `moved` is `into` or one of its ancestors.
Task<Result<void>> check_above(kv::Txn& txn, InodeId moved, InodeId into) {
  for (InodeId at = into; at != kRoot;) {
    if (at == moved) {
      Error error = errno_error(EINVAL, "a directory cannot be moved into itself");
      error.code = Errc::usage;
      co_return error;
    }
    FF_CO_TRY(const auto dir, co_await find_inode(txn, at));
    if (!dir) co_return Result<void>();  // removed; the transaction will notice
    at = dir->parent;
  }
  co_return Result<void>();
}

Task<Result<uint64_t>> count_moves(kv::Txn& txn) {
  FF_CO_TRY(const auto moves,
            co_await read_record<wire::Counter>(txn, std::string(keys::kRenameCounter)));
  co_return moves ? moves->next() : uint64_t{0};
}

}  // namespace

Task<Result<Inode>> rename_step(kv::Txn& txn, const Caller& caller, const Namespace::Rename& rename,
                                int64_t now_ns) {
  Places places{caller, rename, printable(rename.from), printable(rename.to)};
  FF_CO_TRY(co_await places.read(txn));
  const bool dirs = places.source.is(InodeType::directory) ||
                    (places.replaced && places.replaced->is(InodeType::directory));
  if (dirs && !places.same_dir()) co_return errno_error(EXDEV, places.what);
  FF_CO_TRY(places.check());
  co_return co_await apply(txn, places, now_ns);
}

Task<Result<Namespace::DirectoryMoves>> Namespace::check_directory_moves(const Rename& rename) {
  DirectoryMoves moved;
  if (rename.from_dir == rename.to_dir) co_return moved;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    moved = {};
    FF_CO_TRY(moved.moves, co_await count_moves(txn));
    FF_CO_TRY(const auto from, co_await find_dentry(txn, rename.from_dir, rename.from));
    if (from && from->kind == InodeType::directory) moved.from = from->inode;
    FF_CO_TRY(const auto to, co_await find_dentry(txn, rename.to_dir, rename.to));
    if (rename.exchange && to && to->kind == InodeType::directory) moved.to = to->inode;
    if (moved.from != 0) {
      FF_CO_TRY(co_await check_above(txn, moved.from, rename.to_dir));
    }
    if (moved.to != 0) {
      FF_CO_TRY(co_await check_above(txn, moved.to, rename.from_dir));
    }
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view(std::move(function)));
  co_return moved;
}

Task<Result<Inode>> Namespace::rename(Caller caller, RequestId request, Rename rename) {
  FF_CO_TRY(check_name(rename.from));
  FF_CO_TRY(check_name(rename.to));
  if (rename.no_replace && rename.exchange) {
    Error error = errno_error(EINVAL, "exchange and no-replace exclude each other");
    error.code = Errc::usage;
    co_return error;
  }
  const int64_t now_ns = clock_.wall_ns();
  const int64_t until_ns = deadline();
  for (;;) {
    // The error is final only if the transaction finds the same directories.
    const auto moved = co_await check_directory_moves(rename);
    bool overtaken = false;
    Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
      overtaken = false;
      Places places{caller, rename, printable(rename.from), printable(rename.to)};
      FF_CO_TRY(co_await places.read(txn));
      if (!moved) co_return moved.error();
      const auto moves_dir = [&](const std::optional<Inode>& inode) {
        return inode && inode->is(InodeType::directory) && !places.same_dir();
      };
      const bool from_goes = moves_dir(places.source);
      const bool to_goes = rename.exchange && moves_dir(places.replaced);
      if (from_goes || to_goes) {
        FF_CO_TRY(const uint64_t moves, co_await count_moves(txn));
        overtaken = moves != moved->moves || (from_goes && places.source.id != moved->from) ||
                    (to_goes && places.replaced->id != moved->to);
        if (overtaken)
          co_return fail(Errc::busy, "{}: other clients are moving directories", places.what);
        wire::Counter counter;
        counter.set_next(moves + 1);
        txn.put(std::string(keys::kRenameCounter), counter.SerializeAsString());
      }
      FF_CO_TRY(places.check());
      co_return co_await apply(txn, places, now_ns);
    };
    std::vector<std::string> reads = {
        keys::inode(rename.from_dir), keys::dentry(rename.from_dir, rename.from),
        keys::inode(rename.to_dir), keys::dentry(rename.to_dir, rename.to)};
    auto done = co_await execute_once(request, std::move(reads), std::move(body));
    if (!overtaken || clock_.steady_ns() >= until_ns) co_return done;
  }
}

}  // namespace ff::meta
