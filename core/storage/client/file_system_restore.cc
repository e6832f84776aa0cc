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
                                                 meta::SessionId session) const {
  if (recovery_ == nullptr) return {};
  return recovery_->add(
      {.kind = RecordKind::session, .fixed = {inode.id, session.number}, .text = inode.proof});
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

// A user with a token needs a new capability, so the file is opened again with its session.
Task<Result<meta::InodeView>> FileSystem::restored_view(meta::InodeRef inode, uint32_t rights,
                                                        std::optional<meta::SessionId> session) {
  if (inode.proof.empty()) co_return co_await metadata_.stat(std::move(inode), false);
  co_return co_await metadata_.open(meta::Caller(), std::move(inode), rights, session);
}

Task<Result<std::shared_ptr<File>>> FileSystem::restore_reader(meta::InodeRef inode) {
  FF_CO_TRY(auto view, co_await restored_view(std::move(inode), meta::kMayRead, std::nullopt));
  co_return co_await make_file(meta::Caller(), std::move(view), std::nullopt);
}

Task<Result<void>> FileSystem::restore_writer(RecoveryTable::Record record, Restored& into) {
  const meta::InodeRef inode{.id = record.fixed(0), .proof = std::string(record.text())};
  const meta::SessionId session = metadata_.session(record.fixed(1));
  auto view = co_await restored_view(inode, meta::kMayRead | meta::kMayWrite, session);
  if (!view && is_gone(view.error())) co_return Result<void>();
  FF_CO_TRY(auto found, std::move(view));
  const bool cut = record.live(3) != found.inode.truncate_seq;
  const bool dirty = record.live(0) != 0;
  const uint64_t end = cut ? 0 : record.live(1);
  const auto written_ns = static_cast<int64_t>(record.live(2));
  FF_CO_TRY(auto file,
            co_await make_file(meta::Caller(), std::move(found), session, std::move(record)));
  file->length_dirty_ = dirty;
  file->end_ = dirty ? end : 0;
  file->written_ns_ = written_ns;
  file->view_.inode.length = std::max(file->view_.inode.length, file->end_);
  into.writers.push_back(std::move(file));
  co_return Result<void>();
}

// Stores the bytes of one file in the order of the writes. Storage may have some of them already:
// the same bytes at the same place.
Task<Result<void>> FileSystem::replay(std::shared_ptr<File> file,
                                      std::vector<RecoveryTable::Record> buffers) {
  for (RecoveryTable::Record& buffer : buffers) {
    const uint64_t begin = buffer.fixed(2), at = buffer.fixed(3), size = buffer.live(0);
    if (at > behind_.data.size() || size > behind_.data.size() - at) continue;
    for (bool told = false;;) {
      const auto written = co_await file->write_parts(begin, behind_.data.subspan(at, size));
      if (written) break;
      if (is_permanent_write_error(written.error())) {
        report_lost(file->inode().id, written.error());
        break;
      }
      if (!std::exchange(told, true)) {
        log_warning("storing the bytes of the predecessor failed; the mount waits and retries",
                    {{"inode", file->inode().id}, {"cause", written.error().message}});
      }
      FF_CO_TRY(co_await sleep_for(context_.loop, kReplayPauseNs));
    }
    buffer = RecoveryTable::Record();
  }
  co_return Result<void>();
}

Task<Result<void>> FileSystem::replay_all(const Restored& restored) {
  std::map<std::pair<meta::InodeId, uint64_t>, std::vector<RecoveryTable::Record>> buffers;
  for (RecoveryTable::Record& record : recovery_->take(RecordKind::buffer)) {
    buffers[{record.fixed(0), record.fixed(1)}].push_back(std::move(record));
  }
  TaskGroup all(context_.loop);
  for (const auto& file : restored.writers) {
    const auto found = buffers.find({file->inode().id, file->session_->number});
    if (found == buffers.end()) continue;
    all.add(replay(file, std::move(found->second)));
    buffers.erase(found);
  }
  // The others belong to files that were removed.
  co_return co_await all.join();
}

Task<Result<FileSystem::Restored>> FileSystem::restore() {
  Restored restored;
  if (recovery_ == nullptr || !recovery_->continues()) co_return restored;
  restored_ns_ = context_.loop.now_ns();
  restore_errors();
  FF_CO_TRY(co_await metadata_.restore());
  for (RecoveryTable::Record& record : recovery_->take(RecordKind::holder)) {
    const meta::SessionId session = metadata_.session(record.fixed(1));
    restored.holders.push_back({{record.fixed(0), session}, std::move(record)});
  }
  auto sessions = recovery_->take(RecordKind::session);
  for (size_t i = 0; i < sessions.size();) {
    TaskGroup some(context_.loop);
    const size_t end = std::min(sessions.size(), i + kRestoredAtOnce);
    for (; i < end; i++) some.add(restore_writer(std::move(sessions[i]), restored));
    FF_CO_TRY(co_await some.join());
  }
  FF_CO_TRY(co_await replay_all(restored));
  co_await metadata_.end_lease();
  co_return restored;
}

}  // namespace ff::client
