// File locks on every engine: one owner at a time, who keeps the lock by renewing it and loses it
// otherwise.
#include <cerrno>

#include "storage/meta/lock_reaper.h"
#include "storage/meta/namespace_world.h"
#include "storage/meta/records.h"
#include "storage/meta/service.h"

namespace ff::meta {
namespace {

constexpr SessionId kFirst{.client = 1, .number = 1};
constexpr SessionId kOther{.client = 2, .number = 1};

class LocksTest : public testing::TestWithParam<kv::EngineKind>, protected NamespaceWorld {
 protected:
  LocksTest() : NamespaceWorld(GetParam()), file_(file(kRootUser, kRoot, "lock", 0666)->id) {}

  // 1: held, 0: another owner holds it, -1: error.
  int lock(SessionId owner, const Caller& who = kRootUser) {
    const auto held = run(names().lock(who, file_, owner));
    return held ? static_cast<int>(*held) : -1;
  }
  bool look() { return run(watch_.reap()).ok(); }

  Metrics metrics_;
  LockReaper watch_{engine(), loop(), metrics_};
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
  clock().skip(kLockExpiryNs - kSecond);
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kOther), 0);
  clock().skip(2 * kSecond);
  EXPECT_EQ(lock(kOther), 0);  // nobody has looked
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kOther), 1);
}

TEST_P(LocksTest, ALivingHolderKeepsIt) {
  for (int64_t passed = 0; passed < 3 * kLockExpiryNs; passed += kLockRenewNs) {
    ASSERT_EQ(lock(kFirst), 1);
    ASSERT_TRUE(look());
    clock().skip(kLockRenewNs);
  }
  EXPECT_EQ(lock(kOther), 0);
}

// A new observer, or one that was reset, starts to measure again.
TEST_P(LocksTest, OnlyWhatWasSeenCounts) {
  ASSERT_EQ(lock(kFirst), 1);
  ASSERT_TRUE(look());
  clock().skip(2 * kLockExpiryNs);
  watch_.reset();
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kOther), 0);
  // Released and acquired by another owner meanwhile, whose lock is younger.
  clock().skip(kLockExpiryNs / 2);
  ASSERT_TRUE(run(names().unlock(file_, kFirst)).ok());
  ASSERT_EQ(lock(kOther), 1);
  clock().skip(kLockExpiryNs / 2);
  ASSERT_TRUE(look());
  EXPECT_EQ(lock(kFirst), 0);
}

TEST_P(LocksTest, ItGoesWithTheFile) {
  ASSERT_EQ(lock(kFirst), 1);
  size_t records = 1;
  ASSERT_TRUE(run(engine().run(
                      [&](kv::Txn& txn) -> Task<Result<void>> {
                        FF_CO_TRY(Inode inode, co_await read_inode(txn, file_));
                        co_return co_await erase_inode(txn, std::move(inode));
                      },
                      loop().now_ns() + kSecond))
                  .ok());
  ASSERT_TRUE(run(engine().view(
                      [&](kv::Txn& txn) -> Task<Result<void>> {
                        auto ranging = txn.range(keys::range_of(keys::kLock, file_, 1), {});
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
