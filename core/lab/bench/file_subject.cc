// file_subject.cc: passes over a file.
#include "lab/bench/file_subject.h"

#include <utility>

namespace ff::bench {

Task<Result<void>> FileSubject::make() {
  meta::Names::Make how{.kind = meta::Kind::file, .mode = 0600};
  how.rights = meta::kMayRead;
  auto creating = files_.create(caller_, meta::root(), name_, std::move(how));
  FF_CO_TRY(file_, co_await std::move(creating));
  co_return Result<void>();
}

Task<Result<void>> FileSubject::remove() {
  if (file_ == nullptr) co_return Result<void>();
  auto closing = file_->close();
  auto closed = co_await std::move(closing);
  auto removing = files_.names().unlink(caller_, meta::root(), name_, std::nullopt);
  FF_CO_TRY(co_await std::move(removing));
  file_.reset();
  co_return closed;
}

Task<Result<void>> FileSubject::write(uint64_t index, ByteView from) {
  auto writing = file_->write(index * kChunkBytes, from);
  co_return co_await std::move(writing);
}

Task<Result<void>> FileSubject::read(uint64_t index, uint64_t offset, ByteSpan into) {
  auto reading = file_->read(index * kChunkBytes + offset, into);
  FF_CO_TRY(const uint64_t got, co_await std::move(reading));
  if (got != into.size()) co_return fail(Errc::corrupt, "{} bytes of {}", got, into.size());
  co_return Result<void>();
}

Task<Result<void>> FileSubject::sync() {
  auto syncing = file_->sync();
  co_return co_await std::move(syncing);
}

Task<Result<void>> FileSubject::read_batch(std::vector<Small> reads) {
  std::vector<client::File::Extent> extents;
  for (const Small& one : reads)
    extents.push_back({one.index * kChunkBytes + one.offset, one.into});
  auto reading = file_->read_many(std::move(extents));
  const auto got = co_await std::move(reading);
  for (size_t i = 0; i < got.size(); i++) {
    if (!got[i]) co_return got[i].error();
    if (*got[i] != reads[i].into.size()) co_return fail(Errc::corrupt, "{} bytes", *got[i]);
  }
  co_return Result<void>();
}

}  // namespace ff::bench
