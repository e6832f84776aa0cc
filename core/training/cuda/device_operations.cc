// device_operations.cc: the calls of a program, and the thread that moves chunks.
#include "training/cuda/device_operations.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

#include "platform/base/bytes.h"
#include "platform/base/units.h"
#include "training/cuda/caller.h"

namespace ff::cuda {

namespace {

using collective::CollectiveRequest;
using collective::Operation;

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kElementBytesMax = 8;
constexpr uint32_t kYields = 100;  // of a wait, before it sleeps
constexpr int64_t kPollNs = 20 * kMicrosecond;
constexpr int64_t kSettleNs = 2 * kSecond;  // for copies in flight, after an error and at the end

void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

DeviceOperations::DeviceOperations(const Driver& driver, collective::Communicator& ranks,
                                   StopToken& stop, const DeviceOptions& options)
    : driver_(driver), ranks_(ranks), stop_(stop), options_(options) {
  FF_CHECK(options_.slots >= 2);  // one chunk arrives while the host works on the one before
}

DeviceOperations::~DeviceOperations() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.request();
  changed_.notify_all();
  thread_.join();
}

Result<uint64_t> DeviceOperations::start(const Operation& operation, CUstream stream) {
  const std::string text = text_of(operation.request_without_memory()) + " on a device";
  FF_TRY(ranks_.check(operation));
  if (auto failure = ranks_.failure(text)) return std::move(*failure);
  {
    const std::lock_guard lock(mutex_);
    if (started_.size() >= kUnfinishedMax) {
      return fail(Errc::busy, "{}: {} operations on a device are unfinished: wait for one first",
                  text, kUnfinishedMax);
    }
  }
  auto prepared = prepare(operation, text, stream);
  if (!prepared) {
    Error error = std::move(prepared).error().with_context(text + ": ");
    if (error.code == Errc::usage) return error;
    return ranks_.abort(std::move(error));
  }
  const std::lock_guard lock(mutex_);
  started_[next_] = *prepared;
  queue_.push_back(std::move(*prepared));
  changed_.notify_all();
  return next_++;
}

// Checks what only the driver knows, and records what is in the stream.
Result<std::shared_ptr<DeviceOperations::Started>> DeviceOperations::prepare(
    const Operation& operation, const std::string& text, CUstream stream) {
  FF_TRY(const CUcontext context, current_context(driver_));
  FF_TRY(check_stream(driver_, stream));
  FF_TRY(check_memory(operation));
  FF_TRY(open(context));
  auto made = std::make_shared<Started>();
  made->operation = operation;
  made->text = text;
  made->stream = stream;
  FF_TRY(made->ready, take_event());
  FF_TRY(made->done, take_event());
  FF_TRY(driver_.check("cuEventRecord", driver_.event_record(made->ready, stream)));
  return made;
}

Result<void> DeviceOperations::check_memory(const Operation& operation) const {
  const CollectiveRequest request = operation.request_without_memory();
  if (input_bytes(request, ranks_.rank(), ranks_.ranks()) > 0) {
    FF_TRY(check_device_memory(driver_, operation.in, "its input"));
  }
  if (output_bytes(request, ranks_.rank(), ranks_.ranks()) > 0) {
    FF_TRY(check_device_memory(driver_, operation.out, "its output"));
  }
  return {};
}

// Of the first operation: pins staging memory and starts the thread.
Result<void> DeviceOperations::open(CUcontext context) {
  if (streams_ != nullptr) {
    if (context == context_) return {};
    return fail(Errc::usage,
                "another CUDA context is current than at the first operation of this communicator");
  }
  const uint64_t slot_bytes =
      align_up(std::max(options_.chunk_bytes, ranks_.ranks() * kElementBytesMax), kPageBytes);
  FF_TRY(const ByteSpan staging, ranks_.allocate(options_.slots * slot_bytes));
  FF_TRY(streams_, CopyStreams::make(driver_, staging, options_.slots));
  context_ = context;
  thread_ = std::thread([this] { work(); });
  return {};
}

Result<CUevent> DeviceOperations::take_event() {
  const std::lock_guard lock(mutex_);
  if (free_events_.empty()) {
    CUevent event = nullptr;
    FF_TRY(driver_.check("cuEventCreate", driver_.event_create(&event, kEventDisableTiming)));
    events_.push_back(event);
    return event;
  }
  const CUevent event = free_events_.back();
  free_events_.pop_back();
  return event;
}

Result<void> DeviceOperations::wait(uint64_t number) {
  std::shared_ptr<Started> started;
  {
    std::unique_lock lock(mutex_);
    const auto found = started_.find(number);
    if (found == started_.end()) {
      return fail(Errc::usage, "operation {} on a device was not started, or was waited for",
                  number - kFirst);
    }
    started = std::move(found->second);
    started_.erase(found);
    changed_.wait(lock, [&] { return started->result.has_value(); });
    if (!*started->result) return std::move(*started->result);
  }
  auto ordered = order_behind(*started);
  if (!ordered) {
    Error named = ranks_.abort(std::move(ordered).error().with_context(started->text + ": "));
    (void)settle();
    return named;
  }
  const std::lock_guard lock(mutex_);
  free_events_.push_back(started->done);
  return {};
}

// The default stream is that of the current context.
Result<void> DeviceOperations::order_behind(const Started& started) const {
  const ContextScope scope(driver_, context_);
  FF_TRY(scope.entered());
  return driver_.check("cuStreamWaitEvent",
                       driver_.stream_wait_event(started.stream, started.done, 0));
}

void DeviceOperations::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
}

void DeviceOperations::work() {
  block_signals();
  const ContextScope scope(driver_, context_);
  for (;;) {
    std::shared_ptr<Started> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) break;
      next = queue_.front();
    }
    auto result = execute(*next, scope.entered());
    if (!result) (void)settle();
    const std::lock_guard lock(mutex_);
    next->result = std::move(result);
    queue_.pop_front();
    free_events_.push_back(next->ready);
    changed_.notify_all();
  }
  close();
}

// Waits for copies in flight, so that their memory can be freed. False: they wait for work of the
// caller's stream that does not end. In a context with an error nothing runs.
bool DeviceOperations::settle() const {
  Clock& clock = stop_.clock();
  for (const int64_t until_ns = clock.steady_ns() + kSettleNs;;) {
    const auto idle = streams_->is_idle();
    if (!idle || *idle) return true;
    if (clock.steady_ns() >= until_ns) return false;
    clock.sleep_ns(kPollNs);
  }
}

// Copies that do not settle keep the streams and the pinned pages, which outlive their mapping.
void DeviceOperations::close() {
  if (!settle()) return (void)streams_.release();
  streams_.reset();
  for (const CUevent event : events_) (void)driver_.event_destroy(event);
}

// An error of this rank becomes that of all ranks. Two kinds do not: all ranks see by themselves
// that one has left, and when they have called different operations, they can go on.
Result<void> DeviceOperations::execute(const Started& started, const Result<void>& entered) {
  bool agreed = false;
  Result<void> result = entered ? transfer(started, agreed) : entered;
  if (result) return result;
  Error& error = result.error();
  if (error.code == Errc::interrupted) return error;
  if (auto failure = ranks_.failure(started.text)) return std::move(*failure);
  Error named = std::move(error).with_context(started.text + ": ");
  if (named.code == Errc::unreachable || (named.code == Errc::usage && !agreed)) return named;
  return ranks_.abort(std::move(named));
}

Result<void> DeviceOperations::transfer(const Started& started, bool& agreed) {
  const ChunkPlan plan(started.operation, ranks_.rank(), ranks_.ranks(),
                       streams_->staging(0).size());
  const uint64_t chunks = plan.chunks();
  FF_TRY(streams_->wait_for(started.ready));
  uint64_t reads = 0;  // chunks that are on their way from the device, or were
  for (; reads < std::min<uint64_t>(chunks, streams_->slots()); reads++) {
    FF_TRY(read_chunk(plan, started, reads));
  }
  FF_TRY(check_agreement(started.operation));
  agreed = true;
  uint64_t before = 0;  // the host's operation of the chunk before
  for (uint64_t index = 0; index <= chunks; index++) {
    uint64_t number = 0;
    if (index < chunks) {
      FF_TRY(number, start_chunk(plan, started, index));
    }
    if (index > 0) {
      FF_TRY(ranks_.wait(before));
      FF_TRY(write_chunk(plan, started, index - 1));
      if (reads < chunks) {
        FF_TRY(read_chunk(plan, started, reads));
        reads++;
      }
    }
    before = number;
  }
  return streams_->finish(started.done);
}

// Errc::usage names two ranks that have called different operations.
Result<void> DeviceOperations::check_agreement(const Operation& operation) {
  const CollectiveRequest own = operation.request_without_memory();
  std::vector<CollectiveRequest> all(ranks_.ranks());
  FF_TRY(ranks_.run({.kind = collective::Collective::allgather,
                     .type = simd::DataType::u8,
                     .count = sizeof own,
                     .in = &own,
                     .out = all.data()}));
  const auto differs = std::ranges::find_if(all, [&](const CollectiveRequest& other) {
    return !is_valid(other) || !agree(other, all.front());
  });
  if (differs == all.end()) return {};
  const auto text = [](const CollectiveRequest& request) {
    return is_valid(request) ? text_of(request) : "an unknown operation";
  };
  return fail(Errc::usage, "{} requested {}, {} requested {}", ranks_.name_of(0), text(all.front()),
              ranks_.name_of(static_cast<uint32_t>(differs - all.begin())), text(*differs));
}

Result<void> DeviceOperations::read_chunk(const ChunkPlan& plan, const Started& started,
                                          uint64_t index) {
  return streams_->read(slot_of(index), started.operation.in, plan.chunk(index).from_device);
}

Result<void> DeviceOperations::write_chunk(const ChunkPlan& plan, const Started& started,
                                           uint64_t index) {
  return streams_->write(slot_of(index), started.operation.out, plan.chunk(index).to_device);
}

// Waits until a chunk is in its slot, and starts the host's operation on it.
Result<uint64_t> DeviceOperations::start_chunk(const ChunkPlan& plan, const Started& started,
                                               uint64_t index) {
  FF_TRY(await_read(slot_of(index), started.text));
  const PlannedChunk chunk = plan.chunk(index);
  std::byte* const memory = streams_->staging(slot_of(index)).data();
  Operation operation = started.operation;
  operation.count = chunk.count;
  operation.in = memory + chunk.in_at;
  operation.out = memory + chunk.out_at;
  // Busy: a thread of the program has still to return from the wait for an older operation.
  for (const int64_t until_ns = stop_.clock().steady_ns() + ranks_.options().operation_ns;;) {
    auto number = ranks_.start(operation);
    const bool is_busy = !number && number.error().code == Errc::busy;
    if (!is_busy || stop_.clock().steady_ns() >= until_ns) return number;
    FF_TRY(stop_.sleep_ns(kMillisecond));
  }
}

Result<void> DeviceOperations::await_read(uint32_t slot, const std::string& text) {
  Clock& clock = stop_.clock();
  const int64_t limit_ns = ranks_.options().operation_ns;
  const int64_t until_ns = clock.steady_ns() + limit_ns;
  for (uint32_t polls = 0;; polls++) {
    FF_TRY(const bool done, streams_->is_read(slot));
    if (done) return {};
    FF_TRY(stop_.check());
    if (auto failure = ranks_.failure(text)) return std::move(*failure);
    if (clock.steady_ns() >= until_ns) {
      Error error = fail(Errc::deadline, "the device has not copied its input within {}",
                         format_duration(limit_ns));
      error.hint = "Find out whether the work before it in the stream ever ends.";
      return error;
    }
    if (polls < kYields) {
      std::this_thread::yield();
    } else {
      clock.sleep_ns(kPollNs);
    }
  }
}

}  // namespace ff::cuda
