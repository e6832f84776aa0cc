// NVIDIA's driver library, libcuda.so.1, loaded at run time: libff.so is built without CUDA and
// works on machines without it. The declarations follow the documentation of the driver API
// (docs.nvidia.com/cuda/cuda-driver-api); its enums are ints here. A static program cannot load
// the library, so only libff.so has what is in this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/base/result.h"

namespace ff::cuda {

// Opaque objects, by NVIDIA's names. Null as a stream is the default stream.
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUdeviceptr = unsigned long long;
using CUresult = int;

constexpr CUresult kSuccess = 0;
constexpr CUresult kInvalidValue = 1;
constexpr CUresult kNotReady = 600;
constexpr int kAttributeMemoryType = 2, kAttributeDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_...
constexpr unsigned kMemoryTypeDevice = 2;                             // CU_MEMORYTYPE_DEVICE
constexpr unsigned kRegisterPortable = 1;                             // CU_MEMHOSTREGISTER_PORTABLE
// CU_STREAM_NON_BLOCKING: the stream does not wait for the default stream, nor that for it.
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr int kCaptureNone = 0;              // CU_STREAM_CAPTURE_STATUS_NONE

// The functions that ff calls. Any thread may call them.
struct Driver {
  // Loads the library and initializes it. Errc::unsupported: it is not there, lacks a function, or
  // finds no device.
  static Result<Driver> load(const char* library);
  // That of this machine, loaded at the first call; the result stays what it was then.
  static const Result<Driver>& of_machine();

  // An error that names the call, NVIDIA's name of the error and the next step, unless the call
  // has succeeded.
  Result<void> check(const char* call, CUresult result) const;
  // The same of a query: whether the work is done.
  Result<bool> query(const char* call, CUresult result) const;

  CUresult (*init)(unsigned flags) = nullptr;
  CUresult (*error_name)(CUresult error, const char** name) = nullptr;
  CUresult (*error_string)(CUresult error, const char** text) = nullptr;
  // The context of the calling thread.
  CUresult (*context_get_current)(CUcontext* context) = nullptr;
  CUresult (*context_get_device)(int* device) = nullptr;
  CUresult (*context_push)(CUcontext context) = nullptr;
  CUresult (*context_pop)(CUcontext* context) = nullptr;
  CUresult (*pointer_get_attribute)(void* data, int attribute, CUdeviceptr pointer) = nullptr;
  // Pins memory, so that a device copies from and to it by itself.
  CUresult (*host_register)(void* memory, size_t bytes, unsigned flags) = nullptr;
  CUresult (*host_unregister)(void* memory) = nullptr;
  CUresult (*copy_to_host_async)(void* to, CUdeviceptr from, size_t bytes,
                                 CUstream stream) = nullptr;
  CUresult (*copy_to_device_async)(CUdeviceptr to, const void* from, size_t bytes,
                                   CUstream stream) = nullptr;
  CUresult (*stream_create)(CUstream* stream, unsigned flags) = nullptr;
  CUresult (*stream_destroy)(CUstream stream) = nullptr;
  // Work that is enqueued later waits for what the event has recorded last.
  CUresult (*stream_wait_event)(CUstream stream, CUevent event, unsigned flags) = nullptr;
  CUresult (*stream_query)(CUstream stream) = nullptr;  // kNotReady: work is left
  CUresult (*stream_is_capturing)(CUstream stream, int* status) = nullptr;
  CUresult (*event_create)(CUevent* event, unsigned flags) = nullptr;
  CUresult (*event_destroy)(CUevent event) = nullptr;
  // The event completes once all work that is in the stream now has completed.
  CUresult (*event_record)(CUevent event, CUstream stream) = nullptr;
  CUresult (*event_query)(CUevent event) = nullptr;  // kNotReady: not complete
};

}  // namespace ff::cuda
