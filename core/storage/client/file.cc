// file.cc: maps bytes to chunks, and reports lengths.
#include "storage/client/file.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/task_group.h"
#include "storage/chain/capability.h"
#include "storage/client/file_system.h"
#include "storage/meta/file_chunks.h"

namespace ff::client {

namespace {

constexpr uint32_t kPunchedAtOnce = 64;  // chunks per listing of one chain

Error stale_error(const meta::Inode& inode) {
  return errno_error(ESTALE, fmt::format("inode {}", inode.id));
}

Error too_large(uint64_t offset) {
  Error error = errno_error(EFBIG, fmt::format("byte {}", offset));
  error.code = Errc::usage;
  return error;
}

Error not_for_writing(const meta::Inode& inode) {
  Error error = errno_error(EBADF, fmt::format("inode {} is not open for writing", inode.id));
  error.code = Errc::usage;
  return error;
}

Task<Result<void>> with_cancellation(Task<Result<void>> task, CancellationToken& cancel) {
  co_return co_await std::move(task).with_cancellation(cancel);
}

}  // namespace

// Consecutive chunks of one chain: indexes from `first` on, before `end`, in steps of the stripe.
struct File::Run {
  uint64_t first = 0;
  uint64_t end = 0;
};

File::File(FileSystem& of, meta::Caller caller, meta::InodeView view,
           std::vector<cluster::ChainId> chains, std::optional<meta::SessionId> session,
           RecoveryTable::Record record)
    : of_(of),
      view_(std::move(view)),
      chains_(std::move(chains)),
      session_(session),
      caller_(std::move(caller)),
      capability_ns_(of.loop().now_ns()),
      refreshed_ns_(of.loop().now_ns()),
      record_(std::move(record)),
      state_(of.state_of(view_.inode.id)),
      error_cursor_(state_->errors.sample()),
      behind_(of.loop(), of.behind_, state_->errors, view_.inode, session ? session->number : 0,
              [this](uint64_t offset, ByteView from) { return write_parts(offset, from); }) {}

std::vector<FilePart> File::parts(uint64_t offset, uint64_t size) const {
  return file_parts(view_.inode.id, chunk_size(), chains_, offset, size);
}

void File::on_update(meta::InodeView view, int64_t asked_ns) {
  // A later request may get a lower number, too: if the servers have lost a truncation.
  if (view.inode.truncate_seq < view_.inode.truncate_seq && asked_ns <= cut_ns_) return;
  of_.apply_local_writes(view.inode);
  const bool told = length_published() && behind_.empty();
  const uint64_t written = told ? view.inode.length : std::max(end_, view.inode.length);
  const bool cut = view.inode.truncate_seq != view_.inode.truncate_seq;
  const uint64_t before = view_.inode.length;
  view.capability = std::move(view_.capability);
  view.proof = std::move(view_.proof);
  view_ = std::move(view);
  // An unreported length counts, unless the file was truncated meanwhile.
  if (!cut) view_.inode.length = std::max(written, behind_.end_offset());
  if (cut) behind_.discard(view_.inode.length, UINT64_MAX);
  if (cut) end_ = behind_.end_offset();  // what was written before is gone
  if (cut) cut_ns_ = of_.loop().now_ns();
  if (cut || view_.inode.length < before) withdraw_snapshot();
  refreshed_ns_ = of_.loop().now_ns();
}

void File::publish_snapshot() {
  if (of_.snapshots_ == nullptr || closed_) return;
  if (!behind_.empty() || behind_.has_failed_bytes()) return;
  ReadSnapshot now;
  now.inode = view_.inode.id;
  now.length = view_.inode.length;
  now.chunk_size = chunk_size();
  now.chains = chains_;
  now.capability = view_.capability;
  if (!now.capability.empty()) now.until_ns = capability_ns_ + meta::kCapabilityLifetimeNs / 2;
  of_.snapshots_->publish(std::move(now));
}

void File::withdraw_snapshot() {
  if (of_.snapshots_ != nullptr) of_.snapshots_->withdraw(view_.inode.id);
}

// The capability of a user expires while the file is open; this renews it in time.
Task<Result<std::string>> File::capability() {
  const int64_t now_ns = of_.loop().now_ns();
  if (!view_.capability.empty() && now_ns - capability_ns_ >= meta::kCapabilityLifetimeNs / 2) {
    const uint64_t renewal = ++renewals_;
    FF_CO_TRY(auto renewed,
              co_await of_.metadata_.renew(caller_, view_.inode.id, view_.capability));
    if (renewal == renewals_) {
      view_.capability = std::move(renewed);
      capability_ns_ = now_ns;
    }
  }
  co_return view_.capability;
}

// A call may have waited longer than its capability was valid, for a chain that was interrupted.
bool File::capability_ended(const Error& error) {
  if (view_.capability.empty() || !chain::is_capability_expired(error)) return false;
  const bool fresh = of_.loop().now_ns() - capability_ns_ < meta::kCapabilityLifetimeNs / 2;
  capability_ns_ = of_.loop().now_ns() - meta::kCapabilityLifetimeNs;
  return !fresh;  // a fresh one that has expired is a matter of clocks
}

// A missing chunk is a hole, unless the file was removed or truncated meanwhile. This checks that.
Task<Result<void>> File::check_exists(bool hole, int64_t began_ns) {
  if (!hole || refreshed_ns_ >= began_ns) co_return Result<void>();
  const int64_t asked_ns = of_.loop().now_ns();
  auto view = co_await of_.metadata_.stat(ref(), false);
  if (!view && view.error().code == Errc::stale) co_return stale_error(view_.inode);
  FF_CO_TRY(Result<void>(view ? Result<void>() : view.error()));
  on_update(std::move(*view), asked_ns);
  co_return Result<void>();
}

Task<Result<uint64_t>> File::read(uint64_t offset, ByteSpan into) {
  std::vector<Extent> one;
  one.push_back({offset, into});
  auto got = co_await read_many(std::move(one));
  co_return std::move(got.front());
}

// Prepares a read: flushes, checks the length, and gets a capability.
Task<Result<std::string>> File::prepare_read(const std::vector<Extent>& extents, int64_t began_ns) {
  if (!behind_.empty()) {
    FF_CO_TRY(co_await flush());
  }
  const bool past_end = std::ranges::any_of(extents, [&](const Extent& extent) {
    return extent.offset + extent.into.size() > view_.inode.length;
  });
  FF_CO_TRY(co_await check_exists(past_end, began_ns));  // as far as known here
  co_return co_await capability();
}

Task<std::vector<Result<uint64_t>>> File::read_many(std::vector<Extent> extents) {
  std::vector<Result<uint64_t>> results(extents.size(), Result<uint64_t>(uint64_t{0}));
  const int64_t began_ns = of_.loop().now_ns();
  const auto right = co_await prepare_read(extents, began_ns);
  std::vector<chain::ChainClient::ReadIo> pieces;
  std::vector<std::pair<size_t, FilePart>> wanted;  // index of its extent
  for (size_t i = 0; i < extents.size(); i++) {
    const auto [offset, into, holes] = extents[i];
    if (!right) results[i] = right.error();
    if (offset > meta::kLengthMax) results[i] = too_large(offset);
    if (!results[i] || offset >= view_.inode.length || into.empty()) continue;
    const uint64_t size = std::min<uint64_t>(into.size(), view_.inode.length - offset);
    for (const FilePart& part : parts(offset, size)) {
      pieces.push_back({.chain = part.chain,
                        .id = part.id,
                        .offset = part.offset,
                        .into = into.subspan(part.at, part.size),
                        .capability = *right});
      wanted.emplace_back(i, part);
    }
    results[i] = size;
  }
  if (pieces.empty()) co_return results;
  auto got = co_await of_.storage_.read(pieces);
  const auto ended = [this](const auto& one) { return !one && capability_ended(one.error()); };
  Result<std::string> renewed = std::string();
  while (std::ranges::any_of(got, ended)) {
    renewed = co_await capability();
    for (auto& piece : pieces) {
      piece.capability = renewed ? std::string_view(*renewed) : std::string_view();
    }
    got = co_await of_.storage_.read(pieces);
  }
  bool hole = false;
  for (size_t i = 0; i < wanted.size(); i++) {
    const auto& [which, part] = wanted[i];
    const bool absent = !got[i] && got[i].error().code == Errc::not_found;
    hole |= absent;
    if (!got[i] && !absent) results[which] = with_errno(std::move(got[i]).error());
    if (!got[i] && !absent) continue;
    const uint64_t bytes = absent ? 0 : got[i]->bytes;
    if (bytes < part.size && !extents[which].holes && results[which]) {
      results[which] = errno_error(ENODATA, fmt::format("inode {}", view_.inode.id));
    }
    std::ranges::fill(extents[which].into.subspan(part.at + bytes, part.size - bytes),
                      std::byte{0});
  }
  // Asks in any case: the read may have waited for storage while the file was removed.
  const auto there = co_await check_exists(hole, INT64_MAX);
  if (!there) std::ranges::fill(results, Result<uint64_t>(there.error()));
  for (size_t i = 0; behind_.has_failed_bytes() && i < extents.size(); i++) {
    if (results[i]) behind_.overlay(extents[i].offset, extents[i].into.first(*results[i]));
  }
  co_return results;
}

Task<Result<uint64_t>> File::stored_length() {
  for (;;) {
    FF_CO_TRY(std::string right, co_await capability());
    auto end = co_await meta::stored_length(of_.storage_, of_.loop(), view_.inode, chains_,
                                            std::move(right));
    if (end) co_return end;
    if (!capability_ended(end.error())) co_return with_errno(std::move(end).error());
  }
}

Task<Result<void>> File::update(cluster::ChainId chain, chunk::Update update) {
  for (;;) {
    FF_CO_TRY(std::string right, co_await capability());
    auto updated = co_await of_.storage_.update(chain, update, std::move(right));
    if (updated) {
      state_->unsynced.add(chain, updated->verifier);
      co_return Result<void>();
    }
    if (!capability_ended(updated.error())) co_return with_errno(std::move(updated).error());
  }
}

Task<Result<void>> File::write_part(FilePart part, ByteView from) {
  const bool whole = part.offset == 0 && part.size == chunk_size();
  const chunk::Update update{.id = part.id,
                             .type = whole ? chunk::UpdateType::replace : chunk::UpdateType::write,
                             .offset = part.offset,
                             .data = from,
                             .chunk_size = chunk_size()};
  FF_CO_TRY(co_await this->update(part.chain, update));
  const uint64_t end = part.id.index * chunk_size() + part.offset + part.size;
  end_ = std::max(end_, end);
  view_.inode.length = std::max(view_.inode.length, end);
  length_dirty_ = true;
  save_length();
  co_return Result<void>();
}

Result<void> File::check_write(uint64_t offset, uint64_t size) const {
  if (!session_) return not_for_writing(view_.inode);
  if (offset > meta::kLengthMax || size > meta::kLengthMax - offset) return too_large(offset);
  return {};
}

void File::mark_written() {
  length_dirty_ = time_dirty_ = true;
  written_ns_ = of_.loop().clock().wall_ns();
  save_length();
}

// For a successor of this process: what the metadata service does not know yet.
void File::save_length() {
  if (!record_) return;
  record_.set_live(1, end_);
  record_.set_live(2, static_cast<uint64_t>(written_ns_));
  record_.set_live(3, view_.inode.truncate_seq);
  record_.set_live(0, length_published() ? 0 : time_dirty_ ? 1 : 2);
}

Task<Result<void>> File::write(uint64_t offset, ByteView from) {
  // A failed earlier write must not be retried after this one.
  if (behind_.has_failed_bytes()) {
    FF_CO_TRY(co_await behind_.flush(WriteBehind::Retry::wait));
    behind_.discard(offset, offset + from.size());
  }
  time_dirty_ = true;
  written_ns_ = of_.loop().clock().wall_ns();
  co_return co_await write_parts(offset, from);
}

Task<Result<void>> File::write_parts(uint64_t offset, ByteView from) {
  FF_CO_TRY(check_write(offset, from.size()));
  const std::vector<FilePart> wanted = parts(offset, from.size());
  if (wanted.size() == 1) {
    co_return co_await write_part(wanted.front(), from);
  }
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  TaskGroup all(of_.loop());
  for (const FilePart& part : wanted) {
    all.add(with_cancellation(write_part(part, from.subspan(part.at, part.size)),
                              scope.cancellation()));
  }
  co_return co_await all.join();
}

Task<Result<void>> File::write_behind(uint64_t offset, ByteView from, BufferOwner owner,
                                      bool force) {
  FF_CO_TRY(check_write(offset, from.size()));
  const auto added = co_await behind_.add(offset, from, std::move(owner), force);
  withdraw_snapshot();  // after add(): a read meanwhile may have published one
  FF_CO_TRY(added);
  mark_written();
  view_.inode.length = std::max(view_.inode.length, offset + from.size());
  co_return Result<void>();
}

Task<Result<void>> File::flush() { return behind_.flush(WriteBehind::Retry::no); }

Task<Result<void>> File::publish_length() {
  FF_CO_TRY(co_await flush());
  if (!session_ || length_published()) co_return Result<void>();
  co_return co_await flush_length(false);
}

Result<void> File::writeback_error(const ErrorSeq::Cursor& cursor) const {
  if (auto error = behind_.error()) return std::move(*error);
  return state_->errors.check(cursor);
}

Task<Result<void>> File::publish_times() {
  if (session_ && of_.deferred_.add(shared_from_this())) {
    co_return co_await report_buffered_length(false);
  }
  co_return co_await publish_length();
}

Task<Result<void>> File::flush_on_close(const ErrorSeq::Cursor& cursor) {
  if (of_.deferred_.add(shared_from_this())) {
    auto reported = co_await report_buffered_length(false);
    FF_CO_TRY(writeback_error(cursor));
    co_return reported;
  }
  FF_CO_TRY(co_await behind_.flush(WriteBehind::Retry::if_due));
  auto published = co_await publish_length();
  FF_CO_TRY(writeback_error(cursor));
  co_return published;
}

// Repeats if a concurrent truncation made the report void.
Task<Result<void>> File::extend(uint64_t length) {
  FF_CO_TRY(check_write(length, 0));
  while (view_.inode.length < length || !length_published()) {
    end_ = std::max(end_, length);
    mark_written();
    FF_CO_TRY(co_await publish_length());
  }
  co_return Result<void>();
}

// Finds the first consecutive chunks from `from` on, on one chain. If chunks are known to be
// damaged, all count as existing; reading them reports the error.
Task<Result<void>> File::find_run(size_t turn, uint64_t from, std::optional<Run>& run) {
  const uint64_t step = chains_.size();
  const cluster::ChainId chain = chains_[turn];
  for (;;) {
    FF_CO_TRY(std::string right, co_await capability());
    auto asking = of_.storage_.list_chunks(
        chain, {.inode = view_.inode.id, .from = from, .limit = 1, .step = step}, std::move(right));
    auto found = co_await std::move(asking);
    if (!found && capability_ended(found.error())) continue;
    if (!found && found.error().code == Errc::corrupt) {
      const uint64_t first = from + (turn + step - from % step) % step;
      run = Run{.first = run ? run->first : first, .end = UINT64_MAX};
      co_return Result<void>();
    }
    if (!found) co_return with_errno(std::move(found).error());
    if (found->chunks.empty()) {
      if (run || !found->next) co_return Result<void>();
      from = *found->next;
      continue;
    }
    const uint64_t first = found->chunks.front().id.index;
    if (!run) run = Run{.first = first, .end = first};
    if (first != run->end) co_return Result<void>();
    run->end = from = first + found->run * step;
    if (found->run < chain::kRunMax) co_return Result<void>();
  }
}

Task<Result<io::DataRange>> File::next_data(uint64_t offset) {
  FF_CO_TRY(const meta::Inode inode, co_await refresh());
  const uint64_t from = offset / chunk_size();
  std::vector<std::optional<Run>> runs(chains_.size());
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  TaskGroup all(of_.loop());
  for (size_t i = 0; i < chains_.size(); i++) {
    all.add(with_cancellation(find_run(i, from, runs[i]), scope.cancellation()));
  }
  FF_CO_TRY(co_await all.join());
  uint64_t first = UINT64_MAX;
  for (const auto& run : runs) first = run ? std::min(first, run->first) : first;
  if (first == UINT64_MAX) co_return io::DataRange{.begin = inode.length, .end = inode.length};
  // The range ends at the first chunk that is missing on its chain.
  uint64_t last = UINT64_MAX;
  for (size_t i = 0; i < chains_.size(); i++) {
    const uint64_t count = chains_.size();
    // the next index on this chain
    const uint64_t turn = first + (i + count - first % count) % count;
    const bool there = runs[i] && runs[i]->first == turn;
    last = std::min(last, there ? runs[i]->end : turn);
  }
  const uint64_t most = inode.length / chunk_size() + 1;
  co_return io::DataRange{
      .begin = std::min(std::max(std::min(first, most) * chunk_size(), offset), inode.length),
      .end = std::min(std::min(last, most) * chunk_size(), inode.length)};
}

// Punches the hole in the existing chunks of one chain. The storage node decides whether a chunk is
// removed as a whole, since others may append to it meanwhile.
Task<Result<void>> File::punch_hole_on(cluster::ChainId chain, uint64_t begin, uint64_t end) {
  const uint64_t size = chunk_size();
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  for (uint64_t from = begin / size;;) {
    FF_CO_TRY(std::string right, co_await capability());
    auto asking = of_.storage_.list_chunks(chain,
                                           {.inode = view_.inode.id,
                                            .from = from,
                                            .end = (end - 1) / size + 1,
                                            .limit = kPunchedAtOnce},
                                           std::move(right));
    auto found = co_await std::move(asking);
    if (!found && capability_ended(found.error())) continue;
    if (!found) co_return with_errno(std::move(found).error());
    // A sync of this file also covers holes that another client has punched and not synced.
    if (found->verifier) state_->unsynced.add(chain, *found->verifier);
    TaskGroup all(of_.loop());
    for (const auto& one : found->chunks) {
      const uint64_t at = one.id.index * size;
      const uint64_t first = std::max(at, begin) - at;
      const chunk::Update clearing{.id = one.id,
                                   .type = chunk::UpdateType::punch_hole,
                                   .offset = first,
                                   .length = std::min(at + size, end) - at - first,
                                   .chunk_size = size};
      all.add(with_cancellation(update(chain, clearing), scope.cancellation()));
    }
    FF_CO_TRY(co_await all.join());
    if (!found->next) co_return Result<void>();
    from = *found->next;
  }
}

Task<Result<void>> File::punch_hole(uint64_t offset, uint64_t size) {
  FF_CO_TRY(check_write(offset, size));
  FF_CO_TRY(const meta::Inode inode, co_await refresh());
  behind_.discard(offset, offset + size);
  const uint64_t end = std::min(offset + size, inode.length);
  if (offset >= end) co_return Result<void>();
  mark_written();
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  TaskGroup all(of_.loop());
  for (const auto chain : chains_)
    all.add(with_cancellation(punch_hole_on(chain, offset, end), scope.cancellation()));
  const auto cleared = co_await all.join();
  mark_written();
  FF_CO_TRY(cleared);
  co_return co_await publish_length();
}

Task<Result<uint64_t>> File::append(ByteView from, uint64_t origin) {
  if (!session_) co_return not_for_writing(view_.inode);
  if (from.empty()) co_return view_.inode.length;
  // Do not publish a length that could not be written.
  if (behind_.has_failed_bytes()) {
    FF_CO_TRY(co_await behind_.flush(WriteBehind::Retry::if_due));
    if (auto error = behind_.error()) co_return std::move(*error);
  }
  FF_CO_TRY(co_await publish_length());
  FF_CO_TRY(std::string right, co_await capability());
  const int64_t asked_ns = of_.loop().now_ns();
  FF_CO_TRY(auto view,
            co_await of_.metadata_.append(view_.inode.id, from.size(), std::move(right), origin));
  const uint64_t offset = view.inode.length - from.size();
  on_update(std::move(view), asked_ns);
  FF_CO_TRY(co_await write(offset, from));
  co_return offset;
}

// Sends the length report; others see the length from then on.
Task<Result<void>> File::flush_length(bool closed) {
  FF_CO_TRY(std::string right, co_await capability());
  const bool timed = length_dirty_ && std::exchange(time_dirty_, false);
  const int64_t time_ns = timed ? written_ns_ : meta::Namespace::kSameTime;
  const meta::Namespace::LengthReport written{.min_length = end_,
                                              .truncate_seq = view_.inode.truncate_seq,
                                              .mtime_ns = length_dirty_ ? time_ns : 0,
                                              .closed = closed,
                                              .unstored = of_.deferred_.waits(view_.inode.id)};
  const uint64_t told = end_;
  const int64_t asked_ns = of_.loop().now_ns();
  length_dirty_ = false;
  length_flushes_++;
  auto view =
      co_await of_.metadata_.report_length(view_.inode.id, *session_, written, std::move(right));
  length_flushes_--;
  if (!view) {
    length_dirty_ = true;
    time_dirty_ |= timed;
    save_length();
    if (capability_ended(view.error())) co_return co_await flush_length(closed);
    co_return std::move(view).error();
  }
  if (end_ == told) end_ = 0;
  if (written.mtime_ns != 0) reported_writes_++;
  on_update(std::move(*view), asked_ns);
  save_length();
  co_return Result<void>();
}

// The metadata client answers it by itself, and sends it when the bytes are stored.
Task<Result<void>> File::report_buffered_length(bool closed) {
  if (length_published() && !closed) co_return Result<void>();
  end_ = std::max(end_, behind_.end_offset());
  co_return co_await flush_length(closed);
}

// Covers the writes that existed when it started.
Task<Result<void>> File::sync_chain(cluster::ChainId chain, uint64_t count) {
  const auto synced = co_await of_.storage_.sync(chain);
  if (!synced) co_return with_errno(Error(synced.error()));
  if (state_->unsynced.on_sync(chain, *synced, count)) co_return Result<void>();
  Error lost = fail(Errc::failed,
                    "inode {}: chain {} has lost writes that were not synced before all of its "
                    "replicas lost power",
                    view_.inode.id, chain);
  lost.hint = std::string("Write the file again.");
  lost.sys = EIO;
  of_.report_lost(view_.inode.id, std::move(lost));
  co_return Result<void>();
}

// Also syncs earlier metadata changes, such as the name of the file.
Task<Result<void>> File::commit_length() {
  if (session_ && !length_published()) {
    FF_CO_TRY(co_await flush_length(false));
  }
  co_return co_await of_.metadata_.sync();
}

Task<Result<void>> File::commit() {
  FF_CO_TRY(co_await behind_.flush(WriteBehind::Retry::now));
  CancelScope scope(of_.loop(), co_await current_cancellation(), INT64_MAX, {});
  TaskGroup all(of_.loop());
  const uint64_t count = state_->unsynced.count();
  for (const auto chain : state_->unsynced.chains()) {
    all.add(with_cancellation(sync_chain(chain, count), scope.cancellation()));
  }
  all.add(with_cancellation(commit_length(), scope.cancellation()));
  co_return co_await all.join();
}

// An error is consumed only if this reply reports it, so nothing is awaited after that. Other
// failures happen again at the next sync.
Task<Result<void>> File::sync(ErrorSeq::Cursor& cursor) {
  auto synced = co_await commit();
  if (!synced && synced.error().code == Errc::interrupted) co_return synced;
  FF_CO_TRY(state_->errors.check_and_advance(cursor));
  if (auto error = behind_.error()) co_return std::move(*error);
  co_return synced;
}

Task<Result<void>> File::truncate(uint64_t length, uint64_t origin) {
  if (!session_) co_return not_for_writing(view_.inode);
  FF_CO_TRY(co_await behind_.flush(WriteBehind::Retry::wait));
  discard_unwritten(length);
  FF_CO_TRY(std::string right, co_await capability());
  meta::Caller opener;
  opener.origin = origin;
  const int64_t asked_ns = of_.loop().now_ns();
  FF_CO_TRY(auto view, co_await of_.metadata_.truncate(opener, ref(), length, std::move(right)));
  end_ = 0;
  length_dirty_ = time_dirty_ = false;
  on_update(std::move(view), asked_ns);
  save_length();
  co_return Result<void>();
}

Task<Result<meta::Inode>> File::refresh() {
  const uint64_t told = reported_writes_;
  FF_CO_TRY(co_await publish_length());
  if (reported_writes_ != told) co_return view_.inode;
  const int64_t asked_ns = of_.loop().now_ns();
  FF_CO_TRY(auto view, co_await of_.metadata_.stat(ref(), false));
  on_update(std::move(view), asked_ns);
  co_return view_.inode;
}

Task<Result<bool>> File::try_lock(meta::Caller caller) {
  if (lock_) co_return !lock_->lost;
  lock_ = Lock{.owner = of_.metadata_.new_session(), .caller = std::move(caller)};
  of_.locked_[lock_->owner.number] = weak_from_this();
  auto held = co_await renew_lock();
  if (held && *held) co_return true;
  of_.locked_.erase(lock_->owner.number);
  lock_.reset();
  co_return held;
}

// Acquires or renews the lock. If the owner was too slow, the lock counts as lost, whoever holds it
// now.
Task<Result<bool>> File::renew_lock() {
  const int64_t now_ns = of_.loop().now_ns();
  const auto held = co_await of_.metadata_.lock(lock_->caller, ref(), lock_->owner);
  if (!lock_) co_return false;  // released meanwhile
  if (held && *held) {
    lock_->asked_ns = now_ns;
  } else if (held) {
    lock_->lost = true;
  }
  co_return held;
}

Task<void> File::unlock() {
  if (!lock_) co_return;
  const meta::SessionId owner = lock_->owner;
  lock_.reset();
  of_.locked_.erase(owner.number);
  (void)co_await of_.metadata_.unlock(ref(), owner);  // otherwise it expires
}

void File::abandon() {
  closed_ = true;
  withdraw_snapshot();
  if (session_) of_.writers_.erase({view_.inode.id, session_->number});
  record_ = RecoveryTable::Record();
}

// The session record stays: a successor of this process stores the bytes with it.
Task<Result<bool>> File::defer_close() {
  if (closed_ || lock_ || !of_.deferred_.add(shared_from_this())) co_return false;
  closed_ = true;
  withdraw_snapshot();
  of_.writers_.erase({view_.inode.id, session_->number});
  FF_CO_TRY(co_await report_buffered_length(true));
  co_return true;
}

Task<Result<void>> File::close() {
  if (std::exchange(closed_, true)) co_return Result<void>();
  withdraw_snapshot();
  co_await unlock();
  // A close(2) has returned on condition that these bytes are not given up.
  if (!of_.deferred_.empty()) {
    std::vector<meta::InodeId> inode(1, view_.inode.id);
    CancelScope scope(of_.loop(), co_await current_cancellation(),
                      of_.loop().now_ns() + meta::MetaClient::kTimeoutNs, "storing a file");
    (void)co_await of_.deferred_.store(std::move(inode)).with_cancellation(scope.cancellation());
    if (of_.deferred_.waits(view_.inode.id)) co_return writeback_error(error_cursor_);
  }
  Result<void> first = co_await behind_.flush(WriteBehind::Retry::if_due);
  if (first) first = writeback_error(error_cursor_);
  co_await behind_.close();
  if (!session_) co_return first;
  if (length_published()) {
    of_.writers_.erase({view_.inode.id, session_->number});
    of_.end_session({.inode = view_.inode.id, .session = *session_}, std::move(record_));
    co_return first;
  }
  auto told = co_await flush_length(true);
  record_ = RecoveryTable::Record();
  of_.writers_.erase({view_.inode.id, session_->number});
  // A removed file needs no length.
  if (told || told.error().code == Errc::stale) co_return first;
  if (first) first = told;
  of_.report_lost(view_.inode.id, std::move(told).error());
  co_return first;
}

}  // namespace ff::client
