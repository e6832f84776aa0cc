// fake_driver.cc: the functions of NVIDIA's driver that ff calls, as the documentation of CUDA has
// them, on the devices of the fake driver.
#include "training/cuda/fake_cuda.h"
#include "training/cuda/fake_device.h"

using namespace fake_cuda;

namespace {

// A copy between the device and the host.
int copy_async(const char* function, void* host, uintptr_t device, size_t bytes, void* handle,
               Work::Kind kind) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  Stream* const stream = it.find_stream(handle);
  if (const int code = it.enter(function, stream != nullptr ? stream->context : current())) {
    return code;
  }
  if (stream == nullptr) return kBadHandle;
  const Range there{device, device + bytes}, here = range_of(host, bytes);
  std::byte* const alias = it.alias_of(there);
  if (alias == nullptr || bytes == 0) {
    it.report(std::string(function) + " beyond memory of the device");
    return kInvalid;
  }
  if (it.find_memory(there)->context != stream->context) {
    it.report(std::string(function) + " of memory of another device");
  }
  if (!it.is_pinned(here)) it.report(std::string(function) + " of memory that is not pinned");
  const bool to_host = kind == Work::Kind::to_host;
  const uint64_t tick = it.advance(*stream);
  it.access_by(*stream, tick, there, !to_host, function);
  it.access_by(*stream, tick, here, to_host, function);
  Work work{.kind = kind, .device = alias, .host = static_cast<std::byte*>(host), .bytes = bytes};
  if (!to_host) work.hash = hash_of(work.host, bytes);
  it.enqueue(*stream, std::move(work));
  return kOk;
}

}  // namespace

extern "C" {

FAKE_CUDA int cuInit(unsigned) {
  const std::lock_guard lock(fake().mutex);
  return fake().enter("cuInit", nullptr);
}

FAKE_CUDA int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> kNames = {{kOk, "CUDA_SUCCESS"},
                                                    {kInvalid, "CUDA_ERROR_INVALID_VALUE"},
                                                    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                    {100, "CUDA_ERROR_NO_DEVICE"},
                                                    {kNoContext, "CUDA_ERROR_INVALID_CONTEXT"},
                                                    {kBadHandle, "CUDA_ERROR_INVALID_HANDLE"},
                                                    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                    {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  const auto found = kNames.find(error);
  *name = found != kNames.end() ? found->second : nullptr;
  return found != kNames.end() ? kOk : kInvalid;
}

FAKE_CUDA int cuGetErrorString(int error, const char** text) {
  *text = error == 700 ? "an illegal memory access was encountered" : nullptr;
  return *text != nullptr ? kOk : kInvalid;
}

FAKE_CUDA int cuCtxGetCurrent(void** context) {
  const std::lock_guard lock(fake().mutex);
  *context = current();
  return fake().enter("cuCtxGetCurrent", current());
}

FAKE_CUDA int cuCtxGetDevice(int* device) {
  const std::lock_guard lock(fake().mutex);
  if (const int code = fake().enter("cuCtxGetDevice", current())) return code;
  if (current() == nullptr) return kNoContext;
  *device = current()->ordinal;
  return kOk;
}

FAKE_CUDA int cuCtxPushCurrent_v2(void* context) {
  const std::lock_guard lock(fake().mutex);
  auto* const pushed = static_cast<Context*>(context);
  if (const int code = fake().enter("cuCtxPushCurrent", pushed)) return code;
  current_contexts.push_back(pushed);
  return kOk;
}

FAKE_CUDA int cuCtxPopCurrent_v2(void** context) {
  const std::lock_guard lock(fake().mutex);
  if (const int code = fake().enter("cuCtxPopCurrent", current())) return code;
  if (current() == nullptr) return kNoContext;
  *context = current();
  current_contexts.pop_back();
  return kOk;
}

FAKE_CUDA int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  if (const int code = it.enter("cuPointerGetAttribute", current())) return code;
  const Range range{pointer, pointer + 1};
  const Allocation* const memory = it.find_memory(range);
  if (memory == nullptr && !it.is_pinned(range)) return kInvalid;
  if (attribute == 2) {
    *static_cast<unsigned*>(data) = memory != nullptr ? 2 : 1;
  } else {
    *static_cast<int*>(data) = memory != nullptr ? memory->context->ordinal : 0;
  }
  return kOk;
}

FAKE_CUDA int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  if (const int code = it.enter("cuMemHostRegister", current())) return code;
  if (current() == nullptr) return kNoContext;
  const Range range = range_of(memory, bytes);
  for (const Pinned& one : it.pinned) {
    if (one.range.overlaps(range)) it.report("memory is pinned twice");
  }
  it.pinned.push_back({.range = range, .context = current()});
  return kOk;
}

FAKE_CUDA int cuMemHostUnregister(void* memory) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  if (const int code = it.enter("cuMemHostUnregister", current())) return code;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto found =
      std::ranges::find_if(it.pinned, [&](const Pinned& one) { return one.range.begin == begin; });
  if (found == it.pinned.end()) {
    it.report("memory is unpinned that was not pinned");
    return kInvalid;
  }
  if (it.in_use(found->range)) it.report("memory is unpinned while a copy uses it");
  const Range gone = found->range;
  std::erase_if(it.accesses, [&](const Access& one) { return one.range.overlaps(gone); });
  it.pinned.erase(found);
  return kOk;
}

FAKE_CUDA int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  return copy_async("cuMemcpyDtoHAsync", to, from, bytes, stream, Work::Kind::to_host);
}

FAKE_CUDA int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes,
                                   void* stream) {
  return copy_async("cuMemcpyHtoDAsync", const_cast<void*>(from), to, bytes, stream,
                    Work::Kind::to_device);
}

FAKE_CUDA int cuStreamCreate(void** stream, unsigned flags) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  if (const int code = it.enter("cuStreamCreate", current())) return code;
  if (current() == nullptr) return kNoContext;
  if (flags != 1) it.report("a stream waits for the default stream");
  *stream = it.make_stream(current(), false);
  return kOk;
}

FAKE_CUDA int cuStreamDestroy_v2(void* handle) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  Stream* const stream = it.find_stream(handle);
  if (const int code = it.enter("cuStreamDestroy", stream != nullptr ? stream->context : nullptr))
    return code;
  if (stream == nullptr) return kBadHandle;
  if (stream->work.empty()) {
    it.streams.erase(stream);
  } else {
    it.report("a stream with work is destroyed");
    stream->is_destroyed = true;
  }
  return kOk;
}

FAKE_CUDA int cuStreamQuery(void* handle) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  Stream* const stream = it.find_stream(handle);
  if (const int code = it.enter("cuStreamQuery", stream != nullptr ? stream->context : nullptr))
    return code;
  if (stream == nullptr) return kBadHandle;
  if (!stream->work.empty()) return kBusy;
  stream->context->host.join(stream->clocks);
  return kOk;
}

FAKE_CUDA int cuStreamIsCapturing(void* handle, int* status) {
  const std::lock_guard lock(fake().mutex);
  Stream* const stream = fake().find_stream(handle);
  if (const int code = fake().enter("cuStreamIsCapturing", current())) return code;
  if (stream == nullptr) return kBadHandle;
  *status = stream->capture;
  return kOk;
}

FAKE_CUDA int cuStreamWaitEvent(void* handle, void* awaited, unsigned) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  Stream* const stream = it.find_stream(handle);
  const std::shared_ptr<Event> event = it.find_event(awaited);
  if (const int code = it.enter("cuStreamWaitEvent", stream != nullptr ? stream->context : nullptr))
    return code;
  if (stream == nullptr || event == nullptr) return kBadHandle;
  if (event->recorded == 0) return kOk;
  stream->clocks.join(event->clocks);
  it.enqueue(*stream, {.kind = Work::Kind::wait, .event = event, .record = event->recorded});
  return kOk;
}

FAKE_CUDA int cuEventCreate(void** event, unsigned flags) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  if (const int code = it.enter("cuEventCreate", current())) return code;
  if (current() == nullptr) return kNoContext;
  if (flags != 2) it.report("an event takes the time");
  auto made = std::make_shared<Event>();
  made->context = current();
  *event = made.get();
  it.events[made.get()] = std::move(made);
  return kOk;
}

FAKE_CUDA int cuEventDestroy_v2(void* handle) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  const std::shared_ptr<Event> event = it.find_event(handle);
  if (const int code = it.enter("cuEventDestroy", event != nullptr ? event->context : nullptr))
    return code;
  if (event == nullptr) return kBadHandle;
  if (it.is_awaited(*event)) it.report("an event is destroyed while a stream waits for it");
  it.events.erase(event.get());
  return kOk;
}

FAKE_CUDA int cuEventRecord(void* handle, void* on) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  Stream* const stream = it.find_stream(on);
  const std::shared_ptr<Event> event = it.find_event(handle);
  if (const int code = it.enter("cuEventRecord", stream != nullptr ? stream->context : nullptr))
    return code;
  if (stream == nullptr || event == nullptr) return kBadHandle;
  if (event->context != stream->context) {
    it.report("an event is recorded in a stream of another context");
    return kBadHandle;
  }
  (void)it.advance(*stream);
  event->clocks = stream->clocks;
  it.enqueue(*stream, {.kind = Work::Kind::record, .event = event, .record = ++event->recorded});
  return kOk;
}

FAKE_CUDA int cuEventQuery(void* handle) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  const std::shared_ptr<Event> event = it.find_event(handle);
  if (const int code = it.enter("cuEventQuery", event != nullptr ? event->context : nullptr))
    return code;
  if (event == nullptr) return kBadHandle;
  if (event->completed < event->recorded) return kBusy;
  event->context->host.join(event->clocks);
  return kOk;
}

}  // extern "C"
