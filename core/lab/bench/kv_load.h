// The load of `ff bench kv`: first whether a store keeps the contract of kv/engine.h, then
// transactions as the metadata service makes them, with a number of them in flight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/loop.h"
#include "platform/base/stop_token.h"
#include "platform/base/task.h"
#include "platform/kv/engine.h"

namespace ff::bench {

struct KvLoad {
  uint64_t files = 0;      // number of creates, and of look-ups
  unsigned in_flight = 1;  // transactions
  uint64_t existing = 0;   // files that are there before; made in larger transactions
};

struct KvPhaseResult {
  std::string phase;
  uint64_t operations = 0;
  double seconds = 0;
  double p50_seconds = 0;
  double p99_seconds = 0;
  double per_second() const { return seconds > 0 ? static_cast<double>(operations) / seconds : 0; }
};

// Errc::exists if the store is not empty.
Task<Result<void>> check_kv_empty(kv::Engine& engine, int64_t deadline_ns);

// Checks bytes and order of keys, a transaction's view of its own writes, and with concurrent
// transactions that none loses an update, misses a new key of a range it has read, or sees a part
// of another (as in kv/engine.h). Errc::fault names the rule that the store breaks.
Task<Result<void>> check_kv_contract(kv::Engine& engine, Loop& loop, int64_t deadline_ns);

// Phases: "fill" if the load has existing files; "create" (2 gets and 4 puts, durable); "look up"
// (2 keys of a random file of all). Errors: the first of any transaction, those of `stop`.
Task<Result<std::vector<KvPhaseResult>>> run_kv_load(kv::Engine& engine, Loop& loop,
                                                     const StopToken& stop, KvLoad load);

// Removes all that the functions above have written. Many transactions at a time erase the files of
// `load`, which may be more or fewer than there are.
Task<Result<void>> clear_kv(kv::Engine& engine, Loop& loop, int64_t deadline_ns, KvLoad load);

}  // namespace ff::bench
