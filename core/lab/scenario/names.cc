// names.cc: the cluster of the story, and the power of its metadata store.
#include "lab/scenario/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_trouble.h"
#include "lab/scenario/names_load.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"

namespace ff::scenario {

namespace {

using namespace names_parts;
using chain_parts::Program;
using chain_parts::Trouble;
using cluster_parts::ClusterStage;

constexpr int kNamesPrograms = 3;
constexpr int64_t kNamesTroubleNs = 40 * kSecond;
constexpr int64_t kNamesHealNs = 180 * kSecond;

class NamesProgram final : public Program {
 public:
  NamesProgram(ClusterStage& stage, int number, NamesTruth& truth)
      : Program(stage, fmt::format("program{}", number)),
        load_(context(), cluster_parts::manager_addresses(), name(), truth) {}
  NamesLoad& load() { return load_; }

 private:
  NamesLoad load_;
};

class NamesStory {
 public:
  explicit NamesStory(uint64_t seed) : cluster_(seed, {.chains = 1, .replicas = 1, .files = true}) {
    truth_.broken = [this](std::string what) { stage_.broken(std::move(what)); };
  }
  Result<Outcome> run();

 private:
  void lose_power();
  void trouble();

  StorageCluster cluster_;
  ClusterStage& stage_ = cluster_.stage();
  NamesTruth truth_;
  std::vector<std::unique_ptr<NamesProgram>> names_programs_;
  std::vector<Program*> programs_;
  Trouble trouble_{stage_, cluster_.managers(), cluster_.nodes(), programs_};
};

// Of the machine of the store, and of all managers at once.
void NamesStory::lose_power() {
  stage_.faults++;
  for (const auto& manager : cluster_.managers()) {
    if (manager->running()) manager->kill();
  }
  if (stage_.store.lose_power(stage_.rng) > 0) truth_.losses++;
  for (const auto& manager : cluster_.managers()) manager->start();
}

void NamesStory::trouble() {
  const int64_t end_ns = stage_.world.now_ns() + kNamesTroubleNs;
  while (stage_.world.now_ns() < end_ns && !stage_.violation) {
    cluster_.run_for(stage_.some_ns(3 * kSecond));
    if (stage_.rng.below(2) == 0) {
      lose_power();
    } else {
      trouble_.begin();
    }
  }
  trouble_.heal();
  for (const auto& program : names_programs_) program->load().stop();
  const auto ended = [&] {
    return std::ranges::all_of(names_programs_, [](const auto& it) { return it->load().ended(); });
  };
  cluster_.run_until(ended, kNamesHealNs, "healed, and a program's sync does not end");
}

Result<Outcome> NamesStory::run() {
  cluster_.on_look([this] { trouble_.look(); });
  cluster_.form();
  stage_.store.commit_soon(stage_.rng);
  for (int i = 0; i < kNamesPrograms; i++) {
    names_programs_.push_back(std::make_unique<NamesProgram>(stage_, i, truth_));
    programs_.push_back(names_programs_.back().get());
  }
  if (!stage_.violation) trouble();
  if (stage_.violation) return *stage_.violation;
  const uint64_t steps = truth_.changes + truth_.syncs;
  const uint64_t trace = stage_.net.trace() ^ (steps + truth_.told) * 0x9e3779b97f4a7c15;
  return Outcome{trace, stage_.world.now_ns(), steps, stage_.faults, stage_.net.delivered()};
}

}  // namespace

Result<Outcome> run_names(uint64_t seed) {
  NamesStory story(seed);
  return story.run();
}

}  // namespace ff::scenario
