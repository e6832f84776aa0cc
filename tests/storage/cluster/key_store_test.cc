// The record of the keys: serial numbers, revocations, generations, and what bounds it.
#include "storage/cluster/key_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "platform/auth/keyring.h"
#include "platform/kv/memory_engine.h"
#include "platform/sim/sim_net.h"

namespace ff::cluster {
namespace {

class KeyStoreTest : public testing::Test {
 protected:
  IssuedKey create(const std::string& name) {
    IssuedKey wanted{.entity = {.role = auth::Role::mount, .name = name}, .by = "admin/ann"};
    auto made = run_task(world_.loop(), keys_.create(wanted));
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made ? *made : wanted;
  }
  KeyRecords read() { return run_task(world_.loop(), keys_.read()).value(); }
  Result<void> check(const auth::Entity& entity) {
    return auth::check_valid(read().revocations, entity, world_.loop().clock().wall_ns() / kSecond);
  }
  KeyRecords revoke(const std::string& entity) {
    return run_task(world_.loop(), keys_.revoke(entity)).value();
  }
  KeyRecords rotate() { return run_task(world_.loop(), keys_.rotate()).value(); }

  sim::SimWorld world_;
  SeededRng rng_{1};
  kv::MemoryStore store_;
  kv::MemoryEngine engine_{store_, world_.loop(), rng_};
  KeyStore keys_{engine_, world_.loop().clock()};
};

TEST_F(KeyStoreTest, AnEmptyStoreHasAVersionOfItsOwn) {
  EXPECT_EQ(read().revocations.version, 1u);
  EXPECT_EQ(read().revocations.generation, 1u);
  EXPECT_TRUE(read().issued.empty());
}

TEST_F(KeyStoreTest, KeysOfOneNameHaveRisingSerialNumbers) {
  const auto first = create("a"), second = create("a"), other = create("b");
  EXPECT_GT(first.entity.serial, 0u);
  EXPECT_GT(second.entity.serial, first.entity.serial);
  EXPECT_EQ(first.entity.generation, 1u);
  const auto all = read();
  ASSERT_EQ(all.issued.size(), 3u);
  EXPECT_EQ(all.issued[0].entity, first.entity);
  EXPECT_EQ(all.issued[0].by, "admin/ann");
  EXPECT_TRUE(check(other.entity).ok());
}

TEST_F(KeyStoreTest, RevokingEndsWhatExistsAndNothingLater) {
  const auto first = create("a"), second = create("a"), other = create("b");
  const auto after = revoke("mount/a");
  EXPECT_EQ(after.issued.size(), 1u);
  EXPECT_FALSE(check(first.entity).ok());
  EXPECT_FALSE(check(second.entity).ok());
  EXPECT_TRUE(check(other.entity).ok());
  const auto third = create("a");
  EXPECT_TRUE(check(third.entity).ok());
  EXPECT_FALSE(check(second.entity).ok());
}

// The clock of the manager that revokes may be behind that of the one that made the key.
TEST_F(KeyStoreTest, AKeyOfTheFutureIsRevokedToo) {
  world_.run_for(3600 * kSecond);
  const auto made = create("a");
  SeededRng rng(2);
  sim::SimWorld behind;
  kv::MemoryEngine engine(store_, behind.loop(), rng);
  KeyStore keys(engine, behind.loop().clock());
  const auto after = run_task(behind.loop(), keys.revoke("mount/a")).value();
  EXPECT_FALSE(auth::check_valid(after.revocations, made.entity, 0).ok());
}

TEST_F(KeyStoreTest, EveryChangeHasAVersion) {
  uint64_t last = read().revocations.version;
  const auto expect_newer = [&] {
    const uint64_t now = read().revocations.version;
    EXPECT_GT(now, last);
    last = now;
  };
  create("a");
  expect_newer();
  revoke("mount/a");
  expect_newer();
  rotate();
  expect_newer();
}

TEST_F(KeyStoreTest, TwoGenerationsLive) {
  const auto first = create("a");
  EXPECT_EQ(rotate().revocations.generation, 2u);
  const auto second = create("a");
  EXPECT_EQ(second.entity.generation, 2u);
  EXPECT_TRUE(check(first.entity).ok());
  EXPECT_TRUE(check(second.entity).ok());
  EXPECT_EQ(rotate().revocations.generation, 3u);
  EXPECT_FALSE(check(first.entity).ok());
  EXPECT_TRUE(check(second.entity).ok());
  ASSERT_EQ(read().issued.size(), 1u);
  EXPECT_EQ(read().issued[0].entity, second.entity);
}

TEST_F(KeyStoreTest, RotationsForgetRevocationsThatNothingNeeds) {
  create("a");
  revoke("mount/a");
  world_.run_for(kSecond);
  rotate();
  EXPECT_EQ(read().revocations.serials.size(), 1u) << "its generation is still valid";
  world_.run_for(kSecond);
  rotate();
  EXPECT_TRUE(read().revocations.serials.empty());
}

TEST_F(KeyStoreTest, UsersAreForgottenWithTheirTickets) {
  revoke("user/ann");
  revoke("mount/a");
  world_.run_for(3 * auth::kTicketSeconds * kSecond);
  revoke("user/bob");
  const auto serials = read().revocations.serials;
  EXPECT_FALSE(serials.contains("user/ann"));
  EXPECT_TRUE(serials.contains("user/bob"));
  EXPECT_TRUE(serials.contains("mount/a"));
}

TEST_F(KeyStoreTest, ItIsBounded) {
  IssuedKey wanted{.entity = {.role = auth::Role::mount, .name = "a"}, .by = {}};
  wanted.entity.path = "/" + std::string(500, 'x');
  Result<IssuedKey> made = wanted;
  size_t keys = 0;
  for (; made && keys < 10'000; keys++) made = run_task(world_.loop(), keys_.create(wanted));
  ASSERT_FALSE(made.ok());
  EXPECT_GT(keys, 500u);
  EXPECT_EQ(made.error().code, Errc::refused);
  EXPECT_NE(made.error().hint.find("ff admin key revoke"), std::string::npos);
  revoke("mount/a");
  EXPECT_TRUE(run_task(world_.loop(), keys_.create(wanted)).ok());
}

}  // namespace
}  // namespace ff::cluster
