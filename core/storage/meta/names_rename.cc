// names_rename.cc: moves. A directory may not be moved below itself: who its ancestors are is read
// before the transaction, together with RENM, which every such move puts; if RENM is another in the
// transaction, they are read again.
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/names.h"
#include "storage/meta/records.h"

namespace ff::meta {

// What was seen of moves before the transaction.
struct Names::Moved {
  uint64_t moves = 0;  // RENM
  InodeId from = 0;    // the directories that may go; 0: none of them is one
  InodeId to = 0;
};

namespace {

// The two places of a rename as its transaction finds them.
struct Places {
  const Caller& caller;
  const Names::Rename& rename;
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
  auto child = child_of(txn, caller, rename.from_dir, rename.from);
  FF_CO_TRY(auto found, co_await std::move(child));
  from_dir = std::move(found.dir);
  source = std::move(found.inode);
  auto reading = read_dir(txn, rename.to_dir, rename.to);
  FF_CO_TRY(to_dir, co_await std::move(reading));
  FF_CO_TRY(check_access(caller, to_dir, kMaySearch, what_to));
  auto finding = find_entry(txn, rename.to_dir, rename.to);
  FF_CO_TRY(const auto entry, co_await std::move(finding));
  if (!entry) co_return Result<void>();
  auto reading_replaced = named_inode(txn, *entry, what_to);
  FF_CO_TRY(replaced, co_await std::move(reading_replaced));
  co_return Result<void>();
}

// A directory that leaves its parent has its ".." changed, which is writing in it.
Result<void> Places::check_leaves(const Inode& inode, const std::string& name) const {
  if (same_dir() || !inode.is(Kind::directory)) return {};
  return check_access(caller, inode, kMayWrite, name);
}

Result<void> Places::check_kinds() const {
  if (source.is(Kind::directory) && !replaced->is(Kind::directory)) {
    return errno_error(ENOTDIR, what_to);
  }
  if (!source.is(Kind::directory) && replaced->is(Kind::directory)) {
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

// ENOTEMPTY, or what was there goes.
Task<Result<void>> drop_replaced(kv::Txn& txn, Places& places, int64_t now_ns) {
  Inode& gone = *places.replaced;
  if (gone.is(Kind::directory)) {
    auto looking = is_empty(txn, gone.id);
    FF_CO_TRY(const bool empty, co_await std::move(looking));
    if (!empty) co_return errno_error(ENOTEMPTY, places.what_to);
    places.to_dir.links--;
  }
  auto dropping = drop_name(txn, gone, places.rename.holder, now_ns);
  co_return co_await std::move(dropping);
}

// `inode` is under `dir` from now on.
Result<void> move_in(kv::Txn& txn, Inode& inode, Inode& left, Inode& dir, int64_t now_ns) {
  inode.ctime_ns = now_ns;
  if (inode.is(Kind::directory) && left.id != dir.id) {
    if (dir.links >= kLinksMax) return errno_error(EMLINK, fmt::format("inode {}", dir.id));
    inode.parent = dir.id;
    left.links--;
    dir.links++;
  }
  put_inode(txn, inode);
  return {};
}

Task<Result<Inode>> apply(kv::Txn& txn, Places& places, int64_t now_ns) {
  const Names::Rename& rename = places.rename;
  // Two names of one inode: POSIX has both stay.
  if (places.replaced && places.replaced->id == places.source.id) co_return places.source;
  if (places.replaced && !rename.exchange) {
    auto dropping = drop_replaced(txn, places, now_ns);
    FF_CO_TRY(co_await std::move(dropping));
  }
  // One record, where it is one directory.
  Inode& to_dir = places.same_dir() ? places.from_dir : places.to_dir;
  if (places.same_dir()) places.from_dir.links = places.to_dir.links;
  FF_CO_TRY(move_in(txn, places.source, places.from_dir, to_dir, now_ns));
  put_entry(txn, rename.to_dir, rename.to, {places.source.id, places.source.kind});
  if (rename.exchange) {
    Inode& other = *places.replaced;
    FF_CO_TRY(move_in(txn, other, to_dir, places.from_dir, now_ns));
    put_entry(txn, rename.from_dir, rename.from, {other.id, other.kind});
  } else {
    txn.erase(keys::dentry(rename.from_dir, rename.from));
  }
  const bool dirs = places.source.is(Kind::directory) ||
                    (places.replaced && places.replaced->is(Kind::directory));
  if (dirs) put_inode(txn, places.from_dir);
  if (dirs && !places.same_dir()) put_inode(txn, to_dir);
  touch(txn, rename.from_dir, now_ns);
  touch(txn, rename.to_dir, now_ns);
  co_return places.source;
}

// EINVAL when `moved` is `into` or above it.
Task<Result<void>> check_above(kv::Txn& txn, InodeId moved, InodeId into) {
  for (InodeId at = into; at != kRoot;) {
    if (at == moved) {
      Error error = errno_error(EINVAL, "a directory cannot be moved below itself");
      error.code = Errc::usage;
      co_return error;
    }
    auto finding = find_inode(txn, at);
    FF_CO_TRY(const auto dir, co_await std::move(finding));
    if (!dir) co_return Result<void>();  // gone: the transaction finds that out
    at = dir->parent;
  }
  co_return Result<void>();
}

Task<Result<uint64_t>> count_moves(kv::Txn& txn) {
  auto reading = read_record<wire::Counter>(txn, std::string(keys::kMoves));
  FF_CO_TRY(const auto moves, co_await std::move(reading));
  co_return moves ? moves->next() : uint64_t{0};
}

}  // namespace

Task<Result<Names::Moved>> Names::check_moves(const Rename& rename) {
  Moved moved;
  if (rename.from_dir == rename.to_dir) co_return moved;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    moved = {};
    auto counting = count_moves(txn);
    FF_CO_TRY(moved.moves, co_await std::move(counting));
    auto finding_from = find_entry(txn, rename.from_dir, rename.from);
    FF_CO_TRY(const auto from, co_await std::move(finding_from));
    if (from && from->kind == Kind::directory) moved.from = from->inode;
    auto finding_to = find_entry(txn, rename.to_dir, rename.to);
    FF_CO_TRY(const auto to, co_await std::move(finding_to));
    if (rename.exchange && to && to->kind == Kind::directory) moved.to = to->inode;
    if (moved.from != 0) {
      auto checking = check_above(txn, moved.from, rename.to_dir);
      FF_CO_TRY(co_await std::move(checking));
    }
    if (moved.to != 0) {
      auto checking = check_above(txn, moved.to, rename.from_dir);
      FF_CO_TRY(co_await std::move(checking));
    }
    co_return Result<void>();
  };
  auto viewing = view(std::move(function));
  FF_CO_TRY(co_await std::move(viewing));
  co_return moved;
}

Task<Result<Inode>> Names::rename(Caller caller, Request request, Rename rename) {
  FF_CO_TRY(check_name(rename.from));
  FF_CO_TRY(check_name(rename.to));
  if (rename.no_replace && rename.exchange) {
    Error error = errno_error(EINVAL, "an exchange replaces nothing");
    error.code = Errc::usage;
    co_return error;
  }
  const int64_t now_ns = clock_.wall_ns();
  const int64_t until_ns = deadline();
  for (;;) {
    // A loop is only certain once the transaction has found what it moves.
    auto checking = check_moves(rename);
    const auto moved = co_await std::move(checking);
    bool overtaken = false;
    Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
      overtaken = false;
      Places places{caller, rename, printable(rename.from), printable(rename.to)};
      auto reading = places.read(txn);
      FF_CO_TRY(co_await std::move(reading));
      if (!moved) co_return moved.error();
      const auto moves_dir = [&](const std::optional<Inode>& inode) {
        return inode && inode->is(Kind::directory) && !places.same_dir();
      };
      const bool from_goes = moves_dir(places.source);
      const bool to_goes = rename.exchange && moves_dir(places.replaced);
      if (from_goes || to_goes) {
        auto counting = count_moves(txn);
        FF_CO_TRY(const uint64_t moves, co_await std::move(counting));
        overtaken = moves != moved->moves || (from_goes && places.source.id != moved->from) ||
                    (to_goes && places.replaced->id != moved->to);
        if (overtaken) co_return fail(Errc::busy, "{}: others move directories", places.what);
        wire::Counter counter;
        counter.set_next(moves + 1);
        txn.put(std::string(keys::kMoves), counter.SerializeAsString());
      }
      FF_CO_TRY(places.check());
      auto applying = apply(txn, places, now_ns);
      co_return co_await std::move(applying);
    };
    auto doing = once(request, std::move(body));
    auto done = co_await std::move(doing);
    if (!overtaken || clock_.steady_ns() >= until_ns) co_return done;
  }
}

}  // namespace ff::meta
