// The scheduler's service: users and agents call it, it keeps the book (book.h) in a store and
// makes the decisions. One loop; one writer.
//
// Methods for users take who they are from their token (rpc/handshake.h): a user sees all tasks and
// nodes, and controls its own. Who has the cluster key acts for any user, and for agents.
//
// An answer that tells of a change is sent once the change is stored. Orders, too: so that no rank
// starts for a scheduler that would not know of it after a crash.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ops/scheduler/book.h"
#include "ops/scheduler/overview.h"
#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "platform/rpc/method.h"

namespace ff::scheduler {

// Answered at once when there are orders that the agent has not seen, else within kSyncNs.
inline constexpr rpc::Method<wire::SyncRequest, wire::SyncReply> kSync{0x0501, "sched.sync"};
// For agents: Errc::refused when a user's token does not hold any more.
inline constexpr rpc::Method<wire::HoldsRequest, wire::HoldsReply> kHolds{0x0502, "sched.holds"};
// For users, too.
inline constexpr rpc::Method<wire::SubmitRequest, wire::SubmitReply> kSubmit{0x0510,
                                                                             "sched.submit"};
inline constexpr rpc::Method<wire::ListRequest, wire::ListReply> kList{0x0511, "sched.list"};
inline constexpr rpc::Method<wire::ControlRequest, wire::ControlReply> kControl{0x0512,
                                                                                "sched.control"};
inline constexpr rpc::Method<wire::NodesRequest, wire::NodesReply> kNodes{0x0513, "sched.nodes"};
// The operator's.
inline constexpr rpc::Method<wire::DrainRequest, wire::DrainReply> kDrain{0x0514, "sched.drain"};
inline constexpr rpc::Method<wire::QuotaRequest, wire::QuotaReply> kQuota{0x0515, "sched.quota"};
inline constexpr rpc::Method<wire::VerdictRequest, wire::VerdictReply> kVerdict{0x0516,
                                                                                "sched.verdict"};

// Answered by agents (Node::agent), for the owner of the task and the operator.
inline constexpr rpc::Method<wire::LogRequest, wire::LogReply> kLog{0x0520, "sched.log"};

constexpr int64_t kSyncNs = 2 * kSecond;

class Service {
 public:
  // All outlive it.
  struct Options {
    Timing timing;
    Health health = {};
    // Of the holder of a token, who cannot be asked for it: quotas go by names.
    std::function<std::string(uint32_t uid)> name_of;
    Metrics* metrics = nullptr;  // of tasks and nodes
    // Errc::refused: it has been withdrawn. Null: all hold.
    std::function<Task<Result<void>>(auth::User token)> holds = {};
  };
  Service(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router, Options options);
  ~Service();

  // Reads the store, then serves. Calls before are answered with Errc::unreachable.
  void start();
  Task<void> close();
  // Why it no longer works: the store could not be written.
  const std::optional<Error>& halted() const { return halted_; }
  // Tasks by phase, and nodes; for /status.
  std::string status() const;
  // For its page, as JSON (overview.h): tasks and nodes, and the map of the nodes.
  std::string overview(std::string_view query);
  std::string node_map();

 private:
  Task<Result<wire::SyncReply>> sync(rpc::ServerCall& call, wire::SyncRequest request);
  Task<Result<wire::HoldsReply>> holds(rpc::ServerCall& call, wire::HoldsRequest request);
  Task<Result<wire::SubmitReply>> submit(rpc::ServerCall& call, wire::SubmitRequest request);
  Task<Result<wire::ListReply>> list(rpc::ServerCall& call, wire::ListRequest request);
  Task<Result<wire::ControlReply>> control(rpc::ServerCall& call, wire::ControlRequest request);
  Task<Result<wire::NodesReply>> nodes(rpc::ServerCall& call, wire::NodesRequest request);
  Task<Result<wire::DrainReply>> drain(rpc::ServerCall& call, wire::DrainRequest request);
  Task<Result<wire::QuotaReply>> quota(rpc::ServerCall& call, wire::QuotaRequest request);
  Task<Result<wire::VerdictReply>> verdict(rpc::ServerCall& call, wire::VerdictRequest request);

  // By key; nothing: erased. Of tasks, those without nodes come first: no node is stored as two's.
  using Writes = std::map<std::pair<int, std::string>, std::optional<std::string>>;

  Result<void> ready() const;
  Task<Result<void>> check_token(auth::User token);
  // For calls of users: their tokens hold, and this is ready.
  Task<Result<void>> admit(const rpc::Peer& peer);
  Result<void> may_control(const rpc::Peer& peer, uint64_t task) const;
  Book::Now now() const;
  Task<Result<void>> load();
  Task<void> run();
  Task<void> keep();
  Task<void> watch();
  void book_changed();
  void log_notices();
  Task<Result<void>> kept();
  Task<Result<void>> store(Writes writes);
  Task<Result<void>> check_holder(kv::Txn& txn);
  void halt(Error error);

  kv::Engine& engine_;
  Loop& loop_;
  Rng& rng_;
  const Options options_;
  const std::string run_;  // of this one
  std::optional<Book> book_;
  std::optional<Error> halted_;
  Overview overview_;
  struct Agent {
    uint64_t version = 1;          // of its orders
    std::unique_ptr<Event> newer;  // than those it has seen
  };
  std::map<std::string, Agent> agents_;

  // What waits to be stored, batch after batch: changes up to `changed_` are to be, up to `kept_`
  // are.
  uint64_t changed_ = 0, kept_ = 0;
  Writes writes_;
  Event to_keep_, kept_more_, to_tick_;
  Gate gate_;
};

}  // namespace ff::scheduler
