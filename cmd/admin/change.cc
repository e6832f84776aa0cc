// `ff admin plan`, `drain`, `undrain`, `accept-loss` and `drop-target`: changes of a cluster by its
// operator.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

#include "cmd/admin/admin.h"
#include "cmd/cli/confirm.h"
#include "platform/base/units.h"
#include "storage/cluster/placement.h"
#include "storage/cluster/wire.h"

namespace ff::cmd {
namespace {

using cluster::Chain;
using cluster::Routing;
using cluster::Target;
using cluster::TargetState;
using CallKind = AdminClient::CallKind;

struct PlanOptions {
  size_t targets_per_disk = 8;
  size_t replicas = 2;
  uint64_t table = 1;
  uint64_t seed = 1;
  bool apply = false;
};

Json place_json(const cluster::PlacementPlan& plan) {
  Json chains = Json::array();
  for (const auto& chain : plan.chains) {
    Json places = Json::array();
    for (const auto& place : chain) places.push_back({{"node", place.node}, {"disk", place.disk}});
    chains.push_back(std::move(places));
  }
  return chains;
}

// Chains that are in no chain table, from an interrupted plan.
std::vector<cluster::ChainId> chains_without_table(const Routing& routing) {
  std::set<cluster::ChainId> named;
  for (const auto& [key, table] : routing.tables)
    named.insert(table.chains.begin(), table.chains.end());
  std::vector<cluster::ChainId> rest;
  for (const auto& [id, chain] : routing.chains) {
    if (!named.contains(id)) rest.push_back(id);
  }
  return rest;
}

// The chains to create, and the existing chains of the next table: those of the current table and
// those of an interrupted plan.
struct Planned {
  cluster::PlacementPlan plan;
  std::vector<cluster::ChainId> chains;
};

// New targets must not be placed on disks that are offline, failed or (nearly) full. The routing
// still lists a replaced disk.
void leave_out_broken(const cluster::wire::StatusReply& status, const Routing& routing,
                      cluster::PlacementRequest& request) {
  std::set<cluster::NodeId> silent;
  std::set<std::pair<cluster::NodeId, cluster::DiskId>> broken;
  for (const auto& node : status.nodes()) {
    if (!node.heard() || !node.alive()) silent.insert(node.id());
    for (const auto& disk : node.disks()) {
      if (disk.trouble().empty()) continue;
      broken.emplace(node.id(), static_cast<cluster::DiskId>(disk.disk()));
    }
  }
  for (const LowDisk& low : low_disks(status, routing)) broken.emplace(low.node, low.disk.id);
  for (auto& node : request.nodes) {
    for (auto& disk : node.disks) {
      if (silent.contains(node.id) || broken.contains({node.id, disk.id})) disk.slots = 0;
    }
  }
}

Error no_node_yet() {
  return {
      Errc::not_found, "no storage node has registered yet",
      "Start 'ff serve-storage' on the storage machines, with the addresses of these managers as "
      "--meta; 'ff admin nodes' lists those that have registered."};
}

// The storage nodes that send heartbeats.
struct LiveNodes {
  size_t count = 0;
  size_t domains = 0;             // failure domains
  int64_t newest_ns = INT64_MAX;  // how long ago the newest one has registered
};

LiveNodes live_nodes(const cluster::wire::StatusReply& status, const Routing& routing) {
  LiveNodes live;
  std::set<std::string> domains;
  for (const auto& node : status.nodes()) {
    const cluster::NodeInfo* const known = routing.node(node.id());
    if (!node.heard() || !node.alive() || known == nullptr) continue;
    live.count++;
    domains.insert(known->domain.empty() ? fmt::format("\n{}", known->id) : known->domain);
    live.newest_ns =
        std::min(live.newest_ns, static_cast<int64_t>(node.process_ms()) * kMillisecond);
  }
  live.domains = domains.size();
  return live;
}

// Nothing in a cluster that has chains.
Result<std::optional<LiveNodes>> live_nodes_before_chains(AdminClient& calls) {
  FF_TRY(const Routing routing, calls.routing());
  if (!routing.chains.empty()) return std::optional<LiveNodes>();
  FF_TRY(const auto status, calls.status());
  return std::optional(live_nodes(status, routing));
}

Error too_few_nodes(size_t replicas, size_t registered) {
  Error error = no_node_yet();
  error.code = Errc::deadline;
  if (registered == 0) return error;
  error.message = fmt::format(
      "chains of {} targets need {} storage nodes in different failure domains; {} registered",
      replicas, replicas, registered == 1 ? "only 1 has" : fmt::format("only {} have", registered));
  return error;
}

// For the first plan of a cluster: its nodes register within a second or two of 'ff admin init',
// and chains should be on all of them. Waits until enough have registered, and no other one for
// kSettleNs.
Result<void> wait_for_registrations(Session& session, AdminClient& calls, size_t replicas) {
  constexpr int64_t kSettleNs = 2 * kSecond;
  constexpr int64_t kPollNs = 200 * kMillisecond;
  bool waiting = false;  // for more nodes than these
  size_t registered = 0;
  for (;;) {
    const auto live = live_nodes_before_chains(calls);
    if (!live && live.error().code == Errc::deadline && waiting) {
      return too_few_nodes(replicas, registered);
    }
    if (!live) return live.error();
    if (!*live) return {};
    const LiveNodes& nodes = **live;
    if (nodes.domains >= replicas) {
      if (nodes.newest_ns >= kSettleNs) return {};
      waiting = false;
      FF_TRY(calls.pause(kSettleNs - nodes.newest_ns));
      continue;
    }
    if (!waiting || registered != nodes.count) {
      session.out.note("waiting for storage nodes: {} registered, {} needed", nodes.count,
                       replicas);
    }
    waiting = true;
    registered = nodes.count;
    const auto waited = calls.pause(kPollNs);
    if (!waited && waited.error().code == Errc::deadline) {
      return too_few_nodes(replicas, nodes.count);
    }
    FF_TRY(waited);
  }
}

Result<Planned> plan_chains(AdminClient& calls, const PlanOptions& options) {
  FF_TRY(const auto status, calls.status());
  FF_TRY(const Routing routing, calls.routing());
  if (routing.nodes.empty()) return no_node_yet();
  auto request = cluster::placement_request(routing, options.targets_per_disk, options.replicas);
  leave_out_broken(status, routing, request);
  request.seed = options.seed;
  std::vector<cluster::ChainId> chains = chains_without_table(routing);
  auto placed = cluster::plan_placement(request);
  // The table also gets the chains of an interrupted plan.
  if (!placed && (chains.empty() || !options.apply)) {
    Error error = std::move(placed).error();
    if (error.hint.empty()) error.hint = "'ff admin disks' shows the targets of each disk.";
    return error;
  }
  if (const cluster::ChainTable* const table = routing.table(options.table)) {
    chains.insert(chains.begin(), table->chains.begin(), table->chains.end());
  }
  return Planned{placed ? std::move(*placed) : cluster::PlacementPlan{}, std::move(chains)};
}

// Creates the chains and adds them to the next version of the table; returns its number of chains.
Result<size_t> carry_out(AdminClient& calls, const PlanOptions& options, Planned planned) {
  const cluster::PlacementPlan& plan = planned.plan;
  for (size_t done = 0; done < plan.chains.size();) {
    cluster::wire::CreateChainsRequest request;
    for (; done < plan.chains.size() && request.chains_size() < int{cluster::kChangeMax}; done++) {
      auto& chain = *request.add_chains();
      for (const auto& place : plan.chains[done]) {
        auto& target = *chain.add_targets();
        target.set_node(place.node);
        target.set_disk(place.disk);
      }
    }
    FF_TRY(const auto reply,
           calls.call(cluster::kCreateChains, std::move(request), CallKind::write));
    for (const auto& chain : reply.changes().chains()) planned.chains.push_back(chain.id());
  }
  cluster::wire::SetTableRequest request;
  request.set_table(options.table);
  request.mutable_chains()->Add(planned.chains.begin(), planned.chains.end());
  FF_TRY(calls.call(cluster::kSetTable, std::move(request), CallKind::write));
  return planned.chains.size();
}

Result<void> run_plan(Session& session, const AdminOptions& admin, const PlanOptions& options,
                      int64_t timeout_ns) {
  if (options.table == 0 || options.targets_per_disk == 0) {
    return fail(Errc::usage, "--table and --targets-per-disk must be at least 1");
  }
  if (options.replicas == 0 || options.replicas > cluster::kReplicasMax) {
    return fail(Errc::usage, "--replicas {}: expected 1 to {}", options.replicas,
                cluster::kReplicasMax);
  }
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  if (options.apply) FF_TRY(wait_for_registrations(session, *calls, options.replicas));
  FF_TRY(auto planned, plan_chains(*calls, options));
  const cluster::PlacementPlan& plan = planned.plan;
  const size_t count = plan.chains.size();
  session.out.line("{} chains of {} targets, {} slots unused", count, options.replicas,
                   plan.unused);
  session.out.line("two nodes share at most {} chains (ideal: {})", plan.shared_max,
                   plan.shared_ideal);
  session.out.data({{"chains", place_json(plan)},
                    {"unused", plan.unused},
                    {"shared_max", plan.shared_max},
                    {"shared_ideal", plan.shared_ideal},
                    {"applied", options.apply}});
  if (!options.apply) {
    session.out.note("nothing was changed; --apply creates these chains");
    return {};
  }
  FF_TRY(const size_t named, carry_out(*calls, options, std::move(planned)));
  session.out.line("created {} chains; table {} has {}", count, options.table, named);
  return {};
}

struct TargetDrainOptions {
  std::optional<std::string> node;
  std::optional<uint64_t> target;
};

// Says what draining these targets changes.
void tell_drain(Session& session, const Routing& routing,
                const std::function<bool(const Target&)>& is_drained) {
  size_t leave = 0;
  size_t stay = 0;
  for (const auto& [id, chain] : routing.chains) {
    if (std::ranges::none_of(chain.targets, is_drained)) continue;
    const bool others_serve = std::ranges::any_of(chain.targets, [&](const Target& target) {
      return target.state == TargetState::serving && !is_drained(target);
    });
    (others_serve ? leave : stay)++;
  }
  session.out.note(
      "No data moves. {} {} one replica fewer until 'ff admin undrain'; to copy the data to other "
      "disks: ff admin replace-disk or replace-target.",
      leave, leave == 1 ? "chain has" : "chains have");
  if (stay > 0) {
    session.out.note(
        "{} {} no other serving target: there the drained target serves until another one does.",
        stay, stay == 1 ? "chain has" : "chains have");
  }
}

Result<void> run_drain(Session& session, const AdminOptions& admin,
                       const TargetDrainOptions& options, bool drain, int64_t timeout_ns) {
  if (options.node.has_value() == options.target.has_value()) {
    return Error{Errc::usage, "give one node or one target",
                 "ff admin drain --node NODE, or --target N."};
  }
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(const Routing routing, calls->routing());
  cluster::NodeId node = 0;
  if (options.node) {
    FF_TRY(node, find_node(routing, *options.node));
  }
  cluster::wire::DrainRequest request;
  request.set_node(node);
  request.set_target(options.target.value_or(0));
  request.set_drain(drain);
  FF_TRY(calls->call(cluster::kDrain, std::move(request), CallKind::write));
  const std::string what = options.node ? "node " + node_label(routing, node)
                                        : fmt::format("target {}", *options.target);
  session.out.line("{} is {}", what, drain ? "being drained" : "in service again");
  session.out.data({{options.node ? "node" : "target", options.node ? node : *options.target},
                    {"drain", drain}});
  if (!drain) return {};
  tell_drain(session, routing, [&](const Target& target) {
    return options.node ? target.node == node : target.id == *options.target;
  });
  session.out.note("'ff admin status' shows the targets that still serve");
  return {};
}

struct LossOptions {
  uint64_t chain = 0;
  std::optional<uint64_t> promote;
  bool yes = false;
};

std::string name_of_user() {
  for (const char* const variable : {"SUDO_USER", "USER"}) {
    if (const char* const user = ::getenv(variable)) return user;
  }
  return "unknown";
}

std::string size_of(uint64_t chunks, uint64_t bytes) {
  return fmt::format("{} {}, {}", chunks, chunks == 1 ? "chunk" : "chunks", format_size(bytes));
}

// Prints the consequences before the operator confirms.
void tell_plan(Session& session, uint64_t chain, const cluster::wire::LossPlan& plan) {
  session.out.note(
      "Chain {}: target {} replaces {}. Its files lose the data that only other targets had.",
      chain, plan.promoted(), plan.given_up());
  if (plan.incomplete()) {
    session.out.note(
        "Target {} is NOT complete: it lacks at least {} of acknowledged writes; reads of missing "
        "chunks will fail (EIO).",
        plan.promoted(), size_of(plan.chunks(), plan.bytes()));
  }
  for (const auto& aside : plan.aside()) {
    session.out.note("ff keeps target {} on node {} ({}) aside.", aside.target(), aside.node(),
                     size_of(aside.chunks(), aside.bytes()));
  }
}

Json aside_of_plan(const cluster::wire::LossPlan& plan) {
  Json targets = Json::array();
  for (const auto& aside : plan.aside()) targets.push_back(aside.target());
  return targets;
}

// The manager computes the consequences in a preview; then it must apply exactly these.
Result<void> run_accept_loss(Session& session, const AdminOptions& admin,
                             const LossOptions& options, int64_t timeout_ns) {
  FF_TRY(auto calls, AdminClient::open(session, admin, timeout_ns));
  cluster::wire::AcceptLossRequest request;
  request.set_chain(options.chain);
  request.set_promote(options.promote.value_or(0));
  request.set_by(name_of_user());
  request.set_preview(true);
  FF_TRY(const auto preview, calls->call(cluster::kAcceptLoss, request, CallKind::read));
  const cluster::wire::LossPlan& plan = preview.plan();
  tell_plan(session, options.chain, plan);
  FF_TRY(confirm(session, options.yes, "Type the number of the chain to continue:",
                 fmt::to_string(options.chain), NonInteractive::refuse));
  // The confirmation took time: start a new deadline.
  FF_TRY(calls, AdminClient::open(session, admin, timeout_ns));
  request.set_preview(false);
  request.set_promote(plan.promoted());
  request.set_expect(plan.version());
  request.set_incomplete(plan.incomplete());
  FF_TRY(const auto done, calls->call(cluster::kAcceptLoss, std::move(request), CallKind::write));
  session.out.line("chain {}: target {} serves instead of {}", options.chain, plan.promoted(),
                   plan.given_up());
  session.out.data({{"chain", options.chain},
                    {"promoted", done.plan().promoted()},
                    {"given_up", done.plan().given_up()},
                    {"incomplete", done.plan().incomplete()},
                    {"chunks", done.plan().chunks()},
                    {"bytes", done.plan().bytes()},
                    {"set_aside", aside_of_plan(done.plan())}});
  return {};
}

struct DropOptions {
  uint64_t target = 0;
  bool yes = false;
};

Result<void> run_drop(Session& session, const AdminOptions& admin, const DropOptions& options,
                      int64_t timeout_ns) {
  const uint64_t target = options.target;
  FF_TRY(confirm(session, options.yes,
                 fmt::format("Only this replica may hold some data. Type {} to remove it:", target),
                 fmt::to_string(target), NonInteractive::proceed));
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  cluster::wire::DropTargetRequest request;
  request.set_target(target);
  FF_TRY(calls->call(cluster::kDropTarget, std::move(request), CallKind::write));
  session.out.line("the node of target {} removes it", target);
  session.out.data({{"target", target}, {"dropped", true}});
  return {};
}

void declare_plan(Command& admin, const AdminOptions& options) {
  Command& plan = admin.sub("plan", "Plan new chains, or create them");
  auto& wanted = plan.keep<PlanOptions>();
  plan.about(
      "Shows which chains ff would create on healthy disks with free space. The plan spreads them "
      "so that, when a node fails, all other nodes share its read load evenly. Existing chains do "
      "not change, so you can run the same command again after you add nodes or disks. With "
      "--apply the command creates the chains and appends them to a table; new files use the "
      "chains of that table. In a cluster without chains, --apply first waits until enough storage "
      "nodes have registered, and no other one for two seconds.");
  plan.option("--targets-per-disk", number(wanted.targets_per_disk),
              "Targets per disk, including existing ones");
  plan.option("--replicas", number(wanted.replicas), "Targets per chain, each on a different node");
  plan.option("--table", number(wanted.table), "Table to which the chains are added");
  plan.option("--seed", number(wanted.seed),
              "Seed of the plan; another seed gives a different plan of equal quality");
  plan.flag("--apply", wanted.apply, "Create the chains");
  plan.blocking(60 * kSecond);
  plan.run([&](Session& session) { return run_plan(session, options, wanted, plan.timeout_ns()); });
}

void declare_drain(Command& admin, const AdminOptions& options, bool drain) {
  Command& command =
      admin.sub(drain ? "drain" : "undrain", drain ? "Take a node or a target out of service"
                                                   : "Return a drained node or target to service");
  auto& wanted = command.keep<TargetDrainOptions>();
  command.about(drain ? "The targets leave their chains wherever another target serves, until 'ff "
                        "admin undrain'. No data moves: meanwhile these chains have one replica "
                        "fewer, and the data of the drained targets becomes outdated. To copy the "
                        "data to other disks, use 'ff admin replace-disk' or 'replace-target'."
                      : "The manager fills the targets from the other targets of their chains; "
                        "then they serve again.");
  command.option("--node", text(wanted.node, "NODE"), "All targets of this node: name or number");
  command.option("--target", number(wanted.target), "Only this target");
  command.blocking(kAdminTimeoutNs);
  command.run([&, drain](Session& session) {
    return run_drain(session, options, wanted, drain, command.timeout_ns());
  });
}

void declare_drop(Command& admin, const AdminOptions& options) {
  Command& drop = admin.sub("drop-target", "Remove a replica that accept-loss has set aside");
  auto& wanted = drop.keep<DropOptions>();
  drop.about(
      "The node removes the replica from its disk, now or when the node comes back. Data that only "
      "this replica had is then lost. 'ff admin status' lists the replicas that are set aside. On "
      "a terminal the command asks for confirmation.");
  drop.argument("TARGET", number(wanted.target, "TARGET"), "The replica to remove");
  declare_yes(drop, wanted.yes);
  drop.blocking(kAdminTimeoutNs);
  drop.run([&](Session& session) { return run_drop(session, options, wanted, drop.timeout_ns()); });
}

void declare_accept_loss(Command& admin, const AdminOptions& options) {
  Command& loss =
      admin.sub("accept-loss", "Promote a replica although a dead target had newer data");
  auto& wanted = loss.keep<LossOptions>();
  loss.about(
      "A chain whose last serving target is gone waits for that target forever. This command "
      "promotes another replica instead; the files lose what only the dead target had. The manager "
      "chooses the replica that is alive and has the most data. It never chooses a replica that is "
      "still syncing, nor any replica while it knows that a silent node holds a better one: name "
      "such a replica with --promote, and the command first says how much the files lose. It "
      "refuses a syncing replica even then while it knows of a complete one. Programs that read "
      "chunks the promoted replica lacks get an error (EIO), not zeros.\n\nThe command erases "
      "nothing: nodes set aside the replicas that may hold what the promoted one lacks, and the "
      "manager fills new ones in their places. 'ff admin status' lists the replicas that are set "
      "aside; --promote puts one back, whatever serves by then; 'ff admin drop-target' removes "
      "one, and so does the manager after its --keep-lost. The command asks for confirmation "
      "before it acts; without a terminal it requires --yes. 'ff admin status' records the loss.");
  loss.argument("CHAIN", number(wanted.chain, "CHAIN"), "The chain whose last target is gone");
  loss.option("--promote", number(wanted.promote),
              "Promote this target, which may be one that was set aside, and not the one that has "
              "the most data");
  declare_yes(loss, wanted.yes);
  loss.blocking(kAdminTimeoutNs);
  loss.run([&](Session& session) {
    return run_accept_loss(session, options, wanted, loss.timeout_ns());
  });
}

}  // namespace

Result<void> make_chains(AdminClient& calls, size_t targets_per_disk, size_t replicas) {
  const PlanOptions options{
      .targets_per_disk = targets_per_disk, .replicas = replicas, .apply = true};
  FF_TRY(auto planned, plan_chains(calls, options));
  FF_TRY(carry_out(calls, options, std::move(planned)));
  return {};
}

void declare_admin_changes(Command& admin, const AdminOptions& options) {
  declare_plan(admin, options);
  declare_drain(admin, options, true);
  declare_drain(admin, options, false);
  declare_accept_loss(admin, options);
  declare_drop(admin, options);
}

}  // namespace ff::cmd
