// fuse_session_workers.cc: starts workers, and exchanges requests with them.
#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "storage/mount/fuse_session.h"

namespace ff::mount {

namespace {

// For /dev/fuse: one for the next request of a worker, others for the data of WRITE requests.
constexpr size_t kSlotsPerWorker = 2;

// Of the threads 0 to `threads` - 1, of which 0 is the owner: the one for the programs of a CPU.
size_t thread_of(size_t cpu, size_t cpus, size_t threads) { return cpu * threads / cpus; }

}  // namespace

// After FUSE_INIT, or after the requests of a predecessor: the owner must know all of these.
void FuseSession::start_workers() {
  auto given = std::move(options_.workers);
  options_.workers.clear();
  const bool by_device = entries_ == nullptr;
  const size_t cpus = by_device ? 0 : entries_->cpu_of(entries_->size());
  const size_t threads = given.size() + 1;
  const auto routing = std::make_shared<const cluster::Routing>(operations_->files().routing());
  for (WorkerLoop& one : given) {
    const size_t number = workers_.size() + 1;
    FuseWorker::Source source{
        .thread = fmt::format("ff-mount-{}", number), .cpus = allowed_cpus_, .entries = entries_};
    if (by_device) {
      const auto slot = slots_.acquire(slots_.size() / kSlotsPerWorker);
      if (!slot) break;  // too little memory for more
      source.slot = *slot;
      worker_devices_.push_back(options_.worker_device(number));
      const int own = worker_devices_.back().get();
      source.device = own >= 0 ? own : device_.fd();
    } else {
      cpu_set_t mine = {};
      for (size_t cpu = 0; cpu < std::min<size_t>(cpus, CPU_SETSIZE); cpu++) {
        const bool is_mine = thread_of(cpu, cpus, threads) == number;
        if (is_mine && CPU_ISSET(cpu, &allowed_cpus_)) CPU_SET(cpu, &mine);
      }
      if (CPU_COUNT(&mine) > 0) source.cpus = mine;
    }
    workers_.push_back(
        std::make_unique<FuseWorker>(one.loop, std::move(one.reader), shared_, std::move(source)));
    workers_.back()->set_routing(routing);
  }
  if (!given.empty()) log_info("several threads answer reads", {{"threads", workers_.size() + 1}});
}

void FuseSession::on_routing(const cluster::Routing& routing) {
  if (workers_.empty()) return;
  const auto copy = std::make_shared<const cluster::Routing>(routing);
  for (const auto& worker : workers_) worker->set_routing(copy);
}

void FuseSession::stop_workers_reading() {
  stopping_ = true;
  for (const auto& worker : workers_) worker->receive(false);
}

bool FuseSession::workers_idle() const {
  return std::ranges::all_of(workers_, [](const auto& one) { return one->under_way() == 0; });
}

// Requests that a worker cannot answer.
void FuseSession::take_back(std::vector<FuseRequest> requests) {
  for (FuseRequest& request : requests) {
    if (request.entry) {
      uring_->take(*request.entry);
      serve_uring_request(std::move(request));
    } else {
      on_device_request(std::move(request));
    }
  }
  follow_device();
}

// A READ over io_uring goes to the worker of its CPU. The next ones reach that without this loop.
bool FuseSession::give_to_worker(FuseRequest& request) {
  if (!spread_.on() || request.header.opcode != FUSE_READ) return false;
  const size_t thread = thread_of(entries_->cpu_of(*request.entry),
                                  entries_->cpu_of(entries_->size()), workers_.size() + 1);
  if (thread == 0 || !workers_[thread - 1]->has_ring()) return false;
  if (options_.snapshots->find(request.header.nodeid) == nullptr) return false;
  uring_->give(*request.entry);
  workers_[thread - 1]->take(std::move(request));
  return true;
}

}  // namespace ff::mount
