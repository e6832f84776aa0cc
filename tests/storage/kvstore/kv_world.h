// Processes with a store of keys and values, on one simulated disk: open, kill, pause, reopen.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/point_step.h"
#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_world.h"
#include "storage/kvstore/store.h"

namespace ff::kvstore {

inline const std::string kFolder = "/kv";

// How many seeds a random test runs: FF_KVSTORE_SEEDS, or a few, fewer under the sanitizers.
inline uint64_t seeds(uint64_t few) {
  const uint64_t some = (few + kPointStep - 1) / kPointStep;
  const char* const given = std::getenv("FF_KVSTORE_SEEDS");
  return given == nullptr ? some : parse_u64(given).value_or(some);
}

inline Change put(std::string key, std::string value, int64_t expires_ms = 0) {
  return {.key = std::move(key), .value = std::move(value), .expires_ms = expires_ms};
}
inline Change removal(std::string key) {
  return {.kind = Change::Kind::remove, .key = std::move(key)};
}
inline Change expiry(std::string key, int64_t expires_ms) {
  return {.kind = Change::Kind::expire, .key = std::move(key), .expires_ms = expires_ms};
}

// One process: its loop, and a store while it is open.
class KvProcess {
 public:
  KvProcess(sim::SimWorld& world, io::Disk& disk, uint64_t seed, sim::ClockSkew skew = {})
      : loop(world, skew), disk_(disk), rng_(seed) {}

  Result<void> open(Options options) {
    auto opened =
        run_task(loop, Store::open(disk_, loop, rng_, metrics, kFolder, std::move(options)));
    if (!opened) return opened.error();
    store = std::move(*opened);
    return {};
  }
  void close() {
    run_task(loop, store->close());
    store.reset();
  }
  void kill() { store.reset(); }

  Result<Applied> apply(std::vector<Change> changes, std::vector<Precondition> guards = {}) {
    return run_task(loop, store->apply(std::move(changes), std::move(guards)));
  }
  Result<Applied> put(std::string key, std::string value, int64_t expires_ms = 0) {
    return apply({kvstore::put(std::move(key), std::move(value), expires_ms)});
  }
  Result<Applied> remove(std::string key) { return apply({removal(std::move(key))}); }
  Result<std::optional<Entry>> read(std::string key) {
    return run_task(loop, store->get(std::move(key)));
  }
  // The value; "(none)" if the key is missing, "(code)" after an error.
  std::string get(const std::string& key) {
    const auto entry = read(key);
    if (!entry) return "(" + std::string(errc_name(entry.error().code)) + ")";
    return *entry ? (*entry)->value : "(none)";
  }
  std::vector<std::string> scan_all(uint32_t partition, size_t page) {
    std::vector<std::string> keys;
    uint64_t cursor = 0;
    do {
      auto got = run_task(loop, store->scan(partition, cursor, page));
      EXPECT_TRUE(got.ok()) << got.error().message;
      if (!got) break;
      keys.insert(keys.end(), got->keys.begin(), got->keys.end());
      cursor = got->next;
    } while (cursor != 0);
    return keys;
  }
  void sleep(int64_t ns) { run_task(loop, sleep_task(loop, ns)); }

  sim::SimLoop loop;
  Metrics metrics;
  std::unique_ptr<Store> store;

 private:
  static Task<void> sleep_task(Loop& loop, int64_t ns) { (void)co_await sleep_for(loop, ns); }

  io::Disk& disk_;
  SeededRng rng_;
};

// A world with a disk and its first process.
struct KvWorld {
  explicit KvWorld(uint64_t seed = 1)
      : disk(seed, world.clock()), first(std::make_unique<KvProcess>(world, disk, seed)) {}
  void reopen(Options options) {
    first->kill();
    const auto opened = first->open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    wait_until_owned(*first);
  }
  // A process that follows a killed one waits for the end of its lease.
  static void wait_until_owned(KvProcess& process) {
    const Store& store = *process.store;
    for (int i = 0; i < 100; ++i) {
      bool all = true;
      for (uint32_t p = 0; p < store.partitions(); ++p) all = all && store.owned(p);
      if (all) return;
      process.sleep(kSecond / 4);
    }
    ADD_FAILURE() << "partitions stay without an owner";
  }
  std::vector<std::string> files(uint32_t partition, std::string_view prefix) {
    std::vector<std::string> paths;
    const std::string dir = kFolder + "/p000" + std::to_string(partition);
    const auto entries = disk.list(dir);
    for (const io::DirEntry& entry : entries.value()) {
      if (entry.name.starts_with(prefix)) paths.push_back(io::join(dir, entry.name));
    }
    return paths;
  }

  sim::SimWorld world;
  sim::SimDisk disk;
  std::unique_ptr<KvProcess> first;
};

inline Options small_options() {
  Options options;
  options.partitions = 1;
  options.segment_bytes = 16 * kKiB;
  options.max_value_bytes = 64 * kKiB;
  options.address = "first";
  return options;
}

}  // namespace ff::kvstore
