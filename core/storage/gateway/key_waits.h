// Commands that wait for keys: BLPOP for an element, XREAD for an entry. A command that changes a
// key announces it (StoreView::announce()), and all that wait for the key run again, in the order
// in which they began to wait: so the first one gets what there is.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/wait.h"

namespace ff::gateway {

// Owned by one loop.
class KeyWaits {
 public:
  explicit KeyWaits(Loop& loop) : loop_(loop) {}
  KeyWaits(const KeyWaits&) = delete;
  KeyWaits& operator=(const KeyWaits&) = delete;

  // The place of a command among those that wait, until it is destroyed. Must not outlive the
  // waits, and stays where it is.
  class KeyWait {
   public:
    KeyWait(KeyWaits& waits, std::vector<std::string> keys);
    ~KeyWait();
    KeyWait(const KeyWait&) = delete;
    KeyWait& operator=(const KeyWait&) = delete;

    // Set when one of the keys was announced; reset it before the command runs.
    Event& announced() { return announced_; }

   private:
    friend class KeyWaits;
    KeyWaits& waits_;
    const std::vector<std::string> keys_;  // each once
    Event announced_;
  };

  void announce(const std::string& key);
  // Whoever waits looks again: who owns the keys may have changed.
  void announce_all();
  size_t commands() const { return commands_; }

 private:
  Loop& loop_;
  size_t commands_ = 0;
  std::unordered_map<std::string, std::list<KeyWait*>> by_key_;
};

}  // namespace ff::gateway
