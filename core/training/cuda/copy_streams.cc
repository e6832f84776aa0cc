// copy_streams.cc: copies and events on two streams.
#include "training/cuda/copy_streams.h"

#include "training/cuda/caller.h"

namespace ff::cuda {

Result<std::unique_ptr<CopyStreams>> CopyStreams::make(const Driver& driver, ByteSpan staging,
                                                       uint32_t slots) {
  std::unique_ptr<CopyStreams> made(new CopyStreams(driver, staging));
  FF_TRY(made->open(slots));
  return made;
}

Result<void> CopyStreams::open(uint32_t slots) {
  FF_TRY(driver_.check("cuMemHostRegister",
                       driver_.host_register(staging_.data(), staging_.size(), kRegisterPortable)));
  is_pinned_ = true;
  for (CUstream* const stream : {&from_device_, &to_device_}) {
    FF_TRY(driver_.check("cuStreamCreate", driver_.stream_create(stream, kStreamNonBlocking)));
  }
  slots_.resize(slots);
  for (Slot& slot : slots_) {
    for (CUevent* const event : {&slot.read, &slot.written}) {
      FF_TRY(driver_.check("cuEventCreate", driver_.event_create(event, kEventDisableTiming)));
    }
  }
  return {};
}

// Errors have no consequence any more: those of a broken context come from every call.
CopyStreams::~CopyStreams() {
  for (const Slot& slot : slots_) {
    for (const CUevent event : {slot.read, slot.written}) {
      if (event != nullptr) (void)driver_.event_destroy(event);
    }
  }
  for (const CUstream stream : {from_device_, to_device_}) {
    if (stream != nullptr) (void)driver_.stream_destroy(stream);
  }
  if (is_pinned_) (void)driver_.host_unregister(staging_.data());
}

Result<void> CopyStreams::wait_for(CUevent ready) {
  for (const CUstream stream : {from_device_, to_device_}) {
    FF_TRY(driver_.check("cuStreamWaitEvent", driver_.stream_wait_event(stream, ready, 0)));
  }
  return {};
}

Result<void> CopyStreams::read(uint32_t slot, const void* device,
                               std::span<const DeviceCopy> copies) {
  const Slot& events = slots_[slot];
  // An event that nothing has recorded is complete.
  FF_TRY(driver_.check("cuStreamWaitEvent",
                       driver_.stream_wait_event(from_device_, events.written, 0)));
  std::byte* const memory = staging(slot).data();
  for (const DeviceCopy& copy : copies) {
    FF_TRY(driver_.check(
        "cuMemcpyDtoHAsync",
        driver_.copy_to_host_async(memory + copy.staging_at, device_address(device, copy.device_at),
                                   copy.bytes, from_device_)));
  }
  return driver_.check("cuEventRecord", driver_.event_record(events.read, from_device_));
}

Result<bool> CopyStreams::is_read(uint32_t slot) const {
  return driver_.query("cuEventQuery", driver_.event_query(slots_[slot].read));
}

Result<void> CopyStreams::write(uint32_t slot, void* device, std::span<const DeviceCopy> copies) {
  const std::byte* const memory = staging(slot).data();
  for (const DeviceCopy& copy : copies) {
    FF_TRY(driver_.check(
        "cuMemcpyHtoDAsync",
        driver_.copy_to_device_async(device_address(device, copy.device_at),
                                     memory + copy.staging_at, copy.bytes, to_device_)));
  }
  return driver_.check("cuEventRecord", driver_.event_record(slots_[slot].written, to_device_));
}

Result<void> CopyStreams::finish(CUevent done) {
  FF_TRY(driver_.check("cuEventRecord", driver_.event_record(done, to_device_)));
  return driver_.check("cuStreamWaitEvent", driver_.stream_wait_event(from_device_, done, 0));
}

Result<bool> CopyStreams::is_idle() const {
  for (const CUstream stream : {from_device_, to_device_}) {
    FF_TRY(const bool is_empty, driver_.query("cuStreamQuery", driver_.stream_query(stream)));
    if (!is_empty) return false;
  }
  return true;
}

}  // namespace ff::cuda
