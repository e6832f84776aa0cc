// Locks of files on every engine: one holder at a time, who keeps it while he asks for it and loses
// it by and by when he does not.
#include <cerrno>

#include "storage/meta/lock_watch.h"
#include "storage/meta/names_world.h"
#include "storage/meta/records.h"
#include "storage/meta/service.h"

namespace ff::meta {
namespace {

constexpr SessionId kFirst{.client = 1, .number = 1};
constexpr SessionId kOther{.client = 2, .number = 1};

class LocksTest : public testing::TestWithParam<kv::EngineKind>, protected NamesWorld {
 protected:
  LocksTest() : NamesWorld(GetParam()), file_(file(kRootUser, kRoot, "lock", 0666)->id) {}

  // 1: held, 0: another has it, -1: an error.
  int lock(SessionId owner, const Caller& who = kRootUser) {
    const auto held = run(names().lock(who, file_, owner));
    return held ? static_cast<int>(*held) : -1;
  }
  bool look() { return run(watch_.look()).ok(); }

  Metrics metrics_;
  LockWatch watch_{engine(), loop(), metrics_};
  const InodeId file_;
};
INSTANTIATE_TEST_SUITE_P(Engines, LocksTest, testing::ValuesIn(kv::engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(LocksTest, OneHolderAtATime) {
  EXPECT_EQ(lock(kFirst), 1);
  EXPECT_EQ(lock(kFirst), 1);
  EXPECT_EQ(lock(kOther), 0);
  EXPECT_EQ(lock({.client = 1, .number = 2}), 0);  // another open file of the same client
  ASSERT_TRUE(run(names().unlock(file_, kOther)).ok());
  EXPECT_EQ(lock(kOther), 0);
  ASSERT_TRUE(run(names().unlock(file_, kFirst)).ok());
  EXPECT_EQ(lock(kOther), 1);
  EXPECT_EQ(lock(kFirst), 0);
}

TEST_P(LocksTest, WhoMayNeitherReadNorWriteMayNotLock) {
  ASSERT_TRUE(change(kRootUser, file_, {.mode = 0600}).ok());
  EXPECT_EQ(sys_of(run(names().lock(kAlice, file_, kFirst))), EACCES);
  ASSERT_TRUE(change(kRootUser, file_, {.mode = 0602}).ok());
  EXPECT_EQ(lock(kFirst, kAlice), 1);
  EXPECT_EQ(sys_of(run(names().lock(kRootUser, 99'999, kFirst))), ESTALE);
}

TEST_P(LocksTest, ADeadHolderLosesIt) {
  ASSERT_EQ(lock(kFirst), 1);
  ASSERT_TRUE(look());
  clock().skip(kLockLapseNs - kSecond);
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kOther), 0);
  clock().skip(2 * kSecond);
  EXPECT_EQ(lock(kOther), 0);  // nobody has looked
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kOther), 1);
}

TEST_P(LocksTest, ALivingHolderKeepsIt) {
  for (int64_t passed = 0; passed < 3 * kLockLapseNs; passed += kLockRenewNs) {
    ASSERT_EQ(lock(kFirst), 1);
    ASSERT_TRUE(look());
    clock().skip(kLockRenewNs);
  }
  EXPECT_EQ(lock(kOther), 0);
}

// Whoever looks for the first time, or again after another did, measures from then on.
TEST_P(LocksTest, OnlyWhatWasSeenCounts) {
  ASSERT_EQ(lock(kFirst), 1);
  ASSERT_TRUE(look());
  clock().skip(2 * kLockLapseNs);
  watch_.forget();
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kOther), 0);
  // Given back and taken by another meanwhile: his is not as old.
  clock().skip(kLockLapseNs / 2);
  ASSERT_TRUE(run(names().unlock(file_, kFirst)).ok());
  ASSERT_EQ(lock(kOther), 1);
  clock().skip(kLockLapseNs / 2);
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kFirst), 0);
}

TEST_P(LocksTest, ItGoesWithTheFile) {
  ASSERT_EQ(lock(kFirst), 1);
  size_t records = 1;
  ASSERT_TRUE(run(engine().run(
                      [&](kv::Txn& txn) -> Task<Result<void>> {
                        auto reading = read_inode(txn, file_);
                        FF_CO_TRY(Inode inode, co_await std::move(reading));
                        auto erasing = erase_inode(txn, std::move(inode));
                        co_return co_await std::move(erasing);
                      },
                      loop().now_ns() + kSecond))
                  .ok());
  ASSERT_TRUE(run(engine().view(
                      [&](kv::Txn& txn) -> Task<Result<void>> {
                        auto ranging = txn.range(keys::all(keys::kLock, file_, 1), {});
                        FF_CO_TRY(const auto found, co_await std::move(ranging));
                        records = found.size();
                        co_return Result<void>();
                      },
                      loop().now_ns() + kSecond))
                  .ok());
  EXPECT_EQ(records, 0u);
}

}  // namespace
}  // namespace ff::meta
