// Background work of the metadata service: it removes the chunks of unlinked files, empties removed
// directory trees, finishes interrupted truncations, and closes the sessions and locks of dead
// clients. One server at a time does it (the primary). Two at once do no harm: each step is a
// transaction that checks first, or is idempotent. Owned by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/metrics.h"
#include "platform/base/wait.h"
#include "storage/meta/file_chunks.h"
#include "storage/meta/lock_reaper.h"
#include "storage/meta/namespace.h"

namespace ff::meta {

// A client that has not renewed itself for this long (service.h) is dead.
constexpr int64_t kClientTimeoutNs = 300 * kSecond;
// Its reply cache is kept this long after that; nobody repeats a request later.
constexpr int64_t kReplyCacheNs = 1800 * kSecond;

class GarbageCollector {
 public:
  struct Options {
    // How long the chunks of an unlinked file stay: readers have no session that protects them.
    int64_t delay_ns = 300 * kSecond;
    // Whether a disk is nearly full: then they do not stay. Null: never.
    std::function<bool()> needs_space = {};
    std::function<bool()> active;  // whether this server is the primary
  };
  // All outlive it.
  GarbageCollector(kv::Engine& engine, Namespace& name_space, FileChunks& chunks, Loop& loop,
                   Metrics& metrics, Options options);

  // Runs rounds until it is cancelled.
  Task<void> run();
  // One round, for tests. Tries everything and returns the first error.
  Task<Result<void>> collect();

 private:
  struct Garbage {
    uint64_t since = 0;  // part of its key, wall clock in ns
    Inode inode;
  };
  Task<Result<void>> collect_garbage();
  Task<Result<std::vector<Garbage>>> due_garbage(std::string& from);
  Task<Result<void>> collect_page(std::vector<Garbage> page);
  Task<Result<void>> erase_files(std::span<const Garbage> files);
  Task<Result<void>> collect_trees();
  Task<Result<bool>> remove_some_entries(InodeId dir);
  Task<Result<void>> finish_truncations();
  Task<Result<void>> expire_clients();
  Task<Result<void>> observe_clients();
  Task<Result<void>> close_sessions(std::set<uint64_t> dead);
  Task<Result<void>> close_session(std::string key);
  Task<Result<void>> forget_replies(uint64_t client, uint64_t count);
  Task<Result<std::vector<kv::Entry>>> read_range(kv::Range range);
  Task<Result<void>> erase(std::vector<std::string> keys);
  int64_t deadline() const { return loop_.now_ns() + 30 * kSecond; }

  // The renewal count of a client, and since when it has not changed (steady clock).
  struct ObservedClient {
    uint64_t count = 0;
    int64_t since_ns = 0;
  };

  kv::Engine& engine_;
  Namespace& namespace_;
  FileChunks& chunks_;
  Loop& loop_;
  const Options options_;
  Counter& files_;
  Counter& sessions_;
  std::map<uint64_t, ObservedClient> clients_;
  LockReaper locks_;
};

}  // namespace ff::meta
