// transfer.cc: copies ranges of a file and tracks progress.
#include "storage/client/transfer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "platform/base/text.h"
#include "platform/simd/crc32c.h"

namespace ff::client {

namespace {

// Interval between saved resume points; the first is saved after this many bytes.
constexpr int64_t kResumePointNs = 4 * kSecond;
constexpr uint64_t kResumePointBytes = 64 * kMiB;

bool all_zero(ByteView bytes) {
  if (bytes.empty() || bytes[0] != std::byte{0}) return bytes.empty();
  return std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

class Transfer {
 public:
  Transfer(TransferMemory& memory, OpenFile& source, OpenFile& target, std::string name,
           TransferOptions options, Progress& progress, CancellationToken* cancel)
      : memory_(memory),
        source_(source),
        target_(target),
        name_(std::move(name)),
        options_(std::move(options)),
        progress_(progress),
        unit_(std::lcm(source.unit(), target.unit())),
        done_(options_.begin),
        saved_(options_.begin),
        saved_ns_(memory.loop().now_ns()),
        group_(memory.loop(), cancel) {
    if (options_.verify) sums_.resize((options_.size + unit_ - 1) / unit_);
  }

  Task<Result<void>> run() {
    progress_.done += std::min(options_.begin, options_.size);
    auto moved = co_await move_all();
    if (!moved) group_.cancel_with(std::move(moved).error());
    FF_CO_TRY(co_await group_.join());
    FF_CO_TRY(co_await target_.finish(options_.size));
    if (!options_.verify) co_return Result<void>();
    co_return co_await check_all();
  }

 private:
  Task<Result<void>> move_all() {
    uint64_t offset = options_.begin;
    bool preallocated = false;
    while (offset < options_.size && group_.ok()) {
      FF_CO_TRY(io::DataRange data, co_await source_.next_data(offset));
      if (data.begin == data.end || data.begin >= options_.size) data = end_of_data();
      if (!std::exchange(preallocated, true)) {
        const bool all = data.begin == 0 && data.end >= options_.size;
        FF_CO_TRY(co_await target_.preallocate(options_.size, all));
      }
      const uint64_t begin = std::max(offset, data.begin / unit_ * unit_);
      progress_.done += begin - offset;
      if (begin > offset) {
        reached(offset, begin);
        if (options_.verify) zeros(offset, begin);
      }
      offset = begin;
      while (offset < std::min(data.end, options_.size) && group_.ok()) {
        FF_CO_TRY(auto buffer, co_await memory_.allocate(unit_));
        group_.spawn(move(offset, std::move(buffer)));
        offset = std::min(offset + unit_, options_.size);
        if (due()) {
          saving_ = true;
          group_.spawn(save_resume_point());
        }
      }
    }
    co_return Result<void>();
  }
  io::DataRange end_of_data() const { return {options_.size, options_.size}; }

  Task<Result<void>> move(uint64_t offset, TransferMemory::Buffer buffer) {
    const uint64_t size = std::min(unit_, options_.size - offset);
    FF_CO_TRY(const uint64_t got, co_await source_.read(offset, buffer.span()));
    if (got < size) {
      co_return fail(Errc::failed, "{}: the file became shorter during the copy", printable(name_));
    }
    const ByteView bytes = buffer.span().first(size);
    if (options_.verify) sums_[offset / unit_] = simd::crc32c(bytes);
    if (!target_.supports_holes() || !all_zero(bytes)) {
      FF_CO_TRY(co_await target_.write(offset, buffer.span(), size));
    }
    progress_.done += size;
    reached(offset, offset + size);
    co_return Result<void>();
  }

  // Checksums of the zeros that a hole reads as.
  void zeros(uint64_t begin, uint64_t end) {
    const std::vector<std::byte> unit(std::min(unit_, end - begin));
    const uint32_t whole = simd::crc32c(unit);
    for (uint64_t at = begin; at < end; at += unit_) {
      const uint64_t size = std::min(unit_, end - at);
      const ByteView last = ByteView(unit).first(std::min<uint64_t>(size, unit.size()));
      sums_[at / unit_] = size == unit.size() ? whole : simd::crc32c(last);
    }
  }

  // [begin, end) is complete.
  void reached(uint64_t begin, uint64_t end) {
    ahead_[begin] = end;
    while (!ahead_.empty() && ahead_.begin()->first == done_) {
      done_ = ahead_.begin()->second;
      ahead_.erase(ahead_.begin());
    }
  }

  bool due() const {
    if (!options_.on_resume_point || saving_ || done_ - saved_ < kResumePointBytes) return false;
    return saved_ == options_.begin || memory_.loop().now_ns() - saved_ns_ >= kResumePointNs;
  }
  Task<Result<void>> save_resume_point() {
    const uint64_t done = done_ / unit_ * unit_;
    auto synced = co_await target_.sync();
    if (synced) {
      synced = co_await options_.on_resume_point(done);
    }
    saving_ = false;
    saved_ = done;
    saved_ns_ = memory_.loop().now_ns();
    co_return synced;
  }

  Task<Result<void>> check_all() {
    progress_.total += options_.size;
    CancellationToken* const cancel = co_await current_cancellation();
    FailFastGroup group(memory_.loop(), cancel);
    Result<void> failed;
    for (uint64_t offset = 0; offset < options_.size && group.ok(); offset += unit_) {
      auto buffer = co_await memory_.allocate(unit_);
      if (!buffer) {
        group.cancel_with(std::move(buffer).error());
        break;
      }
      group.spawn(check(offset, std::move(*buffer)));
    }
    co_return co_await group.join();
  }

  Task<Result<void>> check(uint64_t offset, TransferMemory::Buffer buffer) {
    const uint64_t size = std::min(unit_, options_.size - offset);
    auto& sum = sums_[offset / unit_];
    if (!sum) {  // a hole, or copied by an earlier run
      FF_CO_TRY(const uint64_t got, co_await source_.read(offset, buffer.span()));
      sum = simd::crc32c(buffer.span().first(std::min(got, size)));
    }
    FF_CO_TRY(const uint64_t got, co_await target_.read(offset, buffer.span()));
    if (simd::crc32c(buffer.span().first(std::min(got, size))) != *sum) {
      Error error =
          fail(Errc::corrupt, "{}: the copy differs from the source between bytes {} and {}",
               printable(name_), offset, offset + size);
      error.hint =
          std::string("Copy it again. If it happens again, test the memory of this machine.");
      co_return error;
    }
    progress_.done += size;
    co_return Result<void>();
  }

  TransferMemory& memory_;
  OpenFile& source_;
  OpenFile& target_;
  const std::string name_;
  const TransferOptions options_;
  Progress& progress_;
  const uint64_t unit_;
  std::vector<std::optional<uint32_t>> sums_;  // CRC32C, by unit
  uint64_t done_;                              // everything before is complete
  std::map<uint64_t, uint64_t> ahead_;         // complete ranges behind it
  uint64_t saved_;
  int64_t saved_ns_;
  bool saving_ = false;
  FailFastGroup group_;
};

}  // namespace

TransferMemory::TransferMemory(Loop& loop, ByteSpan arena, uint64_t bytes)
    : loop_(loop), memory_(arena), units_(std::max<size_t>(1, bytes / kMiB)), free_(loop, units_) {}

Task<Result<TransferMemory::Buffer>> TransferMemory::allocate(uint64_t size) {
  const size_t units = std::clamp<size_t>(size / kMiB, 1, units_);
  FF_CO_TRY(auto hold, co_await free_.acquire(units));
  co_return Buffer{.hold = std::move(hold), .memory = memory_.allocate(size)};
}

void FailFastGroup::cancel_with(Error error) {
  if (error_) return;
  error_ = std::move(error);
  // Cancel the other tasks.
  scope_.cancellation().request(*error_);
}

Task<void> FailFastGroup::run(FailFastGroup& group, Task<Result<void>> task) {
  auto done = co_await std::move(task).with_cancellation(group.scope_.cancellation());
  if (!done) group.cancel_with(std::move(done).error());
}

Task<Result<void>> FailFastGroup::join() {
  co_await gate_.wait_empty();
  if (error_) co_return *error_;
  co_return Result<void>();
}

Task<Result<void>> transfer(TransferMemory& memory, OpenFile& source, OpenFile& target,
                            std::string name, TransferOptions options, Progress& progress) {
  CancellationToken* const cancel = co_await current_cancellation();
  Transfer moving(memory, source, target, std::move(name), std::move(options), progress, cancel);
  co_return co_await moving.run();
}

}  // namespace ff::client
