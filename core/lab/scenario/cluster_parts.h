// The processes of the story of cluster/: managers and nodes that can be killed, paused and started
// again, and what each keeps meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/scenario/stage.h"
#include "platform/base/gate.h"
#include "platform/kv/memory_engine.h"
#include "platform/rpc/server.h"
#include "storage/cluster/heartbeats.h"
#include "storage/cluster/manager_service.h"
#include "storage/cluster/member.h"

namespace ff::scenario::cluster_parts {

constexpr int kManagers = 3;
constexpr int kNodes = 4;
constexpr uint16_t kPort = 7000;

struct ClusterStage : Stage {
  using Stage::Stage;
  // Up to `ns`, uniform.
  int64_t some_ns(int64_t ns) { return static_cast<int64_t>(rng.below(static_cast<uint64_t>(ns))); }

  kv::MemoryStore store;
};

// Drift of up to 10 %.
sim::Skew skew(Rng& rng);
std::vector<net::Address> manager_addresses();
// Of all targets that do not serve, for messages.
std::string not_serving(const cluster::Routing& routing);

// The store as one manager reaches it: while it is cut off it hears nothing, and what it sends
// arrives late.
class CutEngine final : public kv::Engine {
 public:
  CutEngine(ClusterStage& stage, Loop& loop, const bool& cut);
  Task<Result<void>> run(kv::Function function, int64_t deadline_ns) override;
  Task<Result<void>> run_soon(kv::Function function, int64_t deadline_ns) override;
  Task<Result<void>> sync(int64_t deadline_ns) override;
  kv::Mark mark() const override { return engine_.mark(); }
  std::optional<uint64_t> durable(uint64_t generation) const override {
    return engine_.durable(generation);
  }
  Task<Result<void>> view(kv::Function function, int64_t deadline_ns) override;

 private:
  kv::Function held_up(kv::Function function);
  Task<Result<void>> pass(int64_t deadline_ns);

  Loop& loop_;
  const bool& cut_;
  kv::MemoryEngine engine_;
};

class ManagerProcess {
 public:
  // `files`: serves metadata, too.
  ManagerProcess(ClusterStage& stage, int number, bool files = false);
  ~ManagerProcess();
  const std::string& name() const { return name_; }
  bool running() const { return live_ != nullptr; }
  void start();
  void kill();
  void pause(bool paused);
  bool paused() const { return paused_; }
  void cut(bool cut) { cut_ = cut; }
  // 0: is not primary.
  uint64_t epoch() const;
  std::optional<Error> halted() const;

 private:
  struct Live;
  ClusterStage& stage_;
  const std::string name_;
  const bool files_;
  bool cut_ = false;
  bool paused_ = false;
  std::unique_ptr<Live> live_;
};

class NodeProcess {
 public:
  NodeProcess(ClusterStage& stage, cluster::NodeId id);
  ~NodeProcess();
  const std::string& name() const { return name_; }
  cluster::NodeId id() const { return id_; }
  bool running() const { return live_ != nullptr; }
  void start();
  void kill();
  void pause(bool paused);
  bool paused() const { return paused_; }
  // All its targets fail, or are well again.
  void fail_disk(bool failed) { disk_failed_ = failed; }
  bool disk_failed() const { return disk_failed_; }

  // Of the running process.
  const cluster::Member& member() const;
  int64_t now_ns() const;
  // Called when a copy to one of its targets is to be complete: whether it is.
  using Copy = std::function<bool(NodeProcess&, cluster::TargetId, uint64_t chain_version)>;
  void set_copy(Copy copy) { copy_ = std::move(copy); }

 private:
  struct Live;
  Task<void> work(Live& live);
  void look_after(Live& live, const cluster::Chain& chain, const cluster::Target& target);

  ClusterStage& stage_;
  const cluster::NodeId id_;
  const std::string name_;
  Copy copy_;
  bool paused_ = false;
  bool disk_failed_ = false;
  // On its disks.
  uint64_t generation_ = 0;
  cluster::Routing kept_;
  std::set<cluster::TargetId> made_;
  std::unique_ptr<Live> live_;
};

}  // namespace ff::scenario::cluster_parts
