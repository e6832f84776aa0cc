// file_system_deferred.cc: the deferred closes of small new files: decides which ones, and stores
// them.
#include "storage/client/deferred_closes.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/task_group.h"
#include "platform/base/wait.h"
#include "storage/client/file_system.h"
#include "storage/meta/service.h"

namespace ff::client {

namespace {

constexpr int64_t kStorePauseNs = 200 * kMillisecond;
// How long changes wait for a file for which storage has no room: the space of removed files may
// become free at any moment.
constexpr int64_t kRoomNs = kSecond;
constexpr int64_t kRoomPauseNs = 2 * kSecond;

Task<Result<void>> cancelled_with(Task<Result<void>> task, CancellationToken& cancel) {
  co_return co_await std::move(task).with_cancellation(cancel);
}

// For a task group, which ends at the first error.
Task<Result<void>> keep_result(Task<Result<void>> task, Result<void>& into) {
  into = co_await std::move(task);
  co_return Result<void>();
}

bool is_full(const Error& error) { return error.code == Errc::disk_full; }
bool is_removed(const Error& error) { return error.code == Errc::stale || error.sys == ENOENT; }

}  // namespace

bool DeferredCloses::add(std::shared_ptr<File> file) {
  const meta::InodeId inode = file->inode().id;
  if (!of_.metadata_.owns(inode)) return false;
  const auto held = files_.find(inode);
  const bool known = held != files_.end();
  if (known && held->second != file) return false;  // another one has bytes of the file
  const bool small = file->session_ && file->view_.inode.length <= kFileMax &&
                     !file->behind_.has_failed_bytes() && file->behind_.recorded();
  const bool room = known || (files_.size() < kFilesMax && file->behind_.has_memory() &&
                              !file->behind_.empty() && of_.has_plenty_of_space(file->chains_));
  if (!small || !room) return false;
  file->behind_.promise();
  files_[inode] = std::move(file);
  return true;
}

void DeferredCloses::keep(std::shared_ptr<File> file) {
  files_[file->inode().id] = file;
  file->behind_.promise();
  auto& length = file->view_.inode.length;
  length = std::max(length, file->behind_.end_offset());
  wait_for_room(std::move(file), false);
}

// A failed write stays in write-behind, unless storage refuses it for good.
Task<Result<void>> DeferredCloses::try_to_store(std::shared_ptr<File> file) {
  FF_CO_TRY(co_await file->behind_.flush(WriteBehind::Retry::now));
  const auto error = file->behind_.error();
  if (!error) co_return Result<void>();
  if (is_full(*error)) of_.full_ns_ = of_.loop().now_ns();
  co_return *error;
}

// Tries it until storage accepts the bytes. Errc::disk_full: there was no room until
// `room_until_ns`.
Task<Result<void>> DeferredCloses::store_file(std::shared_ptr<File> file, int64_t room_until_ns) {
  for (;;) {
    auto stored = co_await try_to_store(file);
    if (stored || stored.error().code == Errc::interrupted) co_return stored;
    if (is_full(stored.error()) && of_.loop().now_ns() >= room_until_ns) co_return stored;
    FF_CO_TRY(co_await sleep_for(of_.loop(), kStorePauseNs));
  }
}

void DeferredCloses::forget(const File& file) {
  const auto found = files_.find(file.inode().id);
  if (found != files_.end() && found->second.get() == &file) files_.erase(found);
}

Task<Result<std::vector<meta::InodeId>>> DeferredCloses::store(std::vector<meta::InodeId> inodes) {
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  std::vector<std::pair<std::shared_ptr<File>, Result<void>>> stored;
  for (const meta::InodeId inode : inodes) {
    const auto found = files_.find(inode);
    if (found != files_.end()) stored.emplace_back(found->second, Result<void>());
  }
  TaskGroup all(of_.loop());
  const int64_t until_ns = of_.loop().now_ns() + kRoomNs;
  for (auto& [file, result] : stored) {
    if (waits(file->inode().id)) {
      result = fail(Errc::disk_full, "waits");
      continue;
    }
    all.add(keep_result(cancelled_with(store_file(file, until_ns), scope.cancellation()), result));
  }
  FF_CO_TRY(co_await all.join());
  std::vector<meta::InodeId> full;
  for (auto& [file, result] : stored) {
    if (!result && !is_full(result.error())) co_return std::move(result).error();
    if (!result) {
      full.push_back(file->inode().id);
      wait_for_room(file, true);  // by the batch with its length
      continue;
    }
    forget(*file);
    if (file->closed_) co_await file->behind_.close();
  }
  co_return full;
}

// `announced`: servers learn of it before others can see the file.
void DeferredCloses::wait_for_room(std::shared_ptr<File> file, bool announced) {
  const meta::InodeId inode = file->inode().id;
  if (!waiting_.insert(inode).second) return;
  log_warning(
      "storage has no room for a file that a program has closed; the mount keeps its bytes and "
      "stores them when there is room",
      {{"inode", inode}, {"name", file->name_}, {"bytes", file->inode().length}});
  // Programs of this client see its length.
  of_.writers_[{inode, file->session_->number}] = file;
  if (retried_.insert(inode).second) of_.gate_.spawn(retry(std::move(file), announced));
}

// Stores the bytes, then reports the length, unless the file is removed first. Before each attempt,
// servers confirm that others still cannot write to the file: else these bytes would undo newer
// ones. An attempt takes far less time than servers wait before they end a session.
Task<void> DeferredCloses::retry(std::shared_ptr<File> file, bool announced) {
  const meta::InodeId inode = file->inode().id;
  Result<void> allowed;
  for (;; announced = false) {
    if (!announced) allowed = co_await announce(file);
    if (!allowed) break;
    const auto tried = co_await try_to_store(file);
    if (tried) break;
    const int64_t pause_ns = is_full(tried.error()) ? kRoomPauseNs : kStorePauseNs;
    const auto waited = co_await sleep_for(of_.loop(), pause_ns);
    if (!waited) co_return;  // close() drops it
  }
  if (!allowed && allowed.error().code == Errc::interrupted) co_return;
  if (!allowed) {
    file->behind_.drop_buffers();
    if (!is_removed(allowed.error())) of_.report_lost(inode, allowed.error());
  }
  forget(*file);
  const bool waited = waiting_.erase(inode) > 0;
  if (waited && allowed) log_info("the bytes of a closed file are stored", {{"inode", inode}});
  if (allowed) co_await report(file);
  retried_.erase(inode);
  if (!file->closed_) co_return;
  of_.writers_.erase({inode, file->session_->number});
  co_await file->behind_.close();
  if (!allowed) {
    of_.end_session({.inode = inode, .session = *file->session_}, std::move(file->record_));
  }
}

Task<Result<meta::InodeView>> DeferredCloses::report_unstored(std::shared_ptr<File> file) {
  FF_CO_TRY(std::string right, co_await file->capability());
  const meta::Namespace::LengthReport report{.truncate_seq = file->inode().truncate_seq,
                                             .unstored = true};
  co_return co_await of_.metadata_.report_length(file->inode().id, *file->session_, report,
                                                 std::move(right));
}

// From then on others cannot write to the file. An error: the bytes must not be stored any more.
// Errc::stale: the file is removed; Errc::refused: others may have written to it before.
Task<Result<void>> DeferredCloses::announce(std::shared_ptr<File> file) {
  const meta::InodeId inode = file->inode().id;
  for (;;) {
    const int64_t asked_ns = of_.loop().now_ns();
    auto view = co_await report_unstored(file);
    if (view) {
      // The session of a removed file is open still, so that servers know the file.
      if (view->inode.links == 0 && file->closed_)
        co_return fail(Errc::stale, "inode {} is removed", inode);
      file->on_update(std::move(*view), asked_ns);  // it may have been truncated
      co_return Result<void>();
    }
    if (!meta::is_retryable(view.error())) co_return std::move(view).error();
    FF_CO_TRY(co_await sleep_for(of_.loop(), kStorePauseNs));
  }
}

// An error means that the file does not exist any more.
Task<void> DeferredCloses::report(std::shared_ptr<File> file) {
  for (;;) {
    file->end_ = file->view_.inode.length;
    file->length_dirty_ = true;  // of its times, servers have heard
    const auto told = co_await file->flush_length(file->closed_);
    if (told || !meta::is_retryable(told.error())) co_return;
    const auto waited = co_await sleep_for(of_.loop(), kStorePauseNs);
    if (!waited) co_return;
  }
}

void DeferredCloses::drop(meta::InodeId inode) {
  const auto found = files_.find(inode);
  if (found == files_.end() || !found->second->closed_ || waits(inode)) return;
  found->second->behind_.drop_buffers();
}

void DeferredCloses::rescue() {
  for (const auto& [inode, file] : files_) {
    file->time_dirty_ = true;
    if (retried_.insert(inode).second) of_.gate_.spawn(retry(file, false));
  }
}

std::vector<std::shared_ptr<File>> DeferredCloses::unstored() const {
  std::vector<std::shared_ptr<File>> all;
  for (const auto& [inode, file] : files_) all.push_back(file);
  return all;
}

Task<std::vector<meta::Namespace::EndedSession>> DeferredCloses::drop_waiting() {
  const auto waiting = std::exchange(waiting_, {});
  std::vector<meta::Namespace::EndedSession> ended;
  for (const meta::InodeId inode : waiting) {
    const auto file = files_.at(inode);
    files_.erase(inode);
    co_await file->behind_.close();
    of_.writers_.erase({inode, file->session_->number});
    ended.push_back({.inode = inode, .session = *file->session_});
  }
  co_return ended;
}

Task<void> DeferredCloses::close() {
  const auto left = std::exchange(files_, {});
  for (const auto& [inode, file] : left) co_await file->behind_.close();
}

}  // namespace ff::client
