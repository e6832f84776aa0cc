// cluster_dir.cc: configuration, status, ports and command lines of a cluster on one machine.
#include "ops/devcluster/cluster_dir.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "platform/auth/key.h"
#include "platform/base/fd.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/net/address.h"

namespace ff::devcluster {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kFormat = 1;
constexpr uint64_t kNoteMax = 1 << 20;  // bytes
constexpr uint64_t kLogMax = 16 << 20;  // more than a log has (ServiceManager::Options)
constexpr uint16_t kFirstPort = 10000;
constexpr uint16_t kPorts = 20000;  // the ephemeral range begins at 32768
constexpr unsigned kTries = 1000;
constexpr const char* kHost = "127.0.0.1";

Error unreadable(const std::string& path, const std::string& why) {
  Error error = fail(Errc::corrupt, "{}: not what ff writes: {}", path, why);
  error.hint = "Restore a copy, or use another folder.";
  return error;
}

// Parses a JSON file with `read`, which may throw.
template <class T, class Read>
Result<T> parse(const std::string& path, const std::string& text, Read read) {
  try {
    const Json json = Json::parse(text);
    if (json.at("ff_up").get<uint64_t>() != kFormat) {
      Error error = fail(Errc::newer_format, "{}: written by a newer ff", path);
      error.hint = std::string("Use that version.");
      return error;
    }
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    return unreadable(path, error.what());
  }
}

ClusterConfig read_config(const Json& json) {
  ClusterConfig config;
  config.shape = {.storage = json.at("storage"),
                  .replicas = json.at("replicas"),
                  .targets_per_disk = json.at("targets_per_disk")};
  config.formed = json.at("formed");
  config.meta = json.at("addresses").at("meta");
  config.storage = json.at("addresses").at("storage").get<std::vector<std::string>>();
  config.scheduler = json.at("addresses").value("scheduler", "");
  config.agent = json.at("addresses").value("agent", "");
  config.page = json.at("addresses").value("page", "");
  config.redis = json.at("addresses").value("redis", "");
  config.s3 = json.at("addresses").value("s3", "");
  return config;
}

Json to_json(const ServiceStatus& one) {
  return {{"name", printable(one.name)},
          {"pid", one.pid},
          {"serves", one.ready},
          {"served", one.was_ready},
          {"restarts", one.restarts},
          {"ended_ns", one.exited_ns},
          {"end", printable(one.exit_text)},
          {"last_words", [&one] {
             Json lines = Json::array();
             for (const std::string& line : one.last_output) lines.push_back(printable(line));
             return lines;
           }()}};
}

ClusterStatus read_status(const Json& json) {
  ClusterStatus status{.supervisor = json.at("supervisor"),
                       .since_ns = json.at("since_ns"),
                       .mount = json.at("mount"),
                       .schedule = json.value("schedule", false),
                       .kv = json.value("kv", false),
                       .services = {}};
  for (const Json& one : json.at("daemons")) {
    status.services.push_back(
        {.name = one.at("name"),
         .pid = one.at("pid"),
         .ready = one.at("serves"),
         .was_ready = one.at("served"),
         .restarts = one.at("restarts"),
         .exited_ns = one.at("ended_ns"),
         .exit_text = one.at("end"),
         .last_output = one.at("last_words").get<std::vector<std::string>>()});
  }
  return status;
}

// Whether a daemon could listen on the port.
bool is_free(uint16_t port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
         ::listen(socket.get(), 1) == 0;
}

// Chooses a port if `address` has none, or if its port is no longer free. True: an existing port
// was replaced.
Result<bool> choose(std::string& address, std::set<uint16_t>& taken, Rng& rng) {
  const bool had_one = !address.empty();
  if (had_one) {
    FF_TRY(const auto parsed, net::parse_address(address));
    if (is_free(parsed.port)) return false;
  }
  for (unsigned i = 0; i < kTries; i++) {
    const auto port = static_cast<uint16_t>(kFirstPort + rng.below(kPorts));
    if (taken.contains(port) || !is_free(port)) continue;
    taken.insert(port);
    address = fmt::format("{}:{}", kHost, port);
    return had_one;
  }
  return fail(Errc::busy, "no port of {} is free between {} and {}", kHost, kFirstPort,
              kFirstPort + kPorts);
}

}  // namespace

std::string describe(const ClusterShape& shape) {
  return fmt::format("{} storage {}, {} {}, {} targets a disk", shape.storage,
                     shape.storage == 1 ? "daemon" : "daemons", shape.replicas,
                     shape.replicas == 1 ? "replica" : "replicas", shape.targets_per_disk);
}

Result<void> ClusterDir::create(std::string_view mount) {
  FF_TRY(io::make_dirs(disk_, path_, 0700));
  FF_TRY(const bool ours, io::exists(disk_, file("made.json")));
  if (ours) return {};
  FF_TRY(const auto entries, disk_.list(path_));
  static const std::set<std::string> kBegun = {"lock", "cluster.key", "made.json.new.tmp"};
  for (const io::DirEntry& entry : entries) {
    if (kBegun.contains(entry.name) || file(entry.name) == mount) continue;
    Error error = fail(Errc::refused, "{}: not empty ({}), and not a folder of 'ff up'", path_,
                       printable(entry.name));
    error.hint = "Name a new folder, or an empty one, with --dir.";
    return error;
  }
  return {};
}

Result<std::unique_ptr<io::File>> ClusterDir::lock() { return io::lock_file(disk_, file("lock")); }

Result<void> ClusterDir::initialize(const ClusterShape& shape) {
  auto config = auth::make_key_file(disk_, key());
  if (!config && config.error().code != Errc::exists) return config;
  ClusterConfig note;
  note.shape = shape;
  note.storage.resize(shape.storage);
  return set_config(note);
}

Result<ClusterConfig> ClusterDir::config() {
  const std::string path = file("made.json");
  FF_TRY(const std::string text, io::read_file(disk_, path, kNoteMax));
  FF_TRY(ClusterConfig config, parse<ClusterConfig>(path, text, read_config));
  if (config.shape.storage == 0 || config.storage.size() != config.shape.storage) {
    return unreadable(path, "the numbers of daemons differ");
  }
  return config;
}

Result<void> ClusterDir::set_config(const ClusterConfig& config) {
  const Json json = {{"ff_up", kFormat},
                     {"storage", config.shape.storage},
                     {"replicas", config.shape.replicas},
                     {"targets_per_disk", config.shape.targets_per_disk},
                     {"formed", config.formed},
                     {"addresses",
                      {{"meta", config.meta},
                       {"storage", config.storage},
                       {"scheduler", config.scheduler},
                       {"agent", config.agent},
                       {"page", config.page},
                       {"redis", config.redis},
                       {"s3", config.s3}}}};
  return io::replace_file(disk_, file("made.json"), json.dump(2) + "\n", "new");
}

Result<ClusterStatus> ClusterDir::status() {
  const std::string path = file("running.json");
  FF_TRY(const std::string text, io::read_file(disk_, path, kNoteMax));
  return parse<ClusterStatus>(path, text, read_status);
}

Result<void> ClusterDir::set_status(const ClusterStatus& status) {
  Json json = {
      {"ff_up", kFormat},        {"supervisor", status.supervisor}, {"since_ns", status.since_ns},
      {"mount", status.mount},   {"schedule", status.schedule},     {"kv", status.kv},
      {"daemons", Json::array()}};
  for (const ServiceStatus& one : status.services) json["daemons"].push_back(to_json(one));
  return io::replace_file(disk_, file("running.json"), json.dump(2) + "\n", "new");
}

Result<void> ClusterDir::clear_status() {
  auto removed = disk_.remove(file("running.json"));
  if (!removed && removed.error().code != Errc::not_found) return removed;
  return {};
}

std::optional<ClusterDir::ProcessFiles> ClusterDir::process_files(pid_t pid) {
  auto line = io::read_file(disk_, fmt::format("/proc/{}/cmdline", pid), kNoteMax);
  auto status = io::read_file(disk_, fmt::format("/proc/{}/status", pid), kNoteMax);
  if (!line || !status) return std::nullopt;
  return ProcessFiles{std::move(*line), std::move(*status)};
}

bool ClusterDir::is_supervised(const ClusterStatus& status) {
  const auto process = process_files(status.supervisor);
  if (!process || process->command_line.empty()) return false;
  // Signals that wait for the thread and for the process, as bits in hexadecimal digits (proc(5)).
  constexpr uint64_t kKill = uint64_t{1} << (SIGKILL - 1);
  const std::string_view text = process->status;
  for (const std::string_view name : {"\nSigPnd:\t", "\nShdPnd:\t"}) {
    const size_t at = text.find(name);
    if (at == text.npos) continue;
    const std::string digits(text.substr(at + name.size(), 16));
    if ((std::strtoull(digits.c_str(), nullptr, 16) & kKill) != 0) return false;
  }
  return true;
}

bool ClusterDir::any_process_left(const ClusterStatus& status) {
  return std::ranges::any_of(status.services, [this](const ServiceStatus& one) {
    if (one.pid <= 0) return false;
    const auto process = process_files(one.pid);
    if (!process) return false;
    // The pid may have been reused: another process does not name the key of this folder.
    const std::string& line = process->command_line;
    if (!line.empty()) return line.find(key()) != line.npos;
    // With an empty command line it is exiting, and may still hold locks and ports; or it is a
    // kernel thread or a zombie.
    const auto says = [&](const char* what) {
      return process->status.find(what) != process->status.npos;
    };
    return !says("\nPPid:\t2\n") && !(says("\nState:\tZ") && says("\nThreads:\t1\n"));
  });
}

std::vector<ServiceSpec> ClusterDir::daemons(const ClusterConfig& config) {
  const std::string ready_text = "listening on ";
  std::vector<ServiceSpec> all = {{.name = "meta",
                                   .argv = {"serve-meta", "--kv", "sqlite", "--dir", meta(),
                                            "--listen", config.meta, "--key", key()},
                                   .ready_text = ready_text,
                                   .stop_priority = 0}};
  for (uint64_t number = 1; number <= config.shape.storage; number++) {
    const std::string name = fmt::format("storage-{}", number);
    all.push_back({.name = name,
                   .argv = {"serve-storage", "--node", fmt::to_string(number), "--name", name,
                            "--disk", storage(number), "--listen", config.storage[number - 1],
                            "--meta", config.meta, "--key", key()},
                   .ready_text = ready_text,
                   .stop_priority = 1});
  }
  return all;
}

std::vector<ServiceSpec> ClusterDir::schedule_services(const ClusterConfig& config) {
  const std::string ready_text = "listening on ";
  return {{.name = "scheduler",
           .argv = {"schedule", "serve", "--kv", "sqlite", "--dir", file("scheduler"), "--listen",
                    config.scheduler, "--http", config.page, "--validate-every", "never", "--meta",
                    config.meta, "--key", key()},
           .ready_text = ready_text,
           .stop_priority = 0},
          {.name = "agent",
           .argv = {"schedule", "agent", "--end-tasks", "--scheduler", config.scheduler, "--dir",
                    file("agent"), "--listen", config.agent, "--key", key()},
           .ready_text = ready_text,
           .stop_priority = 3}};
}

ServiceSpec ClusterDir::mount_service(const ClusterConfig& config, const std::string& mount) {
  return {.name = "mount",
          .argv = {"mount", "/", mount, "--wait", "--meta", config.meta, "--key", key()},
          .ready_text = " is mounted on ",
          .stop_priority = 2};
}

ServiceSpec ClusterDir::kv_service(const ClusterConfig& config) {
  return {.name = "kv",
          .argv = {"serve-kv", fmt::format("ff:///{}", kKeysAndValues), "--listen", config.redis,
                   "--s3-listen", config.s3, "--s3-root", fmt::format("ff:///{}", kObjects),
                   "--meta", config.meta, "--key", key()},
          .ready_text = "listening on ",
          .stop_priority = 2};
}

std::string ClusterDir::page_link(const ClusterConfig& config) {
  const std::string page = "http://" + config.page + "/";
  const auto log = io::read_file(disk_, logs() + "/scheduler.log", kLogMax);
  const size_t at = log ? log->rfind(page + "login?token=") : std::string::npos;
  if (at == std::string::npos) return page;
  return log->substr(at, log->find_first_of(" \"\n", at) - at);
}

Result<bool> ClusterDir::purge() {
  FF_TRY(const ClusterConfig note, config());
  std::vector<std::string> names = {"running.json",
                                    "running.json.new.tmp",
                                    "made.json.new.tmp",
                                    "meta",
                                    "log",
                                    "scheduler",
                                    "agent",
                                    "kv.key",
                                    "kv.key.new.tmp"};
  for (uint64_t number = 1; number <= note.shape.storage; number++) {
    FF_TRY(io::remove_tree(disk_, storage(number)));
  }
  for (const std::string& name : names) FF_TRY(io::remove_tree(disk_, file(name)));
  // The key and the marker of the folder go last, so that an interrupted purge can be repeated.
  for (const std::string name : {"cluster.key", "made.json", "lock"}) {
    FF_TRY(io::remove_tree(disk_, file(name)));
  }
  FF_TRY(const auto left, disk_.list(path_));
  if (!left.empty()) return false;
  FF_TRY(disk_.remove_dir(path_));
  return true;
}

Result<std::vector<std::string>> choose_ports(ClusterConfig& config, OptionalDaemons extras,
                                              Rng& rng) {
  std::set<uint16_t> taken;
  std::vector<std::string*> all = {&config.meta};
  for (std::string& address : config.storage) all.push_back(&address);
  if (extras.schedule) all.insert(all.end(), {&config.scheduler, &config.agent, &config.page});
  if (extras.kv) all.insert(all.end(), {&config.redis, &config.s3});
  for (const std::string* address : all) {
    if (address->empty()) continue;
    FF_TRY(const auto parsed, net::parse_address(*address));
    taken.insert(parsed.port);
  }
  std::vector<std::string> messages;
  for (std::string* address : all) {
    const std::string before = *address;
    FF_TRY(const bool changed, choose(*address, taken, rng));
    if (changed) {
      messages.push_back(
          fmt::format("{} is another program's now; this uses {} from now on", before, *address));
    }
  }
  return messages;
}

}  // namespace ff::devcluster
