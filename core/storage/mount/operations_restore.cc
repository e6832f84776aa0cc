// operations_restore.cc: records of open handles, and how a successor of the process continues
// them.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/task_group.h"
#include "storage/mount/fuse_request.h"
#include "storage/mount/operations.h"

namespace ff::mount {

namespace {

using RecordKind = client::RecoveryTable::Kind;

// Flags of a handle in its record; stored.
constexpr uint64_t kRecordReads = 1;
constexpr uint64_t kRecordWrites = 2;
constexpr uint64_t kRecordDirect = 4;
constexpr size_t kHandlesAtOnce = 64;

}  // namespace

uint64_t Operations::origin_of(uint64_t unique) const {
  return files_.recovery() == nullptr ? 0 : unique & ~kUniqueResend;
}

void Operations::record(FileHandle& handle, uint64_t number, uint64_t origin) {
  if (files_.recovery() == nullptr) return;
  const uint64_t flags = (handle.reads ? kRecordReads : 0) | (handle.writes ? kRecordWrites : 0) |
                         (handle.direct ? kRecordDirect : 0);
  handle.record =
      files_.recovery()->add({.kind = RecordKind::handle,
                              .fixed = {number, handle.inode->id, flags, handle.uid, origin},
                              .live = {handle.cursor.seen(), handle.cursor.opened()},
                              .text = handle.inode->proof});
}

void Operations::on_sync_answered(uint64_t handle) {
  const auto open = this->handle(handle);
  const auto dir = directory(handle);
  auto* const record = open != nullptr ? &open->record : dir != nullptr ? &dir->record : nullptr;
  if (record == nullptr || !*record) return;
  const auto& cursor = open != nullptr ? open->cursor : dir->cursor();
  record->set_live(0, cursor.seen());
  record->set_live(1, cursor.opened());
}

void Operations::on_listed(uint64_t handle, const DirectoryHandle::Entry& last) {
  const auto dir = directory(handle);
  if (dir != nullptr && files_.recovery() != nullptr) {
    dir->on_sent(*files_.recovery(), handle, last);
  }
}

std::optional<Operations::Unanswered> Operations::unanswered(uint64_t origin) const {
  const auto found = unanswered_.find(origin);
  if (origin == 0 || found == unanswered_.end()) return std::nullopt;
  return found->second;
}

void Operations::end_restored_origins() {
  unanswered_.clear();
  files_.metadata().end_restored_origins();
}

Task<Result<void>> Operations::restore_handle(client::RecoveryTable::Record record) {
  const uint64_t number = record.fixed(0), flags = record.fixed(2), origin = record.fixed(4);
  const CachedInodeRef cached = inodes_.get_or_create(record.fixed(1));
  if (cached->proof.empty()) cached->proof = record.text();
  auto handle = std::make_shared<FileHandle>();
  handle->inode = cached;
  handle->uid = static_cast<uint32_t>(record.fixed(3));
  handle->reads = (flags & kRecordReads) != 0;
  handle->writes = (flags & kRecordWrites) != 0;
  handle->direct = (flags & kRecordDirect) != 0;
  handle->cursor = client::ErrorSeq::restored_cursor(record.live(0), record.live(1));
  handle->record = std::move(record);
  if (cached->file() == nullptr) {
    auto file = co_await files_.restore_reader(cached->ref());
    if (!file && (file.error().code == Errc::stale || file.error().sys == ENOENT)) {
      log_warning("a file that a program has open is gone", {{"inode", cached->id}});
      co_return Result<void>();
    }
    FF_CO_TRY(auto opened, std::move(file));
    if (cached->file() == nullptr) cached->reader = std::move(opened);
  }
  cached->handles.insert(handle.get());
  const bool direct = handle->direct;
  handles_[number] = std::move(handle);
  if (origin != 0) {
    unanswered_[origin] = {.opened = {.handle = number, .direct = direct}, .inode = cached->id};
  }
  co_return Result<void>();
}

void Operations::restore_dir(client::RecoveryTable::Record record) {
  meta::InodeView view;
  view.inode.id = record.fixed(1);
  view.inode.kind = meta::InodeType::directory;
  view.proof = record.text();
  const uint64_t number = record.fixed(0), origin = record.fixed(3);
  auto state = files_.state_of(view.inode.id);
  // Who opened the directory may list it.
  auto dir = std::make_shared<DirectoryHandle>(files_.loop(), files_.metadata(), meta::Caller(),
                                               view, record.fixed(2), std::move(state));
  dir->restore_cursor(client::ErrorSeq::restored_cursor(record.live(0), record.live(1)));
  dir->record = std::move(record);
  dirs_[number] = std::move(dir);
  if (origin != 0) unanswered_[origin] = {.opened = {.handle = number}, .inode = view.inode.id};
}

Task<Result<void>> Operations::restore_handles() {
  auto records = files_.recovery()->take(RecordKind::handle);
  for (size_t i = 0; i < records.size();) {
    TaskGroup some(files_.loop());
    const size_t end = std::min(records.size(), i + kHandlesAtOnce);
    for (; i < end; i++) {
      last_handle_ = std::max(last_handle_, records[i].fixed(0));
      some.add(restore_handle(std::move(records[i])));
    }
    FF_CO_TRY(co_await some.join());
  }
  for (auto& record : files_.recovery()->take(RecordKind::directory)) {
    last_handle_ = std::max(last_handle_, record.fixed(0));
    restore_dir(std::move(record));
  }
  for (auto& record : files_.recovery()->take(RecordKind::position)) {
    const auto dir = directory(record.fixed(0));
    if (dir != nullptr) dir->restore(std::move(record));
  }
  co_return Result<void>();
}

Task<Result<void>> Operations::restore() {
  if (files_.recovery() == nullptr || !files_.recovery()->continues()) co_return Result<void>();
  inodes_.restore_proofs();
  FF_CO_TRY(auto restored, co_await files_.restore());
  std::vector<std::shared_ptr<client::File>> spare;  // of requests that the predecessor began
  for (auto& file : restored.writers) {
    const CachedInodeRef cached = inodes_.get_or_create(file->inode().id);
    if (cached->writer == nullptr) {
      cached->writer = std::move(file);
      cached->counted_writes = 0;
    } else {
      spare.push_back(std::move(file));
    }
  }
  FF_CO_TRY(co_await restore_handles());
  // A creation that comes again continues its session.
  const auto awaited = [this](const client::File& file) {
    return file.session() && files_.metadata().awaits(*file.session());
  };
  for (const auto& file : spare) {
    if (awaited(*file)) {
      file->abandon();
    } else {
      (void)co_await file->close();
    }
  }
  for (const CachedInodeRef& cached : inodes_.with_files()) {
    if (cached->handles.empty() && cached->writer != nullptr && awaited(*cached->writer)) {
      std::exchange(cached->writer, nullptr)->abandon();
    }
    co_await close_files(*cached);
    inodes_.drop_if_unused(cached);
  }
  for (auto& holder : restored.holders) {
    const CachedInodeRef cached = inodes_.find(holder.session.inode);
    if (cached == nullptr || cached->handles.empty() || cached->holder) {
      files_.end_session(holder.session, std::move(holder.record));
      continue;
    }
    cached->holder = holder.session.session;
    cached->holder_record = std::move(holder.record);
  }
  files_.recovery()->drop_untaken();
  log_info("continues the mount of a process that has ended",
           {{"open_files", handles_.size()}, {"directories", dirs_.size()}});
  co_return Result<void>();
}

}  // namespace ff::mount
