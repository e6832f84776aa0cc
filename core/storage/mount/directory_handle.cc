// directory_handle.cc: pages continue after the last name; seeking back uses the recorded page
// starts.
#include "storage/mount/directory_handle.h"

#include <algorithm>
#include <utility>

namespace ff::mount {

namespace {

constexpr uint32_t kPageEntries = 1024;
constexpr uint64_t kDots = 2;  // "." and ".."

DirectoryHandle::Entry dot(uint64_t position, std::string name, meta::InodeId id) {
  return {.position = position,
          .listed = {.name = std::move(name),
                     .id = id,
                     .kind = meta::InodeType::directory,
                     .view = std::nullopt}};
}

}  // namespace

DirectoryHandle::DirectoryHandle(Loop& loop, meta::MetaClient& metadata, meta::Caller caller,
                                 meta::InodeView dir, meta::InodeId parent,
                                 std::shared_ptr<client::InodeState> state)
    : loop_(loop),
      lock_(loop, 1),
      metadata_(metadata),
      caller_(std::move(caller)),
      dir_(std::move(dir)),
      state_(std::move(state)),
      error_cursor_(state_->errors.sample()),
      dots_{dot(0, ".", dir_.inode.id), dot(1, "..", parent)} {}

// Loads the page that contains `position`, or the last one.
Task<Result<void>> DirectoryHandle::load_page(uint64_t position, bool with_inodes) {
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
  auto listed =
      co_await metadata_.list(caller_, dir_.ref(), pages_[page_].after, kPageEntries, with_inodes);
  entries_.clear();
  // An open directory that was removed is empty.
  end_ = !listed && listed.error().code == Errc::stale;
  if (end_) co_return Result<void>();
  FF_CO_TRY(auto got, std::move(listed));
  end_ = got.end;
  uint64_t next = pages_[page_].position;
  for (auto& entry : got.entries) entries_.push_back({next++, std::move(entry), now_ns});
  co_return Result<void>();
}

void DirectoryHandle::on_sent(client::RecoveryTable& recovery, uint64_t number, const Entry& last) {
  if (last.position < kDots) return;
  position_ = recovery.add({.kind = client::RecoveryTable::Kind::position,
                            .fixed = {number, last.position + 1},
                            .text = last.listed.name});
}

void DirectoryHandle::restore(client::RecoveryTable::Record position) {
  pages_ = {{.position = kDots},
            {.position = position.fixed(1), .after = std::string(position.text())}};
  page_ = 1;
  position_ = std::move(position);
}

Task<Result<std::vector<const DirectoryHandle::Entry*>>> DirectoryHandle::read(uint64_t position,
                                                                               bool with_inodes) {
  FF_CO_TRY(const auto hold, co_await lock_.acquire(1));
  FF_CO_TRY(co_await load_page(position, with_inodes));
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
