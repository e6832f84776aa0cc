// file.cc: bytes to chunks and back, and what others are told of them.
#include "storage/client/file.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/together.h"
#include "storage/client/file_system.h"
#include "storage/meta/chunks.h"

namespace ff::client {

namespace {

constexpr uint32_t kClearedAtOnce = 64;  // chunks of one chain

Error gone(const meta::Inode& inode) {
  return errno_error(ESTALE, fmt::format("inode {}", inode.id));
}

Error wrong_end(uint64_t offset) {
  Error error = errno_error(EFBIG, fmt::format("byte {}", offset));
  error.code = Errc::usage;
  return error;
}

Error not_for_writing(const meta::Inode& inode) {
  Error error = errno_error(EBADF, fmt::format("inode {} is not open for writing", inode.id));
  error.code = Errc::usage;
  return error;
}

Error with_errno(Error error) {
  if (error.sys != 0) return error;
  switch (error.code) {
    case Errc::disk_full: error.sys = ENOSPC; break;
    case Errc::refused: error.sys = EACCES; break;
    case Errc::deadline: error.sys = ETIMEDOUT; break;
    case Errc::interrupted: error.sys = EINTR; break;
    default: error.sys = EIO;
  }
  return error;
}

Task<Result<void>> under(Task<Result<void>> task, Cancel& cancel) {
  co_return co_await std::move(task).under(cancel);
}

}  // namespace

// A stretch of one chunk.
struct File::Part {
  cluster::ChainId chain = 0;
  chunk::ChunkId id = {};
  uint64_t offset = 0;  // in the chunk
  uint64_t size = 0;
  uint64_t at = 0;  // in the caller's memory
};

// Chunks of one chain's turns: from `first` on, the next turn would be `end`.
struct File::Run {
  uint64_t first = 0;
  uint64_t end = 0;
};

File::File(FileSystem& of, meta::Seen seen, std::vector<cluster::ChainId> chains,
           std::optional<meta::SessionId> session)
    : of_(of),
      seen_(std::move(seen)),
      chains_(std::move(chains)),
      session_(session),
      capability_ns_(of.loop().now_ns()),
      seen_ns_(of.loop().now_ns()),
      state_(of.state_of(seen_.inode.id)),
      told_(state_->errors.open()),
      behind_(of.loop(), of.behind_, state_->errors, seen_.inode,
              [this](uint64_t offset, ByteView from) { return write_parts(offset, from); }) {}

std::vector<File::Part> File::parts(uint64_t offset, uint64_t size) const {
  std::vector<Part> parts;
  const uint64_t chunk = chunk_size();
  for (uint64_t done = 0; done < size;) {
    const uint64_t index = (offset + done) / chunk;
    const uint64_t begin = (offset + done) % chunk;
    const uint64_t length = std::min(size - done, chunk - begin);
    parts.push_back({.chain = chains_[index % chains_.size()],
                     .id = {seen_.inode.id, index},
                     .offset = begin,
                     .size = length,
                     .at = done});
    done += length;
  }
  return parts;
}

void File::heard(meta::Seen seen) {
  of_.add_written(seen.inode);
  const bool told = all_told() && behind_.empty();
  const uint64_t written = told ? seen.inode.length : std::max(end_, seen.inode.length);
  const bool cut = seen.inode.truncations != seen_.inode.truncations;
  seen.capability = std::move(seen_.capability);
  seen.proof = std::move(seen_.proof);
  seen_ = std::move(seen);
  // What is not told yet counts, unless somebody has cut the file since.
  if (!cut) seen_.inode.length = std::max(written, behind_.end());
  if (cut) behind_.forget(seen_.inode.length, UINT64_MAX);
  seen_ns_ = of_.loop().now_ns();
}

// A user's right to the chunks runs out while the file is open, and is renewed in time.
Task<Result<std::string>> File::capability() {
  const int64_t now_ns = of_.loop().now_ns();
  if (!seen_.capability.empty() && now_ns - capability_ns_ >= meta::kCapabilityNs / 2) {
    auto renewing = of_.names_.renew(seen_.inode.id, seen_.capability);
    FF_CO_TRY(seen_.capability, co_await std::move(renewing));
    capability_ns_ = now_ns;
  }
  co_return seen_.capability;
}

// Where nothing was found the file may be gone, and others may have cut it: then there are no zeros
// to give.
Task<Result<void>> File::check_there(bool hole, int64_t began_ns) {
  if (!hole || seen_ns_ >= began_ns) co_return Result<void>();
  auto looking = of_.names_.stat(ref(), false);
  auto seen = co_await std::move(looking);
  if (!seen && seen.error().code == Errc::stale) co_return gone(seen_.inode);
  FF_CO_TRY(Result<void>(seen ? Result<void>() : seen.error()));
  heard(std::move(*seen));
  co_return Result<void>();
}

Task<Result<uint64_t>> File::read(uint64_t offset, ByteSpan into) {
  std::vector<Extent> one;
  one.push_back({offset, into});
  auto reading = read_many(std::move(one));
  auto got = co_await std::move(reading);
  co_return std::move(got.front());
}

// What comes before storage is asked: the length, and a right.
Task<Result<std::string>> File::before_reading(const std::vector<Extent>& extents,
                                               int64_t began_ns) {
  if (!behind_.empty()) {
    auto flushing = flush();
    FF_CO_TRY(co_await std::move(flushing));
  }
  const bool past_end = std::ranges::any_of(extents, [&](const Extent& extent) {
    return extent.offset + extent.into.size() > seen_.inode.length;
  });
  auto checking = check_there(past_end, began_ns);  // as far as is known here
  FF_CO_TRY(co_await std::move(checking));
  auto having = capability();
  co_return co_await std::move(having);
}

Task<std::vector<Result<uint64_t>>> File::read_many(std::vector<Extent> extents) {
  std::vector<Result<uint64_t>> results(extents.size(), Result<uint64_t>(uint64_t{0}));
  const int64_t began_ns = of_.loop().now_ns();
  auto preparing = before_reading(extents, began_ns);
  const auto right = co_await std::move(preparing);
  std::vector<chain::Client::Piece> pieces;
  std::vector<std::pair<size_t, Part>> wanted;  // of which extent
  for (size_t i = 0; i < extents.size(); i++) {
    const auto [offset, into, holes] = extents[i];
    if (!right) results[i] = right.error();
    if (offset > meta::kLengthMax) results[i] = wrong_end(offset);
    if (!results[i] || offset >= seen_.inode.length || into.empty()) continue;
    const uint64_t size = std::min<uint64_t>(into.size(), seen_.inode.length - offset);
    for (Part& part : parts(offset, size)) {
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
  auto reading = of_.storage_.read(std::move(pieces));
  auto got = co_await std::move(reading);
  bool hole = false;
  for (size_t i = 0; i < wanted.size(); i++) {
    const auto& [which, part] = wanted[i];
    const bool absent = !got[i] && got[i].error().code == Errc::not_found;
    hole |= absent;
    if (!got[i] && !absent) results[which] = with_errno(std::move(got[i]).error());
    if (!got[i] && !absent) continue;
    const uint64_t bytes = absent ? 0 : got[i]->bytes;
    if (bytes < part.size && !extents[which].holes && results[which]) {
      results[which] = errno_error(ENODATA, fmt::format("inode {}", seen_.inode.id));
    }
    std::ranges::fill(extents[which].into.subspan(part.at + bytes, part.size - bytes),
                      std::byte{0});
  }
  auto checking = check_there(hole, began_ns);
  const auto there = co_await std::move(checking);
  if (!there) std::ranges::fill(results, Result<uint64_t>(there.error()));
  for (size_t i = 0; behind_.keeps() && i < extents.size(); i++) {
    if (results[i]) behind_.lay_over(extents[i].offset, extents[i].into.first(*results[i]));
  }
  co_return results;
}

Task<Result<uint64_t>> File::stored_end() {
  auto having = capability();
  FF_CO_TRY(std::string right, co_await std::move(having));
  auto asking = meta::stored_end(of_.storage_, of_.loop(), seen_.inode, chains_, std::move(right));
  auto end = co_await std::move(asking);
  if (!end) co_return with_errno(std::move(end).error());
  co_return end;
}

Task<Result<void>> File::update(cluster::ChainId chain, chunk::Update update) {
  auto having = capability();
  FF_CO_TRY(std::string right, co_await std::move(having));
  auto updating = of_.storage_.update(chain, std::move(update), std::move(right));
  auto updated = co_await std::move(updating);
  if (!updated) co_return with_errno(std::move(updated).error());
  state_->unsynced.add(chain, updated->verifier);
  co_return Result<void>();
}

Task<Result<void>> File::write_part(Part part, ByteView from) {
  const bool whole = part.offset == 0 && part.size == chunk_size();
  const chunk::Update update{.id = part.id,
                             .change = whole ? chunk::Change::replace : chunk::Change::write,
                             .offset = part.offset,
                             .data = from,
                             .chunk_size = chunk_size()};
  auto updating = this->update(part.chain, update);
  FF_CO_TRY(co_await std::move(updating));
  const uint64_t end = part.id.index * chunk_size() + part.offset + part.size;
  end_ = std::max(end_, end);
  seen_.inode.length = std::max(seen_.inode.length, end);
  untold_ = true;
  co_return Result<void>();
}

Result<void> File::check_write(uint64_t offset, uint64_t size) const {
  if (!session_) return not_for_writing(seen_.inode);
  if (offset > meta::kLengthMax || size > meta::kLengthMax - offset) return wrong_end(offset);
  return {};
}

void File::writing_now() {
  untold_ = true;
  written_ns_ = of_.loop().clock().wall_ns();
}

Task<Result<void>> File::write(uint64_t offset, ByteView from) {
  // What could not be written before is not to come after it.
  if (behind_.keeps()) {
    auto settling = behind_.flush(WriteBehind::Again::under_way);
    FF_CO_TRY(co_await std::move(settling));
    behind_.forget(offset, offset + from.size());
  }
  auto writing = write_parts(offset, from);
  co_return co_await std::move(writing);
}

Task<Result<void>> File::write_parts(uint64_t offset, ByteView from) {
  FF_CO_TRY(check_write(offset, from.size()));
  written_ns_ = of_.loop().clock().wall_ns();
  const std::vector<Part> wanted = parts(offset, from.size());
  if (wanted.size() == 1) {
    auto writing = write_part(wanted.front(), from);
    co_return co_await std::move(writing);
  }
  CancelScope scope(of_.loop(), co_await current_cancel(), INT64_MAX, {});
  Together all(of_.loop());
  for (const Part& part : wanted) {
    all.add(under(write_part(part, from.subspan(part.at, part.size)), scope.cancel()));
  }
  auto writing = all.done();
  co_return co_await std::move(writing);
}

Task<Result<void>> File::write_behind(uint64_t offset, ByteView from, Keeper keeper, bool must) {
  FF_CO_TRY(check_write(offset, from.size()));
  auto adding = behind_.add(offset, from, std::move(keeper), must);
  FF_CO_TRY(co_await std::move(adding));
  writing_now();
  seen_.inode.length = std::max(seen_.inode.length, offset + from.size());
  co_return Result<void>();
}

Task<Result<void>> File::flush() { return behind_.flush(WriteBehind::Again::no); }

Task<Result<void>> File::publish() {
  auto flushing = flush();
  FF_CO_TRY(co_await std::move(flushing));
  if (!session_ || all_told()) co_return Result<void>();
  auto telling = tell(false);
  co_return co_await std::move(telling);
}

Result<void> File::late_error(const ErrorSeq::Cursor& told) const {
  if (auto error = behind_.trouble()) return std::move(*error);
  return state_->errors.look(told);
}

Task<Result<void>> File::publish_of(const ErrorSeq::Cursor& told) {
  auto flushing = behind_.flush(WriteBehind::Again::if_due);
  FF_CO_TRY(co_await std::move(flushing));
  auto publishing = publish();
  auto published = co_await std::move(publishing);
  FF_CO_TRY(late_error(told));
  co_return published;
}

// Somebody who truncates it meanwhile makes what was told of no account.
Task<Result<void>> File::extend(uint64_t length) {
  FF_CO_TRY(check_write(length, 0));
  while (seen_.inode.length < length || !all_told()) {
    end_ = std::max(end_, length);
    writing_now();
    auto publishing = publish();
    FF_CO_TRY(co_await std::move(publishing));
  }
  co_return Result<void>();
}

// The first chunks that are there, from `from` on, on one of the chains: they follow one another as
// the chain's turns come. Where some are known to be missing all count as there: who reads one of
// those is told.
Task<Result<void>> File::find_run(size_t turn, uint64_t from, std::optional<Run>& run) {
  const uint64_t step = chains_.size();
  const cluster::ChainId chain = chains_[turn];
  for (;;) {
    auto having = capability();
    FF_CO_TRY(std::string right, co_await std::move(having));
    auto asking = of_.storage_.chunks(
        chain, {.inode = seen_.inode.id, .from = from, .limit = 1, .step = step}, std::move(right));
    auto found = co_await std::move(asking);
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
  auto looking = look();
  FF_CO_TRY(const meta::Inode inode, co_await std::move(looking));
  const uint64_t from = offset / chunk_size();
  std::vector<std::optional<Run>> runs(chains_.size());
  CancelScope scope(of_.loop(), co_await current_cancel(), INT64_MAX, {});
  Together all(of_.loop());
  for (size_t i = 0; i < chains_.size(); i++) {
    all.add(under(find_run(i, from, runs[i]), scope.cancel()));
  }
  auto finding = all.done();
  FF_CO_TRY(co_await std::move(finding));
  uint64_t first = UINT64_MAX;
  for (const auto& run : runs) first = run ? std::min(first, run->first) : first;
  if (first == UINT64_MAX) co_return io::DataRange{.begin = inode.length, .end = inode.length};
  // It ends with the first chunk that is missing on its chain.
  uint64_t last = UINT64_MAX;
  for (size_t i = 0; i < chains_.size(); i++) {
    const uint64_t count = chains_.size();
    const uint64_t turn = first + (i + count - first % count) % count;  // the chain's next
    const bool there = runs[i] && runs[i]->first == turn;
    last = std::min(last, there ? runs[i]->end : turn);
  }
  const uint64_t most = inode.length / chunk_size() + 1;
  co_return io::DataRange{
      .begin = std::min(std::max(std::min(first, most) * chunk_size(), offset), inode.length),
      .end = std::min(std::min(last, most) * chunk_size(), inode.length)};
}

// The chunks of one chain that are there. Whether one goes as a whole is decided where it lies:
// others may append to it meanwhile.
Task<Result<void>> File::clear_on(cluster::ChainId chain, uint64_t begin, uint64_t end) {
  const uint64_t size = chunk_size();
  CancelScope scope(of_.loop(), co_await current_cancel(), INT64_MAX, {});
  for (uint64_t from = begin / size;;) {
    auto having = capability();
    FF_CO_TRY(std::string right, co_await std::move(having));
    auto asking = of_.storage_.chunks(chain,
                                      {.inode = seen_.inode.id,
                                       .from = from,
                                       .end = (end - 1) / size + 1,
                                       .limit = kClearedAtOnce},
                                      std::move(right));
    auto found = co_await std::move(asking);
    if (!found) co_return with_errno(std::move(found).error());
    // What another has cleared, and not synced: for a sync of this file it counts as its own.
    if (found->verifier) state_->unsynced.add(chain, *found->verifier);
    Together all(of_.loop());
    for (const auto& one : found->chunks) {
      const uint64_t at = one.id.index * size;
      const uint64_t first = std::max(at, begin) - at;
      const chunk::Update clearing{.id = one.id,
                                   .change = chunk::Change::clear,
                                   .offset = first,
                                   .length = std::min(at + size, end) - at - first,
                                   .chunk_size = size};
      all.add(under(update(chain, clearing), scope.cancel()));
    }
    auto clearing = all.done();
    FF_CO_TRY(co_await std::move(clearing));
    if (!found->next) co_return Result<void>();
    from = *found->next;
  }
}

Task<Result<void>> File::clear(uint64_t offset, uint64_t size) {
  FF_CO_TRY(check_write(offset, size));
  auto looking = look();
  FF_CO_TRY(const meta::Inode inode, co_await std::move(looking));
  behind_.forget(offset, offset + size);
  const uint64_t end = std::min(offset + size, inode.length);
  if (offset >= end) co_return Result<void>();
  writing_now();
  CancelScope scope(of_.loop(), co_await current_cancel(), INT64_MAX, {});
  Together all(of_.loop());
  for (const auto chain : chains_) all.add(under(clear_on(chain, offset, end), scope.cancel()));
  auto clearing = all.done();
  const auto cleared = co_await std::move(clearing);
  writing_now();
  FF_CO_TRY(cleared);
  auto publishing = publish();
  co_return co_await std::move(publishing);
}

Task<Result<uint64_t>> File::append(ByteView from) {
  if (!session_) co_return not_for_writing(seen_.inode);
  if (from.empty()) co_return seen_.inode.length;
  // Others cannot be told of an end that nothing could be written to.
  if (behind_.keeps()) {
    auto trying = behind_.flush(WriteBehind::Again::if_due);
    FF_CO_TRY(co_await std::move(trying));
    if (auto error = behind_.trouble()) co_return std::move(*error);
  }
  auto publishing = publish();
  FF_CO_TRY(co_await std::move(publishing));
  auto having = capability();
  FF_CO_TRY(std::string right, co_await std::move(having));
  auto appending = of_.names_.append(seen_.inode.id, from.size(), std::move(right));
  FF_CO_TRY(auto seen, co_await std::move(appending));
  const uint64_t offset = seen.inode.length - from.size();
  heard(std::move(seen));
  auto writing = write(offset, from);
  FF_CO_TRY(co_await std::move(writing));
  co_return offset;
}

// Others see the length from now on.
Task<Result<void>> File::tell(bool closed) {
  auto having = capability();
  FF_CO_TRY(std::string right, co_await std::move(having));
  const meta::Names::Written written{.end = end_,
                                     .truncations = seen_.inode.truncations,
                                     .mtime_ns = untold_ ? written_ns_ : 0,
                                     .closed = closed};
  const uint64_t told = end_;
  untold_ = false;
  telling_++;
  auto telling = of_.names_.wrote(seen_.inode.id, *session_, written, std::move(right));
  auto seen = co_await std::move(telling);
  telling_--;
  if (!seen) {
    untold_ = true;
    co_return std::move(seen).error();
  }
  if (end_ == told) end_ = 0;
  if (written.mtime_ns != 0) times_told_++;
  heard(std::move(*seen));
  co_return Result<void>();
}

// Of the writes that there were when it began.
Task<Result<void>> File::sync_chain(cluster::ChainId chain, uint64_t count) {
  auto syncing = of_.storage_.sync(chain);
  const auto synced = co_await std::move(syncing);
  if (!synced) co_return with_errno(Error(synced.error()));
  if (state_->unsynced.synced(chain, *synced, count)) co_return Result<void>();
  Error lost = fail(Errc::failed,
                    "inode {}: chain {} has lost writes that were not synced before all of its "
                    "replicas lost power",
                    seen_.inode.id, chain);
  lost.hint = std::string("Write the file anew.");
  lost.sys = EIO;
  of_.report(seen_.inode.id, std::move(lost));
  co_return Result<void>();
}

// Also of what was told before: the file's name, perhaps.
Task<Result<void>> File::tell_durably() {
  if (session_ && !all_told()) {
    auto telling = tell(false);
    FF_CO_TRY(co_await std::move(telling));
  }
  auto syncing = of_.names_.sync();
  co_return co_await std::move(syncing);
}

Task<Result<void>> File::make_durable() {
  auto flushing = behind_.flush(WriteBehind::Again::now);
  FF_CO_TRY(co_await std::move(flushing));
  CancelScope scope(of_.loop(), co_await current_cancel(), INT64_MAX, {});
  Together all(of_.loop());
  const uint64_t count = state_->unsynced.count();
  for (const auto chain : state_->unsynced.chains()) {
    all.add(under(sync_chain(chain, count), scope.cancel()));
  }
  all.add(under(tell_durably(), scope.cancel()));
  auto syncing = all.done();
  co_return co_await std::move(syncing);
}

// Whoever is told of an error is told by this answer: nothing is waited for behind that. What else
// has failed fails again when it is asked for again.
Task<Result<void>> File::sync(ErrorSeq::Cursor& told) {
  auto syncing = make_durable();
  auto synced = co_await std::move(syncing);
  if (!synced && synced.error().code == Errc::interrupted) co_return synced;
  FF_CO_TRY(state_->errors.tell(told));
  if (auto error = behind_.trouble()) co_return std::move(*error);
  co_return synced;
}

Task<Result<void>> File::truncate(uint64_t length) {
  if (!session_) co_return not_for_writing(seen_.inode);
  auto flushing = behind_.flush(WriteBehind::Again::under_way);
  FF_CO_TRY(co_await std::move(flushing));
  cutting(length);
  auto having = capability();
  FF_CO_TRY(std::string right, co_await std::move(having));
  auto truncating = of_.names_.truncate({}, ref(), length, std::move(right));
  FF_CO_TRY(auto seen, co_await std::move(truncating));
  end_ = 0;
  untold_ = false;
  heard(std::move(seen));
  co_return Result<void>();
}

Task<Result<meta::Inode>> File::look() {
  const uint64_t told = times_told_;
  auto publishing = publish();
  FF_CO_TRY(co_await std::move(publishing));
  if (times_told_ != told) co_return seen_.inode;
  auto looking = of_.names_.stat(ref(), false);
  FF_CO_TRY(auto seen, co_await std::move(looking));
  heard(std::move(seen));
  co_return seen_.inode;
}

Task<Result<bool>> File::try_lock(meta::Caller caller) {
  if (lock_) co_return !lock_->lost;
  lock_ = Lock{.owner = of_.names_.new_session(), .caller = std::move(caller)};
  of_.locked_[lock_->owner.number] = weak_from_this();
  auto asking = ask_for_lock();
  auto held = co_await std::move(asking);
  if (held && *held) co_return true;
  of_.locked_.erase(lock_->owner.number);
  lock_.reset();
  co_return held;
}

// Also to keep it. A holder who was too slow takes it for lost, whoever has it now.
Task<Result<bool>> File::ask_for_lock() {
  const int64_t now_ns = of_.loop().now_ns();
  auto asking = of_.names_.lock(lock_->caller, ref(), lock_->owner);
  const auto held = co_await std::move(asking);
  if (!lock_) co_return false;  // given back meanwhile
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
  auto unlocking = of_.names_.unlock(ref(), owner);
  (void)co_await std::move(unlocking);  // it lapses
}

Task<Result<void>> File::close() {
  if (std::exchange(closed_, true)) co_return Result<void>();
  auto unlocking = unlock();
  co_await std::move(unlocking);
  auto flushing = behind_.flush(WriteBehind::Again::if_due);
  Result<void> first = co_await std::move(flushing);
  if (first) first = late_error(told_);
  auto ending = behind_.close();
  co_await std::move(ending);
  if (!session_) co_return first;
  if (all_told()) {
    of_.writers_.erase({seen_.inode.id, session_->number});
    of_.end_session({.inode = seen_.inode.id, .session = *session_});
    co_return first;
  }
  auto telling = tell(true);
  auto told = co_await std::move(telling);
  of_.writers_.erase({seen_.inode.id, session_->number});
  // Who has removed it meanwhile needs no length.
  if (told || told.error().code == Errc::stale) co_return first;
  if (first) first = told;
  of_.report(seen_.inode.id, std::move(told).error());
  co_return first;
}

}  // namespace ff::client
