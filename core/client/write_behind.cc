// write_behind.cc: buffers of at most a chunk, each a run of bytes without a gap.
#include "client/write_behind.h"

#include <algorithm>
#include <utility>

namespace ff::client {

WriteBehind::WriteBehind(Loop& loop, chain::Memory& memory, Semaphore& bound, uint64_t chunk_size,
                         Write write)
    : loop_(loop),
      memory_(memory),
      bound_(bound),
      chunk_size_(chunk_size),
      write_(std::move(write)),
      done_(loop),
      gate_(loop) {}

Result<void> WriteBehind::take_error() {
  if (!error_) return {};
  Error error = std::move(*error_);
  error_.reset();
  return error;
}

Task<Result<void>> WriteBehind::add(uint64_t offset, ByteView from,
                                    std::shared_ptr<const void> keeper) {
  FF_CO_TRY(take_error());
  while (!from.empty()) {
    const uint64_t chunk = offset / chunk_size_;
    const uint64_t size = std::min<uint64_t>(from.size(), (chunk + 1) * chunk_size_ - offset);
    auto adding = add_to(chunk, offset, from.first(size), keeper);
    FF_CO_TRY(co_await std::move(adding));
    offset += size;
    from = from.subspan(size);
  }
  co_return Result<void>();
}

Task<Result<void>> WriteBehind::add_to(uint64_t chunk, uint64_t offset, ByteView from,
                                       std::shared_ptr<const void> keeper) {
  const uint64_t at = offset - chunk * chunk_size_;
  if (const auto found = buffers_.find(chunk); found != buffers_.end()) {
    Buffer& buffer = found->second;
    if (offset == buffer.begin + buffer.size) {
      std::ranges::copy(from, buffer.memory.span().subspan(at).begin());
      buffer.size += from.size();
      if (at + from.size() == chunk_size_) start(found);
      co_return Result<void>();
    }
    start(found);  // elsewhere in the chunk: what is there goes first
  }
  const size_t units = std::max<size_t>(1, chunk_size_ / kMiB);
  std::optional<Semaphore::Hold> hold = bound_.try_take(units);
  if (!hold) {
    start_all();
    auto taking = bound_.take(units);
    FF_CO_TRY(hold, co_await std::move(taking));
    // Another may have begun one for the chunk meanwhile.
    if (buffers_.contains(chunk)) {
      auto again = add_to(chunk, offset, from, std::move(keeper));
      co_return co_await std::move(again);
    }
  }
  Buffer buffer{.memory = {},
                .hold = std::move(*hold),
                .begin = offset,
                .size = from.size(),
                .since_ns = loop_.now_ns()};
  if (keeper != nullptr && from.size() == chunk_size_) {
    buffer.keeper = std::move(keeper);
    buffer.kept = from;
  } else {
    buffer.memory = memory_.take(chunk_size_);
    std::ranges::copy(from, buffer.memory.span().subspan(at).begin());
  }
  const auto added = buffers_.emplace(chunk, std::move(buffer)).first;
  if (at + from.size() == chunk_size_) start(added);
  co_return Result<void>();
}

void WriteBehind::start(Buffers::iterator at) {
  const uint64_t chunk = at->first;
  Buffer buffer = std::move(at->second);
  buffers_.erase(at);
  writing_++;
  gate_.spawn(write(chunk, turns_[chunk].given++, std::move(buffer)));
}

void WriteBehind::start_all() {
  while (!buffers_.empty()) start(buffers_.begin());
}

Task<Result<void>> WriteBehind::write_in_turn(uint64_t chunk, uint64_t ticket, ByteView from,
                                              uint64_t offset) {
  while (turns_[chunk].done != ticket) {
    const auto waited = co_await done_.wait();
    FF_CO_TRY(waited);
  }
  auto writing = write_(offset, from);
  co_return co_await std::move(writing);
}

Task<void> WriteBehind::write(uint64_t chunk, uint64_t ticket, Buffer buffer) {
  const ByteView from =
      buffer.keeper != nullptr
          ? buffer.kept
          : buffer.memory.span().subspan(buffer.begin - chunk * chunk_size_, buffer.size);
  auto writing = write_in_turn(chunk, ticket, from, buffer.begin);
  auto written = co_await std::move(writing);
  if (!written && !error_) error_ = std::move(written).error();
  Turns& turns = turns_[chunk];
  turns.done++;
  if (turns.done == turns.given) turns_.erase(chunk);
  writing_--;
  done_.set();
  done_.reset();
}

Task<Result<void>> WriteBehind::flush() {
  while (!buffers_.empty() || writing_ > 0) {
    start_all();
    const auto waited = co_await done_.wait();
    FF_CO_TRY(waited);
  }
  co_return take_error();
}

void WriteBehind::start_old(int64_t before_ns) {
  for (auto at = buffers_.begin(); at != buffers_.end();) {
    const auto next = std::next(at);
    if (at->second.since_ns < before_ns && !turns_.contains(at->first)) start(at);
    at = next;
  }
}

Task<void> WriteBehind::close() {
  buffers_.clear();
  Error reason = fail(Errc::interrupted, "the file is closed");
  co_await gate_.close(std::move(reason));
}

}  // namespace ff::client
