// Fixture with real daemons, each in its own network namespace: a manager and three storage nodes,
// which tests kill, stop and disconnect while clients continue.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "e2e/hosts.h"
#include "platform/auth/test_entities.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"

namespace ff::cmd {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr size_t kMeta = 0;  // the host of the manager; node N is on host N
constexpr size_t kNodes = 3;
constexpr int64_t kTimeoutNs = 90 * kSecond;

class DaemonsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.available()) GTEST_SKIP() << "network namespaces cannot be made here";
    log_setup({.level = LogLevel::error});
    ASSERT_TRUE(auth::make_key_file(disk_, key()).ok());
    start_meta();
    ASSERT_EQ(admin({"init"}).exit, 0);
    for (size_t node = 1; node <= kNodes; node++) start(node);
    until("all nodes report", [&] { return status()["nodes"].size() == kNodes; });
    Words plan = {"plan", "--apply"};
    for (const std::string& word : placement()) plan.push_back(word);
    const auto planned = admin(plan);
    ASSERT_EQ(planned.exit, 0) << planned.err;
    until("all chains serve", [&] { return all_serve(); });
    key_ = auth::read_key_file(disk_, key()).value();
    transport_.emplace(net::TransportOptions{
        .mode = net::NetMode::tcp, .keyring = auth::root_keyring(key_, auth::Role::admin)});
    context_.emplace(rpc::ClientContext{
        loop_, *transport_, grants_, metrics_, rng_, {.name = "program", .software = "test"}});
  }
  // Called after the clients have ended.
  void TearDown() override {
    if (!HasFailure()) return;
    for (size_t i = 0; i < daemons_.size(); i++) {
      if (!daemons_[i]) continue;
      daemons_[i]->signal(SIGCONT);
      daemons_[i]->signal(SIGTERM);
      daemons_[i]->finish();
      std::cerr << "daemon " << i << ": " << daemons_[i]->out << daemons_[i]->err << "\n";
    }
  }

  std::string key() const { return dir_ / "cluster.key"; }
  std::string disk(size_t node) const { return dir_ / ("disk" + std::to_string(node)); }
  std::string meta() const { return hosts_.address(kMeta) + ":4400"; }

  virtual Words placement() const { return {"--replicas", "3", "--targets-per-disk", "2"}; }
  virtual Words meta_options() const { return {}; }
  void start_meta() {
    Words words = {FF_BINARY, "serve-meta",  "--listen", meta(),
                   "--dir",   dir_ / "meta", "--key",    key()};
    for (const std::string& word : meta_options()) words.push_back(word);
    daemons_[kMeta] = std::make_unique<test::Child>(hosts_.on(kMeta, words));
    ASSERT_TRUE(daemons_[kMeta]->wait_for_out("listening")) << daemons_[kMeta]->err;
  }
  virtual Words disks(size_t node) const { return {disk(node)}; }
  virtual Words command(size_t node) const {
    Words words = {FF_BINARY,  "serve-storage",
                   "--node",   std::to_string(node),
                   "--listen", hosts_.address(node) + ":4410",
                   "--meta",   meta(),
                   "--key",    key()};
    for (const std::string& dir : disks(node)) words.insert(words.end(), {"--disk", dir});
    return words;
  }
  void start(size_t node) {
    daemons_[node] = std::make_unique<test::Child>(hosts_.on(node, command(node)));
    ASSERT_TRUE(daemons_[node]->wait_for_out("listening")) << daemons_[node]->err;
  }
  void kill(size_t daemon, int number = SIGKILL) {
    daemons_[daemon]->signal(number);
    daemons_[daemon]->finish();
  }

  test::ProcessResult admin(Words words) {
    words.insert(words.begin(), "admin");
    return test::run_ff(std::move(words), {{"FF_META", meta()}, {"FF_KEY", key()}});
  }
  json status() {
    const auto ran = admin({"status", "--json"});
    const auto parsed = json::parse(ran.out, nullptr, false);
    return parsed.is_object() && parsed["data"].is_object() ? parsed["data"] : json::object();
  }
  bool all_serve() {
    const json data = status();
    return data.contains("chains") && data["chains"]["all"] > 0 &&
           data["chains"]["all"] == data["chains"]["whole"];
  }

  // Clients in the loop continue during the wait.
  template <class Condition>
  void until(const std::string& what, Condition condition) {
    const int64_t end_ns = clock_.steady_ns() + kTimeoutNs;
    while (!condition()) {
      ASSERT_LT(clock_.steady_ns(), end_ns) << "timed out waiting until " << what << "\n"
                                            << status().dump(1);
      run_for(100 * kMillisecond);
    }
  }
  void run_for(int64_t ns) {
    run_task(loop_, [](Loop& loop, int64_t pause_ns) -> Task<void> {
      (void)co_await sleep_for(loop, pause_ns);
    }(loop_, ns));
  }

  test::Hosts hosts_{kNodes + 1};
  io::SystemDisk disk_;
  test::TempDir dir_;
  std::array<std::unique_ptr<test::Child>, kNodes + 1> daemons_;

  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::optional<auth::Key> key_;
  std::optional<net::SystemTransport> transport_;
  rpc::GrantScheduler grants_;
  Metrics metrics_;
  SeededRng rng_{system_seed()};
  std::optional<rpc::ClientContext> context_;
};

}  // namespace ff::cmd
