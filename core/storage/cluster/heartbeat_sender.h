// Sends the heartbeats of a node: every second, and at once when something changed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/wait.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/member.h"

namespace ff::cluster {

// Members of the same node in other loops, each for some of its targets (chain/storage_shard.h).
struct OtherMembers {
  // Puts what they report into a heartbeat of the first member.
  std::function<Task<void>(Heartbeat&)> report;
  // Gives them the response that the first member has accepted; the heartbeat was sent at
  // `sent_ns`.
  std::function<Task<void>(int64_t sent_ns, const HeartbeatResponse&)> respond;
};

class HeartbeatSender {
 public:
  // `routing_changed` is called when the member has new routing, which the owner saves on disk for
  // the next start. All arguments must outlive it. Owned by the loop of the context.
  HeartbeatSender(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                  Member& member, std::function<void()> routing_changed);

  // What the node reports about clients that it holds back (HeartbeatRequest::held_back).
  void report_held_back(std::function<std::string()> held_back) {
    held_back_ = std::move(held_back);
  }
  // Call before run(). No heartbeat is sent before all members know the last response.
  void add_members(OtherMembers others) { others_ = std::move(others); }
  // Runs until cancelled. Call once.
  Task<void> run();
  // Sends a heartbeat soon because the member has something to report.
  void request_heartbeat() { heartbeat_requested_.set(); }
  // Error of the last heartbeat; nothing when it succeeded. For status pages and logs.
  const std::optional<Error>& last_error() const { return last_error_; }
  Task<void> close() { return managers_.close(); }

 private:
  Task<Result<void>> send_heartbeat();
  Task<Result<void>> offer_routing();
  Task<Result<void>> get_tickets(const HeartbeatResponse& answer);

  Loop& loop_;
  auth::Keyring* const keyring_;
  ManagerClient managers_;
  Member& member_;
  const std::function<void()> routing_changed_;
  std::function<std::string()> held_back_;
  OtherMembers others_;
  Event heartbeat_requested_;
  std::optional<Error> last_error_;
};

}  // namespace ff::cluster
