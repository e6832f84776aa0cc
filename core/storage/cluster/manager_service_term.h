// One manager's time as primary: the lease it holds, what it decides with, and who waits for it.
// Made when the lease is taken, over when it is lost; calls that are under way then keep it alive
// and find it over.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "platform/base/wait.h"
#include "storage/cluster/adoption.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/manager_service.h"
#include "storage/cluster/store.h"

namespace ff::cluster {

// The error of every call but init, as long as there is no cluster.
Error no_cluster();

struct ManagerService::Reign {
  Reign(Loop& loop, Lease held, int64_t until)
      : lease(std::move(held)),
        since_ns(loop.now_ns()),
        until_ns(until),
        writing(loop, 1),
        news(loop),
        published(loop),
        ended(loop) {}

  // For whatever reason; nothing that comes after is answered.
  void end() {
    over = true;
    news.set();
    published.set();
    ended.set();
  }
  // For the operator.
  wire::StatusReply status(int64_t now_ns) const;
  wire::SpaceReply space() const;

  Lease lease;
  const int64_t since_ns;
  int64_t until_ns;  // by this machine's clock
  bool over = false;
  std::optional<Manager> manager;  // nothing: no cluster yet
  Adoption adoption;               // while the manager has halted
  std::vector<Loss> losses;
  Fill fill;                    // as kept in the store
  int64_t fill_ns = INT64_MIN;  // when that was looked at
  Semaphore writing;            // held while a change is decided and written
  Event news;                   // something was heard that may change something
  Event published;              // for a moment, at each change
  Event ended;
};

}  // namespace ff::cluster
