// operations_files.cc: open handles of programs on the file that they share.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/mount/operations.h"

namespace ff::mount {

namespace {

// The flag that open(2) adds for execution (linux/fs.h).
constexpr uint32_t kExec = 0x20;

// A name resolved this recently needs no check.
constexpr int64_t kFreshNs = 20 * kMillisecond;

uint32_t rights_of(uint32_t flags) {
  if ((flags & kExec) != 0) return meta::kMaySearch;
  uint32_t rights = 0;
  const uint32_t mode = flags & O_ACCMODE;
  if (mode != O_WRONLY) rights |= meta::kMayRead;
  if (mode != O_RDONLY || (flags & O_TRUNC) != 0) rights |= meta::kMayWrite;
  return rights;
}

bool may_write(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY; }

Error not_open(uint64_t handle) { return errno_error(EBADF, fmt::format("handle {}", handle)); }

}  // namespace

FileHandleRef Operations::handle(uint64_t number) const {
  const auto found = handles_.find(number);
  return found == handles_.end() ? nullptr : found->second;
}

uint64_t Operations::add(FileHandleRef handle) {
  handle->inode->handles.insert(handle.get());
  handles_[++last_handle_] = std::move(handle);
  return last_handle_;
}

// Returns ESTALE if the name may lead elsewhere by now: the kernel then resolves it again.
Result<void> Operations::check_name_current(CachedInode& cached, const meta::Inode& inode) {
  int64_t ctime_ns = cached.ctime_ns;
  if (cached.writer != nullptr) ctime_ns = std::max(ctime_ns, cached.writer->inode().ctime_ns);
  const bool fresh = files_.loop().now_ns() - cached.lookup_ns < kFreshNs;
  if (fresh || cached.lookup_ns == 0 || inode.ctime_ns <= ctime_ns) return {};
  cached.lookup_ns = 0;  // an open without a name must not get ESTALE again
  return errno_error(ESTALE, fmt::format("inode {}", inode.id));
}

// Opens the shared file if needed; asks the servers in any case.
Task<Result<meta::InodeView>> Operations::open_inode(meta::Caller caller, CachedInode& cached,
                                                     uint32_t rights) {
  const bool writes = (rights & meta::kMayWrite) != 0;
  std::shared_ptr<client::File>& file =
      writes || cached.writer != nullptr ? cached.writer : cached.reader;
  if (file == nullptr) {
    auto opened = co_await files_.open(std::move(caller), cached.ref(), rights);
    // The name leads to another inode by now.
    if (!opened && opened.error().sys == ENOENT) opened.error().sys = ESTALE;
    FF_CO_TRY(file, std::move(opened));
    if (writes) cached.counted_writes = 0;
    co_return file->view();
  }
  const int64_t asked_ns = files_.loop().now_ns();
  auto view =
      co_await files_.metadata().open(std::move(caller), cached.ref(), rights, std::nullopt);
  // The file has no name any more but is open; opened through /proc/self/fd, for example.
  if (!view && view.error().sys == ENOENT) co_return file->view();
  FF_CO_TRY(meta::InodeView now, std::move(view));
  file->on_update(std::move(now), asked_ns);
  co_return file->view();
}

// Whether the cached pages still match the file.
bool Operations::page_cache_valid(CachedInode& cached, const meta::Inode& inode) {
  cached.count_own_writes();
  const bool stand = cached.pages_version == inode.data_version;
  cached.pages_version = inode.data_version;
  return stand;
}

// Workers may read the file (fuse_worker.h) until a change withdraws this.
void Operations::publish_snapshot(const CachedInode& cached) {
  if (cached.file() != nullptr) cached.file()->publish_snapshot();
}

Operations::Opened Operations::add_open(const CachedInodeRef& cached, uint32_t uid, uint32_t flags,
                                        uint64_t origin) {
  const bool appends = may_write(flags) && (flags & O_APPEND) != 0;
  auto handle = std::make_shared<FileHandle>();
  handle->inode = cached;
  handle->uid = uid;
  handle->reads = (flags & O_ACCMODE) != O_WRONLY;
  handle->writes = may_write(flags);
  handle->direct = (flags & O_DIRECT) != 0 || appends;
  handle->cursor = cached->file()->cursor();
  const bool direct = handle->direct;
  record(*handle, last_handle_ + 1, origin);
  publish_snapshot(*cached);  // of the file that all handles share from now on
  return {.handle = add(std::move(handle)), .direct = direct};
}

Task<Result<Operations::Opened>> Operations::open(meta::Caller caller, meta::InodeId inode,
                                                  uint32_t flags) {
  if (!files_.has_recovery_room()) co_return errno_error(ENFILE, "the recovery table is full");
  const CachedInodeRef cached = inodes_.get_or_create(inode);
  FF_CO_TRY(const auto turn, co_await cached->open_lock.acquire(1));
  const uint32_t uid = caller.uid;
  const int64_t began_ns = files_.loop().now_ns();
  const uint64_t changes = cached->changes;
  meta::Caller cutter;
  cutter.origin = caller.origin;
  auto view = co_await open_inode(std::move(caller), *cached, rights_of(flags));
  // This mount has changed the file meanwhile: a new one may not know of a truncation.
  if (view && cached->changes != changes) (void)co_await cached->file()->refresh();
  Result<void> fit = view ? check_name_current(*cached, view->inode) : view.error();
  if (fit && (flags & O_TRUNC) != 0) {
    fit = co_await truncate(cutter, *cached, 0);
  }
  if (!fit) {
    if (cached->handles.empty()) {
      co_await close_files(*cached);
    }
    co_return fit.error();
  }
  Opened opened = this->add_open(cached, uid, flags, cutter.origin);
  const meta::Inode& now = cached->file()->inode();
  if (cached->changes == changes) cached->opened_ns = began_ns;
  // The kernel uses its cached length for a while and would cut reads short.
  meta::Inode with_writes = now;
  files_.apply_local_writes(with_writes);
  if (!cached->kernel_knows(with_writes)) {
    cached->on_kernel_drops();
    kernel_.invalidate_attributes(inode);
  }
  opened.keep_cache = !opened.direct && page_cache_valid(*cached, now);
  co_return opened;
}

Task<Result<Operations::Created>> Operations::create(meta::Caller caller, meta::InodeId dir,
                                                     std::string name, uint32_t mode,
                                                     uint32_t flags) {
  meta::Namespace::CreateOptions how{.kind = meta::InodeType::file, .mode = mode};
  how.exclusive = (flags & O_EXCL) != 0;
  how.rights = rights_of(flags);
  const uint32_t uid = caller.uid;
  const uint64_t origin = caller.origin;
  auto made = co_await files_.create(std::move(caller), ref(dir), std::move(name), std::move(how));
  if (!made) inodes_.drop_directory(dir);
  FF_CO_TRY(auto file, std::move(made));
  inodes_.on_entry_changed(dir, file->inode().btime_ns, 0);
  inodes_.add_lookup(file->view());
  const CachedInodeRef cached = inodes_.get_or_create(file->inode().id);
  const auto turn = co_await cached->open_lock.acquire(1).shielded();
  if (cached->writer == nullptr) {
    cached->writer = file;
    cached->counted_writes = 0;
  } else {
    (void)co_await file->close();  // no data was written through it
  }
  const meta::Inode& inode = cached->writer->inode();
  const bool is_new = inode.length == 0 && inode.data_version == 0;
  if ((flags & O_TRUNC) != 0 && !is_new) {
    meta::Caller cutter;
    cutter.origin = origin;
    const auto done = co_await truncate(cutter, *cached, 0);
    if (!done) {
      co_await close_files(*cached);
      inodes_.forget(cached->id, 1);
      co_return done.error();
    }
  }
  Created created{.inode = inode, .opened = add_open(cached, uid, flags, origin)};
  files_.apply_local_writes(created.inode);
  cached->on_reply(created.inode);
  created.opened.keep_cache = !created.opened.direct && page_cache_valid(*cached, inode);
  co_return created;
}

// Truncates with the rights of the caller, and updates the page cache state.
Task<Result<void>> Operations::truncate(meta::Caller caller, CachedInode& cached, uint64_t length) {
  meta::Inode now;
  if (cached.writer != nullptr && caller.is_root()) {
    FF_CO_TRY(co_await cached.writer->truncate(length, caller.origin));
    now = cached.writer->inode();
  } else {
    if (cached.writer != nullptr) {
      FF_CO_TRY(co_await cached.writer->publish_length());
      cached.writer->discard_unwritten(length);
    }
    const int64_t asked_ns = files_.loop().now_ns();
    FF_CO_TRY(auto view, co_await files_.metadata().truncate(std::move(caller), cached.ref(),
                                                             length, std::nullopt));
    now = view.inode;
    if (cached.file() != nullptr) cached.file()->on_update(std::move(view), asked_ns);
  }
  inodes_.on_changed(now);
  if (cached.pages_version) ++*cached.pages_version;
  co_return Result<void>();
}

Task<Result<Operations::Data>> Operations::read(uint64_t handle, uint64_t offset, uint64_t size,
                                                ByteSpan room) {
  const FileHandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  Data data;
  if (room.size() < size) {
    data.memory = memory_.allocate(size);
    room = data.memory.span();
  }
  const auto file = open->inode->file();
  FF_CO_TRY(const uint64_t got, co_await file->read(offset, room.first(size)));
  publish_snapshot(*open->inode);
  data.bytes = room.first(got);
  co_return data;
}

// A write clears set-user-ID and set-group-ID.
Task<Result<void>> Operations::drop_set_ids(CachedInode& cached) {
  const auto file = cached.writer;
  const uint32_t mode = meta::without_set_ids(file->inode());
  if (mode == file->inode().mode) co_return Result<void>();
  const int64_t asked_ns = files_.loop().now_ns();
  auto setting = files_.metadata().set_attributes({}, cached.ref(), {.mode = mode});
  FF_CO_TRY(auto view, co_await std::move(setting));
  inodes_.on_changed(view.inode);
  file->on_update(std::move(view), asked_ns);
  kernel_.invalidate_attributes(cached.id);
  co_return Result<void>();
}

// Writes through; durable on return if the handle has O_DSYNC.
Task<Result<void>> Operations::write_through(FileHandle& handle, Write write) {
  const auto file = handle.inode->writer;
  const meta::InodeId inode = handle.inode->id;
  FF_CO_TRY(co_await file->flush());
  uint64_t offset = write.offset;
  if (write.appends()) {
    FF_CO_TRY(offset, co_await file->append(write.from, write.origin));
    kernel_.invalidate_attributes(inode);
  } else {
    FF_CO_TRY(co_await file->write(offset, write.from));
  }
  if ((write.flags & O_DSYNC) != 0) {
    FF_CO_TRY(co_await file->sync(handle.cursor));
  }
  if (handle.direct) {
    co_await after_direct_write(inode, offset, write.from.size());
  } else if (offset != write.offset) {
    drop_misplaced_pages(*handle.inode, write.offset, write.from.size());
  }
  co_return Result<void>();
}

Task<void> Operations::after_direct_write(meta::InodeId inode, uint64_t offset, uint64_t size) {
  const CachedInodeRef cached = inodes_.find(inode);
  if (cached == nullptr) co_return;
  const bool in_page_cache =
      std::ranges::any_of(cached->handles, [](auto* one) { return !one->direct; });
  cached->pages_version.reset();
  if (!in_page_cache) co_return;
  co_await kernel_.invalidate_pages(inode, offset, size);
}

// The kernel cached the bytes at its idea of the end of the file, but others have appended since.
// It locks these pages until the write is answered, so the invalidation must not be awaited here.
void Operations::drop_misplaced_pages(CachedInode& cached, uint64_t offset, uint64_t size) {
  cached.pages_version.reset();
  kernel_.invalidate_pages_async(cached.id, offset, size);
}

bool Operations::Write::appends() const { return (flags & O_APPEND) != 0 && !from_page_cache; }

// Errors of write-behind are reported by sync() and flush(), never consumed by a write. But a write
// fails while earlier bytes of the file still fail.
Task<Result<void>> Operations::write(uint64_t handle, Write write) {
  const FileHandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  const CachedInodeRef cached = open->inode;
  if (cached->writer == nullptr) co_return not_open(handle);
  if (write.drop_set_ids) {
    FF_CO_TRY(co_await drop_set_ids(*cached));
  }
  // fcntl(2), F_SETFL may have changed the flags since open.
  const bool asked = (write.flags & (O_DSYNC | O_DIRECT)) != 0 || write.appends();
  const bool from_page_cache = write.from_page_cache;
  if (open->direct || (asked && !from_page_cache)) {
    FF_CO_TRY(co_await write_through(*open, std::move(write)));
  } else {
    const auto file = cached->writer;
    // The kernel drops a page whose writeback fails, so such bytes must be accepted.
    FF_CO_TRY(co_await file->write_behind(write.offset, write.from, std::move(write.buffer_owner),
                                          from_page_cache));
  }
  if (!from_page_cache) cached->on_kernel_drops();  // as the reply to write(2) makes it do
  co_return Result<void>();
}

Task<Result<void>> Operations::flush(uint64_t handle) {
  const FileHandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  if (!open->writes || open->inode->writer == nullptr) co_return Result<void>();
  const auto file = open->inode->writer;
  co_return co_await file->flush_on_close(open->cursor);
}

Task<Result<void>> Operations::sync(uint64_t handle) {
  const FileHandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  const auto file = open->inode->file();
  co_return co_await file->sync(open->cursor);
}

// syncfs(2): syncs each file without consuming the errors of its openers.
Task<Result<void>> Operations::sync_all() {
  Result<void> first;
  for (const CachedInodeRef& cached : inodes_.open_inodes()) {
    const auto file = cached->file();
    if (file == nullptr) continue;
    const auto cursor = file->cursor();
    auto synced = co_await file->commit();
    if (synced) synced = file->writeback_error(cursor);
    if (first) first = std::move(synced);
  }
  auto synced = co_await files_.sync_metadata(error_cursor_);
  if (first) first = std::move(synced);
  co_return first;
}

// Closes the writer if no handle writes, and the reader if no handle is left.
Task<void> Operations::close_files(CachedInode& cached) {
  const bool writes = std::ranges::any_of(cached.handles, [](auto* one) { return one->writes; });
  if (!writes && cached.writer != nullptr) {
    // Remaining readers continue with a read-only view.
    const auto file = cached.writer;
    Result<bool> deferred = false;
    if (cached.handles.empty()) deferred = co_await file->defer_close();
    // Each program got errors from its own close.
    if (!deferred || !*deferred) (void)co_await file->close();
    cached.count_own_writes();
    inodes_.on_changed(file->inode());
    if (!cached.handles.empty()) cached.reader = files_.reader(*file);
    cached.writer = nullptr;
  }
  if (!cached.handles.empty()) co_return;
  if (cached.reader != nullptr) {
    const auto reader = std::exchange(cached.reader, nullptr);
    (void)co_await reader->close();
  }
  if (!cached.holder) co_return;
  files_.end_session({.inode = cached.id, .session = *cached.holder},
                     std::move(cached.holder_record));
  cached.holder.reset();
}

Task<void> Operations::release(uint64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) co_return;
  const FileHandleRef open = std::move(found->second);
  handles_.erase(found);
  const CachedInodeRef cached = open->inode;
  const auto turn = co_await cached->open_lock.acquire(1).shielded();
  cached->handles.erase(open.get());
  co_await close_files(*cached);
  inodes_.drop_if_unused(cached);
}

Task<Result<void>> Operations::allocate(uint64_t handle, int mode, uint64_t offset, uint64_t size) {
  const FileHandleRef open = this->handle(handle);
  // Also called by an ioctl, which the kernel permits on read-only handles.
  if (open == nullptr || !open->writes || open->inode->writer == nullptr)
    co_return not_open(handle);
  const auto file = open->inode->writer;
  constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  if ((mode & ~kKnown) != 0) co_return errno_error(EOPNOTSUPP, "fallocate");
  if (open->uid != 0) {
    FF_CO_TRY(co_await drop_set_ids(*open->inode));
  }
  const bool clears = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
  if (clears) {
    FF_CO_TRY(co_await file->punch_hole(offset, size));
    co_await after_direct_write(open->inode->id, offset, size);
  }
  if ((mode & FALLOC_FL_KEEP_SIZE) != 0) co_return Result<void>();
  co_return co_await file->extend(offset + size);
}

Task<Result<uint64_t>> Operations::seek(uint64_t handle, uint64_t offset, int whence) {
  const FileHandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  const auto file = open->inode->file();
  FF_CO_TRY(const auto range, co_await file->next_data(offset));
  if (offset >= file->inode().length) co_return errno_error(ENXIO, "lseek");
  if (whence == SEEK_HOLE) co_return range.begin > offset ? offset : range.end;
  if (range.begin >= range.end) co_return errno_error(ENXIO, "lseek");
  co_return range.begin;
}

std::shared_ptr<client::File> Operations::find_open_file(meta::InodeId inode, uint32_t uid,
                                                         bool for_writing) {
  const CachedInodeRef cached = inodes_.find(inode);
  if (cached == nullptr) return nullptr;
  const bool open = std::ranges::any_of(cached->handles, [&](const FileHandle* one) {
    return (uid == 0 || one->uid == uid) && (for_writing ? one->writes : one->reads);
  });
  if (!open) return nullptr;
  return for_writing ? cached->writer : cached->file();
}

Task<Result<void>> Operations::write_from_ring(uint32_t uid, meta::InodeId inode, uint64_t offset,
                                               ByteView from) {
  const CachedInodeRef cached = inodes_.find(inode);
  const auto file = find_open_file(inode, uid, true);
  if (file == nullptr) co_return not_open(inode);
  if (uid != 0) {
    FF_CO_TRY(co_await drop_set_ids(*cached));
  }
  FF_CO_TRY(co_await file->flush());
  FF_CO_TRY(co_await file->write(offset, from));
  co_await after_direct_write(inode, offset, from.size());
  kernel_.invalidate_attributes(inode);
  co_return Result<void>();
}

}  // namespace ff::mount
