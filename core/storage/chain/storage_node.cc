// storage_node.cc: start and shutdown of a storage node, and the heartbeats of its shards.
#include "storage/chain/storage_node.h"

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/run_on.h"

namespace ff::chain {

namespace {

constexpr int64_t kDrainPollNs = 10 * kMillisecond;
constexpr int64_t kDrainTimeoutNs = 4 * kSecond;  // time for the manager to react

// Whether the chain relies on the target.
bool in_use(cluster::TargetState state) {
  return state == cluster::TargetState::serving || state == cluster::TargetState::syncing;
}

// `call` as a task, for run_on().
template <class Call>
Task<std::invoke_result_t<Call>> as_task(Call call) {
  co_return call();
}

}  // namespace

StorageNode::StorageNode(std::vector<ShardContext> shards, io::Disk& disk,
                         const std::vector<net::Address>& managers, StorageOptions options)
    : context_(shards.front().client),
      loop_(context_.loop),
      disk_(disk),
      managers_(managers),
      options_(std::move(options)),
      gate_(loop_) {
  const auto count = static_cast<uint32_t>(shards.size());
  for (uint32_t index = 0; index < count; ++index) {
    const auto request_heartbeat = [this, &loop = shards[index].client.loop] {
      if (&loop == &loop_) return this->request_heartbeat();
      loop_.post([this] { this->request_heartbeat(); });
    };
    shards_.push_back(std::make_unique<StorageShard>(shards[index], disk_, options_,
                                                     ShardNumber{.index = index, .count = count},
                                                     request_heartbeat));
  }
}

StorageNode::~StorageNode() = default;

Task<Result<void>> StorageNode::open() {
  FF_CO_TRY(read_identities());
  if (node_ == 0) {
    FF_CO_TRY(co_await create_disks());
  } else {
    FF_CO_TRY(co_await open_disks());
  }
  const cluster::NodeInfo node = co_await self();
  std::vector<ReplicaService*> services;
  for (const auto& shard : shards_) {
    co_await run_on(loop_, shard->calls(), shard->begin(node, saved_.routing));
    services.push_back(&shard->replicas());
  }
  for (const auto& shard : shards_) {
    if (services.size() > 1) shard->replicas().set_shards(services);
  }
  heartbeats_ = std::make_unique<cluster::HeartbeatSender>(context_, managers_, first().member(),
                                                           [this] { first().on_routing_change(); });
  heartbeats_->report_held_back([this] {
    const std::string client = first().held_back();
    return client.empty() ? held_back_ : client;
  });
  if (shards_.size() > 1) {
    heartbeats_->add_members(
        {.report = [this](cluster::Heartbeat& beat) { return add_reports(beat); },
         .respond =
             [this](int64_t sent_ns, const cluster::HeartbeatResponse& answer) {
               return pass_on(sent_ns, answer);
             }});
  }
  co_return Result<void>();
}

void StorageNode::request_heartbeat() {
  if (heartbeats_ != nullptr) heartbeats_->request_heartbeat();
}

// Only the description of the disks comes from the shards.
Task<cluster::NodeInfo> StorageNode::self() {
  // The wall clock may go backwards, and the saved generation may be on a missing disk; their
  // maximum grows.
  const auto now_ms = static_cast<uint64_t>(loop_.clock().wall_ns() / kMillisecond);
  cluster::NodeInfo node{.id = node_,
                         .name = options_.name,
                         .generation = std::max(saved_.generation + 1, now_ms),
                         .addresses = {},
                         .domain = options_.domain};
  for (const auto& shard : shards_) {
    auto described = as_task([&shard] { return shard->disk_infos(); });
    for (auto& info : co_await run_on(loop_, shard->calls(), std::move(described))) {
      if (info.id != 0) node.disks.push_back(std::move(info));
    }
  }
  std::ranges::sort(node.disks, {}, [&](const cluster::DiskInfo& info) {
    return std::ranges::find(disks_, info.id, &FoundDisk::id) - disks_.begin();
  });
  co_return node;
}

Task<void> StorageNode::start(std::vector<std::string> addresses) {
  for (const auto& shard : shards_) {
    auto starting = as_task([&shard, &addresses] {
      shard->start(addresses);
      return true;
    });
    (void)co_await run_on(loop_, shard->calls(), std::move(starting));
  }
  gate_.spawn(heartbeats_->run());
}

// Replaces what the first shard knows of the targets of other shards.
Task<void> StorageNode::add_reports(cluster::Heartbeat& beat) {
  held_back_.clear();
  for (const auto& shard : shards_) {
    if (shard == shards_.front()) continue;
    auto reporting =
        as_task([&shard] { return std::pair(shard->next_heartbeat(), shard->held_back()); });
    const auto [part, held_back] = co_await run_on(loop_, shard->calls(), std::move(reporting));
    if (held_back_.empty()) held_back_ = held_back;
    for (const cluster::TargetReport& report : part.targets) {
      const auto found =
          std::ranges::find(beat.targets, report.target, &cluster::TargetReport::target);
      if (found != beat.targets.end()) *found = report;
    }
    beat.disks.insert(beat.disks.end(), part.disks.begin(), part.disks.end());
    beat.unreachable.insert(beat.unreachable.end(), part.unreachable.begin(),
                            part.unreachable.end());
  }
}

Task<void> StorageNode::pass_on(int64_t sent_ns, const cluster::HeartbeatResponse& answer) {
  for (const auto& shard : shards_) {
    if (shard == shards_.front()) continue;
    auto passing = as_task([&shard, sent_ns, &answer] {
      shard->on_response(sent_ns, answer);
      return true;
    });
    (void)co_await run_on(loop_, shard->calls(), std::move(passing));
  }
}

std::vector<DiskStatus> StorageNode::status() const {
  std::vector<DiskStatus> all;
  for (const auto& shard : shards_) {
    for (DiskStatus& disk : shard->status()) all.push_back(std::move(disk));
  }
  std::ranges::sort(all, {}, &DiskStatus::id);
  return all;
}

Replica* StorageNode::replica(cluster::TargetId id) {
  for (const auto& shard : shards_) {
    if (Replica* const found = shard->replica(id)) return found;
  }
  return nullptr;
}

bool StorageNode::is_in_use() const {
  return std::ranges::any_of(member().routing().chains, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.targets, [&](const cluster::Target& target) {
      return target.node == node_ && in_use(target.state);
    });
  });
}

Task<void> StorageNode::drain() {
  if (heartbeats_ == nullptr) co_return;
  for (const auto& shard : shards_) {
    auto draining = as_task([&shard] {
      shard->drain();
      return true;
    });
    (void)co_await run_on(loop_, shard->calls(), std::move(draining));
  }
  const int64_t until_ns = loop_.now_ns() + kDrainTimeoutNs;
  while (is_in_use()) {
    if (loop_.now_ns() >= until_ns || heartbeats_->last_error()) {
      log_warning("shutting down before the manager has confirmed that its chains continue");
      co_return;
    }
    const auto waited = co_await sleep_for(loop_, kDrainPollNs);
    if (!waited) co_return;
  }
}

Task<void> StorageNode::close() {
  Error over = fail(Errc::interrupted, "the storage node is shutting down");
  co_await gate_.close(std::move(over));
  for (const auto& shard : shards_) {
    co_await run_on(loop_, shard->calls(), shard->close());
  }
  if (heartbeats_ != nullptr) co_await heartbeats_->close();
}

}  // namespace ff::chain
