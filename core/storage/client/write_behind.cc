// write_behind.cc: a buffer holds one contiguous range of a chunk; a failed chunk holds several.
#include "storage/client/write_behind.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "platform/base/log.h"

namespace ff::client {

namespace {

// std::ranges::copy of GCC 12 copies them one at a time.
void copy_bytes(ByteView from, ByteSpan to) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

bool is_permanent_write_error(const Error& error) {
  if (error.sys == ESTALE || error.sys == ENOENT || error.sys == EACCES) return true;
  return error.code == Errc::stale || error.code == Errc::refused || error.code == Errc::usage;
}

// The newest bytes of a chunk that could not be written; memory for the whole chunk.
struct WriteBehind::FailedChunk {
  FailedChunk(Shared& of, size_t mib) : shared(of), units(mib) { shared.failed_mib += units; }
  ~FailedChunk() { shared.failed_mib -= units; }
  FailedChunk(const FailedChunk&) = delete;
  FailedChunk& operator=(const FailedChunk&) = delete;

  Shared& shared;
  const size_t units;
  chain::BufferPool::Buffer memory = {};
  Semaphore::Permit hold = {};
  std::map<uint64_t, uint64_t> runs = {};  // begin and end, offsets in the file
  Error why = {};
  bool retrying = false;
  std::vector<RecoveryTable::Record> records = {};  // one per run
  uint64_t order = 0;                               // of the newest failed write
};

WriteBehind::Shared::Shared(Loop& loop, ByteSpan arena, uint64_t mib, Metrics& metrics,
                            RecoveryTable* table, ByteSpan memory_of_table)
    : memory(arena),
      capacity_mib(mib),
      free_mib(loop, mib),
      lost_bytes(metrics.counter("ff_client_lost_bytes_total",
                                 "Written bytes that storage never accepted")),
      recovery(table),
      data(memory_of_table) {}

WriteBehind::WriteBehind(Loop& loop, Shared& shared, ErrorSeq& errors, const meta::Inode& inode,
                         uint64_t session, Write write)
    : loop_(loop),
      shared_(shared),
      errors_(errors),
      inode_(inode.id),
      session_(session),
      chunk_size_(inode.layout.chunk_size),
      units_(std::max<size_t>(1, chunk_size_ / kMiB)),
      write_(std::move(write)),
      done_(loop),
      gate_(loop) {}

Task<Result<void>> WriteBehind::add(uint64_t offset, ByteView from,
                                    std::shared_ptr<const void> owner, bool force) {
  if (!failed_chunks_.empty() && !force) {
    FF_CO_TRY(co_await flush(Retry::if_due));
    if (auto still = error()) co_return std::move(*still);
  }
  while (!from.empty()) {
    const uint64_t chunk = offset / chunk_size_;
    const uint64_t size = std::min<uint64_t>(from.size(), (chunk + 1) * chunk_size_ - offset);
    FF_CO_TRY(co_await add_to(chunk, offset, from.first(size), owner));
    offset += size;
    from = from.subspan(size);
  }
  if (unrecorded_ == 0) co_return Result<void>();
  // A successor of this process would not find these bytes: store them now.
  FF_CO_TRY(co_await flush(Retry::wait));
  if (auto still = error()) co_return std::move(*still);
  co_return Result<void>();
}

// Empty: the table is full, or the bytes lie elsewhere.
RecoveryTable::Record WriteBehind::record(ByteView bytes, uint64_t begin, uint64_t order) const {
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  const auto data = reinterpret_cast<uintptr_t>(shared_.data.data());
  if (at < data || at + bytes.size() > data + shared_.data.size()) return {};
  return shared_.recovery->add({.kind = RecoveryTable::Kind::buffer,
                                .fixed = {inode_, session_, begin, at - data},
                                .live = {bytes.size()},
                                .order = order});
}

void WriteBehind::record(uint64_t chunk, Buffer& buffer) {
  if (shared_.recovery == nullptr) return;
  buffer.record = record(bytes_of(chunk, buffer), buffer.begin, 0);
  buffer.unrecorded = !buffer.record;
  if (buffer.unrecorded) unrecorded_++;
}

void WriteBehind::record(uint64_t chunk, FailedChunk& kept) const {
  if (shared_.recovery == nullptr) return;
  std::vector<RecoveryTable::Record> records;
  for (const auto& [begin, end] : kept.runs) {
    const ByteView bytes = kept.memory.span().subspan(begin - chunk * chunk_size_, end - begin);
    records.push_back(record(bytes, begin, kept.order));
  }
  kept.records = std::move(records);
}

Task<Result<void>> WriteBehind::add_to(uint64_t chunk, uint64_t offset, ByteView from,
                                       std::shared_ptr<const void> owner) {
  const uint64_t at = offset - chunk * chunk_size_;
  if (const auto found = buffers_.find(chunk); found != buffers_.end()) {
    Buffer& buffer = found->second;
    if (offset == buffer.begin + buffer.size) {
      copy_bytes(from, buffer.memory.span().subspan(at));
      buffer.size += from.size();
      if (buffer.record) buffer.record.set_live(0, buffer.size);
      if (at + from.size() == chunk_size_) start(found);
      co_return Result<void>();
    }
    start(found);  // not contiguous: write the buffer first
  }
  std::optional<Semaphore::Permit> hold = shared_.free_mib.try_acquire(units_);
  if (!hold) {
    start_all();
    FF_CO_TRY(hold, co_await shared_.free_mib.acquire(units_));
    // Another task may have created a buffer for the chunk meanwhile.
    if (buffers_.contains(chunk)) {
      co_return co_await add_to(chunk, offset, from, std::move(owner));
    }
  }
  Buffer buffer{.memory = {},
                .hold = std::move(*hold),
                .begin = offset,
                .size = from.size(),
                .since_ns = loop_.now_ns()};
  if (owner != nullptr && from.size() == chunk_size_) {
    buffer.owner = std::move(owner);
    buffer.bytes = from;
  } else {
    buffer.memory = shared_.memory.allocate(chunk_size_);
    copy_bytes(from, buffer.memory.span().subspan(at));
  }
  record(chunk, buffer);
  const auto added = buffers_.emplace(chunk, std::move(buffer)).first;
  if (at + from.size() == chunk_size_) start(added);
  co_return Result<void>();
}

void WriteBehind::start(Buffers::iterator at) {
  const uint64_t chunk = at->first;
  Buffer buffer = std::move(at->second);
  buffers_.erase(at);
  writing_++;
  gate_.spawn(write(chunk, order_[chunk].given++, std::move(buffer)));
}

void WriteBehind::start_all() {
  while (!buffers_.empty()) start(buffers_.begin());
}

Task<Result<void>> WriteBehind::wait_turn(uint64_t chunk, uint64_t ticket) {
  while (order_[chunk].done != ticket) {
    const auto waited = co_await done_.wait();
    FF_CO_TRY(waited);
  }
  co_return Result<void>();
}

void WriteBehind::end_turn(uint64_t chunk, size_t& of) {
  WriteOrder& turns = order_[chunk];
  turns.done++;
  if (turns.done == turns.given) order_.erase(chunk);
  of--;
  done_.set();
  done_.reset();
}

Task<Result<void>> WriteBehind::write_in_turn(uint64_t chunk, uint64_t ticket, ByteView from,
                                              uint64_t offset) {
  FF_CO_TRY(co_await wait_turn(chunk, ticket));
  co_return co_await write_(offset, from);
}

ByteView WriteBehind::bytes_of(uint64_t chunk, const Buffer& buffer) const {
  if (buffer.owner != nullptr) return buffer.bytes;
  return buffer.memory.span().subspan(buffer.begin - chunk * chunk_size_, buffer.size);
}

Task<void> WriteBehind::write(uint64_t chunk, uint64_t ticket, Buffer buffer) {
  const auto written = co_await write_in_turn(chunk, ticket, bytes_of(chunk, buffer), buffer.begin);
  if (buffer.unrecorded) unrecorded_--;
  if (!written) keep_failed(chunk, std::move(buffer), written.error());
  if (written && !failed_chunks_.empty()) discard(buffer.begin, buffer.begin + buffer.size);
  end_turn(chunk, writing_);
}

Task<Result<void>> WriteBehind::drain(bool attempts) {
  while (!empty() || (attempts && retries_ > 0)) {
    start_all();
    const auto waited = co_await done_.wait();
    FF_CO_TRY(waited);
  }
  co_return Result<void>();
}

Task<Result<void>> WriteBehind::flush(Retry retry) {
  const uint64_t before = failures_;
  FF_CO_TRY(co_await drain(retry != Retry::no));
  // A failure meanwhile counts as the attempt.
  const bool begins = retry == Retry::now || (retry == Retry::if_due && due());
  if (failed_chunks_.empty() || !begins || failures_ != before) co_return Result<void>();
  retry_all();
  co_return co_await drain(true);
}

void WriteBehind::start_older_than(int64_t before_ns) {
  for (auto at = buffers_.begin(); at != buffers_.end();) {
    const auto next = std::next(at);
    if (at->second.since_ns < before_ns && !order_.contains(at->first)) start(at);
    at = next;
  }
  if (!failed_chunks_.empty() && due()) retry_all();
}

Task<void> WriteBehind::close() {
  closing_ = true;
  const Error reason = fail(Errc::interrupted, "the file was closed");
  for (const auto& [chunk, buffer] : buffers_) {
    report_lost(buffer.begin, buffer.begin + buffer.size, reason);
  }
  if (!buffers_.empty() || !failed_chunks_.empty()) on_failure(error().value_or(reason));
  buffers_.clear();
  while (!failed_chunks_.empty())
    drop_failed(failed_chunks_.begin()->first, Error(failed_chunks_.begin()->second->why));
  co_await gate_.close(reason);
}

void WriteBehind::retry_all() {
  for (const auto& [chunk, kept] : failed_chunks_) {
    if (std::exchange(kept->retrying, true)) continue;
    retries_++;
    gate_.spawn(rewrite(chunk, order_[chunk].given++, kept));
  }
}

Task<Result<void>> WriteBehind::write_failed_chunk(uint64_t chunk, uint64_t ticket,
                                                   FailedChunk& kept) {
  FF_CO_TRY(co_await wait_turn(chunk, ticket));
  while (!kept.runs.empty()) {
    const auto [begin, end] = *kept.runs.begin();
    FF_CO_TRY(co_await write_(
        begin, kept.memory.span().subspan(begin - chunk * chunk_size_, end - begin)));
    discard(chunk, kept, begin, end);
  }
  co_return Result<void>();
}

Task<void> WriteBehind::rewrite(uint64_t chunk, uint64_t ticket, FailedChunkRef kept) {
  const auto written = co_await write_failed_chunk(chunk, ticket, *kept);
  kept->retrying = false;
  const auto found = failed_chunks_.find(chunk);
  const bool there = found != failed_chunks_.end() && found->second == kept;
  if (there && written) failed_chunks_.erase(found);
  if (there && !written) {
    kept->why = written.error();
    on_failure(written.error());
    if (is_permanent_write_error(written.error())) drop_failed(chunk, written.error());
  }
  end_turn(chunk, retries_);
}

void WriteBehind::on_failure(const Error& error) {
  failures_++;
  failed_ns_ = loop_.now_ns();
  errors_.record(error);
}

// Null: out of memory for failed bytes.
WriteBehind::FailedChunkRef WriteBehind::make_failed_chunk(uint64_t chunk, Buffer& buffer) {
  const bool room = shared_.failed_mib + units_ <= shared_.capacity_mib / 2;
  if (!room && !promised_) return nullptr;
  auto kept = std::make_shared<FailedChunk>(shared_, units_);
  kept->hold = std::move(buffer.hold);
  // The owner needs its memory back, so copy.
  if (buffer.owner != nullptr) kept->memory = shared_.memory.allocate(chunk_size_);
  if (buffer.owner == nullptr) kept->memory = std::move(buffer.memory);
  if (failed_chunks_.empty()) {
    log_warning("writing to storage failed; the client keeps the bytes and retries",
                {{"inode", inode_}});
  }
  failed_chunks_[chunk] = kept;
  return kept;
}

void WriteBehind::keep_failed(uint64_t chunk, Buffer buffer, const Error& why) {
  on_failure(why);
  const uint64_t end = buffer.begin + buffer.size;
  if (is_permanent_write_error(why)) drop_failed(chunk, why);
  if (is_permanent_write_error(why) || closing_) return report_lost(buffer.begin, end, why);
  const auto found = failed_chunks_.find(chunk);
  const bool fresh = found == failed_chunks_.end();
  const FailedChunkRef kept = fresh ? make_failed_chunk(chunk, buffer) : found->second;
  if (kept == nullptr) return report_lost(buffer.begin, end, why);
  if (!fresh || buffer.owner != nullptr) {
    const uint64_t at = buffer.begin - chunk * chunk_size_;
    copy_bytes(bytes_of(chunk, buffer), kept->memory.span().subspan(at));
  }
  discard(chunk, *kept, buffer.begin, end);
  kept->runs[buffer.begin] = end;
  kept->why = why;
  if (buffer.record) kept->order = std::max(kept->order, buffer.record.order());
  record(chunk, *kept);
}

bool WriteBehind::adopt(std::vector<RecoveryTable::Record>& left, const Error& why) {
  std::map<uint64_t, FailedChunkRef> chunks;
  for (const RecoveryTable::Record& record : left) {
    const uint64_t begin = record.fixed(2), at = record.fixed(3), size = record.live(0);
    const uint64_t chunk = begin / chunk_size_, offset = begin % chunk_size_;
    const bool valid = offset + size <= chunk_size_ && at <= shared_.data.size() &&
                       size <= shared_.data.size() - at;
    if (!valid) return false;
    if (failed_chunks_.contains(chunk) || chunks.contains(chunk)) continue;
    const bool whole = offset <= at && chunk_size_ <= shared_.data.size() - (at - offset);
    if (!whole) return false;
    auto kept = std::make_shared<FailedChunk>(shared_, units_);
    kept->memory = shared_.memory.reserve(shared_.data.subspan(at - offset, chunk_size_));
    if (kept->memory.span().empty()) return false;
    if (auto hold = shared_.free_mib.try_acquire(units_)) kept->hold = std::move(*hold);
    chunks.emplace(chunk, std::move(kept));
  }
  failed_chunks_.merge(chunks);
  for (RecoveryTable::Record& record : left) {
    FailedChunk& kept = *failed_chunks_.at(record.fixed(2) / chunk_size_);
    adopt(kept, std::move(record), why);
  }
  left.clear();
  on_failure(why);
  return true;
}

// The new records first: a successor may find both.
void WriteBehind::adopt(FailedChunk& kept, RecoveryTable::Record left, const Error& why) {
  const uint64_t begin = left.fixed(2), size = left.live(0);
  const ByteSpan to = kept.memory.span().subspan(begin % chunk_size_, size);
  const ByteSpan from = shared_.data.subspan(left.fixed(3), size);
  if (from.data() != to.data()) copy_bytes(from, to);
  const uint64_t chunk = begin / chunk_size_;
  discard(chunk, kept, begin, begin + size);
  kept.runs[begin] = begin + size;
  kept.why = why;
  kept.order = std::max(kept.order, left.order());
  record(chunk, kept);
}

void WriteBehind::drop_failed(uint64_t chunk, const Error& why) {
  const auto found = failed_chunks_.find(chunk);
  if (found == failed_chunks_.end()) return;
  for (const auto& [begin, end] : found->second->runs) report_lost(begin, end, why);
  failed_chunks_.erase(found);
}

void WriteBehind::report_lost(uint64_t begin, uint64_t end, const Error& why) {
  shared_.lost_bytes.add(end - begin);
  log_error("written bytes are lost",
            {{"inode", inode_}, {"offset", begin}, {"bytes", end - begin}, {"cause", why.message}});
}

void WriteBehind::drop_buffers() {
  buffers_.clear();
  if (retries_ == 0) failed_chunks_.clear();
}

std::optional<Error> WriteBehind::error() const {
  if (failed_chunks_.empty()) return std::nullopt;
  return failed_chunks_.begin()->second->why;
}

void WriteBehind::overlay(uint64_t offset, ByteSpan into) const {
  const uint64_t end = offset + into.size();
  for (const auto& [chunk, kept] : failed_chunks_) {
    for (const auto& [from, to] : kept->runs) {
      const uint64_t begin = std::max(from, offset);
      if (begin >= std::min(to, end)) continue;
      const uint64_t size = std::min(to, end) - begin;
      copy_bytes(kept->memory.span().subspan(begin - chunk * chunk_size_, size),
                 into.subspan(begin - offset));
    }
  }
}

void WriteBehind::discard(uint64_t chunk, FailedChunk& kept, uint64_t begin, uint64_t end) const {
  bool changed = false;
  auto at = kept.runs.upper_bound(begin);
  if (at != kept.runs.begin()) --at;
  while (at != kept.runs.end() && at->first < end) {
    const auto [from, to] = *at;
    if (to <= begin) {
      ++at;
      continue;
    }
    at = kept.runs.erase(at);
    changed = true;
    if (from < begin) kept.runs[from] = begin;
    if (to > end) kept.runs[end] = to;
  }
  if (changed) record(chunk, kept);
}

void WriteBehind::discard(uint64_t begin, uint64_t end) {
  std::erase_if(failed_chunks_, [&](const auto& one) {
    discard(one.first, *one.second, begin, end);
    return one.second->runs.empty();
  });
}

uint64_t WriteBehind::end_offset() const {
  uint64_t end = 0;
  if (!buffers_.empty()) {
    const Buffer& last = buffers_.rbegin()->second;
    end = last.begin + last.size;
  }
  for (const auto& [chunk, kept] : failed_chunks_) {
    if (!kept->runs.empty()) end = std::max(end, kept->runs.rbegin()->second);
  }
  return end;
}

}  // namespace ff::client
