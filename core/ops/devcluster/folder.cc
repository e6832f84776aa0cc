// folder.cc: the notes, ports and command lines of a cluster on one machine.
#include "ops/devcluster/folder.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
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
constexpr uint16_t kFirstPort = 10000;
constexpr uint16_t kPorts = 20000;  // from there on; the kernel's own begin at 32768
constexpr unsigned kTries = 1000;
constexpr const char* kHost = "127.0.0.1";

Error unreadable(const std::string& path, const std::string& why) {
  Error error = fail(Errc::corrupt, "{}: not what ff writes: {}", path, why);
  error.hint = "Put a copy back, or use another folder.";
  return error;
}

// Reads a note with `read`, which may throw.
template <class T, class Read>
Result<T> parse(const std::string& path, const std::string& text, Read read) {
  try {
    const Json json = Json::parse(text);
    if (json.at("ff_up").get<uint64_t>() != kFormat) {
      Error error = fail(Errc::newer_format, "{}: written by a newer ff", path);
      error.hint = std::string("Use that one.");
      return error;
    }
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    return unreadable(path, error.what());
  }
}

Made read_made(const Json& json) {
  Made made;
  made.shape = {.storage = json.at("storage"),
                .replicas = json.at("replicas"),
                .targets_per_disk = json.at("targets_per_disk")};
  made.formed = json.at("formed");
  made.meta = json.at("addresses").at("meta");
  made.storage = json.at("addresses").at("storage").get<std::vector<std::string>>();
  made.scheduler = json.at("addresses").value("scheduler", "");
  made.agent = json.at("addresses").value("agent", "");
  return made;
}

Json to_json(const Standing& one) {
  return {{"name", printable(one.name)},
          {"pid", one.pid},
          {"serves", one.serves},
          {"served", one.served},
          {"restarts", one.restarts},
          {"ended_ns", one.ended_ns},
          {"end", printable(one.end)},
          {"last_words", [&one] {
             Json lines = Json::array();
             for (const std::string& line : one.last_words) lines.push_back(printable(line));
             return lines;
           }()}};
}

Running read_running(const Json& json) {
  Running running{.supervisor = json.at("supervisor"),
                  .since_ns = json.at("since_ns"),
                  .mount = json.at("mount"),
                  .schedule = json.value("schedule", false),
                  .services = {}};
  for (const Json& one : json.at("daemons")) {
    running.services.push_back(
        {.name = one.at("name"),
         .pid = one.at("pid"),
         .serves = one.at("serves"),
         .served = one.at("served"),
         .restarts = one.at("restarts"),
         .ended_ns = one.at("ended_ns"),
         .end = one.at("end"),
         .last_words = one.at("last_words").get<std::vector<std::string>>()});
  }
  return running;
}

// Whether a daemon could listen there.
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

// Gives `address` a port when it has none, or one that is not free any more; true: the latter.
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

std::string describe(const Shape& shape) {
  return fmt::format("{} storage {}, {} {}, {} targets a disk", shape.storage,
                     shape.storage == 1 ? "daemon" : "daemons", shape.replicas,
                     shape.replicas == 1 ? "replica" : "replicas", shape.targets_per_disk);
}

Result<void> Folder::make(std::string_view mount) {
  FF_TRY(io::make_dirs(disk_, path_, 0700));
  FF_TRY(const bool ours, io::exists(disk_, file("made.json")));
  if (ours) return {};
  FF_TRY(const auto entries, disk_.list(path_));
  static const std::set<std::string> kBegun = {"lock", "cluster.key", "made.json.new.tmp"};
  for (const io::DirEntry& entry : entries) {
    if (kBegun.contains(entry.name) || file(entry.name) == mount) continue;
    Error error = fail(Errc::refused, "{}: it is not empty ({}), and no folder of 'ff up'", path_,
                       printable(entry.name));
    error.hint = "Name a new folder, or an empty one, with --dir.";
    return error;
  }
  return {};
}

Result<std::unique_ptr<io::File>> Folder::lock() { return io::lock_file(disk_, file("lock")); }

Result<void> Folder::fill(const Shape& shape) {
  auto made = auth::make_key_file(disk_, key());
  if (!made && made.error().code != Errc::exists) return made;
  Made note;
  note.shape = shape;
  note.storage.resize(shape.storage);
  return set_made(note);
}

Result<Made> Folder::made() {
  const std::string path = file("made.json");
  FF_TRY(const std::string text, io::read_file(disk_, path, kNoteMax));
  FF_TRY(Made made, parse<Made>(path, text, read_made));
  if (made.shape.storage == 0 || made.storage.size() != made.shape.storage) {
    return unreadable(path, "the numbers of daemons differ");
  }
  return made;
}

Result<void> Folder::set_made(const Made& made) {
  const Json json = {{"ff_up", kFormat},
                     {"storage", made.shape.storage},
                     {"replicas", made.shape.replicas},
                     {"targets_per_disk", made.shape.targets_per_disk},
                     {"formed", made.formed},
                     {"addresses",
                      {{"meta", made.meta},
                       {"storage", made.storage},
                       {"scheduler", made.scheduler},
                       {"agent", made.agent}}}};
  return io::replace_file(disk_, file("made.json"), json.dump(2) + "\n", "new");
}

Result<Running> Folder::running() {
  const std::string path = file("running.json");
  FF_TRY(const std::string text, io::read_file(disk_, path, kNoteMax));
  return parse<Running>(path, text, read_running);
}

Result<void> Folder::set_running(const Running& running) {
  Json json = {
      {"ff_up", kFormat},       {"supervisor", running.supervisor}, {"since_ns", running.since_ns},
      {"mount", running.mount}, {"schedule", running.schedule},     {"daemons", Json::array()}};
  for (const Standing& one : running.services) json["daemons"].push_back(to_json(one));
  return io::replace_file(disk_, file("running.json"), json.dump(2) + "\n", "new");
}

Result<void> Folder::forget_running() {
  auto removed = disk_.remove(file("running.json"));
  if (!removed && removed.error().code != Errc::not_found) return removed;
  return {};
}

bool Folder::any_left(const Running& running) {
  return std::ranges::any_of(running.services, [this](const Standing& one) {
    if (one.pid <= 0) return false;
    const auto line = io::read_file(disk_, fmt::format("/proc/{}/cmdline", one.pid), kNoteMax);
    const auto status = io::read_file(disk_, fmt::format("/proc/{}/status", one.pid), kNoteMax);
    if (!line || !status) return false;
    // Its number may be another process's by now: that one does not name the folder's key.
    if (!line->empty()) return line->find(key()) != line->npos;
    // Without a line it is about to end, and may hold locks and ports still; or it is a thread of
    // the kernel's, or has ended and waits for whoever asks how.
    const auto says = [&status](const char* what) { return status->find(what) != status->npos; };
    return !says("\nPPid:\t2\n") && !(says("\nState:\tZ") && says("\nThreads:\t1\n"));
  });
}

std::vector<Service> Folder::daemons(const Made& made) {
  const std::string serves = "listening on ";
  std::vector<Service> all = {{.name = "meta",
                               .argv = {"serve-meta", "--kv", "sqlite", "--dir", meta(), "--listen",
                                        made.meta, "--key", key()},
                               .serves = serves,
                               .rank = 0}};
  for (uint64_t number = 1; number <= made.shape.storage; number++) {
    const std::string name = fmt::format("storage-{}", number);
    all.push_back({.name = name,
                   .argv = {"serve-storage", "--node", fmt::to_string(number), "--name", name,
                            "--disk", storage(number), "--listen", made.storage[number - 1],
                            "--meta", made.meta, "--key", key()},
                   .serves = serves,
                   .rank = 1});
  }
  return all;
}

std::vector<Service> Folder::schedule_services(const Made& made) {
  const std::string serves = "listening on ";
  return {
      {.name = "scheduler",
       .argv = {"schedule", "serve", "--kv", "sqlite", "--dir", file("scheduler"), "--listen",
                made.scheduler, "--validate-every", "never", "--meta", made.meta, "--key", key()},
       .serves = serves,
       .rank = 0},
      {.name = "agent",
       .argv = {"schedule", "agent", "--end-tasks", "--scheduler", made.scheduler, "--dir",
                file("agent"), "--listen", made.agent, "--key", key()},
       .serves = serves,
       .rank = 3}};
}

Service Folder::mount_service(const Made& made, const std::string& mount) {
  return {.name = "mount",
          .argv = {"mount", "/", mount, "--wait", "--meta", made.meta, "--key", key()},
          .serves = " is mounted on ",
          .rank = 2};
}

Result<bool> Folder::purge() {
  FF_TRY(const Made note, made());
  std::vector<std::string> names = {
      "running.json", "running.json.new.tmp", "made.json.new.tmp", "meta", "log", "scheduler",
      "agent"};
  for (uint64_t number = 1; number <= note.shape.storage; number++) {
    FF_TRY(io::remove_tree(disk_, storage(number)));
  }
  for (const std::string& name : names) FF_TRY(io::remove_tree(disk_, file(name)));
  // The key and what marks the folder last: what was interrupted can be done again.
  for (const std::string name : {"cluster.key", "made.json", "lock"}) {
    FF_TRY(io::remove_tree(disk_, file(name)));
  }
  FF_TRY(const auto left, disk_.list(path_));
  if (!left.empty()) return false;
  FF_TRY(disk_.remove_dir(path_));
  return true;
}

Result<std::vector<std::string>> choose_ports(Made& made, bool schedule, Rng& rng) {
  std::set<uint16_t> taken;
  std::vector<std::string*> all = {&made.meta};
  for (std::string& address : made.storage) all.push_back(&address);
  if (schedule) all.insert(all.end(), {&made.scheduler, &made.agent});
  for (const std::string* address : all) {
    if (address->empty()) continue;
    FF_TRY(const auto parsed, net::parse_address(*address));
    taken.insert(parsed.port);
  }
  std::vector<std::string> told;
  for (std::string* address : all) {
    const std::string before = *address;
    FF_TRY(const bool changed, choose(*address, taken, rng));
    if (changed) {
      told.push_back(
          fmt::format("{} is another program's now; this uses {} from now on", before, *address));
    }
  }
  return told;
}

}  // namespace ff::devcluster
