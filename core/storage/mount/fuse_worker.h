// A worker of a mount: a thread that answers READ requests of files with a snapshot
// (client/read_snapshot.h), over connections of its own, and hands all other requests to the owner,
// the loop that has the state of the mount (fuse_session.h).
//
// The owner gets the requests of all threads in the order in which the kernel sent them: a READ
// must not overtake the WRITE of a page that the kernel has dropped since. The queues of io_uring
// have no common order, so workers read from /dev/fuse only.
//
// The owner calls all functions; what is not marked thread-safe belongs to the thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/system_loop.h"
#include "storage/client/read_snapshot.h"
#include "storage/mount/device_reader.h"
#include "storage/mount/request_queue.h"

namespace ff::mount {

// What the reads of all threads of a mount count. Thread-safe.
struct ReadMetrics {
  explicit ReadMetrics(Metrics& metrics);
  Gauge& under_way;
  Counter& bytes;
  Histogram& seconds;
};

class FuseWorker {
 public:
  // What the workers of a mount share. It outlives them.
  struct Shared {
    const client::ReadSnapshots* snapshots;
    FuseSlots& slots;
    chain::BufferPool& memory;
    Metrics& metrics;
    ReadMetrics& reads;
    std::shared_ptr<RequestQueue> owner;
    // Held while a thread reads a request and until that is in `owner`, if it is for the owner.
    std::mutex order = {};
  };
  // How requests reach it.
  struct Source {
    std::string thread = {};  // its name
    cpu_set_t cpus = {};      // where it runs
    int device = -1;          // of /dev/fuse, which outlives it
    size_t slot = 0;          // for requests from it
  };

  // `loop` and `shared` outlive it.
  FuseWorker(SystemLoop& loop, std::unique_ptr<client::SnapshotReader> reader, Shared& shared,
             Source source);
  // Cancels its requests and waits for the thread.
  ~FuseWorker();

  // Whether it reads requests from /dev/fuse; at first it does not.
  void receive(bool wanted);
  // Cancels a request of a program that was interrupted, if it is here.
  void interrupt(uint64_t unique, Error reason);
  void set_routing(std::shared_ptr<const cluster::Routing> routing);
  // Requests in progress.
  size_t under_way() const { return under_way_; }
  uint64_t answered() const { return answered_; }

 private:
  void run();
  Task<void> main();
  Task<void> read_device();
  Task<bool> read_requests(DeviceReader& device, FdWatch* watch);
  Result<DeviceReader::State> read_request(DeviceReader& device, FuseRequest& request);
  Task<void> serve(FuseRequest request, client::ReadSnapshotRef snapshot);

  SystemLoop& loop_;
  const std::unique_ptr<client::SnapshotReader> reader_;
  Shared& shared_;
  const Source source_;
  FailureLog failures_;
  std::atomic<size_t> under_way_ = 0;
  std::atomic<uint64_t> answered_ = 0;
  std::unordered_map<uint64_t, CancelScope*> running_;  // by the unique number of the request
  Event wanted_;                                        // it shall read requests
  FdWatch* watch_ = nullptr;                            // of the descriptor, while it does
  Event stop_;
  Gate gate_;
  std::thread thread_;
};

}  // namespace ff::mount
