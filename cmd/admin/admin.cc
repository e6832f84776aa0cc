// `ff admin`: its options and subcommands, and the commands `init` and `status`.
#include "cmd/admin/admin.h"

#include <set>

#include "platform/base/clock.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "storage/cluster/disk_utilization.h"
#include "storage/cluster/routing_cache.h"

namespace ff::cmd {
namespace {

using cluster::wire::StatusReply;

// Between two samples of the copied bytes, to measure the rate.
constexpr int64_t kStatusAgainNs = kSecond;
// Maximum chains in one line of the status; --json lists all.
constexpr size_t kNamedMax = 8;

// Progress of resynchronization, summed over all chains.
struct Copying {
  size_t targets = 0;
  uint64_t copied = 0;  // bytes
  uint64_t to_copy = 0;
  double rate = 0;  // bytes per second
};

Copying copying_of(const StatusReply& status) {
  Copying copying;
  for (const auto& target : status.targets()) {
    if (target.to_copy() == 0) continue;
    copying.targets++;
    copying.copied += target.copied();
    copying.to_copy += target.to_copy();
  }
  return copying;
}

std::string eta(const Copying& copying) {
  if (copying.rate <= 0) return "no progress";
  const double left_s = static_cast<double>(copying.to_copy - copying.copied) / copying.rate;
  return fmt::format("{}, {} left", format_rate(copying.rate),
                     format_duration(static_cast<int64_t>(left_s) * kSecond));
}

// When the manager removes it; empty: never.
std::string kept_until(const StatusReply& status, const cluster::SetAside& aside) {
  if (status.keep_lost_ms() == 0) return "";
  return format_time(aside.wall_ns + static_cast<int64_t>(status.keep_lost_ms()) * kMillisecond);
}

Json aside_of_status(const StatusReply& status, const cluster::Routing& routing) {
  Json all = Json::array();
  for (const auto& [id, chain] : routing.chains) {
    for (const cluster::SetAside& aside : chain.aside) {
      if (aside.dropped) continue;
      const std::string until = kept_until(status, aside);
      all.push_back({{"target", aside.target},
                     {"chain", id},
                     {"node", aside.node},
                     {"disk", aside.disk},
                     {"complete", aside.complete_version > 0},
                     {"chunks", aside.chunks},
                     {"bytes", aside.bytes},
                     {"since", format_time(aside.wall_ns)},
                     {"until", until.empty() ? Json() : Json(until)}});
    }
  }
  return all;
}

Json low_json(const std::vector<LowDisk>& low) {
  Json all = Json::array();
  for (const LowDisk& one : low) {
    all.push_back({{"node", one.node},
                   {"disk", one.disk.id},
                   {"path", one.disk.path},
                   {"used", one.used},
                   {"capacity", one.disk.capacity},
                   {"full", one.full}});
  }
  return all;
}

// Between the emptiest and the fullest disk with targets, in percent points, from which the status
// says that disks are filled unequally; disks that are hardly filled do not count.
constexpr uint32_t kUnequalPoints = 20;
constexpr uint32_t kUnequalFrom = 50;

// How full the disks with targets are.
struct DiskFill {
  uint32_t least = 100;  // percent
  uint32_t most = 0;
  size_t full_chains = 0;  // chains with a full disk
  bool unequal() const { return most >= kUnequalFrom && most >= least + kUnequalPoints; }
};

DiskFill fill_of(const StatusReply& status, const cluster::Routing& routing) {
  std::map<cluster::DiskLocation, uint32_t> used;
  for (const auto& node : status.nodes()) {
    const cluster::NodeInfo* const known = routing.node(node.id());
    for (int i = 0; known != nullptr && i < node.disks_size(); i++) {
      const auto& use = node.disks(i);
      const auto disk = std::ranges::find(known->disks, use.disk(), &cluster::DiskInfo::id);
      if (disk == known->disks.end() || !use.trouble().empty()) continue;
      used[{node.id(), disk->id}] = cluster::used_percent(use.used(), disk->capacity);
    }
  }
  DiskFill fill;
  for (const auto& [id, chain] : routing.chains) {
    bool full = false;
    for (const cluster::Target& target : chain.targets) {
      const auto found = used.find({target.node, target.disk});
      if (found == used.end()) continue;
      fill.least = std::min(fill.least, found->second);
      fill.most = std::max(fill.most, found->second);
      full = full || found->second >= cluster::kFullPercent;
    }
    if (full) fill.full_chains++;
  }
  fill.least = std::min(fill.least, fill.most);
  return fill;
}

void print_fill(Session& session, const DiskFill& fill, size_t chains) {
  if (fill.full_chains > 0) {
    session.out.line(Color::red, "  {} of {} chains have a full disk: {}", fill.full_chains, chains,
                     fill.full_chains == chains ? "there is no space for new files"
                                                : "new files use the others");
  }
  if (fill.unequal()) {
    session.out.line(
        Color::yellow,
        "  disks are filled unequally, from {} % to {} %: new files prefer the emptier "
        "ones",
        fill.least, fill.most);
  }
}

void print_aside(Session& session, const StatusReply& status, const cluster::Routing& routing) {
  for (const auto& [id, chain] : routing.chains) {
    for (const cluster::SetAside& aside : chain.aside) {
      if (aside.dropped) continue;
      const std::string until = kept_until(status, aside);
      session.out.line(Color::yellow,
                       "aside    chain {}: target {} on node {}, disk {} ({} chunks, {}{}), kept{}",
                       id, aside.target, aside.node, aside.disk, aside.chunks,
                       format_size(aside.bytes), aside.complete_version > 0 ? "" : ", not complete",
                       until.empty() ? " until it is dropped" : " until " + until);
    }
  }
}

Json status_json(const StatusReply& status, const cluster::Routing& routing,
                 const ChainHealth& health, const Copying& copying,
                 const std::vector<LowDisk>& low) {
  const DiskFill fill = fill_of(status, routing);
  Json nodes = Json::array();
  for (const auto& node : status.nodes()) {
    Json one = {{"node", node.id()}, {"alive", node.alive()}};
    one["silent_s"] = node.heard() ? Json(static_cast<double>(node.silent_ms()) / 1e3) : Json();
    one["restarts"] = node.restarts();
    one["process_s"] = node.heard() ? Json(static_cast<double>(node.process_ms()) / 1e3) : Json();
    one["held_back"] = node.held_back().empty() ? Json() : Json(node.held_back());
    one["trouble"] = Json::array();
    for (const auto& disk : node.disks()) {
      if (disk.trouble().empty()) continue;
      one["trouble"].push_back({{"disk", disk.disk()}, {"what", disk.trouble()}});
    }
    nodes.push_back(std::move(one));
  }
  Json targets = Json::array();
  for (const auto& target : status.targets()) {
    targets.push_back({{"chain", target.chain()},
                       {"target", target.target()},
                       {"why", target.why()},
                       {"copied", target.copied()},
                       {"to_copy", target.to_copy()}});
  }
  Json waiting = Json::array();
  for (const auto& [node, chains] : health.lost_by_node) {
    waiting.push_back({{"node", node}, {"chains", chains}});
  }
  Json losses = Json::array();
  for (const auto& loss : status.losses()) {
    losses.push_back({{"chain", loss.chain()},
                      {"promoted", loss.promoted()},
                      {"given_up", loss.given_up()},
                      {"chunks", loss.chunks()},
                      {"bytes", loss.bytes()},
                      {"at", format_time(loss.wall_ns())},
                      {"by", loss.by()}});
  }
  return {{"cluster", status.cluster()},
          {"routing_version", status.routing_version()},
          {"primary", status.primary()},
          {"epoch", status.epoch()},
          {"halted", status.halted().empty() ? Json() : Json(status.halted())},
          {"chains",
           {{"all", health.chains},
            {"whole", health.healthy},
            {"degraded", health.degraded},
            {"lost", health.lost},
            {"full", fill.full_chains}}},
          {"fill", {{"least_percent", fill.least}, {"most_percent", fill.most}}},
          {"waiting", std::move(waiting)},
          {"nodes", std::move(nodes)},
          {"not_serving", std::move(targets)},
          {"not_serving_count", status.targets_not_serving()},
          {"copying",
           {{"targets", copying.targets},
            {"copied", copying.copied},
            {"to_copy", copying.to_copy},
            {"bytes_per_second", copying.rate}}},
          {"set_aside", aside_of_status(status, routing)},
          {"low_disks", low_json(low)},
          {"losses", std::move(losses)}};
}

std::string some_chains(std::vector<uint64_t> chains) {
  const bool cut = chains.size() > kNamedMax;
  if (cut) chains.resize(kNamedMax);
  return fmt::format("{}{}", fmt::join(chains, " "), cut ? " ..." : "");
}

// Chains that only one node can restore.
void print_waiting(Session& session, const cluster::Routing& routing, const ChainHealth& health) {
  for (const auto& [id, chains] : health.lost_by_node) {
    const cluster::NodeInfo* const node = routing.node(id);
    session.out.line(Color::red, "  waiting for node {} ({}), which served last: chains {}", id,
                     node == nullptr ? "" : node->name, some_chains(chains));
  }
}

// One line for each reason, with its chains.
void print_reasons(Session& session, const StatusReply& status) {
  std::map<std::string, std::set<uint64_t>> chains_by_reason;
  std::map<std::string, size_t> targets_by_reason;
  for (const auto& target : status.targets()) {
    const std::string why = target.to_copy() > 0 ? "syncing" : target.why();
    chains_by_reason[why].insert(target.chain());
    targets_by_reason[why]++;
  }
  for (const auto& [why, chains] : chains_by_reason) {
    session.out.line("  {} {}: {} (chains {})", targets_by_reason[why],
                     targets_by_reason[why] == 1 ? "target" : "targets", why,
                     some_chains({chains.begin(), chains.end()}));
  }
  const uint64_t untold =
      status.targets_not_serving() - static_cast<uint64_t>(status.targets_size());
  if (untold > 0) session.out.line("  {} more targets do not serve", untold);
}

void print_status(Session& session, const StatusReply& status, const cluster::Routing& routing,
                  const ChainHealth& health, const Copying& copying,
                  const std::vector<LowDisk>& low) {
  Output& out = session.out;
  out.line("cluster  {}, routing version {}", status.cluster(), status.routing_version());
  out.line("primary  {}, for {}", status.primary(),
           format_duration(static_cast<int64_t>(status.primary_ms()) * kMillisecond));
  if (!status.halted().empty()) out.line(Color::red, "halted   {}", status.halted());
  size_t alive = 0;
  for (const auto& node : status.nodes()) alive += node.alive() ? 1 : 0;
  const bool all = alive == static_cast<size_t>(status.nodes_size());
  out.line(all ? Color::none : Color::red, "nodes    {} of {} alive", alive, status.nodes_size());
  for (const auto& node : status.nodes()) {
    const cluster::NodeInfo* const known = routing.node(node.id());
    const std::string name = known == nullptr ? "" : known->name;
    if (!node.heard()) {
      out.line("  node {} ({}) has not reported to this primary", node.id(), name);
    } else if (!node.alive()) {
      out.line("  node {} ({}) has been silent for {}", node.id(), name,
               format_duration(static_cast<int64_t>(node.silent_ms()) * kMillisecond));
    }
    if (node.restarts() > 0) {
      out.line("  node {} ({}) has restarted {} under this primary, most recently {} ago",
               node.id(), name,
               node.restarts() == 1 ? "once" : fmt::format("{} times", node.restarts()),
               format_duration(static_cast<int64_t>(node.process_ms()) * kMillisecond));
    }
    if (!node.held_back().empty()) {
      out.line(Color::yellow, "  node {} ({}) holds back {}, whose calls fill its share of memory",
               node.id(), name, printable(node.held_back()));
    }
    for (const auto& disk : node.disks()) {
      if (disk.trouble().empty()) continue;
      out.line(Color::red, "  node {} ({}), disk {}: {}", node.id(), name, disk.disk(),
               disk.trouble());
    }
  }
  for (const LowDisk& one : low) {
    const cluster::NodeInfo* const known = routing.node(one.node);
    out.line(one.full ? Color::red : Color::yellow,
             "  node {} ({}), disk {} ({}) is {}: {} of {} used", one.node,
             known == nullptr ? "" : known->name, one.disk.id, one.disk.path,
             fill_state(one.used, one.disk.capacity), format_size(one.used),
             format_size(one.disk.capacity));
  }
  out.line(health.lost > 0       ? Color::red
           : health.degraded > 0 ? Color::yellow
                                 : Color::none,
           "chains   {}: {} whole, {} degraded, {} without a serving target", health.chains,
           health.healthy, health.degraded, health.lost);
  print_fill(session, fill_of(status, routing), health.chains);
  print_waiting(session, routing, health);
  print_reasons(session, status);
  if (copying.targets > 0) {
    out.line("copying  {} of {} to {} {}, {}", format_size(copying.copied),
             format_size(copying.to_copy), copying.targets,
             copying.targets == 1 ? "target" : "targets", eta(copying));
  }
  for (const auto& loss : status.losses()) {
    out.line("loss     chain {}: target {} was replaced by {} on {}, by {}", loss.chain(),
             loss.given_up(), loss.promoted(), format_time(loss.wall_ns()), loss.by());
  }
  print_aside(session, status, routing);
}

// Exit code 3 if the cluster is not healthy, for cron and monitoring.
Result<void> verdict(const StatusReply& status, const ChainHealth& health,
                     const std::vector<LowDisk>& low) {
  if (!status.halted().empty()) {
    return Error{Errc::fault, fmt::format("the manager has stopped: {}", status.halted()),
                 "Take over the routing of the nodes: ff admin adopt."};
  }
  if (health.lost > 0) {
    return Error{Errc::fault,
                 fmt::format("{} of {} chains have no serving target", health.lost, health.chains),
                 "Start the node that served last; if its data is lost: ff admin accept-loss."};
  }
  if (health.chains == 0) {
    return status.nodes_size() == 0
               ? Error{Errc::fault, "no storage node has registered yet, so there are no chains",
                       "Start 'ff serve-storage' on the storage machines, then create chains: ff "
                       "admin "
                       "plan --apply."}
               : Error{Errc::fault, "there are no chains: no file can be stored",
                       "Create them: ff admin plan --apply."};
  }
  if (health.degraded > 0) {
    return Error{
        Errc::fault,
        fmt::format("{} of {} chains are not fully replicated", health.degraded, health.chains),
        "They still serve. The lines above say why: start silent nodes, return drained nodes and "
        "targets (ff admin undrain), replace failed disks (ff admin replace-disk). Targets that "
        "sync "
        "need no action."};
  }
  for (const auto& node : status.nodes()) {
    for (const auto& disk : node.disks()) {
      if (!node.alive() || disk.trouble().empty()) continue;
      return Error{Errc::fault,
                   fmt::format("disk {} of node {} has trouble", disk.disk(), node.id()),
                   disk.trouble()};
    }
  }
  if (!low.empty()) {
    const auto full = static_cast<size_t>(std::ranges::count_if(low, &LowDisk::full));
    return Error{Errc::fault,
                 full > 0 ? fmt::format("{} {} full: files there cannot grow (ENOSPC)", full,
                                        full == 1 ? "disk is" : "disks are")
                          : fmt::format("{} {} nearly full", low.size(),
                                        low.size() == 1 ? "disk is" : "disks are"),
                 "Remove files, or add disks and create chains on them: ff admin plan. New files "
                 "go to disks with free space."};
  }
  return {};
}

Result<void> run_status(Session& session, const AdminOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, options, timeout_ns));
  FF_TRY(auto status, calls->status());
  if (status.cluster().empty()) {
    return Error{Errc::not_found, "there is no cluster yet", "Create one: ff admin init"};
  }
  Copying copying = copying_of(status);
  if (copying.targets > 0) {
    FF_TRY(calls->pause(kStatusAgainNs));
    FF_TRY(status, calls->status());
    const Copying later = copying_of(status);
    const uint64_t moved = later.copied > copying.copied ? later.copied - copying.copied : 0;
    copying = later;
    copying.rate = static_cast<double>(moved) / (to_seconds(kStatusAgainNs));
  }
  // A halted manager does not answer requests for the routing.
  cluster::Routing routing;
  if (status.halted().empty()) {
    FF_TRY(routing, calls->routing());
  }
  const ChainHealth health = health_of(routing);
  const std::vector<LowDisk> low = low_disks(status, routing);
  print_status(session, status, routing, health, copying, low);
  session.out.data(status_json(status, routing, health, copying, low));
  return verdict(status, health, low);
}

Result<void> run_init(Session& session, const AdminOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, options, timeout_ns));
  auto made =
      calls->call(cluster::kInit, cluster::wire::InitRequest(), AdminClient::CallKind::write);
  if (!made) return std::move(made).error();
  session.out.line("created cluster {}", made->changes().cluster());
  session.out.data({{"cluster", made->changes().cluster()}});
  return {};
}

}  // namespace

std::vector<LowDisk> low_disks(const cluster::wire::StatusReply& status,
                               const cluster::Routing& routing) {
  std::vector<LowDisk> low;
  for (const auto& node : status.nodes()) {
    const cluster::NodeInfo* const known = routing.node(node.id());
    for (int i = 0; known != nullptr && i < node.disks_size(); i++) {
      const auto& use = node.disks(i);
      const auto disk = std::ranges::find(known->disks, use.disk(), &cluster::DiskInfo::id);
      if (disk == known->disks.end()) continue;
      const uint32_t percent = cluster::used_percent(use.used(), disk->capacity);
      if (percent < cluster::kNearfullPercent) continue;
      low.push_back({.node = node.id(),
                     .disk = *disk,
                     .used = use.used(),
                     .full = percent >= cluster::kFullPercent});
    }
  }
  return low;
}

Result<cluster::NodeId> find_node(const cluster::Routing& routing, const std::string& node) {
  const auto number = parse_u64(node);
  if (number && routing.nodes.contains(*number)) return *number;
  std::vector<cluster::NodeId> named;
  for (const auto& [id, known] : routing.nodes) {
    if (known.name == node) named.push_back(id);
  }
  if (named.size() == 1) return named.front();
  if (named.empty()) {
    return Error{Errc::usage, fmt::format("there is no node '{}'", printable(node)),
                 "'ff admin nodes' lists the nodes with their numbers and names."};
  }
  return Error{Errc::usage,
               fmt::format("{} nodes have the name '{}'", named.size(), printable(node)),
               fmt::format("Give the number of one of them: {}.", fmt::join(named, ", "))};
}

std::string node_label(const cluster::Routing& routing, cluster::NodeId id) {
  const cluster::NodeInfo* const node = routing.node(id);
  if (node == nullptr || node->name.empty()) return fmt::to_string(id);
  return fmt::format("{} ({})", printable(node->name), id);
}

std::string fill_state(uint64_t used, uint64_t capacity) {
  const uint32_t percent = cluster::used_percent(used, capacity);
  if (percent < cluster::kNearfullPercent) return {};
  return fmt::format("{} ({} %)", percent >= cluster::kFullPercent ? "full" : "nearly full",
                     percent);
}

AdminClient::AdminClient(Session& session, net::TransportOptions transport, int64_t deadline_ns)
    : session_(session),
      deadline_ns_(deadline_ns),
      client_(session.stop, std::move(transport), "admin") {}

Result<std::unique_ptr<AdminClient>> AdminClient::open(Session& session,
                                                       const AdminOptions& options,
                                                       int64_t timeout_ns) {
  FF_TRY(const auto addresses, parse_meta(options.meta));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net));
  const int64_t deadline_ns = deadline_before_stop_ns(session.stop, timeout_ns);
  std::unique_ptr<AdminClient> calls(new AdminClient(session, std::move(transport), deadline_ns));
  calls->managers_ = std::make_unique<cluster::ManagerClient>(calls->client_.context, addresses);
  return calls;
}

AdminClient::~AdminClient() {
  if (managers_ != nullptr) run_task(client_.loop, managers_->close());
}

Result<StatusReply> AdminClient::status() {
  return call(cluster::kStatus, cluster::wire::StatusRequest(), CallKind::read);
}

Result<cluster::Routing> AdminClient::routing() {
  cluster::Routing routing;
  for (;;) {
    auto asking =
        cluster::fetch_routing_page(*managers_, routing, nullptr, 0, kTryNs, deadline_ns_);
    FF_TRY(const bool complete,
           run_task(client_.loop, cancel_on_stop(client_.loop, session_.stop, std::move(asking))));
    if (complete) return routing;
  }
}

void declare_admin(Command& admin) {
  auto& options = admin.keep<AdminOptions>();
  admin.about(
      "Manages a cluster: shows the state that its manager knows, what does not serve and why, and "
      "makes the changes that only an operator may make. Every command asks the managers of "
      "--meta; the primary answers.");
  declare_meta(admin, options.meta);
  declare_net(admin, options.net);

  Command& init = admin.sub("init", "Create a new cluster");
  init.about(
      "Creates a new cluster in the store of the managers. The cluster gets an id, which its nodes "
      "and disks store; ff refuses nodes and disks of another cluster. A second 'init' on the same "
      "store is refused.");
  init.blocking(kAdminTimeoutNs);
  init.run([&](Session& session) { return run_init(session, options, init.timeout_ns()); });

  Command& status = admin.sub("status", "Show the health of the cluster");
  status.about(
      "Prints the primary manager, silent nodes, disks with errors, little space or unequal fill, "
      "chains that are not fully replicated and the reason, the progress of copies, and the "
      "replicas that 'ff admin accept-loss' has set aside. Exits with code 3 if something is "
      "wrong: "
      "also if a disk is at least 90 % full, or if there are no chains.");
  status.blocking(kAdminTimeoutNs);
  status.run([&](Session& session) { return run_status(session, options, status.timeout_ns()); });

  declare_admin_lists(admin, options);
  declare_admin_changes(admin, options);
  declare_admin_replacements(admin, options);
  declare_admin_fsck(admin, options);
  declare_admin_backups(admin, options);
  declare_admin_keys(admin, options);
  declare_admin_users(admin, options);
  admin.example("ff admin status", "the health of the cluster on this machine");
  admin.example("ff admin status --meta m1:4400,m2:4400,m3:4400 --key cluster.key",
                "a cluster with three managers");
  admin.example("ff admin plan --targets-per-disk 8 --replicas 3 --apply",
                "create chains on all disks that have space");
}

}  // namespace ff::cmd
