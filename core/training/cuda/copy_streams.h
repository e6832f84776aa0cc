// Staging memory of the host between a CUDA device and the collective operations, and the streams
// that copy: one from the device and one to it, so that both directions of PCIe are busy. The
// memory is pinned and has a slot for each chunk in flight.
//
// Copies are enqueued, and wait for each other on the device:
//
//   what was in the caller's stream -> copies from the device, copies to it
//   copy to the device out of a slot -> next copy from the device into it
//   last copy to the device of an operation -> copies of the next operation
//
// Call everything with the context of make() current.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "training/cuda/chunk_plan.h"
#include "training/cuda/driver.h"

namespace ff::cuda {

class CopyStreams {
 public:
  // Pins `staging`, which must outlive this object, and cuts it into slots.
  static Result<std::unique_ptr<CopyStreams>> make(const Driver& driver, ByteSpan staging,
                                                   uint32_t slots);
  // The streams are idle, or out of order after an error.
  ~CopyStreams();
  CopyStreams(const CopyStreams&) = delete;
  CopyStreams& operator=(const CopyStreams&) = delete;

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  ByteSpan staging(uint32_t slot) const {
    const uint64_t bytes = staging_.size() / slots_.size();
    return staging_.subspan(slot * bytes, bytes);
  }

  // All later copies wait for what the event has recorded.
  Result<void> wait_for(CUevent ready);
  // Enqueues copies from the device, maybe none, into a slot.
  Result<void> read(uint32_t slot, const void* device, std::span<const DeviceCopy> copies);
  // Whether they are done. Then the host may read and write the slot.
  Result<bool> is_read(uint32_t slot) const;
  // Enqueues copies from a slot to the device.
  Result<void> write(uint32_t slot, void* device, std::span<const DeviceCopy> copies);
  // `done` completes after all copies to the device; later copies from the device wait for it.
  Result<void> finish(CUevent done);
  Result<bool> is_idle() const;

 private:
  struct Slot {
    CUevent read = nullptr, written = nullptr;
  };

  CopyStreams(const Driver& driver, ByteSpan staging) : driver_(driver), staging_(staging) {}
  Result<void> open(uint32_t slots);

  const Driver& driver_;
  const ByteSpan staging_;
  bool is_pinned_ = false;
  CUstream from_device_ = nullptr, to_device_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace ff::cuda
