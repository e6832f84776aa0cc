// files_load_writers.cc: random calls on two open file descriptions of one file.
#include "lab/scenario/files_load_writers.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "platform/base/clock.h"

namespace ff::scenario::files_parts {

namespace {

constexpr uint64_t kBytes = 256 * kKiB;  // four chunks
constexpr uint64_t kPieceMax = 40 * kKiB;
constexpr int kCalls = 16;
constexpr int64_t kWritersPauseNs = 2 * kSecond;

class SharedFileWriter {
 public:
  SharedFileWriter(client::FileSystem& files, Rng& rng, FilesOracle& oracle,
                   std::shared_ptr<client::File> file)
      : files_(files), rng_(rng), oracle_(oracle), file_(std::move(file)) {
    for (Opener& opener : openers_) opener.cursor = file_->cursor();
  }

  Task<void> run() {
    for (int i = 0; i < kCalls; i++) {
      co_await call(openers_[rng_.below(openers_.size())]);
    }
    for (Opener& opener : openers_) {
      co_await sync(opener);
    }
    (void)co_await file_->close();
  }

 private:
  // An open file description.
  struct Opener {
    client::ErrorSeq::Cursor cursor = {};
    bool saw_error = false;  // after an error any content is allowed
  };

  Task<void> call(Opener& opener) {
    switch (rng_.below(10)) {
      case 0:
      case 1:
      case 2:
      case 3: return write(opener);
      case 4:
      case 5: return sync(opener);
      case 6: return close_dup(opener);
      case 7: return other_calls();
      default: return wait();
    }
  }

  Task<void> write(Opener& opener) {
    const uint64_t size = 1 + rng_.below(kPieceMax);
    const uint64_t offset = rng_.below(kBytes - size);
    const std::string piece(size, static_cast<char>('a' + rng_.below(26)));
    const auto written = co_await file_->write_behind(offset, as_bytes(piece));
    if (!written) opener.saw_error = true;
    if (!written) co_return;
    if (wanted_.size() < offset + size) wanted_.resize(offset + size, '\0');
    wanted_.replace(offset, size, piece);
  }

  Task<void> sync(Opener& opener) {
    const std::string wanted = wanted_;
    const auto synced = co_await file_->sync(opener.cursor);
    oracle_.changes++;
    if (!synced) opener.saw_error = true;
    if (!synced || opener.saw_error) co_return;
    co_await check(wanted);
  }

  // Reads through another open file description.
  Task<void> check(const std::string& wanted) {
    auto opening = files_.open({}, file_->ref(), meta::kMayRead);
    const auto reader = co_await std::move(opening);
    if (!reader) co_return;
    std::string bytes(wanted.size(), 'x');
    auto reading = (*reader)->read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
    const auto got = co_await std::move(reading);
    (void)co_await (*reader)->close();
    oracle_.reads++;
    if (!got) co_return;
    bytes.resize(*got);
    if (bytes == wanted) co_return;
    const auto differ = std::ranges::mismatch(bytes, wanted).in1 - bytes.begin();
    oracle_.report_violation(
        fmt::format("inode {}: fsync succeeded, but {} of {} bytes are readable, and they differ "
                    "from the written ones from byte {} on",
                    file_->inode().id, bytes.size(), wanted.size(), differ));
  }

  Task<void> close_dup(Opener& opener) { (void)co_await file_->flush_on_close(opener.cursor); }

  Task<void> other_calls() {
    std::array<std::byte, 100> memory;
    (void)co_await file_->read(rng_.below(kBytes), memory);
    (void)co_await file_->refresh();
  }

  Task<void> wait() {
    const auto waited =
        co_await sleep_for(files_.loop(), static_cast<int64_t>(rng_.below(kWritersPauseNs)));
    (void)waited;
  }

  client::FileSystem& files_;
  Rng& rng_;
  FilesOracle& oracle_;
  const std::shared_ptr<client::File> file_;
  std::array<Opener, 2> openers_ = {};
  std::string wanted_;
};

}  // namespace

Task<void> write_together(client::FileSystem& files, Rng& rng, FilesOracle& oracle) {
  const std::string name = fmt::format("together{}", oracle.next_together++);
  const meta::InodeRef dir{.id = oracle.data_dir.id};
  auto creating = files.create({}, dir, name, {.kind = meta::InodeType::file, .mode = 0644});
  const auto made = co_await std::move(creating);
  if (!made) co_return;
  SharedFileWriter writer(files, rng, oracle, *made);
  co_await writer.run();
  auto removing = files.metadata().unlink({}, dir, name, std::nullopt);
  (void)co_await std::move(removing);
}

}  // namespace ff::scenario::files_parts
