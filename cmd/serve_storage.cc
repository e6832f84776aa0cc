// `ff serve-storage`: the daemon of a storage node, with the disks of one machine.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/daemon.h"
#include "cmd/options/meta_option.h"
#include "platform/base/cpus.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "storage/chain/storage_node.h"

namespace ff::cmd {
namespace {

// Shared memory for data in flight, which other daemons of this host access; pages are allocated
// on first use.
constexpr uint64_t kBlockMemory = 512 * kMiB;
constexpr uint64_t kShardBlockMemory = 128 * kMiB;  // at least
constexpr size_t kDefaultShardsMax = 16;
constexpr uint64_t kShardsMax = 256;
constexpr const char* kMemoryDir = "/dev/shm";  // lives as long as the machine runs

struct ServeStorageOptions {
  DaemonOptions daemon = {.listen = "127.0.0.1:4410", .advertise = {}, .http = {}, .net = {}};
  std::string meta = kDefaultMeta;
  std::vector<std::string> disks;
  std::optional<uint64_t> node;
  std::optional<uint64_t> shards;
  std::optional<std::string> name;
  std::string domain;
  std::string io = "direct";
  uint64_t resync_limit = 0;
  uint64_t scrub_limit = 16 * kMiB;
  bool format = false;
};

// The boot ID of the kernel. A different ID means that data that was not synced may be lost.
Result<std::string> boot_id(io::Disk& disk) {
  FF_TRY(std::string id, io::read_file(disk, "/proc/sys/kernel/random/boot_id", 128));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

Json target_status(const chain::StorageNode& node, const chunk::TargetInfo& target) {
  const cluster::Chain* const chain = node.member().routing().chain(target.chain);
  const cluster::Target* const routed =
      chain == nullptr ? nullptr : cluster::find_target(*chain, target.id);
  return {{"target", target.id},
          {"chain", target.chain},
          {"state", routed == nullptr ? "replaced" : cluster::name_of(routed->state)},
          {"chunks", target.chunks},
          {"damaged", target.damaged}};
}

std::string storage_status(const chain::StorageNode& node, const std::string& address) {
  Json json = {
      {"role", "serve-storage"},
      {"address", address},
      {"node", node.member().self().id},
      {"generation", node.member().self().generation},
      {"cluster", node.member().routing().cluster},
      {"routing_version", node.member().routing().version},
      {"manager", node.heartbeat_error() ? Json(node.heartbeat_error()->message) : Json("answers")},
      {"shards", node.shards().size()},
      {"disks", Json::array()}};
  for (const chain::DiskStatus& disk : node.status()) {
    if (disk.replaced) continue;
    Json entry = {{"disk", disk.id},
                  {"dir", disk.dir},
                  {"shard", disk.shard},
                  {"trouble", disk.error.empty() ? Json(nullptr) : Json(disk.error)},
                  {"capacity", disk.space.total},
                  {"free", disk.space.free},
                  {"targets", Json::array()}};
    if (disk.open) entry["direct"] = disk.direct;
    for (const chunk::TargetInfo& target : disk.targets) {
      entry["targets"].push_back(target_status(node, target));
    }
    json["disks"].push_back(std::move(entry));
  }
  return json.dump();
}

// One per CPU, up to 16; a disk belongs to one shard, so more would have nothing to do.
uint32_t default_shards(size_t disks) {
  const size_t cpus = std::max<size_t>(1, usable_cpus().size());
  return static_cast<uint32_t>(std::min({cpus, disks, kDefaultShardsMax}));
}

Result<void> run_serve_storage(Session& session, const ServeStorageOptions& options) {
  if (options.disks.empty()) {
    Error error = fail(Errc::usage, "no --disk is given");
    error.hint = "Give --disk DIR for each disk.";
    return error;
  }
  if (options.node && *options.node == 0) return fail(Errc::usage, "--node 0: must be at least 1");
  if (options.shards && (*options.shards == 0 || *options.shards > kShardsMax)) {
    return fail(Errc::usage, "--shards {}: must be from 1 to {}", *options.shards, kShardsMax);
  }
  FF_TRY(const auto managers, parse_meta(options.meta));
  FF_TRY(const auto daemon, Daemon::make(session, options.daemon, auth::Role::storage,
                                         "serve-storage", options.name.value_or("")));
  io::SystemDisk disk;
  FF_TRY(const std::string boot, boot_id(disk));
  daemon->start_pinned_shards(
      static_cast<uint32_t>(options.shards.value_or(default_shards(options.disks.size()))),
      options.node.value_or(0));
  std::vector<chain::ShardContext> shards = {{daemon->client(), daemon->router()}};
  for (const auto& shard : daemon->shards()) shards.push_back({shard->client, shard->router});
  FF_TRY(const ByteSpan arena,
         daemon->shared_memory(std::max(kBlockMemory, shards.size() * kShardBlockMemory)));
  chain::StorageNode node(std::move(shards), disk, managers,
                          {.dirs = options.disks,
                           .node = options.node.value_or(0),
                           .name = options.name.value_or(net::host_name()),
                           .domain = options.domain,
                           .boot_id = boot,
                           .format = options.format,
                           .direct = options.io == "direct",
                           .copy_rate = options.resync_limit,
                           .scrub_rate = options.scrub_limit,
                           .arena = arena,
                           .memory_disk = &disk,
                           .memory_dir = kMemoryDir});
  auto opened = run_task(daemon->loop(), cancel_on_stop(daemon->loop(), session.stop, node.open()));
  if (!opened) {
    run_task(daemon->loop(), node.close());
    return opened;
  }
  std::string address;
  Daemon::Service service;
  service.start = [&](const std::string& at) {
    address = at;
    std::vector<std::string> addresses = {at};
    run_task(daemon->loop(), node.start(std::move(addresses)));
  };
  service.drain = [&node] { return node.drain(); };
  service.close = [&node] { return node.close(); };
  service.status = [&] { return storage_status(node, address); };
  return daemon->run(std::move(service));
}

}  // namespace

void declare_serve_storage(Command& storage) {
  auto& options = storage.keep<ServeStorageOptions>();
  storage.about(
      "Runs a storage node: it serves the disks of a machine with the targets that the cluster "
      "manager places on them. Each directory given with --disk is one disk. At the first start ff "
      "formats the directories and the node gets a number, which the disks store; the node keeps "
      "this number as long as its disks exist, whatever its address.\n\nIf a disk fails, fills up "
      "or is missing, only its own targets become unavailable. ff refuses a directory that is not "
      "a disk of this node or belongs to another cluster, so it does not take an unmounted disk "
      "for a new one. Add new disks with --format.\n\nOn SIGTERM the node first hands over: the "
      "chains continue without it before it exits. After kill -9 the chains continue within "
      "seconds. Acknowledged writes survive both.");
  storage.option("--disk", dir(options.disks), "Directory of a disk");
  declare_meta(storage, options.meta);
  storage
      .option("--node", number(options.node, "N"),
              "Number of a new node; without it ff draws one. For an existing node ff checks it")
      .config("serve-storage.node");
  storage
      .option("--shards", number(options.shards, "N"),
              "Number of loops, each on a CPU of its own with the disks that it owns; default: one "
              "per CPU, up to 16, but not more than disks. Nodes of one machine with successive "
              "numbers use different CPUs")
      .config("serve-storage.shards");
  storage
      .option("--name", text(options.name, "NAME"),
              "Name for operators; without it the name of the machine")
      .config("serve-storage.name");
  storage
      .option("--failure-domain", text(options.domain, "NAME"),
              "Rack or host whose nodes fail together; no chain has two targets in one failure "
              "domain")
      .config("serve-storage.failure-domain")
      .old_config("serve-storage.domain")
      .alias("--domain");
  storage.flag("--format", options.format, "Format directories that are not disks yet");
  storage
      .option("--io", choice(options.io, {"direct", "buffered"}),
              "Bypass the page cache, or use it; small writes always use it")
      .config("serve-storage.io");
  storage
      .option("--resync-limit", size(options.resync_limit),
              "Maximum bytes per second for filling targets that come back; 0 means no limit")
      .config("serve-storage.resync-limit");
  storage
      .option("--scrub-limit", size(options.scrub_limit),
              "Maximum bytes per second for finding damage, which the chain then repairs; 0 "
              "disables scrubbing")
      .config("serve-storage.scrub-limit");
  declare_daemon(storage, options.daemon, "serve-storage");
  storage.example("ff serve-storage --disk /data/ff --key cluster.key", "one disk, one machine");
  storage.example(
      "ff serve-storage --disk /disk1 --disk /disk2 --listen '*:4410' --meta m1:4400,m2:4400 "
      "--key cluster.key",
      "one node of many");
  storage.run([&options](Session& session) { return run_serve_storage(session, options); });
}

}  // namespace ff::cmd
