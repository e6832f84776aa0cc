// Fixture with a scheduler inside the test process and agents as real processes, which tests kill
// or disconnect while their ranks continue. Ranks are shells of user nobody on this machine.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "e2e/rank_dirs.h"
#include "ops/scheduler/service.h"
#include "ops/shim/control.h"
#include "ops/shim/process_table.h"
#include "ops/shim/rank_lease.h"
#include "platform/auth/test_entities.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/io/system_disk.h"
#include "platform/kv/memory_engine.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"
#include "platform/rpc/server.h"

namespace ff::cmd {

using Words = std::vector<std::string>;
namespace wire = scheduler::wire;

constexpr uint32_t kNobodyUid = 65534;
constexpr int64_t kTimeoutNs = 90 * kSecond;
constexpr int64_t kHangNs = 240 * kSecond;  // only a hang takes so long, also on a busy machine

class AgentsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "ranks of other users need root";
    log_setup({.level = LogLevel::error});
    // Other users must be able to traverse it.
    ASSERT_EQ(::chmod(dir_.path().c_str(), 0711), 0);
    ASSERT_EQ(::mkdir(out_.c_str(), 0777), 0);
    ASSERT_EQ(::chmod(out_.c_str(), 0777), 0);
    ASSERT_TRUE(auth::make_key_file(disk_, key_file()).ok());
    key_ = auth::read_key_file(disk_, key_file()).value();
    transport_.emplace(net::TransportOptions{
        .mode = net::NetMode::tcp, .keyring = auth::root_keyring(key_, auth::Role::scheduler)});
    context_.emplace(rpc::ClientContext{loop_, *transport_, grants_, metrics_, rng_, identity()});
    timeouts_.pause_ns = 100 * kMillisecond;
    timeouts_.ack_ns = timeouts_.term_ns = kTimeoutNs;
  }
  void TearDown() override {
    stop_scheduler();
    for (auto& [name, agent] : agents_) {
      agent->signal(SIGKILL);
      agent->finish();
      if (HasFailure()) std::cerr << "agent " << name << ":\n" << agent->err << "\n";
    }
    for (const auto& dir : rank_dirs()) end_rank(dir);
    if (client_) run_task(loop_, client_->close());
    if (transport_) run_task(loop_, transport_->drain(loop_));
  }

  // The scheduler. ------------------------------------------------------------------------------

  void start_scheduler() {
    router_ = std::make_unique<rpc::Router>();
    engine_ = std::make_unique<kv::MemoryEngine>(store_, loop_, rng_);
    service_ = std::make_unique<scheduler::SchedulerService>(
        *engine_, loop_, rng_, *router_,
        scheduler::SchedulerService::Options{
            .timeouts = timeouts_,
            .name_of = [](uint32_t uid) { return fmt::to_string(uid); },
            .check_token = check_token_,
            .keyring = transport_->keyring()});
    server_ = std::make_unique<rpc::Server>(loop_, *transport_, *router_, metrics_, identity());
    const auto listening = server_->listen({.host = "127.0.0.1", .port = port_, .unix_path = {}});
    ASSERT_TRUE(listening.ok()) << listening.error().message;
    port_ = listening->port;
    service_->start();
    if (!client_)
      client_ = std::make_unique<rpc::Client>(*context_, *listening,
                                              auth::Service{auth::Role::scheduler, {}});
  }
  void stop_scheduler() {
    if (!server_) return;
    run_task(loop_, service_->close());
    run_task(loop_, server_->close(0));
    server_.reset();
    service_.reset();
  }
  std::string scheduler() const { return fmt::format("127.0.0.1:{}", port_); }

  template <class Request, class Reply>
  Result<Reply> call(rpc::Method<Request, Reply> method, Request request) {
    return run_task(loop_, rpc::call_method(*client_, method, std::move(request),
                                            loop_.now_ns() + 10 * kSecond));
  }

  // Agents. -------------------------------------------------------------------------------------

  std::string agent_dir(const std::string& name) const { return dir_ / name; }
  void start_agent(const std::string& name, const Words& more = {},
                   std::map<std::string, std::string> env = {}) {
    Words words = {FF_BINARY,
                   "schedule",
                   "agent",
                   "--scheduler",
                   scheduler(),
                   "--name",
                   name,
                   "--dir",
                   agent_dir(name),
                   "--task-dir",
                   dir_ / ("tasks-" + name),
                   "--listen",
                   "127.0.0.1:0",
                   "--key",
                   key_file()};
    words.insert(words.end(), more.begin(), more.end());
    agents_[name] =
        std::make_unique<test::Child>(test::Launch{.argv = words, .env = std::move(env)});
    ASSERT_TRUE(agents_[name]->wait_for_out("listening")) << agents_[name]->err;
  }
  void kill_agent(const std::string& name) {
    agents_.at(name)->signal(SIGKILL);
    agents_.at(name)->finish();
    agents_.erase(name);
  }

  std::vector<std::string> rank_dirs() const { return cmd::rank_dirs(dir_.path()); }
  size_t attempts_of(const std::string& agent) const {
    size_t count = 0;
    std::error_code error;
    for (const auto& one :
         std::filesystem::directory_iterator(agent_dir(agent) + "/attempts", error)) {
      count += one.is_directory() ? 1 : 0;
    }
    return count;
  }

  // Tasks. --------------------------------------------------------------------------------------

  // The script finds a writable directory in $OUT.
  wire::Spec script(const std::string& text, Words arguments = {}) const {
    wire::Spec spec;
    for (const std::string word : {"/bin/sh", "-c", text.c_str(), "sh"}) spec.add_argv(word);
    for (const std::string& word : arguments) spec.add_argv(word);
    spec.add_env("PATH=/usr/local/bin:/usr/bin:/bin");
    spec.add_env("OUT=" + out_);
    spec.set_cwd("/");
    spec.set_group("default");
    spec.set_nodes(1);
    spec.set_processes(1);
    spec.set_priority(30);
    return spec;
  }
  uint64_t submit(wire::Spec spec, uint32_t uid = kNobodyUid) {
    wire::SubmitRequest request;
    *request.mutable_spec() = std::move(spec);
    request.mutable_owner()->set_uid(uid);
    request.mutable_owner()->set_name(fmt::to_string(uid));
    const auto reply = call(scheduler::kSubmit, std::move(request));
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    return reply ? reply->task() : 0;
  }
  void control(uint64_t task, scheduler::TaskControl what) {
    wire::ControlRequest request;
    request.set_task(task);
    request.set_what(static_cast<uint32_t>(what));
    const auto reply = call(scheduler::kControl, std::move(request));
    EXPECT_TRUE(reply.ok()) << reply.error().message;
  }
  wire::Task task(uint64_t id) {
    wire::ListRequest request;
    request.set_task(id);
    const auto reply = call(scheduler::kList, std::move(request));
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    return reply ? reply->tasks(0).task() : wire::Task();
  }
  wire::Attempt last_attempt(uint64_t id) { return *task(id).attempts().rbegin(); }
  bool is_in(uint64_t id, scheduler::TaskPhase phase) {
    return task(id).phase() == static_cast<uint32_t>(phase);
  }
  wire::Task finished(uint64_t id) {
    until("the task is finished", [&] { return is_in(id, scheduler::TaskPhase::finished); });
    return task(id);
  }

  // The content of a file that a rank has written to $OUT.
  std::string out(const std::string& name) const { return test::read_file(out_ + "/" + name); }
  bool has_out(const std::string& name) const { return std::filesystem::exists(out_ + "/" + name); }
  void put_out(const std::string& name) { test::write_file(out_ + "/" + name, ""); }
  pid_t pid_of(const std::string& name) {
    until("a rank has written " + name, [&] { return out(name).ends_with('\n'); });
    return static_cast<pid_t>(parse_u64(out(name).substr(0, out(name).find('\n'))).value_or(0));
  }
  // True also for a zombie.
  bool is_gone(pid_t pid) {
    const auto process = shim::find_process(disk_, pid);
    return pid > 0 && (!process || process->is_zombie);
  }

  template <class Condition>
  void until(const std::string& what, Condition condition) {
    const int64_t end_ns = clock_.steady_ns() + kHangNs;
    while (!condition()) {
      ASSERT_LT(clock_.steady_ns(), end_ns) << "timed out waiting until " << what;
      run_for(20 * kMillisecond);
    }
  }
  void run_for(int64_t ns) {
    run_task(loop_, [](Loop& loop, int64_t pause_ns) -> Task<void> {
      (void)co_await sleep_for(loop, pause_ns);
    }(loop_, ns));
  }

  std::string key_file() const { return dir_ / "cluster.key"; }
  static rpc::Identity identity() { return {.name = "test", .software = "test"}; }

  io::SystemDisk disk_;
  test::TempDir dir_;
  const std::string out_ = dir_ / "out";
  SystemClock clock_;
  SystemLoop loop_{clock_};
  Metrics metrics_;
  SeededRng rng_{system_seed()};
  std::optional<auth::Key> key_;
  std::optional<net::SystemTransport> transport_;
  rpc::GrantScheduler grants_;
  std::optional<rpc::ClientContext> context_;
  scheduler::SchedulerTimeouts timeouts_;
  // All tokens are valid.
  std::function<Task<Result<void>>(auth::TokenId)> check_token_ =
      [](auth::TokenId) -> Task<Result<void>> { co_return Result<void>(); };
  uint16_t port_ = 0;
  kv::MemoryStore store_;
  std::unique_ptr<kv::MemoryEngine> engine_;
  std::unique_ptr<rpc::Router> router_;
  std::unique_ptr<scheduler::SchedulerService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Client> client_;
  std::map<std::string, std::unique_ptr<test::Child>> agents_;
};

}  // namespace ff::cmd
