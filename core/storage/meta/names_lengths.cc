// names_lengths.cc: how long files are (storage.md, "Metadata": Length).
//
// Writers change chunks, and tell the length afterwards; nobody else knows it meanwhile. What they
// tell counts only as long as the file has not been truncated since: `truncations` is theirs then.
// A truncation is decided here, durably, and done in storage after that, and whoever looks at a
// file that is still being cut finishes that first (finish_cut()). That it is done is durable
// before anybody writes there again: else a loss of power would have it done once more.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/meta/chunks.h"
#include "storage/meta/names.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

Task<Result<Inode>> read_file(kv::Txn& txn, InodeId id) {
  auto reading = read_inode(txn, id);
  FF_CO_TRY(Inode inode, co_await std::move(reading));
  const std::string what = fmt::format("inode {}", id);
  if (inode.is(Kind::directory)) co_return errno_error(EISDIR, what);
  if (!inode.is(Kind::file)) co_return errno_error(EINVAL, what);
  co_return inode;
}

Result<void> check_length(uint64_t length, InodeId id) {
  if (length <= kLengthMax) return {};
  Error error = errno_error(EFBIG, fmt::format("inode {}", id));
  error.code = Errc::usage;
  return error;
}

}  // namespace

Task<Result<Inode>> Names::truncate(Caller caller, Request request, InodeId id, uint64_t length,
                                    bool opened) {
  FF_CO_TRY(check_length(length, id));
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading = read_file(txn, id);
    FF_CO_TRY(Inode inode, co_await std::move(reading));
    if (!opened) FF_CO_TRY(check_access(caller, inode, kMayWrite, fmt::format("inode {}", id)));
    if (!caller.root()) inode.mode = without_set_ids(inode);
    // One that is not done yet, and was shorter, is done with this one.
    inode.cut_to = inode.cutting ? std::min(inode.cut_to, length) : length;
    inode.length = length;
    inode.floor = length;
    inode.truncations++;
    inode.cutting = true;
    inode.changes++;
    inode.mtime_ns = inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    txn.put(keys::of(keys::kCut, id), "");
    co_return inode;
  };
  auto doing = once(request, std::move(body), true);
  co_return co_await std::move(doing);
}

Task<Result<void>> Names::cut_done(InodeId id, uint64_t truncations) {
  kv::Function function = [id, truncations](kv::Txn& txn) -> Task<Result<void>> {
    auto finding = find_inode(txn, id);
    FF_CO_TRY(auto inode, co_await std::move(finding));
    if (!inode || !inode->cutting || inode->truncations != truncations) co_return Result<void>();
    inode->cutting = false;
    inode->cut_to = 0;
    put_inode(txn, *inode);
    txn.erase(keys::of(keys::kCut, id));
    co_return Result<void>();
  };
  auto running = engine_.run(std::move(function), deadline());
  co_return co_await std::move(running);
}

Task<Result<Inode>> Names::wrote(InodeId id, SessionId session, Written written) {
  FF_CO_TRY(check_length(written.end, id));
  const int64_t now_ns = clock_.wall_ns();
  Inode result;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_file(txn, id);
    auto read = co_await std::move(reading);
    if (written.closed) txn.erase(keys::session(id, session));
    if (!read) co_return written.closed ? Result<void>() : std::move(read).error();
    result = std::move(*read);
    const Inode before = result;
    if (result.truncations == written.truncations) {
      result.length = std::max(result.length, written.end);
    }
    if (written.mtime_ns != 0) {
      result.mtime_ns = std::max(result.mtime_ns, written.mtime_ns);
      result.ctime_ns = now_ns;
    }
    if (written.mtime_ns != 0 || written.perhaps) result.changes++;
    if (result != before) put_inode(txn, result);
    co_return Result<void>();
  };
  auto running = change(std::move(function));
  FF_CO_TRY(co_await std::move(running));
  if (result.id == 0) co_return stale_inode(id);  // closed
  co_return result;
}

Task<Result<void>> Names::end(std::vector<Ended> ended) {
  kv::Function function = [&ended](kv::Txn& txn) -> Task<Result<void>> {
    for (const Ended& one : ended) txn.erase(keys::session(one.inode, one.session));
    co_return Result<void>();
  };
  auto running = change(std::move(function));
  co_return co_await std::move(running);
}

Task<Result<Inode>> Names::grow(InodeId id, uint64_t end, uint64_t truncations) {
  FF_CO_TRY(check_length(end, id));
  Inode result;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_file(txn, id);
    FF_CO_TRY(result, co_await std::move(reading));
    if (result.truncations != truncations || result.length >= end) co_return Result<void>();
    result.length = end;
    put_inode(txn, result);
    co_return Result<void>();
  };
  auto running = change(std::move(function));
  FF_CO_TRY(co_await std::move(running));
  co_return result;
}

Task<Result<Inode>> Names::append(Request request, InodeId id, uint64_t size) {
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    auto reading = read_file(txn, id);
    FF_CO_TRY(Inode inode, co_await std::move(reading));
    if (inode.cutting) co_return fail(Errc::busy, "inode {} is being truncated", id);
    FF_CO_TRY(check_length(size, id));
    FF_CO_TRY(check_length(inode.length + size, id));
    inode.length += size;
    inode.floor = inode.length;  // a writer that dies leaves zeros
    inode.mtime_ns = inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    co_return inode;
  };
  auto doing = once(request, std::move(body));
  co_return co_await std::move(doing);
}

Task<Result<bool>> Names::cuts_still(InodeId id, uint64_t truncations) {
  auto looking = stat(id);
  FF_CO_TRY(const Inode inode, co_await std::move(looking));
  co_return inode.cutting&& inode.truncations == truncations;
}

// Whoever truncates again meanwhile has this begin anew.
Task<Result<Inode>> Names::finish_cut(InodeId id, Chunks& chunks) {
  for (;;) {
    auto looking = stat(id);
    FF_CO_TRY(const Inode inode, co_await std::move(looking));
    if (!inode.cutting) co_return inode;
    // Whoever truncates may still wait for that to be durable.
    auto syncing = sync();
    FF_CO_TRY(co_await std::move(syncing));
    const Chunks::Still still = [this, id, count = inode.truncations] {
      return cuts_still(id, count);
    };
    auto cutting = chunks.cut(inode, inode.cut_to, still);
    FF_CO_TRY(co_await std::move(cutting));
    auto ending = cut_done(id, inode.truncations);
    FF_CO_TRY(co_await std::move(ending));
  }
}

Task<Result<Inode>> Names::measure(InodeId id, Chunks& chunks) {
  auto finishing = finish_cut(id, chunks);
  FF_CO_TRY(const Inode inode, co_await std::move(finishing));
  if (!inode.is(Kind::file)) co_return inode;
  auto ending = chunks.end(inode);
  FF_CO_TRY(const uint64_t end, co_await std::move(ending));
  auto growing = grow(id, end, inode.truncations);
  co_return co_await std::move(growing);
}

}  // namespace ff::meta
