// operations.cc: names, attributes and directories. Files stand in operations_files.cc.
#include "storage/mount/operations.h"

#include <cerrno>
#include <utility>

#include "platform/base/text.h"

namespace ff::mount {

Operations::Operations(client::FileSystem& files, chain::Memory& memory, Kernel& kernel,
                       meta::Seen root)
    : files_(files),
      memory_(memory),
      kernel_(kernel),
      root_(root.inode.id),
      nodes_(files.loop()),
      told_(files.cursor()) {
  nodes_.named(root);
}

Task<void> Operations::close() {
  dirs_.clear();
  for (const NodeRef& node : nodes_.open()) {
    node->handles.clear();
    auto closing = close_files(*node);
    co_await std::move(closing);
  }
  handles_.clear();
}

meta::Ref Operations::ref(meta::InodeId inode) const {
  const NodeRef node = nodes_.find(inode);
  return node != nullptr ? node->ref() : meta::Ref{.id = inode};
}

Task<Result<meta::Inode>> Operations::lookup(meta::Caller caller, meta::InodeId dir,
                                             std::string name) {
  Result<meta::Seen> seen{Error{}};
  // Those of servers that export this mount.
  if (name == "." || name == "..") {
    auto looking = files_.look(ref(dir));
    seen = co_await std::move(looking);
    if (seen && name == ".." && dir != root_) {
      auto looking_up = files_.look(ref(seen->inode.parent));
      seen = co_await std::move(looking_up);
    }
  } else {
    auto looking = files_.names().lookup(std::move(caller), ref(dir), std::move(name));
    seen = co_await std::move(looking);
  }
  FF_CO_TRY(auto found, std::move(seen));
  files_.add_written(found.inode);
  nodes_.named(found);
  co_return std::move(found.inode);
}

Task<Result<Operations::Looked>> Operations::look(meta::InodeId inode) {
  const NodeRef node = nodes_.find(inode);
  const int64_t now_ns = files_.loop().now_ns();
  if (node != nullptr && node->dir && now_ns - node->dir_ns < kBelievedNs) {
    co_return Looked{*node->dir, node->dir_ns};
  }
  auto looking = files_.look(ref(inode));
  FF_CO_TRY(auto seen, co_await std::move(looking));
  nodes_.looked_at(seen.inode);
  co_return Looked{std::move(seen.inode), now_ns};
}

Task<Result<meta::Inode>> Operations::change(meta::Caller caller, meta::InodeId inode,
                                             Change change) {
  const NodeRef node = nodes_.at(inode);
  if (change.length) {
    // Who has it open for writing may do so whatever its mode is now.
    const HandleRef by = change.handle ? handle(*change.handle) : nullptr;
    const meta::Caller who = by != nullptr && by->writes ? meta::Caller() : caller;
    auto cutting = cut(who, *node, *change.length);
    FF_CO_TRY(co_await std::move(cutting));
  }
  const auto& to = change.to;
  const bool times = to.atime_ns || to.mtime_ns || to.times_now;
  if (!times && !to.mode && !to.uid && !to.gid) {
    auto looking = look(inode);
    FF_CO_TRY(auto looked, co_await std::move(looking));
    co_return std::move(looked.inode);
  }
  // What was written before is older than what is set now.
  if (times && node->writer != nullptr) {
    auto publishing = node->writer->publish();
    FF_CO_TRY(co_await std::move(publishing));
  }
  auto setting = files_.names().set_attributes(std::move(caller), node->ref(), to);
  FF_CO_TRY(auto seen, co_await std::move(setting));
  nodes_.changed(seen.inode);
  nodes_.looked_at(seen.inode);
  files_.add_written(seen.inode);
  co_return std::move(seen.inode);
}

Task<Result<meta::Inode>> Operations::make(meta::Caller caller, meta::InodeId dir, std::string name,
                                           meta::Names::Make make) {
  const bool subdir = make.kind == meta::Kind::directory;
  auto making = files_.names().make(std::move(caller), ref(dir), std::move(name), std::move(make));
  auto made = co_await std::move(making);
  if (!made) nodes_.forget_dir(dir);
  FF_CO_TRY(auto seen, std::move(made));
  nodes_.entry_changed(dir, seen.inode.btime_ns, subdir ? 1 : 0);
  nodes_.named(seen);
  co_return std::move(seen.inode);
}

// What keeps the bytes of a file that loses its last name, if one may be open here.
std::optional<meta::SessionId> Operations::holder() {
  if (handles_.empty()) return std::nullopt;
  return files_.names().new_session();
}

void Operations::hold(const meta::Seen& removed, std::optional<meta::SessionId> holder) {
  if (!holder) return;
  const NodeRef node = nodes_.find(removed.inode.id);
  const bool needed =
      node != nullptr && !node->handles.empty() && removed.inode.links == 0 && !node->holder;
  if (needed) node->holder = holder;
  if (!needed) files_.end_session({.inode = removed.inode.id, .session = *holder});
}

Task<Result<void>> Operations::unlink(meta::Caller caller, meta::InodeId dir, std::string name) {
  const auto keeps = holder();
  auto removing = files_.names().unlink(std::move(caller), ref(dir), std::move(name), keeps);
  auto done = co_await std::move(removing);
  if (!done) nodes_.forget_dir(dir);
  FF_CO_TRY(const auto removed, std::move(done));
  nodes_.entry_changed(dir, removed.inode.ctime_ns, 0);
  nodes_.changed(removed.inode);
  hold(removed, keeps);
  co_return Result<void>();
}

Task<Result<void>> Operations::rmdir(meta::Caller caller, meta::InodeId dir, std::string name) {
  auto removing = files_.names().rmdir(std::move(caller), ref(dir), std::move(name));
  auto done = co_await std::move(removing);
  if (!done) nodes_.forget_dir(dir);
  FF_CO_TRY(const auto removed, std::move(done));
  nodes_.entry_changed(dir, removed.inode.ctime_ns, -1);
  co_return Result<void>();
}

Task<Result<void>> Operations::remove_tree(meta::Caller caller, meta::InodeId dir,
                                           std::string name) {
  nodes_.forget_dir(dir);
  auto removing = files_.names().remove_tree(std::move(caller), ref(dir), std::move(name));
  FF_CO_TRY(co_await std::move(removing));
  co_return Result<void>();
}

Task<Result<void>> Operations::rename(meta::Caller caller, Rename rename) {
  // The answer is the inode that was moved: who is replaced has to be known before.
  std::optional<meta::Seen> replaced;
  const auto keeps = rename.exchange || rename.no_replace ? std::nullopt : holder();
  if (keeps) {
    auto looking = files_.names().lookup({}, ref(rename.to_dir), rename.to);
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
  auto renaming = files_.names().rename(std::move(caller), std::move(how));
  auto done = co_await std::move(renaming);
  // Which of them have a subdirectory more or less is not told.
  nodes_.forget_dir(rename.from_dir);
  nodes_.forget_dir(rename.to_dir);
  FF_CO_TRY(const auto moved, std::move(done));
  nodes_.forget_dir(moved.inode.id);
  nodes_.changed(moved.inode);
  if (!replaced || replaced->inode.id == moved.inode.id) co_return Result<void>();
  replaced->inode.links -= std::min(replaced->inode.links, 1U);
  hold(*replaced, keeps);
  co_return Result<void>();
}

Task<Result<meta::Inode>> Operations::link(meta::Caller caller, meta::InodeId inode,
                                           meta::InodeId dir, std::string name) {
  auto linking = files_.names().link(std::move(caller), ref(inode), ref(dir), std::move(name));
  auto done = co_await std::move(linking);
  if (!done) nodes_.forget_dir(dir);
  FF_CO_TRY(auto seen, std::move(done));
  nodes_.entry_changed(dir, seen.inode.ctime_ns, 0);
  nodes_.named(seen);
  files_.add_written(seen.inode);
  co_return std::move(seen.inode);
}

Task<Result<std::string>> Operations::get_xattr(meta::Caller caller, meta::InodeId inode,
                                                std::string name) {
  auto asking = files_.names().get_xattr(std::move(caller), ref(inode), name);
  FF_CO_TRY(auto value, co_await std::move(asking));
  if (!value) co_return errno_error(ENODATA, printable(name));
  co_return std::move(*value);
}

Task<Result<std::vector<std::string>>> Operations::list_xattrs(meta::InodeId inode) {
  auto asking = files_.names().list_xattrs(ref(inode));
  co_return co_await std::move(asking);
}

Task<Result<void>> Operations::set_xattr(meta::Caller caller, meta::InodeId inode, std::string name,
                                         std::optional<std::string> value,
                                         meta::Names::XattrMode mode) {
  auto setting = files_.names().set_xattr(std::move(caller), ref(inode), std::move(name),
                                          std::move(value), mode);
  FF_CO_TRY(const auto seen, co_await std::move(setting));
  nodes_.changed(seen.inode);
  co_return Result<void>();
}

Task<Result<uint64_t>> Operations::open_dir(meta::Caller caller, meta::InodeId inode) {
  auto opening = files_.names().open(caller, ref(inode), meta::kMayRead, std::nullopt);
  FF_CO_TRY(auto seen, co_await std::move(opening));
  if (!seen.inode.is(meta::Kind::directory)) {
    co_return errno_error(ENOTDIR, fmt::format("inode {}", inode));
  }
  const meta::InodeId parent = inode == root_ ? root_ : seen.inode.parent;
  auto state = files_.state_of(inode);
  dirs_[++last_handle_] = std::make_shared<Directory>(
      files_.loop(), files_.names(), std::move(caller), std::move(seen), parent, std::move(state));
  co_return last_handle_;
}

std::shared_ptr<Directory> Operations::directory(uint64_t handle) {
  const auto found = dirs_.find(handle);
  return found == dirs_.end() ? nullptr : found->second;
}

Task<Result<void>> Operations::sync_dir(uint64_t handle) {
  const auto open = directory(handle);
  auto syncing = files_.names().sync();
  FF_CO_TRY(co_await std::move(syncing));
  if (open == nullptr) co_return Result<void>();
  co_return open->late_error();
}

}  // namespace ff::mount
