// operations_files.cc: open files of programs over the one file that they share here.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/mount/operations.h"

namespace ff::mount {

namespace {

// What open(2) adds to the flags of a file that is to be executed (linux/fs.h).
constexpr uint32_t kExec = 0x20;

// A name that was looked up so recently leads where it did.
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

HandleRef Operations::handle(uint64_t number) const {
  const auto found = handles_.find(number);
  return found == handles_.end() ? nullptr : found->second;
}

uint64_t Operations::add(HandleRef handle) {
  handle->node->handles.insert(handle.get());
  handles_[++last_handle_] = std::move(handle);
  return last_handle_;
}

// ESTALE makes the kernel look the name up again, and then open what it finds.
Result<void> Operations::check_named(Node& node, const meta::Inode& inode) {
  int64_t ctime_ns = node.ctime_ns;
  if (node.writer != nullptr) ctime_ns = std::max(ctime_ns, node.writer->inode().ctime_ns);
  const bool fresh = files_.loop().now_ns() - node.named_ns < kFreshNs;
  if (fresh || node.named_ns == 0 || inode.ctime_ns <= ctime_ns) return {};
  node.named_ns = 0;  // whoever comes by way of no name is not to be told again
  return errno_error(ESTALE, fmt::format("inode {}", inode.id));
}

// Opens the node's file where it has to be, and asks the servers in any case.
Task<Result<meta::Seen>> Operations::open_node(meta::Caller caller, Node& node, uint32_t rights) {
  const bool writes = (rights & meta::kMayWrite) != 0;
  std::shared_ptr<client::File>& file =
      writes || node.writer != nullptr ? node.writer : node.reader;
  if (file == nullptr) {
    auto opening = files_.open(std::move(caller), node.ref(), rights);
    auto opened = co_await std::move(opening);
    // The name that led here is another's by now.
    if (!opened && opened.error().sys == ENOENT) opened.error().sys = ESTALE;
    FF_CO_TRY(file, std::move(opened));
    if (writes) node.told = 0;
    co_return file->seen();
  }
  auto asking = files_.names().open(std::move(caller), node.ref(), rights, std::nullopt);
  auto seen = co_await std::move(asking);
  // A file that has lost its last name while it is open: by way of /proc/self/fd, say.
  if (!seen && seen.error().sys == ENOENT) co_return file->seen();
  FF_CO_TRY(meta::Seen now, std::move(seen));
  file->heard(std::move(now));
  co_return file->seen();
}

// Whether what the kernel has in its pages is still what the file holds.
bool Operations::pages_stand(Node& node, const meta::Inode& inode) {
  node.count_own_changes();
  const bool stand = node.pages == inode.changes;
  node.pages = inode.changes;
  return stand;
}

Operations::Opened Operations::opened(const NodeRef& node, uint32_t uid, uint32_t flags) {
  const bool appends = may_write(flags) && (flags & O_APPEND) != 0;
  auto handle = std::make_shared<Handle>();
  handle->node = node;
  handle->uid = uid;
  handle->reads = (flags & O_ACCMODE) != O_WRONLY;
  handle->writes = may_write(flags);
  handle->direct = (flags & O_DIRECT) != 0 || appends;
  handle->cursor = node->file()->cursor();
  const bool direct = handle->direct;
  return {.handle = add(std::move(handle)), .direct = direct};
}

Task<Result<Operations::Opened>> Operations::open(meta::Caller caller, meta::InodeId inode,
                                                  uint32_t flags) {
  const NodeRef node = nodes_.at(inode);
  auto taking = node->turn.take(1);
  FF_CO_TRY(const auto turn, co_await std::move(taking));
  const meta::Inode before = node->file() != nullptr ? node->file()->inode() : meta::Inode();
  const uint32_t uid = caller.uid;
  auto opening = open_node(std::move(caller), *node, rights_of(flags));
  auto seen = co_await std::move(opening);
  Result<void> fit = seen ? check_named(*node, seen->inode) : seen.error();
  if (fit && (flags & O_TRUNC) != 0) {
    auto cutting = cut({}, *node, 0);
    fit = co_await std::move(cutting);
  }
  if (!fit) {
    if (node->handles.empty()) {
      auto closing = close_files(*node);
      co_await std::move(closing);
    }
    co_return fit.error();
  }
  Opened opened = this->opened(node, uid, flags);
  const meta::Inode& now = node->file()->inode();
  // The kernel trusts the length it has for a while: it is not to cut reads short by it.
  if (now.length != before.length || now.mtime_ns != before.mtime_ns) {
    kernel_.forget_attributes(inode);
  }
  opened.keep_pages = !opened.direct && pages_stand(*node, now);
  co_return opened;
}

Task<Result<Operations::Created>> Operations::create(meta::Caller caller, meta::InodeId dir,
                                                     std::string name, uint32_t mode,
                                                     uint32_t flags) {
  meta::Names::Make how{.kind = meta::Kind::file, .mode = mode};
  how.exclusive = (flags & O_EXCL) != 0;
  how.rights = rights_of(flags);
  const uint32_t uid = caller.uid;
  auto creating = files_.create(std::move(caller), ref(dir), std::move(name), std::move(how));
  auto made = co_await std::move(creating);
  if (!made) nodes_.forget_dir(dir);
  FF_CO_TRY(auto file, std::move(made));
  nodes_.entry_changed(dir, file->inode().btime_ns, 0);
  nodes_.named(file->seen());
  const NodeRef node = nodes_.at(file->inode().id);
  auto taking = node->turn.take(1);
  const auto turn = co_await std::move(taking).shielded();
  if (node->writer == nullptr) {
    node->writer = file;
    node->told = 0;
  } else {
    auto closing = file->close();  // nothing was written to it
    (void)co_await std::move(closing);
  }
  const meta::Inode& inode = node->writer->inode();
  const bool is_new = inode.length == 0 && inode.changes == 0;
  if ((flags & O_TRUNC) != 0 && !is_new) {
    auto cutting = cut({}, *node, 0);
    const auto done = co_await std::move(cutting);
    if (!done) {
      auto closing = close_files(*node);
      co_await std::move(closing);
      nodes_.forget(node->id, 1);
      co_return done.error();
    }
  }
  Created created{.inode = inode, .opened = opened(node, uid, flags)};
  files_.add_written(created.inode);
  created.opened.keep_pages = !created.opened.direct && pages_stand(*node, inode);
  co_return created;
}

// By whoever may; the pages know.
Task<Result<void>> Operations::cut(meta::Caller caller, Node& node, uint64_t length) {
  meta::Inode now;
  if (node.writer != nullptr && caller.root()) {
    auto cutting = node.writer->truncate(length);
    FF_CO_TRY(co_await std::move(cutting));
    now = node.writer->inode();
  } else {
    if (node.writer != nullptr) {
      auto publishing = node.writer->publish();
      FF_CO_TRY(co_await std::move(publishing));
      node.writer->cutting(length);
    }
    auto cutting = files_.names().truncate(std::move(caller), node.ref(), length, std::nullopt);
    FF_CO_TRY(auto seen, co_await std::move(cutting));
    now = seen.inode;
    if (node.file() != nullptr) node.file()->heard(std::move(seen));
  }
  nodes_.changed(now);
  if (node.pages) ++*node.pages;
  co_return Result<void>();
}

Task<Result<Operations::Data>> Operations::read(uint64_t handle, uint64_t offset, uint64_t size) {
  const HandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  Data data{.memory = memory_.take(std::max<uint64_t>(size, 1)), .size = 0};
  const auto file = open->node->file();
  auto reading = file->read(offset, data.memory.span().first(size));
  FF_CO_TRY(data.size, co_await std::move(reading));
  co_return data;
}

// Who writes loses the rights that come with running the file.
Task<Result<void>> Operations::drop_set_ids(Node& node) {
  const auto file = node.writer;
  const uint32_t mode = meta::without_set_ids(file->inode());
  if (mode == file->inode().mode) co_return Result<void>();
  auto setting = files_.names().set_attributes({}, node.ref(), {.mode = mode});
  FF_CO_TRY(auto seen, co_await std::move(setting));
  nodes_.changed(seen.inode);
  file->heard(std::move(seen));
  kernel_.forget_attributes(node.id);
  co_return Result<void>();
}

// Returns once it is acknowledged, and durable if the program has asked for that.
Task<Result<void>> Operations::write_now(Handle& handle, Write write) {
  const auto file = handle.node->writer;
  const meta::InodeId inode = handle.node->id;
  auto flushing = file->flush();
  FF_CO_TRY(co_await std::move(flushing));
  uint64_t offset = write.offset;
  if (write.appends()) {
    auto appending = file->append(write.from);
    FF_CO_TRY(offset, co_await std::move(appending));
    kernel_.forget_attributes(inode);
  } else {
    auto writing = file->write(offset, write.from);
    FF_CO_TRY(co_await std::move(writing));
  }
  if ((write.flags & O_DSYNC) != 0) {
    auto syncing = file->sync(handle.cursor);
    FF_CO_TRY(co_await std::move(syncing));
  }
  if (handle.direct) {
    auto forgetting = wrote_past_pages(inode, offset, write.from.size());
    co_await std::move(forgetting);
  } else if (offset != write.offset) {
    wrote_elsewhere(*handle.node, write.offset, write.from.size());
  }
  co_return Result<void>();
}

Task<void> Operations::wrote_past_pages(meta::InodeId inode, uint64_t offset, uint64_t size) {
  const NodeRef node = nodes_.find(inode);
  if (node == nullptr) co_return;
  const bool cached = std::ranges::any_of(node->handles, [](auto* one) { return !one->direct; });
  node->pages.reset();
  if (!cached) co_return;
  auto forgetting = kernel_.forget_pages(inode, offset, size);
  co_await std::move(forgetting);
}

// The kernel has put bytes into its pages where it took the end of the file to be, and others have
// appended since. It holds some of these pages until it is answered: nobody waits for them here.
void Operations::wrote_elsewhere(Node& node, uint64_t offset, uint64_t size) {
  node.pages.reset();
  kernel_.drop_pages(node.id, offset, size);
}

bool Operations::Write::appends() const { return (flags & O_APPEND) != 0 && !from_pages; }

// What was answered before it was done has its errors told by sync() and flush(): a write takes
// none away. While earlier bytes of the file cannot be written it fails, too.
Task<Result<void>> Operations::write(uint64_t handle, Write write) {
  const HandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  const NodeRef node = open->node;
  if (node->writer == nullptr) co_return not_open(handle);
  if (write.drop_set_ids) {
    auto dropping = drop_set_ids(*node);
    FF_CO_TRY(co_await std::move(dropping));
  }
  // The flags may be others than it was opened with: fcntl(2), F_SETFL.
  const bool asked = (write.flags & (O_DSYNC | O_DIRECT)) != 0 || write.appends();
  if (open->direct || (asked && !write.from_pages)) {
    auto writing = write_now(*open, std::move(write));
    co_return co_await std::move(writing);
  }
  const auto file = node->writer;
  // The kernel drops a page whose write has failed.
  auto writing =
      file->write_behind(write.offset, write.from, std::move(write.keeper), write.from_pages);
  co_return co_await std::move(writing);
}

Task<Result<void>> Operations::flush(uint64_t handle) {
  const HandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  if (!open->writes || open->node->writer == nullptr) co_return Result<void>();
  const auto file = open->node->writer;
  auto publishing = file->publish_of(open->cursor);
  co_return co_await std::move(publishing);
}

Task<Result<void>> Operations::sync(uint64_t handle) {
  const HandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  const auto file = open->node->file();
  auto syncing = file->sync(open->cursor);
  co_return co_await std::move(syncing);
}

// syncfs(2): each file, without taking the errors away from who has it open.
Task<Result<void>> Operations::sync_all() {
  Result<void> first;
  for (const NodeRef& node : nodes_.open()) {
    const auto file = node->file();
    if (file == nullptr) continue;
    const auto cursor = file->cursor();
    auto syncing = file->make_durable();
    auto synced = co_await std::move(syncing);
    if (synced) synced = file->late_error(cursor);
    if (first) first = std::move(synced);
  }
  auto syncing_names = files_.sync_names(told_);
  auto synced = co_await std::move(syncing_names);
  if (first) first = std::move(synced);
  co_return first;
}

// Nobody has it open for writing any more, or at all.
Task<void> Operations::close_files(Node& node) {
  const bool writes = std::ranges::any_of(node.handles, [](auto* one) { return one->writes; });
  if (!writes && node.writer != nullptr) {
    // Programs that still read go on with what it is then.
    const auto file = node.writer;
    auto closing = file->close();
    (void)co_await std::move(closing);  // each program was told with its own close
    node.count_own_changes();
    nodes_.changed(file->inode());
    if (!node.handles.empty()) node.reader = files_.reader(*file);
    node.writer = nullptr;
  }
  if (!node.handles.empty()) co_return;
  if (node.reader != nullptr) {
    const auto reader = std::exchange(node.reader, nullptr);
    auto closing = reader->close();
    (void)co_await std::move(closing);
  }
  if (!node.holder) co_return;
  files_.end_session({.inode = node.id, .session = *node.holder});
  node.holder.reset();
}

Task<void> Operations::release(uint64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) co_return;
  const HandleRef open = std::move(found->second);
  handles_.erase(found);
  const NodeRef node = open->node;
  auto taking = node->turn.take(1);
  const auto turn = co_await std::move(taking).shielded();
  node->handles.erase(open.get());
  auto closing = close_files(*node);
  co_await std::move(closing);
  nodes_.let_go(node);
}

Task<Result<void>> Operations::allocate(uint64_t handle, int mode, uint64_t offset, uint64_t size) {
  const HandleRef open = this->handle(handle);
  // An ioctl comes here, too, which the kernel lets through for who only reads.
  if (open == nullptr || !open->writes || open->node->writer == nullptr) co_return not_open(handle);
  const auto file = open->node->writer;
  constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  if ((mode & ~kKnown) != 0) co_return errno_error(EOPNOTSUPP, "fallocate");
  const bool clears = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
  if (clears) {
    auto clearing = file->clear(offset, size);
    FF_CO_TRY(co_await std::move(clearing));
    auto forgetting = wrote_past_pages(open->node->id, offset, size);
    co_await std::move(forgetting);
  }
  if ((mode & FALLOC_FL_KEEP_SIZE) != 0) co_return Result<void>();
  auto extending = file->extend(offset + size);
  co_return co_await std::move(extending);
}

Task<Result<uint64_t>> Operations::seek(uint64_t handle, uint64_t offset, int whence) {
  const HandleRef open = this->handle(handle);
  if (open == nullptr) co_return not_open(handle);
  const auto file = open->node->file();
  auto looking = file->next_data(offset);
  FF_CO_TRY(const auto range, co_await std::move(looking));
  if (offset >= file->inode().length) co_return errno_error(ENXIO, "lseek");
  if (whence == SEEK_HOLE) co_return range.begin > offset ? offset : range.end;
  if (range.begin >= range.end) co_return errno_error(ENXIO, "lseek");
  co_return range.begin;
}

std::shared_ptr<client::File> Operations::open_file(meta::InodeId inode, uint32_t uid,
                                                    bool for_writing) {
  const NodeRef node = nodes_.find(inode);
  if (node == nullptr) return nullptr;
  const bool open = std::ranges::any_of(node->handles, [&](const Handle* one) {
    return (uid == 0 || one->uid == uid) && (for_writing ? one->writes : one->reads);
  });
  if (!open) return nullptr;
  return for_writing ? node->writer : node->file();
}

Task<Result<void>> Operations::write_of_ring(uint32_t uid, meta::InodeId inode, uint64_t offset,
                                             ByteView from) {
  const NodeRef node = nodes_.find(inode);
  const auto file = open_file(inode, uid, true);
  if (file == nullptr) co_return not_open(inode);
  if (uid != 0) {
    auto dropping = drop_set_ids(*node);
    FF_CO_TRY(co_await std::move(dropping));
  }
  auto flushing = file->flush();
  FF_CO_TRY(co_await std::move(flushing));
  auto writing = file->write(offset, from);
  FF_CO_TRY(co_await std::move(writing));
  auto forgetting = wrote_past_pages(inode, offset, from.size());
  co_await std::move(forgetting);
  kernel_.forget_attributes(inode);
  co_return Result<void>();
}

}  // namespace ff::mount
