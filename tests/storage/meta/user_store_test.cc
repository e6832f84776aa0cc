// Users and their tokens: a valid token stands for its user until it is revoked.
#include "storage/meta/user_store.h"

#include "storage/meta/namespace_world.h"

namespace ff::meta {
namespace {

class UsersTest : public testing::TestWithParam<kv::EngineKind>, protected NamespaceWorld {
 protected:
  UsersTest() : NamespaceWorld(GetParam()) {}
  UserStore users_{engine(), loop().clock()};
};
INSTANTIATE_TEST_SUITE_P(Engines, UsersTest, testing::ValuesIn(kv::engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(UsersTest, ATokenIsOfAUser) {
  EXPECT_EQ(run(users_.add_token(1000)).error().code, Errc::not_found);
  ASSERT_TRUE(run(users_.set({.uid = 1000, .name = "alice", .gid = 100, .groups = {7, 8}})).ok());
  const auto first = run(users_.add_token(1000));
  const auto second = run(users_.add_token(1000));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second->serials.size(), 2u);
  for (const uint64_t serial : second->serials) {
    const auto caller = run(users_.caller_of({.uid = 1000, .serial = serial}));
    ASSERT_TRUE(caller.ok());
    EXPECT_EQ(caller->uid, 1000u);
    EXPECT_EQ(caller->gid, 100u);
    EXPECT_EQ(caller->groups, (std::vector<uint32_t>{7, 8}));
  }
  EXPECT_EQ(run(users_.caller_of({.uid = 1000, .serial = 99})).error().code, Errc::refused);
  EXPECT_EQ(run(users_.caller_of({.uid = 5, .serial = 1})).error().code, Errc::refused);
}

TEST_P(UsersTest, WithdrawnTokensNeverHoldAgain) {
  ASSERT_TRUE(run(users_.set({.uid = 1000, .name = "alice"})).ok());
  const uint64_t serial = run(users_.add_token(1000))->serials.back();
  ASSERT_TRUE(run(users_.caller_of({.uid = 1000, .serial = serial})).ok());
  ASSERT_TRUE(run(users_.remove(1000)).ok());
  EXPECT_FALSE(run(users_.caller_of({.uid = 1000, .serial = serial})).ok());
  EXPECT_TRUE(run(users_.list())->empty());
  ASSERT_TRUE(run(users_.set({.uid = 1000, .name = "alice"})).ok());
  EXPECT_FALSE(run(users_.caller_of({.uid = 1000, .serial = serial})).ok());
  EXPECT_NE(run(users_.add_token(1000))->serials.back(), serial);
}

TEST_P(UsersTest, NotAnyName) {
  for (const std::string& name : {std::string(), std::string(65, 'x'), std::string("a\nb")}) {
    EXPECT_EQ(run(users_.set({.uid = 1, .name = name})).error().code, Errc::usage);
  }
  ASSERT_TRUE(run(users_.set({.uid = 1, .name = "a"})).ok());
  for (size_t i = 0; i < kTokensMax; i++) {
    ASSERT_TRUE(run(users_.add_token(1)).ok());
  }
  EXPECT_EQ(run(users_.add_token(1)).error().code, Errc::usage);
}

// Another loop of the server has changed the account while one read it.
TEST(UserCacheTest, WhatWasReadBeforeAChangeIsNotKept) {
  UserCache cache;
  uint64_t changes = 0;
  EXPECT_EQ(cache.get(7, 0, changes), nullptr);
  const auto old = std::make_shared<const UserAccount>(UserAccount{.uid = 7, .name = "old"});
  cache.erase(7);
  cache.put(old, 0, changes);
  EXPECT_EQ(cache.get(7, 0, changes), nullptr);
  cache.put(old, 0, changes);
  EXPECT_EQ(cache.get(7, 1, changes), old);
  EXPECT_EQ(cache.get(7, kUserCacheNs, changes), nullptr);
}

}  // namespace
}  // namespace ff::meta
