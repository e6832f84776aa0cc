// walk.cc: pages and levels.
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

Task<Result<meta::Seen>> find(meta::MetaClient& names, meta::Caller caller, std::string path,
                              bool follow) {
  auto walking = names.walk(std::move(caller), meta::root(), path, follow);
  auto walked = co_await std::move(walking);
  if (!walked) co_return at_path(path, std::move(walked).error());
  if (!walked->found) co_return errno_error(ENOENT, printable(path));
  co_return std::move(*walked->found);
}

Task<Result<Place>> find_place(meta::MetaClient& names, meta::Caller caller, std::string path) {
  auto walking = names.walk(std::move(caller), meta::root(), path, false);
  auto walked = co_await std::move(walking);
  if (!walked) co_return at_path(path, std::move(walked).error());
  const std::string last = last_name(path);
  if (walked->name.empty() || last == "." || last == "..") {
    co_return fail(Errc::usage, "{}: names no entry of a directory", printable(path));
  }
  co_return Place{.dir = std::move(walked->dir),
                  .name = std::move(walked->name),
                  .found = std::move(walked->found)};
}

std::string below(std::string_view path, std::string_view name) {
  std::string joined(path);
  if (!joined.ends_with('/')) joined += '/';
  joined += name;
  return joined;
}

Listing::Listing(meta::MetaClient& names, meta::Caller caller, meta::Ref dir, bool with_inodes)
    : names_(names), caller_(std::move(caller)), dir_(std::move(dir)), with_inodes_(with_inodes) {}

Task<Result<std::optional<meta::MetaClient::Listed>>> Listing::next() {
  while (at_ == page_.entries.size()) {
    if (page_.end) co_return std::optional<meta::MetaClient::Listed>();
    auto listing = names_.list(caller_, dir_, after_, kWalkListPage, with_inodes_);
    FF_CO_TRY(page_, co_await std::move(listing));
    at_ = 0;
    if (!page_.entries.empty()) after_ = page_.entries.back().name;
  }
  co_return std::optional(std::move(page_.entries[at_++]));
}

TreeWalk::TreeWalk(meta::MetaClient& names, meta::Caller caller, std::string path, meta::Seen top)
    : names_(names), caller_(std::move(caller)) {
  enter(std::move(path), std::move(top));
}

void TreeWalk::enter(std::string path, meta::Seen dir) {
  Listing listing(names_, caller_, dir.ref(), true);
  levels_.push_back({std::move(path), std::move(dir), std::move(listing)});
}

Task<Result<std::optional<TreeWalk::Step>>> TreeWalk::next() {
  if (entering_) {
    enter(std::move(entering_->path), std::move(*entering_->seen));
    entering_.reset();
  }
  if (levels_.empty()) co_return std::optional<Step>();
  auto stepping = levels_.back().listing.next();
  auto listed = co_await std::move(stepping);
  Level& level = levels_.back();
  Step step{.path = level.path, .depth = levels_.size() - 1};
  if (!listed || !*listed) {
    step.kind = listed ? Step::Kind::left : Step::Kind::failed;
    step.inode_kind = meta::Kind::directory;
    step.seen = std::move(level.dir);
    levels_.pop_back();
    if (listed) co_return std::optional(std::move(step));
    Error error = std::move(listed).error();
    if (interrupted(error)) co_return error;
    step.error = at_path(step.path, std::move(error));
    co_return std::optional(std::move(step));
  }
  meta::MetaClient::Listed entry = std::move(**listed);
  step.path = below(level.path, entry.name);
  step.depth = levels_.size();
  step.inode_kind = entry.kind;
  step.seen = std::move(entry.seen);
  if (step.inode_kind == meta::Kind::directory && step.seen) entering_ = step;
  co_return std::optional(std::move(step));
}

}  // namespace ff::client
