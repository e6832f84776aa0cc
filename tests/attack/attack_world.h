// A small cluster of real daemons with keys, and the parties that attack it: users with tokens, a
// mount, a storage node whose key was stolen, and processes of this machine that have no key.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/io/system_disk.h"

namespace ff::test {

using Words = std::vector<std::string>;

constexpr uint32_t kNobodyUid = 65534;

// How attackers connect: over everything that this machine has. RDMA: in a guest (rdma/guests.sh).
inline std::vector<const char*> nets() {
  std::error_code none;
  const bool rdma = !std::filesystem::is_empty("/sys/class/infiniband", none) && !none;
  if (rdma) return {"verbs"};
  return {"auto", "tcp"};
}

class AttackWorld {
 public:
  static constexpr int kNodes = 2;

  // `net`: how clients connect: "auto" (shared memory on this machine), "tcp", or "verbs" (RDMA).
  explicit AttackWorld(std::string net) : net_(std::move(net)) {
    io::SystemDisk disk;
    EXPECT_TRUE(auth::make_key_file(disk, root_key()).ok());
    start_meta();
    EXPECT_EQ(admin({"init"}).exit, 0);
    for (int node = 1; node <= kNodes; node++) {
      create_key(storage_entity(node), storage_key(node));
      start_storage(node);
    }
    until("all nodes report", [this] { return status()["nodes"].size() == kNodes; });
    const auto planned = admin({"plan", "--replicas", "2", "--targets-per-disk", "2", "--apply"});
    EXPECT_EQ(planned.exit, 0) << planned.err;
    until_whole();
  }
  ~AttackWorld() {
    for (auto* child : {meta_.get(), storage_[1].get(), storage_[2].get()}) {
      if (child == nullptr) continue;
      child->signal(SIGKILL);
      child->finish();
      if (testing::Test::HasFailure()) std::cerr << child->err << "\n";
    }
  }
  AttackWorld(const AttackWorld&) = delete;
  AttackWorld& operator=(const AttackWorld&) = delete;

  const std::string& address() const { return address_; }
  std::string root_key() const { return dir_ / "cluster.key"; }
  static std::string storage_entity(int node) { return "storage/s" + std::to_string(node); }
  std::string storage_key(int node) const { return dir_ / ("s" + std::to_string(node) + ".key"); }
  std::string file(const std::string& name) const { return dir_ / name; }
  Child& meta() { return *meta_; }
  Child& storage(int node) { return *storage_[static_cast<size_t>(node)]; }

  void start_meta() {
    meta_ = std::make_unique<Child>(Launch{
        .argv = {FF_BINARY, "serve-meta", "--listen", address_, "--dir", dir_ / "meta", "--key",
                 root_key(), "--net", net_of_daemons(), "--audit", dir_ / "audit.log"},
        .env = keyed()});
    EXPECT_TRUE(meta_->wait_for_out("\n")) << meta_->err;
    address_ = meta_->out.substr(meta_->out.rfind(' ', meta_->out.find('\n')) + 1);
    address_.resize(address_.find('\n'));
  }
  void start_storage(int node) {
    auto& child = storage_[static_cast<size_t>(node)];
    child = std::make_unique<Child>(
        Launch{.argv = {FF_BINARY, "serve-storage", "--node", std::to_string(node), "--listen",
                        "127.0.0.1:0", "--meta", address_, "--key", storage_key(node), "--net",
                        net_of_daemons(), "--disk", dir_ / ("disk" + std::to_string(node))},
               .env = keyed()});
    EXPECT_TRUE(child->wait_for_out("listening")) << child->err;
  }
  void restart_storage(int node) {
    storage(node).signal(SIGTERM);
    storage(node).finish();
    start_storage(node);
    until_whole();
  }

  // ff as a holder of this key file; commands on files take paths like "ff:///a".
  ProcessResult with_key(const std::string& key, Words words) const {
    words.insert(words.begin(), FF_BINARY);
    return run({.argv = std::move(words), .env = keyed({{"FF_KEY", key}})});
  }
  ProcessResult with_token(const std::string& token, Words words) const {
    words.insert(words.begin(), FF_BINARY);
    return run({.argv = std::move(words),
                .env = keyed({{"FF_TOKEN_FILE", token}, {"FF_NET", net_of_daemons()}})});
  }
  ProcessResult root(Words words) const { return with_key(root_key(), std::move(words)); }
  ProcessResult admin(Words words) const {
    words.insert(words.begin(), "admin");
    return root(std::move(words));
  }
  ProcessResult good(Words words) const {
    auto ran = root(words);
    EXPECT_EQ(ran.exit, 0) << testing::PrintToString(words) << "\n" << ran.err;
    return ran;
  }
  void create_key(const std::string& entity, const std::string& path, Words options = {}) {
    Words words = {"key", "create", entity, "--key-file", path};
    words.insert(words.end(), options.begin(), options.end());
    const auto made = admin(words);
    ASSERT_EQ(made.exit, 0) << made.err;
  }
  // A user's token; returns its file.
  std::string add_user(const std::string& name, uint32_t uid) {
    const std::string path = file(name + ".token");
    const auto made =
        admin({"user", "add", name, "--uid", std::to_string(uid), "--token-file", path});
    EXPECT_EQ(made.exit, 0) << made.err;
    return path;
  }
  std::map<std::string, std::string> keyed(std::map<std::string, std::string> more = {}) const {
    more.insert({{"FF_META", address_}, {"FF_NET", net_}, {"FF_INSECURE", "0"}});
    return more;
  }
  const std::string& net() const { return net_; }

  nlohmann::json status() const {
    const auto parsed = nlohmann::json::parse(admin({"status", "--json"}).out, nullptr, false);
    return parsed.is_object() && parsed["data"].is_object() ? parsed["data"]
                                                            : nlohmann::json::object();
  }
  void until_whole() {
    until("all chains serve", [this] {
      const auto chains = status()["chains"];
      return chains.is_object() && chains["all"] > 0 && chains["all"] == chains["whole"];
    });
  }
  static void until(const std::string& what, const std::function<bool()>& condition) {
    EXPECT_TRUE(eventually(condition)) << "timed out waiting until " << what;
  }
  // The lines of the manager's audit log with this event.
  std::vector<nlohmann::json> audited(const std::string& event) const {
    std::vector<nlohmann::json> found;
    std::ifstream lines(dir_ / "audit.log");
    for (std::string line; std::getline(lines, line);) {
      auto parsed = nlohmann::json::parse(line);
      if (parsed["event"] == event) found.push_back(std::move(parsed));
    }
    return found;
  }

 private:
  // Users do not get RDMA.
  std::string net_of_daemons() const { return net_ == "verbs" ? "auto" : net_; }

  const std::string net_;
  TempDir dir_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<Child> meta_;
  std::array<std::unique_ptr<Child>, kNodes + 1> storage_;
};

// The number in a line like "VmRSS:   1234 kB" of /proc/PID/status.
inline uint64_t status_number(pid_t pid, const std::string& name) {
  std::ifstream lines("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
  }
  return 0;
}

}  // namespace ff::test
