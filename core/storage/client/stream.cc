// stream.cc: several buffers in flight, in order.
#include "storage/client/stream.h"

#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "storage/client/tree_copier.h"

namespace ff::client {

namespace {

constexpr size_t kAhead = 8;  // buffers of read-ahead
constexpr int64_t kStreamCleanNs = 500 * kMillisecond;

Task<Result<void>> write_buffer(OpenFile& to, uint64_t offset, TransferMemory::Buffer buffer,
                                uint64_t size, Progress& progress) {
  FF_CO_TRY(co_await to.write(offset, buffer.span(), size));
  progress.done += size;
  co_return Result<void>();
}

Task<Result<uint64_t>> fill(TransferMemory& memory, OpenFile& to, ReadSome read,
                            Progress& progress) {
  CancellationToken* const cancel = co_await current_cancellation();
  FailFastGroup group(memory.loop(), cancel);
  uint64_t offset = 0;
  for (bool more = true; more && group.ok();) {
    auto bytes = co_await read(to.unit());
    if (!bytes) {
      group.cancel_with(std::move(bytes).error());
      break;
    }
    more = bytes->size() == to.unit();
    if (bytes->empty()) break;
    auto buffer = co_await memory.allocate(to.unit());
    if (!buffer) {
      group.cancel_with(std::move(buffer).error());
      break;
    }
    std::memcpy(buffer->span().data(), bytes->data(), bytes->size());
    group.spawn(write_buffer(to, offset, std::move(*buffer), bytes->size(), progress));
    offset += bytes->size();
  }
  FF_CO_TRY(co_await group.join());
  FF_CO_TRY(co_await to.finish(offset));
  co_return offset;
}

// A buffer that is being read.
struct Ahead {
  explicit Ahead(Loop& loop) : there(loop) {}
  Event there;
  TransferMemory::Buffer buffer;
  uint64_t size = 0;
};

Task<Result<void>> read_ahead(OpenFile& from, uint64_t offset, std::shared_ptr<Ahead> ahead) {
  auto got = co_await from.read(offset, ahead->buffer.span());
  if (got) ahead->size = *got;
  ahead->there.set();
  if (!got) co_return std::move(got).error();
  co_return Result<void>();
}

}  // namespace

Task<Result<uint64_t>> stream_to_file(TransferMemory& memory, FileTree& to, std::string path,
                                      uint32_t mode, ReadSome read, Progress& progress) {
  const std::string part = part_path(path);
  FF_CO_TRY(const auto file, co_await to.create(part, mode, false));
  auto stored = co_await fill(memory, *file, std::move(read), progress);
  const auto id = file->id();
  if (stored && !id) stored = id.error();
  auto closed = co_await file->close();
  if (stored && !closed) stored = std::move(closed).error();
  if (stored) {
    auto published = co_await rename_part(to, part, *id, path);
    if (!published) stored = std::move(published).error();
  }
  if (!stored && stored.error().code != Errc::stale) {
    const int64_t until_ns = memory.loop().now_ns() + kStreamCleanNs;
    (void)co_await with_deadline(memory.loop(), until_ns, "cleaning up", to.remove(part))
        .shielded();
  }
  co_return stored;
}

Task<Result<uint64_t>> file_to_stream(TransferMemory& memory, OpenFile& from, WriteAll write,
                                      Progress& progress) {
  CancellationToken* const cancel = co_await current_cancellation();
  FailFastGroup group(memory.loop(), cancel);
  std::deque<std::shared_ptr<Ahead>> ahead;
  uint64_t next = 0, given = 0;
  for (bool more = true; more && group.ok();) {
    while (ahead.size() < kAhead && group.ok()) {
      auto buffer = co_await memory.allocate(from.unit());
      if (!buffer) {
        group.cancel_with(std::move(buffer).error());
        break;
      }
      ahead.push_back(std::make_shared<Ahead>(memory.loop()));
      ahead.back()->buffer = std::move(*buffer);
      group.spawn(read_ahead(from, next, ahead.back()));
      next += from.unit();
    }
    if (!group.ok()) break;
    const auto first = std::move(ahead.front());
    ahead.pop_front();
    auto waited = co_await wait_for(first->there);
    if (!waited) group.cancel_with(std::move(waited).error());
    if (!group.ok() || first->size == 0) break;
    more = first->size == from.unit();
    auto written = co_await write(std::string(as_text(first->buffer.span().first(first->size))));
    if (!written) group.cancel_with(std::move(written).error());
    given += first->size;
    progress.done += first->size;
  }
  FF_CO_TRY(co_await group.join());
  co_return given;
}

}  // namespace ff::client
