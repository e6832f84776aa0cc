// Entities: the one text of each, what is no identity, restrictions, and keys against known
// answers.
#include "platform/auth/entity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "platform/base/rng.h"
#include "platform/base/text.h"

namespace ff::auth {
namespace {

Key ascending_key() {
  Key key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<std::byte>(i);
  return key;
}

Entity mount_of_ann() {
  return {.role = Role::mount,
          .name = "host7",
          .serial = 17,
          .generation = 2,
          .uids = {{1000, 1000}, {2000, 2999}},
          .path = "/data/a b%",
          .read_only = true,
          .expires_s = 1'800'000'000};
}

constexpr std::string_view kMountOfAnn =
    "ff2 mount/host7 serial=17 generation=2 uids=1000,2000-2999 path=/data/a%20b%25 read-only"
    " expires=1800000000";

TEST(EntityTest, TheIdentityIsReadBack) {
  EXPECT_EQ(format_identity(mount_of_ann()), kMountOfAnn);
  const auto back = parse_identity(kMountOfAnn);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, mount_of_ann());
  const Entity plain{.role = Role::storage, .name = "3", .serial = UINT64_MAX};
  EXPECT_EQ(format_identity(plain), "ff2 storage/3 serial=18446744073709551615 generation=0");
  EXPECT_EQ(*parse_identity(format_identity(plain)), plain);
}

TEST(EntityTest, EachEntityHasOneText) {
  const std::string begin = "ff2 mount/host7 serial=17 generation=2";
  ASSERT_TRUE(parse_identity(begin).ok());
  for (const std::string& text : {
           std::string(),
           std::string("ff2"),
           std::string("ff1 mount/host7 serial=17 generation=2"),
           std::string("ff2 mount serial=17 generation=2"),
           std::string("ff2 mount/ serial=17 generation=2"),
           std::string("ff2 mount/a/b serial=17 generation=2"),
           std::string("ff2 mount/a\n serial=17 generation=2"),
           std::string("ff2 rider/host7 serial=17 generation=2"),
           std::string("ff2 mount/host7 generation=2 serial=17"),
           std::string("ff2 mount/host7 serial=017 generation=2"),
           std::string("ff2 mount/host7 serial=17"),
           std::string("ff2 mount/host7 serial=17 generation=4294967296"),
           "x" + begin,
           " " + begin,
           begin + " ",
           begin + "\n",
           begin + " generation=2",
           begin + " serial=17",
           begin + " uids=",
           begin + " uids=7-7",
           begin + " uids=9-7",
           begin + " uids=07",
           begin + " uids=7,",
           begin + " uids=4294967296",
           begin + " path=",
           begin + " path=/",
           begin + " path=a",
           begin + " path=/a/",
           begin + " path=/a//b",
           begin + " path=/a/../b",
           begin + " path=/a/./b",
           begin + " path=/a%2",
           begin + " path=/a%zz",
           begin + " path=/a%00",
           begin + " path=/%61",
           begin + " path=/a%2F",
           begin + " path=/" + std::string(512, 'a'),
           begin + " read-only read-only",
           begin + " read-only path=/a",
           begin + " expires=0",
           begin + " expires=-1",
           begin + " expires=9223372036854775808",
           begin + " admin",
           begin + std::string(kIdentityMax, ' '),
       }) {
    EXPECT_FALSE(parse_identity(text).ok()) << text;
  }
}

TEST(EntityTest, AUserHasOneUid) {
  Entity user{.role = Role::user, .name = "ann", .serial = 1};
  EXPECT_EQ(check_entity(user).error().code, Errc::usage);
  user.uids = {{1000, 1001}};
  EXPECT_FALSE(check_entity(user).ok());
  user.uids = {{1000, 1000}};
  EXPECT_TRUE(check_entity(user).ok());
  EXPECT_TRUE(user.may_act_for(1000));
  EXPECT_FALSE(user.may_act_for(0));
}

TEST(EntityTest, WhomItMayActForIsInItsRanges) {
  const Entity mount = mount_of_ann();
  for (const uint32_t uid : {1000u, 2000u, 2500u, 2999u}) EXPECT_TRUE(mount.may_act_for(uid));
  for (const uint32_t uid : {0u, 999u, 1001u, 1999u, 3000u, UINT32_MAX}) {
    EXPECT_FALSE(mount.may_act_for(uid)) << uid;
  }
  EXPECT_TRUE((Entity{.role = Role::mount, .name = "a"}).may_act_for(0));
}

// Every byte that a seeded generator changes gives another entity or none.
TEST(EntityTest, NoChangedTextIsTheSameEntity) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  SeededRng rng(seed);
  for (int i = 0; i < 20'000; i++) {
    std::string text(kMountOfAnn);
    const size_t at = rng.below(text.size());
    text[at] = static_cast<char>(rng.below(256));
    const auto entity = parse_identity(text);
    if (text == kMountOfAnn || !entity) continue;
    EXPECT_EQ(format_identity(*entity), text);
    EXPECT_NE(*entity, mount_of_ann()) << text;
  }
}

TEST(ServiceTest, TheTextIsReadBack) {
  for (const std::string text : {"meta", "scheduler", "storage/3", "agent/n12", "rank"}) {
    const auto service = parse_service(text);
    ASSERT_TRUE(service.has_value()) << text;
    EXPECT_EQ(service->text(), text);
  }
  for (const std::string text : {"", "meta/", "meta/1", "storage", "storage/", "agent", "agent/a b",
                                 "user", "user/ann", "mount", "admin", "admin/a"}) {
    EXPECT_FALSE(parse_service(text).has_value()) << text;
  }
}

// RFC 5869, appendix A.3: without salt and info, cut to 32 bytes. The key there has 22 bytes, so
// the answers below are of Python's hmac, from the formula of the RFC.
TEST(EntityKeysTest, AreThoseOfTheFormula) {
  const Entity node{.role = Role::storage, .name = "3", .serial = 9, .generation = 2};
  const Key server = server_key(ascending_key(), node);
  EXPECT_EQ(hex(server), "fbf64394f0897ef881d511b39b697b4c0cc87ec1353fa37e8120d25d7d656993");
  EXPECT_EQ(hex(client_key(server, mount_of_ann())),
            "bda303cef68400c4c5e0979a02ef42723bc1503d24692a35abfdbc791fe71c84");
  EXPECT_EQ(hex(server_key(ascending_key(), Service{Role::meta, {}})),
            "c65194551bc37bed6162e426f706ac366ac23a21e3c6377b73cf8618b675bfcb");
}

TEST(EntityKeysTest, DifferForEachPartOfTheIdentityAndTheService) {
  const Key root = ascending_key();
  const Entity mount = mount_of_ann();
  const Service meta{Role::meta, {}};
  const Key key = client_key(server_key(root, meta), mount);
  EXPECT_NE(client_key(server_key(root, Service{Role::scheduler, {}}), mount), key);
  EXPECT_NE(client_key(server_key(Key{}, meta), mount), key);
  const Entity node{.role = Role::storage, .name = "3", .serial = 9, .generation = 2};
  Entity later = node;
  later.serial++;
  EXPECT_NE(server_key(root, node), server_key(root, later));
  const auto changed = [&](auto change) {
    Entity other = mount;
    change(other);
    EXPECT_NE(client_key(server_key(root, meta), other), key) << format_identity(other);
  };
  changed([](Entity& it) { it.role = Role::admin; });
  changed([](Entity& it) { it.name = "host8"; });
  changed([](Entity& it) { it.serial = 18; });
  changed([](Entity& it) { it.generation = 1; });
  changed([](Entity& it) { it.uids.clear(); });
  changed([](Entity& it) { it.path = "/data"; });
  changed([](Entity& it) { it.read_only = false; });
  changed([](Entity& it) { it.expires_s = 0; });
}

}  // namespace
}  // namespace ff::auth
