// sim_content.cc: the pages of one file and their versions (sim_content.h).
//
// The states after a power loss model a journaling file system:
// - sizes are metadata, written in order: a prefix of the size changes survives;
// - a page is written back as it was at some moment: one of its versions survives, or a mix of two
//   consecutive versions by sectors if the power failed during the write;
// - pages are written back in any order, independent of the size: an extended file can have zeros
//   in place of its data;
// - if a truncation did not survive, data written after it did not survive either; data that a
//   surviving truncation removed does not come back.
#include "platform/sim/sim_content.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ff::sim {

Survival pick_survival(Rng& rng) {
  switch (rng.below(4)) {
    case 0: return Survival::nothing;
    case 1: return Survival::everything;
    default: return Survival::some;
  }
}

size_t pick_survivors(Rng& rng, Survival survival, size_t count) {
  switch (survival) {
    case Survival::nothing: return 0;
    case Survival::everything: return count;
    case Survival::some: break;
  }
  return rng.below(count + 1);
}

SimContent::PageRef SimContent::find(const Pages& pages, uint64_t index) {
  const auto found = pages.find(index);
  return found == pages.end() ? nullptr : found->second;
}

void SimContent::put(Pages& pages, uint64_t index, PageRef page) {
  if (page) {
    pages[index] = std::move(page);
  } else {
    pages.erase(index);
  }
}

// A copy of the page with zeros from byte `keep` on.
SimContent::PageRef SimContent::zero_from(const PageRef& page, uint64_t keep) {
  if (!page || keep == 0) return nullptr;
  auto copy = std::make_shared<Page>(*page);
  std::memset(copy->data() + keep, 0, kPage - keep);
  return copy;
}

SimContent::PageRef SimContent::flipped(const PageRef& page, uint64_t bit) {
  auto copy = page ? std::make_shared<Page>(*page) : std::make_shared<Page>();
  (*copy)[bit / 8] ^= std::byte{1} << (bit % 8);
  return copy;
}

// A mix of sectors of `newer` and `older`, each with probability 1/2.
SimContent::PageRef SimContent::torn(const PageRef& older, const PageRef& newer, Rng& rng) {
  auto mix = older ? std::make_shared<Page>(*older) : std::make_shared<Page>();
  for (uint64_t at = 0; at < kPage; at += kSector) {
    if (rng.below(2) == 0) continue;
    if (newer) {
      std::memcpy(mix->data() + at, newer->data() + at, kSector);
    } else {
      std::memset(mix->data() + at, 0, kSector);
    }
  }
  return mix;
}

size_t SimContent::read(ByteSpan into, uint64_t offset) const {
  if (offset >= size_) return 0;
  const size_t total = std::min<uint64_t>(into.size(), size_ - offset);
  size_t done = 0;
  while (done < total) {
    const uint64_t at = offset + done;
    const size_t piece = std::min<uint64_t>(total - done, kPage - at % kPage);
    if (const PageRef page = find(live_, at / kPage)) {
      std::memcpy(into.data() + done, page->data() + at % kPage, piece);
    } else {
      std::memset(into.data() + done, 0, piece);
    }
    done += piece;
  }
  return total;
}

void SimContent::change(uint64_t index, PageRef page) {
  unsynced_[index].push_back({order_, page});
  put(live_, index, std::move(page));
}

void SimContent::resize(uint64_t size) {
  if (size == size_) return;
  unsynced_sizes_.push_back({order_, size, size < size_});
  size_ = size;
}

void SimContent::write(ByteView from, uint64_t offset) {
  ++order_;
  size_t done = 0;
  while (done < from.size()) {
    const uint64_t at = offset + done;
    const size_t piece = std::min<uint64_t>(from.size() - done, kPage - at % kPage);
    const PageRef old = find(live_, at / kPage);
    auto page = old ? std::make_shared<Page>(*old) : std::make_shared<Page>();
    std::memcpy(page->data() + at % kPage, from.data() + done, piece);
    change(at / kPage, std::move(page));
    done += piece;
  }
  if (!from.empty()) resize(std::max(size_, offset + from.size()));
}

void SimContent::truncate(uint64_t size) {
  ++order_;
  std::vector<uint64_t> removed;
  for (auto at = live_.lower_bound(size / kPage); at != live_.end(); ++at) {
    removed.push_back(at->first);
  }
  for (const uint64_t index : removed) {
    const uint64_t begin = index * kPage;
    change(index, zero_from(find(live_, index), size > begin ? size - begin : 0));
  }
  resize(size);
}

void SimContent::punch(uint64_t begin, uint64_t end) {
  ++order_;
  std::vector<uint64_t> touched;
  for (auto at = live_.lower_bound(begin / kPage); at != live_.end() && at->first * kPage < end;
       ++at) {
    touched.push_back(at->first);
  }
  for (const uint64_t index : touched) {
    const uint64_t from = std::max(begin, index * kPage) - index * kPage;
    const uint64_t to = std::min(end, (index + 1) * kPage) - index * kPage;
    if (to - from == kPage) {
      change(index, nullptr);
      continue;
    }
    auto page = std::make_shared<Page>(*find(live_, index));
    std::memset(page->data() + from, 0, to - from);
    change(index, std::move(page));
  }
}

uint64_t SimContent::allocated_pages(const PageSet& reserved) const {
  uint64_t count = reserved.size();
  for (const auto& [index, page] : live_) count += reserved.contains(index) ? 0 : 1;
  return count;
}

bool PageSet::contains(uint64_t page) const {
  auto next = ranges_.upper_bound(page);
  return next != ranges_.begin() && page < std::prev(next)->second;
}

void PageSet::add(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_[begin] = end;
}

void PageSet::erase(uint64_t begin, uint64_t end) {
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin()) --at;
  while (at != ranges_.end() && at->first < end) {
    const auto [first, last] = *at;
    if (last <= begin) {
      ++at;
      continue;
    }
    at = ranges_.erase(at);
    if (first < begin) ranges_[first] = begin;
    if (last > end) at = ranges_.emplace(end, last).first;
  }
}

uint64_t PageSet::size() const {
  uint64_t count = 0;
  for (const auto& [begin, end] : ranges_) count += end - begin;
  return count;
}

io::DataRange SimContent::next_data(uint64_t offset) const {
  auto at = live_.lower_bound(offset / kPage);
  if (offset >= size_ || at == live_.end()) return {size_, size_};
  const uint64_t begin = std::max(offset, at->first * kPage);
  uint64_t index = at->first;
  while (at != live_.end() && at->first == index) {
    ++at;
    ++index;
  }
  return {begin, std::min(index * kPage, size_)};
}

void SimContent::sync() {
  std::erase_if(unsynced_, [this](const auto& change) {
    const Version& newest = change.second.back();
    if (newest.order <= dropped_order_) return false;
    put(durable_, change.first, newest.page);
    return true;
  });
  durable_size_ = size_;
  unsynced_sizes_.clear();
}

// Selects the surviving version of one page. Versions from `limit` on cannot survive.
SimContent::PageRef SimContent::survivor(uint64_t index, const std::vector<Version>& versions,
                                         size_t kept_sizes, uint64_t limit, Rng& rng,
                                         Survival survival) const {
  const auto usable = static_cast<size_t>(
      std::partition_point(versions.begin(), versions.end(),
                           [&](const Version& version) { return version.order < limit; }) -
      versions.begin());
  const size_t kept = pick_survivors(rng, survival, usable);
  PageRef page = kept > 0 ? versions[kept - 1].page : find(durable_, index);
  const uint64_t order = kept > 0 ? versions[kept - 1].order : 0;
  if (survival == Survival::some && kept < usable && rng.below(2) == 0) {
    page = torn(page, versions[kept].page, rng);
  }
  for (size_t i = 0; i < kept_sizes; ++i) {
    const SizeChange& change = unsynced_sizes_[i];
    if (!change.shrinks || change.order <= order || change.size >= (index + 1) * kPage) continue;
    page = zero_from(page, change.size > index * kPage ? change.size - index * kPage : 0);
  }
  return page;
}

void SimContent::power_loss(Rng& rng, Survival survival) {
  const size_t kept_sizes = pick_survivors(rng, survival, unsynced_sizes_.size());
  uint64_t limit = UINT64_MAX;
  for (size_t i = unsynced_sizes_.size(); i > kept_sizes; --i) {
    if (unsynced_sizes_[i - 1].shrinks) limit = unsynced_sizes_[i - 1].order;
  }
  Pages left = durable_;
  for (const auto& [index, versions] : unsynced_) {
    put(left, index, survivor(index, versions, kept_sizes, limit, rng, survival));
  }
  const uint64_t size = kept_sizes > 0 ? unsynced_sizes_[kept_sizes - 1].size : durable_size_;
  left.erase(left.lower_bound(align_up(size, kPage) / kPage), left.end());
  if (size % kPage != 0) {
    put(left, size / kPage, zero_from(find(left, size / kPage), size % kPage));
  }
  live_ = left;
  durable_ = std::move(left);
  size_ = size;
  durable_size_ = size;
  unsynced_.clear();
  unsynced_sizes_.clear();
}

void SimContent::flip(uint64_t bit) {
  const uint64_t index = bit / 8 / kPage;
  const uint64_t inside = bit % (kPage * 8);
  live_[index] = flipped(find(live_, index), inside);
  const auto versions = unsynced_.find(index);
  if (durable_.contains(index) || versions == unsynced_.end()) {
    durable_[index] = flipped(find(durable_, index), inside);
  }
  if (versions == unsynced_.end()) return;
  for (Version& version : versions->second) version.page = flipped(version.page, inside);
}

}  // namespace ff::sim
