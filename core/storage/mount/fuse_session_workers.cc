// fuse_session_workers.cc: starts workers, and exchanges requests with them.
#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "storage/mount/fuse_session.h"

namespace ff::mount {

namespace {

// One for the next request of a worker, others for the data of WRITE requests.
constexpr size_t kSlotsPerWorker = 2;

}  // namespace

// After FUSE_INIT, or after the requests of a predecessor: the owner must know all of these.
void FuseSession::start_workers() {
  auto given = std::move(options_.workers);
  options_.workers.clear();
  if (uring_ != nullptr && !given.empty()) {
    log_info("one thread answers requests over io_uring",
             {{"hint", "--no-io-uring lets several threads answer reads with O_DIRECT"}});
    return;
  }
  const auto routing = std::make_shared<const cluster::Routing>(operations_->files().routing());
  for (WorkerLoop& one : given) {
    const size_t number = workers_.size() + 1;
    FuseWorker::Source source{.thread = fmt::format("ff-mount-{}", number), .cpus = allowed_cpus_};
    const auto slot = slots_.acquire(slots_.size() / kSlotsPerWorker);
    if (!slot) break;  // too little memory for more
    source.slot = *slot;
    worker_devices_.push_back(options_.worker_device(number));
    const int own = worker_devices_.back().get();
    source.device = own >= 0 ? own : device_.fd();
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
  for (FuseRequest& request : requests) on_device_request(std::move(request));
  follow_device();
}

}  // namespace ff::mount
