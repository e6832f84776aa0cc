// The agent of a node: tells the scheduler all that the node holds, again and again, and carries
// out all that it is told (service.h, kSync). One call is in flight; when something has happened
// here that the scheduler waits for, it is given up for a new one.
//
// What blocks is done on threads (base/side_thread.h): the loop itself only calls, answers kLog and
// watches the lease. When that is over, nothing that the agent may be busy with keeps it from
// killing all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/scheduler/holdings.h"
#include "ops/scheduler/node_checks.h"
#include "ops/scheduler/service.h"
#include "platform/base/gate.h"
#include "platform/base/side_thread.h"
#include "platform/base/wait.h"
#include "platform/net/address.h"
#include "platform/rpc/client.h"
#include "platform/rpc/session.h"

namespace ff::scheduler {

class Agent {
 public:
  struct Options {
    wire::Node node;  // without addresses
    net::Address scheduler;
    std::vector<std::string> checks;  // NodeChecks' command
  };
  // All outlive it.
  Agent(rpc::ClientContext& context, rpc::Router& router, Holdings& holdings, Options options);

  // `answers_at`: where it answers kLog, "host:port". `address`: where ranks of other nodes reach
  // this one.
  void start(const std::string& answers_at, const std::string& address);
  // Ranks go on. It waits for the threads when it is destroyed.
  Task<void> close();
  // One JSON object.
  std::string status() const;

 private:
  Task<void> tend();
  Task<void> sync();
  Task<Result<wire::SyncReply>> call();
  void tell_news();
  Result<void> take(wire::SyncReply reply, int64_t sent_ns);
  Task<void> enforce();
  Task<Result<void>> check_token(auth::User token);
  Task<Result<wire::LogReply>> log(rpc::ServerCall& call, wire::LogRequest request);

  rpc::ClientContext& context_;
  Loop& loop_;
  Holdings& holdings_;
  Options options_;
  rpc::Client scheduler_;

  bool looked_ = false;
  Holdings::Report report_;  // the newest
  NodeChecks checks_;
  std::string told_news_;  // of the last call that was begun
  std::optional<wire::SyncReply> orders_;
  uint64_t seen_ = 0;
  std::optional<Error> trouble_;  // the scheduler's last answer was none
  Cancel* calling_ = nullptr;
  bool has_news_ = false;  // for which the call was given up
  Event to_tend_, to_sync_, lease_changed_;
  std::map<std::pair<uint32_t, uint64_t>, int64_t> held_tokens_;  // uid and serial: until when
  Gauge& living_;
  Gauge& attempts_;
  Counter& lease_ends_;

  Gate gate_;
  // Last: their work uses what is above.
  SideThread hands_, killer_, reader_;
};

}  // namespace ff::scheduler
