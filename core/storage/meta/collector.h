// What is done behind the operations: the bytes of files without names are removed, trees that were
// taken out are emptied, truncations are finished that nobody waits for any more, and what dead
// clients had open or locked is closed and free again. One server at a time does it (the cluster's
// primary); two at once do no harm, for each step is a transaction that looks first, or is the same
// when it is done twice. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/metrics.h"
#include "platform/base/wait.h"
#include "storage/meta/chunks.h"
#include "storage/meta/lock_watch.h"
#include "storage/meta/names.h"

namespace ff::meta {

// A client that has not said for so long that it lives (service.h) is dead.
constexpr int64_t kClientNs = 300 * kSecond;
// What its last requests did is kept for so long after that: nobody repeats one any more.
constexpr int64_t kAnswersNs = 1800 * kSecond;

class Collector {
 public:
  struct Options {
    // How long the bytes of a file stay once its last name is gone: for those that only read it,
    // and have told nobody.
    int64_t delay_ns = 300 * kSecond;
    std::function<bool()> active;  // whether this server is the one that does it
  };
  // All outlive it.
  Collector(kv::Engine& engine, Names& names, Chunks& chunks, Loop& loop, Metrics& metrics,
            Options options);

  // Until cancelled.
  Task<void> run();
  // One round of all that is due; for tests. The first error of it; the rest was tried.
  Task<Result<void>> collect();

 private:
  struct Garbage {
    uint64_t since = 0;  // part of its key
    Inode inode;
  };
  Task<Result<void>> collect_garbage();
  Task<Result<std::vector<Garbage>>> due();
  Task<Result<void>> collect_one(Garbage garbage);
  Task<Result<void>> collect_trees();
  Task<Result<bool>> empty_some(InodeId dir);
  Task<Result<void>> finish_cuts();
  Task<Result<void>> forget_clients();
  Task<Result<void>> look_at_clients();
  Task<Result<void>> close_sessions(std::set<uint64_t> dead);
  Task<Result<void>> close_session(std::string key);
  Task<Result<void>> forget_client(uint64_t client, uint64_t count);
  Task<Result<std::vector<kv::Entry>>> page(kv::Range range);
  Task<Result<void>> erase(std::vector<std::string> keys);
  int64_t deadline() const { return loop_.now_ns() + 30 * kSecond; }

  // What a client's record was when it was last looked at, and since when (steady).
  struct Seen {
    uint64_t count = 0;
    int64_t since_ns = 0;
  };

  kv::Engine& engine_;
  Names& names_;
  Chunks& chunks_;
  Loop& loop_;
  const Options options_;
  Counter& files_;
  Counter& sessions_;
  std::map<uint64_t, Seen> clients_;
  LockWatch locks_;
};

}  // namespace ff::meta
