// meta_load.cc: the phases, and what is timed of them.
#include "lab/bench/meta_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/wait.h"
#include "platform/io/cpu_use.h"

namespace ff::bench {

namespace {

using meta::InodeRef;
using meta::InodeView;
using meta::MetaClient;
using meta::Namespace;

constexpr uint32_t kListPage = 4096;

struct Run {
  Loop& loop;
  const StopToken& stop;
  const std::vector<std::unique_ptr<MetaClient>>& clients;
  const meta::Caller caller;
  const MetaLoad load;
  InodeView top = {};
  std::vector<InodeRef> leaves = {};
  std::vector<InodeRef> files = {};
  std::vector<MetaPhaseResult> figures = {};

  MetaClient& client(uint64_t i) const { return *clients[i % clients.size()]; }
  const InodeRef& leaf(uint64_t i) const { return leaves[i % leaves.size()]; }
};

// One operation, by its number.
using Step = std::function<Task<Result<void>>(Run&, uint64_t)>;

// What a phase's tasks share.
struct Phase {
  Run& run;
  const Step& step;
  const uint64_t count;
  uint64_t next = 0;
  Histogram times = {};
  Result<void> first = {};
};

Task<void> run_phase_client(Phase& phase) {
  while (phase.first && phase.next < phase.count) {
    if (auto stopped = phase.run.stop.check(); !stopped) phase.first = std::move(stopped);
    const uint64_t number = phase.next++;
    const int64_t began_ns = phase.run.loop.now_ns();
    auto done = co_await phase.step(phase.run, number);
    phase.times.observe_ns(phase.run.loop.now_ns() - began_ns);
    if (!done && phase.first) phase.first = std::move(done);
  }
}

Task<Result<void>> run_phase(Run& run, std::string name, uint64_t count, Step step) {
  Phase phase{run, step, count};
  const io::CpuMeter cpu;
  const int64_t began_ns = run.loop.now_ns();
  Gate gate(run.loop);
  for (uint64_t i = 0; i < std::min<uint64_t>(run.load.in_flight, count); i++) {
    gate.spawn(run_phase_client(phase));
  }
  co_await gate.wait_empty();
  FF_CO_TRY(std::move(phase.first));
  run.figures.push_back(
      {.phase = std::move(name),
       .operations = count,
       .seconds = to_seconds(run.loop.now_ns() - began_ns),
       .p50_seconds = phase.times.quantile_seconds(0.5),
       .p99_seconds = phase.times.quantile_seconds(0.99),
       .cpu_seconds = cpu.seconds() / static_cast<double>(std::max<uint64_t>(count, 1))});
  co_return Result<void>();
}

std::string file_name(uint64_t number) { return fmt::format("file.{:08}", number); }

Task<Result<void>> make_dir(Run& run, uint64_t number, InodeRef above, std::string name,
                            std::vector<InodeRef>& into) {
  Namespace::CreateOptions make{.kind = meta::InodeType::directory, .mode = 0755};
  FF_CO_TRY(const InodeView made,
            co_await run.client(number).create(run.caller, std::move(above), std::move(name),
                                               std::move(make)));
  into.push_back(made.ref());
  co_return Result<void>();
}

// Level by level.
Task<Result<void>> make_tree(Run& run) {
  run.leaves = {run.top.ref()};
  for (unsigned level = 0; level < run.load.depth; level++) {
    const std::vector<InodeRef> above = std::exchange(run.leaves, {});
    Step step = [&above](Run& on, uint64_t number) {
      return make_dir(on, number, above[number / on.load.width],
                      fmt::format("dir.{}", number % on.load.width), on.leaves);
    };
    auto phase = run_phase(run, fmt::format("make directories, level {}", level + 1),
                           above.size() * run.load.width, std::move(step));
    FF_CO_TRY(co_await std::move(phase));
  }
  co_return Result<void>();
}

Task<Result<void>> make_file(Run& run, uint64_t number) {
  Namespace::CreateOptions make{.kind = meta::InodeType::file, .mode = 0644};
  FF_CO_TRY(const InodeView made,
            co_await run.client(number).create(run.caller, run.leaf(number), file_name(number),
                                               std::move(make)));
  run.files[number] = made.ref();
  co_return Result<void>();
}

Task<Result<void>> look_up(Run& run, uint64_t number) {
  FF_CO_TRY(co_await run.client(number).lookup(run.caller, run.leaf(number), file_name(number)));
  co_return Result<void>();
}

Task<Result<void>> stat_file(Run& run, uint64_t number) {
  FF_CO_TRY(co_await run.client(number).stat(run.files[number], false));
  co_return Result<void>();
}

Task<Result<void>> rename_file(Run& run, uint64_t number) {
  MetaClient::Rename rename{.from_dir = run.leaf(number),
                            .from = file_name(number),
                            .to_dir = run.leaf(number + 1),
                            .to = "moved." + file_name(number)};
  FF_CO_TRY(co_await run.client(number).rename(run.caller, std::move(rename)));
  co_return Result<void>();
}

Task<Result<void>> remove_file(Run& run, uint64_t number) {
  FF_CO_TRY(co_await run.client(number).unlink(run.caller, run.leaf(number + 1),
                                               "moved." + file_name(number), std::nullopt));
  co_return Result<void>();
}

// Each leaf, page by page: its time is of all its entries.
Task<Result<void>> list_leaves(Run& run) {
  const io::CpuMeter cpu;
  const int64_t began_ns = run.loop.now_ns();
  uint64_t listed = 0;
  for (uint64_t i = 0; i < run.leaves.size(); i++) {
    std::string after;
    for (bool end = false; !end;) {
      FF_CO_TRY(run.stop.check());
      FF_CO_TRY(const auto page,
                co_await run.client(i).list(run.caller, run.leaves[i], after, kListPage, false));
      listed += page.entries.size();
      end = page.end;
      if (!page.entries.empty()) after = page.entries.back().name;
    }
  }
  if (listed != run.load.files) {
    co_return fail(Errc::corrupt, "{} of {} files are listed", listed, run.load.files);
  }
  run.figures.push_back(
      {.phase = "list",
       .operations = listed,
       .seconds = to_seconds(run.loop.now_ns() - began_ns),
       .cpu_seconds = cpu.seconds() / static_cast<double>(std::max<uint64_t>(listed, 1))});
  co_return Result<void>();
}

Task<Result<void>> run_phases(Run& run) {
  FF_CO_TRY(co_await make_tree(run));
  run.files.resize(run.load.files);
  FF_CO_TRY(co_await run_phase(run, "create", run.load.files, make_file));
  FF_CO_TRY(co_await run_phase(run, "look up", run.load.files, look_up));
  FF_CO_TRY(co_await run_phase(run, "stat", run.load.files, stat_file));
  FF_CO_TRY(co_await list_leaves(run));
  FF_CO_TRY(co_await run_phase(run, "rename", run.load.files, rename_file));
  co_return co_await run_phase(run, "remove", run.load.files, remove_file);
}

}  // namespace

uint64_t leaves_of(const MetaLoad& load) {
  uint64_t leaves = 1;
  for (unsigned i = 0; i < load.depth && leaves <= kLeavesMax; i++) leaves *= load.width;
  return leaves;
}

Task<Result<std::vector<MetaPhaseResult>>> run_meta_load(
    Loop& loop, const StopToken& stop, const std::vector<std::unique_ptr<MetaClient>>& clients,
    meta::Caller caller, std::string name, MetaLoad load) {
  Run run{loop, stop, clients, std::move(caller), load};
  Namespace::CreateOptions make{.kind = meta::InodeType::directory, .mode = 0755};
  FF_CO_TRY(run.top, co_await clients[0]->create(run.caller, meta::root(), name, std::move(make)));
  auto ran = co_await run_phases(run);
  auto removed = co_await clients[0]->remove_tree(run.caller, meta::root(), std::move(name));
  FF_CO_TRY(Result<void>(std::move(ran)));
  FF_CO_TRY(std::move(removed));
  co_return std::move(run.figures);
}

}  // namespace ff::bench
