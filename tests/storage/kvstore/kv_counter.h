// Counters in a store that several processes increment with preconditions: what they have seen
// together shows whether an acknowledged change was lost, or a read was from before.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/kvstore/kv_world.h"

namespace ff::kvstore {

// What all processes together have seen of a counter.
struct SeenCounter {
  std::set<uint64_t> acknowledged = {};
  uint64_t highest_seen = 0;
  uint64_t reads = 0;
  uint64_t increments = 0;
  int64_t last_ns = 0;     // when it was last incremented
  int64_t longest_ns = 0;  // the longest time between two increments

  void note_time(int64_t now_ns) {
    longest_ns = std::max(longest_ns, now_ns - last_ns);
    last_ns = now_ns;
  }
};

inline uint64_t number_of(const std::string& text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

inline Task<void> increment(KvProcess& process, SeenCounter& counter, std::string key) {
  const uint64_t before = counter.highest_seen;
  const auto entry = co_await process.store->get(key);
  EXPECT_TRUE(entry.ok() || entry.error().code != Errc::corrupt) << entry.error().message;
  if (!entry) co_return;
  const uint64_t value = *entry ? number_of((*entry)->value) : 0;
  EXPECT_GE(value, before) << "a read from before";
  counter.highest_seen = std::max(counter.highest_seen, value);
  ++counter.reads;
  std::vector<Change> changes{put(key, std::to_string(value + 1))};
  std::vector<Precondition> guards{{.key = key, .version = *entry ? (*entry)->version : 0}};
  const auto applied = co_await process.store->apply(std::move(changes), std::move(guards));
  if (!applied || !applied->done) co_return;
  EXPECT_TRUE(counter.acknowledged.insert(value + 1).second) << "lost: " << value + 1;
  counter.highest_seen = std::max(counter.highest_seen, value + 1);
  ++counter.increments;
  counter.note_time(process.loop.now_ns());
}

inline Task<void> increment_forever(KvProcess& process, SeenCounter& counter, std::string key,
                                    int64_t pause_ns) {
  for (;;) {
    co_await increment(process, counter, key);
    const auto slept = co_await sleep_for(process.loop, pause_ns);
    if (!slept) co_return;
  }
}

}  // namespace ff::kvstore
