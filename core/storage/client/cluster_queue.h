// An IoQueue for files of a ClusterDisk and of the disk beside it: operations of the cluster run in
// its loop, and their completions are brought to the thread of the queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "platform/base/clock.h"
#include "platform/base/system_loop.h"
#include "platform/io/disk.h"
#include "storage/client/cluster_file.h"
#include "storage/client/loop_calls.h"

namespace ff::client {

class ClusterQueue final : public io::IoQueue, private Ready {
 public:
  // All outlive it.
  ClusterQueue(LoopCalls& calls, io::Disk& local, io::QueueOptions options);
  ~ClusterQueue() override;

  void read(io::File& file, ByteSpan into, uint64_t offset, Done done) override;
  void write(io::File& file, ByteView from, uint64_t offset, Done done) override;
  void sync(io::File& file, Done done) override;
  void run() override;
  void poll() override;
  size_t in_flight() const override { return in_flight_; }
  size_t depth() const override { return depth_; }
  void register_buffers(std::span<const ByteSpan> spans) override;

 private:
  struct Finished {
    Done done;
    Result<size_t> result;
  };
  // What the cluster's loop knows of the queue.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    ClusterQueue* queue = nullptr;  // null: it is gone
    size_t running = 0;
    std::deque<Finished> finished;
  };
  using Operation = std::function<Task<Result<size_t>>()>;

  static Task<void> operate(std::shared_ptr<Shared> shared, Loop& loop, Operation operation,
                            Done done);
  static void deliver(const std::shared_ptr<Shared>& shared);
  void start(Operation operation, Done done);
  Done counted(Done done);
  void fire() override;

  LoopCalls& calls_;
  const size_t depth_;
  SystemClock clock_;
  std::optional<SystemLoop> own_;  // unless the queue was given one
  Loop& loop_;
  Timer waited_;
  size_t in_flight_ = 0;
  uint64_t done_ = 0;  // operations
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::unique_ptr<io::IoQueue> local_;
};

}  // namespace ff::client
