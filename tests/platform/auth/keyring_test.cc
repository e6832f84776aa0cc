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
  return {.role = role, .name = std::move(name), .serial = 5};
}

TEST(KeyringTest, AServerDerivesTheKeyThatItsClientHolds) {
  const auto mount = parse_key_text(make_key_text(root_key(), entity(Role::mount, "host7")));
  ASSERT_TRUE(mount.ok()) << mount.error().message;
  const auto shown = (*mount)->credential(kMeta);
  ASSERT_TRUE(shown.has_value());
  const Keyring manager(root_key(), entity(Role::meta, "m1"));
  EXPECT_EQ(manager.key_of(*parse_identity(shown->identity)).value(), shown->key);
  // Another identity has another key.
  Entity other = (*mount)->self();
  other.name = "host8";
  EXPECT_NE(manager.key_of(other).value(), shown->key);
}

TEST(KeyringTest, AMountHasNoKeyForAStorageNodeUntilAManagerMakesOne) {
  const auto mount = parse_key_text(make_key_text(root_key(), entity(Role::mount, "host7")));
  ASSERT_TRUE(mount.ok());
  EXPECT_FALSE((*mount)->credential(kNode3).has_value());
  EXPECT_FALSE((*mount)->credential({Role::scheduler, {}}).has_value());
  Entity ticket = (*mount)->self();
  ticket.expires_s = 1000;
  (*mount)->add(kNode3, make_credential(root_key(), kNode3, ticket));
  const auto shown = (*mount)->credential(kNode3);
  ASSERT_TRUE(shown.has_value());

  const auto node = parse_key_text(make_key_text(root_key(), entity(Role::storage, "3")));
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_EQ((*node)->service(), kNode3);
  EXPECT_EQ((*node)->key_of(ticket).value(), shown->key);
  const auto other = parse_key_text(make_key_text(root_key(), entity(Role::storage, "4")));
  EXPECT_NE((*other)->key_of(ticket).value(), shown->key);
}

// What a thief of one node's file can do with it.
TEST(KeyringTest, AStorageNodeCannotPlayAManagerOrAnotherNode) {
  const auto node = parse_key_text(make_key_text(root_key(), entity(Role::storage, "3")));
  ASSERT_TRUE(node.ok());
  EXPECT_FALSE((*node)->root().has_value());
  const Entity admin = entity(Role::admin, "root");
  const Keyring manager(root_key(), entity(Role::meta, "m1"));
  EXPECT_NE((*node)->key_of(admin).value(), manager.key_of(admin).value());
  EXPECT_FALSE((*node)->credential(kNode3).has_value());
}

TEST(KeyringTest, OnlyGenerationsThatItHasAreServed) {
  const auto node = parse_key_text(make_key_text(root_key(), entity(Role::storage, "3")));
  ASSERT_TRUE(node.ok());
  Entity client = entity(Role::mount, "host7");
  client.generation = 2;
  const auto refused = (*node)->key_of(client);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find("generation 2"), std::string::npos);
  (*node)->add_server_key(kNode3, 2, server_key(root_key(), kNode3, 2));
  EXPECT_TRUE((*node)->key_of(client).ok());
  client.generation = 1;
  EXPECT_TRUE((*node)->key_of(client).ok());
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
        first + "\nserver storage/4 1 " + key, first + "\nserver storage/3 0 " + key,
        first + "\nserver storage/3 x " + key, first + "\nserver meta 1 " + key,
        key + "\n" + first}) {
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
  EXPECT_EQ((*root)->root(), root_key());
  EXPECT_TRUE((*root)->credential(kNode3).has_value());
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
