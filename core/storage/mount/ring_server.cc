// ring_server.cc: from numbers in shared memory to reads and writes, and back.
#include "storage/mount/ring_server.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/log.h"
#include "storage/mount/request.h"
#include "storage/usrbio/hf3fs_usrbio.h"

namespace ff::mount {

namespace {

// Reads that are asked for together: enough to share a call to storage, few enough to come soon.
constexpr size_t kJobReads = 16;
constexpr uint64_t kJobBytes = 1 * kMiB;
// Longer reads are done in parts, one after the other.
constexpr uint64_t kReadMax = 16 * kMiB;

// The program may change it at any moment: from here on nobody looks there again.
usrbio::Request copy_of(const usrbio::Request& shared) {
  usrbio::Request copy;
  std::memcpy(&copy, &shared, sizeof copy);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return copy;
}

Error wrong(const char* what) { return errno_error(EINVAL, what); }

Error lost_memory() { return errno_error(EFAULT, "memory of a program"); }

// What a program has in its memory, by a call that ends with an error where that is missing.
Result<void> copy_out(const ProgramMemory& from, uint64_t at, ByteSpan into) {
  while (!into.empty()) {
    const ssize_t got = ::pread(from.fd.get(), into.data(), into.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return lost_memory();
    at += static_cast<uint64_t>(got);
    into = into.subspan(static_cast<size_t>(got));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<RingServer>> RingServer::make(RingHost& host, const usrbio::LinkName& name,
                                                     uint32_t uid, const ForeignFile& file) {
  // How large it is, nothing else says how many entries it has.
  FF_TRY(auto memory, map_foreign(file));
  if (file.size < sizeof(usrbio::RingHead)) return wrong("a ring: too short");
  const usrbio::RingHead& head = *reinterpret_cast<usrbio::RingHead*>(memory.bytes.data());
  const uint32_t entries = head.entries;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (head.magic != usrbio::kRingMagic || head.version != usrbio::kRingVersion) {
    return wrong("a ring: not of this version");
  }
  const uint64_t bytes = usrbio::ring_bytes(entries);
  if (bytes == 0 || file.size < bytes) return wrong("a ring: not of that size");
  if (name.depth > static_cast<int64_t>(entries)) return wrong("a ring: too deep");
  return std::shared_ptr<RingServer>(new RingServer(host, name, uid, entries, std::move(memory)));
}

RingServer::RingServer(RingHost& host, usrbio::LinkName name, uint32_t uid, uint32_t entries,
                       ForeignMemory memory)
    : host_(host),
      name_(name),
      uid_(uid),
      entries_(entries),
      memory_(std::move(memory)),
      ring_(memory_.bytes.data(), entries),
      timer_(host.loop()) {
  ring_.head().asleep.store(1);
}

// How many of the requests that are there may be taken now.
uint32_t RingServer::due(uint32_t available) {
  const auto depth = static_cast<uint32_t>(std::abs(name_.depth));
  if (name_.depth == 0) return available;
  if (name_.depth > 0) {
    const uint32_t fresh = available - allowed_;
    allowed_ += fresh / depth * depth;
    return allowed_;
  }
  const bool ready = available >= depth || late_ || name_.timeout_ms == 0;
  if (ready || available == 0) return std::min(available, depth);
  if (!timed_) timer_.set(host_.loop().now_ns() + name_.timeout_ms * kMillisecond, *this);
  timed_ = true;
  return 0;
}

void RingServer::fire() {
  late_ = true;
  timed_ = false;
  host_.ended();
}

bool RingServer::sleep() {
  if (closed_) return true;
  ring_.head().asleep.store(1);
  const uint32_t available = ring_.head().submitted.load() - taken_;
  if (available == 0 || available > entries_) return true;
  // What waits for the others of its batch does not keep the host awake.
  const bool waits = due(available) == 0;
  if (!waits) ring_.head().asleep.store(0);
  return waits;
}

uint32_t RingServer::scan() {
  if (closed_) return 0;
  const uint32_t available = ring_.head().submitted.load() - taken_;
  if (available > entries_ || available + open_ > entries_) {
    log_warning("a ring is closed: its numbers make no sense",
                {{"uid", uid_}, {"requests", available}, {"entries", entries_}});
    closed_ = true;
    return 0;
  }
  const uint32_t count = std::min(due(available), kTakenMax);
  if (name_.depth > 0) allowed_ -= count;
  if (name_.depth < 0 && count > 0) {
    timer_.stop();
    late_ = timed_ = false;
  }
  std::vector<Job> jobs;
  for (uint32_t i = 0; i < count; i++) begin(copy_of(ring_.request(taken_++)), jobs);
  for (Job& job : jobs) start(read(std::move(job)));
  if (count > 0) publish();  // those that were refused
  return count;
}

Result<RingServer::Wanted> RingServer::check(const usrbio::Request& request) {
  if (request.slot >= entries_) return wrong("a slot");
  usrbio::Id id;
  std::memcpy(id.data(), request.memory, id.size());
  Wanted wanted{.request = request, .memory = host_.find(id, uid_)};
  if (wanted.memory == nullptr) return wrong("memory that is not known");
  if (wanted.memory->memory.lost()) return lost_memory();
  const ByteSpan all = wanted.memory->memory.bytes;
  if (request.at > all.size() || request.length > all.size() - request.at) {
    return wrong("a place outside of the memory");
  }
  if (request.offset > INT64_MAX || request.length > INT64_MAX - request.offset) {
    return wrong("a place that no file has");
  }
  const uint64_t block = wanted.memory->block;
  if (block > 0 && request.length > 0 &&
      request.at / block != (request.at + request.length - 1) / block) {
    return wrong("a place across blocks");
  }
  wanted.bytes = all.subspan(request.at, request.length);
  return wanted;
}

void RingServer::begin(const usrbio::Request& request, std::vector<Job>& jobs) {
  open_++;
  auto wanted = check(request);
  const auto file =
      wanted ? host_.operations().open_file(request.file, uid_, !name_.read) : nullptr;
  if (!wanted) return put(request.slot, wanted.error());
  if (file == nullptr) return put(request.slot, errno_error(EBADF, "a file that is not open"));
  if (!name_.read) return start(write(std::move(*wanted)));
  const bool fits = !jobs.empty() && jobs.back().file == file &&
                    jobs.back().wanted.size() < kJobReads &&
                    jobs.back().bytes + request.length <= kJobBytes;
  if (!fits) jobs.push_back({.file = file});
  jobs.back().bytes += request.length;
  jobs.back().wanted.push_back(std::move(*wanted));
}

void RingServer::start(Task<void> task) {
  running_++;
  host_.gate().spawn(run(std::move(task)));
}

Task<void> RingServer::run(Task<void> task) {
  const auto self = shared_from_this();  // and its memory
  co_await std::move(task);
  running_--;
  host_.ended();
}

Task<Result<uint64_t>> RingServer::read_long(FileRef file, Wanted wanted) {
  uint64_t done = 0;
  while (done < wanted.bytes.size()) {
    const uint64_t part = std::min<uint64_t>(wanted.bytes.size() - done, kReadMax);
    std::vector<client::File::Extent> one;
    one.push_back({.offset = wanted.request.offset + done,
                   .into = wanted.bytes.subspan(done, part),
                   .holes = (name_.flags & HF3FS_IOR_FORBID_READ_HOLES) == 0});
    auto reading = file->read_many(std::move(one));
    const auto got = co_await std::move(reading);
    FF_CO_TRY(const uint64_t bytes, got.front());
    done += bytes;
    if (bytes < part) break;
  }
  co_return done;
}

Task<std::vector<Result<uint64_t>>> RingServer::read_all(const Job& job) {
  std::vector<Result<uint64_t>> results;
  if (job.bytes > kReadMax) {
    auto reading = read_long(job.file, job.wanted.front());
    results.push_back(co_await std::move(reading));
    co_return results;
  }
  const bool holes = (name_.flags & HF3FS_IOR_FORBID_READ_HOLES) == 0;
  std::vector<client::File::Extent> extents;
  for (const Wanted& one : job.wanted) {
    extents.push_back({.offset = one.request.offset, .into = one.bytes, .holes = holes});
  }
  auto reading = job.file->read_many(std::move(extents));
  results = co_await std::move(reading);
  co_return results;
}

Task<void> RingServer::read(Job job) {
  CancelScope scope(host_.loop(), co_await current_cancel(), INT64_MAX, {});
  const auto here = reading_.insert(reading_.end(), {job, scope.cancel()});
  auto reading = read_all(job);
  const auto results = co_await std::move(reading).under(scope.cancel());
  reading_.erase(here);
  for (size_t i = 0; i < results.size(); i++) {
    // What is said to have come may lie in a page that the program never had.
    const bool lost = job.wanted[i].memory->memory.lost();
    put(job.wanted[i].request.slot, lost ? lost_memory() : results[i]);
  }
  publish();
}

bool RingServer::Job::lost() const {
  return std::ranges::any_of(wanted, [](const Wanted& one) { return one.memory->memory.lost(); });
}

// Storage may find the memory whole again where this daemon has pages of its own: what comes then
// never matches its checksum here, and would be asked for until nobody is patient any more.
void RingServer::give_up_lost() {
  for (const Reading& one : reading_) {
    if (one.job.lost()) one.cancel.request(lost_memory());
  }
}

// By way of memory of our own: the program may write there meanwhile, and what goes down a chain is
// to stay as its checksum was made of it.
Task<Result<uint64_t>> RingServer::write_all(const Wanted& wanted) {
  uint64_t done = 0;
  while (done < wanted.request.length) {
    const uint64_t offset = wanted.request.offset + done;
    const uint64_t part = std::min(wanted.request.length - done, kWriteMax - offset % kWriteMax);
    const auto memory = host_.memory().take(part);
    const ByteSpan bytes = memory.span().first(part);
    FF_CO_TRY(copy_out(*wanted.memory, wanted.request.at + done, bytes));
    auto writing = host_.operations().write_of_ring(uid_, wanted.request.file, offset, bytes);
    FF_CO_TRY(co_await std::move(writing));
    done += part;
  }
  co_return done;
}

Task<void> RingServer::write(Wanted wanted) {
  auto writing = write_all(wanted);
  const auto result = co_await std::move(writing);
  put(wanted.request.slot, result);
  publish();
}

void RingServer::put(uint32_t slot, const Result<uint64_t>& result) {
  open_--;
  usrbio::Outcome& outcome = ring_.outcome(completed_++);
  outcome.slot = slot;
  outcome.reserved = 0;
  outcome.result = result ? static_cast<int64_t>(*result) : -errno_of(result.error());
}

void RingServer::publish() {
  usrbio::Shared32& completed = ring_.head().completed;
  completed.store(completed_);
  if (ring_.head().waiting.load() == 0) return;
  (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&completed), FUTEX_WAKE, INT32_MAX,
                  nullptr, nullptr, 0);
}

}  // namespace ff::mount
