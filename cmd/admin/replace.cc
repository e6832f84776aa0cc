// `ff admin replace-target` and `replace-disk`: new targets for those on a disk that goes away.
#include <algorithm>
#include <set>

#include "cmd/admin/admin.h"
#include "storage/cluster/wire.h"

namespace ff::cmd {
namespace {

using cluster::Chain;
using cluster::DiskId;
using cluster::NodeId;
using cluster::Routing;
using cluster::Target;
using cluster::TargetState;
using CallKind = AdminClient::CallKind;

constexpr int64_t kReplacePollNs = 200 * kMillisecond;

Result<cluster::wire::CommandReply> replace_target(AdminClient& calls, cluster::TargetId target,
                                                   NodeId node, DiskId disk) {
  cluster::wire::ReplaceTargetRequest request;
  request.set_target(target);
  request.mutable_place()->set_node(node);
  request.mutable_place()->set_disk(disk);
  return calls.call(cluster::kReplaceTarget, std::move(request), CallKind::write);
}

struct ReplaceTargetOptions {
  uint64_t target = 0;
  std::string node;
  uint64_t disk = 0;
};

Result<void> run_replace_target(Session& session, const AdminOptions& admin,
                                const ReplaceTargetOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(const Routing routing, calls->routing());
  FF_TRY(const NodeId node, find_node(routing, options.node));
  FF_TRY(const auto reply, replace_target(*calls, options.target, node, options.disk));
  for (const auto& chain : reply.changes().chains()) {
    session.out.line("chain {} has a new target on node {}, disk {} instead of {}", chain.id(),
                     node_label(routing, node), options.disk, options.target);
    session.out.data({{"chain", chain.id()}, {"replaced", options.target}});
  }
  return {};
}

struct ReplaceDiskOptions {
  uint64_t disk = 0;
  std::string node;
  std::optional<uint64_t> with;
};

// The disks of a node that send no error and are not nearly full, by their number of targets.
std::map<DiskId, size_t> usable_disks(const cluster::wire::StatusReply& status,
                                      const Routing& routing, NodeId id) {
  std::map<DiskId, size_t> usable;
  for (const auto& node : status.nodes()) {
    if (node.id() != id || !node.alive()) continue;
    for (const auto& disk : node.disks()) {
      if (disk.trouble().empty()) usable[disk.disk()] = 0;
    }
  }
  for (const LowDisk& low : low_disks(status, routing)) {
    if (low.node == id) usable.erase(low.disk.id);
  }
  for (const auto& [chain_id, chain] : routing.chains) {
    for (const Target& target : chain.targets) {
      if (target.node == id && usable.contains(target.disk)) usable[target.disk]++;
    }
  }
  return usable;
}

// The disk that gets the targets: --with, or the only usable disk of the node without targets.
Result<DiskId> new_disk(const cluster::wire::StatusReply& status, const Routing& routing,
                        NodeId node, const ReplaceDiskOptions& options) {
  std::map<DiskId, size_t> usable = usable_disks(status, routing, node);
  usable.erase(options.disk);
  const std::string name = node_label(routing, node);
  if (options.with) {
    if (usable.contains(*options.with)) return *options.with;
    return Error{Errc::usage,
                 fmt::format("node {} has no healthy disk {} with free space", name, *options.with),
                 "'ff admin disks' lists the disks."};
  }
  std::vector<DiskId> empty;
  for (const auto& [disk, targets] : usable) {
    if (targets == 0) empty.push_back(disk);
  }
  if (empty.size() == 1) return empty.front();
  if (empty.empty()) {
    return Error{Errc::usage, fmt::format("node {} has no healthy disk without targets", name),
                 "Mount the new disk and restart the node once with --format; or name a disk in "
                 "use: --with DISK."};
  }
  return Error{Errc::usage, fmt::format("node {} has {} disks without targets", name, empty.size()),
               fmt::format("Choose one: --with {}.", fmt::join(empty, " or --with "))};
}

std::vector<Target> targets_on(const Routing& routing, NodeId node, DiskId disk) {
  std::vector<Target> targets;
  for (const auto& [id, chain] : routing.chains) {
    for (const Target& target : chain.targets) {
      if (target.node == node && target.disk == disk) targets.push_back(target);
    }
  }
  return targets;
}

Result<void> drain_targets(AdminClient& calls, const std::vector<Target>& targets) {
  for (const Target& target : targets) {
    if (target.draining || target.state == TargetState::offline) continue;
    cluster::wire::DrainRequest request;
    request.set_target(target.id);
    request.set_drain(true);
    const auto drained = calls.call(cluster::kDrain, std::move(request), CallKind::write);
    if (!drained && drained.error().code != Errc::exists) return drained.error();
  }
  return {};
}

// Why the targets that are left could not be replaced in time.
Error not_replaced(const std::vector<Target>& left, Error error) {
  const bool served_last = std::ranges::any_of(
      left, [](const Target& target) { return target.state == TargetState::lastsrv; });
  error.message = fmt::format("{} {} still in use: their chains have no other serving target",
                              left.size(), left.size() == 1 ? "target is" : "targets are");
  error.hint = served_last ? "If the data of this disk is lost, promote another replica (ff admin "
                             "accept-loss), then run this command again."
                           : "Run this command again when another target of each chain serves; 'ff "
                             "admin targets' tells. 'ff admin undrain --target' keeps a target.";
  return error;
}

// Replaces each target as soon as its chain continues without it.
Result<void> run_replace_disk(Session& session, const AdminOptions& admin,
                              const ReplaceDiskOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto calls, AdminClient::open(session, admin, timeout_ns));
  FF_TRY(Routing routing, calls->routing());
  FF_TRY(const auto status, calls->status());
  FF_TRY(const NodeId node, find_node(routing, options.node));
  FF_TRY(const DiskId disk, new_disk(status, routing, node, options));
  std::vector<Target> left = targets_on(routing, node, options.disk);
  if (left.empty()) {
    return Error{
        Errc::not_found,
        fmt::format("disk {} of node {} has no targets", options.disk, node_label(routing, node)),
        "'ff admin disks' lists the disks."};
  }
  const size_t count = left.size();
  FF_TRY(drain_targets(*calls, left));
  for (;;) {
    FF_TRY(routing, calls->routing());
    left = targets_on(routing, node, options.disk);
    for (const Target& target : left) {
      if (target.state != TargetState::offline) continue;
      FF_TRY(replace_target(*calls, target.id, node, disk));
    }
    std::erase_if(left, [](const Target& it) { return it.state == TargetState::offline; });
    if (left.empty()) break;
    const auto waited = calls->pause(kReplacePollNs);
    if (waited) continue;
    if (waited.error().code != Errc::deadline) return waited;
    return not_replaced(left, waited.error());
  }
  session.out.line("node {}: {} {} on disk {} instead of disk {}", node_label(routing, node), count,
                   count == 1 ? "new target is" : "new targets are", disk, options.disk);
  session.out.data({{"node", node}, {"disk", options.disk}, {"with", disk}, {"targets", count}});
  session.out.note(
      "ff copies their data from the other replicas; 'ff admin status' shows the progress");
  return {};
}

void declare_replace_target(Command& admin, const AdminOptions& options) {
  Command& replace = admin.sub("replace-target", "Replace a target");
  auto& wanted = replace.keep<ReplaceTargetOptions>();
  replace.about(
      "For a node that does not come back, or to move a target. The chain gets a new, empty target "
      "on the given disk, which is then filled from the other targets. The old target must be "
      "offline (dead or drained). 'ff admin replace-disk' does this for all targets of a disk.");
  replace.argument("TARGET", number(wanted.target, "TARGET"), "Target to replace");
  replace.option("--node", text(wanted.node, "NODE"), "Node of the new target: name or number")
      .required();
  replace.option("--disk", number(wanted.disk), "Disk of that node").required();
  replace.blocking(kAdminTimeoutNs);
  replace.run([&](Session& session) {
    return run_replace_target(session, options, wanted, replace.timeout_ns());
  });
}

void declare_replace_disk(Command& admin, const AdminOptions& options) {
  Command& replace = admin.sub("replace-disk", "Replace all targets of a disk");
  auto& wanted = replace.keep<ReplaceDiskOptions>();
  replace.about(
      "For a disk that has failed or is to be taken out. Drains the targets that still serve, and "
      "gives each chain a new, empty target on another disk of the same node, which is then filled "
      "from the other replicas; until then these chains have one replica fewer. A target that is "
      "the only serving one of its chain stays until another one serves. When no target is left on "
      "a disk that was removed, it disappears from 'ff admin disks' and 'ff admin status'.");
  replace.argument("DISK", number(wanted.disk, "DISK"), "Disk to replace");
  replace.option("--node", text(wanted.node, "NODE"), "Node of the disk: name or number")
      .required();
  replace.option("--with", number(wanted.with, "DISK"),
                 "The new disk; without it the only healthy disk of the node without targets");
  replace.example("ff admin replace-disk 2 --node n3",
                  "after the new disk was mounted and n3 restarted with --format");
  replace.blocking(60 * kSecond);
  replace.run([&](Session& session) {
    return run_replace_disk(session, options, wanted, replace.timeout_ns());
  });
}

}  // namespace

void declare_admin_replacements(Command& admin, const AdminOptions& options) {
  declare_replace_target(admin, options);
  declare_replace_disk(admin, options);
}

}  // namespace ff::cmd
