// pinned_copies.cc: a stream for copies, and the events around each.
#include "training/cuda/pinned_copies.h"

#include "platform/base/clock.h"
#include "training/cuda/caller.h"

namespace ff::cuda {

namespace {

constexpr int64_t kCopyPollNs = 200 * kMicrosecond;
constexpr int64_t kUnpinNs = 2 * kSecond;  // for copies in flight, at the end

}  // namespace

Result<std::unique_ptr<PinnedCopies>> PinnedCopies::make(const Driver& driver, ByteSpan memory) {
  FF_TRY(const CUcontext context, current_context(driver));
  std::unique_ptr<PinnedCopies> made(new PinnedCopies(driver, memory, context));
  FF_TRY(made->open());
  return made;
}

Result<void> PinnedCopies::open() {
  FF_TRY(driver_.check("cuMemHostRegister",
                       driver_.host_register(memory_.data(), memory_.size(), kRegisterPortable)));
  is_pinned_ = true;
  FF_TRY(driver_.check("cuStreamCreate", driver_.stream_create(&stream_, kStreamNonBlocking)));
  for (CUevent* const event : {&ready_, &copied_}) {
    FF_TRY(driver_.check("cuEventCreate", driver_.event_create(event, kEventDisableTiming)));
  }
  return {};
}

// If the work of the program before a copy does not end, the copy keeps what it uses: the driver
// has pinned the pages, which outlive their mapping.
PinnedCopies::~PinnedCopies() {
  const ContextScope scope(driver_, context_);
  SystemClock clock;
  for (const int64_t until_ns = clock.steady_ns() + kUnpinNs; stream_ != nullptr;) {
    const auto idle = driver_.query("cuStreamQuery", driver_.stream_query(stream_));
    if (!idle || *idle) break;
    if (clock.steady_ns() >= until_ns) return;
    clock.sleep_ns(kCopyPollNs);
  }
  for (const CUevent event : {ready_, copied_}) {
    if (event != nullptr) (void)driver_.event_destroy(event);
  }
  if (stream_ != nullptr) (void)driver_.stream_destroy(stream_);
  if (is_pinned_) (void)driver_.host_unregister(memory_.data());
}

Result<void> PinnedCopies::copy(void* to, const void* device, uint64_t bytes, CUstream stream) {
  const uint64_t offset = static_cast<uint64_t>(static_cast<std::byte*>(to) - memory_.data());
  if (offset > memory_.size() || bytes > memory_.size() - offset) {
    return fail(Errc::usage, "{} bytes at {} are beyond the memory of the state", bytes, to);
  }
  FF_TRY(const CUcontext context, current_context(driver_));
  if (context != context_) {
    return fail(Errc::usage, "another CUDA context is current than at the first copy");
  }
  FF_TRY(check_stream(driver_, stream));
  if (bytes == 0) return {};
  FF_TRY(check_device_memory(driver_, device, "the data of a tensor"));
  FF_TRY(driver_.check("cuEventRecord", driver_.event_record(ready_, stream)));
  FF_TRY(driver_.check("cuStreamWaitEvent", driver_.stream_wait_event(stream_, ready_, 0)));
  FF_TRY(driver_.check("cuMemcpyDtoHAsync",
                       driver_.copy_to_host_async(to, device_address(device), bytes, stream_)));
  FF_TRY(driver_.check("cuEventRecord", driver_.event_record(copied_, stream_)));
  return driver_.check("cuStreamWaitEvent", driver_.stream_wait_event(stream, copied_, 0));
}

// The event has recorded the last copy, and so all: they are in one stream.
Result<void> PinnedCopies::wait(const StopToken& stop) const {
  const ContextScope scope(driver_, context_);
  FF_TRY(scope.entered());
  for (;;) {
    FF_TRY(const bool done, driver_.query("cuEventQuery", driver_.event_query(copied_)));
    if (done) return {};
    FF_TRY(stop.check());
    stop.clock().sleep_ns(kCopyPollNs);
  }
}

}  // namespace ff::cuda
