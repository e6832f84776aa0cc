// An IoQueue for files of a ClusterDisk and of its local disk. Cluster operations run on the loop
// of the client; their completions are delivered on the thread of the queue.
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
#include "storage/client/loop_executor.h"

namespace ff::client {

class ClusterQueue final : public io::IoQueue, private Runnable {
 public:
  // All outlive it.
  ClusterQueue(LoopExecutor& calls, io::Disk& local, io::QueueOptions options);
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
  struct Completion {
    Done done;
    Result<size_t> result;
  };
  // State shared with the loop of the client.
  struct SharedState {
    std::mutex mutex;
    std::condition_variable changed;
    ClusterQueue* queue = nullptr;  // null: the queue is destroyed
    size_t running = 0;
    std::deque<Completion> finished;
  };
  using Operation = std::function<Task<Result<size_t>>()>;

  static Task<void> run_operation(std::shared_ptr<SharedState> shared, Loop& loop,
                                  Operation operation, Done done);
  static void deliver(const std::shared_ptr<SharedState>& shared);
  void start(Operation operation, Done done);
  Done counted(Done done);
  void on_wake() override;

  LoopExecutor& calls_;
  const size_t depth_;
  SystemClock clock_;
  std::optional<SystemLoop> own_;  // if the queue was not given a loop
  Loop& loop_;
  Timer waited_;
  size_t in_flight_ = 0;
  uint64_t done_ = 0;  // completed operations
  const std::shared_ptr<SharedState> shared_ = std::make_shared<SharedState>();
  std::unique_ptr<io::IoQueue> local_;
};

}  // namespace ff::client
