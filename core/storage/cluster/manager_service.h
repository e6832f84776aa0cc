// A cluster manager in a daemon: stands by until it holds the lease in the KV store, then loads the
// routing and acts on it (manager.h) for as long as it keeps the lease. One at a time writes, and
// what it writes is published only once it is stored.
//
// Its own time as primary ends kPrimaryNs after it *sent* the last renewal that took effect,
// whatever the store says later; from then on it answers nothing. What it then still has under way
// fails at the store, where the lease's epoch has changed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/service.h"
#include "storage/cluster/store.h"

namespace ff::cluster {

// Targets that do not serve, named in one status.
constexpr size_t kStatusTargetsMax = 2000;

class ManagerService {
 public:
  struct Options {
    std::string address = {};  // where clients reach it
    // No other manager can use the store (a file lock): nobody is waited for.
    bool alone = false;
    int64_t keep_lost_ns = 0;  // Manager::keep_lost
  };
  // All outlive it. Owned by `loop`.
  ManagerService(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router);
  // After close(), or with the loop at an end.
  ~ManagerService();

  void start(Options options);
  // Gives the lease up, so that another takes over at once.
  Task<void> close();

  // Whether it acts as primary now.
  bool is_primary() const;
  uint64_t epoch() const;  // 0: is not primary
  // Why it has stopped acting, though it is primary.
  std::optional<Error> halted() const;

 private:
  struct Reign;
  using ReignRef = std::shared_ptr<Reign>;

  Task<void> run();
  Task<Result<ReignRef>> stand_by();
  Task<Result<ReignRef>> begin(Lease seen);
  Task<void> keep_lease(ReignRef reign);
  Task<void> act(ReignRef reign);
  Task<Result<void>> publish(ReignRef reign, Proposal proposal);
  Task<void> keep_fill(ReignRef reign);
  bool acts(const ReignRef& reign) const;
  wire::Elsewhere elsewhere() const;
  // Of a call about the lease: what is told to those who look for a primary.
  template <class Answer>
  void store_answered(const Result<Answer>& answer);
  template <class Decide>
  Task<Result<wire::CommandReply>> command(Decide decide);

  Task<Result<wire::HeartbeatReply>> heartbeat(rpc::ServerCall& call,
                                               wire::HeartbeatRequest request);
  Task<Result<wire::OfferReply>> offer(rpc::ServerCall& call, wire::OfferRequest request);
  Task<Result<wire::CommandReply>> adopt(rpc::ServerCall& call, wire::AdoptRequest request);
  Task<Result<wire::RoutingReply>> routing(rpc::ServerCall& call, wire::RoutingRequest request);
  Task<Result<wire::CommandReply>> init(rpc::ServerCall& call, wire::InitRequest request);
  Task<Result<wire::StatusReply>> status(rpc::ServerCall& call, wire::StatusRequest request);
  Task<Result<wire::SpaceReply>> space(rpc::ServerCall& call, wire::SpaceRequest request);
  Task<Result<wire::CommandReply>> create_chains(rpc::ServerCall& call,
                                                 wire::CreateChainsRequest request);
  Task<Result<wire::CommandReply>> set_table(rpc::ServerCall& call, wire::SetTableRequest request);
  Task<Result<wire::CommandReply>> drain(rpc::ServerCall& call, wire::DrainRequest request);
  Task<Result<wire::CommandReply>> accept_loss(rpc::ServerCall& call,
                                               wire::AcceptLossRequest request);
  Task<Result<wire::CommandReply>> replace_target(rpc::ServerCall& call,
                                                  wire::ReplaceTargetRequest request);
  Task<Result<wire::CommandReply>> drop_target(rpc::ServerCall& call,
                                               wire::DropTargetRequest request);

  Store store_;
  Loop& loop_;
  Rng& rng_;
  Options options_;
  const uint64_t token_;
  Lease seen_;                 // as last read while standing by
  std::string store_trouble_;  // why the lease can be neither taken nor kept; empty: it can
  ReignRef reign_;             // while primary
  Gate gate_;
};

}  // namespace ff::cluster
