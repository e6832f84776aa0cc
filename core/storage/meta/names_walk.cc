// names_walk.cc: finding inodes by names, and reading whole directories. Views only.
#include <cerrno>
#include <deque>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/names.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

// Of a page: an answer is one message (net/frame.h).
constexpr size_t kPageBytes = 640 * kKiB;
constexpr size_t kEntryBytes = 160;  // of an entry and its inode, beside name and target

// Which components are still to go, the first at the front.
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
  // It ended in a slash: names a directory, or nothing.
  bool needs_dir() const { return needs_dir_; }

 private:
  std::deque<std::string> left_;
  bool needs_dir_ = false;
};

// Where a walk has come to.
struct Walk {
  kv::Txn& txn;
  const Caller& caller;
  const bool follow;
  Path path;
  Inode at;  // a directory
  size_t links = 0;

  // The rest of the path, behind a link's target.
  Task<Result<void>> follow_link(const Inode& link, const std::string& what) {
    if (++links > kLinksFollowed) co_return errno_error(ELOOP, what);
    if (link.target.starts_with('/')) {
      auto reading = read_inode(txn, kRoot);
      FF_CO_TRY(at, co_await std::move(reading));
    }
    path.prepend(link.target);
    co_return Result<void>();
  }

  Task<Result<Names::Walked>> run() {
    Names::Walked walked{.dir = at, .name = {}, .inode = at};
    while (!path.empty()) {
      const std::string name = path.pop();
      const std::string what = printable(name);
      if (!at.is(Kind::directory)) co_return errno_error(ENOTDIR, what);
      FF_CO_TRY(check_access(caller, at, kMaySearch, what));
      if (name == "..") {
        auto reading = read_inode(txn, at.parent);
        FF_CO_TRY(at, co_await std::move(reading));
        walked = {.dir = at, .name = {}, .inode = at};
        continue;
      }
      if (name.size() > kNameMax) co_return errno_error(ENAMETOOLONG, what.substr(0, 32) + "...");
      auto finding = find_entry(txn, at.id, name);
      FF_CO_TRY(const auto entry, co_await std::move(finding));
      if (!entry) {
        if (!path.empty()) co_return errno_error(ENOENT, what);
        co_return Names::Walked{.dir = at, .name = name, .inode = std::nullopt};
      }
      auto reading = read_inode(txn, entry->inode);
      FF_CO_TRY(Inode next, co_await std::move(reading));
      walked = {.dir = at, .name = name, .inode = next};
      const bool last = path.empty();
      if (next.is(Kind::symlink) && (!last || follow || path.needs_dir())) {
        auto following = follow_link(next, what);
        FF_CO_TRY(co_await std::move(following));
        if (path.empty()) walked = {.dir = at, .name = {}, .inode = at};
        continue;
      }
      at = std::move(next);
    }
    if (path.needs_dir() && walked.inode && !walked.inode->is(Kind::directory)) {
      co_return errno_error(ENOTDIR, printable(walked.name));
    }
    co_return walked;
  }
};

}  // namespace

Task<Result<Names::Walked>> Names::walk(Caller caller, InodeId from, std::string path,
                                        bool follow) {
  if (path.empty()) co_return errno_error(ENOENT, "''");
  if (path.size() > kPathMax) co_return errno_error(ENAMETOOLONG, path.substr(0, 32) + "...");
  if (path.find('\0') != path.npos) {
    Error error = errno_error(EINVAL, '\'' + printable(path.substr(0, kNameMax)) + '\'');
    error.code = Errc::usage;
    co_return error;
  }
  Walked walked;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_inode(txn, path.starts_with('/') ? kRoot : from);
    FF_CO_TRY(Inode start, co_await std::move(reading));
    Walk walk{txn, caller, follow, Path(path), std::move(start)};
    auto walking = walk.run();
    FF_CO_TRY(walked, co_await std::move(walking));
    if (!walked.inode) co_return Result<void>();
    auto timing = with_times(txn, *walked.inode);
    FF_CO_TRY(walked.inode, co_await std::move(timing));
    co_return Result<void>();
  };
  auto viewing = look(std::move(function));
  FF_CO_TRY(co_await std::move(viewing));
  co_return walked;
}

Task<Result<Inode>> Names::lookup(Caller caller, InodeId dir, std::string name) {
  FF_CO_TRY(check_name(name));
  Inode inode;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = child_of(txn, caller, dir, name);
    FF_CO_TRY(auto found, co_await std::move(reading));
    auto timing = with_times(txn, std::move(found.inode));
    FF_CO_TRY(inode, co_await std::move(timing));
    co_return Result<void>();
  };
  auto viewing = look(std::move(function));
  FF_CO_TRY(co_await std::move(viewing));
  co_return inode;
}

namespace {

Task<Result<Names::Page>> read_page(kv::Txn& txn, InodeId dir, std::string after, size_t limit,
                                    bool with_inodes) {
  kv::Range range = keys::all(keys::kDentry, dir, limit);
  if (!after.empty()) range.begin = keys::dentry(dir, after) + '\0';
  auto ranging = txn.range(std::move(range), {});
  FF_CO_TRY(const auto stored, co_await std::move(ranging));
  Names::Page page;
  size_t bytes = 0;
  for (const kv::Entry& one : stored) {
    FF_CO_TRY(const Entry entry, entry_of(one));
    Names::Listed listed{.name = std::string(keys::name_of(one.key)),
                         .id = entry.inode,
                         .kind = entry.kind,
                         .inode = std::nullopt};
    if (with_inodes) {
      auto reading = find_inode(txn, entry.inode);
      FF_CO_TRY(listed.inode, co_await std::move(reading));
      if (listed.inode) {
        auto timing = with_times(txn, std::move(*listed.inode));
        FF_CO_TRY(listed.inode, co_await std::move(timing));
        bytes += listed.inode->target.size();
      }
    }
    bytes += listed.name.size() + (with_inodes ? kEntryBytes : kEntryBytes / 8);
    page.entries.push_back(std::move(listed));
    if (bytes >= kPageBytes) break;
  }
  page.end = stored.size() < limit && page.entries.size() == stored.size();
  co_return page;
}

}  // namespace

Task<Result<Names::Page>> Names::list(Caller caller, InodeId dir, std::string after, size_t limit,
                                      bool with_inodes) {
  if (limit == 0) co_return fail(Errc::usage, "a page of no entries");
  Page page;
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = read_dir(txn, dir, fmt::format("inode {}", dir));
    FF_CO_TRY(const Inode inode, co_await std::move(reading));
    const std::string what = fmt::format("inode {}", dir);
    FF_CO_TRY(check_access(caller, inode, kMayRead, what));
    const bool may_look = check_access(caller, inode, kMaySearch, what).ok();
    auto paging = read_page(txn, dir, after, limit, with_inodes && may_look);
    FF_CO_TRY(page, co_await std::move(paging));
    co_return Result<void>();
  };
  auto viewing = view(std::move(function));
  FF_CO_TRY(co_await std::move(viewing));
  co_return page;
}

namespace {

// Directories below one that are still to be looked at, and what is in one of them.
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
      FF_CO_TRY(const Entry entry, entry_of(one));
      if (entry.kind == Kind::directory) left.push_back(entry.inode);
      if ((dir.mode & kSticky) == 0) continue;
      auto reading = read_inode(txn, entry.inode);
      FF_CO_TRY(const Inode child, co_await std::move(reading));
      FF_CO_TRY(check_removal(caller, dir, child, what));
    }
    co_return Result<void>();
  }

  Task<Result<void>> run() {
    while (!left.empty()) {
      const InodeId id = left.back();
      left.pop_back();
      auto reading = read_inode(txn, id);
      FF_CO_TRY(const Inode dir, co_await std::move(reading));
      kv::Range range = keys::all(keys::kDentry, id, kAtOnce);
      for (bool more = true; more;) {
        auto ranging = txn.range(range, {});
        FF_CO_TRY(const auto entries, co_await std::move(ranging));
        more = entries.size() == kAtOnce;
        if (more) range.begin = entries.back().key + '\0';
        auto checking = check_children(dir, entries);
        FF_CO_TRY(co_await std::move(checking));
      }
    }
    co_return Result<void>();
  }
};

}  // namespace

Task<Result<void>> Names::check_tree(Caller caller, InodeId root) {
  if (caller.root()) co_return Result<void>();
  kv::Function function = [&](kv::Txn& txn) -> Task<Result<void>> {
    TreeCheck check{txn, caller, {root}};
    auto checking = check.run();
    co_return co_await std::move(checking);
  };
  auto viewing = view(std::move(function));
  co_return co_await std::move(viewing);
}

}  // namespace ff::meta
