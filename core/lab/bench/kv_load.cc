// kv_load.cc: the checks, the transactions and what is timed of them.
#include "lab/bench/kv_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"

namespace ff::bench {

namespace {

using kv::Entry;
using kv::Range;
using kv::Txn;
using kv::TxnFunction;

// All keys of this file begin with it; none of ff's own does.
constexpr const char* kKvPrefix = "~bench/";
constexpr uint64_t kKvDirectories = 1000;
constexpr uint64_t kKvSlots = 4096;  // of clients, which keep the reply to their last request
constexpr uint64_t kKvFilesAtOnce = kv::kWritesMax / 2;  // name and inode of each
constexpr size_t kKvErasedAtOnce = kv::kWritesMax;
constexpr size_t kKvTasks = 16;  // of a check with concurrent transactions
constexpr size_t kKvTimes = 10;  // transactions of each

std::string kv_key(std::string_view rest) { return kKvPrefix + std::string(rest); }

Range kv_range(std::string from, size_t limit) {
  return {.begin = std::move(from), .end = kv::end_of_prefix(kKvPrefix), .limit = limit};
}

Error broken_rule(std::string_view rule) {
  Error error = fail(Errc::fault, "the store breaks the contract of transactions: {}", rule);
  error.hint = "Do not use this store for ff.";
  return error;
}

struct KvCheck {
  kv::Engine& engine;
  Loop& loop;
  const int64_t deadline_ns;

  Task<Result<void>> run(TxnFunction function) {
    return engine.run(std::move(function), deadline_ns);
  }
  Task<Result<void>> view(TxnFunction function) {
    return engine.view(std::move(function), deadline_ns);
  }
};

// kKvTasks tasks that call `step` kKvTimes times each.
Task<Result<void>> run_concurrently(
    KvCheck& check, std::function<Task<Result<void>>(size_t task, size_t time)> step) {
  Result<void> first;
  Gate gate(check.loop);
  const auto work = [&](size_t task) -> Task<void> {
    for (size_t time = 0; time < kKvTimes && first; time++) {
      auto done = co_await step(task, time);
      if (!done && first) first = std::move(done);
    }
  };
  for (size_t task = 0; task < kKvTasks; task++) gate.spawn(work(task));
  co_await gate.wait_empty();
  co_return first;
}

Task<Result<void>> check_bytes_and_order(KvCheck& check) {
  std::vector<Entry> written, all, two;
  for (const std::string& rest : {std::string("\0", 1), std::string("a"), std::string("a\0", 2),
                                  std::string("aa"), std::string("\x7f"), std::string("\xff")}) {
    written.push_back({kv_key(rest), rest + std::string("\0\xff", 2)});
  }
  std::optional<std::string> own;
  auto put = check.run([&](Txn& txn) -> Task<Result<void>> {
    for (const Entry& entry : written) txn.put(entry.key, entry.value);
    FF_CO_TRY(own, co_await txn.get(written[0].key));
    txn.erase(kv_key("never there"));
    co_return Result<void>();
  });
  FF_CO_TRY(co_await std::move(put));
  if (own != written[0].value) co_return broken_rule("a transaction does not see its own writes");
  auto look = check.view([&](Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(all, co_await txn.range(kv_range(kKvPrefix, 100), std::string()));
    FF_CO_TRY(two, co_await txn.range(kv_range(written[1].key, 2), std::string()));
    co_return Result<void>();
  });
  FF_CO_TRY(co_await std::move(look));
  if (all != written) co_return broken_rule("it changes keys or values, or sorts keys otherwise");
  if (two != std::vector<Entry>(written.begin() + 1, written.begin() + 3))
    co_return broken_rule("a limited range has other entries");
  co_return Result<void>();
}

Task<Result<void>> check_no_lost_update(KvCheck& check) {
  const std::string counter = kv_key("counter");
  auto counting = run_concurrently(check, [&](size_t task, size_t time) {
    const std::string mark = kv_key(fmt::format("mark/{}/{}", task, time));
    return check.run([counter, mark](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto done, co_await txn.get(mark));
      if (done) co_return Result<void>();
      FF_CO_TRY(const auto old, co_await txn.get(counter));
      txn.put(counter, std::string(old.value_or("").size() + 1, 'i'));
      txn.put(mark, "");
      co_return Result<void>();
    });
  });
  FF_CO_TRY(co_await std::move(counting));
  size_t counted = 0;
  auto look = check.view([&](Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto value, co_await txn.get(counter));
    counted = value.value_or("").size();
    co_return Result<void>();
  });
  FF_CO_TRY(co_await std::move(look));
  if (counted != kKvTasks * kKvTimes)
    co_return broken_rule(
        fmt::format("of {} increments {} are there", kKvTasks * kKvTimes, counted));
  co_return Result<void>();
}

// Two keys, of which at least one must stay; and five seats for many guests.
Task<Result<void>> check_no_skew_and_phantom(KvCheck& check) {
  constexpr size_t kSeats = 5;
  const std::string guard = kv_key("seats"), a = kv_key("duty/a"), b = kv_key("duty/b");
  const Range seats{kv_key("seat/"), kv::end_of_prefix(kv_key("seat/")), 100};
  auto ready = check.run([&](Txn& txn) -> Task<Result<void>> {
    txn.put(a, "");
    txn.put(b, "");
    co_return Result<void>();
  });
  FF_CO_TRY(co_await std::move(ready));
  auto acting = run_concurrently(check, [&](size_t task, size_t time) {
    const std::string seat = kv_key(fmt::format("seat/{}/{}", task, time));
    const std::string me = task % 2 == 0 ? a : b, other = task % 2 == 0 ? b : a;
    return check.run([&seats, guard, seat, me, other](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto stays, co_await txn.get(other));
      if (stays) txn.erase(me);
      Range all = seats;
      FF_CO_TRY(const auto taken, co_await txn.range(std::move(all), guard));
      if (taken.size() >= kSeats) co_return Result<void>();
      txn.put(seat, "");
      txn.put(guard, "");
      co_return Result<void>();
    });
  });
  FF_CO_TRY(co_await std::move(acting));
  size_t on_duty = 0, taken = 0;
  auto look = check.view([&](Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const auto first, co_await txn.get(a));
    FF_CO_TRY(const auto second, co_await txn.get(b));
    on_duty = size_t{first.has_value()} + size_t{second.has_value()};
    Range all = seats;
    FF_CO_TRY(const auto found, co_await txn.range(std::move(all), guard));
    taken = found.size();
    co_return Result<void>();
  });
  FF_CO_TRY(co_await std::move(look));
  if (on_duty == 0)
    co_return broken_rule("write skew: two transactions read what the other writes");
  if (taken != kSeats) co_return broken_rule("a transaction has missed a new key of a range");
  co_return Result<void>();
}

// Two keys are always changed together: half of the tasks change them, the others look.
Task<Result<void>> check_snapshots(KvCheck& check) {
  const std::string x = kv_key("x"), y = kv_key("y");
  bool torn = false;
  auto acting = run_concurrently(check, [&](size_t task, size_t time) {
    const std::string value = fmt::format("{}.{}", task, time);
    if (task % 2 == 0) {
      return check.run([x, y, value](Txn& txn) -> Task<Result<void>> {
        txn.put(x, value);
        txn.put(y, value);
        co_return Result<void>();
      });
    }
    return check.view([&torn, x, y](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto first, co_await txn.get(x));
      FF_CO_TRY(const auto second, co_await txn.get(y));
      torn = torn || first != second;
      co_return Result<void>();
    });
  });
  FF_CO_TRY(co_await std::move(acting));
  if (torn) co_return broken_rule("a reader has seen a part of a transaction");
  co_return Result<void>();
}

// What the tasks of one phase share.
struct KvPhase {
  Loop& loop;
  const StopToken& stop;
  const std::function<Task<Result<void>>(uint64_t)> step;
  const uint64_t count;
  uint64_t next = 0;
  Histogram times = {};
  Result<void> first = {};
};

Task<void> run_phase_task(KvPhase& phase) {
  while (phase.first && phase.next < phase.count) {
    if (auto stopped = phase.stop.check(); !stopped) phase.first = std::move(stopped);
    const uint64_t number = phase.next++;
    const int64_t began_ns = phase.loop.now_ns();
    auto done = co_await phase.step(number);
    phase.times.observe_ns(phase.loop.now_ns() - began_ns);
    if (!done && phase.first) phase.first = std::move(done);
  }
}

// Calls `step` for each number below `count`, `in_flight` at a time.
Task<Result<KvPhaseResult>> run_kv_phase(Loop& loop, const StopToken& stop, unsigned in_flight,
                                         uint64_t count, std::string name,
                                         std::function<Task<Result<void>>(uint64_t)> step) {
  KvPhase phase{loop, stop, std::move(step), count};
  const int64_t began_ns = loop.now_ns();
  Gate gate(loop);
  for (uint64_t i = 0; i < std::min<uint64_t>(in_flight, count); i++) {
    gate.spawn(run_phase_task(phase));
  }
  co_await gate.wait_empty();
  FF_CO_TRY(std::move(phase.first));
  co_return KvPhaseResult{.phase = std::move(name),
                          .operations = count,
                          .seconds = to_seconds(loop.now_ns() - began_ns),
                          .p50_seconds = phase.times.quantile_seconds(0.5),
                          .p99_seconds = phase.times.quantile_seconds(0.99)};
}

// As the metadata service stores a file: its directory, its name and its inode; the times of the
// directory and the reply to the client are records that each change replaces.
std::string directory_key(uint64_t file) {
  return kv_key(fmt::format("INOD{:08}", file % kKvDirectories));
}
std::string inode_key(uint64_t file) {
  return kv_key(fmt::format("INOD{:08}", kKvDirectories + file));
}
std::string name_key(uint64_t file) {
  return kv_key(fmt::format("DENT{:08}/file-{}", file % kKvDirectories, file));
}

void put_kv_file(Txn& txn, uint64_t file) {
  txn.put(name_key(file), std::string(16, 'd'));
  txn.put(inode_key(file), std::string(120, 'i'));
}

Task<Result<void>> create_kv_file(Txn& txn, uint64_t file) {
  FF_CO_TRY(co_await txn.get(directory_key(file)));
  FF_CO_TRY(co_await txn.get(name_key(file)));
  put_kv_file(txn, file);
  txn.put(kv_key(fmt::format("DIRV{:08}", file % kKvDirectories)), std::string(16, 'v'));
  txn.put(kv_key(fmt::format("IDEM{:016x}", file % kKvSlots)), std::string(40, 'r'));
  co_return Result<void>();
}

uint64_t fill_steps(uint64_t files) { return (files + kKvFilesAtOnce - 1) / kKvFilesAtOnce; }

// Runs a function on each of the `step`-th kKvFilesAtOnce files.
template <class Function>
void for_each_kv_file(uint64_t step, uint64_t files, Function function) {
  const uint64_t first = step * kKvFilesAtOnce;
  for (uint64_t file = first; file < std::min(first + kKvFilesAtOnce, files); file++) {
    function(file);
  }
}

// A number below `count` for each `number`, spread evenly.
uint64_t scattered(uint64_t number, uint64_t count) { return SeededRng(number).below(count); }

Task<Result<void>> look_up_kv_file(Txn& txn, uint64_t file) {
  FF_CO_TRY(const auto name, co_await txn.get(name_key(file)));
  FF_CO_TRY(const auto inode, co_await txn.get(inode_key(file)));
  if (!name || !inode) co_return broken_rule("a file that was created is not there");
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> check_kv_empty(kv::Engine& engine, int64_t deadline_ns) {
  size_t found = 0;
  auto look = engine.view(
      [&](Txn& txn) -> Task<Result<void>> {
        Range all{std::string(), std::string(1, '\xff'), 1};
        FF_CO_TRY(const auto entries, co_await txn.range(std::move(all), std::string()));
        found = entries.size();
        co_return Result<void>();
      },
      deadline_ns);
  FF_CO_TRY(co_await std::move(look));
  if (found == 0) co_return Result<void>();
  co_return Error{Errc::exists, "the store is not empty: a cluster may use it",
                  "Name an empty database, a new prefix in etcd, or a new directory."};
}

Task<Result<void>> check_kv_contract(kv::Engine& engine, Loop& loop, int64_t deadline_ns) {
  KvCheck check{engine, loop, deadline_ns};
  FF_CO_TRY(co_await check_bytes_and_order(check));
  FF_CO_TRY(co_await check_no_lost_update(check));
  FF_CO_TRY(co_await check_no_skew_and_phantom(check));
  FF_CO_TRY(co_await check_snapshots(check));
  const KvLoad no_files;
  co_return co_await clear_kv(engine, loop, deadline_ns, no_files);
}

Task<Result<std::vector<KvPhaseResult>>> run_kv_load(kv::Engine& engine, Loop& loop,
                                                     const StopToken& stop, KvLoad load) {
  std::vector<KvPhaseResult> phases;
  if (load.existing > 0) {
    auto filling = run_kv_phase(
        loop, stop, load.in_flight, fill_steps(load.existing), "fill", [&](uint64_t step) {
          return engine.run(
              [step, &load](Txn& txn) -> Task<Result<void>> {
                for_each_kv_file(step, load.existing,
                                 [&](uint64_t file) { put_kv_file(txn, file); });
                co_return Result<void>();
              },
              INT64_MAX);
        });
    FF_CO_TRY(KvPhaseResult filled, co_await std::move(filling));
    filled.operations = load.existing;  // its times are of transactions
    phases.push_back(std::move(filled));
  }
  auto creating =
      run_kv_phase(loop, stop, load.in_flight, load.files, "create", [&](uint64_t number) {
        const uint64_t file = load.existing + number;
        return engine.run([file](Txn& txn) { return create_kv_file(txn, file); }, INT64_MAX);
      });
  FF_CO_TRY(KvPhaseResult created, co_await std::move(creating));
  phases.push_back(std::move(created));
  const uint64_t all = load.existing + load.files;
  auto looking =
      run_kv_phase(loop, stop, load.in_flight, load.files, "look up", [&](uint64_t number) {
        const uint64_t file = scattered(number, all);
        return engine.view_inline([file](Txn& txn) { return look_up_kv_file(txn, file); },
                                  INT64_MAX);
      });
  FF_CO_TRY(KvPhaseResult looked, co_await std::move(looking));
  phases.push_back(std::move(looked));
  co_return phases;
}

namespace {

// What is left, page by page.
Task<Result<void>> clear_kv_rest(kv::Engine& engine, int64_t deadline_ns) {
  for (;;) {
    std::vector<Entry> entries;
    auto look = engine.view(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(entries,
                    co_await txn.range(kv_range(kKvPrefix, kKvErasedAtOnce), std::string()));
          co_return Result<void>();
        },
        deadline_ns);
    FF_CO_TRY(co_await std::move(look));
    if (entries.empty()) co_return Result<void>();
    auto erase = engine.run(
        [&](Txn& txn) -> Task<Result<void>> {
          for (const Entry& entry : entries) txn.erase(entry.key);
          co_return Result<void>();
        },
        deadline_ns);
    FF_CO_TRY(co_await std::move(erase));
  }
}

}  // namespace

Task<Result<void>> clear_kv(kv::Engine& engine, Loop& loop, int64_t deadline_ns, KvLoad load) {
  const StopToken never(loop.clock());
  const uint64_t files = load.existing + load.files;
  auto erasing =
      run_kv_phase(loop, never, load.in_flight, fill_steps(files), "clear", [&](uint64_t step) {
        return engine.run(
            [step, files](Txn& txn) -> Task<Result<void>> {
              for_each_kv_file(step, files, [&](uint64_t file) {
                txn.erase(name_key(file));
                txn.erase(inode_key(file));
              });
              co_return Result<void>();
            },
            deadline_ns);
      });
  FF_CO_TRY(co_await std::move(erasing));
  co_return co_await clear_kv_rest(engine, deadline_ns);
}

}  // namespace ff::bench
