// delegations.cc: the cluster, its faults, and the check of all histories at the end.
#include "lab/scenario/delegations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lab/scenario/delegations_load.h"
#include "lab/scenario/fault_injector.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"
#include "storage/meta/service.h"

namespace ff::scenario {

namespace {

using namespace delegation_parts;
using chain_parts::FaultInjector;
using chain_parts::LoadProgram;
using chain_parts::Program;
using cluster_parts::ClusterSimulation;

constexpr int kHolders = 3;
constexpr int kSharedDirs = 2;
// How long a kill waits for a change, and how long after the change it strikes.
constexpr int64_t kKillNs = 10 * kSecond;
constexpr int64_t kKilledLaterNs = 2 * client::DelegatingMetaClient::kSendNs;
constexpr int64_t kCutOffNs = 2 * meta::kDelegationLeaseNs;
// How long a program has no storage: mostly longer than a lease that is not renewed.
constexpr int64_t kNoStorageNs = 3 * meta::kDelegationLeaseNs;
constexpr uint64_t kDelegatedChunk = 64 * kKiB;
constexpr int64_t kFullNs = 20 * kSecond;
constexpr int64_t kDelegationFaultsNs = 60 * kSecond;
constexpr int64_t kDelegationsHealNs = 240 * kSecond;

using HolderProgram = LoadProgram<DelegationsLoad>;

Task<Result<bool>> started(client::FileSystem& files) {
  FF_CO_TRY(co_await files.start(INT64_MAX));
  co_return true;
}

Task<Result<std::string>> read_all(client::FileSystem& files, meta::InodeId inode, uint64_t size) {
  auto opening = files.open({}, {.id = inode}, meta::kMayRead);
  FF_CO_TRY(const auto file, co_await std::move(opening));
  std::string bytes(size + 1, '?');
  auto reading = file->read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
  FF_CO_TRY(const uint64_t got, co_await std::move(reading));
  bytes.resize(got);
  co_return bytes;
}

class DelegationsScenario {
 public:
  explicit DelegationsScenario(uint64_t seed)
      : cluster_(seed, {.chains = 1, .replicas = 1, .files = true}) {
    oracle_.report_violation = [this](std::string what) {
      simulation_.report_violation(std::move(what));
    };
    oracle_.now_ns = [this] { return simulation_.world.now_ns(); };
  }
  Result<ScenarioResult> run();

 private:
  template <class T>
  std::optional<T> wait_for(Task<Result<T>> task, const char* what);
  void prepare();
  void make_own_dirs(int program);
  void inject_fault();
  void inject_faults();
  DelegationsLoad& some_load();
  void kill(DelegationsLoad& load, bool keeper);
  void kill_after_sync();
  void kill_without_storage();
  void wait_for_sync(const DelegationsLoad& load);
  void cut_off();
  void cut_power_after_sync();
  void fill_disks();
  void empty_disks();
  void note_disk_losses();
  void check();
  void check_file(meta::InodeId inode);

  StorageCluster cluster_;
  ClusterSimulation& simulation_ = cluster_.simulation();
  DelegationsOracle oracle_;
  std::vector<std::unique_ptr<HolderProgram>> holders_;
  std::vector<Program*> programs_;
  FaultInjector fault_injector_{simulation_, cluster_.managers(), cluster_.nodes(), programs_};

  // A client without delegations.
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ = simulation_.net.transport("examiner");
  rpc::ClientContext context_{
      simulation_.world.loop(), *transport_,     grants_,
      simulation_.metrics,      simulation_.rng, simulation_.identity("examiner")};
  client::FileSystem files_{context_, cluster_parts::manager_addresses(), {.arena = {}}};
  meta::MetaClient& examiner_ = files_.metadata();
  uint64_t disk_losses_ = 0;
  const bool fills_disks_ = simulation_.rng.below(4) == 0;
  Gate gate_{simulation_.world.loop()};
};

template <class T>
std::optional<T> DelegationsScenario::wait_for(Task<Result<T>> task, const char* what) {
  std::optional<Result<T>> result;
  gate_.spawn([](Task<Result<T>> running, std::optional<Result<T>>& into) -> Task<void> {
    into.emplace(co_await std::move(running));
  }(std::move(task), result));
  cluster_.run_until([&] { return result.has_value(); }, kDelegationsHealNs, what);
  if (result && *result) return std::move(**result);
  if (result) simulation_.report_violation(fmt::format("{}: {}", what, result->error().message));
  return std::nullopt;
}

void DelegationsScenario::prepare() {
  cluster_.set_on_tick([this] { fault_injector_.end_expired(); });
  cluster_.form();
  if (!simulation_.violation) {
    (void)wait_for(started(files_), "the examiner does not start");
    const meta::Layout layout{.table = 1, .chunk_size = kDelegatedChunk, .stripe = 1};
    (void)wait_for(examiner_.set_layout({}, meta::root(), layout), "no layout can be set");
  }
  for (int i = 0; i < kSharedDirs && !simulation_.violation; i++) {
    auto made = wait_for(examiner_.create({}, meta::root(), fmt::format("dir{}", i),
                                          {.kind = meta::InodeType::directory, .mode = 0755}),
                         "a directory cannot be created");
    if (made) oracle_.dirs.push_back(made->inode.id);
  }
  for (int i = 0; i < kHolders && !simulation_.violation; i++) make_own_dirs(i);
  if (simulation_.violation) return;
  for (int i = 0; i < kHolders; i++) {
    holders_.push_back(
        std::make_unique<HolderProgram>(simulation_, i, static_cast<size_t>(i), oracle_));
    programs_.push_back(holders_.back().get());
  }
}

void DelegationsScenario::make_own_dirs(int program) {
  auto& dirs = oracle_.own_dirs.emplace_back();
  for (size_t i = 0; i < dirs.size() && !simulation_.violation; i++) {
    const meta::Layout layout{.table = 1, .chunk_size = kDelegatedChunk << i, .stripe = 1};
    auto made = wait_for(examiner_.create({}, meta::root(), fmt::format("own{}.{}", program, i),
                                          {.kind = meta::InodeType::directory, .mode = 0755}),
                         "a directory cannot be created");
    if (!made) return;
    dirs[i] = made->inode.id;
    (void)wait_for(examiner_.set_layout({}, made->ref(), layout), "no layout can be set");
  }
}

DelegationsLoad& DelegationsScenario::some_load() {
  return holders_[simulation_.rng.below(holders_.size())]->load();
}

// While a program has changes that no server has applied, if it answers one soon.
void DelegationsScenario::kill(DelegationsLoad& load, bool keeper) {
  simulation_.faults++;
  const int64_t until_ns = simulation_.world.now_ns() + kKillNs;
  while (load.pending_changes() == 0 && simulation_.world.now_ns() < until_ns) {
    simulation_.world.run_for(kMillisecond);
  }
  simulation_.world.run_for(simulation_.some_ns(kKilledLaterNs));
  load.kill(keeper);
}

// No server hears a program for so long that its lease ends.
void DelegationsScenario::cut_off() {
  simulation_.faults++;
  const std::string& program = programs_[simulation_.rng.below(programs_.size())]->name();
  for (const auto& manager : cluster_.managers()) {
    simulation_.net.block(program, manager->name());
    simulation_.net.block(manager->name(), program);
  }
  cluster_.run_for(kCutOffNs + simulation_.some_ns(kCutOffNs));
  for (const auto& manager : cluster_.managers()) {
    simulation_.net.unblock(program, manager->name());
    simulation_.net.unblock(manager->name(), program);
  }
}

// Returns right after the program has synced a file, if it does that soon.
void DelegationsScenario::wait_for_sync(const DelegationsLoad& load) {
  const uint64_t syncs = load.syncs();
  const int64_t until_ns = simulation_.world.now_ns() + kKillNs;
  while (load.syncs() == syncs && simulation_.world.now_ns() < until_ns) {
    simulation_.world.run_for(kMillisecond);
  }
}

// What was synced is kept when the process dies and no other one continues.
void DelegationsScenario::kill_after_sync() {
  simulation_.faults++;
  DelegationsLoad& load = some_load();
  wait_for_sync(load);
  load.kill(false);
}

// The successor cannot store the bytes that its predecessor has left.
void DelegationsScenario::kill_without_storage() {
  const size_t which = simulation_.rng.below(holders_.size());
  kill(holders_[which]->load(), true);
  fault_injector_.isolate(*holders_[which], simulation_.some_ns(kNoStorageNs));
}

// The disks of all nodes, right after a program has synced a file.
void DelegationsScenario::cut_power_after_sync() {
  simulation_.faults++;
  wait_for_sync(some_load());
  for (const auto& node : cluster_.nodes()) {
    if (node->running()) node->power_loss();
    if (!node->running()) node->start();
  }
}

// Programs go on meanwhile.
void DelegationsScenario::fill_disks() {
  simulation_.faults++;
  oracle_.files.count(false);
  for (const auto& node : cluster_.nodes()) node->disk().set_fault(sim::SimOp::write, 1, ENOSPC);
  cluster_.run_for(simulation_.some_ns(kFullNs));
  if (simulation_.rng.below(2) == 0) {
    kill(some_load(), true);
    cluster_.run_for(simulation_.some_ns(kFullNs));
  }
  empty_disks();
}

void DelegationsScenario::empty_disks() {
  for (const auto& node : cluster_.nodes()) node->disk().set_fault(sim::SimOp::write, 0, 0);
}

void DelegationsScenario::note_disk_losses() {
  uint64_t losses = 0;
  for (const auto& node : cluster_.nodes()) losses += node->disk_losses();
  if (losses == std::exchange(disk_losses_, losses)) return;
  oracle_.files.lose_all(simulation_.world.now_ns());
}

void DelegationsScenario::inject_fault() {
  switch (simulation_.rng.below(14)) {
    case 0: return kill(some_load(), false);
    case 1:
    case 2: return kill(some_load(), true);
    case 3:
    case 4: return cut_off();
    case 5:
    case 6: {
      Program& program = *programs_[simulation_.rng.below(programs_.size())];
      return fault_injector_.isolate(program, simulation_.some_ns(kNoStorageNs));
    }
    case 7: return cut_power_after_sync();
    case 8:
      if (fills_disks_) return fill_disks();
      [[fallthrough]];
    case 9: return kill_after_sync();
    case 10: return kill_without_storage();
    default: fault_injector_.inject();
  }
}

void DelegationsScenario::inject_faults() {
  const int64_t end_ns = simulation_.world.now_ns() + kDelegationFaultsNs;
  while (simulation_.world.now_ns() < end_ns && !simulation_.violation) {
    cluster_.run_for(simulation_.some_ns(8 * kSecond));
    inject_fault();
    note_disk_losses();
  }
  fault_injector_.heal();
  for (const auto& holder : holders_) holder->load().stop();
  const auto ended = [&] {
    return std::ranges::all_of(holders_, [](const auto& it) {
      return it->load().ended() && it->load().waiting_files() == 0;
    });
  };
  cluster_.run_until(ended, kDelegationsHealNs,
                     "all faults are healed, but a program's sync does not end");
}

void DelegationsScenario::check_file(meta::InodeId inode) {
  const int64_t now_ns = simulation_.world.now_ns();
  const auto size = oracle_.files.expected_size(inode, now_ns);
  if (!size) return;
  const auto bytes = wait_for(read_all(files_, inode, *size), "a file cannot be read at the end");
  if (bytes) oracle_.files.on_read(inode, *bytes, "a client without delegations", now_ns);
}

// Reads all names and files as a client without delegations does, and checks the histories.
void DelegationsScenario::check() {
  oracle_.files.count(true);
  for (auto& [name, history] : oracle_.names) {
    const int64_t begin_ns = simulation_.world.now_ns();
    std::optional<Result<meta::InodeView>> found;
    auto looking = examiner_.lookup({}, {.id = name.first}, name.second);
    gate_.spawn([](Task<Result<meta::InodeView>> running,
                   std::optional<Result<meta::InodeView>>& into) -> Task<void> {
      into.emplace(co_await std::move(running));
    }(std::move(looking), found));
    cluster_.run_until([&] { return found.has_value(); }, kDelegationsHealNs,
                       "a name cannot be looked up at the end");
    if (!found || simulation_.violation) return;
    history.add(kHolders, {.begin_ns = begin_ns,
                           .end_ns = simulation_.world.now_ns(),
                           .before = *found ? (*found)->inode.id : NameHistory::kAbsent,
                           .what = "last lookup"});
    if (*found) check_file((*found)->inode.id);
    const auto contradiction = history.contradiction();
    if (!contradiction) continue;
    simulation_.report_violation(fmt::format("the answers about {}/{} contradict each other:{}",
                                             name.first, name.second, *contradiction));
    return;
  }
  const std::string wrong = oracle_.files.contradiction();
  if (!wrong.empty()) return simulation_.report_violation(wrong);
  const auto report = wait_for(examiner_.fsck(false, INT64_MAX / 2), "fsck fails");
  for (int i = 0; report && i < report->told_size(); i++) {
    // Storage may have bytes of a file whose creation was lost.
    if (report->told(i).kind() == "orphan-chunks") continue;
    simulation_.report_violation("fsck: " + report->told(i).text());
  }
}

Result<ScenarioResult> DelegationsScenario::run() {
  prepare();
  if (!simulation_.violation) inject_faults();
  if (!simulation_.violation) check();
  if (simulation_.violation) return *simulation_.violation;
  const uint64_t steps = oracle_.calls + oracle_.files.reads();
  const uint64_t trace =
      simulation_.net.trace() ^ (steps + oracle_.losses + oracle_.held) * 0x9e3779b97f4a7c15;
  return ScenarioResult{trace, simulation_.world.now_ns(), steps, simulation_.faults,
                        simulation_.net.delivered()};
}

}  // namespace

Result<ScenarioResult> run_delegations(uint64_t seed) {
  DelegationsScenario scenario(seed);
  return scenario.run();
}

}  // namespace ff::scenario
