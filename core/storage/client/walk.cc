// walk.cc: listing page by page, and the stack of a tree walk.
#include "storage/client/walk.h"

#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/client/url.h"

namespace ff::client {

namespace {

constexpr uint32_t kWalkListPage = 1024;  // entries

bool interrupted(const Error& error) {
  return error.code == Errc::interrupted || error.code == Errc::deadline ||
         error.code == Errc::unreachable;
}

}  // namespace

Task<Result<meta::InodeView>> resolve_path(meta::MetaClient& metadata, meta::Caller caller,
                                           std::string path, bool follow) {
  auto walked = co_await metadata.walk(std::move(caller), meta::root(), path, follow);
  if (!walked) co_return with_path(path, std::move(walked).error());
  if (!walked->found) co_return errno_error(ENOENT, printable(path));
  co_return std::move(*walked->found);
}

Task<Result<ResolvedName>> resolve_name(meta::MetaClient& metadata, meta::Caller caller,
                                        std::string path) {
  auto walked = co_await metadata.walk(std::move(caller), meta::root(), path, false);
  if (!walked) co_return with_path(path, std::move(walked).error());
  const std::string last = last_component(path);
  if (walked->name.empty() || last == "." || last == "..") {
    co_return fail(Errc::usage, "{}: the path does not name a directory entry", printable(path));
  }
  co_return ResolvedName{.dir = std::move(walked->dir),
                         .name = std::move(walked->name),
                         .found = std::move(walked->found)};
}

std::string join_path(std::string_view path, std::string_view name) {
  std::string joined(path);
  if (!joined.ends_with('/')) joined += '/';
  joined += name;
  return joined;
}

DirLister::DirLister(meta::MetaClient& metadata, meta::Caller caller, meta::InodeRef dir,
                     bool with_inodes)
    : metadata_(metadata),
      caller_(std::move(caller)),
      dir_(std::move(dir)),
      with_inodes_(with_inodes) {}

Task<Result<std::optional<meta::MetaClient::DirEntry>>> DirLister::next() {
  while (at_ == page_.entries.size()) {
    if (page_.end) co_return std::optional<meta::MetaClient::DirEntry>();
    FF_CO_TRY(page_, co_await metadata_.list(caller_, dir_, after_, kWalkListPage, with_inodes_));
    at_ = 0;
    if (!page_.entries.empty()) after_ = page_.entries.back().name;
  }
  co_return std::optional(std::move(page_.entries[at_++]));
}

TreeWalker::TreeWalker(meta::MetaClient& metadata, meta::Caller caller, std::string path,
                       meta::InodeView top)
    : metadata_(metadata), caller_(std::move(caller)) {
  enter(std::move(path), std::move(top));
}

void TreeWalker::enter(std::string path, meta::InodeView dir) {
  DirLister listing(metadata_, caller_, dir.ref(), true);
  levels_.push_back({std::move(path), std::move(dir), std::move(listing)});
}

Task<Result<std::optional<TreeWalker::Step>>> TreeWalker::next() {
  if (entering_) {
    enter(std::move(entering_->path), std::move(*entering_->view));
    entering_.reset();
  }
  if (levels_.empty()) co_return std::optional<Step>();
  auto listed = co_await levels_.back().listing.next();
  Level& level = levels_.back();
  Step step{.path = level.path, .depth = levels_.size() - 1};
  if (!listed || !*listed) {
    step.kind = listed ? Step::Kind::directory_end : Step::Kind::failed;
    step.inode_kind = meta::InodeType::directory;
    step.view = std::move(level.dir);
    levels_.pop_back();
    if (listed) co_return std::optional(std::move(step));
    Error error = std::move(listed).error();
    if (interrupted(error)) co_return error;
    step.error = with_path(step.path, std::move(error));
    co_return std::optional(std::move(step));
  }
  meta::MetaClient::DirEntry entry = std::move(**listed);
  step.path = join_path(level.path, entry.name);
  step.depth = levels_.size();
  step.inode_kind = entry.kind;
  step.view = std::move(entry.view);
  if (step.inode_kind == meta::InodeType::directory && step.view) entering_ = step;
  co_return std::optional(std::move(step));
}

}  // namespace ff::client
