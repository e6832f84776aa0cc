// Which keys a server refuses: revoked ones, old generations, expired ones; and what it says then.
#include "platform/auth/revocations.h"

#include <gtest/gtest.h>

namespace ff::auth {
namespace {

const Entity kMount{.role = Role::mount, .name = "host7", .serial = 100, .generation = 2};

std::string said(const Revocations& revocations, const Entity& entity, int64_t now_s = 1000) {
  const auto checked = check_valid(revocations, entity, now_s);
  if (checked) return "ok";
  EXPECT_EQ(checked.error().code, Errc::refused);
  EXPECT_NE(checked.error().hint.find("ff admin"), std::string::npos);
  return checked.error().message;
}

TEST(RevocationsTest, ARevokedKeyIsRefusedAndALaterOneOfTheSameNameIsNot) {
  Revocations list{.generation = 2};
  EXPECT_EQ(said(list, kMount), "ok");
  list.serials["mount/host7"] = 100;
  EXPECT_EQ(said(list, kMount), "the key of mount/host7 with the serial number 100 is revoked");
  Entity other = kMount;
  other.serial = 101;
  EXPECT_EQ(said(list, other), "ok");
  other = kMount;
  other.name = "host8";
  EXPECT_EQ(said(list, other), "ok");
  other = kMount;
  other.role = Role::storage;
  EXPECT_EQ(said(list, other), "ok");
}

TEST(RevocationsTest, ARevokedNameIsAlsoRefusedToHoldersOfTheRootKey) {
  Entity derived = kMount;
  derived.serial = 0;
  derived.generation = 0;
  Revocations list{.generation = 9};
  EXPECT_EQ(said(list, derived), "ok");
  list.serials["mount/host7"] = 1;
  EXPECT_NE(said(list, derived), "ok");
}

TEST(RevocationsTest, TwoGenerationsAreValid) {
  for (const uint32_t now : {1u, 2u, 3u}) EXPECT_EQ(said({.generation = now}, kMount), "ok");
  EXPECT_EQ(said({.generation = 4}, kMount),
            "the key of mount/host7 is of generation 2, and this cluster accepts 3 and 4");
}

TEST(RevocationsTest, AKeyEndsWithItsTime) {
  Entity brief = kMount;
  brief.expires_s = 1000;
  EXPECT_EQ(said({.generation = 2}, brief, 999), "ok");
  EXPECT_EQ(said({.generation = 2}, brief, 1000), "the key of mount/host7 expired 0 s ago");
  EXPECT_EQ(said({.generation = 2}, kMount, INT64_MAX), "ok");
}

TEST(RevocationsTest, UsersAskForATokenAndOthersForAKey) {
  const Entity user{.role = Role::user, .name = "ann", .serial = 1, .uids = {{1000, 1000}}};
  Revocations list;
  list.serials = {{"user/ann", 1}, {"mount/host7", 100}};
  EXPECT_NE(check_valid(list, user, 0).error().hint.find("ff admin user token 1000"),
            std::string::npos);
  EXPECT_NE(check_valid(list, kMount, 0).error().hint.find("ff admin key create mount/host7"),
            std::string::npos);
}

}  // namespace
}  // namespace ff::auth
