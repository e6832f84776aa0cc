// files_load_writers.cc: calls of two open file descriptions, by dice.
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

class Together {
 public:
  Together(client::FileSystem& files, Rng& rng, FilesTruth& truth,
           std::shared_ptr<client::File> file)
      : files_(files), rng_(rng), truth_(truth), file_(std::move(file)) {
    for (Opener& opener : openers_) opener.cursor = file_->cursor();
  }

  Task<void> run() {
    for (int i = 0; i < kCalls; i++) {
      auto calling = call(openers_[rng_.below(openers_.size())]);
      co_await std::move(calling);
    }
    for (Opener& opener : openers_) {
      auto syncing = sync(opener);
      co_await std::move(syncing);
    }
    auto closing = file_->close();
    (void)co_await std::move(closing);
  }

 private:
  // An open file description.
  struct Opener {
    client::ErrorSeq::Cursor cursor = {};
    bool told = false;  // of an error: it has to expect anything
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
    auto writing = file_->write_behind(offset, as_bytes(piece));
    const auto written = co_await std::move(writing);
    if (!written) opener.told = true;
    if (!written) co_return;
    if (wanted_.size() < offset + size) wanted_.resize(offset + size, '\0');
    wanted_.replace(offset, size, piece);
  }

  Task<void> sync(Opener& opener) {
    const std::string wanted = wanted_;
    auto syncing = file_->sync(opener.cursor);
    const auto synced = co_await std::move(syncing);
    truth_.changes++;
    if (!synced) opener.told = true;
    if (!synced || opener.told) co_return;
    auto checking = check(wanted);
    co_await std::move(checking);
  }

  // As another program of the machine finds it.
  Task<void> check(const std::string& wanted) {
    auto opening = files_.open({}, file_->ref(), meta::kMayRead);
    const auto reader = co_await std::move(opening);
    if (!reader) co_return;
    std::string bytes(wanted.size(), 'x');
    auto reading = (*reader)->read(0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
    const auto got = co_await std::move(reading);
    auto closing = (*reader)->close();
    (void)co_await std::move(closing);
    truth_.reads++;
    if (!got) co_return;
    bytes.resize(*got);
    if (bytes == wanted) co_return;
    const auto differ = std::ranges::mismatch(bytes, wanted).in1 - bytes.begin();
    truth_.broken(
        fmt::format("inode {}: an fsync told of no error, and {} of {} bytes are there, "
                    "from byte {} on not those that were written",
                    file_->inode().id, bytes.size(), wanted.size(), differ));
  }

  Task<void> close_dup(Opener& opener) {
    auto publishing = file_->publish_of(opener.cursor);
    (void)co_await std::move(publishing);
  }

  Task<void> other_calls() {
    std::array<std::byte, 100> memory;
    auto reading = file_->read(rng_.below(kBytes), memory);
    (void)co_await std::move(reading);
    auto looking = file_->look();
    (void)co_await std::move(looking);
  }

  Task<void> wait() {
    const auto waited =
        co_await after(files_.loop(), static_cast<int64_t>(rng_.below(kWritersPauseNs)));
    (void)waited;
  }

  client::FileSystem& files_;
  Rng& rng_;
  FilesTruth& truth_;
  const std::shared_ptr<client::File> file_;
  std::array<Opener, 2> openers_ = {};
  std::string wanted_;
};

}  // namespace

Task<void> write_together(client::FileSystem& files, Rng& rng, FilesTruth& truth) {
  const std::string name = fmt::format("together{}", truth.next_together++);
  const meta::Ref dir{.id = truth.data_dir.id};
  auto creating = files.create({}, dir, name, {.kind = meta::Kind::file, .mode = 0644});
  const auto made = co_await std::move(creating);
  if (!made) co_return;
  Together together(files, rng, truth, *made);
  auto running = together.run();
  co_await std::move(running);
  auto removing = files.names().unlink({}, dir, name, std::nullopt);
  (void)co_await std::move(removing);
}

}  // namespace ff::scenario::files_parts
