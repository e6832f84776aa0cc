// operations.cc: names, attributes and directories. Files are in operations_files.cc.
#include "storage/mount/operations.h"

#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/access.h"

namespace ff::mount {

Operations::Operations(client::FileSystem& files, chain::BufferPool& memory, KernelCache& kernel,
                       meta::InodeView root)
    : files_(files),
      memory_(memory),
      kernel_(kernel),
      root_(root.inode.id),
      inodes_(files.loop(), files.recovery()),
      error_cursor_(files.cursor()) {
  inodes_.add_lookup(root);
}

Task<void> Operations::close() {
  dirs_.clear();
  for (const CachedInodeRef& cached : inodes_.open_inodes()) {
    cached->handles.clear();
    co_await close_files(*cached);
  }
  handles_.clear();
}

meta::InodeRef Operations::ref(meta::InodeId inode) const {
  const CachedInodeRef cached = inodes_.find(inode);
  return cached != nullptr ? cached->ref() : meta::InodeRef{.id = inode};
}

Task<Result<meta::Inode>> Operations::lookup(meta::Caller caller, meta::InodeId dir,
                                             std::string name) {
  Result<meta::InodeView> view{Error{}};
  // NFS servers that export this mount look these up.
  if (name == "." || name == "..") {
    view = co_await files_.stat(ref(dir));
    if (view && name == ".." && dir != root_) {
      view = co_await files_.stat(ref(view->inode.parent));
    }
  } else {
    view = co_await files_.metadata().lookup(std::move(caller), ref(dir), std::move(name));
  }
  FF_CO_TRY(auto found, std::move(view));
  files_.apply_local_writes(found.inode);
  inodes_.add_lookup(found);
  co_return std::move(found.inode);
}

// The cached attributes of a directory, unless they are too old. Null: none.
const meta::Inode* Operations::recent_dir(const CachedInodeRef& cached) const {
  if (cached == nullptr || !cached->cached_dir) return nullptr;
  const int64_t age_ns = files_.loop().now_ns() - cached->cached_dir_ns;
  return age_ns < kCacheTimeoutNs ? &*cached->cached_dir : nullptr;
}

Task<Result<Operations::Attributes>> Operations::getattr(meta::InodeId inode) {
  const CachedInodeRef cached = inodes_.find(inode);
  const int64_t now_ns = files_.loop().now_ns();
  if (const meta::Inode* const dir = recent_dir(cached)) {
    co_return Attributes{*dir, cached->cached_dir_ns};
  }
  if (cached != nullptr && cached->opened_ns != 0 && cached->file() != nullptr &&
      now_ns - cached->opened_ns < kCacheTimeoutNs) {
    Attributes opened{cached->file()->inode(), cached->opened_ns};
    files_.apply_local_writes(opened.inode);
    cached->on_reply(opened.inode);
    co_return opened;
  }
  FF_CO_TRY(auto view, co_await files_.stat(ref(inode)));
  inodes_.cache_directory(view.inode);
  inodes_.on_reply(view.inode);
  co_return Attributes{std::move(view.inode), now_ns};
}

Task<Result<meta::Inode>> Operations::setattr(meta::Caller caller, meta::InodeId inode,
                                              SetAttributes change) {
  const CachedInodeRef cached = inodes_.get_or_create(inode);
  if (change.length) {
    // A handle open for writing may truncate whatever the mode is now.
    const FileHandleRef by = change.handle ? handle(*change.handle) : nullptr;
    meta::Caller who = by != nullptr && by->writes ? meta::Caller() : caller;
    who.origin = caller.origin;
    FF_CO_TRY(co_await truncate(who, *cached, *change.length));
  }
  auto& to = change.to;
  const bool times = to.atime_ns || to.mtime_ns || to.times_now;
  if (!times && !to.mode && !to.uid && !to.gid) {
    FF_CO_TRY(auto looked, co_await getattr(inode));
    const meta::Inode& now = looked.inode;
    const bool may = change.length.has_value() || caller.is_root() || caller.uid == now.uid;
    const uint32_t mode = meta::without_set_ids(now);
    if (!change.drop_set_ids || !may || mode == now.mode) co_return std::move(looked.inode);
    // The right to write was checked, or is the owner's: the server need not check it again.
    caller = meta::Caller();
    to.mode = mode;
  }
  // Earlier writes must not change the times that are set now.
  if (times && cached->writer != nullptr) FF_CO_TRY(co_await cached->writer->publish_times());
  FF_CO_TRY(auto view,
            co_await files_.metadata().set_attributes(std::move(caller), cached->ref(), to));
  inodes_.on_changed(view.inode);
  inodes_.cache_directory(view.inode);
  files_.apply_local_writes(view.inode);
  inodes_.on_reply(view.inode);
  co_return std::move(view.inode);
}

Task<Result<meta::Inode>> Operations::mknod(meta::Caller caller, meta::InodeId dir,
                                            std::string name, meta::Namespace::CreateOptions make) {
  const bool subdir = make.kind == meta::InodeType::directory;
  auto made = co_await files_.metadata().create(std::move(caller), ref(dir), std::move(name),
                                                std::move(make));
  if (!made) inodes_.drop_directory(dir);
  FF_CO_TRY(auto view, std::move(made));
  inodes_.on_entry_changed(dir, view.inode.btime_ns, subdir ? 1 : 0);
  inodes_.add_lookup(view);
  co_return std::move(view.inode);
}

// A session that keeps the chunks of a file without a name, if it may be open here.
std::optional<meta::SessionId> Operations::new_holder(uint64_t origin) {
  if (handles_.empty()) return std::nullopt;
  return files_.metadata().new_session(origin);
}

void Operations::hold_removed(const meta::InodeView& removed,
                              std::optional<meta::SessionId> holder) {
  if (!holder) return;
  const CachedInodeRef cached = inodes_.find(removed.inode.id);
  if (cached != nullptr && cached->holder == holder) return;  // the request is repeated
  const bool needed =
      cached != nullptr && !cached->handles.empty() && removed.inode.links == 0 && !cached->holder;
  if (needed) {
    cached->holder = holder;
    if (files_.recovery() != nullptr) {
      cached->holder_record = files_.recovery()->add(
          {.kind = client::RecoveryTable::Kind::holder, .fixed = {cached->id, holder->number}});
    }
  }
  if (!needed) files_.end_session({.inode = removed.inode.id, .session = *holder});
}

Task<Result<void>> Operations::unlink(meta::Caller caller, meta::InodeId dir, std::string name) {
  const auto keeps = new_holder(caller.origin);
  auto done =
      co_await files_.metadata().unlink(std::move(caller), ref(dir), std::move(name), keeps);
  if (!done) inodes_.drop_directory(dir);
  FF_CO_TRY(const auto removed, std::move(done));
  inodes_.on_entry_changed(dir, removed.inode.ctime_ns, 0);
  inodes_.on_changed(removed.inode);
  if (removed.inode.links == 0) files_.drop_unstored(removed.inode.id);
  hold_removed(removed, keeps);
  co_return Result<void>();
}

Task<Result<void>> Operations::rmdir(meta::Caller caller, meta::InodeId dir, std::string name) {
  auto done = co_await files_.metadata().rmdir(std::move(caller), ref(dir), std::move(name));
  if (!done) inodes_.drop_directory(dir);
  FF_CO_TRY(const auto removed, std::move(done));
  inodes_.on_entry_changed(dir, removed.inode.ctime_ns, -1);
  co_return Result<void>();
}

Task<Result<void>> Operations::remove_tree(meta::Caller caller, meta::InodeId dir,
                                           std::string name) {
  inodes_.drop_directory(dir);
  FF_CO_TRY(co_await files_.metadata().remove_tree(std::move(caller), ref(dir), std::move(name)));
  co_return Result<void>();
}

Task<Result<void>> Operations::rename(meta::Caller caller, Rename rename) {
  // The reply has the moved inode only, so look up the replaced one first.
  std::optional<meta::InodeView> replaced;
  const auto keeps =
      rename.exchange || rename.no_replace ? std::nullopt : new_holder(caller.origin);
  if (keeps) {
    auto looking = files_.metadata().lookup({}, ref(rename.to_dir), rename.to);
    auto found = co_await std::move(looking);
    if (found) replaced = std::move(*found);
  }
  meta::MetaClient::Rename how{.from_dir = ref(rename.from_dir),
                               .from = std::move(rename.from),
                               .to_dir = ref(rename.to_dir),
                               .to = std::move(rename.to),
                               .no_replace = rename.no_replace,
                               .exchange = rename.exchange,
                               .holder = keeps};
  const bool same_name = rename.from_dir == rename.to_dir && how.from == how.to;
  auto done = co_await files_.metadata().rename(std::move(caller), std::move(how));
  // The reply does not say whether a directory has gained or lost a subdirectory, nor whether both
  // names led to one inode, which then keeps both.
  const bool one_file = done && !same_name && !rename.exchange &&
                        !done->inode.is(meta::InodeType::directory) && done->inode.links == 1;
  if (one_file) {
    inodes_.on_entry_changed(rename.from_dir, done->inode.ctime_ns, 0);
    if (rename.to_dir != rename.from_dir) {
      inodes_.on_entry_changed(rename.to_dir, done->inode.ctime_ns, 0);
    }
  } else {
    inodes_.drop_directory(rename.from_dir);
    inodes_.drop_directory(rename.to_dir);
  }
  FF_CO_TRY(const auto moved, std::move(done));
  inodes_.drop_directory(moved.inode.id);
  inodes_.on_changed(moved.inode);
  if (!replaced || replaced->inode.id == moved.inode.id) co_return Result<void>();
  replaced->inode.links -= std::min(replaced->inode.links, 1U);
  if (replaced->inode.links == 0) files_.drop_unstored(replaced->inode.id);
  hold_removed(*replaced, keeps);
  co_return Result<void>();
}

Task<Result<meta::Inode>> Operations::link(meta::Caller caller, meta::InodeId inode,
                                           meta::InodeId dir, std::string name) {
  auto done =
      co_await files_.metadata().link(std::move(caller), ref(inode), ref(dir), std::move(name));
  if (!done) inodes_.drop_directory(dir);
  FF_CO_TRY(auto view, std::move(done));
  inodes_.on_entry_changed(dir, view.inode.ctime_ns, 0);
  inodes_.on_changed(view.inode);
  files_.apply_local_writes(view.inode);
  inodes_.add_lookup(view);
  co_return std::move(view.inode);
}

namespace {

// Servers store only these. The kernel often asks for security.*, and cp -a sets system.*: a call
// would take the inode out of the delegation of its directory.
Result<void> check_stored_xattr(std::string_view name) {
  if (name.starts_with("user.") || name.starts_with("trusted.")) return {};
  return errno_error(EOPNOTSUPP, printable(name));
}

}  // namespace

Task<Result<std::string>> Operations::get_xattr(meta::Caller caller, meta::InodeId inode,
                                                std::string name) {
  FF_CO_TRY(check_stored_xattr(name));
  FF_CO_TRY(auto value, co_await files_.metadata().get_xattr(std::move(caller), ref(inode), name));
  if (!value) co_return errno_error(ENODATA, printable(name));
  co_return std::move(*value);
}

Task<Result<std::vector<std::string>>> Operations::list_xattrs(meta::InodeId inode) {
  co_return co_await files_.metadata().list_xattrs(ref(inode));
}

Task<Result<void>> Operations::set_xattr(meta::Caller caller, meta::InodeId inode, std::string name,
                                         std::optional<std::string> value,
                                         meta::Namespace::XattrMode mode) {
  FF_CO_TRY(check_stored_xattr(name));
  FF_CO_TRY(const auto view,
            co_await files_.metadata().set_xattr(std::move(caller), ref(inode), std::move(name),
                                                 std::move(value), mode));
  inodes_.on_changed(view.inode);
  co_return Result<void>();
}

// The right to read a directory is checked with recent attributes, like every right that the kernel
// checks.
Task<Result<meta::InodeView>> Operations::view_to_list(meta::Caller caller, meta::InodeId inode) {
  const CachedInodeRef cached = inodes_.find(inode);
  const meta::Inode* const dir = recent_dir(cached);
  if (dir == nullptr) {
    co_return co_await files_.metadata().open(std::move(caller), ref(inode), meta::kMayRead,
                                              std::nullopt);
  }
  FF_CO_TRY(meta::check_access(caller, *dir, meta::kMayRead, fmt::format("inode {}", inode)));
  co_return meta::InodeView{.inode = *dir, .proof = cached->proof};
}

Task<Result<uint64_t>> Operations::open_dir(meta::Caller caller, meta::InodeId inode) {
  FF_CO_TRY(auto view, co_await view_to_list(caller, inode));
  if (!view.inode.is(meta::InodeType::directory)) {
    co_return errno_error(ENOTDIR, fmt::format("inode {}", inode));
  }
  const meta::InodeId parent = inode == root_ ? root_ : view.inode.parent;
  auto state = files_.state_of(inode);
  const uint64_t origin = caller.origin;
  const std::string proof = ref(inode).proof;
  auto dir = std::make_shared<DirectoryHandle>(files_.loop(), files_.metadata(), std::move(caller),
                                               std::move(view), parent, std::move(state));
  const uint64_t number = ++last_handle_;
  if (files_.recovery() != nullptr) {
    dir->record = files_.recovery()->add({.kind = client::RecoveryTable::Kind::directory,
                                          .fixed = {number, inode, parent, origin},
                                          .live = {dir->cursor().seen(), dir->cursor().opened()},
                                          .text = proof});
    if (!dir->record) co_return errno_error(ENFILE, "the recovery table of the mount is full");
  }
  dirs_[number] = std::move(dir);
  co_return number;
}

std::shared_ptr<DirectoryHandle> Operations::directory(uint64_t handle) {
  const auto found = dirs_.find(handle);
  return found == dirs_.end() ? nullptr : found->second;
}

Task<Result<void>> Operations::sync_dir(uint64_t handle) {
  const auto open = directory(handle);
  FF_CO_TRY(co_await files_.metadata().sync());
  if (open == nullptr) co_return Result<void>();
  co_return open->writeback_error();
}

}  // namespace ff::mount
