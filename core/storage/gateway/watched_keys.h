// The keys that clients watch (WATCH), and how often each has changed meanwhile: the versions of
// the store do not show that a missing key was set and removed again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace ff::gateway {

// Outlives all that watch() has returned. Owned by one loop.
class WatchedKeys {
 public:
  // How often the key has changed; it is watched while somebody holds the number.
  std::shared_ptr<const uint64_t> watch(const std::string& key);
  // A command changes the key.
  void note_change(const std::string& key);
  // Others may have changed them, unseen.
  void note_all_changed();
  size_t keys() const { return changes_.size(); }

 private:
  std::unordered_map<std::string, std::weak_ptr<uint64_t>> changes_;
};

}  // namespace ff::gateway
