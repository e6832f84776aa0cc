// fuse_worker.cc: a READ that only the owner can answer is handed to it as it came.
#include "storage/mount/fuse_worker.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/log.h"

namespace ff::mount {

ReadMetrics::ReadMetrics(Metrics& metrics)
    : under_way(metrics.gauge("ff_mount_requests_under_way", "Requests in progress")),
      bytes(metrics.counter("ff_mount_read_bytes_total", "Bytes read")),
      seconds(metrics.histogram("ff_mount_request_seconds", "Duration of FUSE requests",
                                {{"op", "read"}})) {}

FuseWorker::FuseWorker(SystemLoop& loop, std::unique_ptr<client::SnapshotReader> reader,
                       Shared& shared, Source source)
    : loop_(loop),
      reader_(std::move(reader)),
      shared_(shared),
      source_(std::move(source)),
      failures_(shared.metrics),
      wanted_(loop),
      stop_(loop),
      gate_(loop),
      thread_([this] { run(); }) {}

FuseWorker::~FuseWorker() {
  loop_.post([this] { stop_.set(); });
  thread_.join();
}

void FuseWorker::receive(bool wanted) {
  loop_.post([this, wanted] {
    if (wanted) return wanted_.set();
    wanted_.reset();
    if (watch_ != nullptr) watch_->readable.set();
  });
}

void FuseWorker::interrupt(uint64_t unique, Error reason) {
  loop_.post([this, unique, reason = std::move(reason)] {
    const auto found = running_.find(unique);
    if (found != running_.end()) found->second->cancellation().request(reason);
  });
}

void FuseWorker::set_routing(std::shared_ptr<const cluster::Routing> routing) {
  loop_.post([this, routing = std::move(routing)] { reader_->set_routing(*routing); });
}

void FuseWorker::run() {
  (void)::pthread_setname_np(::pthread_self(), source_.thread.c_str());
  // The thread that has started this one may be pinned.
  (void)::sched_setaffinity(0, sizeof source_.cpus, &source_.cpus);
  run_task(loop_, main());
}

Task<void> FuseWorker::main() {
  gate_.spawn(read_device());
  (void)co_await stop_.wait();
  Error reason = fail(Errc::interrupted, "the mount is shutting down");
  co_await gate_.close(std::move(reason));
  co_await reader_->close();
}

Task<void> FuseWorker::read_device() {
  DeviceReader device(source_.device, shared_.slots, shared_.memory, source_.slot);
  for (;;) {
    const auto asked = co_await wanted_.wait();
    if (!asked) co_return;
    auto watch = loop_.watch_shared(device.fd());
    if (!watch)
      co_return log_warning("a thread reads no requests", {{"cause", watch.error().message}});
    watch_ = watch->get();
    const bool goes_on = co_await read_requests(device, watch_);
    watch_ = nullptr;
    watch->reset();
    // The last event may have been for this thread.
    if (!goes_on || !co_await read_requests(device, nullptr)) co_return;
  }
}

// Reads requests until there is none and it shall not wait for more; `watch` null: it does not wait
// anyway. False: the file system was unmounted, or this was cancelled.
Task<bool> FuseWorker::read_requests(DeviceReader& device, FdWatch* watch) {
  for (size_t count = 1;; count++) {
    FuseRequest request;
    const auto got = read_request(device, request);
    if (!got || *got == DeviceReader::State::unmounted) co_return false;
    Result<void> waited;
    if (*got == DeviceReader::State::request) {
      if (count % kRequestsAtOnce != 0) continue;
      YieldWait turn(loop_);
      waited = co_await turn;
    } else {
      if (watch == nullptr || !wanted_.is_set()) co_return true;
      watch->readable.reset();
      waited = co_await watch->readable.wait();
    }
    if (!waited) co_return false;
  }
}

// Reads a request and serves it, or hands it to the owner.
Result<DeviceReader::State> FuseWorker::read_request(DeviceReader& device, FuseRequest& request) {
  client::ReadSnapshotRef snapshot;
  {
    const std::lock_guard lock(shared_.order);
    FF_TRY(const auto got, device.read(request));
    if (got != DeviceReader::State::request) return got;
    // The numbers of files are their inodes; only the mounted directory has another one.
    if (request.is_direct_read()) snapshot = shared_.snapshots->find(request.header.nodeid);
    if (snapshot == nullptr) shared_.owner->push(std::move(request));
  }
  if (snapshot == nullptr) return DeviceReader::State::request;
  under_way_++;
  gate_.spawn(serve(std::move(request), std::move(snapshot)));
  return DeviceReader::State::request;
}

Task<void> FuseWorker::serve(FuseRequest request, client::ReadSnapshotRef snapshot) {
  const uint64_t unique = request.header.unique;
  const int64_t began_ns = loop_.now_ns();
  fuse_read_in in = {};
  std::memcpy(&in, request.body.data(), std::min(request.body.size(), sizeof in));
  const uint64_t size = std::min<uint64_t>(in.size, kWriteMax);
  chain::BufferPool::Buffer memory;
  ByteSpan room = request.reply_room;
  if (room.size() < size) {
    memory = shared_.memory.allocate(size);
    room = memory.span();
  }
  shared_.reads.under_way.add(1);
  CancelScope scope(loop_, co_await current_cancellation(), INT64_MAX, {});
  running_[unique] = &scope;
  const auto got = co_await reader_->read(std::move(snapshot), in.offset, room.first(size))
                       .with_cancellation(scope.cancellation());
  running_.erase(unique);
  shared_.reads.under_way.add(-1);
  if (got) {
    const int error = *got ? 0 : failures_.errno_for(got->error(), loop_.now_ns());
    if (*got) shared_.reads.bytes.add(**got);
    write_device_reply(request, error, {}, *got ? room.first(**got) : ByteSpan());
    shared_.reads.seconds.observe_ns(loop_.now_ns() - began_ns);
    answered_++;
  } else {
    shared_.owner->push(std::move(request));
  }
  under_way_--;
}

}  // namespace ff::mount
