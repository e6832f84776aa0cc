// The loop that keeps a node a member: reports every second, and at once when there is news.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "platform/base/wait.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/member.h"

namespace ff::cluster {

class Heartbeats {
 public:
  // `adopted`: the member holds other routing than before; to be kept on disk, where a later start
  // finds it. All outlive it. Owned by the context's loop.
  Heartbeats(rpc::ClientContext& context, const std::vector<net::Address>& managers, Member& member,
             std::function<void()> adopted);

  // Until cancelled. Once.
  Task<void> run();
  // The member has something to say.
  void poke() { poked_.set(); }
  // Of the last heartbeat; nothing when it was answered. For status pages and logs.
  const std::optional<Error>& trouble() const { return trouble_; }
  Task<void> close() { return managers_.close(); }

 private:
  Task<Result<void>> beat();
  Task<Result<void>> offer();

  Loop& loop_;
  ManagerClient managers_;
  Member& member_;
  const std::function<void()> adopted_;
  Event poked_;
  std::optional<Error> trouble_;
};

}  // namespace ff::cluster
