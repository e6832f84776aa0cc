// transfer.cc: stretches of a file, and what is known of them.
#include "storage/client/transfer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "platform/base/text.h"
#include "platform/simd/crc32c.h"

namespace ff::client {

namespace {

// Between two notes of how far it is; the first comes when this much is there.
constexpr int64_t kNoteNs = 4 * kSecond;
constexpr uint64_t kNoteBytes = 64 * kMiB;

bool all_zero(ByteView bytes) {
  if (bytes.empty() || bytes[0] != std::byte{0}) return bytes.empty();
  return std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

class Transfer {
 public:
  Transfer(TransferMemory& memory, OpenFile& source, OpenFile& target, std::string name,
           TransferOptions options, Progress& progress, Cancel* cancel)
      : memory_(memory),
        source_(source),
        target_(target),
        name_(std::move(name)),
        options_(std::move(options)),
        progress_(progress),
        unit_(std::lcm(source.unit(), target.unit())),
        done_(options_.begin),
        noted_(options_.begin),
        noted_ns_(memory.loop().now_ns()),
        group_(memory.loop(), cancel) {
    if (options_.verify) sums_.resize((options_.size + unit_ - 1) / unit_);
  }

  Task<Result<void>> run() {
    progress_.done += std::min(options_.begin, options_.size);
    auto moving = move_all();
    auto moved = co_await std::move(moving);
    if (!moved) group_.failed(std::move(moved).error());
    auto ending = group_.end();
    FF_CO_TRY(co_await std::move(ending));
    auto finishing = target_.finish(options_.size);
    FF_CO_TRY(co_await std::move(finishing));
    if (!options_.verify) co_return Result<void>();
    auto checking = check_all();
    co_return co_await std::move(checking);
  }

 private:
  Task<Result<void>> move_all() {
    uint64_t offset = options_.begin;
    bool prepared = false;
    while (offset < options_.size && group_.ok()) {
      auto looking = source_.next_data(offset);
      FF_CO_TRY(io::DataRange data, co_await std::move(looking));
      if (data.begin == data.end || data.begin >= options_.size) data = end_of_data();
      if (!std::exchange(prepared, true)) {
        const bool all = data.begin == 0 && data.end >= options_.size;
        auto preparing = target_.prepare(options_.size, all);
        FF_CO_TRY(co_await std::move(preparing));
      }
      const uint64_t begin = std::max(offset, data.begin / unit_ * unit_);
      progress_.done += begin - offset;
      if (begin > offset) {
        reached(offset, begin);
        if (options_.verify) zeros(offset, begin);
      }
      offset = begin;
      while (offset < std::min(data.end, options_.size) && group_.ok()) {
        auto taking = memory_.take(unit_);
        FF_CO_TRY(auto stretch, co_await std::move(taking));
        group_.spawn(move(offset, std::move(stretch)));
        offset = std::min(offset + unit_, options_.size);
        if (due()) {
          noting_ = true;
          group_.spawn(note());
        }
      }
    }
    co_return Result<void>();
  }
  io::DataRange end_of_data() const { return {options_.size, options_.size}; }

  Task<Result<void>> move(uint64_t offset, TransferMemory::Stretch stretch) {
    const uint64_t size = std::min(unit_, options_.size - offset);
    auto reading = source_.read(offset, stretch.span());
    FF_CO_TRY(const uint64_t got, co_await std::move(reading));
    if (got < size) {
      co_return fail(Errc::failed, "{}: has become shorter while it was copied", printable(name_));
    }
    const ByteView bytes = stretch.span().first(size);
    if (options_.verify) sums_[offset / unit_] = simd::crc32c(bytes);
    if (!target_.keeps_holes() || !all_zero(bytes)) {
      auto writing = target_.write(offset, stretch.span(), size);
      FF_CO_TRY(co_await std::move(writing));
    }
    progress_.done += size;
    reached(offset, offset + size);
    co_return Result<void>();
  }

  // What a hole of the source reads as.
  void zeros(uint64_t begin, uint64_t end) {
    const std::vector<std::byte> unit(std::min(unit_, end - begin));
    const uint32_t whole = simd::crc32c(unit);
    for (uint64_t at = begin; at < end; at += unit_) {
      const uint64_t size = std::min(unit_, end - at);
      const ByteView last = ByteView(unit).first(std::min<uint64_t>(size, unit.size()));
      sums_[at / unit_] = size == unit.size() ? whole : simd::crc32c(last);
    }
  }

  // [begin, end) is there.
  void reached(uint64_t begin, uint64_t end) {
    ahead_[begin] = end;
    while (!ahead_.empty() && ahead_.begin()->first == done_) {
      done_ = ahead_.begin()->second;
      ahead_.erase(ahead_.begin());
    }
  }

  bool due() const {
    if (!options_.note || noting_ || done_ - noted_ < kNoteBytes) return false;
    return noted_ == options_.begin || memory_.loop().now_ns() - noted_ns_ >= kNoteNs;
  }
  Task<Result<void>> note() {
    const uint64_t done = done_ / unit_ * unit_;
    auto syncing = target_.sync();
    auto synced = co_await std::move(syncing);
    if (synced) {
      auto noting = options_.note(done);
      synced = co_await std::move(noting);
    }
    noting_ = false;
    noted_ = done;
    noted_ns_ = memory_.loop().now_ns();
    co_return synced;
  }

  Task<Result<void>> check_all() {
    progress_.total += options_.size;
    Cancel* const cancel = co_await current_cancel();
    Group group(memory_.loop(), cancel);
    Result<void> failed;
    for (uint64_t offset = 0; offset < options_.size && group.ok(); offset += unit_) {
      auto taking = memory_.take(unit_);
      auto stretch = co_await std::move(taking);
      if (!stretch) {
        group.failed(std::move(stretch).error());
        break;
      }
      group.spawn(check(offset, std::move(*stretch)));
    }
    auto ending = group.end();
    co_return co_await std::move(ending);
  }

  Task<Result<void>> check(uint64_t offset, TransferMemory::Stretch stretch) {
    const uint64_t size = std::min(unit_, options_.size - offset);
    auto& sum = sums_[offset / unit_];
    if (!sum) {  // a hole, or of an earlier run
      auto reading = source_.read(offset, stretch.span());
      FF_CO_TRY(const uint64_t got, co_await std::move(reading));
      sum = simd::crc32c(stretch.span().first(std::min(got, size)));
    }
    auto reading = target_.read(offset, stretch.span());
    FF_CO_TRY(const uint64_t got, co_await std::move(reading));
    if (simd::crc32c(stretch.span().first(std::min(got, size))) != *sum) {
      Error error = fail(Errc::corrupt, "{}: the copy differs somewhere from byte {} to {}",
                         printable(name_), offset, offset + size);
      error.hint = std::string("Copy it again; if it happens again, check the memory.");
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
  uint64_t done_;                              // all before is there
  std::map<uint64_t, uint64_t> ahead_;         // further stretches that are
  uint64_t noted_;
  int64_t noted_ns_;
  bool noting_ = false;
  Group group_;
};

}  // namespace

TransferMemory::TransferMemory(Loop& loop, ByteSpan arena, uint64_t bytes)
    : loop_(loop), memory_(arena), units_(std::max<size_t>(1, bytes / kMiB)), free_(loop, units_) {}

Task<Result<TransferMemory::Stretch>> TransferMemory::take(uint64_t size) {
  const size_t units = std::clamp<size_t>(size / kMiB, 1, units_);
  auto taking = free_.take(units);
  FF_CO_TRY(auto hold, co_await std::move(taking));
  co_return Stretch{.hold = std::move(hold), .memory = memory_.take(size)};
}

void Group::failed(Error error) {
  if (error_) return;
  error_ = std::move(error);
  // The others need not go on.
  scope_.cancel().request(*error_);
}

Task<void> Group::run(Group& group, Task<Result<void>> task) {
  auto done = co_await std::move(task).under(group.scope_.cancel());
  if (!done) group.failed(std::move(done).error());
}

Task<Result<void>> Group::end() {
  co_await gate_.wait_empty();
  if (error_) co_return *error_;
  co_return Result<void>();
}

Task<Result<void>> transfer(TransferMemory& memory, OpenFile& source, OpenFile& target,
                            std::string name, TransferOptions options, Progress& progress) {
  Cancel* const cancel = co_await current_cancel();
  Transfer moving(memory, source, target, std::move(name), std::move(options), progress, cancel);
  auto running = moving.run();
  co_return co_await std::move(running);
}

}  // namespace ff::client
