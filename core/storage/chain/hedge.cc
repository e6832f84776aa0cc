// hedge.cc: a window of times, and what is high in it.
#include "storage/chain/hedge.h"

#include <algorithm>

namespace ff::chain {

namespace {

constexpr size_t kLookAgain = 64;  // new times, before the window is looked at again

}  // namespace

size_t Hedge::size_of(uint64_t bytes) {
  return static_cast<size_t>(std::ranges::lower_bound(kUpTo, bytes) - kUpTo.begin());
}

void Hedge::took(uint64_t bytes, int64_t ns) {
  saved_ = std::min(saved_ + 1, kInARow * kOneIn);
  Sizes& sizes = sizes_[size_of(bytes)];
  if (sizes.took_ns.size() < kRemembered) {
    sizes.took_ns.push_back(ns);
  } else {
    sizes.took_ns[sizes.next] = ns;
    sizes.next = (sizes.next + 1) % kRemembered;
  }
  if (++sizes.fresh < kLookAgain || sizes.took_ns.size() < kKnown) return;
  sizes.fresh = 0;
  std::vector<int64_t> all = sizes.took_ns;
  const auto at = all.begin() + static_cast<long>(all.size() * 99 / 100);
  std::ranges::nth_element(all, at);
  sizes.late_ns = std::max(*at, kLeastNs);
}

std::optional<int64_t> Hedge::late_ns(uint64_t bytes) const {
  const Sizes& sizes = sizes_[size_of(bytes)];
  return sizes.late_ns == 0 ? std::nullopt : std::optional(sizes.late_ns);
}

bool Hedge::take() {
  if (saved_ < kOneIn) return false;
  saved_ -= kOneIn;
  return true;
}

}  // namespace ff::chain
