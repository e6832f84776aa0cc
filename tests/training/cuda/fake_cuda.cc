// fake_cuda.cc: one object with everything, and one thread that is all copy engines and kernels.
#include "training/cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

enum Code {
  kOk = 0,
  kInvalid = 1,
  kNoContext = 201,
  kBadHandle = 400,
  kBusy = 600,
};
constexpr int kPoison = 0xA5;

// How much of each stream has happened before: a vector clock.
struct Clocks {
  std::map<int, uint64_t> ticks = {};

  void join(const Clocks& other) {
    for (const auto& [stream, tick] : other.ticks) ticks[stream] = std::max(ticks[stream], tick);
  }
  bool covers(int stream, uint64_t tick) const {
    const auto found = ticks.find(stream);
    return found != ticks.end() && found->second >= tick;
  }
};

struct Context {
  int ordinal = 0;
  int error = kOk;   // of a copy: from then on of every call
  Clocks host = {};  // what the host knows to have happened
  struct Stream* default_stream = nullptr;
};

struct Event {
  Context* context = nullptr;
  uint64_t recorded = 0, completed = 0;  // the last record, and the last one that has happened
  Clocks clocks = {};                    // of the last record
};

struct Work {
  enum class Kind { to_host, to_device, write, read, record, wait, hold };
  Kind kind = Kind::hold;
  std::byte* device = nullptr;  // the copy engine's mapping
  std::byte* host = nullptr;
  size_t bytes = 0;
  std::vector<std::byte> content = {};  // to write
  uint64_t hash = 0;                    // of the host's memory when a copy to the device was called
  bool is_poisoned = false;
  std::shared_ptr<Event> event = {};
  uint64_t record = 0;

  bool copies() const { return kind < Kind::record; }
};

struct Stream {
  Context* context = nullptr;
  int id = 0;
  bool is_ours = false;  // the test's
  bool is_destroyed = false;
  int capture = 0;
  unsigned releases = 0;
  uint64_t tick = 0;
  Clocks clocks = {};
  std::deque<Work> work = {};
};

struct Range {
  uintptr_t begin = 0, end = 0;

  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  bool contains(const Range& other) const { return begin <= other.begin && other.end <= end; }
};
Range range_of(const void* memory, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  return {begin, begin + bytes};
}

struct Access {
  Range range = {};
  bool writes = false;
  Context* context = nullptr;
  int stream = 0;  // 0: the host
  uint64_t tick = 0;
  std::string what = {};
};

struct Allocation {
  Range range = {};
  std::byte* alias = nullptr;
  Context* context = nullptr;
};

struct Pinned {
  Range range = {};
  Context* context = nullptr;
};

struct Failure {
  Context* context = nullptr;
  std::string function = {};
  unsigned left = 0;
  int code = kOk;
};

uint64_t hash_of(const std::byte* data, size_t bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; i++) {
    hash = (hash ^ static_cast<uint64_t>(data[i])) * 0x100000001b3;
  }
  return hash;
}

thread_local std::vector<Context*> current_contexts;
Context* current() { return current_contexts.empty() ? nullptr : current_contexts.back(); }

class Fake {
 public:
  std::mutex mutex;
  std::condition_variable wake, idle;
  // All guarded by mutex.
  std::mt19937_64 order{1};
  std::vector<std::unique_ptr<Context>> contexts = {};
  std::map<Stream*, std::unique_ptr<Stream>> streams = {};
  std::map<Event*, std::shared_ptr<Event>> events = {};
  std::map<uintptr_t, Allocation> allocations = {};
  std::vector<Pinned> pinned = {};
  std::vector<Access> accesses = {};
  std::vector<Failure> failures = {};
  unsigned failed = 0;
  std::vector<std::string> reports = {};
  std::map<std::string, uint64_t> calls = {};
  int last_stream = 0;
  bool is_running = false;

  void report(const std::string& what) { reports.push_back(what); }

  // The result of a call, unless it goes on.
  int enter(const char* function, Context* context) {
    calls[function]++;
    if (context != nullptr && context->error != kOk) return context->error;
    return failure_of(function, context);
  }
  int failure_of(const char* function, Context* context) {
    for (auto one = failures.begin(); one != failures.end(); ++one) {
      const bool fits =
          (one->context == nullptr || one->context == context) && one->function == function;
      if (!fits || --one->left > 0) continue;
      const int code = one->code;
      failures.erase(one);
      failed++;
      return code;
    }
    return kOk;
  }

  // The stream of a handle; null: there is none.
  Stream* find_stream(void* handle) {
    if (handle == nullptr) return current() != nullptr ? current()->default_stream : nullptr;
    auto* const stream = static_cast<Stream*>(handle);
    const bool is_known = streams.contains(stream) && !stream->is_destroyed;
    if (!is_known) report("a stream that does not exist");
    return is_known ? stream : nullptr;
  }
  std::shared_ptr<Event> find_event(void* handle) {
    const auto found = events.find(static_cast<Event*>(handle));
    if (found != events.end()) return found->second;
    report("an event that does not exist");
    return nullptr;
  }
  Stream* make_stream(Context* context, bool is_ours) {
    auto made = std::make_unique<Stream>();
    made->context = context;
    made->id = ++last_stream;
    made->is_ours = is_ours;
    Stream* const stream = made.get();
    streams[stream] = std::move(made);
    return stream;
  }
  const Allocation* find_memory(const Range& range) const {
    auto found = allocations.upper_bound(range.begin);
    if (found == allocations.begin()) return nullptr;
    --found;
    return found->second.range.contains(range) ? &found->second : nullptr;
  }
  std::byte* alias_of(const Range& range) const {
    const Allocation* const memory = find_memory(range);
    return memory != nullptr ? memory->alias + (range.begin - memory->range.begin) : nullptr;
  }
  bool is_pinned(const Range& range) const {
    return std::ranges::any_of(pinned,
                               [&](const Pinned& one) { return one.range.contains(range); });
  }

  // Remembers an access, and reports those that nothing orders with it.
  void access(const Clocks& clocks, Access made) {
    std::erase_if(accesses, [&](const Access& before) {
      return before.context == made.context &&
             made.context->host.covers(before.stream, before.tick);
    });
    for (const Access& before : accesses) {
      if (!before.range.overlaps(made.range) || !(before.writes || made.writes)) continue;
      if (!clocks.covers(before.stream, before.tick)) {
        report("nothing orders " + made.what + " behind " + before.what);
      }
    }
    accesses.push_back(std::move(made));
  }
  // The moment of the next work in a stream.
  uint64_t advance(Stream& stream) {
    stream.clocks.join(stream.context->host);
    return stream.clocks.ticks[stream.id] = ++stream.tick;
  }
  void access_by(Stream& stream, uint64_t tick, const Range& range, bool writes,
                 const std::string& what) {
    access(stream.clocks, {.range = range,
                           .writes = writes,
                           .context = stream.context,
                           .stream = stream.id,
                           .tick = tick,
                           .what = what + " in stream " + std::to_string(stream.id)});
  }
  void access_by_host(Context* context, const Range& range, bool writes, const std::string& what) {
    const uint64_t tick = ++context->host.ticks[0];
    access(context->host,
           {.range = range, .writes = writes, .context = context, .tick = tick, .what = what});
  }
  void enqueue(Stream& stream, Work work) {
    if (stream.capture != 0) report("work in a stream that is being captured");
    stream.work.push_back(std::move(work));
    wake.notify_all();
  }
  // Whether a copy that is not done uses the memory.
  bool in_use(const Range& range) const {
    for (const auto& [handle, stream] : streams) {
      for (const Work& work : stream->work) {
        if (!work.copies() || stream->context->error == kNoContext) continue;
        if (range.overlaps(range_of(work.host, work.bytes))) return true;
        if (range.overlaps(range_of(work.device, work.bytes))) return true;
      }
    }
    return false;
  }
  bool is_awaited(const Event& event) const {
    return std::ranges::any_of(streams, [&](const auto& one) {
      return std::ranges::any_of(one.second->work, [&](const Work& work) {
        return work.kind == Work::Kind::wait && work.event.get() == &event &&
               event.completed < work.record;
      });
    });
  }
  void start() {
    if (is_running) return;
    is_running = true;
    std::thread([this] { run(); }).detach();
  }

 private:
  static bool can_run(const Stream& stream) {
    if (stream.work.empty() || stream.context->error != kOk) return false;
    const Work& next = stream.work.front();
    if (next.kind == Work::Kind::wait) return next.event->completed >= next.record;
    return next.kind != Work::Kind::hold || stream.releases > 0;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      std::vector<Stream*> ready;
      for (const auto& [handle, stream] : streams) {
        if (can_run(*stream)) ready.push_back(stream.get());
      }
      if (ready.empty()) {
        wake.wait(lock);
        continue;
      }
      std::ranges::sort(ready, {}, &Stream::id);
      step(lock, *ready[order() % ready.size()]);
      idle.notify_all();
    }
  }

  void step(std::unique_lock<std::mutex>& lock, Stream& stream) {
    Work& work = stream.work.front();  // stays there while others push
    if (work.copies()) {
      if (const int code = failure_of("execute", stream.context); code != kOk) {
        stream.context->error = code;
        return;
      }
      lock.unlock();
      const bool done = copy(work);
      lock.lock();
      if (!done) return;
      const bool changed = work.kind == Work::Kind::to_device && work.hash == 0;
      if (changed) report("the source of a copy to the device changed before it was copied");
    } else if (work.kind == Work::Kind::record) {
      work.event->completed = std::max(work.event->completed, work.record);
    } else if (work.kind == Work::Kind::hold) {
      stream.releases--;
    }
    stream.work.pop_front();
  }

  // False: it has only begun. Clears the hash where the source has changed.
  static bool copy(Work& work) {
    switch (work.kind) {
      case Work::Kind::to_host:
        if (!work.is_poisoned) {
          std::memset(work.host, kPoison, work.bytes);
          work.is_poisoned = true;
          return false;
        }
        std::memcpy(work.host, work.device, work.bytes);
        return true;
      case Work::Kind::to_device:
        if (hash_of(work.host, work.bytes) != work.hash) work.hash = 0;
        std::memcpy(work.device, work.host, work.bytes);
        return true;
      case Work::Kind::write:
        std::memcpy(work.device, work.content.data(), work.bytes);
        return true;
      default: std::memcpy(work.host, work.device, work.bytes); return true;
    }
  }
};

Fake& fake() {
  static Fake* const one = new Fake();  // its thread lives as long as the process
  return *one;
}

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

// The driver, as the documentation of CUDA has it. ----------------------------------------------

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
