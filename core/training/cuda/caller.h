// What a call of the program gives to operations on a device: its context, stream and memory.
#pragma once

#include <cstdint>

#include "platform/base/result.h"
#include "training/cuda/driver.h"

namespace ff::cuda {

// The context of the calling thread. Errc::usage: it has none.
Result<CUcontext> current_context(const Driver& driver);
// Errc::usage: the stream is being captured into a graph.
Result<void> check_stream(const Driver& driver, CUstream stream);
// Errc::usage: the memory, "its input", is not memory of the device of the current context.
Result<void> check_device_memory(const Driver& driver, const void* memory, const char* what);
CUdeviceptr device_address(const void* memory, uint64_t offset = 0);

// Makes a context current in this thread while it lives.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // An error: it is not current.
  const Result<void>& entered() const { return entered_; }

 private:
  const Driver& driver_;
  const Result<void> entered_;
};

}  // namespace ff::cuda
