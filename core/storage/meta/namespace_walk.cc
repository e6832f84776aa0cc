// namespace_walk.cc: resolves names and lists directories; read-only.
#include <cerrno>
#include <deque>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/namespace.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

// Bytes of a page: a reply is one message (net/frame.h).
constexpr size_t kPageBytes = 640 * kKiB;
constexpr size_t kEntryBytes = 160;  // per entry and inode, without name and target

// The components that are still to be resolved, the first at the front.
class Path {
 public:
  explicit Path(std::string_view text) { prepend(text); }
  void prepend(std::string_view text) {
    if (text.ends_with('/') && left_.empty()) needs_dir_ = true;
    std::vector<std::string> parts;
    for (const std::string_view part : split(text, '/')) {
      if (!part.empty() && part != ".") parts.emplace_back(part);
    }
    if (left_.empty() && (text.ends_with("/.") || text == ".")) needs_dir_ = true;
    left_.insert(left_.begin(), parts.begin(), parts.end());
  }
  bool empty() const { return left_.empty(); }
  std::string pop() {
    std::string first = std::move(left_.front());
    left_.pop_front();
    return first;
  }
  // The path ended in a slash: it must name a directory.
  bool needs_dir() const { return needs_dir_; }

 private:
  std::deque<std::string> left_;
  bool needs_dir_ = false;
};

// The state of a path resolution.
struct Walk {
  kv::Txn& txn;
  const Caller& caller;
  const bool follow;
  Path path;
  Inode at;  // a directory
  size_t links = 0;

  // Continues with the target of a link.
  Task<Result<void>> follow_link(const Inode& link, const std::string& what) {
    if (++links > kSymlinksFollowedMax) co_return errno_error(ELOOP, what);
    if (link.target.starts_with('/') && caller.top != kRoot) {
      co_return errno_error(EACCES, what + ": this link may leave the directory of the key");
    }
    if (link.target.starts_with('/')) {
      FF_CO_TRY(at, co_await read_inode(txn, kRoot));
    }
    path.prepend(link.target);
    co_return Result<void>();
  }

  Task<Result<Namespace::WalkResult>> run() {
    Namespace::WalkResult walked{.dir = at, .name = {}, .inode = at};
    while (!path.empty()) {
      const std::string name = path.pop();
      const std::string what = printable(name);
      if (!at.is(InodeType::directory)) co_return errno_error(ENOTDIR, what);
      FF_CO_TRY(check_access(caller, at, kMaySearch, what));
      FF_CO_TRY(co_await check_undelegated(txn, at, caller.lease));
      if (name == "..") {
        if (at.id != caller.top) {
          FF_CO_TRY(at, co_await read_inode(txn, at.parent));
        }
        walked = {.dir = at, .name = {}, .inode = at};
        continue;
      }
      if (name.size() > kNameMax) co_return errno_error(ENAMETOOLONG, what.substr(0, 32) + "...");
      FF_CO_TRY(const auto entry, co_await find_dentry(txn, at.id, name));
      if (!entry) {
        if (!path.empty()) co_return errno_error(ENOENT, what);
        co_return Namespace::WalkResult{.dir = at, .name = name, .inode = std::nullopt};
      }
      FF_CO_TRY(Inode next, co_await read_inode(txn, entry->inode));
      walked = {.dir = at, .name = name, .inode = next};
      const bool last = path.empty();
      if (next.is(InodeType::symlink) && (!last || follow || path.needs_dir())) {
        FF_CO_TRY(co_await follow_link(next, what));
        if (path.empty()) walked = {.dir = at, .name = {}, .inode = at};
        continue;
      }
      at = std::move(next);
    }
    if (path.needs_dir() && walked.inode && !walked.inode->is(InodeType::directory)) {
      co_return errno_error(ENOTDIR, printable(walked.name));
    }
    co_return walked;
  }
};

}  // namespace

Task<Result<Namespace::WalkResult>> Namespace::walk(Caller caller, InodeId from, std::string path,
                                                    bool follow) {
  if (path.empty()) co_return errno_error(ENOENT, "''");
  if (path.size() > kPathMax) co_return errno_error(ENAMETOOLONG, path.substr(0, 32) + "...");
  if (path.find('\0') != path.npos) {
    Error error = errno_error(EINVAL, '\'' + printable(path.substr(0, kNameMax)) + '\'');
    error.code = Errc::usage;
    co_return error;
  }
  WalkResult walked;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_inode(txn, path.starts_with('/') ? kRoot : from);
    FF_CO_TRY(Inode start, co_await std::move(reading));
    Walk walk{txn, caller, follow, Path(path), std::move(start)};
    FF_CO_TRY(walked, co_await walk.run());
    if (!walked.inode) co_return Result<void>();
    FF_CO_TRY(co_await check_undelegated(txn, *walked.inode, caller.lease));
    FF_CO_TRY(walked.inode, co_await with_times(txn, *walked.inode));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view_inline(std::move(function)));
  co_return walked;
}

Task<Result<Inode>> Namespace::lookup(Caller caller, InodeId dir, std::string name) {
  FF_CO_TRY(check_name(name));
  Inode inode;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    if (txn.reads_take_round_trips()) {
      std::vector<std::string> reads = {keys::inode(dir), keys::dentry(dir, name)};
      FF_CO_TRY(co_await txn.prefetch(std::move(reads)));
    }
    FF_CO_TRY(auto found, co_await find_child(txn, caller, dir, name));
    FF_CO_TRY(inode, co_await with_times(txn, std::move(found.inode)));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view_inline(std::move(function)));
  co_return inode;
}

namespace {

Task<Result<Namespace::DirPage>> read_page(kv::Txn& txn, InodeId dir, std::string after,
                                           size_t limit, bool with_inodes) {
  kv::Range range = keys::range_of(keys::kDentry, dir, limit);
  if (!after.empty()) range.begin = keys::dentry(dir, after) + '\0';
  FF_CO_TRY(const auto stored, co_await txn.range(std::move(range), keys::times(dir)));
  std::vector<Dentry> dentries;
  for (const kv::Entry& one : stored) {
    FF_CO_TRY(const Dentry entry, parse_dentry(one));
    dentries.push_back(entry);
  }
  std::vector<std::optional<Inode>> inodes;
  if (with_inodes) {
    FF_CO_TRY(inodes, co_await find_inodes(txn, dentries));
  }
  Namespace::DirPage page;
  size_t bytes = 0;
  for (size_t i = 0; i < stored.size() && bytes < kPageBytes; i++) {
    Namespace::DirEntry listed{.name = std::string(keys::name_of(stored[i].key)),
                               .id = dentries[i].inode,
                               .kind = dentries[i].kind,
                               .inode = std::nullopt};
    if (with_inodes) listed.inode = std::move(inodes[i]);
    if (listed.inode) bytes += listed.inode->target.size();
    bytes += listed.name.size() + (with_inodes ? kEntryBytes : kEntryBytes / 8);
    page.entries.push_back(std::move(listed));
  }
  page.end = stored.size() < limit && page.entries.size() == stored.size();
  co_return page;
}

}  // namespace

Task<Result<Namespace::DirPage>> Namespace::list(Caller caller, InodeId dir, std::string after,
                                                 size_t limit, bool with_inodes) {
  if (limit == 0) co_return fail(Errc::usage, "the page size must not be 0");
  DirPage page;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_dir(txn, dir, fmt::format("inode {}", dir), caller.lease);
    FF_CO_TRY(const Inode inode, co_await std::move(reading));
    const std::string what = fmt::format("inode {}", dir);
    FF_CO_TRY(check_access(caller, inode, kMayRead, what));
    const bool may_look = check_access(caller, inode, kMaySearch, what).ok();
    FF_CO_TRY(page, co_await read_page(txn, dir, after, limit, with_inodes && may_look));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view(std::move(function)));
  co_return page;
}

namespace {

// Checks that the caller may remove everything below a directory.
struct TreeCheck {
  kv::Txn& txn;
  const Caller& caller;
  std::vector<InodeId> left;

  static constexpr size_t kAtOnce = 1024;

  Task<Result<void>> check_children(const Inode& dir, const std::vector<kv::Entry>& entries) {
    const std::string what = fmt::format("a directory below it (inode {})", dir.id);
    if (!entries.empty()) {
      FF_CO_TRY(check_access(caller, dir, kMayRead | kMayWrite | kMaySearch, what));
    }
    for (const kv::Entry& one : entries) {
      FF_CO_TRY(const Dentry entry, parse_dentry(one));
      if (entry.kind == InodeType::directory) left.push_back(entry.inode);
      if ((dir.mode & kSticky) == 0) continue;
      FF_CO_TRY(const Inode child, co_await read_inode(txn, entry.inode));
      FF_CO_TRY(check_removal(caller, dir, child, what));
    }
    co_return Result<void>();
  }

  Task<Result<void>> run() {
    while (!left.empty()) {
      const InodeId id = left.back();
      left.pop_back();
      FF_CO_TRY(const Inode dir, co_await read_inode(txn, id));
      kv::Range range = keys::range_of(keys::kDentry, id, kAtOnce);
      for (bool more = true; more;) {
        auto ranging = txn.range(range, {});
        FF_CO_TRY(const auto entries, co_await std::move(ranging));
        more = entries.size() == kAtOnce;
        if (more) range.begin = entries.back().key + '\0';
        FF_CO_TRY(co_await check_children(dir, entries));
      }
    }
    co_return Result<void>();
  }
};

}  // namespace

Task<Result<void>> Namespace::check_tree_removal(Caller caller, InodeId root) {
  if (caller.is_root()) co_return Result<void>();
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    TreeCheck check{txn, caller, {root}};
    co_return co_await check.run();
  };
  co_return co_await view(std::move(function));
}

}  // namespace ff::meta
