// neighbours.cc: the thread, from the first connection to the last.
#include "training/collective/neighbours.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"

namespace ff::collective {

namespace {

constexpr int64_t kNeighbourPollNs = 5 * kMillisecond;
// What nobody tells of is looked for so often.
constexpr int64_t kGlanceNs = 100 * kMillisecond;
// For others to take what they still need.
constexpr int64_t kLeaveNs = 5 * kSecond;

}  // namespace

Neighbours::Neighbours(HostGroup& group, const Network& network, const Here& here, Clock& clock)
    : group_(group), network_(network), here_(here), loop_(clock) {}

Result<std::unique_ptr<Neighbours>> Neighbours::meet(HostGroup& group, const Network& network,
                                                     const Here& here, const Stop& stop,
                                                     int64_t within_ns) {
  Clock& clock = stop.clock();
  std::unique_ptr<Neighbours> made(new Neighbours(group, network, here, clock));
  made->ends_.emplace(made->loop_);
  const int64_t until_ns = clock.steady_ns() + within_ns;
  made->thread_ = std::thread([one = made.get(), until_ns] { one->run(until_ns); });
  for (;;) {
    if (const auto outcome = made->outcome()) {
      if (*outcome) return made;
      group.board().set_fault(outcome->error());
      return outcome->error();
    }
    if (auto asked = stop.check(); !asked) {
      group.board().set_fault(asked.error());
      return asked.error();
    }
    clock.sleep_ns(kNeighbourPollNs);
  }
}

Neighbours::~Neighbours() {
  loop_.post([this] { ends_->set(); });
  thread_.join();
}

void Neighbours::set_outcome(Result<void> outcome) {
  const std::lock_guard lock(mutex_);
  if (!outcome_) outcome_ = std::move(outcome);
}
std::optional<Result<void>> Neighbours::outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void Neighbours::run(int64_t until_ns) {
  transport_ = std::make_unique<net::SystemTransport>(network_.transport);
  run_task(loop_, live(until_ns));
  flow_.reset();
  run_task(loop_, transport_->settled(loop_));
  transport_.reset();
}

Task<void> Neighbours::live(int64_t until_ns) {
  Gate gate(loop_);
  Cancel meeting;
  std::optional<Result<void>> met;
  const auto keep = [](Task<Result<void>> task, Cancel& cancel, std::optional<Result<void>>& into,
                       Event& ends) -> Task<void> {
    into = co_await std::move(task).under(cancel);
    ends.set();
  };
  Event joined(loop_);
  gate.spawn(keep(join(until_ns), meeting, met, joined));
  // Whoever gives it up meanwhile does not wait for the others.
  while (!met && !ends_->is_set()) (void)co_await joined.wait(loop_.now_ns() + kGlanceNs);
  if (!met) {
    meeting.request(fail(Errc::interrupted, "the meeting of the nodes was given up"));
    (void)co_await joined.wait();
  }
  const bool good = met->ok();
  set_outcome(std::move(*met));
  if (good) {
    gate.spawn(watch());
    (void)co_await ends_->wait();
    flow_->look();
    auto finishing = flow_->finish(loop_.now_ns() + kLeaveNs);
    co_await std::move(finishing).shielded();
  }
  co_await gate.close(fail(Errc::interrupted, "the job ends"));
}

Task<Result<void>> Neighbours::join(int64_t until_ns) {
  const HostRank& self = group_.self();
  Node node{.first_rank = self.first_rank, .zone = network_.zone, .host = net::host_name()};
  for (uint32_t rank = 0; rank < self.ranks; rank++) {
    node.processes.push_back(group_.process_of(rank));
  }
  Meeting meeting{.at = network_.at,
                  .key = network_.transport.key,
                  .ranks = network_.ranks,
                  .settings = text_of(network_.flow)};
  auto joining =
      with_deadline(loop_, until_ns, "the nodes",
                    Mesh::join(loop_, *transport_, std::move(meeting), std::move(node), missing_));
  auto mesh = co_await std::move(joining);
  if (!mesh) {
    Error error = std::move(mesh).error();
    if (error.code == Errc::deadline && !missing_.empty()) {
      error.message = fmt::format(
          "{} {} not come in time",
          missing_.find_first_of(", ") == std::string::npos ? "rank" : "ranks",
          missing_ + (missing_.find_first_of(", ") == std::string::npos ? " has" : " have"));
      error.hint =
          "Look whether each was started, and can reach rank 0 at " + network_.at.text() + ".";
    }
    co_return error;
  }
  const std::string table = encode_world(mesh->world);
  FF_CO_TRY(table_, group_.make_region(table.size()));
  std::memcpy(table_->memory().data(), table.data(), table.size());
  nic_node_ = nic_node(*mesh);
  here_.placement.pin_near_nic(nic_node_);
  flow_.emplace(loop_, group_, std::move(*mesh), network_.flow,
                [this](const net::Region& region) { share(region); });
  flow_->start();
  group_.board().set_world({.region = table_->id()}, table.size());
  co_return Result<void>();
}

// Of the card that the connections go through; they all leave by the same one, or as good as that.
std::optional<uint32_t> Neighbours::nic_node(const Mesh& mesh) {
  Nic nic{.rdma_device = transport_->rdma_device(loop_)};
  for (const auto& connection : mesh.connections) {
    if (connection == nullptr) continue;
    if (!connection->one_sided()) nic.rdma_device.clear();  // the device is there, and not used
    if (auto local = net::parse_address(connection->local())) nic.address = local->host;
  }
  io::SystemDisk disk;
  return node_of_nic(disk, here_.sysfs, nic);
}

// Memory of this host's ranks that bytes arrive in, or leave from: nobody has touched it yet.
void Neighbours::share(const net::Region& region) {
  here_.placement.near_nic(region.memory(), nic_node_);
  const int fd = ::dup(region.fd());
  if (fd >= 0) transport_->adopt(loop_, region.memory(), Fd(fd));
}

// Nudges of the host's ranks.
Task<void> Neighbours::watch() {
  auto watching = loop_.watch(group_.nudged());
  if (!watching) FF_CHECK(!"a descriptor that cannot be watched");
  FdWatch& watched = **watching;
  for (;;) {
    watched.readable.reset();
    eventfd_t count = 0;
    (void)::eventfd_read(group_.nudged(), &count);
    flow_->look();
    const auto waited = co_await watched.readable.wait(loop_.now_ns() + kGlanceNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

}  // namespace ff::collective
