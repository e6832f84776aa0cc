// object_writer.cc: the order of pieces, and the end of all that uses them.
#include "storage/s3/object_writer.h"

#include <array>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::s3 {

ObjectWriter::ObjectWriter(Loop& loop, HashThreads& threads, ObjectSource& source,
                           const TransferPieces& pieces, Store store)
    : loop_(loop),
      threads_(threads),
      source_(source),
      pieces_(pieces),
      store_(std::move(store)),
      turn_(loop) {
  for (size_t i = 0; i < pieces.count(); i++) users_.push_back(std::make_unique<TaskGroup>(loop));
}

Task<Result<void>> ObjectWriter::store(uint64_t offset, ByteView bytes) {
  auto stored = co_await store_(offset, bytes);
  if (!stored && stored_) stored_ = std::move(stored);
  co_return Result<void>();
}

// Pieces are hashed in their order: a digest is of bytes one after the other.
Task<Result<void>> ObjectWriter::hash(uint64_t number, std::vector<HashJob> jobs) {
  while (hashed_ < number) (void)co_await turn_.wait();
  co_await threads_.run(loop_, std::move(jobs));
  hashed_++;
  turn_.set();
  turn_.reset();
  co_return Result<void>();
}

std::vector<HashJob> ObjectWriter::take_jobs(ByteView bytes) {
  std::vector<HashJob> jobs = source_.take_jobs(bytes);
  if (md5_hasher_ && !bytes.empty()) {
    jobs.push_back({.hasher = &*md5_hasher_, .bytes = bytes});
  }
  return jobs;
}

// Ends with the source, with its error, or when a piece could not be stored.
Task<Result<void>> ObjectWriter::receive() {
  std::array<std::byte, 1> behind;  // the known end: no piece needs to be free for it
  const std::optional<uint64_t> size = source_.size();
  uint64_t offset = 0;
  for (;;) {
    TaskGroup& users = *users_[read_ % pieces_.count()];
    const bool at_end = size == offset;
    if (!at_end) FF_CO_TRY(co_await users.join());
    FF_CO_TRY(stored_);
    const ByteSpan piece = at_end ? ByteSpan(behind) : pieces_.piece(read_);
    FF_CO_TRY(const size_t got, co_await source_.read(piece));
    FF_CHECK(!at_end || got == 0);
    const ByteView bytes = ByteView(piece).first(got);
    std::vector<HashJob> jobs = take_jobs(bytes);
    if (got > 0) users.add(store(offset, bytes));
    users.add(hash(read_++, std::move(jobs)));
    if (got == 0) co_return Result<void>();
    offset += got;
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
  }
}

Task<Result<void>> ObjectWriter::run(bool wants_md5) {
  if (wants_md5) md5_hasher_.emplace(HashKind::md5);
  auto received = co_await receive();
  for (const auto& users : users_) (void)co_await users->join();
  FF_CO_TRY(received);
  FF_CO_TRY(stored_);
  FF_CO_TRY(source_.check());
  if (md5_hasher_) md5_ = hex(as_bytes(md5_hasher_->finish()));
  co_return Result<void>();
}

}  // namespace ff::s3
