// A load on `ff schedule serve`: tasks submitted over the network, so many calls in flight, each
// answered once it is durable. usage: submit_load HOST:PORT TASKS IN-FLIGHT; prints tasks a second.
#include <cstdio>
#include <cstdlib>

#include "ops/scheduler/service.h"
#include "platform/auth/key.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "platform/net/address.h"
#include "platform/net/system_transport.h"
#include "platform/rpc/client.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kCallNs = 60 * kSecond;

struct Load {
  rpc::Client& client;
  Loop& loop;
  uint64_t left;
  uint64_t failed = 0;
};

wire::SubmitRequest request() {
  wire::SubmitRequest request;
  request.mutable_owner()->set_uid(1000);
  request.mutable_owner()->set_name("load");
  wire::Spec& spec = *request.mutable_spec();
  spec.set_name("train");
  for (const char* const word : {"python3", "train.py", "--layers", "24"}) spec.add_argv(word);
  for (int i = 0; i < 20; i++) spec.add_env(fmt::format("VARIABLE_{}=some value of it", i));
  spec.set_cwd("/home/load");
  spec.set_nodes(4);
  spec.set_processes(8);
  spec.set_group("default");
  spec.set_priority(30);
  return request;
}

Task<void> submit(Load& load) {
  while (load.left > 0) {
    load.left--;
    const auto reply =
        co_await rpc::call_method(load.client, kSubmit, request(), load.loop.now_ns() + kCallNs);
    if (reply) continue;
    if (load.failed++ == 0) std::fprintf(stderr, "%s\n", reply.error().message.c_str());
  }
}

Task<void> run(Load& load, uint64_t flights) {
  Gate gate(load.loop);
  for (uint64_t i = 0; i < flights; i++) gate.spawn(submit(load));
  co_await gate.wait_empty();
}

int main_of(const char* at, uint64_t tasks, uint64_t flights) {
  const auto address = net::parse_address(at);
  if (!address) return 2;
  SystemClock clock;
  SystemLoop loop(clock);
  net::SystemTransport transport({.mode = net::NetMode::tcp});
  rpc::GrantScheduler grants;
  Metrics metrics;
  auth::SecureRng rng;
  rpc::ClientContext context{loop,    transport, grants,
                             metrics, rng,       {.name = "load", .software = "ff"}};
  rpc::Client client(context, *address, auth::Service{auth::Role::scheduler, {}});
  Load load{.client = client, .loop = loop, .left = tasks};
  const int64_t began_ns = clock.steady_ns();
  run_task(loop, run(load, flights));
  const double seconds = static_cast<double>(clock.steady_ns() - began_ns) / 1e9;
  run_task(loop, client.close());
  run_task(loop, transport.drain(loop));
  std::printf("%.0f\n", static_cast<double>(tasks - load.failed) / seconds);
  return load.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ff::scheduler

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return ff::scheduler::main_of(argv[1], std::strtoull(argv[2], nullptr, 10),
                                std::strtoull(argv[3], nullptr, 10));
}
