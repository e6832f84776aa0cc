// `ff serve-storage`: the daemon of a storage node, with the disks of one machine.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/daemon.h"
#include "cmd/cli/stop_watch.h"
#include "cmd/options/meta_option.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "storage/chain/storage_node.h"

namespace ff::cmd {
namespace {

// Where data under way lies, for other daemons of this host to reach; only what is used is taken.
constexpr uint64_t kBlockMemory = 512 * kMiB;

struct ServeStorageOptions {
  DaemonOptions daemon = {.listen = "127.0.0.1:4410", .advertise = {}, .http = {}, .net = {}};
  std::string meta = kDefaultMeta;
  std::vector<std::string> disks;
  std::optional<uint64_t> node;
  std::optional<std::string> name;
  std::string domain;
  std::string io = "direct";
  uint64_t resync_limit = 0;
  uint64_t scrub_limit = 16 * kMiB;
  bool format = false;
};

// What the kernel calls this boot of the machine: another one may have lost what was not synced.
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
      {"disks", Json::array()}};
  for (const auto& disk : node.disks()) {
    Json entry = {{"disk", disk.id},
                  {"dir", disk.dir},
                  {"trouble", disk.error.empty() ? Json(nullptr) : Json(disk.error)},
                  {"capacity", disk.space.total},
                  {"free", disk.space.free},
                  {"targets", Json::array()}};
    if (disk.store != nullptr) {
      entry["direct"] = disk.store->direct();
      for (const chunk::TargetInfo& target : disk.store->targets()) {
        entry["targets"].push_back(target_status(node, target));
      }
    }
    json["disks"].push_back(std::move(entry));
  }
  return json.dump();
}

Result<void> run_serve_storage(Session& session, const ServeStorageOptions& options) {
  if (options.disks.empty()) {
    Error error = fail(Errc::usage, "no disk is given");
    error.hint = "Name a folder for each disk: --disk DIR, as often as there are disks.";
    return error;
  }
  if (options.node && *options.node == 0) return fail(Errc::usage, "--node 0: from 1 on");
  FF_TRY(const auto managers, parse_meta(options.meta));
  FF_TRY(const auto daemon, Daemon::make(session, options.daemon, "serve-storage"));
  io::SystemDisk disk;
  FF_TRY(const std::string boot, boot_id(disk));
  FF_TRY(const ByteSpan arena, daemon->shared_memory(kBlockMemory));
  chain::StorageNode node(daemon->client(), disk, daemon->router(), managers,
                          {.dirs = options.disks,
                           .node = options.node.value_or(0),
                           .name = options.name.value_or(net::host_name()),
                           .domain = options.domain,
                           .boot_id = boot,
                           .format = options.format,
                           .direct = options.io == "direct",
                           .copy_rate = options.resync_limit,
                           .scrub_rate = options.scrub_limit,
                           .arena = arena});
  auto opened = run_task(daemon->loop(), stoppable(daemon->loop(), session.stop, node.open()));
  if (!opened) {
    run_task(daemon->loop(), node.close());
    return opened;
  }
  std::string address;
  Daemon::Service service;
  service.start = [&](const std::string& at) {
    address = at;
    node.start({at});
  };
  service.stop = [&node] { return node.drain(); };
  service.end = [&node] { return node.close(); };
  service.status = [&] { return storage_status(node, address); };
  return daemon->run(std::move(service));
}

}  // namespace

void declare_serve_storage(Command& storage) {
  auto& options = storage.keep<ServeStorageOptions>();
  storage.about(
      "Runs a storage node: the disks of a machine, with the targets that the cluster manager puts "
      "on them. Each folder given with --disk is one disk. At the first start they are made, and "
      "the node gets a number, which they keep; it is the same node for as long as they are there, "
      "whatever its address.\n\n"
      "A disk that fails, fills up or is missing takes only its own targets down. A folder that "
      "is none of the node's disks is refused, as is one of another cluster: a disk that was not "
      "mounted is not taken for a new one. New disks join with --format.\n\n"
      "SIGTERM hands over first: chains go on without this node before it ends. After kill -9 they "
      "do within some seconds. What was acknowledged outlives both.");
  storage.option("--disk", dir(options.disks), "Folder of a disk; give it once for each");
  declare_meta(storage, options.meta);
  storage
      .option("--node", number(options.node, "N"),
              "The number of a new node; without it one is drawn. For a known one it is checked")
      .config("serve-storage.node");
  storage
      .option("--name", text(options.name, "NAME"),
              "What operators see of it; without it the name of this machine")
      .config("serve-storage.name");
  storage
      .option("--domain", text(options.domain, "NAME"),
              "What fails together with it, a rack or a host: no chain has two targets there")
      .config("serve-storage.domain");
  storage.flag("--format", options.format, "Make disks of folders that are none yet");
  storage
      .option("--io", choice(options.io, {"direct", "buffered"}),
              "Past the page cache, or through it; small writes go through it either way")
      .config("serve-storage.io");
  storage
      .option("--resync-limit", size(options.resync_limit),
              "Bytes a second copied to targets that come back; 0 is no limit")
      .config("serve-storage.resync-limit");
  storage
      .option("--scrub-limit", size(options.scrub_limit),
              "Bytes a second read to look for damage, which the chain then repairs; 0: none are")
      .config("serve-storage.scrub-limit");
  declare_daemon(storage, options.daemon, "serve-storage");
  storage.example("ff serve-storage --disk /data/ff", "one disk, one machine");
  storage.example(
      "ff serve-storage --disk /disk1 --disk /disk2 --listen '*:4410' --meta m1:4400,m2:4400 "
      "--key cluster.key",
      "one node of many");
  storage.run([&options](Session& session) { return run_serve_storage(session, options); });
}

}  // namespace ff::cmd
