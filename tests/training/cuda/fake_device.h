// What the fake driver knows of its devices (fake_cuda.h): one object with everything, and one
// thread that is all copy engines and kernels.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_cuda {

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
inline Range range_of(const void* memory, size_t bytes) {
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

inline uint64_t hash_of(const std::byte* data, size_t bytes) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; i++) {
    hash = (hash ^ static_cast<uint64_t>(data[i])) * 0x100000001b3;
  }
  return hash;
}

inline thread_local std::vector<Context*> current_contexts;
inline Context* current() { return current_contexts.empty() ? nullptr : current_contexts.back(); }

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

inline Fake& fake() {
  static Fake* const one = new Fake();  // its thread lives as long as the process
  return *one;
}

}  // namespace fake_cuda
