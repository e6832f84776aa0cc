// key_waits.cc: for each key, who waits for it, in order.
#include "storage/gateway/key_waits.h"

#include <algorithm>
#include <utility>

namespace ff::gateway {

namespace {

std::vector<std::string> each_once(std::vector<std::string> keys) {
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace

KeyWaits::KeyWait::KeyWait(KeyWaits& waits, std::vector<std::string> keys)
    : waits_(waits), keys_(each_once(std::move(keys))), announced_(waits.loop_) {
  for (const std::string& key : keys_) waits_.by_key_[key].push_back(this);
  waits_.commands_++;
}

KeyWaits::KeyWait::~KeyWait() {
  for (const std::string& key : keys_) {
    const auto found = waits_.by_key_.find(key);
    found->second.remove(this);
    if (found->second.empty()) waits_.by_key_.erase(found);
  }
  waits_.commands_--;
}

void KeyWaits::announce(const std::string& key) {
  if (by_key_.empty()) return;
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  for (KeyWait* const wait : found->second) wait->announced_.set();
}

void KeyWaits::announce_all() {
  for (const auto& [key, all] : by_key_) {
    for (KeyWait* const wait : all) wait->announced_.set();
  }
}

}  // namespace ff::gateway
