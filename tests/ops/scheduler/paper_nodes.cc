// Simulated nodes for tests of a real scheduler: they report, prepare attempts, and claim to run
// them. Tasks whose name begins with "short" end at once, others when they are asked to stop.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "ops/scheduler/service.h"
#include "ops/scheduler/simulated_nodes.h"
#include "platform/auth/key.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kCallNs = 60 * kSecond;
constexpr int64_t kRoundNs = 3 * kSecond;  // below SchedulerTimeouts::unresponsive_ns
constexpr size_t kFlights = 32;
constexpr int64_t kForeverNs = int64_t{1} << 60;

class PaperNodes {
 public:
  PaperNodes(const net::Address& scheduler, uint64_t count, uint64_t zones, uint64_t of_leaf)
      : client_(context_, scheduler, auth::Service{auth::Role::scheduler, {}}), gate_(loop_) {
    for (uint64_t i = 0; i < count; i++) {
      SimulatedNode& node = nodes_.emplace_back(fmt::format("n{:05}", i), 0);
      const uint64_t zone = i * zones / count;
      node.facts().set_zone(std::string(1, static_cast<char>('a' + zone)));
      node.facts().set_leaf(fmt::format("leaf{:04}", i / of_leaf));
    }
  }

  void run() {
    for (size_t i = 0; i < std::min(kFlights, nodes_.size()); i++) gate_.spawn(report(i));
    run_task(loop_, read_lines());
    run_task(loop_, gate_.close(fail(Errc::interrupted, "the end")));
    run_task(loop_, client_.close());
    run_task(loop_, transport_.drain(loop_));
  }

 private:
  // Every kFlights-th node, round after round.
  Task<void> report(size_t first) {
    for (;;) {
      const int64_t next_ns = loop_.now_ns() + kRoundNs;
      for (size_t i = first; i < nodes_.size(); i += kFlights) {
        if (silent_.contains(nodes_[i].name())) continue;
        nodes_[i].pass(loop_.now_ns(), tasks_);
        const auto reply = co_await rpc::call_method(client_, kSync, nodes_[i].request(),
                                                     loop_.now_ns() + kCallNs);
        if (!reply && reply.error().code == Errc::interrupted) co_return;
        if (reply) apply(nodes_[i], *reply);
      }
      if (!co_await sleep_until(loop_, std::min(next_ns, loop_.now_ns() + pause_ns()))) co_return;
    }
  }
  int64_t pause_ns() const { return nodes_.size() <= kFlights ? 100 * kMillisecond : kRoundNs; }

  void apply(SimulatedNode& node, const wire::SyncReply& reply) {
    for (const wire::Order& order : reply.orders()) {
      if (order.task() == 0 || tasks_.contains(order.task())) continue;
      const bool ends = order.spec().name().starts_with("short");
      tasks_[order.task()].work_ns = ends ? 0 : kForeverNs;
    }
    const std::vector<wire::Order> orders(reply.orders().begin(), reply.orders().end());
    node.apply(reply.scheduler(), orders, reply.lease(), loop_.now_ns(), tasks_);
    reported_.insert(node.name());
    if (reported_.size() < nodes_.size() || told_) return;
    told_ = true;
    std::puts("all");
    std::fflush(stdout);
  }

  Task<void> read_lines() {
    for (;;) {
      pollfd in = {STDIN_FILENO, POLLIN, 0};
      if (::poll(&in, 1, 0) > 0) {
        std::string what, name;
        if (!(std::cin >> what >> name)) co_return;
        if (what == "silent") silent_.insert(name);
      }
      (void)co_await sleep_for(loop_, 20 * kMillisecond);
    }
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  net::SystemTransport transport_{net::TransportOptions{.mode = net::NetMode::tcp}};
  rpc::GrantScheduler grants_;
  Metrics metrics_;
  auth::SecureRng rng_;
  rpc::ClientContext context_{loop_,    transport_, grants_,
                              metrics_, rng_,       {.name = "nodes", .software = "test"}};
  rpc::Client client_;
  std::vector<SimulatedNode> nodes_;
  std::map<uint64_t, SimulatedTask> tasks_;
  std::set<std::string> silent_, reported_;
  bool told_ = false;
  Gate gate_;
};

}  // namespace
}  // namespace ff::scheduler

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  const auto scheduler = ff::net::parse_address(argv[1]);
  if (!scheduler || number(2) == 0 || number(3) == 0 || number(4) == 0) return 2;
  ff::scheduler::PaperNodes nodes(*scheduler, number(2), number(3), number(4));
  nodes.run();
  return 0;
}
