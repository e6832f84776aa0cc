// Key files: who gets which keys, that both ends derive the same ones, and what is refused.
#include "platform/auth/keyring.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "platform/base/text.h"
#include "platform/io/system_disk.h"

namespace ff::auth {
namespace {

const Service kMeta{Role::meta, {}};
const Service kNode3{Role::storage, "3"};

Key root_key() {
  Key key;
  key.fill(std::byte{7});
  return key;
}

Entity entity(Role role, std::string name) {
  return {.role = role, .name = std::move(name), .serial = 5, .generation = 1};
}

TEST(KeyringTest, AServerDerivesTheKeyThatItsClientHolds) {
  const auto mount = parse_key_text(make_key_text(root_key(), entity(Role::mount, "host7")));
  ASSERT_TRUE(mount.ok()) << mount.error().message;
  const auto shown = (*mount)->credential(kMeta);
  ASSERT_TRUE(shown.has_value());
  const auto manager = Keyring::from_root(root_key(), entity(Role::meta, "m1"));
  EXPECT_EQ(manager->key_of(*parse_identity(shown->identity)).value(), shown->key);
  // Another identity has another key.
  Entity other = (*mount)->self();
  other.name = "host8";
  EXPECT_NE(manager->key_of(other).value(), shown->key);
}

TEST(KeyringTest, AMountHasNoKeyForAStorageNodeUntilAManagerMakesOne) {
  const auto mount = parse_key_text(make_key_text(root_key(), entity(Role::mount, "host7")));
  ASSERT_TRUE(mount.ok());
  Keyring& keys = **mount;
  EXPECT_FALSE(keys.credential(kNode3).has_value());
  EXPECT_FALSE(keys.credential({Role::scheduler, {}}).has_value());
  const Entity node = entity(Role::storage, "3");
  EXPECT_TRUE(keys.needs_ticket(node, 1000));
  keys.add_ticket(node, make_ticket(root_key(), node, keys.self(), 1000 + kTicketSeconds),
                  1000 + kTicketSeconds);
  const auto shown = keys.credential(kNode3);
  ASSERT_TRUE(shown.has_value());
  EXPECT_EQ(parse_identity(shown->identity)->expires_s, 1000 + kTicketSeconds);

  const auto server = parse_key_text(make_key_text(root_key(), node));
  ASSERT_TRUE(server.ok()) << server.error().message;
  EXPECT_EQ((*server)->service(), kNode3);
  EXPECT_EQ((*server)->key_of(*parse_identity(shown->identity)).value(), shown->key);
  const auto other = parse_key_text(make_key_text(root_key(), entity(Role::storage, "4")));
  EXPECT_NE((*other)->key_of(*parse_identity(shown->identity)).value(), shown->key);
}

TEST(KeyringTest, TicketsAreRenewedInTheirSecondHalfAndForEveryNewKeyOfTheNode) {
  Keyring keys(entity(Role::mount, "host7"));
  const Entity node = entity(Role::storage, "3");
  keys.add_ticket(node, make_ticket(root_key(), node, keys.self(), kTicketSeconds), kTicketSeconds);
  EXPECT_FALSE(keys.needs_ticket(node, 0));
  EXPECT_FALSE(keys.needs_ticket(node, kTicketSeconds / 2 - 1));
  EXPECT_TRUE(keys.needs_ticket(node, kTicketSeconds / 2));
  Entity replaced = node;
  replaced.serial++;
  EXPECT_TRUE(keys.needs_ticket(replaced, 0));
}

TEST(KeyringTest, ATicketEndsNotAfterTheKeyItself) {
  Entity client = entity(Role::mount, "host7");
  client.expires_s = 500;
  const auto early = make_ticket(root_key(), entity(Role::storage, "3"), client, 1000);
  EXPECT_EQ(parse_identity(early.identity)->expires_s, 500);
  const auto late = make_ticket(root_key(), entity(Role::storage, "3"), client, 400);
  EXPECT_EQ(parse_identity(late.identity)->expires_s, 400);
}

TEST(KeyringTest, AManagerMakesItsOwnTickets) {
  const auto manager = Keyring::from_root(root_key(), entity(Role::meta, "m1"));
  const Entity node = entity(Role::storage, "3");
  EXPECT_FALSE(manager->credential(kNode3).has_value());
  EXPECT_FALSE(manager->needs_ticket(node, 1000));
  const auto shown = manager->credential(kNode3);
  ASSERT_TRUE(shown.has_value());
  const auto server = Keyring::from_root(root_key(), node);
  EXPECT_EQ(server->key_of(*parse_identity(shown->identity)).value(), shown->key);
}

// What a thief of one node's file can do with it.
TEST(KeyringTest, AStorageNodeCannotPlayAManagerOrAnotherNode) {
  const auto node = parse_key_text(make_key_text(root_key(), entity(Role::storage, "3")));
  ASSERT_TRUE(node.ok());
  EXPECT_FALSE((*node)->root().has_value());
  const Entity admin = entity(Role::admin, "root");
  const auto manager = Keyring::from_root(root_key(), entity(Role::meta, "m1"));
  EXPECT_NE((*node)->key_of(admin).value(), manager->key_of(admin).value());
  EXPECT_FALSE((*node)->credential(kNode3).has_value());
  EXPECT_FALSE((*node)->capability_key(1).has_value());
}

TEST(KeyringTest, OnlyManagersSchedulersAndRanksKeepTheRootKey) {
  for (const Role role : {Role::meta, Role::scheduler, Role::rank}) {
    EXPECT_TRUE(Keyring::from_root(root_key(), entity(role, "a"))->root().has_value());
  }
  for (const Role role : {Role::admin, Role::storage, Role::mount, Role::agent}) {
    const auto keys = Keyring::from_root(root_key(), entity(role, "a"));
    EXPECT_FALSE(keys->root().has_value());
    EXPECT_EQ(keys->self().full_name(), entity(role, "a").full_name());
  }
}

TEST(KeyringTest, CapabilityKeysAreThoseOfTheManager) {
  const auto manager = Keyring::from_root(root_key(), entity(Role::meta, "m1"));
  ASSERT_TRUE(manager->capability_key(3).has_value());
  EXPECT_NE(manager->capability_key(3), manager->capability_key(4));
  const auto node = Keyring::from_root(root_key(), entity(Role::storage, "3"));
  node->set_capability_keys({{3, *manager->capability_key(3)}});
  EXPECT_EQ(node->capability_key(3), manager->capability_key(3));
  EXPECT_FALSE(node->capability_key(4).has_value());
}

TEST(KeyringTest, ClientsServeNobody) {
  const auto mount = parse_key_text(make_key_text(root_key(), entity(Role::mount, "host7")));
  EXPECT_EQ((*mount)->key_of(entity(Role::admin, "root")).error().code, Errc::refused);
}

TEST(KeyringTest, OtherTextsAreRefusedAndNotShown) {
  const std::string text = make_key_text(root_key(), entity(Role::storage, "3"));
  const auto lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 4u) << "the identity, the key for managers, the server key, the end";
  const std::string whole = text.substr(0, text.size() - 1);
  ASSERT_TRUE(parse_key_text(whole).ok());
  const std::string first(lines[0]);
  const std::string key(64, 'a');
  for (const std::string& bad :
       {std::string(), whole + "\n\n", whole + "\nmeta", first + "\n" + key,
        first + "\nmeta " + key + "a", first + "\nstorage " + key,
        first + "\nserver storage/3 " + key, first + "\nserver", first + "\nserver " + key + "a",
        "ff2 mount/a serial=1 generation=1\nserver " + key, key + "\n" + first}) {
    const auto parsed = parse_key_text(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, Errc::corrupt);
    EXPECT_EQ(parsed.error().message.find(key), std::string::npos);
  }
}

class KeyringFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/ff-keys-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  Result<std::shared_ptr<Keyring>> read(const std::string& text, mode_t mode) {
    const std::string path = dir_ + "/a.key";
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return read_keyring(disk_, path, entity(Role::admin, "root"));
  }

  io::SystemDisk disk_;
  std::string dir_;
};

TEST_F(KeyringFileTest, BothKindsAreRead) {
  const auto root = read(hex(root_key()) + '\n', 0600);
  ASSERT_TRUE(root.ok()) << root.error().message;
  EXPECT_EQ((*root)->self().full_name(), "admin/root");
  EXPECT_FALSE((*root)->root().has_value()) << "an operator derives its own keys";
  EXPECT_TRUE((*root)->credential(kMeta).has_value());
  EXPECT_TRUE((*root)->text().ends_with("a.key)"));
  const auto mount = read(make_key_text(root_key(), entity(Role::mount, "host7")), 0600);
  ASSERT_TRUE(mount.ok()) << mount.error().message;
  EXPECT_EQ((*mount)->self().full_name(), "mount/host7");
  EXPECT_FALSE((*mount)->root().has_value());
}

TEST_F(KeyringFileTest, OthersMayNotReadItAndGarbageIsNamed) {
  const auto open = read(hex(root_key()), 0644);
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.error().code, Errc::refused);
  const auto garbage = read("secret", 0600);
  ASSERT_FALSE(garbage.ok());
  EXPECT_EQ(garbage.error().code, Errc::corrupt);
  EXPECT_NE(garbage.error().message.find("a.key"), std::string::npos);
  EXPECT_EQ(garbage.error().message.find("secret"), std::string::npos);
  EXPECT_NE(garbage.error().hint.find("ff admin key create"), std::string::npos);
}

}  // namespace
}  // namespace ff::auth
