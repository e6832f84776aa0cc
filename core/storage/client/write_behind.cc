// write_behind.cc: buffers of at most a chunk, each a run of bytes without a gap; what could not be
// written, as runs in the memory of its chunk.
#include "storage/client/write_behind.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"

namespace ff::client {

namespace {

// The file is gone, or its writer has no right to it: there is no use in another attempt.
bool is_for_good(const Error& error) {
  if (error.sys == ESTALE || error.sys == ENOENT || error.sys == EACCES) return true;
  return error.code == Errc::stale || error.code == Errc::refused || error.code == Errc::usage;
}

}  // namespace

// Of a chunk, as long as all of its memory: the newest bytes that could not be written.
struct WriteBehind::Kept {
  Kept(Shared& of, size_t mib) : shared(of), units(mib) { shared.kept += units; }
  ~Kept() { shared.kept -= units; }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  Shared& shared;
  const size_t units;
  chain::Memory::Bytes memory = {};
  Semaphore::Hold hold = {};
  std::map<uint64_t, uint64_t> runs = {};  // in the file: begin and end
  Error why = {};
  bool trying = false;
};

WriteBehind::Shared::Shared(Loop& loop, ByteSpan arena, uint64_t mib, Metrics& metrics)
    : memory(arena),
      all(mib),
      free(loop, mib),
      lost(metrics.counter("ff_client_lost_bytes_total",
                           "Bytes that were written and that storage never took")) {}

WriteBehind::WriteBehind(Loop& loop, Shared& shared, ErrorSeq& errors, const meta::Inode& inode,
                         Write write)
    : loop_(loop),
      shared_(shared),
      errors_(errors),
      inode_(inode.id),
      chunk_size_(inode.layout.chunk_size),
      units_(std::max<size_t>(1, chunk_size_ / kMiB)),
      write_(std::move(write)),
      done_(loop),
      gate_(loop) {}

Task<Result<void>> WriteBehind::add(uint64_t offset, ByteView from,
                                    std::shared_ptr<const void> keeper, bool must) {
  if (!kept_.empty() && !must) {
    auto trying = flush(Again::if_due);
    FF_CO_TRY(co_await std::move(trying));
    if (auto still = trouble()) co_return std::move(*still);
  }
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
  std::optional<Semaphore::Hold> hold = shared_.free.try_take(units_);
  if (!hold) {
    start_all();
    auto taking = shared_.free.take(units_);
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
    buffer.memory = shared_.memory.take(chunk_size_);
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

Task<Result<void>> WriteBehind::turn(uint64_t chunk, uint64_t ticket) {
  while (turns_[chunk].done != ticket) {
    const auto waited = co_await done_.wait();
    FF_CO_TRY(waited);
  }
  co_return Result<void>();
}

void WriteBehind::end_turn(uint64_t chunk, size_t& of) {
  Turns& turns = turns_[chunk];
  turns.done++;
  if (turns.done == turns.given) turns_.erase(chunk);
  of--;
  done_.set();
  done_.reset();
}

Task<Result<void>> WriteBehind::write_in_turn(uint64_t chunk, uint64_t ticket, ByteView from,
                                              uint64_t offset) {
  auto waiting = turn(chunk, ticket);
  FF_CO_TRY(co_await std::move(waiting));
  auto writing = write_(offset, from);
  co_return co_await std::move(writing);
}

ByteView WriteBehind::bytes_of(uint64_t chunk, const Buffer& buffer) const {
  if (buffer.keeper != nullptr) return buffer.kept;
  return buffer.memory.span().subspan(buffer.begin - chunk * chunk_size_, buffer.size);
}

Task<void> WriteBehind::write(uint64_t chunk, uint64_t ticket, Buffer buffer) {
  auto writing = write_in_turn(chunk, ticket, bytes_of(chunk, buffer), buffer.begin);
  const auto written = co_await std::move(writing);
  if (!written) keep(chunk, std::move(buffer), written.error());
  if (written && !kept_.empty()) forget(buffer.begin, buffer.begin + buffer.size);
  end_turn(chunk, writing_);
}

Task<Result<void>> WriteBehind::drain(bool attempts) {
  while (!empty() || (attempts && trying_ > 0)) {
    start_all();
    const auto waited = co_await done_.wait();
    FF_CO_TRY(waited);
  }
  co_return Result<void>();
}

Task<Result<void>> WriteBehind::flush(Again again) {
  const uint64_t before = failures_;
  auto draining = drain(again != Again::no);
  FF_CO_TRY(co_await std::move(draining));
  // What failed meanwhile is attempt enough.
  const bool begins = again == Again::now || (again == Again::if_due && due());
  if (kept_.empty() || !begins || failures_ != before) co_return Result<void>();
  start_again();
  auto trying = drain(true);
  co_return co_await std::move(trying);
}

void WriteBehind::start_old(int64_t before_ns) {
  for (auto at = buffers_.begin(); at != buffers_.end();) {
    const auto next = std::next(at);
    if (at->second.since_ns < before_ns && !turns_.contains(at->first)) start(at);
    at = next;
  }
  if (!kept_.empty() && due()) start_again();
}

Task<void> WriteBehind::close() {
  closing_ = true;
  const Error reason = fail(Errc::interrupted, "the file is closed");
  for (const auto& [chunk, buffer] : buffers_) {
    lost(buffer.begin, buffer.begin + buffer.size, reason);
  }
  if (!buffers_.empty() || !kept_.empty()) failed(trouble().value_or(reason));
  buffers_.clear();
  while (!kept_.empty()) lose(kept_.begin()->first, Error(kept_.begin()->second->why));
  co_await gate_.close(reason);
}

void WriteBehind::start_again() {
  for (const auto& [chunk, kept] : kept_) {
    if (std::exchange(kept->trying, true)) continue;
    trying_++;
    gate_.spawn(write_again(chunk, turns_[chunk].given++, kept));
  }
}

Task<Result<void>> WriteBehind::write_kept(uint64_t chunk, uint64_t ticket, Kept& kept) {
  auto waiting = turn(chunk, ticket);
  FF_CO_TRY(co_await std::move(waiting));
  while (!kept.runs.empty()) {
    const auto [begin, end] = *kept.runs.begin();
    auto writing =
        write_(begin, kept.memory.span().subspan(begin - chunk * chunk_size_, end - begin));
    FF_CO_TRY(co_await std::move(writing));
    forget(kept, begin, end);
  }
  co_return Result<void>();
}

Task<void> WriteBehind::write_again(uint64_t chunk, uint64_t ticket, KeptRef kept) {
  auto writing = write_kept(chunk, ticket, *kept);
  const auto written = co_await std::move(writing);
  kept->trying = false;
  const auto found = kept_.find(chunk);
  const bool there = found != kept_.end() && found->second == kept;
  if (there && written) kept_.erase(found);
  if (there && !written) {
    kept->why = written.error();
    failed(written.error());
    if (is_for_good(written.error())) lose(chunk, written.error());
  }
  end_turn(chunk, trying_);
}

void WriteBehind::failed(const Error& error) {
  failures_++;
  failed_ns_ = loop_.now_ns();
  errors_.record(error);
}

// Null: there is no room for more.
WriteBehind::KeptRef WriteBehind::make_kept(uint64_t chunk, Buffer& buffer) {
  if (shared_.kept + units_ > shared_.all / 2) return nullptr;
  auto kept = std::make_shared<Kept>(shared_, units_);
  kept->hold = std::move(buffer.hold);
  // Its keeper wants its own back.
  if (buffer.keeper != nullptr) kept->memory = shared_.memory.take(chunk_size_);
  if (buffer.keeper == nullptr) kept->memory = std::move(buffer.memory);
  if (kept_.empty()) {
    log_warning("bytes cannot be written, and are tried again", {{"inode", inode_}});
  }
  kept_[chunk] = kept;
  return kept;
}

void WriteBehind::keep(uint64_t chunk, Buffer buffer, const Error& why) {
  failed(why);
  const uint64_t end = buffer.begin + buffer.size;
  if (is_for_good(why)) lose(chunk, why);
  if (is_for_good(why) || closing_) return lost(buffer.begin, end, why);
  const auto found = kept_.find(chunk);
  const bool fresh = found == kept_.end();
  const KeptRef kept = fresh ? make_kept(chunk, buffer) : found->second;
  if (kept == nullptr) return lost(buffer.begin, end, why);
  if (!fresh || buffer.keeper != nullptr) {
    const auto at = static_cast<std::ptrdiff_t>(buffer.begin - chunk * chunk_size_);
    std::ranges::copy(bytes_of(chunk, buffer), kept->memory.span().begin() + at);
  }
  forget(*kept, buffer.begin, end);
  kept->runs[buffer.begin] = end;
  kept->why = why;
}

void WriteBehind::lose(uint64_t chunk, const Error& why) {
  const auto found = kept_.find(chunk);
  if (found == kept_.end()) return;
  for (const auto& [begin, end] : found->second->runs) lost(begin, end, why);
  kept_.erase(found);
}

void WriteBehind::lost(uint64_t begin, uint64_t end, const Error& why) {
  shared_.lost.add(end - begin);
  log_error("bytes that a program has written are lost",
            {{"inode", inode_}, {"offset", begin}, {"bytes", end - begin}, {"cause", why.message}});
}

std::optional<Error> WriteBehind::trouble() const {
  if (kept_.empty()) return std::nullopt;
  return kept_.begin()->second->why;
}

void WriteBehind::lay_over(uint64_t offset, ByteSpan into) const {
  const uint64_t end = offset + into.size();
  for (const auto& [chunk, kept] : kept_) {
    for (const auto& [from, to] : kept->runs) {
      const uint64_t begin = std::max(from, offset);
      if (begin >= std::min(to, end)) continue;
      const uint64_t size = std::min(to, end) - begin;
      std::ranges::copy(kept->memory.span().subspan(begin - chunk * chunk_size_, size),
                        into.subspan(begin - offset).begin());
    }
  }
}

void WriteBehind::forget(Kept& kept, uint64_t begin, uint64_t end) const {
  auto at = kept.runs.upper_bound(begin);
  if (at != kept.runs.begin()) --at;
  while (at != kept.runs.end() && at->first < end) {
    const auto [from, to] = *at;
    if (to <= begin) {
      ++at;
      continue;
    }
    at = kept.runs.erase(at);
    if (from < begin) kept.runs[from] = begin;
    if (to > end) kept.runs[end] = to;
  }
}

void WriteBehind::forget(uint64_t begin, uint64_t end) {
  std::erase_if(kept_, [&](const auto& one) {
    forget(*one.second, begin, end);
    return one.second->runs.empty();
  });
}

uint64_t WriteBehind::end() const {
  uint64_t end = 0;
  if (!buffers_.empty()) {
    const Buffer& last = buffers_.rbegin()->second;
    end = last.begin + last.size;
  }
  for (const auto& [chunk, kept] : kept_) {
    if (!kept->runs.empty()) end = std::max(end, kept->runs.rbegin()->second);
  }
  return end;
}

}  // namespace ff::client
