// file_system_deferred.cc: the deferred closes of small new files: decides which ones, and stores
// them.
#include "storage/client/deferred_closes.h"

#include <utility>

#include "platform/base/gate.h"
#include "platform/base/task_group.h"
#include "platform/base/wait.h"
#include "storage/client/file_system.h"

namespace ff::client {

namespace {

constexpr int64_t kStorePauseNs = 200 * kMillisecond;

Task<Result<void>> cancelled_with(Task<Result<void>> task, CancellationToken& cancel) {
  co_return co_await std::move(task).with_cancellation(cancel);
}

}  // namespace

bool DeferredCloses::add(std::shared_ptr<File> file) {
  const meta::InodeId inode = file->inode().id;
  if (!of_.metadata_.owns(inode)) return false;
  used_ = true;
  const bool known = files_.contains(inode);
  const bool small = file->session_ && file->view_.inode.length <= kFileMax &&
                     !file->behind_.has_failed_bytes() && file->behind_.recorded();
  const bool room = known || (files_.size() < kFilesMax && file->behind_.has_memory() &&
                              !file->behind_.empty() && of_.has_plenty_of_space());
  if (!small || !room) return false;
  files_[inode] = std::move(file);
  return true;
}

// A failed write stays in write-behind: it is retried until storage accepts it or refuses it for
// good.
Task<Result<void>> DeferredCloses::store_file(std::shared_ptr<File> file) {
  for (;;) {
    FF_CO_TRY(co_await file->behind_.flush(WriteBehind::Retry::now));
    if (!file->behind_.has_failed_bytes()) break;
    FF_CO_TRY(co_await sleep_for(of_.loop(), kStorePauseNs));
  }
  const auto found = files_.find(file->inode().id);
  if (found == files_.end() || found->second != file) co_return Result<void>();
  files_.erase(found);
  if (file->closed_) co_await file->behind_.close();
  co_return Result<void>();
}

Task<Result<void>> DeferredCloses::store(std::vector<meta::InodeId> inodes) {
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  TaskGroup all(of_.loop());
  for (const meta::InodeId inode : inodes) {
    const auto found = files_.find(inode);
    if (found == files_.end()) continue;
    all.add(cancelled_with(store_file(found->second), scope.cancellation()));
  }
  co_return co_await all.join();
}

void DeferredCloses::drop(meta::InodeId inode) {
  const auto found = files_.find(inode);
  if (found != files_.end() && found->second->closed_) found->second->behind_.drop_buffers();
}

Task<void> DeferredCloses::rescue() {
  const auto all = files_;
  for (const auto& [inode, file] : all) {
    const auto stored = co_await store_file(file);
    if (!stored) co_return;
    file->end_ = file->view_.inode.length;
    file->length_dirty_ = true;
    (void)co_await file->flush_length(file->closed_);  // none: the file does not exist
  }
}

Task<void> DeferredCloses::close() {
  const auto left = std::exchange(files_, {});
  for (const auto& [inode, file] : left) co_await file->behind_.close();
}

}  // namespace ff::client
