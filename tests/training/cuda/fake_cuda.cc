// fake_cuda.cc: what tests do with the devices of the fake driver.
#include "training/cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "training/cuda/fake_device.h"

using namespace fake_cuda;

namespace {

// A kernel of the test.
void launch(void* handle, const void* memory, size_t bytes, Work work, const char* what) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  Stream* const stream = it.find_stream(handle);
  work.device = it.alias_of(range_of(memory, bytes));
  work.bytes = bytes;
  if (stream == nullptr || work.device == nullptr) return it.report("a kernel without memory");
  const bool writes = work.kind == Work::Kind::write;
  it.access_by(*stream, it.advance(*stream), range_of(memory, bytes), writes, what);
  it.enqueue(*stream, std::move(work));
}

}  // namespace

extern "C" {

void* fake_cuda_context() {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  it.contexts.push_back(std::make_unique<Context>());
  Context* const made = it.contexts.back().get();
  made->ordinal = static_cast<int>(it.contexts.size() - 1);
  made->default_stream = it.make_stream(made, true);
  current_contexts = {made};
  it.start();
  return made;
}

void fake_cuda_make_current(void* context) { current_contexts = {static_cast<Context*>(context)}; }

size_t fake_cuda_destroy_context(void* handle) {
  auto* const context = static_cast<Context*>(handle);
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  context->error = kNoContext;  // its streams stop
  size_t left = 0;
  left += std::erase_if(it.pinned, [&](const Pinned& one) { return one.context == context; });
  left += std::erase_if(it.events, [&](const auto& one) { return one.second->context == context; });
  std::erase_if(it.accesses, [&](const Access& one) { return one.context == context; });
  std::erase_if(it.allocations, [&](const auto& one) { return one.second.context == context; });
  std::erase_if(it.streams, [&](const auto& one) {
    Stream& stream = *one.second;
    if (stream.context != context || stream.is_destroyed) return false;
    if (!stream.is_ours) left++;
    stream.is_destroyed = true;
    return stream.work.empty();
  });
  return left;
}

void fake_cuda_seed(uint64_t seed) {
  const std::lock_guard lock(fake().mutex);
  fake().order.seed(seed);
}

void* fake_cuda_stream(void* context) {
  const std::lock_guard lock(fake().mutex);
  return fake().make_stream(static_cast<Context*>(context), true);
}

void* fake_cuda_alloc(void* context, size_t bytes) {
  const int file = ::memfd_create("fake-cuda", MFD_CLOEXEC);
  const size_t size = std::max<size_t>(bytes, 1);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) std::abort();
  void* const there = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
  void* const alias = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (there == MAP_FAILED || alias == MAP_FAILED) std::abort();
  const Range range = range_of(there, size);
  const std::lock_guard lock(fake().mutex);
  fake().allocations[range.begin] = {.range = range,
                                     .alias = static_cast<std::byte*>(alias),
                                     .context = static_cast<Context*>(context)};
  return there;
}

void fake_cuda_free(void* memory) {
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  const auto found = it.allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == it.allocations.end()) return it.report("memory that does not exist is freed");
  const Allocation gone = found->second;
  const size_t bytes = gone.range.end - gone.range.begin;
  if (it.in_use(range_of(gone.alias, bytes))) return it.report("device memory is freed in use");
  std::erase_if(it.accesses, [&](const Access& one) { return one.range.overlaps(gone.range); });
  it.allocations.erase(found);
  (void)::munmap(memory, bytes);
  (void)::munmap(gone.alias, bytes);
}

void fake_cuda_store(void* memory, const void* from, size_t bytes) {
  if (bytes == 0) return;
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  const Range range = range_of(memory, bytes);
  it.access_by_host(it.find_memory(range)->context, range, true, "a write of the test");
  std::memcpy(it.alias_of(range), from, bytes);
}

void fake_cuda_load(const void* memory, void* to, size_t bytes) {
  if (bytes == 0) return;
  Fake& it = fake();
  const std::lock_guard lock(it.mutex);
  const Range range = range_of(memory, bytes);
  it.access_by_host(it.find_memory(range)->context, range, false, "a read of the test");
  std::memcpy(to, it.alias_of(range), bytes);
}

void fake_cuda_write(void* stream, void* memory, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const auto* const content = static_cast<const std::byte*>(from);
  launch(stream, memory, bytes, {.kind = Work::Kind::write, .content = {content, content + bytes}},
         "a kernel that writes");
}

void fake_cuda_read(void* stream, const void* memory, void* to, size_t bytes) {
  if (bytes == 0) return;
  launch(stream, memory, bytes, {.kind = Work::Kind::read, .host = static_cast<std::byte*>(to)},
         "a kernel that reads");
}

void fake_cuda_hold(void* handle) {
  const std::lock_guard lock(fake().mutex);
  if (Stream* const stream = fake().find_stream(handle)) fake().enqueue(*stream, {});
}

void fake_cuda_release(void* handle) {
  const std::lock_guard lock(fake().mutex);
  if (Stream* const stream = fake().find_stream(handle)) stream->releases++;
  fake().wake.notify_all();
}

int fake_cuda_synchronize(void* handle) {
  Fake& it = fake();
  std::unique_lock lock(it.mutex);
  Stream* const stream = it.find_stream(handle);
  if (stream == nullptr) return kBadHandle;
  it.idle.wait(lock, [&] { return stream->work.empty() || stream->context->error != kOk; });
  stream->context->host.join(stream->clocks);
  return stream->context->error;
}

int fake_cuda_synchronize_all(void* of) {
  auto* const context = static_cast<Context*>(of);
  Fake& it = fake();
  std::unique_lock lock(it.mutex);
  it.idle.wait(lock, [&] {
    return context->error != kOk || std::ranges::all_of(it.streams, [&](const auto& one) {
             return one.second->context != context || one.second->work.empty();
           });
  });
  for (const auto& [handle, stream] : it.streams) {
    if (stream->context == context) context->host.join(stream->clocks);
  }
  return context->error;
}

void fake_cuda_capture(void* handle, int status) {
  const std::lock_guard lock(fake().mutex);
  if (Stream* const stream = fake().find_stream(handle)) stream->capture = status;
}

void fake_cuda_fail(void* context, const char* function, unsigned nth, int code) {
  const std::lock_guard lock(fake().mutex);
  fake().failures.push_back(
      {.context = static_cast<Context*>(context), .function = function, .left = nth, .code = code});
}

unsigned fake_cuda_failures() {
  const std::lock_guard lock(fake().mutex);
  fake().failures.clear();
  return std::exchange(fake().failed, 0);
}

size_t fake_cuda_reports(char* text, size_t bytes) {
  const std::lock_guard lock(fake().mutex);
  std::string all;
  for (const std::string& one : fake().reports) all += one + "\n";
  if (bytes > 0) {
    const size_t size = std::min(all.size(), bytes - 1);
    all.copy(text, size);
    text[size] = '\0';
  }
  const size_t count = fake().reports.size();
  fake().reports.clear();
  return count;
}

size_t fake_cuda_leaks() {
  const Fake& it = fake();
  const std::lock_guard lock(fake().mutex);
  size_t leaks = it.events.size() + it.pinned.size();
  for (const auto& [handle, stream] : it.streams) {
    leaks += stream->is_ours || stream->is_destroyed ? 0 : 1;
  }
  return leaks;
}

uint64_t fake_cuda_calls(const char* function) {
  const std::lock_guard lock(fake().mutex);
  return fake().calls[function];
}

}  // extern "C"
