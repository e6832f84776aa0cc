// `ff admin nodes`, `disks`, `targets` and `chains`: lists of the parts of a cluster.
#include <map>

#include "cmd/admin/admin.h"
#include "platform/base/units.h"
#include "storage/cluster/wire.h"

namespace ff::cmd {
namespace {

using cluster::Chain;
using cluster::Routing;
using cluster::Target;
using cluster::TargetState;
using cluster::wire::NodeStatus;
using cluster::wire::StatusReply;
using cluster::wire::TargetStatus;

// The data of all lists, fetched together.
struct Known {
  Routing routing;
  StatusReply status;
  std::map<cluster::NodeId, const NodeStatus*> nodes;
  std::map<cluster::TargetId, const TargetStatus*> troubled;
};

Result<std::unique_ptr<Known>> ask_cluster(Session& session, const AdminOptions& options,
                                           int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, options, timeout_ns));
  auto known = std::make_unique<Known>();
  FF_TRY(known->routing, calls->routing());
  FF_TRY(known->status, calls->status());
  for (const NodeStatus& node : known->status.nodes()) known->nodes[node.id()] = &node;
  for (const TargetStatus& target : known->status.targets()) {
    known->troubled[target.target()] = &target;
  }
  return known;
}

std::string state_of(const Known& known, const cluster::NodeInfo& node) {
  const auto found = known.nodes.find(node.id);
  const char* const drained = node.draining ? ", drained" : "";
  if (found == known.nodes.end() || !found->second->heard()) {
    return fmt::format("no report yet{}", drained);
  }
  if (found->second->alive()) return fmt::format("alive{}", drained);
  return fmt::format(
      "silent for {}{}",
      format_duration(static_cast<int64_t>(found->second->silent_ms()) * kMillisecond), drained);
}

std::map<cluster::NodeId, size_t> targets_by_node(const Routing& routing) {
  std::map<cluster::NodeId, size_t> counts;
  for (const auto& [id, chain] : routing.chains) {
    for (const Target& target : chain.targets) counts[target.node]++;
  }
  return counts;
}

Result<void> list_nodes(Session& session, const AdminOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto known, ask_cluster(session, options, timeout_ns));
  const auto targets = targets_by_node(known->routing);
  Json json = Json::array();
  {
    auto table = session.out.table({{"NODE", Align::right},
                                    {"NAME"},
                                    {"STATE"},
                                    {"DISKS", Align::right},
                                    {"TARGETS", Align::right},
                                    {"DOMAIN"},
                                    {"ADDRESSES"}});
    for (const auto& [id, node] : known->routing.nodes) {
      const std::string state = state_of(*known, node);
      const size_t count = targets.contains(id) ? targets.at(id) : 0;
      const Color color = state.starts_with("alive") ? Color::none : Color::red;
      table.row({fmt::to_string(id), node.name, Cell(state, color),
                 fmt::to_string(node.disks.size()), fmt::to_string(count), node.domain,
                 fmt::to_string(fmt::join(node.addresses, " "))});
      json.push_back({{"node", id},
                      {"name", node.name},
                      {"state", state},
                      {"generation", node.generation},
                      {"draining", node.draining},
                      {"disks", node.disks.size()},
                      {"targets", count},
                      {"domain", node.domain},
                      {"addresses", node.addresses}});
    }
  }
  session.out.data({{"nodes", std::move(json)}});
  if (known->routing.nodes.empty()) session.out.note("no storage node has registered yet");
  return {};
}

Result<void> list_disks(Session& session, const AdminOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto known, ask_cluster(session, options, timeout_ns));
  std::map<std::pair<cluster::NodeId, cluster::DiskId>, size_t> targets;
  for (const auto& [id, chain] : known->routing.chains) {
    for (const Target& target : chain.targets) targets[{target.node, target.disk}]++;
  }
  Json json = Json::array();
  {
    auto table = session.out.table({{"NODE", Align::right},
                                    {"NAME"},
                                    {"DISK", Align::right},
                                    {"TARGETS", Align::right},
                                    {"USED", Align::right},
                                    {"SIZE", Align::right},
                                    {"STATE"},
                                    {"PATH"}});
    for (const auto& [id, node] : known->routing.nodes) {
      const std::string node_state = state_of(*known, node);
      for (const cluster::DiskInfo& disk : node.disks) {
        std::string state = node_state.starts_with("alive") ? "" : node_state;
        uint64_t used = 0;
        const auto found = known->nodes.find(id);
        for (int i = 0; found != known->nodes.end() && i < found->second->disks_size(); i++) {
          const auto& use = found->second->disks(i);
          if (use.disk() != disk.id) continue;
          used = use.used();
          const std::string fill = fill_state(use.used(), disk.capacity);
          if (state.empty()) state = fill;
          if (!use.trouble().empty()) state = use.trouble();
        }
        const size_t count =
            targets.contains({id, disk.id}) ? targets.at({id, disk.id}) : size_t{0};
        table.row({fmt::to_string(id), node.name, fmt::to_string(disk.id), fmt::to_string(count),
                   format_size(used), format_size(disk.capacity),
                   state.empty() ? Cell("good") : Cell(state, Color::red), disk.path});
        json.push_back({{"node", id},
                        {"name", node.name},
                        {"disk", disk.id},
                        {"path", disk.path},
                        {"targets", count},
                        {"used", used},
                        {"capacity", disk.capacity},
                        {"trouble", state.empty() ? Json() : Json(state)}});
      }
    }
  }
  session.out.data({{"disks", std::move(json)}});
  return {};
}

Color color_of(TargetState state) {
  switch (state) {
    case TargetState::serving: return Color::none;
    case TargetState::syncing:
    case TargetState::waiting: return Color::yellow;
    default: return Color::red;
  }
}

// Progress from the status ("3 of 8 bytes"); empty for a serving target.
std::string why(const Known& known, cluster::TargetId id) {
  const auto found = known.troubled.find(id);
  return found == known.troubled.end() ? "" : found->second->why();
}

Result<void> list_targets(Session& session, const AdminOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto known, ask_cluster(session, options, timeout_ns));
  Json json = Json::array();
  {
    auto table = session.out.table({{"TARGET", Align::right},
                                    {"CHAIN", Align::right},
                                    {"NODE", Align::right},
                                    {"NAME"},
                                    {"DISK", Align::right},
                                    {"STATE"},
                                    {"WHY"}});
    for (const auto& [id, chain] : known->routing.chains) {
      for (const Target& target : chain.targets) {
        const std::string reason = why(*known, target.id);
        const cluster::NodeInfo* const node = known->routing.node(target.node);
        table.row({fmt::to_string(target.id), fmt::to_string(id), fmt::to_string(target.node),
                   node == nullptr ? "" : node->name, fmt::to_string(target.disk),
                   Cell(std::string(name_of(target.state)), color_of(target.state)), reason});
        json.push_back({{"target", target.id},
                        {"chain", id},
                        {"node", target.node},
                        {"disk", target.disk},
                        {"state", name_of(target.state)},
                        {"draining", target.draining},
                        {"why", reason.empty() ? Json() : Json(reason)}});
      }
    }
  }
  session.out.data({{"targets", std::move(json)}});
  return {};
}

Result<void> list_chains(Session& session, const AdminOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto known, ask_cluster(session, options, timeout_ns));
  std::map<cluster::ChainId, std::vector<std::string>> tables;
  for (const auto& [key, found] : known->routing.tables) {
    for (const cluster::ChainId id : found.chains) {
      tables[id].push_back(fmt::format("{}.{}", key.first, key.second));
    }
  }
  Json json = Json::array();
  {
    auto table = session.out.table(
        {{"CHAIN", Align::right}, {"VERSION", Align::right}, {"TABLES"}, {"TARGETS"}});
    for (const auto& [id, chain] : known->routing.chains) {
      std::vector<std::string> words;
      Json targets = Json::array();
      TargetState worst = TargetState::serving;
      for (const Target& target : chain.targets) {
        worst = std::max(worst, target.state);
        words.push_back(target.state == TargetState::serving
                            ? fmt::to_string(target.id)
                            : fmt::format("{}:{}", target.id, name_of(target.state)));
        targets.push_back({{"target", target.id}, {"state", name_of(target.state)}});
      }
      table.row({fmt::to_string(id), fmt::to_string(chain.version),
                 fmt::to_string(fmt::join(tables[id], " ")),
                 Cell(fmt::to_string(fmt::join(words, " ")), color_of(worst))});
      json.push_back({{"chain", id},
                      {"version", chain.version},
                      {"tables", tables[id]},
                      {"targets", std::move(targets)}});
    }
  }
  session.out.data({{"chains", std::move(json)}});
  if (known->routing.chains.empty()) {
    session.out.note("no chains yet; 'ff admin plan --apply' creates them");
  }
  return {};
}

using List = Result<void> (*)(Session&, const AdminOptions&, int64_t);

void declare_list(Command& admin, const AdminOptions& options, const char* name,
                  const char* summary, const char* about, List list) {
  Command& command = admin.sub(name, summary);
  command.about(about);
  command.blocking(kAdminTimeoutNs);
  command.run([&options, &command, list](Session& session) {
    return list(session, options, command.timeout_ns());
  });
}

}  // namespace

void declare_admin_lists(Command& admin, const AdminOptions& options) {
  declare_list(admin, options, "nodes", "List the nodes",
               "Lists the nodes that have ever reported, with their state and their disks and "
               "targets. A node joins when it reports for the first time.",
               list_nodes);
  declare_list(admin, options, "disks", "List the disks of all nodes",
               "Lists every disk with its targets, used space and errors.", list_disks);
  declare_list(admin, options, "targets", "List the targets and their states",
               "Lists every target with its node and disk, its state (serving, lastsrv, syncing, "
               "waiting, offline) and, if it does not serve, the reason.",
               list_targets);
  declare_list(
      admin, options, "chains", "List the chains and their targets",
      "Lists every chain with its version, the tables that contain it (TABLE.VERSION) and its "
      "targets in order, the head first. A state follows a target that does not serve.",
      list_chains);
}

}  // namespace ff::cmd
