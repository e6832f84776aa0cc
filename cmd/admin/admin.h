// What the commands of `ff admin` share: the managers they call, and the routing they show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/cli.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "storage/cluster/chain_health.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing.h"

namespace ff::cmd {

// Default --timeout of these commands. The election of a new primary takes less time.
constexpr int64_t kAdminTimeoutNs = 15 * kSecond;

struct AdminOptions {
  std::string meta = kDefaultMeta;
  NetOptions net;
};

// Sends the RPCs of one command to the current primary manager.
class AdminClient {
 public:
  // `timeout_ns`: of the command; 0: none. Errc::usage: wrong addresses or files.
  static Result<std::unique_ptr<AdminClient>> open(Session& session, const AdminOptions& options,
                                                   int64_t timeout_ns);
  ~AdminClient();

  // A write is not retried if its reply may have been lost.
  enum class CallKind : uint8_t { read, write };
  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, Request request, CallKind kind) {
    auto calling =
        managers_->call(method, std::move(request), kTryNs, deadline_ns_, kind == CallKind::read);
    return run_task(client_.loop, cancel_on_stop(client_.loop, session_.stop, std::move(calling)));
  }
  Result<cluster::wire::StatusReply> status();
  // The whole routing.
  Result<cluster::Routing> routing();
  // Sleeps; fails with the error of the stop token if that ends first.
  Result<void> pause(int64_t ns) { return session_.stop.sleep_ns(ns); }

 private:
  static constexpr int64_t kTryNs = 3 * kSecond;  // then the client tries the next manager

  AdminClient(Session& session, net::TransportOptions transport, int64_t deadline_ns);

  Session& session_;
  const int64_t deadline_ns_;
  NetClient client_;
  std::unique_ptr<cluster::ManagerClient> managers_;
};

using cluster::ChainHealth;

// A disk that is full or nearly full.
struct LowDisk {
  cluster::NodeId node = 0;
  cluster::DiskInfo disk = {};
  uint64_t used = 0;
  bool full = false;
};

std::vector<LowDisk> low_disks(const cluster::wire::StatusReply& status,
                               const cluster::Routing& routing);
// "full" or "nearly full", with the percentage; otherwise empty.
std::string fill_state(uint64_t used, uint64_t capacity);

// The node with this name or number. Errc::usage: there is none, or several nodes have the name.
Result<cluster::NodeId> find_node(const cluster::Routing& routing, const std::string& node);
// "n2 (2)"; the number alone for a node without a name.
std::string node_label(const cluster::Routing& routing, cluster::NodeId id);

// Creates the chains of `ff admin plan --apply`.
Result<void> make_chains(AdminClient& calls, size_t targets_per_disk, size_t replicas);

// Each function declares some subcommands of `ff admin`.
void declare_admin_lists(Command& admin, const AdminOptions& options);
void declare_admin_backups(Command& admin, const AdminOptions& options);
void declare_admin_changes(Command& admin, const AdminOptions& options);
void declare_admin_replacements(Command& admin, const AdminOptions& options);
void declare_admin_keys(Command& admin, const AdminOptions& options);
void declare_admin_users(Command& admin, const AdminOptions& options);
void declare_admin_fsck(Command& admin, const AdminOptions& options);

}  // namespace ff::cmd
