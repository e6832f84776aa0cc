// adoption.cc: collects the offers of nodes and selects the newest.
#include "storage/cluster/adoption.h"

#include <fmt/format.h>

#include <utility>

#include "storage/cluster/manager.h"

namespace ff::cluster {

bool Adoption::has_offer(NodeId node, uint64_t version) const {
  const auto found = offered_versions_.find(node);
  return found != offered_versions_.end() && found->second == version;
}

Result<void> Adoption::offer(NodeId node, const RoutingDelta& page) {
  if (page.since == 0) pages_.erase(node);
  Routing& routing = pages_[node];
  if (page.since != routing.version) {
    pages_.erase(node);
    return fail(Errc::refused, "node {} offers a page of routing from version {} on out of order",
                node, page.since);
  }
  FF_TRY(routing.apply(page));
  if (!page.complete) return {};
  offered_versions_[node] = routing.version;
  if (!newest_ || routing.version > newest_->version) newest_ = std::move(routing);
  pages_.erase(node);
  return {};
}

Result<Routing> Adoption::newest(const Routing& own, bool without_absent) const {
  if (!newest_ || newest_->version <= own.version || newest_->cluster != own.cluster) {
    Error error = fail(Errc::refused, "no node has offered newer routing of this cluster");
    error.hint = "Nodes offer it within a second or two after they reach the manager. Try again.";
    return error;
  }
  for (const auto& [id, node] : newest_->nodes) {
    if (without_absent || offered_versions_.contains(id)) continue;
    Error error =
        fail(Errc::refused, "node {} ({}) has not offered its routing, which may be the newest", id,
             node.name);
    error.hint = "Bring the node back, or use --without-absent if it is lost for good.";
    return error;
  }
  const auto lacks = [](const auto& has, const auto& wants) {
    for (const auto& [key, record] : wants) {
      if (!has.contains(key)) return true;
    }
    return false;
  };
  if (lacks(newest_->nodes, own.nodes) || lacks(newest_->chains, own.chains) ||
      lacks(newest_->tables, own.tables)) {
    Error error = fail(Errc::refused,
                       "this database has nodes, chains or tables that the offered routing lacks");
    error.hint = "Restore the backup again, and adopt before anything else is changed.";
    return error;
  }
  return *newest_;
}

std::vector<RoutingDelta> routing_changes_between(const Routing& own, const Routing& next) {
  std::vector<RoutingDelta> steps;
  const auto room = [&]() -> RoutingDelta& {
    if (steps.empty() || steps.back().size() == kChangeMax) {
      steps.push_back({.cluster = own.cluster, .since = own.version, .to = own.version});
    }
    return steps.back();
  };
  for (const auto& [id, node] : next.nodes) room().nodes.push_back(node);
  for (const auto& [id, chain] : next.chains) room().chains.push_back(chain);
  for (const auto& [key, table] : next.tables) room().tables.push_back(table);
  room().to = next.version;
  return steps;
}

}  // namespace ff::cluster
