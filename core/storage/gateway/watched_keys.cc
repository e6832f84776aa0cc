// watched_keys.cc: counts the changes of keys that clients watch.
#include "storage/gateway/watched_keys.h"

namespace ff::gateway {

std::shared_ptr<const uint64_t> WatchedKeys::watch(const std::string& key) {
  auto& watched = changes_[key];
  if (auto held = watched.lock()) return held;
  const auto forget = [this, key](const uint64_t* changes) {
    changes_.erase(key);
    delete changes;
  };
  std::shared_ptr<uint64_t> fresh(new uint64_t(0), forget);
  watched = fresh;
  return fresh;
}

void WatchedKeys::note_change(const std::string& key) {
  if (changes_.empty()) return;
  const auto found = changes_.find(key);
  if (found == changes_.end()) return;
  if (const auto changes = found->second.lock()) ++*changes;
}

void WatchedKeys::note_all_changed() {
  for (const auto& [key, watched] : changes_) {
    if (const auto changes = watched.lock()) ++*changes;
  }
}

}  // namespace ff::gateway
