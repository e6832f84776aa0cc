// ring_server.cc: turns submission entries into reads and writes.
#include "storage/mount/ring_server.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/log.h"
#include "storage/mount/fuse_request.h"
#include "storage/usrbio/hf3fs_usrbio.h"

namespace ff::mount {

namespace {

// Reads per batch: enough to share a storage call, few enough for low latency.
constexpr size_t kBatchReads = 16;
constexpr uint64_t kBatchBytes = 1 * kMiB;
// Longer reads are split and run sequentially.
constexpr uint64_t kReadMax = 16 * kMiB;

// The program may change the entry at any time, so use only this copy.
usrbio::SubmissionEntry copy_of(const usrbio::SubmissionEntry& shared) {
  usrbio::SubmissionEntry copy;
  std::memcpy(&copy, &shared, sizeof copy);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return copy;
}

Error invalid(const char* what) { return errno_error(EINVAL, what); }

Error lost_memory() { return errno_error(EFAULT, "memory of a program"); }

// Copies from the memory of a program with pread(), which returns an error for missing pages.
Result<void> copy_out(const RegisteredMemory& from, uint64_t at, ByteSpan into) {
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

Result<std::shared_ptr<RingServer>> RingServer::make(RingContext& context,
                                                     const usrbio::IovLinkName& name, uint32_t uid,
                                                     const ClientMemoryFile& file,
                                                     uint64_t number) {
  // The header is the only source for the number of entries.
  FF_TRY(auto memory, map_client_memory(file));
  if (file.size < sizeof(usrbio::RingHeader)) return invalid("the ring file is too short");
  const usrbio::RingHeader& head = *reinterpret_cast<usrbio::RingHeader*>(memory.bytes.data());
  const uint32_t entries = head.entries;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (head.magic != usrbio::kRingMagic || head.version != usrbio::kRingVersion) {
    return invalid("the ring has another version");
  }
  const uint64_t bytes = usrbio::ring_bytes(entries);
  if (bytes == 0 || file.size < bytes)
    return invalid("the ring file does not have the size of the ring");
  if (name.depth > static_cast<int64_t>(entries))
    return invalid("the depth of the ring exceeds its entries");
  FF_TRY(auto progress, context.journal().add(number, entries));
  return std::shared_ptr<RingServer>(
      new RingServer(context, name, uid, std::move(memory), std::move(progress)));
}

Result<std::shared_ptr<RingServer>> RingServer::restore(RingContext& context,
                                                        const usrbio::IovLinkName& name,
                                                        uint32_t uid, const ClientMemoryFile& file,
                                                        uint64_t number) {
  auto progress = context.journal().take_left(number);
  if (!progress) return invalid("the ring is not in the journal");
  // The program may have changed the header since.
  const uint64_t bytes = usrbio::ring_bytes(progress->entries());
  if (bytes == 0 || file.size < bytes)
    return invalid("the ring file does not have the size of the ring");
  FF_TRY(auto memory, map_client_memory(file));
  const usrbio::Ring ring(memory.bytes.data(), progress->entries());
  FF_TRY(const auto left, progress->recover(ring.head().completed.load()));
  std::shared_ptr<RingServer> server(
      new RingServer(context, name, uid, std::move(memory), std::move(*progress)));
  server->repeats_.assign(left.begin(), left.end());
  server->unanswered_ = static_cast<uint32_t>(left.size());
  // The predecessor may have died after it published completions.
  server->wake_waiters();
  return server;
}

RingServer::RingServer(RingContext& context, usrbio::IovLinkName name, uint32_t uid,
                       ClientMemory memory, RingProgress progress)
    : context_(context),
      name_(name),
      uid_(uid),
      memory_(std::move(memory)),
      progress_(std::move(progress)),
      entries_(progress_.entries()),
      ring_(memory_.bytes.data(), entries_),
      next_request_(progress_.next_request()),
      released_(progress_.released() - next_request_),
      completed_(progress_.completed()),
      timer_(context.loop()) {
  ring_.head().daemon_sleeping.store(1);
}

RingServer::~RingServer() {
  for (const Taken& one : repeats_) progress_.drop(one.record);
}

// How many of the available entries may start now (io_depth, timeout).
uint32_t RingServer::ready_count(uint32_t available) {
  const auto depth = static_cast<uint32_t>(std::abs(name_.depth));
  if (name_.depth == 0) return available;
  if (name_.depth > 0) {
    const uint32_t fresh = available - released_;
    if (fresh < depth) return released_;
    released_ += fresh / depth * depth;
    progress_.set_released(next_request_ + released_);
    return released_;
  }
  const bool ready = available >= depth || timed_out_ || name_.timeout_ms == 0;
  if (ready || available == 0) return std::min(available, depth);
  if (!timer_running_)
    timer_.set(context_.loop().now_ns() + name_.timeout_ms * kMillisecond, *this);
  timer_running_ = true;
  return 0;
}

void RingServer::on_wake() {
  timed_out_ = true;
  timer_running_ = false;
  context_.on_batch_done();
}

bool RingServer::prepare_to_sleep() {
  if (closed_) return true;
  if (!repeats_.empty()) return false;
  ring_.head().daemon_sleeping.store(1);
  const uint32_t available = ring_.head().submitted.load() - next_request_;
  if (available == 0 || available > entries_) return true;
  // Entries that wait for a full batch do not keep the daemon awake.
  const bool waits = ready_count(available) == 0;
  if (!waits) ring_.head().daemon_sleeping.store(0);
  return waits;
}

// Those that the predecessor has taken come first.
std::vector<RingServer::Taken> RingServer::take_some() {
  std::vector<Taken> taken;
  if (!repeats_.empty()) {
    const auto end = repeats_.begin() + std::min<std::ptrdiff_t>(kBatchMax, std::ssize(repeats_));
    taken.assign(repeats_.begin(), end);
    repeats_.erase(repeats_.begin(), end);
    return taken;
  }
  const uint32_t available = ring_.head().submitted.load() - next_request_;
  if (available > entries_ || available + unanswered_ > entries_) {
    log_warning("closing a ring with invalid counters",
                {{"uid", uid_}, {"requests", available}, {"entries", entries_}});
    closed_ = true;
    return taken;
  }
  const auto room = static_cast<uint32_t>(std::min<size_t>(context_.journal().room(), kBatchMax));
  const uint32_t count = std::min(ready_count(available), room);
  if (name_.depth > 0) released_ -= count;
  if (name_.depth < 0 && count > 0) {
    timer_.stop();
    timed_out_ = timer_running_ = false;
  }
  for (uint32_t i = 0; i < count; i++) {
    taken.push_back(progress_.take(copy_of(ring_.submission(next_request_++))));
  }
  unanswered_ += count;
  return taken;
}

uint32_t RingServer::take_requests() {
  if (closed_) return 0;
  const std::vector<Taken> taken = take_some();
  std::vector<ReadBatch> batches;
  for (const Taken& one : taken) begin(one, batches);
  for (ReadBatch& batch : batches) start(read(std::move(batch)));
  if (!taken.empty()) publish_results();  // for entries that failed at once
  return static_cast<uint32_t>(taken.size());
}

Result<RingServer::CheckedRequest> RingServer::check(const Taken& taken) {
  const usrbio::SubmissionEntry& request = taken.request;
  if (request.slot >= entries_) return invalid("the slot is out of range");
  usrbio::IovId id;
  std::memcpy(id.data(), request.memory, id.size());
  CheckedRequest checked{.taken = taken, .memory = context_.find(id, uid_)};
  if (checked.memory == nullptr) return invalid("the memory is not registered");
  if (checked.memory->memory.lost()) return lost_memory();
  const ByteSpan all = checked.memory->memory.bytes;
  if (request.at > all.size() || request.length > all.size() - request.at) {
    return invalid("the range is outside of the memory");
  }
  if (request.offset > INT64_MAX || request.length > INT64_MAX - request.offset) {
    return invalid("the file offset is out of range");
  }
  const uint64_t block = checked.memory->block;
  if (block > 0 && request.length > 0 &&
      request.at / block != (request.at + request.length - 1) / block) {
    return invalid("the range crosses a block");
  }
  checked.bytes = all.subspan(request.at, request.length);
  return checked;
}

void RingServer::begin(const Taken& taken, std::vector<ReadBatch>& batches) {
  const usrbio::SubmissionEntry& request = taken.request;
  auto checked = check(taken);
  const auto file =
      checked ? context_.operations().find_open_file(request.file, uid_, !name_.read) : nullptr;
  if (!checked) return put_result(taken, checked.error());
  if (file == nullptr) return put_result(taken, errno_error(EBADF, "a file that is not open"));
  if (!name_.read) return start(write(std::move(*checked)));
  const bool fits = !batches.empty() && batches.back().file == file &&
                    batches.back().requests.size() < kBatchReads &&
                    batches.back().bytes + request.length <= kBatchBytes;
  if (!fits) batches.push_back({.file = file});
  batches.back().bytes += request.length;
  batches.back().requests.push_back(std::move(*checked));
}

void RingServer::start(Task<void> task) {
  running_++;
  context_.gate().spawn(run(std::move(task)));
}

Task<void> RingServer::run(Task<void> task) {
  const auto self = shared_from_this();  // keeps the ring mapped
  co_await std::move(task);
  running_--;
  context_.on_batch_done();
}

Task<Result<uint64_t>> RingServer::read_long(FileRef file, CheckedRequest checked) {
  uint64_t done = 0;
  while (done < checked.bytes.size()) {
    const uint64_t part = std::min<uint64_t>(checked.bytes.size() - done, kReadMax);
    std::vector<client::File::Extent> one;
    one.push_back({.offset = checked.taken.request.offset + done,
                   .into = checked.bytes.subspan(done, part),
                   .holes = (name_.flags & HF3FS_IOR_FORBID_READ_HOLES) == 0});
    const auto got = co_await file->read_many(std::move(one));
    FF_CO_TRY(const uint64_t bytes, got.front());
    done += bytes;
    if (bytes < part) break;
  }
  co_return done;
}

Task<std::vector<Result<uint64_t>>> RingServer::read_all(const ReadBatch& batch) {
  std::vector<Result<uint64_t>> results;
  if (batch.bytes > kReadMax) {
    auto reading = read_long(batch.file, batch.requests.front());
    results.push_back(co_await std::move(reading));
    co_return results;
  }
  const bool holes = (name_.flags & HF3FS_IOR_FORBID_READ_HOLES) == 0;
  std::vector<client::File::Extent> extents;
  for (const CheckedRequest& one : batch.requests) {
    extents.push_back({.offset = one.taken.request.offset, .into = one.bytes, .holes = holes});
  }
  results = co_await batch.file->read_many(std::move(extents));
  co_return results;
}

Task<void> RingServer::read(ReadBatch batch) {
  CancelScope scope(context_.loop(), co_await current_cancellation(), INT64_MAX, {});
  const auto here = reading_.insert(reading_.end(), {batch, scope.cancellation()});
  const auto results = co_await read_all(batch).with_cancellation(scope.cancellation());
  reading_.erase(here);
  for (size_t i = 0; i < results.size(); i++) {
    // The bytes may be in a page that is not shared with the program.
    const bool lost = batch.requests[i].memory->memory.lost();
    put_result(batch.requests[i].taken, lost ? lost_memory() : results[i]);
  }
  publish_results();
}

bool RingServer::ReadBatch::lost() const {
  return std::ranges::any_of(requests,
                             [](const CheckedRequest& one) { return one.memory->memory.lost(); });
}

// If this daemon has replaced pages, a local storage node may still write to the original ones. The
// checksum would never match here, and the read would be retried until its timeout.
void RingServer::cancel_lost_reads() {
  for (const RunningRead& one : reading_) {
    if (one.batch.lost()) one.cancel.request(lost_memory());
  }
}

// Copies first: the program may change its memory meanwhile, but bytes sent down a chain must match
// their checksum.
Task<Result<uint64_t>> RingServer::write_all(const CheckedRequest& checked) {
  const usrbio::SubmissionEntry& request = checked.taken.request;
  uint64_t done = 0;
  while (done < request.length) {
    const uint64_t offset = request.offset + done;
    const uint64_t part = std::min(request.length - done, kWriteMax - offset % kWriteMax);
    const auto memory = context_.memory().allocate(part);
    const ByteSpan bytes = memory.span().first(part);
    FF_CO_TRY(copy_out(*checked.memory, request.at + done, bytes));
    FF_CO_TRY(co_await context_.operations().write_from_ring(uid_, request.file, offset, bytes));
    done += part;
  }
  co_return done;
}

Task<void> RingServer::write(CheckedRequest checked) {
  const auto result = co_await write_all(checked);
  put_result(checked.taken, result);
  publish_results();
}

void RingServer::put_result(const Taken& taken, const Result<uint64_t>& result) {
  unanswered_--;
  usrbio::CompletionEntry& outcome = ring_.completion(completed_);
  outcome.slot = taken.request.slot;
  outcome.reserved = 0;
  outcome.result = result ? static_cast<int64_t>(*result) : -errno_of(result.error());
  progress_.complete(taken.record, completed_++);
}

void RingServer::publish_results() {
  progress_.publish(ring_.head().completed, completed_);
  if (ring_.head().waiters.load() != 0) wake_waiters();
}

void RingServer::wake_waiters() {
  usrbio::Shared32& completed = ring_.head().completed;
  (void)::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&completed), FUTEX_WAKE, INT32_MAX,
                  nullptr, nullptr, 0);
}

}  // namespace ff::mount
