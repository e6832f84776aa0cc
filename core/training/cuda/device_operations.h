// Collective operations on memory of a CUDA device (Fire-Flyer paper, section IV: HFReduce). A
// thread cuts each operation into chunks (chunk_plan.h): the copy engine of the device copies a
// chunk into pinned memory that all ranks of the host share, the ranks reduce it there
// (collective/communicator.h), and the copy engine copies the result back, while other chunks are
// on their way in both directions (copy_streams.h). No kernel runs.
//
// start() orders the operation behind the work that is in the caller's stream, and wait() orders
// later work of that stream behind the operation: with events, so no other stream waits.
//
// The operations of the host that belong to one device operation follow one another: first one by
// which the ranks see whether all of them have called the same, then one for each chunk. Ranks that
// mix operations on host and device memory call drain() before the former.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "training/collective/communicator.h"
#include "training/cuda/chunk_plan.h"
#include "training/cuda/copy_streams.h"
#include "training/cuda/driver.h"

namespace ff::cuda {

// The same on all ranks. The defaults are not measured on a device yet: a chunk should take much
// longer than the start of its copy, and with four of them both directions are busy while the host
// reduces one.
struct DeviceOptions {
  uint64_t chunk_bytes = 4 << 20;
  uint32_t slots = 4;
};

class DeviceOperations {
 public:
  // Numbers of operations start here: above those of the communicator, below those of messages.
  static constexpr uint64_t kFirst = uint64_t{1} << 62;
  static constexpr uint64_t kUnfinishedMax = 64;

  // All three must outlive this object; `stop` is that of the communicator.
  DeviceOperations(const Driver& driver, collective::Communicator& ranks, StopToken& stop,
                   const DeviceOptions& options);
  // Abandons operations, which ends those of the communicator, too. Waits up to 2 s for copies.
  ~DeviceOperations();
  DeviceOperations(const DeviceOperations&) = delete;
  DeviceOperations& operator=(const DeviceOperations&) = delete;

  // Starts an allreduce, reduce, broadcast, all-gather or reduce-scatter of memory of the device
  // whose context is current, behind the work of `stream`, and returns its number. The memory must
  // not be used before wait(). The first call fixes the context, and pins the staging memory.
  // Errc::usage: the errors of Communicator::start(), no context or another one, memory that is not
  // of this device, a stream that is being captured into a graph; Errc::busy: kUnfinishedMax are
  // waited for. Any other error makes all operations of all ranks fail.
  Result<uint64_t> start(const collective::Operation& operation, CUstream stream);
  // Waits until the last copy to the device is enqueued, and makes the stream of start() wait for
  // it. Needed for every operation; once. Errors: those of Communicator::wait(), with operation_ns
  // for each chunk and for the work of the stream before the first one; those of the driver. After
  // an error no copy uses the memory, unless work of the stream does not end within 2 s.
  Result<void> wait(uint64_t number);
  // Waits until the thread has no operation any more.
  void drain();

 private:
  struct Started {
    collective::Operation operation;
    std::string text;  // for messages
    CUstream stream = nullptr;
    CUevent ready = nullptr, done = nullptr;
    std::optional<Result<void>> result = {};  // guarded by mutex_
  };

  Result<void> check_memory(const collective::Operation& operation) const;
  Result<void> open(CUcontext context);
  Result<std::shared_ptr<Started>> prepare(const collective::Operation& operation,
                                           const std::string& text, CUstream stream);
  Result<CUevent> take_event();
  Result<void> order_behind(const Started& started) const;
  void work();
  bool settle() const;
  void close();
  Result<void> execute(const Started& started, const Result<void>& entered);
  Result<void> transfer(const Started& started, bool& agreed);
  Result<void> check_agreement(const collective::Operation& operation);
  Result<void> read_chunk(const ChunkPlan& plan, const Started& started, uint64_t index);
  Result<uint64_t> start_chunk(const ChunkPlan& plan, const Started& started, uint64_t index);
  Result<void> write_chunk(const ChunkPlan& plan, const Started& started, uint64_t index);
  Result<void> await_read(uint32_t slot, const std::string& text);
  uint32_t slot_of(uint64_t index) const { return static_cast<uint32_t>(index % options_.slots); }

  const Driver& driver_;
  collective::Communicator& ranks_;
  StopToken& stop_;
  const DeviceOptions options_;
  CUcontext context_ = nullptr;
  std::unique_ptr<CopyStreams> streams_;  // null before the first operation
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool stopping_ = false;
  uint64_t next_ = kFirst;
  std::map<uint64_t, std::shared_ptr<Started>> started_;  // that nobody has waited for
  std::deque<std::shared_ptr<Started>> queue_;            // of the thread
  std::vector<CUevent> events_, free_events_;
  std::thread thread_;
};

}  // namespace ff::cuda
