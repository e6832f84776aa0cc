// Pieces of a body that are received, hashed in threads and stored at the same time: their order,
// how many there are at once, and errors in the middle.
#include "storage/s3/object_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "storage/s3/hash.h"

namespace ff::s3 {
namespace {

constexpr size_t kPiece = 64 * kKiB;

std::string random_text(uint64_t seed, size_t size) {
  SeededRng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.next());
  return text;
}

TransferPieces make_pieces(chain::BufferPool& pool, size_t count) {
  TransferPieces pieces;
  pieces.bytes = kPiece;
  for (size_t i = 0; i < count; i++) pieces.buffers.push_back(pool.allocate(kPiece));
  return pieces;
}

// A body with its SHA-256, which may be wrong, or which breaks off.
class TextSource final : public ObjectSource {
 public:
  explicit TextSource(std::string text) : text_(std::move(text)) {}

  void break_off_at(size_t offset) { broken_ = offset; }
  void expect_sha256(std::string digest) { expected_ = std::move(digest); }
  // Without a size, and with reads that bring less than was asked for.
  void cut(size_t bytes) { cut_ = bytes; }
  size_t reads() const { return reads_; }

  std::optional<uint64_t> size() const override {
    if (cut_ < SIZE_MAX) return std::nullopt;
    return text_.size();
  }
  Task<Result<size_t>> read(ByteSpan into) override {
    if (read_ >= broken_) co_return fail(Errc::unreachable, "the client has left");
    reads_++;
    const size_t got = std::min({into.size(), text_.size() - read_, cut_});
    std::copy_n(as_bytes(text_).data() + read_, got, into.data());
    read_ += got;
    co_return got;
  }
  std::vector<HashJob> take_jobs(ByteView bytes) override {
    std::vector<HashJob> jobs;
    jobs.push_back({.hasher = &hasher_, .bytes = bytes});
    return jobs;
  }
  Result<void> check() override {
    const std::string digest = hasher_.finish();
    if (expected_.empty() || digest == expected_) return {};
    return fail(Errc::corrupt, "another digest");
  }

 private:
  const std::string text_;
  std::string expected_;
  size_t read_ = 0, reads_ = 0;
  size_t broken_ = SIZE_MAX, cut_ = SIZE_MAX;
  Hasher hasher_{HashKind::sha256};
};

class ObjectWriterTest : public testing::Test {
 protected:
  Task<Result<void>> keep(uint64_t offset, ByteView bytes) {
    running_++;
    most_ = std::max(most_, running_);
    if (held_ != nullptr) (void)co_await held_->wait();
    if (stored_.size() < offset + bytes.size()) stored_.resize(offset + bytes.size());
    std::copy_n(as_text(bytes).data(), bytes.size(), stored_.data() + offset);
    running_--;
    if (offset >= full_at_) co_return fail(Errc::failed, "no room");
    co_return Result<void>();
  }
  ObjectWriter::Store store() {
    return [this](uint64_t offset, ByteView bytes) { return keep(offset, bytes); };
  }
  Result<std::string> write(ObjectSource& source, size_t pieces = 4) {
    const TransferPieces memory = make_pieces(pool_, pieces);
    ObjectWriter writer(loop_, threads_, source, memory, store());
    auto done = run_task(loop_, writer.run(true));
    EXPECT_EQ(running_, 0U) << "something still stores";
    if (!done) return std::move(done).error();
    return writer.md5();
  }
  static std::string md5_of_text(std::string_view text) {
    return hex(as_bytes(hash_of(HashKind::md5, text)));
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  HashThreads threads_{2};
  chain::BufferPool pool_;
  std::string stored_;
  size_t running_ = 0, most_ = 0;
  Event* held_ = nullptr;  // what stores waits for
  uint64_t full_at_ = UINT64_MAX;
};

TEST_F(ObjectWriterTest, AllBytesInOrder) {
  for (const size_t size : {size_t{0}, size_t{1}, kPiece, 2 * kPiece + 1, 40 * kPiece + 17}) {
    for (const size_t pieces : {1, 2, 4}) {
      stored_.clear();
      const std::string text = random_text(size, size);
      TextSource source(text);
      source.expect_sha256(hash_of(HashKind::sha256, text));
      const auto md5 = write(source, pieces);
      ASSERT_TRUE(md5) << md5.error().message;
      EXPECT_EQ(*md5, md5_of_text(text)) << size << " " << pieces;
      EXPECT_EQ(stored_, text) << size << " " << pieces;
    }
  }
}

TEST_F(ObjectWriterTest, ShortReadsAndUnknownSize) {
  const std::string text = random_text(1, 5 * kPiece + 3);
  TextSource source(text);
  source.cut(1000);
  const auto md5 = write(source, 3);
  ASSERT_TRUE(md5) << md5.error().message;
  EXPECT_EQ(*md5, md5_of_text(text));
  EXPECT_EQ(stored_, text);
}

// While nothing can be stored, as many pieces are received as there is memory for, and no more.
TEST_F(ObjectWriterTest, ReceivesWhileItStores) {
  constexpr size_t kPieces = 4;
  TextSource source(random_text(2, 20 * kPiece));
  Event held(loop_);
  held_ = &held;
  const TransferPieces memory = make_pieces(pool_, kPieces);
  ObjectWriter writer(loop_, threads_, source, memory, store());
  const auto release = [&]() -> Task<Result<void>> {
    while (source.reads() < kPieces || running_ < kPieces) {
      YieldWait yield(loop_);
      FF_CO_TRY(co_await yield);
    }
    for (int i = 0; i < 1000; i++) {
      YieldWait yield(loop_);
      FF_CO_TRY(co_await yield);
    }
    EXPECT_EQ(source.reads(), kPieces);
    held_ = nullptr;
    held.set();
    co_return Result<void>();
  };
  TaskGroup releasing(loop_);
  releasing.add(release());
  ASSERT_TRUE(run_task(loop_, writer.run(true)));
  EXPECT_EQ(most_, kPieces);
  EXPECT_EQ(stored_.size(), 20 * kPiece);
}

TEST_F(ObjectWriterTest, EndsWhenAPieceCannotBeStored) {
  TextSource source(random_text(3, 100 * kPiece));
  full_at_ = 5 * kPiece;
  const auto md5 = write(source);
  ASSERT_FALSE(md5);
  EXPECT_EQ(md5.error().code, Errc::failed);
  EXPECT_LT(source.reads(), 20U) << "it goes on to receive what it cannot store";
}

TEST_F(ObjectWriterTest, EndsWhenTheClientLeaves) {
  TextSource source(random_text(4, 20 * kPiece));
  source.break_off_at(7 * kPiece);
  const auto md5 = write(source);
  ASSERT_FALSE(md5);
  EXPECT_EQ(md5.error().code, Errc::unreachable);
}

TEST_F(ObjectWriterTest, ChecksDigestsAtTheEnd) {
  TextSource source(random_text(5, 3 * kPiece));
  source.expect_sha256(hash_of(HashKind::sha256, "other bytes"));
  const auto md5 = write(source);
  ASSERT_FALSE(md5);
  EXPECT_EQ(md5.error().code, Errc::corrupt);
}

// The MD5s of several bodies are computed together.
TEST_F(ObjectWriterTest, ManyBodiesAtOnce) {
  constexpr size_t kBodies = 24;
  struct Transfer {
    Transfer(Loop& loop, HashThreads& threads, chain::BufferPool& pool, size_t i)
        : text(random_text(i, (3 + i % 5) * kPiece + 31 * i)),
          source(text),
          memory(make_pieces(pool, 1 + i % 3)),
          writer(loop, threads, source, memory,
                 [](uint64_t, ByteView) -> Task<Result<void>> { co_return Result<void>(); }) {}
    const std::string text;
    TextSource source;
    const TransferPieces memory;
    ObjectWriter writer;
  };
  std::vector<std::unique_ptr<Transfer>> transfers;
  const auto all = [&]() -> Task<Result<void>> {
    TaskGroup group(loop_);
    for (const auto& one : transfers) group.add(one->writer.run(true));
    co_return co_await group.join();
  };
  for (size_t i = 0; i < kBodies; i++) {
    transfers.push_back(std::make_unique<Transfer>(loop_, threads_, pool_, i));
  }
  ASSERT_TRUE(run_task(loop_, all()));
  for (const auto& one : transfers) EXPECT_EQ(one->writer.md5(), md5_of_text(one->text));
}

// A task that is destroyed leaves nothing that still uses its memory.
TEST_F(ObjectWriterTest, DestroyedInTheMiddle) {
  const std::string text = random_text(6, 64 * kPiece);
  for (int i = 0; i < 8; i++) {
    Hasher md5(HashKind::md5), sha256(HashKind::sha256);
    std::vector<HashJob> jobs;
    jobs.push_back({.hasher = &md5, .bytes = as_bytes(text)});
    jobs.push_back({.hasher = &sha256, .bytes = as_bytes(text)});
    const auto hash = [&](std::vector<HashJob> all) -> Task<void> {
      co_await threads_.run(loop_, std::move(all));
    };
    const auto turn = [&]() -> Task<void> {
      YieldWait yield(loop_);
      (void)co_await yield;
    };
    {
      Gate gate(loop_);
      gate.spawn(hash(std::move(jobs)));
      run_task(loop_, turn());
    }
    EXPECT_EQ(hex(as_bytes(md5.finish())), md5_of_text(text)) << "a thread still works";
  }
}

}  // namespace
}  // namespace ff::s3
