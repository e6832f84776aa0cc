// caller.cc: questions to the driver, and errors that say what the program has to change.
#include "training/cuda/caller.h"

namespace ff::cuda {

Result<CUcontext> current_context(const Driver& driver) {
  CUcontext context = nullptr;
  FF_TRY(driver.check("cuCtxGetCurrent", driver.context_get_current(&context)));
  if (context != nullptr) return context;
  Error error = fail(Errc::usage, "no CUDA context is current in this thread");
  error.hint = "Call cudaSetDevice() or cuCtxSetCurrent() first.";
  return error;
}

// A graph would repeat the events of an operation, and not the operation.
Result<void> check_stream(const Driver& driver, CUstream stream) {
  int status = kCaptureNone;
  FF_TRY(driver.check("cuStreamIsCapturing", driver.stream_is_capturing(stream, &status)));
  if (status == kCaptureNone) return {};
  Error error = fail(Errc::usage, "the stream is being captured into a graph");
  error.hint = "Call ff before or after the capture: a graph cannot contain its operations.";
  return error;
}

Result<void> check_device_memory(const Driver& driver, const void* memory, const char* what) {
  const CUdeviceptr address = device_address(memory);
  unsigned type = 0;
  const CUresult known = driver.pointer_get_attribute(&type, kAttributeMemoryType, address);
  if (known != kInvalidValue) FF_TRY(driver.check("cuPointerGetAttribute", known));
  if (known == kInvalidValue || type != kMemoryTypeDevice) {
    Error error = fail(Errc::usage, "{}, {:#x}, is not memory of a CUDA device", what, address);
    error.hint = "Functions without a stream take memory of the host.";
    return error;
  }
  int device = 0, current = 0;
  const CUresult found = driver.pointer_get_attribute(&device, kAttributeDeviceOrdinal, address);
  FF_TRY(driver.check("cuPointerGetAttribute", found));
  FF_TRY(driver.check("cuCtxGetDevice", driver.context_get_device(&current)));
  if (device == current) return {};
  return fail(Errc::usage, "{} is memory of device {}, and device {} is current", what, device,
              current);
}

CUdeviceptr device_address(const void* memory, uint64_t offset) {
  return reinterpret_cast<uintptr_t>(memory) + offset;
}

ContextScope::ContextScope(const Driver& driver, CUcontext context)
    : driver_(driver), entered_(driver.check("cuCtxPushCurrent", driver.context_push(context))) {}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (entered_) (void)driver_.context_pop(&popped);
}

}  // namespace ff::cuda
