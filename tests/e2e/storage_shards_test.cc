// `ff serve-storage --shards`: a node that uses several CPUs, as a real process.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "e2e/child.h"
#include "platform/base/cpus.h"

namespace ff::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// A manager and a node with two disks. Without a key: its pages are for everybody of the machine
// who follows the login link.
class StorageShards : public testing::Test {
 protected:
  ProcessResult ff(Words words) { return run_ff(std::move(words), {{"FF_META", meta_at_}}); }
  static std::string listening_at(Child& daemon) {
    EXPECT_TRUE(daemon.wait_for_out("listening on ") && daemon.wait_for_out("\n")) << daemon.err;
    const size_t at = daemon.out.find("127.0.0.1:");
    return daemon.out.substr(at, daemon.out.find('\n') - at);
  }
  void start_meta() {
    meta_ = std::make_unique<Child>(
        Launch{.argv = {FF_BINARY, "serve-meta", "--listen", meta_at_, "--dir", dir_ / "meta"}});
    meta_at_ = listening_at(*meta_);
  }
  void start_node(const std::string& shards) {
    node_ = std::make_unique<Child>(Launch{
        .argv = {FF_BINARY, "serve-storage", "--listen", node_at_, "--meta", meta_at_, "--http",
                 "0", "--disk", dir_ / "disk1", "--disk", dir_ / "disk2", "--shards", shards}});
    node_at_ = listening_at(*node_);
    ASSERT_TRUE(node_->wait_for_out("pages on port ") && node_->wait_for_err("/login?token="));
  }
  bool serves() {
    const json answer = json::parse(ff({"admin", "status", "--json"}).out, nullptr, false);
    return answer.is_object() && answer["data"].is_object() &&
           answer["data"]["chains"].is_object() && answer["data"]["chains"]["all"] == 4 &&
           answer["data"]["chains"]["whole"] == 4;
  }
  // /status and /metrics of the node.
  std::pair<json, std::string> pages() const {
    const size_t link = node_->err.find("http://");
    const ProcessResult got =
        run({.argv = {"python3", "-c",
                      "import sys, urllib.parse as p, urllib.request as r\n"
                      "get = r.build_opener(r.HTTPCookieProcessor()).open\n"
                      "get(sys.argv[1]).read()\n"
                      "for page in '/status', '/metrics':\n"
                      "  sys.stdout.write(get(p.urljoin(sys.argv[1], page)).read().decode())\n"
                      "  sys.stdout.write('\\n')\n",
                      node_->err.substr(link, node_->err.find('"', link) - link)}});
    const size_t end = got.out.find('\n');
    EXPECT_NE(end, std::string::npos) << got.err;
    return {json::parse(got.out.substr(0, end), nullptr, false), got.out.substr(end)};
  }

  TempDir dir_;
  std::string meta_at_ = "127.0.0.1:0";
  std::string node_at_ = "127.0.0.1:0";
  std::unique_ptr<Child> meta_;
  std::unique_ptr<Child> node_;
};

TEST_F(StorageShards, TheirNumberChangesWithAnyRestart) {
  start_meta();
  ASSERT_EQ(ff({"admin", "init"}).exit, 0);
  start_node("2");
  ASSERT_TRUE(eventually([this] {
    return ff({"admin", "plan", "--replicas", "1", "--targets-per-disk", "2", "--apply"}).exit == 0;
  }));
  ASSERT_TRUE(eventually([this] { return serves(); }));
  // Many small chunks, so that every chain has some.
  const std::string bytes = noise(3'000'000);
  write_file(dir_ / "file", bytes);
  const std::string path = "ff:///file";
  ASSERT_EQ(ff({"fs", "layout", "/", "--chunk-size", "64KiB"}).exit, 0);
  ASSERT_EQ(ff({"fs", "cp", dir_ / "file", path}).exit, 0);
  for (const std::string shards : {"2", "1", "3"}) {
    if (shards != "2") {
      node_->signal(SIGKILL);
      node_->finish();
      start_node(shards);
      ASSERT_TRUE(eventually([this] { return serves(); }));
    }
    EXPECT_EQ(ff({"fs", "cat", path}).out, bytes) << shards;
    const auto [status, metrics] = pages();
    ASSERT_TRUE(status.is_object()) << node_->err;
    EXPECT_EQ(status["shards"], std::stoi(shards));
    EXPECT_EQ(status["disks"][0]["shard"], 0);
    EXPECT_EQ(status["disks"][1]["shard"], shards == "1" ? 0 : 1);
    EXPECT_TRUE(has(metrics, "\nff_shard_handovers_total 0\n")) << shards << metrics;
  }
  node_->signal(SIGTERM);
  EXPECT_EQ(node_->finish(), 0) << node_->err;
}

// The line Cpus_allowed_list of proc(5), for the first thread: "0" or "0-1".
std::string cpus_of(pid_t pid) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
  const std::string key = "Cpus_allowed_list:\t";
  const size_t at = status.find(key) + key.size();
  return status.substr(at, status.find('\n', at) - at);
}

TEST_F(StorageShards, NodesOfOneMachineUseDifferentCpus) {
  start_meta();
  ASSERT_EQ(ff({"admin", "init"}).exit, 0);
  std::vector<std::string> cpus;
  for (const std::string node : {"1", "2"}) {
    Child daemon(Launch{.argv = {FF_BINARY, "serve-storage", "--listen", "127.0.0.1:0", "--meta",
                                 meta_at_, "--node", node, "--disk", dir_ / ("disk" + node)}});
    listening_at(daemon);
    cpus.push_back(cpus_of(daemon.pid()));
    EXPECT_EQ(cpus.back().find_first_not_of("0123456789"), std::string::npos) << cpus.back();
    daemon.signal(SIGTERM);
    EXPECT_EQ(daemon.finish(), 0) << daemon.err;
  }
  EXPECT_EQ(cpus[0] != cpus[1], usable_cpus().size() > 1);
}

TEST_F(StorageShards, ANumberThatMakesNoSenseIsRefused) {
  for (const std::string shards : {"0", "257"}) {
    const ProcessResult ran = ff({"serve-storage", "--disk", dir_ / "disk1", "--shards", shards});
    EXPECT_EQ(ran.exit, 2);
    EXPECT_TRUE(has(ran.err, "--shards " + shards + ": must be from 1 to 256")) << ran.err;
  }
}

}  // namespace
}  // namespace ff::test
