// file_system_restore.cc: continues what the predecessor of this process left in the recovery
// table.
#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/task_group.h"
#include "storage/client/file_system.h"

namespace ff::client {

namespace {

using RecordKind = RecoveryTable::Kind;

constexpr int64_t kReplayPauseNs = 200 * kMillisecond;
constexpr size_t kRestoredAtOnce = 64;  // files

bool is_gone(const Error& error) { return error.code == Errc::stale || error.sys == ENOENT; }

}  // namespace

RecoveryTable::Record FileSystem::record_session(const meta::InodeRef& inode,
                                                 meta::SessionId session, meta::InodeId dir) const {
  if (recovery_ == nullptr) return {};
  return recovery_->add(
      {.kind = RecordKind::session, .fixed = {inode.id, session.number, dir}, .text = inode.proof});
}

void FileSystem::record_errors(meta::InodeId inode, const ErrorSeq& errors) {
  const Error& last = errors.last();
  // The new record first: a successor may find both, and takes the later one.
  error_records_[inode] = recovery_->add(
      {.kind = RecordKind::error,
       .fixed = {inode, static_cast<uint64_t>(last.sys), static_cast<uint64_t>(last.code)},
       .live = {errors.count(), errors.has_unreported() ? uint64_t{0} : 1},
       .text = std::string_view(last.message).substr(0, RecoveryTable::kTextMax)});
}

// Nobody knows which of the predecessor's writes were synced.
void FileSystem::mark_unsynced(InodeState& state,
                               const std::vector<cluster::ChainId>& chains) const {
  if (!restored_ns_ || context_.loop.now_ns() - *restored_ns_ > kDurableNs) return;
  for (const auto chain : chains) state.unsynced.add(chain, UnsyncedWrites::kAnyVerifier);
}

void FileSystem::restore_errors() {
  for (RecoveryTable::Record& record : recovery_->take(RecordKind::error)) {
    Error last;
    last.sys = static_cast<int>(record.fixed(1));
    last.code = static_cast<Errc>(record.fixed(2));
    last.message = record.text();
    const meta::InodeId inode = record.fixed(0);
    state_of(inode)->errors.restore(std::move(last), record.live(0), record.live(1) != 0);
    error_records_[inode] = std::move(record);
  }
}

// A user with a token needs a new capability, so the file is opened again with its session. What
// changes of the predecessor say of the file does not matter here.
Task<Result<meta::InodeView>> FileSystem::restored_view(meta::InodeRef inode, uint32_t rights,
                                                        std::optional<meta::SessionId> session) {
  if (inode.proof.empty()) co_return co_await metadata_.MetaClient::stat(std::move(inode), false);
  co_return co_await metadata_.open(meta::Caller(), std::move(inode), rights, session);
}

Task<Result<std::shared_ptr<File>>> FileSystem::restore_reader(meta::InodeRef inode) {
  FF_CO_TRY(auto view, co_await restored_view(std::move(inode), meta::kMayRead, std::nullopt));
  co_return co_await make_file(meta::Caller(), std::move(view), std::nullopt);
}

Task<Result<std::shared_ptr<File>>> FileSystem::reopen(RecoveryTable::Record& record) {
  const meta::InodeRef inode{.id = record.fixed(0), .proof = std::string(record.text())};
  const meta::SessionId session = metadata_.session(record.fixed(1));
  FF_CO_TRY(auto found, co_await restored_view(inode, meta::kMayRead | meta::kMayWrite, session));
  const bool cut = record.live(3) != found.inode.truncate_seq;
  const uint64_t dirty = record.live(0);
  const uint64_t end = cut ? 0 : record.live(1);
  const auto written_ns = static_cast<int64_t>(record.live(2));
  FF_CO_TRY(auto file, co_await make_file(meta::Caller(), std::move(found), session));
  file->dir_ = record.fixed(2);
  file->record_ = std::move(record);
  file->length_dirty_ = dirty != 0;
  file->time_dirty_ = dirty == 1;
  file->end_ = dirty != 0 ? end : 0;
  file->written_ns_ = written_ns;
  file->view_.inode.length = std::max(file->view_.inode.length, file->end_);
  co_return file;
}

// The record is kept until servers have answered: a successor of this process would need it, too.
// `last`: servers have applied all changes of the predecessor that they will.
Task<Result<void>> FileSystem::restore_writer(LeftSession session, bool last) {
  for (bool told = false;;) {
    auto file = co_await reopen(session.record);
    if (file) {
      restored_.writers.push_back(*file);
      co_return co_await replay(std::move(*file), std::move(session.buffers));
    }
    if (!meta::is_retryable(file.error())) {
      const meta::InodeId inode = session.record.fixed(0);
      if (!last) left_sessions_.emplace(inode, std::move(session));
      co_return last && !is_gone(file.error()) ? file.error() : Result<void>();
    }
    if (!std::exchange(told, true)) {
      log_warning("opening a file of the predecessor failed; the mount waits and retries",
                  {{"inode", session.record.fixed(0)}, {"cause", file.error().message}});
    }
    FF_CO_TRY(co_await sleep_for(context_.loop, kReplayPauseNs));
  }
}

// The file keeps the bytes until storage has room for them, and programs go on meanwhile.
bool FileSystem::keep_left(const std::shared_ptr<File>& file,
                           std::vector<RecoveryTable::Record>& buffers, const Error& why) {
  if (why.code != Errc::disk_full || deferred_.contains(file->inode().id)) return false;
  if (!file->behind_.adopt(buffers, why)) return false;
  full_ns_ = context_.loop.now_ns();
  deferred_.keep(file);
  return true;
}

// Stores the bytes of one file in the order of the writes. Storage may have some of them already:
// the same bytes at the same place.
Task<Result<void>> FileSystem::replay(std::shared_ptr<File> file,
                                      std::vector<RecoveryTable::Record> buffers) {
  while (!buffers.empty()) {
    const RecoveryTable::Record& buffer = buffers.front();
    const uint64_t begin = buffer.fixed(2), at = buffer.fixed(3), size = buffer.live(0);
    const bool valid = at <= behind_.data.size() && size <= behind_.data.size() - at;
    for (bool told = false; valid;) {
      const auto written = co_await file->write_parts(begin, behind_.data.subspan(at, size));
      if (written) break;
      if (is_permanent_write_error(written.error())) {
        report_lost(file->inode().id, written.error());
        break;
      }
      if (keep_left(file, buffers, written.error())) co_return Result<void>();
      if (!std::exchange(told, true)) {
        log_warning("storing the bytes of the predecessor failed; the mount waits and retries",
                    {{"inode", file->inode().id}, {"cause", written.error().message}});
      }
      FF_CO_TRY(co_await sleep_for(context_.loop, kReplayPauseNs));
    }
    buffers.erase(buffers.begin());
  }
  co_return Result<void>();
}

void FileSystem::take_sessions() {
  std::map<std::pair<meta::InodeId, uint64_t>, std::vector<RecoveryTable::Record>> buffers;
  for (RecoveryTable::Record& record : recovery_->take(RecordKind::buffer)) {
    buffers[{record.fixed(0), record.fixed(1)}].push_back(std::move(record));
  }
  for (RecoveryTable::Record& record : recovery_->take(RecordKind::session)) {
    const meta::InodeId inode = record.fixed(0);
    auto& its = buffers[{inode, record.fixed(1)}];
    left_sessions_.emplace(inode, LeftSession{std::move(record), std::move(its)});
  }
  // Other buffers belong to files that were removed.
}

Task<Result<void>> FileSystem::restore_writers(std::vector<meta::InodeId> inodes, bool last) {
  // restore() must not return before those are stored that the sender of changes waits for.
  FF_CO_TRY(const auto turn, co_await restoring_.acquire(1));
  std::vector<LeftSession> sessions;
  for (const meta::InodeId inode : inodes) {
    const auto [first, end] = left_sessions_.equal_range(inode);
    for (auto at = first; at != end; ++at) sessions.push_back(std::move(at->second));
    left_sessions_.erase(first, end);
  }
  for (size_t i = 0; i < sessions.size();) {
    TaskGroup some(context_.loop);
    const size_t end = std::min(sessions.size(), i + kRestoredAtOnce);
    for (; i < end; i++) some.add(restore_writer(std::move(sessions[i]), last));
    FF_CO_TRY(co_await some.join());
  }
  co_return Result<void>();
}

Task<Result<FileSystem::Restored>> FileSystem::restore() {
  if (recovery_ == nullptr || !recovery_->continues()) co_return Restored();
  restored_ns_ = context_.loop.now_ns();
  restore_errors();
  take_sessions();
  FF_CO_TRY(co_await metadata_.restore());
  for (RecoveryTable::Record& record : recovery_->take(RecordKind::holder)) {
    const meta::SessionId session = metadata_.session(record.fixed(1));
    restored_.holders.push_back({{record.fixed(0), session}, std::move(record)});
  }
  std::vector<meta::InodeId> others;
  for (const auto& [inode, session] : left_sessions_) {
    if (others.empty() || others.back() != inode) others.push_back(inode);
  }
  FF_CO_TRY(co_await restore_writers(std::move(others), true));
  co_await metadata_.end_lease();
  co_return std::exchange(restored_, Restored());
}

}  // namespace ff::client
