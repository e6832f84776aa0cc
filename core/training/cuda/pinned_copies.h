// Copies from a CUDA device into memory of the host that stays pinned, such as that of a saver: the
// copy engine writes right there, and neither the program nor its device waits for more than the
// copies themselves.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "training/cuda/driver.h"

namespace ff::cuda {

// One thread at a time uses an object.
class PinnedCopies {
 public:
  // For the device whose context is current, which is that of every later copy(). Pins `memory`,
  // which must outlive this object.
  static Result<std::unique_ptr<PinnedCopies>> make(const Driver& driver, ByteSpan memory);
  // Waits up to 2 s for copies in flight.
  ~PinnedCopies();
  PinnedCopies(const PinnedCopies&) = delete;
  PinnedCopies& operator=(const PinnedCopies&) = delete;

  ByteSpan memory() const { return memory_; }
  // Enqueues a copy behind the work of `stream`, whose later work waits for it. `to` is in the
  // pinned memory. Errc::usage: another context is current, memory that is not of this device, a
  // stream that is being captured into a graph, bytes beyond the pinned memory.
  Result<void> copy(void* to, const void* device, uint64_t bytes, CUstream stream);
  // Waits until all copies are done. Errors: of the driver, or of `stop`.
  Result<void> wait(const StopToken& stop) const;

 private:
  PinnedCopies(const Driver& driver, ByteSpan memory, CUcontext context)
      : driver_(driver), memory_(memory), context_(context) {}
  Result<void> open();

  const Driver& driver_;
  const ByteSpan memory_;
  const CUcontext context_;
  bool is_pinned_ = false;
  CUstream stream_ = nullptr;
  CUevent ready_ = nullptr, copied_ = nullptr;
};

}  // namespace ff::cuda
