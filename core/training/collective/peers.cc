// peers.cc: the thread that exchanges data with other hosts, from rendezvous to goodbye.
#include "training/collective/peers.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "training/collective/rendezvous.h"

namespace ff::collective {

namespace {

constexpr int64_t kConnectPollNs = 5 * kMillisecond;
// The longest time between two polls of the pipeline without a wake-up.
constexpr int64_t kPipelinePollNs = 100 * kMillisecond;
// For sending what other hosts still need.
constexpr int64_t kFinishNs = 5 * kSecond;

}  // namespace

Peers::Peers(HostGroup& group, const Network& network, const LocalHost& local, Clock& clock)
    : group_(group), network_(network), local_(local), loop_(clock) {}

Result<std::unique_ptr<Peers>> Peers::connect(HostGroup& group, const Network& network,
                                              const LocalHost& local, const StopToken& stop,
                                              int64_t within_ns, const JoinCheck& check) {
  Clock& clock = stop.clock();
  std::unique_ptr<Peers> made(new Peers(group, network, local, clock));
  made->stopping_.emplace(made->loop_);
  const int64_t until_ns = clock.steady_ns() + within_ns;
  made->thread_ = std::thread([one = made.get(), until_ns] { one->run(until_ns); });
  for (;;) {
    if (const auto outcome = made->outcome()) {
      if (*outcome) return made;
      group.operations().set_async_error(outcome->error());
      return outcome->error();
    }
    auto checked = stop.check();
    if (checked && check) checked = check();
    if (!checked) {
      group.operations().set_async_error(checked.error());
      return checked.error();
    }
    clock.sleep_ns(kConnectPollNs);
  }
}

Peers::~Peers() {
  loop_.post([this] { stopping_->set(); });
  thread_.join();
}

void Peers::set_outcome(Result<void> outcome) {
  const std::lock_guard lock(mutex_);
  if (!outcome_) outcome_ = std::move(outcome);
}
std::optional<Result<void>> Peers::outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void Peers::run(int64_t until_ns) {
  net::TransportOptions options = network_.transport;
  if (network_.key) {
    auth::Entity self{.role = auth::Role::rank, .name = std::to_string(group_.self().first_rank)};
    options.keyring = auth::Keyring::from_root(*network_.key, std::move(self));
  }
  transport_ = std::make_unique<net::SystemTransport>(std::move(options));
  run_task(loop_, serve(until_ns));
  pipeline_.reset();
  run_task(loop_, transport_->drain(loop_));
  transport_.reset();
}

Task<void> Peers::serve(int64_t until_ns) {
  Gate gate(loop_);
  CancellationToken joining;
  std::optional<Result<void>> outcome;
  const auto keep = [](Task<Result<void>> task, CancellationToken& cancel,
                       std::optional<Result<void>>& into, Event& done) -> Task<void> {
    into = co_await std::move(task).with_cancellation(cancel);
    done.set();
  };
  Event joined(loop_);
  gate.spawn(keep(join(until_ns), joining, outcome, joined));
  // The destructor may stop this before all hosts have joined.
  while (!outcome && !stopping_->is_set())
    (void)co_await joined.wait(loop_.now_ns() + kPipelinePollNs);
  if (!outcome) {
    joining.request(fail(Errc::interrupted, "the rendezvous was cancelled"));
    (void)co_await joined.wait();
  }
  const bool good = outcome->ok();
  set_outcome(std::move(*outcome));
  if (good) {
    gate.spawn(poll_loop());
    (void)co_await stopping_->wait();
    pipeline_->poll();
    co_await pipeline_->finish(loop_.now_ns() + kFinishNs).shielded();
  }
  co_await gate.close(fail(Errc::interrupted, "the communicator is closed"));
}

Task<Result<void>> Peers::join(int64_t until_ns) {
  const HostRank& self = group_.self();
  WorldNode node{.first_rank = self.first_rank, .zone = network_.zone, .host = net::host_name()};
  for (uint32_t rank = 0; rank < self.ranks; rank++) {
    node.pids.push_back(group_.pid_of(rank));
  }
  RendezvousOptions options{
      .at = network_.at,
      .terms = {.ranks = network_.ranks, .settings = text_of(network_.pipeline)}};
  auto mesh = co_await with_deadline(
      loop_, until_ns, "the nodes",
      Rendezvous::join(loop_, *transport_, std::move(options), std::move(node)));
  if (!mesh) co_return std::move(mesh).error();
  const std::string table = encode_world(mesh->world);
  FF_CO_TRY(world_table_, group_.make_region(table.size()));
  std::memcpy(world_table_->memory().data(), table.data(), table.size());
  nic_node_ = find_nic_node(*mesh);
  local_.placement.pin_near_nic(nic_node_);
  pipeline_.emplace(loop_, group_, std::move(*mesh), network_.pipeline,
                    [this](const net::SharedRegion& region) { register_memory(region); });
  pipeline_->start();
  group_.operations().set_world_table({.region = world_table_->id()}, table.size());
  co_return Result<void>();
}

// The NUMA node of the network card of the connections, which all use the same card (or an equal
// one).
std::optional<uint32_t> Peers::find_nic_node(const Mesh& mesh) {
  Nic nic{.rdma_device = transport_->rdma_device(loop_)};
  for (const auto& connection : mesh.connections) {
    if (connection == nullptr) continue;
    if (!connection->one_sided()) nic.rdma_device.clear();  // it is not used
    if (auto local = net::parse_address(connection->local())) nic.address = local->host;
  }
  io::SystemDisk disk;
  return numa_node_of(disk, local_.sysfs, nic);
}

// Memory that pieces arrive in or leave from. No page of it has been touched yet.
void Peers::register_memory(const net::SharedRegion& region) {
  local_.placement.bind_near_nic(region.memory(), nic_node_);
  const int fd = ::dup(region.fd());
  if (fd >= 0) transport_->adopt_memory(loop_, region.memory(), Fd(fd));
}

// Polls the pipeline after each wake-up by a rank of this host.
Task<void> Peers::poll_loop() {
  auto watching = loop_.watch(group_.wake_fd());
  if (!watching) FF_CHECK(!"an eventfd that cannot be watched");
  FdWatch& watched = **watching;
  for (;;) {
    watched.readable.reset();
    eventfd_t count = 0;
    (void)::eventfd_read(group_.wake_fd(), &count);
    pipeline_->poll();
    const auto waited = co_await watched.readable.wait(loop_.now_ns() + kPipelinePollNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

}  // namespace ff::collective
