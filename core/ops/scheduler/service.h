// The RPC service of the scheduler for users and agents. It owns the state machine
// (scheduler_state.h), stores its records and runs scheduling passes. One loop; one writer.
//
// Methods for users take the identity of the caller from its token (rpc/handshake.h): a user sees
// all tasks and nodes, and controls its own tasks. A holder of the cluster key acts for any user
// and for agents.
//
// A reply is sent after the changes that it reports are stored. So are orders: no rank starts for a
// scheduler that would not know of it after a crash.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ops/scheduler/overview.h"
#include "ops/scheduler/scheduler_state.h"
#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "platform/rpc/method.h"

namespace ff::scheduler {

// Returns at once when there are orders that the agent has not seen, else after kSyncNs.
inline constexpr rpc::Method<wire::SyncRequest, wire::SyncReply> kSync{0x0501, "sched.sync"};
// For agents. Errc::refused: the token of a user is no longer valid.
inline constexpr rpc::Method<wire::HoldsRequest, wire::HoldsReply> kHolds{0x0502, "sched.holds"};
// For users and the operator.
inline constexpr rpc::Method<wire::SubmitRequest, wire::SubmitReply> kSubmit{0x0510,
                                                                             "sched.submit"};
inline constexpr rpc::Method<wire::ListRequest, wire::ListReply> kList{0x0511, "sched.list"};
inline constexpr rpc::Method<wire::ControlRequest, wire::ControlReply> kControl{0x0512,
                                                                                "sched.control"};
inline constexpr rpc::Method<wire::NodesRequest, wire::NodesReply> kNodes{0x0513, "sched.nodes"};
// For the operator.
inline constexpr rpc::Method<wire::DrainRequest, wire::DrainReply> kDrain{0x0514, "sched.drain"};
inline constexpr rpc::Method<wire::QuotaRequest, wire::QuotaReply> kQuota{0x0515, "sched.quota"};
inline constexpr rpc::Method<wire::VerdictRequest, wire::VerdictReply> kVerdict{0x0516,
                                                                                "sched.verdict"};

// Served by agents (Node::agent), for the owner of the task and the operator.
inline constexpr rpc::Method<wire::LogRequest, wire::LogReply> kLog{0x0520, "sched.log"};

constexpr int64_t kSyncNs = 2 * kSecond;

class SchedulerService {
 public:
  // The references must outlive the service.
  struct Options {
    SchedulerTimeouts timeouts;
    HealthPolicy health = {};
    TaskLimits limits = {};
    // The name of a user known by its token only: quotas are by name.
    std::function<std::string(uint32_t uid)> name_of;
    Metrics* metrics = nullptr;  // for gauges of tasks and nodes
    // Checks a token before each call of a user (token_checker.h). Errc::refused: it was revoked.
    // Null: nobody can tell, so every user is refused.
    std::function<Task<Result<void>>(auth::TokenId token)> check_token = {};
    // Of this process, with the root key: jobs get keys from it, and clients tickets for agents.
    const auth::Keyring* keyring = nullptr;
  };
  SchedulerService(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router, Options options);
  ~SchedulerService();

  // Loads the store, then serves. Earlier calls get Errc::unreachable.
  void start();
  Task<void> close();
  // Why the service stopped: the store could not be written.
  const std::optional<Error>& halted() const { return halted_; }
  // Counts of tasks by phase and of nodes, for /status.
  std::string status() const;
  // JSON for the web page (overview.h): tasks and nodes, and the map of nodes.
  std::string overview(std::string_view query);
  std::string node_map();

 private:
  void add_ticket(const rpc::Peer& peer, int64_t expires_s, wire::ListedNode& node);
  void add_job_key(wire::Order& order) const;
  static Result<void> check_agent(const rpc::Peer& peer, const std::string& node);
  Task<Result<wire::SyncReply>> sync(rpc::ServerCall& call, wire::SyncRequest request);
  Task<Result<wire::HoldsReply>> holds(rpc::ServerCall& call, wire::HoldsRequest request);
  Task<Result<wire::SubmitReply>> submit(rpc::ServerCall& call, wire::SubmitRequest request);
  Task<Result<wire::ListReply>> list(rpc::ServerCall& call, wire::ListRequest request);
  Task<Result<wire::ControlReply>> control(rpc::ServerCall& call, wire::ControlRequest request);
  Task<Result<wire::NodesReply>> nodes(rpc::ServerCall& call, wire::NodesRequest request);
  Task<Result<wire::DrainReply>> drain(rpc::ServerCall& call, wire::DrainRequest request);
  Task<Result<wire::QuotaReply>> quota(rpc::ServerCall& call, wire::QuotaRequest request);
  Task<Result<wire::VerdictReply>> verdict(rpc::ServerCall& call, wire::VerdictRequest request);

  // Values by key; nothing: erase. The key begins with a rank: records of tasks without nodes are
  // written first, so that no node is stored as held by two tasks.
  using Writes = std::map<std::pair<int, std::string>, std::optional<std::string>>;

  Result<void> ready() const;
  Task<Result<void>> check_token(auth::TokenId token);
  // For calls of users: the token is valid, and the service is ready.
  Task<Result<void>> admit(const rpc::Peer& peer);
  Result<void> may_control(const rpc::Peer& peer, uint64_t task) const;
  SchedulerState::Now now() const;
  Task<Result<void>> load();
  Task<void> run();
  Task<void> persist();
  Task<void> sample();
  void publish_changes();
  void log_notices();
  Task<Result<void>> wait_persisted();
  Task<Result<void>> store(Writes writes);
  Task<Result<void>> check_ownership(kv::Txn& txn);
  void halt(Error error);

  kv::Engine& engine_;
  Loop& loop_;
  Rng& rng_;
  const Options options_;
  const std::string run_;  // id of this process, for the owner record of the store
  std::optional<SchedulerState> state_;
  std::optional<Error> halted_;
  Overview overview_;
  struct Agent {
    uint64_t version = 1;  // of its orders
    std::optional<auth::Entity> entity;
    std::unique_ptr<Event> newer;  // set when the version grows
  };
  std::map<std::string, Agent> agents_;

  // Write batches: changes up to `changes_` are to be stored, up to `persisted_` are stored.
  uint64_t changes_ = 0, persisted_ = 0;
  Writes writes_;
  Event persist_wanted_, persisted_event_, pass_wanted_;
  Gate gate_;
};

}  // namespace ff::scheduler
