// namespace_lengths.cc: the lengths of files (storage.md, "Metadata": Length).
//
// Writers write chunks and report the length later; until then only they know it. A report is
// ignored if the file was truncated since (`truncate_seq`). A truncation is first recorded durably
// and then carried out in storage; every reader of such an inode finishes it first
// (finish_truncation()). The end of a truncation is durable before anybody writes there again:
// otherwise it would be repeated after a power failure.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/meta/file_chunks.h"
#include "storage/meta/namespace_steps.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

Task<Result<Inode>> read_file(kv::Txn& txn, InodeId id) {
  FF_CO_TRY(Inode inode, co_await read_inode(txn, id));
  const std::string what = fmt::format("inode {}", id);
  if (inode.is(InodeType::directory)) co_return errno_error(EISDIR, what);
  if (!inode.is(InodeType::file)) co_return errno_error(EINVAL, what);
  co_return inode;
}

Result<void> check_length(uint64_t length, InodeId id) {
  if (length <= kLengthMax) return {};
  Error error = errno_error(EFBIG, fmt::format("inode {}", id));
  error.code = Errc::usage;
  return error;
}

Error session_ended_error(InodeId id) {
  Error error = fail(Errc::refused,
                     "inode {}: metadata servers have ended the session of this writer, from which "
                     "they had not heard for too long",
                     id);
  error.sys = EIO;
  return error;
}

}  // namespace

Task<Result<Inode>> Namespace::truncate(Caller caller, RequestId request, InodeId id,
                                        uint64_t length, bool opened) {
  FF_CO_TRY(check_length(length, id));
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    FF_CO_TRY(Inode inode, co_await read_file(txn, id));
    if (!opened) {
      FF_CO_TRY(check_access(caller, inode, kMayWrite, fmt::format("inode {}", id)));
      FF_CO_TRY(co_await check_stored(txn, inode, std::nullopt));
    }
    if (!caller.is_root()) inode.mode = without_set_ids(inode);
    // An unfinished truncation to a shorter length is finished with this one.
    inode.truncate_to = inode.truncating ? std::min(inode.truncate_to, length) : length;
    inode.length = length;
    inode.min_length = length;
    inode.truncate_seq++;
    inode.truncating = true;
    inode.data_version++;
    inode.mtime_ns = inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    txn.put(keys::of(keys::kTruncation, id), "");
    co_return inode;
  };
  std::vector<std::string> reads = {keys::inode(id)};
  co_return co_await execute_once(request, std::move(reads), std::move(body), true);
}

Task<Result<void>> Namespace::truncation_done(InodeId id, uint64_t truncate_seq) {
  kv::TxnFunction function = [id, truncate_seq](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(auto inode, co_await find_inode(txn, id));
    if (!inode || !inode->truncating || inode->truncate_seq != truncate_seq)
      co_return Result<void>();
    inode->truncating = false;
    inode->truncate_to = 0;
    put_inode(txn, *inode);
    txn.erase(keys::of(keys::kTruncation, id));
    co_return Result<void>();
  };
  co_return co_await engine_.run(std::move(function), deadline());
}

Task<Result<Inode>> report_length_step(kv::Txn& txn, InodeId id, SessionId session,
                                       const Namespace::LengthReport& report, int64_t now_ns) {
  FF_CO_TRY(check_length(report.min_length, id));
  auto read = co_await read_file(txn, id);
  if (report.closed) txn.erase(keys::session(id, session));
  if (!read && report.closed) co_return Inode();
  FF_CO_TRY(Inode inode, std::move(read));
  const Inode before = inode;
  take_length(inode, report, now_ns);
  if (report.unstored) {
    FF_CO_TRY(const auto lasts, co_await txn.get(keys::session(id, session)));
    if (!lasts) co_return session_ended_error(id);  // others may have written to it
    inode.unstored = session;
  } else if (inode.unstored == session) {
    inode.unstored.reset();
  }
  if (inode != before) put_inode(txn, inode);
  co_return inode;
}

Task<Result<Inode>> Namespace::report_length(InodeId id, SessionId session, LengthReport report) {
  const int64_t now_ns = clock_.wall_ns();
  Inode result;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(result, co_await report_length_step(txn, id, session, report, now_ns));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await change(std::move(function)));
  if (result.id == 0) co_return stale_error(id);  // the session was ended
  co_return result;
}

Task<Result<void>> Namespace::end_sessions(std::vector<EndedSession> ended) {
  kv::TxnFunction function = [&ended](kv::Txn& txn) -> Task<Result<void>> {
    for (const EndedSession& one : ended) txn.erase(keys::session(one.inode, one.session));
    co_return Result<void>();
  };
  co_return co_await change(std::move(function));
}

Task<Result<Inode>> Namespace::extend_length(InodeId id, uint64_t end, uint64_t truncate_seq) {
  FF_CO_TRY(check_length(end, id));
  Inode result;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(result, co_await read_file(txn, id));
    if (result.truncate_seq != truncate_seq || result.length >= end) co_return Result<void>();
    result.length = end;
    put_inode(txn, result);
    co_return Result<void>();
  };
  FF_CO_TRY(co_await change(std::move(function)));
  co_return result;
}

Task<Result<Inode>> Namespace::append(RequestId request, InodeId id, uint64_t size) {
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    FF_CO_TRY(Inode inode, co_await read_file(txn, id));
    if (inode.truncating) co_return fail(Errc::busy, "inode {} is being truncated", id);
    FF_CO_TRY(check_length(size, id));
    FF_CO_TRY(check_length(inode.length + size, id));
    inode.length += size;
    inode.min_length = inode.length;  // if the writer dies, its range reads as zeros
    inode.mtime_ns = inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    co_return inode;
  };
  std::vector<std::string> reads = {keys::inode(id)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Task<Result<bool>> Namespace::truncation_pending(InodeId id, uint64_t truncate_seq) {
  FF_CO_TRY(const Inode inode, co_await stat(id));
  co_return inode.truncating&& inode.truncate_seq == truncate_seq;
}

// Starts again if another truncation comes meanwhile.
Task<Result<Inode>> Namespace::finish_truncation(InodeId id, FileChunks& chunks) {
  for (;;) {
    FF_CO_TRY(const Inode inode, co_await stat(id));
    if (!inode.truncating) co_return inode;
    // The recorded truncation must be durable before chunks are removed.
    FF_CO_TRY(co_await sync());
    const FileChunks::StillNeeded still_needed = [this, id, count = inode.truncate_seq] {
      return truncation_pending(id, count);
    };
    FF_CO_TRY(co_await chunks.truncate(inode, inode.truncate_to, still_needed));
    FF_CO_TRY(co_await truncation_done(id, inode.truncate_seq));
  }
}

Task<Result<Inode>> Namespace::refresh_length(InodeId id, FileChunks& chunks) {
  FF_CO_TRY(const Inode inode, co_await finish_truncation(id, chunks));
  if (!inode.is(InodeType::file)) co_return inode;
  FF_CO_TRY(const uint64_t end, co_await chunks.stored_length(inode));
  co_return co_await extend_length(id, end, inode.truncate_seq);
}

}  // namespace ff::meta
