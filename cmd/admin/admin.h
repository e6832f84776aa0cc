// What the commands of `ff admin` share: the managers they call, and the routing they show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/cli/stop_watch.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing.h"

namespace ff::cmd {

// The time of a command, by default. A new primary takes less to be found.
constexpr int64_t kAdminNs = 15 * kSecond;

struct AdminOptions {
  std::string meta = kDefaultMeta;
  NetOptions net;
};

// The calls of one command to the primary manager, whichever it is.
class AdminCalls {
 public:
  // `timeout_ns`: the command's, 0 for none. Errc::usage: addresses, files.
  static Result<std::unique_ptr<AdminCalls>> open(Session& session, const AdminOptions& options,
                                                  int64_t timeout_ns);
  ~AdminCalls();

  // Commands that change something are asked only once when the answer may have been lost.
  enum class Kind : uint8_t { look, change };
  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, Request request, Kind kind) {
    auto calling =
        managers_->call(method, std::move(request), kTryNs, deadline_ns_, kind == Kind::look);
    return run_task(client_.loop, stoppable(client_.loop, session_.stop, std::move(calling)));
  }
  Result<cluster::wire::StatusReply> status();
  // All of it.
  Result<cluster::Routing> routing();
  // Lets the time pass; the stop's error.
  Result<void> pause(int64_t ns) { return session_.stop.sleep_ns(ns); }

 private:
  static constexpr int64_t kTryNs = 3 * kSecond;  // of one manager, before the next is asked

  AdminCalls(Session& session, net::TransportOptions transport, int64_t deadline_ns);

  Session& session_;
  const int64_t deadline_ns_;
  NetClient client_;
  std::unique_ptr<cluster::ManagerClient> managers_;
};

// How the chains of a cluster are.
struct Health {
  size_t chains = 0;
  size_t whole = 0;     // every target serves
  size_t degraded = 0;  // some do
  size_t lost = 0;      // none does
  // Lost chains by the node that served them last.
  std::map<cluster::NodeId, std::vector<cluster::ChainId>> waiting;
};
Health health_of(const cluster::Routing& routing);

// Disks with little room, or none.
struct LowDisk {
  cluster::NodeId node = 0;
  cluster::DiskInfo disk = {};
  uint64_t used = 0;
  bool full = false;
};

std::vector<LowDisk> low_disks(const cluster::wire::StatusReply& status,
                               const cluster::Routing& routing);
// "full" or "nearly full", with the percentage; empty: neither.
std::string fill_word(uint64_t used, uint64_t capacity);

// What `ff admin plan --apply` does.
Result<void> make_chains(AdminCalls& calls, size_t targets_per_disk, size_t replicas);

// Each declares its subcommands of `ff admin`.
void declare_admin_lists(Command& admin, const AdminOptions& options);
void declare_admin_backups(Command& admin, const AdminOptions& options);
void declare_admin_changes(Command& admin, const AdminOptions& options);
void declare_admin_users(Command& admin, const AdminOptions& options);
void declare_admin_fsck(Command& admin, const AdminOptions& options);

}  // namespace ff::cmd
