// The agent of a node: it reports to the scheduler all that the node holds, again and again, and
// carries out the orders in the replies (service.h, kSync). One call is in flight; when something
// happens that the scheduler waits for, the agent cancels the call and sends a new one.
//
// Blocking work runs on threads. The loop only makes calls, answers kLog and watches the lease; so
// when the lease expires, nothing that the agent is busy with can keep it from killing all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/scheduler/node_checks.h"
#include "ops/scheduler/node_reconciler.h"
#include "ops/scheduler/service.h"
#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/base/worker_thread.h"
#include "platform/net/address.h"
#include "platform/rpc/client.h"
#include "platform/rpc/server_connection.h"

namespace ff::scheduler {

class Agent {
 public:
  struct Options {
    wire::Node node;  // addresses are filled in by start()
    net::Address scheduler;
    std::vector<std::string> checks;  // command of NodeChecks
  };
  // The references must outlive the agent.
  Agent(rpc::ClientContext& context, rpc::Router& router, NodeReconciler& reconciler,
        Options options);

  // `answers_at`: the address of its kLog service, "host:port". `address`: where ranks of other
  // nodes reach this node.
  void start(const std::string& answers_at, const std::string& address);
  // Closes the agent; ranks keep running. The destructor joins the threads.
  Task<void> close();
  // One JSON object for /status.
  std::string status() const;

 private:
  Task<void> run_reconciler();
  Task<void> run_sync();
  Task<Result<wire::SyncReply>> send_sync();
  void resync();
  Result<void> accept_reply(wire::SyncReply reply, int64_t sent_ns);
  Task<void> enforce_lease();
  Task<Result<void>> check_token(auth::TokenId token);
  Task<Result<wire::LogReply>> log(rpc::ServerCall& call, wire::LogRequest request);

  rpc::ClientContext& context_;
  Loop& loop_;
  NodeReconciler& reconciler_;
  Options options_;
  rpc::Client scheduler_;

  bool reconciled_once_ = false;
  NodeReconciler::Report report_;  // the latest
  NodeChecks checks_;
  std::string sent_change_key_;  // of the report in the last call
  std::optional<wire::SyncReply> orders_;
  uint64_t orders_version_ = 0;
  std::optional<Error> sync_error_;  // why the last call failed
  CancellationToken* sync_cancel_ = nullptr;
  bool resync_wanted_ = false;  // the call was cancelled to report a change
  Event reconcile_wanted_, first_report_ready_, lease_changed_;
  std::map<std::pair<uint32_t, uint64_t>, int64_t>
      valid_tokens_;  // uid and serial: valid until, steady
  Gauge& ranks_gauge_;
  Gauge& attempts_gauge_;
  Counter& lease_ends_;

  Gate gate_;
  // Declared last: their work uses the members above.
  WorkerThread reconcile_thread_, kill_thread_, log_thread_;
};

}  // namespace ff::scheduler
