// key_walk.cc: a stack of open folders.
#include "storage/s3/key_walk.h"

#include <algorithm>
#include <utility>

#include "platform/base/text.h"
#include "storage/s3/object_key.h"

namespace ff::s3 {

namespace {

constexpr uint32_t kKeyListPage = 1000;  // entries

bool is_folder(const meta::MetaClient::DirEntry& entry) {
  return entry.kind == meta::InodeType::directory;
}

bool is_possible_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= meta::kNameMax &&
         name.find('\0') == name.npos && is_key_part(name);
}

}  // namespace

KeyWalk::KeyWalk(ObjectStore& store, meta::Caller caller, meta::InodeView bucket, Range range)
    : store_(store),
      caller_(std::move(caller)),
      bucket_(std::move(bucket)),
      range_(std::move(range)) {}

// The folder in which all keys with the prefix are.
Task<Result<void>> KeyWalk::enter_first() {
  const size_t slash = range_.prefix.rfind('/');
  std::string path = slash == std::string::npos ? "" : range_.prefix.substr(0, slash + 1);
  std::vector<std::string> names;
  if (!path.empty()) {
    for (const std::string_view part : split(std::string_view(path).substr(0, slash), '/')) {
      if (!is_possible_name(part)) co_return Result<void>();
      names.emplace_back(part);
    }
  }
  auto dir = co_await store_.find_folder(caller_, bucket_, std::move(names));
  if (!dir && is_missing(dir.error())) co_return Result<void>();
  if (!dir) co_return std::move(dir).error();
  std::string filter = range_.prefix.substr(path.size());
  co_return co_await enter(std::move(path), std::move(*dir), std::move(filter));
}

Task<Result<void>> KeyWalk::enter(std::string path, meta::InodeView dir, std::string filter) {
  auto level = std::make_unique<Level>();
  level->path = std::move(path);
  level->dir = std::move(dir);
  level->filter = std::move(filter);
  const std::string& after = range_.after;
  const bool within = after.starts_with(level->path) && after.size() > level->path.size();
  const std::string rest = within ? after.substr(level->path.size()) : std::string();
  if (after > level->path && !within) co_return Result<void>();  // all of its keys are before
  level->marker_left = !level->path.empty() && level->filter.empty() && after < level->path;
  if (rest >= level->filter && !rest.empty()) {
    FF_CO_TRY(co_await start_at(*level, rest));
  } else if (!level->filter.empty()) {
    // The largest name below the filter.
    level->list_after = level->filter;
    level->list_after.back() = static_cast<char>(level->list_after.back() - 1);
    level->list_after.append(meta::kNameMax, '\xFF');
    if (level->filter.back() == '\0') level->list_after.clear();
  }
  levels_.push_back(std::move(level));
  co_return Result<void>();
}

// `rest`: behind the path, what the first key must be larger than. A folder whose name is the
// beginning of it may have keys behind it, although its name is before it.
Task<Result<void>> KeyWalk::start_at(Level& level, const std::string& rest) {
  const size_t slash = std::min(rest.find('/'), rest.size());
  for (size_t i = 1; i <= slash; i++) {
    if (i == rest.size() || rest[i] <= '/') {
      FF_CO_TRY(co_await add_folder(level, rest.substr(0, i)));
    }
  }
  level.list_after = rest.substr(0, slash);
  level.above = rest;
  co_return Result<void>();
}

Task<Result<void>> KeyWalk::add_folder(Level& level, const std::string& name) {
  if (!is_possible_name(name) || !name.starts_with(level.filter)) co_return Result<void>();
  auto view = co_await store_.metadata().lookup(caller_, level.dir.ref(), name);
  if (!view && (is_missing(view.error()) || view.error().code == Errc::refused)) {
    co_return Result<void>();
  }
  if (!view) co_return std::move(view).error();
  if (view->inode.is(meta::InodeType::directory)) {
    level.waiting.emplace(name + "/", std::move(*view));
  }
  co_return Result<void>();
}

Task<Result<bool>> KeyWalk::has_marker(const Level& level) {
  if (level.dir.inode.xattrs == 0) co_return false;
  const auto text =
      co_await store_.metadata().get_xattr(caller_, level.dir.ref(), std::string(kAttributeName));
  co_return text&&* text;
}

// Whether page[at] is a name that belongs to the walk; reads pages until there is one.
Task<Result<bool>> KeyWalk::has_entry(Level& level) {
  for (;;) {
    if (level.started && level.at == level.page.entries.size()) {
      if (level.page.end) co_return false;
      if (!level.page.entries.empty()) level.list_after = level.page.entries.back().name;
    }
    if (!level.started || level.at == level.page.entries.size()) {
      FF_CO_TRY(level.page, co_await store_.metadata().list(caller_, level.dir.ref(),
                                                            level.list_after, kKeyListPage, true));
      level.started = true;
      level.at = 0;
      continue;
    }
    const meta::MetaClient::DirEntry& entry = level.page.entries[level.at];
    if (!entry.name.starts_with(level.filter) && entry.name > level.filter) {
      level.page.entries.clear();
      level.at = 0;
      level.page.end = true;
      co_return false;
    }
    const bool wanted = entry.name.starts_with(level.filter) && is_key_part(entry.name) &&
                        entry.name > level.above && entry.view.has_value() &&
                        (is_folder(entry) || entry.kind == meta::InodeType::file);
    if (wanted) co_return true;
    if (entry.name.starts_with(kHiddenPrefix)) co_await drop_leftover(level, entry);
    level.at++;
  }
}

Task<void> KeyWalk::drop_leftover(const Level& level, const meta::MetaClient::DirEntry& entry) {
  if (entry.kind != meta::InodeType::file || !entry.view) co_return;
  const int64_t age_ns = store_.loop().clock().wall_ns() - entry.view->inode.mtime_ns;
  if (age_ns < kLeftoverNs) co_return;
  (void)co_await store_.metadata().unlink(caller_, level.dir.ref(), entry.name, std::nullopt);
}

// The next key of the level. None: the level is at its end, or another one was entered.
Task<Result<std::optional<WalkedKey>>> KeyWalk::next_of(Level& level, bool& entered) {
  if (std::exchange(level.marker_left, false)) {
    FF_CO_TRY(const bool marker, co_await has_marker(level));
    if (marker) co_return std::optional(WalkedKey{level.path, level.dir, true});
  }
  for (;;) {
    FF_CO_TRY(const bool more, co_await has_entry(level));
    const auto first = level.waiting.begin();
    if (first != level.waiting.end() &&
        (!more || first->first < level.page.entries[level.at].name)) {
      auto folder = level.waiting.extract(first);
      std::string path = level.path + folder.key();
      if (!skipped_.empty() && path.starts_with(skipped_)) continue;
      entered = true;
      FF_CO_TRY(co_await enter(std::move(path), std::move(folder.mapped()), std::string()));
      co_return std::optional<WalkedKey>();
    }
    if (!more) co_return std::optional<WalkedKey>();
    meta::MetaClient::DirEntry& entry = level.page.entries[level.at++];
    if (is_folder(entry)) {
      level.waiting.emplace(entry.name + "/", std::move(*entry.view));
      continue;
    }
    std::string key = level.path + entry.name;
    if (!skipped_.empty() && key.starts_with(skipped_)) continue;
    co_return std::optional(WalkedKey{std::move(key), std::move(*entry.view), false});
  }
}

Task<Result<std::optional<WalkedKey>>> KeyWalk::next() {
  if (!std::exchange(begun_, true)) FF_CO_TRY(co_await enter_first());
  while (!levels_.empty()) {
    bool entered = false;
    Level& level = *levels_.back();
    auto found = co_await next_of(level, entered);
    if (!found && levels_.size() > 1 && !entered &&
        (found.error().code == Errc::refused || is_missing(found.error()))) {
      levels_.pop_back();
      continue;
    }
    if (!found || *found) co_return found;
    if (!entered) levels_.pop_back();
  }
  co_return std::optional<WalkedKey>();
}

void KeyWalk::skip(std::string group) {
  skipped_ = std::move(group);
  while (!levels_.empty() && !levels_.back()->path.empty() &&
         levels_.back()->path.starts_with(skipped_)) {
    levels_.pop_back();
  }
}

}  // namespace ff::s3
