// files.cc: the cluster with its file system, and what befalls it.
#include "lab/scenario/files.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/scenario/chain_trouble.h"
#include "lab/scenario/files_load.h"
#include "lab/scenario/storage_cluster.h"
#include "platform/base/clock.h"

namespace ff::scenario {

namespace {

using namespace files_parts;
using chain_parts::Program;
using chain_parts::Trouble;
using cluster_parts::ClusterStage;

constexpr int kFilePrograms = 3;
constexpr int64_t kFilesTroubleNs = 25 * kSecond;
constexpr int64_t kFilesCutNs = chain::kPatienceNs + 20 * kSecond;
constexpr int64_t kFilesHealNs = 90 * kSecond;
constexpr int64_t kCollectNs = 120 * kSecond;

class FilesProgram final : public Program {
 public:
  FilesProgram(ClusterStage& stage, int number, FilesTruth& truth)
      : Program(stage, fmt::format("program{}", number)),
        load_(context(), cluster_parts::manager_addresses(), truth) {}
  FilesLoad& load() { return load_; }

 private:
  FilesLoad load_;
};

class FilesStory {
 public:
  explicit FilesStory(uint64_t seed) : cluster_(seed, {.chains = 3, .replicas = 2, .files = true}) {
    truth_.now_ns = [this] { return stage_.world.now_ns(); };
    truth_.broken = [this](std::string what) { stage_.broken(std::move(what)); };
  }
  Result<Outcome> run();

 private:
  // A task of the operator's, to its end.
  template <class T>
  Result<T> wait_for(Task<Result<T>> task, std::string_view what);
  void prepare();
  void trouble();
  void check_told();
  void check_whole();
  Task<Result<uint64_t>> look();

  StorageCluster cluster_;
  ClusterStage& stage_ = cluster_.stage();
  FilesTruth truth_;
  std::vector<std::unique_ptr<FilesProgram>> file_programs_;
  std::vector<Program*> programs_;
  Trouble trouble_{stage_, cluster_.managers(), cluster_.nodes(), programs_};

  rpc::Senders senders_;
  std::unique_ptr<net::Transport> transport_ = stage_.net.transport("examiner");
  rpc::ClientContext context_{stage_.world.loop(), *transport_, senders_,
                              stage_.metrics,      stage_.rng,  stage_.identity("examiner")};
  client::FileSystem files_{context_, cluster_parts::manager_addresses(), {.arena = {}}};
  Gate gate_{stage_.world.loop()};
};

template <class T>
Task<void> keep(Task<Result<T>> task, std::optional<Result<T>>& into) {
  into.emplace(co_await std::move(task));
}

template <class T>
Result<T> FilesStory::wait_for(Task<Result<T>> task, std::string_view what) {
  std::optional<Result<T>> result;
  gate_.spawn(keep(std::move(task), result));
  cluster_.run_until([&] { return result.has_value(); }, kFilesHealNs, what);
  if (!result) return fail(Errc::failed, "{}", what);
  if (!*result) stage_.broken(fmt::format("{}: {}", what, result->error().message));
  return std::move(*result);
}

void FilesStory::prepare() {
  cluster_.on_look([this] { trouble_.look(); });
  trouble_.know_routing([this]() -> const cluster::Routing& { return cluster_.routing(); });
  cluster_.form();
  if (stage_.violation) return;
  if (!wait_for(make_dirs(files_, truth_, ""), "directories cannot be made")) return;
  for (int i = 0; i < kFilePrograms; i++) {
    file_programs_.push_back(std::make_unique<FilesProgram>(stage_, i, truth_));
    programs_.push_back(file_programs_.back().get());
  }
}

void FilesStory::trouble() {
  int64_t end_ns = stage_.world.now_ns() + kFilesTroubleNs;
  // Seldom, since it takes long: writes fail only after a minute without storage.
  if (stage_.rng.below(4) == 0) {
    trouble_.cut_off(*programs_.back(), kFilesCutNs);
    end_ns += kFilesCutNs;
  }
  while (stage_.world.now_ns() < end_ns && !stage_.violation) {
    cluster_.run_for(stage_.some_ns(3 * kSecond));
    trouble_.begin();
  }
  trouble_.heal();
  cluster_.run_until([this] { return cluster_.all_serve(); }, kFilesHealNs,
                     "healed, and not every target serves");
  for (const auto& program : file_programs_) program->load().stop();
  const auto quiet = [&] {
    return std::ranges::none_of(file_programs_, [](const auto& it) { return it->load().works(); });
  };
  cluster_.run_until(quiet, 2 * chain::kPatienceNs, "healed, and a program's call does not end");
}

void FilesStory::check_told() {
  const auto log = wait_for(read_log(files_, truth_), "the log cannot be read");
  if (!log) return;
  if (const auto wrong = contradiction(truth_, *log)) stage_.broken(*wrong);
}

// What is still to be done: collected, closed, cut.
Task<Result<uint64_t>> FilesStory::look() {
  auto looking = files_.names().fsck(false, INT64_MAX / 2);
  FF_CO_TRY(const auto reply, co_await std::move(looking));
  for (const auto& problem : reply.told()) {
    // A file that was made and given up may have been written to late.
    if (problem.kind() != "orphan-chunks") stage_.broken("fsck: " + problem.text());
  }
  co_return reply.garbage();
}

void FilesStory::check_whole() {
  const int64_t end_ns = stage_.world.now_ns() + kCollectNs;
  for (;;) {
    const auto left = wait_for(look(), "fsck does not end");
    if (stage_.violation || !left || *left == 0) return;
    if (stage_.world.now_ns() >= end_ns) {
      return stage_.broken(fmt::format("{} files are not collected", *left));
    }
    cluster_.run_for(5 * kSecond);
  }
}

Result<Outcome> FilesStory::run() {
  prepare();
  if (!stage_.violation) trouble();
  if (!stage_.violation) check_told();
  if (!stage_.violation) check_whole();
  if (stage_.violation) return *stage_.violation;
  const uint64_t trace = stage_.net.trace() ^ (truth_.changes + truth_.reads) * 0x9e3779b97f4a7c15;
  return Outcome{trace, stage_.world.now_ns(), truth_.changes + truth_.reads, stage_.faults,
                 stage_.net.delivered()};
}

}  // namespace

Result<Outcome> run_files(uint64_t seed) {
  FilesStory story(seed);
  return story.run();
}

}  // namespace ff::scenario
