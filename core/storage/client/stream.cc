// stream.cc: stretches in their order, several of them under way.
#include "storage/client/stream.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "storage/client/copy.h"

namespace ff::client {

namespace {

constexpr size_t kAhead = 8;  // stretches of a file that are read before they are wanted
constexpr int64_t kStreamCleanNs = 500 * kMillisecond;

Task<Result<void>> write_stretch(OpenFile& to, uint64_t offset, TransferMemory::Stretch stretch,
                                 uint64_t size, Progress& progress) {
  auto writing = to.write(offset, stretch.span(), size);
  FF_CO_TRY(co_await std::move(writing));
  progress.done += size;
  co_return Result<void>();
}

Task<Result<uint64_t>> fill(TransferMemory& memory, OpenFile& to, ReadSome read,
                            Progress& progress) {
  Cancel* const cancel = co_await current_cancel();
  Group group(memory.loop(), cancel);
  uint64_t offset = 0;
  for (bool more = true; more && group.ok();) {
    auto reading = read(to.unit());
    auto bytes = co_await std::move(reading);
    if (!bytes) {
      group.failed(std::move(bytes).error());
      break;
    }
    more = bytes->size() == to.unit();
    if (bytes->empty()) break;
    auto taking = memory.take(to.unit());
    auto stretch = co_await std::move(taking);
    if (!stretch) {
      group.failed(std::move(stretch).error());
      break;
    }
    std::ranges::copy(as_bytes(*bytes), stretch->span().begin());
    group.spawn(write_stretch(to, offset, std::move(*stretch), bytes->size(), progress));
    offset += bytes->size();
  }
  auto ending = group.end();
  FF_CO_TRY(co_await std::move(ending));
  auto finishing = to.finish(offset);
  FF_CO_TRY(co_await std::move(finishing));
  co_return offset;
}

// A stretch that is being read.
struct Ahead {
  explicit Ahead(Loop& loop) : there(loop) {}
  Event there;
  TransferMemory::Stretch stretch;
  uint64_t size = 0;
};

Task<Result<void>> read_ahead(OpenFile& from, uint64_t offset, std::shared_ptr<Ahead> ahead) {
  auto reading = from.read(offset, ahead->stretch.span());
  auto got = co_await std::move(reading);
  if (got) ahead->size = *got;
  ahead->there.set();
  if (!got) co_return std::move(got).error();
  co_return Result<void>();
}

}  // namespace

Task<Result<uint64_t>> store_stream(TransferMemory& memory, Tree& to, std::string path,
                                    uint32_t mode, ReadSome read, Progress& progress) {
  const std::string part = part_path(path);
  auto creating = to.create(part, mode, false);
  FF_CO_TRY(const auto file, co_await std::move(creating));
  auto filling = fill(memory, *file, std::move(read), progress);
  auto stored = co_await std::move(filling);
  const auto id = file->id();
  if (stored && !id) stored = id.error();
  auto closing = file->close();
  auto closed = co_await std::move(closing);
  if (stored && !closed) stored = std::move(closed).error();
  if (stored) {
    auto publishing = publish(to, part, *id, path);
    auto published = co_await std::move(publishing);
    if (!published) stored = std::move(published).error();
  }
  if (!stored && stored.error().code != Errc::stale) {
    const int64_t until_ns = memory.loop().now_ns() + kStreamCleanNs;
    auto removing = with_deadline(memory.loop(), until_ns, "cleaning up", to.remove(part));
    (void)co_await std::move(removing).shielded();
  }
  co_return stored;
}

Task<Result<uint64_t>> give_stream(TransferMemory& memory, OpenFile& from, WriteAll write,
                                   Progress& progress) {
  Cancel* const cancel = co_await current_cancel();
  Group group(memory.loop(), cancel);
  std::deque<std::shared_ptr<Ahead>> ahead;
  uint64_t next = 0, given = 0;
  for (bool more = true; more && group.ok();) {
    while (ahead.size() < kAhead && group.ok()) {
      auto taking = memory.take(from.unit());
      auto stretch = co_await std::move(taking);
      if (!stretch) {
        group.failed(std::move(stretch).error());
        break;
      }
      ahead.push_back(std::make_shared<Ahead>(memory.loop()));
      ahead.back()->stretch = std::move(*stretch);
      group.spawn(read_ahead(from, next, ahead.back()));
      next += from.unit();
    }
    if (!group.ok()) break;
    const auto first = std::move(ahead.front());
    ahead.pop_front();
    auto waiting = wait_for(first->there);
    auto waited = co_await std::move(waiting);
    if (!waited) group.failed(std::move(waited).error());
    if (!group.ok() || first->size == 0) break;
    more = first->size == from.unit();
    auto writing = write(std::string(as_text(first->stretch.span().first(first->size))));
    auto written = co_await std::move(writing);
    if (!written) group.failed(std::move(written).error());
    given += first->size;
    progress.done += first->size;
  }
  auto ending = group.end();
  FF_CO_TRY(co_await std::move(ending));
  co_return given;
}

}  // namespace ff::client
