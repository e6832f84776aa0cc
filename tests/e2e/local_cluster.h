// A cluster of real daemons on this machine: a manager and three storage nodes, two replicas.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "platform/base/clock.h"

namespace ff::test {

class LocalCluster {
 public:
  static constexpr size_t kNodes = 3;

  LocalCluster() {
    start_meta();
    EXPECT_EQ(admin({"init"}).exit, 0);
    for (size_t node = 1; node <= kNodes; node++) start(node);
    until("all nodes report", [this] { return status()["nodes"].size() == kNodes; });
    const ProcessResult planned =
        admin({"plan", "--replicas", "2", "--targets-per-disk", "4", "--apply"});
    EXPECT_EQ(planned.exit, 0) << planned.err;
    until_whole();
  }
  ~LocalCluster() {
    for (size_t node = 1; node <= kNodes; node++) kill(node);
    meta_->signal(SIGKILL);
  }

  const std::string& address() const { return address_; }
  // At its previous address, if there was one.
  void start_meta() {
    meta_ = std::make_unique<Child>(
        Launch{.argv = {FF_BINARY, "serve-meta", "--listen", address_, "--dir", dir_ / "meta"}});
    EXPECT_TRUE(meta_->wait_for_out("\n")) << meta_->err;
    address_ = meta_->out.substr(meta_->out.rfind(' ', meta_->out.find('\n')) + 1);
    address_.resize(address_.find('\n'));
  }
  void kill_meta() {
    meta_->signal(SIGKILL);
    meta_->finish();
  }
  // Copies the disk of the manager. After restore_meta_disk() all later changes are lost.
  void snapshot_meta_disk() {
    meta_->signal(SIGSTOP);
    std::filesystem::copy(dir_ / "meta", dir_ / "kept", std::filesystem::copy_options::recursive);
    meta_->signal(SIGCONT);
  }
  void restore_meta_disk() {
    std::filesystem::remove_all(dir_ / "meta");
    std::filesystem::rename(dir_ / "kept", dir_ / "meta");
  }
  void start(size_t node) {
    nodes_[node] = std::make_unique<Child>(
        Launch{.argv = {FF_BINARY, "serve-storage", "--node", std::to_string(node), "--listen",
                        "127.0.0.1:0", "--meta", address_, "--disk",
                        dir_ / ("disk" + std::to_string(node))}});
    EXPECT_TRUE(nodes_[node]->wait_for_out("listening")) << nodes_[node]->err;
  }
  void kill(size_t node) {
    if (!nodes_[node]) return;
    nodes_[node]->signal(SIGKILL);
    nodes_[node]->finish();
    nodes_[node].reset();
  }
  // Waits until every chain has all its replicas.
  void until_whole() {
    until("all chains serve", [this] {
      const auto chains = status()["chains"];
      return chains.is_object() && chains["all"] > 0 && chains["all"] == chains["whole"];
    });
  }

  ProcessResult admin(std::vector<std::string> words) {
    words.insert(words.begin(), "admin");
    return run_ff(std::move(words), {{"FF_META", address_}});
  }

 private:
  nlohmann::json status() {
    const auto parsed = nlohmann::json::parse(admin({"status", "--json"}).out, nullptr, false);
    return parsed.is_object() && parsed["data"].is_object() ? parsed["data"]
                                                            : nlohmann::json::object();
  }
  void until(const std::string& what, const std::function<bool()>& condition) {
    constexpr int64_t kTimeoutNs = 90 * kSecond;
    SystemClock clock;
    const int64_t end_ns = clock.steady_ns() + kTimeoutNs;
    while (!condition()) {
      if (clock.steady_ns() > end_ns) FAIL() << "timed out waiting until " << what;
      clock.sleep_ns(50 * kMillisecond);
    }
  }

  TempDir dir_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<Child> meta_;
  std::array<std::unique_ptr<Child>, kNodes + 1> nodes_;
};

// One cluster for all tests of a program that leave it intact.
inline LocalCluster& shared_cluster() {
  static LocalCluster cluster;
  return cluster;
}

}  // namespace ff::test
