// Locks of keys for the commands of a gateway: shared for commands that read a key, exclusive for
// those that change it. A command asks for all its keys at once, and each key serves its requests
// in order. So no two commands can wait for each other, and the commands of one client on one key
// run in the order in which they arrived.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::gateway {

// Owned by one loop.
class KeyLocks {
 public:
  explicit KeyLocks(Loop& loop) : loop_(loop) {}
  KeyLocks(const KeyLocks&) = delete;
  KeyLocks& operator=(const KeyLocks&) = delete;

  // The place of a command in the queues of its keys, until it is destroyed. Must not outlive the
  // locks, and stays where it is.
  class KeyLock {
   public:
    // Takes the place at the end of each queue. Keys may occur several times.
    KeyLock(KeyLocks& locks, std::vector<std::string> keys, bool exclusive);
    ~KeyLock();
    KeyLock(const KeyLock&) = delete;
    KeyLock& operator=(const KeyLock&) = delete;

    bool is_held() const { return waits_for_ == 0; }
    // Waits until all keys are locked. The error of a cancellation.
    Task<Result<void>> wait();

   private:
    friend class KeyLocks;
    KeyLocks& locks_;
    std::vector<std::string> keys_;
    const bool exclusive_;
    size_t waits_for_ = 0;  // keys
    Event held_;
  };

  // Whether a command has the key, or waits for it.
  bool is_used(const std::string& key) const { return queues_.contains(key); }
  // Keys that are locked or waited for.
  size_t keys() const { return queues_.size(); }

 private:
  // The requests of one key in order: the first `granted` hold it.
  struct Queue {
    std::deque<KeyLock*> requests;
    size_t granted = 0;
  };
  static void grant(Queue& queue);

  Loop& loop_;
  std::unordered_map<std::string, Queue> queues_;
};

}  // namespace ff::gateway
