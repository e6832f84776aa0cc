// cluster_parts.cc: what lives in each process, and the work of a storage daemon without data.
#include "lab/scenario/cluster_parts.h"

#include <fmt/format.h>

#include <utility>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "storage/meta/meta_service.h"

namespace ff::scenario::cluster_parts {

namespace {

// The store is slow at times, sees conflicts, and loses answers.
constexpr kv::MemoryFaults kStoreFaults{
    .delay_max_ns = 20 * kMillisecond, .conflict = 0.05, .lost_answer = 0.02};
constexpr int64_t kCollectAfterNs = 5 * kSecond;

}  // namespace

sim::Skew skew(Rng& rng) {
  return {.drift_ppm = static_cast<int64_t>(rng.below(200'001)) - 100'000};
}

std::vector<net::Address> manager_addresses() {
  std::vector<net::Address> addresses;
  for (int i = 0; i < kManagers; i++) addresses.push_back({fmt::format("manager{}", i), kPort, ""});
  return addresses;
}

std::string not_serving(const cluster::Routing& routing) {
  std::string text;
  for (const auto& [id, chain] : routing.chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.state == cluster::State::serving) continue;
      text += fmt::format("; target {} of chain {} on node {}: {}", target.id, id, target.node,
                          cluster::name_of(target.state));
    }
  }
  return text;
}

CutEngine::CutEngine(ClusterStage& stage, Loop& loop, const bool& cut)
    : loop_(loop), cut_(cut), engine_(stage.store, loop, stage.rng, kStoreFaults) {}

Task<Result<void>> CutEngine::pass(int64_t deadline_ns) {
  while (cut_) {
    FF_CO_TRY(co_await after(loop_, 100 * kMillisecond));
    if (loop_.now_ns() >= deadline_ns) co_return fail(Errc::unreachable, "the store is cut off");
  }
  co_return Result<void>();
}

// What was sent arrives when the cut is mended, long after its sender has given up on it.
kv::Function CutEngine::held_up(kv::Function function) {
  return [this, function = std::move(function)](kv::Txn& txn) -> Task<Result<void>> {
    auto reading = function(txn);
    FF_CO_TRY(co_await std::move(reading));
    auto arriving = pass(INT64_MAX);
    co_return co_await std::move(arriving);
  };
}

Task<Result<void>> CutEngine::run(kv::Function function, int64_t deadline_ns) {
  return engine_.run(held_up(std::move(function)), deadline_ns);
}

Task<Result<void>> CutEngine::run_soon(kv::Function function, int64_t deadline_ns) {
  return engine_.run_soon(held_up(std::move(function)), deadline_ns);
}

Task<Result<void>> CutEngine::sync(int64_t deadline_ns) {
  auto passing = pass(deadline_ns);
  FF_CO_TRY(co_await std::move(passing));
  auto syncing = engine_.sync(deadline_ns);
  co_return co_await std::move(syncing);
}

Task<Result<void>> CutEngine::view(kv::Function function, int64_t deadline_ns) {
  auto passing = pass(deadline_ns);
  FF_CO_TRY(co_await std::move(passing));
  auto viewing = engine_.view(std::move(function), deadline_ns);
  co_return co_await std::move(viewing);
}

struct ManagerProcess::Live {
  Live(ClusterStage& stage, const std::string& name, const bool& cut)
      : loop(stage.world, skew(stage.rng)),
        transport(stage.net.transport(name)),
        context{loop, *transport, senders, stage.metrics, stage.rng, stage.identity(name)},
        engine(stage, loop, cut),
        service(engine, loop, stage.rng, router),
        server(loop, *transport, router, stage.metrics, stage.identity(name)) {}
  void serve_files() {
    files.emplace(engine, context, router,
                  meta::MetaService::Options{.primary = [this] { return service.is_primary(); },
                                             .collect_after_ns = kCollectAfterNs});
    files->start();
  }
  sim::SimLoop loop;
  rpc::Senders senders;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext context;
  CutEngine engine;
  rpc::Router router;
  cluster::ManagerService service;
  std::optional<meta::MetaService> files;
  rpc::Server server;
};

ManagerProcess::ManagerProcess(ClusterStage& stage, int number, bool files)
    : stage_(stage), name_(fmt::format("manager{}", number)), files_(files) {
  start();
}

ManagerProcess::~ManagerProcess() = default;

void ManagerProcess::start() {
  live_ = std::make_unique<Live>(stage_, name_, cut_);
  const auto at = live_->server.listen({"", kPort, ""});
  if (!at) stage_.broken(at.error().message);
  live_->service.start({.address = fmt::format("{}:{}", name_, kPort)});
  if (files_) live_->serve_files();
}

void ManagerProcess::kill() {
  stage_.net.stop_process(name_);
  live_.reset();
  paused_ = false;
}

void ManagerProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

uint64_t ManagerProcess::epoch() const { return live_ == nullptr ? 0 : live_->service.epoch(); }

std::optional<Error> ManagerProcess::halted() const {
  return live_ == nullptr ? std::nullopt : live_->service.halted();
}

struct NodeProcess::Live {
  Live(ClusterStage& stage, const std::string& name, cluster::Node self, cluster::Routing held,
       std::function<void()> adopted)
      : loop(stage.world, skew(stage.rng)),
        transport(stage.net.transport(name)),
        context{loop, *transport, senders, stage.metrics, stage.rng, stage.identity(name)},
        member(std::move(self), std::move(held)),
        heartbeats(context, manager_addresses(), member, std::move(adopted)),
        gate(loop) {}
  sim::SimLoop loop;
  rpc::Senders senders;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext context;
  cluster::Member member;
  cluster::Heartbeats heartbeats;
  Gate gate;
};

NodeProcess::NodeProcess(ClusterStage& stage, cluster::NodeId id)
    : stage_(stage), id_(id), name_(fmt::format("node{}", id)) {
  start();
}

NodeProcess::~NodeProcess() = default;

void NodeProcess::start() {
  cluster::Node self{.id = id_,
                     .name = name_,
                     .generation = ++generation_,
                     .addresses = {name_ + ":7000"},
                     .disks = {{.id = 1, .path = "/data", .capacity = 1}}};
  live_ = std::make_unique<Live>(stage_, name_, std::move(self), kept_,
                                 [this] { kept_ = live_->member.routing(); });
  live_->gate.spawn(live_->heartbeats.run());
  live_->gate.spawn(work(*live_));
}

void NodeProcess::kill() {
  stage_.net.stop_process(name_);
  live_.reset();
  paused_ = false;
}

void NodeProcess::pause(bool paused) {
  if (live_ != nullptr) live_->loop.set_paused(paused);
  paused_ = paused && live_ != nullptr;
}

const cluster::Member& NodeProcess::member() const { return live_->member; }
int64_t NodeProcess::now_ns() const { return live_->loop.now_ns(); }

Task<void> NodeProcess::work(Live& live) {
  for (;;) {
    const int64_t pause_ns = stage_.some_ns(300 * kMillisecond);
    if (!co_await after(live.loop, pause_ns)) co_return;
    for (const cluster::TargetId id : live.member.to_make()) made_.insert(id);
    const cluster::Routing& routing = live.member.routing();
    for (const auto& [chain_id, chain] : routing.chains) {
      for (const cluster::Target& target : chain.targets) {
        if (target.node == id_) look_after(live, chain, target);
      }
    }
    if (live.member.has_news()) live.heartbeats.poke();
  }
}

void NodeProcess::look_after(Live& live, const cluster::Chain& chain,
                             const cluster::Target& target) {
  live.member.set_usable(target.id, made_.contains(target.id) && !disk_failed_);
  if (target.state != cluster::State::syncing || stage_.rng.below(4) != 0) return;
  if (!live.member.may_write(target.id, live.loop.now_ns())) return;
  if (copy_(*this, target.id, chain.version)) live.member.set_copied(target.id, chain.version);
}

}  // namespace ff::scenario::cluster_parts
