// directory.cc: pages forward by the last name, backward by where pages began.
#include "storage/mount/directory.h"

#include <algorithm>
#include <utility>

namespace ff::mount {

namespace {

constexpr uint32_t kPageEntries = 1024;
constexpr uint64_t kDots = 2;  // "." and ".."

Directory::Entry dot(uint64_t position, std::string name, meta::InodeId id) {
  return {
      .position = position,
      .listed = {
          .name = std::move(name), .id = id, .kind = meta::Kind::directory, .seen = std::nullopt}};
}

}  // namespace

Directory::Directory(Loop& loop, meta::MetaClient& names, meta::Caller caller, meta::Seen dir,
                     meta::InodeId parent, std::shared_ptr<client::InodeState> state)
    : loop_(loop),
      turn_(loop, 1),
      names_(names),
      caller_(std::move(caller)),
      dir_(std::move(dir)),
      state_(std::move(state)),
      told_(state_->errors.open()),
      dots_{dot(0, ".", dir_.inode.id), dot(1, "..", parent)} {}

// Makes the page that has `position`, or the last one, the one that is here.
Task<Result<void>> Directory::turn_to(uint64_t position) {
  if (position == 0 || pages_.empty()) {
    pages_.assign(1, {.position = kDots});
    page_ = 0;
  } else {
    const auto behind = std::ranges::upper_bound(pages_, position, {}, &Page::position);
    const auto at = static_cast<size_t>(std::max<ptrdiff_t>(behind - pages_.begin(), 1)) - 1;
    const uint64_t next = entries_.empty() ? pages_[page_].position : entries_.back().position + 1;
    if (at == page_ && position < next) co_return Result<void>();
    if (at == page_ && end_) co_return Result<void>();
    if (at == page_ && !entries_.empty()) {
      pages_.push_back({.position = next, .after = entries_.back().listed.name});
      page_ = pages_.size() - 1;
    } else {
      page_ = at;
    }
  }
  const int64_t now_ns = loop_.now_ns();
  auto listing = names_.list(caller_, dir_.ref(), pages_[page_].after, kPageEntries, true);
  auto listed = co_await std::move(listing);
  entries_.clear();
  // Who still has a directory open that was removed finds nothing in it.
  end_ = !listed && listed.error().code == Errc::stale;
  if (end_) co_return Result<void>();
  FF_CO_TRY(auto got, std::move(listed));
  end_ = got.end;
  uint64_t next = pages_[page_].position;
  for (auto& entry : got.entries) entries_.push_back({next++, std::move(entry), now_ns});
  co_return Result<void>();
}

Task<Result<std::vector<const Directory::Entry*>>> Directory::read(uint64_t position) {
  auto taking = turn_.take(1);
  FF_CO_TRY(const auto hold, co_await std::move(taking));
  auto turning = turn_to(position);
  FF_CO_TRY(co_await std::move(turning));
  std::vector<const Entry*> found;
  for (const Entry& entry : dots_) {
    if (entry.position >= position) found.push_back(&entry);
  }
  for (const Entry& entry : entries_) {
    if (entry.position >= position) found.push_back(&entry);
  }
  co_return found;
}

}  // namespace ff::mount
