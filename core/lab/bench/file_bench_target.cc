// file_bench_target.cc: reads and writes of the benchmark's file.
#include "lab/bench/file_bench_target.h"

#include <utility>

namespace ff::bench {

Task<Result<void>> FileBenchTarget::make() {
  meta::Namespace::CreateOptions how{.kind = meta::InodeType::file, .mode = 0600};
  how.rights = meta::kMayRead;
  FF_CO_TRY(file_, co_await files_.create(caller_, meta::root(), name_, std::move(how)));
  co_return Result<void>();
}

Task<Result<void>> FileBenchTarget::remove() {
  if (file_ == nullptr) co_return Result<void>();
  auto closed = co_await file_->close();
  FF_CO_TRY(co_await files_.metadata().unlink(caller_, meta::root(), name_, std::nullopt));
  file_.reset();
  co_return closed;
}

Task<Result<void>> FileBenchTarget::write(uint64_t index, ByteView from) {
  co_return co_await file_->write(index * kChunkBytes, from);
}

Task<Result<void>> FileBenchTarget::read(uint64_t index, uint64_t offset, ByteSpan into) {
  FF_CO_TRY(const uint64_t got, co_await file_->read(index * kChunkBytes + offset, into));
  if (got != into.size()) co_return fail(Errc::corrupt, "{} bytes of {}", got, into.size());
  co_return Result<void>();
}

Task<Result<void>> FileBenchTarget::sync() { co_return co_await file_->sync(); }

Task<Result<void>> FileBenchTarget::read_batch(std::vector<Small> reads) {
  std::vector<client::File::Extent> extents;
  for (const Small& one : reads)
    extents.push_back({one.index * kChunkBytes + one.offset, one.into});
  const auto got = co_await file_->read_many(std::move(extents));
  for (size_t i = 0; i < got.size(); i++) {
    if (!got[i]) co_return got[i].error();
    if (*got[i] != reads[i].into.size()) co_return fail(Errc::corrupt, "{} bytes", *got[i]);
  }
  co_return Result<void>();
}

}  // namespace ff::bench
