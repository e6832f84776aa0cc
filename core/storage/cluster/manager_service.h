// A cluster manager in a daemon: stands by until it holds the lease in the KV store, then loads the
// routing and manages the cluster (manager.h) as long as it keeps the lease. Only one manager
// writes at a time, and it publishes a change only after it is stored.
//
// Its term as primary ends kPrimaryLeaseNs after it *sent* the last successful renewal, whatever
// the store returns later; from then on it answers no request. Writes still in flight fail at the
// store because the lease has a new epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/keyring.h"
#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "storage/cluster/cluster_store.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/manager_metrics.h"
#include "storage/cluster/service.h"

namespace ff::cluster {

// Maximum number of non-serving targets in one status.
constexpr size_t kStatusTargetsMax = 2000;

class ManagerService {
 public:
  struct Options {
    std::string address = {};  // address for clients
    // No other manager can use the store (file lock): skip the wait for a lease to expire.
    bool sole_manager = false;
    int64_t lost_retention_ns = 0;           // Manager::set_lost_retention
    const auth::Keyring* keyring = nullptr;  // of this process; null: no key
    Metrics* metrics = nullptr;              // for those of the cluster; null: none
  };
  // All arguments must outlive it. Owned by `loop`.
  ManagerService(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router);
  // Destroy after close(), or after the loop has ended.
  ~ManagerService();

  void start(Options options);
  // Releases the lease, so that another manager takes over at once.
  Task<void> close();

  // Whether it is the primary now.
  bool is_primary() const;
  uint64_t epoch() const;  // 0: not primary
  // Why it has halted although it is the primary.
  std::optional<Error> halted() const;

 private:
  struct LeaderTerm;
  using LeaderTermRef = std::shared_ptr<LeaderTerm>;

  Task<void> run();
  Task<Result<LeaderTermRef>> stand_by();
  Task<Result<LeaderTermRef>> begin_term(LeaderLease seen);
  Task<void> keep_lease(LeaderTermRef term);
  Task<void> run_term(LeaderTermRef term);
  Task<Result<void>> publish(LeaderTermRef term, Proposal proposal);
  Task<void> report_usage(LeaderTermRef term);
  bool is_active(const LeaderTermRef& term) const;
  wire::Elsewhere elsewhere() const;
  // Remembers the result of a lease operation; its error is reported to clients that look for a
  // primary.
  template <class Answer>
  void record_store_result(const Result<Answer>& answer);
  template <class Decide>
  Task<Result<wire::CommandReply>> command(Decide decide);

  Task<Result<wire::HeartbeatReply>> heartbeat(rpc::ServerCall& call,
                                               wire::HeartbeatRequest request);
  Task<Result<wire::TicketsReply>> tickets(rpc::ServerCall& call, wire::TicketsRequest request);
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

  ClusterStore store_;
  Loop& loop_;
  Rng& rng_;
  Options options_;
  std::optional<ManagerMetrics> metrics_;
  const uint64_t token_;
  LeaderLease last_lease_;   // last read while standing by
  std::string store_error_;  // why the lease cannot be acquired or kept; empty: no error
  LeaderTermRef term_;       // null while not primary
  std::map<NodeId, std::string> held_back_;  // clients, by the node that said so last
  Gate gate_;
};

}  // namespace ff::cluster
