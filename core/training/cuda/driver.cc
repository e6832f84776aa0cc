// driver.cc: finds the functions of libcuda.so.1, and turns its errors into ours.
#include "training/cuda/driver.h"

#include <dlfcn.h>

#include <type_traits>

namespace ff::cuda {

namespace {

// Stores the functions of the library; null, or the name of one that it does not have. Of those
// that NVIDIA has changed, the name ends with the version that the declaration is of.
const char* find_functions(void* library, Driver& driver) {
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  find(driver.init, "cuInit");
  find(driver.error_name, "cuGetErrorName");
  find(driver.error_string, "cuGetErrorString");
  find(driver.context_get_current, "cuCtxGetCurrent");
  find(driver.context_get_device, "cuCtxGetDevice");
  find(driver.context_push, "cuCtxPushCurrent_v2");
  find(driver.context_pop, "cuCtxPopCurrent_v2");
  find(driver.pointer_get_attribute, "cuPointerGetAttribute");
  find(driver.host_register, "cuMemHostRegister_v2");
  find(driver.host_unregister, "cuMemHostUnregister");
  find(driver.copy_to_host_async, "cuMemcpyDtoHAsync_v2");
  find(driver.copy_to_device_async, "cuMemcpyHtoDAsync_v2");
  find(driver.stream_create, "cuStreamCreate");
  find(driver.stream_destroy, "cuStreamDestroy_v2");
  find(driver.stream_wait_event, "cuStreamWaitEvent");
  find(driver.stream_query, "cuStreamQuery");
  find(driver.stream_is_capturing, "cuStreamIsCapturing");
  find(driver.event_create, "cuEventCreate");
  find(driver.event_destroy, "cuEventDestroy_v2");
  find(driver.event_record, "cuEventRecord");
  find(driver.event_query, "cuEventQuery");
  return missing;
}

}  // namespace

// The library stays loaded: it has threads of its own.
Result<Driver> Driver::load(const char* library) {
  void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    Error error = fail(Errc::unsupported, "operations on device memory: {}", ::dlerror());
    error.hint = "Install NVIDIA's driver, or keep the arrays in host memory.";
    return error;
  }
  Driver driver;
  if (const char* const missing = find_functions(loaded, driver)) {
    Error error = fail(Errc::unsupported, "{} has no function {}", library, missing);
    error.hint = "Install a driver for CUDA 11 or later.";
    return error;
  }
  if (auto ready = driver.check("cuInit", driver.init(0)); !ready) {
    Error error = std::move(ready).error();
    error.code = Errc::unsupported;
    error.hint = "Find out with nvidia-smi whether the driver has a device.";
    return error;
  }
  return driver;
}

const Result<Driver>& Driver::of_machine() {
  static const Result<Driver> loaded = load("libcuda.so.1");
  return loaded;
}

Result<void> Driver::check(const char* call, CUresult result) const {
  if (result == kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(result, &name) != kSuccess || name == nullptr) name = "an unknown error";
  if (error_string(result, &text) != kSuccess || text == nullptr) text = "no description";
  Error error = fail(Errc::failed, "{}: {} ({}: {})", call, name, result, text);
  error.hint =
      "An earlier error of the program on this device has the same effect: check its own calls of "
      "CUDA, and the kernel log for Xid messages (ff validate).";
  return error;
}

Result<bool> Driver::query(const char* call, CUresult result) const {
  if (result == kNotReady) return false;
  FF_TRY(check(call, result));
  return true;
}

}  // namespace ff::cuda
