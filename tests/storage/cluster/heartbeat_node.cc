// A node without storage, for tests of real managers: it sends heartbeats, creates its targets at
// once, and reports each copy as complete. It keeps its routing in memory only.
//
//   heartbeat_node ID MANAGER,MANAGER... DISKS [KEY-FILE]
//
// Lines on stdin: "disk N trouble TEXT" takes the targets of that disk offline, "disk N good"
// brings them back, "disk N used PERCENT" fills it. Prints "version V" for each routing version.
// Ends at the end of stdin.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "platform/auth/key.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "storage/cluster/heartbeat_sender.h"

namespace ff::cluster {
namespace {

constexpr uint64_t kDiskBytes = uint64_t{100} << 30;

class TestNode {
 public:
  TestNode(NodeId id, const std::string& managers, uint64_t disks, std::optional<auth::Key> key)
      : transport_(net::TransportOptions{.keyring = keyring_of(key)}),
        context_{loop_, transport_, grants_, metrics_, rng_, {.name = "node", .software = "test"}},
        member_(self(id, disks), {}),
        heartbeats_(context_, addresses(managers), member_, [this] { adopted(); }),
        gate_(loop_) {}

  void run() {
    gate_.spawn(heartbeats_.run());
    run_task(loop_, read_lines());
    run_task(loop_, gate_.close(fail(Errc::interrupted, "the end")));
    run_task(loop_, heartbeats_.close());
  }

 private:
  NodeInfo self(NodeId id, uint64_t disks) {
    NodeInfo node{.id = id,
                  .name = fmt::format("n{}", id),
                  .generation = static_cast<uint64_t>(clock_.wall_ns()),
                  .addresses = {fmt::format("127.0.0.1:{}", id)}};
    for (DiskId disk = 1; disk <= disks; disk++) {
      node.disks.push_back({disk, fmt::format("/disk{}", disk), kDiskBytes});
    }
    return node;
  }
  static std::shared_ptr<auth::Keyring> keyring_of(const std::optional<auth::Key>& root) {
    if (!root) return nullptr;
    return auth::Keyring::from_root(*root,
                                    auth::Entity{.role = auth::Role::storage, .name = "heartbeat"});
  }
  static std::vector<net::Address> addresses(const std::string& list) {
    std::vector<net::Address> all;
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');) {
      all.push_back(net::parse_address(word).value());
    }
    return all;
  }

  void adopted() {
    for (const TargetId id : member_.targets_to_create()) member_.set_usable(id, good(id));
    for (const auto& [id, chain] : member_.routing().chains) {
      for (const Target& target : chain.targets) {
        if (target.node != member_.self().id) continue;
        member_.set_usable(target.id, good(target.id));
        if (target.state == TargetState::syncing) member_.set_copied(target.id, chain.version);
      }
    }
    fmt::print("version {}\n", member_.routing().version);
    std::fflush(stdout);
    heartbeats_.request_heartbeat();
  }
  bool good(TargetId id) const {
    for (const auto& [chain_id, chain] : member_.routing().chains) {
      const Target* const target = find_target(chain, id);
      if (target != nullptr) return !disk_errors_.contains(target->disk);
    }
    return true;
  }

  Task<void> read_lines() {
    for (;;) {
      pollfd in = {STDIN_FILENO, POLLIN, 0};
      if (::poll(&in, 1, 0) > 0) {
        std::string line;
        if (!std::getline(std::cin, line)) co_return;
        take(line);
      }
      (void)co_await sleep_for(loop_, 20 * kMillisecond);
    }
  }
  void take(const std::string& line) {
    std::istringstream words(line);
    std::string disk, what, text;
    DiskId id = 0;
    words >> disk >> id >> what;
    std::getline(words, text);
    if (what == "trouble") disk_errors_[id] = text.substr(std::min<size_t>(1, text.size()));
    if (what == "good") disk_errors_.erase(id);
    if (what == "used") used_[id] = kDiskBytes / 100 * std::stoull(text);
    std::vector<DiskUsage> use;
    for (const DiskInfo& info : member_.self().disks) {
      const auto error = disk_errors_.find(info.id);
      use.push_back({info.id, used_[info.id], error == disk_errors_.end() ? "" : error->second});
    }
    member_.set_disk_usage(std::move(use));
    adopted();
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  net::SystemTransport transport_;
  rpc::GrantScheduler grants_;
  Metrics metrics_;
  auth::SecureRng rng_;
  rpc::ClientContext context_;
  Member member_;
  HeartbeatSender heartbeats_;
  std::map<DiskId, std::string> disk_errors_;
  std::map<DiskId, uint64_t> used_;
  Gate gate_;
};

}  // namespace
}  // namespace ff::cluster

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::optional<ff::auth::Key> key;
  if (argc > 4) {
    ff::io::SystemDisk disk;
    key = ff::auth::read_key_file(disk, argv[4]).value();
  }
  ff::cluster::TestNode node(std::stoull(argv[1]), argv[2], std::stoull(argv[3]), key);
  node.run();
  return 0;
}
