// wire.cc: field by field conversions.
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

Result<TargetState> state_from(uint32_t number) {
  if (number >= 1 && number <= 5) return static_cast<TargetState>(number);
  return fail(Errc::corrupt, "unknown target state {}", number);
}

Result<LocalTargetState> local_from(uint32_t number) {
  if (number >= 1 && number <= 3) return static_cast<LocalTargetState>(number);
  return fail(Errc::corrupt, "unknown local target state {}", number);
}

}  // namespace

wire::Node to_wire(const NodeInfo& node) {
  wire::Node out;
  out.set_id(node.id);
  out.set_name(node.name);
  out.set_generation(node.generation);
  for (const std::string& address : node.addresses) out.add_addresses(address);
  out.set_domain(node.domain);
  for (const DiskInfo& disk : node.disks) {
    wire::Disk& to = *out.add_disks();
    to.set_id(disk.id);
    to.set_path(disk.path);
    to.set_capacity(disk.capacity);
    if (disk.shard) to.set_shard(*disk.shard);
  }
  out.set_draining(node.draining);
  out.set_changed(node.changed);
  out.set_identity(node.identity);
  return out;
}

Result<NodeInfo> from_wire(const wire::Node& node) {
  if (node.addresses_size() > static_cast<int>(kAddressesMax) ||
      node.disks_size() > static_cast<int>(kDisksMax)) {
    return fail(Errc::corrupt, "node {} has {} addresses and {} disks", node.id(),
                node.addresses_size(), node.disks_size());
  }
  NodeInfo out{.id = node.id(),
               .name = node.name(),
               .generation = node.generation(),
               .addresses = {node.addresses().begin(), node.addresses().end()},
               .domain = node.domain(),
               .draining = node.draining(),
               .changed = node.changed(),
               .identity = node.identity()};
  for (const wire::Disk& disk : node.disks()) {
    DiskInfo& info = out.disks.emplace_back();
    info = {.id = disk.id(), .path = disk.path(), .capacity = disk.capacity()};
    if (disk.has_shard()) info.shard = disk.shard();
  }
  return out;
}

wire::SetAside to_wire(const SetAside& aside) {
  wire::SetAside out;
  out.set_target(aside.target);
  out.set_node(aside.node);
  out.set_disk(aside.disk);
  out.set_held(aside.complete_version);
  out.set_wrote(aside.written_version);
  out.set_chunks(aside.chunks);
  out.set_bytes(aside.bytes);
  out.set_wall_ns(aside.wall_ns);
  out.set_changed(aside.changed);
  out.set_dropped(aside.dropped);
  out.set_lost_below(aside.missing_below);
  return out;
}

SetAside from_wire(const wire::SetAside& aside) {
  return {.target = aside.target(),
          .node = aside.node(),
          .disk = aside.disk(),
          .complete_version = aside.held(),
          .written_version = aside.wrote(),
          .chunks = aside.chunks(),
          .bytes = aside.bytes(),
          .wall_ns = aside.wall_ns(),
          .changed = aside.changed(),
          .dropped = aside.dropped(),
          .missing_below = aside.lost_below()};
}

wire::Chain to_wire(const Chain& chain) {
  wire::Chain out;
  out.set_id(chain.id);
  out.set_version(chain.version);
  for (const Target& target : chain.targets) {
    wire::Target& to = *out.add_targets();
    to.set_id(target.id);
    to.set_node(target.node);
    to.set_disk(target.disk);
    to.set_state(static_cast<uint32_t>(target.state));
    to.set_created(target.created);
    to.set_draining(target.draining);
    to.set_stop(target.stop);
    to.set_held(target.complete_version);
    to.set_wrote(target.written_version);
    to.set_chunks(target.chunks);
    to.set_bytes(target.bytes);
  }
  out.set_changed(chain.changed);
  for (const SetAside& aside : chain.aside) *out.add_aside() = to_wire(aside);
  out.set_lost_below(chain.missing_below);
  out.set_lost_version(chain.lost_version);
  return out;
}

Result<Chain> from_wire(const wire::Chain& chain) {
  if (chain.targets_size() == 0 || chain.targets_size() > static_cast<int>(kReplicasMax)) {
    return fail(Errc::corrupt, "chain {} has {} targets", chain.id(), chain.targets_size());
  }
  Chain out{.id = chain.id(), .version = chain.version(), .changed = chain.changed()};
  for (const wire::SetAside& aside : chain.aside()) out.aside.push_back(from_wire(aside));
  out.missing_below = chain.lost_below();
  out.lost_version = chain.lost_version();
  for (const wire::Target& target : chain.targets()) {
    FF_TRY(const TargetState state, state_from(target.state()));
    out.targets.push_back({.id = target.id(),
                           .node = target.node(),
                           .disk = target.disk(),
                           .state = state,
                           .created = target.created(),
                           .draining = target.draining(),
                           .stop = target.stop(),
                           .complete_version = target.held(),
                           .written_version = target.wrote(),
                           .chunks = target.chunks(),
                           .bytes = target.bytes()});
  }
  return out;
}

wire::Table to_wire(const ChainTable& table) {
  wire::Table out;
  out.set_id(table.id);
  out.set_version(table.version);
  out.mutable_chains()->Add(table.chains.begin(), table.chains.end());
  out.set_changed(table.changed);
  return out;
}

ChainTable from_wire(const wire::Table& table) {
  return {.id = table.id(),
          .version = table.version(),
          .chains = {table.chains().begin(), table.chains().end()},
          .changed = table.changed()};
}

wire::Changes to_wire(const RoutingDelta& changes) {
  wire::Changes out;
  out.set_cluster(changes.cluster);
  out.set_since(changes.since);
  out.set_to(changes.to);
  out.set_complete(changes.complete);
  for (const NodeInfo& node : changes.nodes) *out.add_nodes() = to_wire(node);
  for (const Chain& chain : changes.chains) *out.add_chains() = to_wire(chain);
  for (const ChainTable& table : changes.tables) *out.add_tables() = to_wire(table);
  return out;
}

Result<RoutingDelta> from_wire(const wire::Changes& changes) {
  RoutingDelta out{.cluster = changes.cluster(),
                   .since = changes.since(),
                   .to = changes.to(),
                   .complete = changes.complete()};
  for (const wire::Node& node : changes.nodes()) {
    FF_TRY(out.nodes.emplace_back(), from_wire(node));
  }
  for (const wire::Chain& chain : changes.chains()) {
    FF_TRY(out.chains.emplace_back(), from_wire(chain));
  }
  for (const wire::Table& table : changes.tables()) out.tables.push_back(from_wire(table));
  return out;
}

wire::DiskUse to_wire(const DiskUsage& use) {
  wire::DiskUse out;
  out.set_disk(use.disk);
  out.set_used(use.used);
  out.set_trouble(use.error);
  return out;
}

DiskUsage from_wire(const wire::DiskUse& use) { return {use.disk(), use.used(), use.trouble()}; }

wire::HeartbeatRequest to_wire(const Heartbeat& beat) {
  wire::HeartbeatRequest out;
  out.set_cluster(beat.cluster);
  *out.mutable_node() = to_wire(beat.node);
  out.set_sequence(beat.sequence);
  out.set_routing_version(beat.routing_version);
  for (const TargetReport& report : beat.targets) {
    wire::TargetReport& to = *out.add_targets();
    to.set_target(report.target);
    to.set_chain(report.chain);
    to.set_local(static_cast<uint32_t>(report.local));
    to.set_chain_version(report.chain_version);
    to.set_copied(report.copied);
    to.set_to_copy(report.to_copy);
    if (!report.size) continue;
    to.mutable_size()->set_chunks(report.size->chunks);
    to.mutable_size()->set_bytes(report.size->bytes);
    to.mutable_size()->set_last_inode(report.size->last_inode);
  }
  for (const UnreachableTarget& cut : beat.unreachable) {
    wire::Unreachable& to = *out.add_unreachable();
    to.set_chain(cut.chain);
    to.set_chain_version(cut.chain_version);
    to.set_from(cut.from);
    to.set_to(cut.to);
  }
  for (const DiskUsage& use : beat.disks) *out.add_disks() = to_wire(use);
  return out;
}

Result<Heartbeat> from_wire(const wire::HeartbeatRequest& beat) {
  Heartbeat out{.cluster = beat.cluster(),
                .sequence = beat.sequence(),
                .routing_version = beat.routing_version()};
  FF_TRY(out.node, from_wire(beat.node()));
  for (const wire::TargetReport& report : beat.targets()) {
    FF_TRY(const LocalTargetState local, local_from(report.local()));
    out.targets.push_back({.target = report.target(),
                           .chain = report.chain(),
                           .local = local,
                           .chain_version = report.chain_version(),
                           .copied = report.copied(),
                           .to_copy = report.to_copy()});
    if (!report.has_size()) continue;
    const wire::Size& size = report.size();
    out.targets.back().size = {size.chunks(), size.bytes(), size.last_inode()};
  }
  for (const wire::Unreachable& cut : beat.unreachable()) {
    out.unreachable.push_back({cut.chain(), cut.chain_version(), cut.from(), cut.to()});
  }
  for (const wire::DiskUse& use : beat.disks()) out.disks.push_back(from_wire(use));
  return out;
}

wire::HeartbeatReply to_wire(const HeartbeatResponse& answer) {
  wire::HeartbeatReply out;
  *out.mutable_changes() = to_wire(answer.changes);
  for (const Predecessor& before : answer.predecessors) {
    wire::Predecessor& to = *out.add_predecessors();
    to.set_target(before.target);
    to.set_confirmed(before.confirmed_version);
  }
  return out;
}

Result<HeartbeatResponse> from_wire(const wire::HeartbeatReply& answer) {
  HeartbeatResponse out;
  FF_TRY(out.changes, from_wire(answer.changes()));
  for (const wire::Predecessor& before : answer.predecessors()) {
    out.predecessors.push_back({before.target(), before.confirmed()});
  }
  return out;
}

wire::Loss to_wire(const DataLoss& loss) {
  wire::Loss out;
  out.set_chain(loss.chain);
  out.set_version(loss.version);
  out.set_promoted(loss.promoted);
  out.set_given_up(loss.abandoned);
  out.set_wall_ns(loss.wall_ns);
  out.set_by(loss.requested_by);
  out.set_chunks(loss.chunks);
  out.set_bytes(loss.bytes);
  return out;
}

wire::LossPlan to_wire(const DataLossPlan& plan) {
  wire::LossPlan out;
  out.set_promoted(plan.loss.promoted);
  out.set_given_up(plan.loss.abandoned);
  out.set_version(plan.loss.version - 1);
  out.set_incomplete(plan.incomplete);
  out.set_chunks(plan.loss.chunks);
  out.set_bytes(plan.loss.bytes);
  for (const SetAside& aside : plan.aside) *out.add_aside() = to_wire(aside);
  return out;
}

DataLoss from_wire(const wire::Loss& loss) {
  return {.chain = loss.chain(),
          .version = loss.version(),
          .promoted = loss.promoted(),
          .abandoned = loss.given_up(),
          .wall_ns = loss.wall_ns(),
          .requested_by = loss.by(),
          .chunks = loss.chunks(),
          .bytes = loss.bytes()};
}

wire::IssuedKey to_wire(const IssuedKey& key) {
  wire::IssuedKey out;
  out.set_identity(auth::format_identity(key.entity));
  out.set_by(key.by);
  return out;
}

wire::KeyRecords to_wire(const KeyRecords& records) {
  wire::KeyRecords out;
  out.set_version(records.revocations.version);
  out.set_generation(records.revocations.generation);
  out.set_rotated_us(records.rotated_us);
  for (const IssuedKey& key : records.issued) *out.add_issued() = to_wire(key);
  for (const auto& [entity, serial] : records.revocations.serials) {
    rpc::wire::Revoked& one = *out.add_revoked();
    one.set_entity(entity);
    one.set_serial(serial);
  }
  return out;
}

Result<KeyRecords> from_wire(const wire::KeyRecords& records) {
  KeyRecords out;
  out.revocations.version = records.version();
  out.revocations.generation = std::max<uint32_t>(records.generation(), 1);
  out.rotated_us = records.rotated_us();
  for (const wire::IssuedKey& key : records.issued()) {
    FF_TRY(auth::Entity entity, auth::parse_identity(key.identity()));
    out.issued.push_back({.entity = std::move(entity), .by = key.by()});
  }
  for (const rpc::wire::Revoked& one : records.revoked()) {
    out.revocations.serials[one.entity()] = one.serial();
  }
  return out;
}

}  // namespace ff::cluster
