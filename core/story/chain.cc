// chain.cc: the cluster with its data, and what befalls it.
#include "story/chain.h"

#include <fmt/format.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cluster/wire.h"
#include "story/chain_parts.h"
#include "story/chain_trouble.h"

namespace ff::story {

namespace {

using namespace chain_parts;
using cluster_parts::kManagers;

constexpr uint64_t kChains = 2;
constexpr int64_t kFormNs = 60 * kSecond;
constexpr int64_t kTroubleNs = 40 * kSecond;
constexpr int64_t kHealNs = 90 * kSecond;
constexpr int64_t kLookNs = 50 * kMillisecond;
constexpr int64_t kTryNs = 2 * kSecond;

class ChainStory {
 public:
  explicit ChainStory(uint64_t seed) : stage_(seed) {
    for (int i = 0; i < kManagers; i++) {
      managers_.push_back(std::make_unique<ManagerProcess>(stage_, i));
    }
    for (cluster::NodeId id = 1; id <= kStorageNodes; id++) {
      nodes_.push_back(std::make_unique<StorageProcess>(stage_, id, seed * 10 + id));
    }
  }

  Result<Outcome> run();

 private:
  Task<Result<void>> form();
  Task<void> watch();
  void run_for(int64_t ns);
  void look_at_verifiers();
  void compare_some();
  void check_differences();
  bool all_serve() const;
  bool all_equal() const;
  std::string states() const;

  ClusterStage stage_;
  std::vector<std::unique_ptr<ManagerProcess>> managers_;
  std::vector<std::unique_ptr<StorageProcess>> nodes_;
  History history_{[this](std::string what) { stage_.broken(std::move(what)); },
                   [this] { look_at_verifiers(); }};
  std::vector<std::unique_ptr<Program>> programs_;
  Trouble trouble_{stage_, managers_, nodes_, programs_};
  bool formed_ = false;

  // The operator, who also looks what the chains are.
  rpc::Senders senders_;
  std::unique_ptr<net::Transport> transport_ = stage_.net.transport("operator");
  rpc::ClientContext context_{stage_.world.loop(), *transport_, senders_,
                              stage_.metrics,      stage_.rng,  stage_.identity("operator")};
  cluster::ManagerClient calls_{context_, cluster_parts::manager_addresses()};
  cluster::RoutingCopy routing_{context_, cluster_parts::manager_addresses(), [] {}};
  Gate gate_{stage_.world.loop()};
};

Task<Result<void>> ChainStory::form() {
  const auto until = [&] { return stage_.world.now_ns() + 5 * kTryNs; };
  auto init = calls_.call(cluster::kInit, cluster::wire::InitRequest(), kTryNs, until(), true);
  (void)co_await std::move(init);
  routing_.refresh();
  if (!routing_.routing().chains.empty()) co_return Result<void>();
  if (routing_.routing().nodes.size() < kStorageNodes) co_return fail(Errc::busy, "not all are up");
  cluster::wire::CreateChainsRequest create;
  for (uint64_t i = 0; i < kChains; i++) {
    auto& chain = *create.add_chains();
    for (uint64_t at = 0; at < kStorageNodes; at++) {
      auto& target = *chain.add_targets();
      target.set_node(1 + (i + at) % kStorageNodes);
      target.set_disk(1);
    }
  }
  auto creating = calls_.call(cluster::kCreateChains, std::move(create), kTryNs, until(), false);
  FF_CO_TRY(co_await std::move(creating));
  co_return Result<void>();
}

Task<void> ChainStory::watch() {
  for (;;) {
    if (!formed_) {
      auto forming = form();
      const auto formed = co_await std::move(forming);
      formed_ = formed.ok() && !routing_.routing().chains.empty();
    }
    routing_.refresh();
    compare_some();
    const auto waited = co_await after(stage_.world.loop(), 500 * kMillisecond);
    if (!waited) co_return;
  }
}

void ChainStory::run_for(int64_t ns) {
  const int64_t until_ns = stage_.world.now_ns() + ns;
  while (stage_.world.now_ns() < until_ns && !stage_.violation) {
    stage_.world.run_for(kLookNs);
    trouble_.look();
    look_at_verifiers();
  }
}

// A verifier counts from when somebody may be answered with it.
void ChainStory::look_at_verifiers() {
  for (const auto& [id, chain] : routing_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      const chain::Replica* const replica = nodes_[target.node - 1]->replica(target.id);
      if (replica == nullptr || !replica->ready() || !replica->head()) continue;
      history_.serves(id, replica->verifier());
    }
  }
}

// As a scrub does, and more often.
void ChainStory::compare_some() {
  for (const auto& [id, chain] : routing_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      chain::Replica* const replica = nodes_[target.node - 1]->replica(target.id);
      if (replica != nullptr && stage_.rng.below(2) == 0) replica->compare_soon();
    }
  }
}

void ChainStory::check_differences() {
  std::istringstream lines(stage_.metrics.text());
  for (std::string line; std::getline(lines, line);) {
    const bool differs = line.starts_with("ff_target_differing_total{") && !line.ends_with(" 0");
    if (differs) stage_.broken("replicas differed: " + line);
  }
}

bool ChainStory::all_serve() const {
  const auto& chains = routing_.routing().chains;
  if (chains.size() != kChains) return false;
  for (const auto& [id, chain] : chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.state != cluster::State::serving) return false;
    }
  }
  return true;
}

// Of all targets that do not serve, for messages.
std::string ChainStory::states() const {
  std::string text;
  for (const auto& [id, chain] : routing_.routing().chains) {
    for (const cluster::Target& target : chain.targets) {
      if (target.state == cluster::State::serving) continue;
      text += fmt::format("; target {} of chain {} on node {}: {}", target.id, id, target.node,
                          cluster::name_of(target.state));
    }
  }
  return text;
}

bool ChainStory::all_equal() const {
  for (const auto& [id, chain] : routing_.routing().chains) {
    std::optional<std::vector<chunk::ChunkInfo>> first;
    for (const cluster::Target& target : chain.targets) {
      chunk::Store* const store = nodes_[target.node - 1]->store();
      if (store == nullptr) return false;
      const auto chunks = store->list(target.id, {}, 1000);
      if (!chunks) return false;
      if (!first) first = *chunks;
      if (chunks->size() != first->size()) return false;
      for (size_t i = 0; i < first->size(); i++) {
        const chunk::ChunkInfo& a = (*first)[i];
        const chunk::ChunkInfo& b = (*chunks)[i];
        if (a.id != b.id || a.state != b.state || a.state.pending) return false;
      }
    }
  }
  return true;
}

Result<Outcome> ChainStory::run() {
  gate_.spawn(routing_.run());
  gate_.spawn(watch());
  const auto run_until = [&](auto condition, int64_t most_ns, std::string_view what) {
    const int64_t end_ns = stage_.world.now_ns() + most_ns;
    while (!condition() && !stage_.violation) {
      if (stage_.world.now_ns() >= end_ns) {
        return stage_.broken(fmt::format("{}{}", what, states()));
      }
      run_for(500 * kMillisecond);
    }
  };
  run_until([&] { return formed_ && all_serve(); }, kFormNs, "the cluster does not form");
  for (int i = 0; i < kPrograms; i++) {
    programs_.push_back(std::make_unique<Program>(stage_, i, history_));
  }
  const int64_t end_ns = stage_.world.now_ns() + kTroubleNs;
  while (stage_.world.now_ns() < end_ns && !stage_.violation) {
    run_for(stage_.some_ns(3 * kSecond));
    trouble_.begin();
  }
  trouble_.heal();
  run_until([&] { return all_serve(); }, kHealNs, "healed, and not every target serves");
  for (const auto& program : programs_) program->load().stop_writing();
  const auto quiet = [&] {
    return std::ranges::none_of(programs_,
                                [](const auto& it) { return it->load().writes_under_way(); });
  };
  run_until(quiet, chain::kPatienceNs, "healed, and an update does not end");
  run_until([&] { return all_serve() && all_equal(); }, 10 * kSecond,
            "all is quiet, and the replicas of a chain differ");
  run_for(5 * kSecond);  // of reads
  check_differences();
  if (stage_.violation) return *stage_.violation;
  const uint64_t trace =
      stage_.net.trace() ^ (history_.updates() + history_.reads()) * 0x9e3779b97f4a7c15;
  return Outcome{trace, stage_.world.now_ns(), history_.updates() + history_.reads(), stage_.faults,
                 stage_.net.delivered()};
}

}  // namespace

Result<Outcome> run_chain(uint64_t seed) {
  ChainStory story(seed);
  return story.run();
}

}  // namespace ff::story
