// Tokens as passwords: which are accepted, and what their holders may do.
#include "storage/gateway/password_check.h"

#include <gtest/gtest.h>

#include "platform/sim/sim_clock.h"

namespace ff::gateway {
namespace {

constexpr uint32_t kAnn = 1000, kBob = 1001;

class PasswordCheckTest : public testing::Test {
 protected:
  PasswordCheckTest() { set_mode(0700); }

  static auth::Key some_key(std::byte fill) {
    auth::Key key;
    key.fill(fill);
    return key;
  }
  static auth::Entity user(const std::string& name, uint32_t uid) {
    return {
        .role = auth::Role::user, .name = name, .serial = 5, .generation = 1, .uids = {{uid, uid}}};
  }
  std::string token(const auth::Entity& entity) { return auth::make_key_text(root_, entity); }
  std::string reply(std::string_view name, std::string_view password) {
    const auto login = check_.check(name, password);
    if (!login) return login.error().message.substr(0, login.error().message.find(' '));
    return login->read_only ? "reads" : "writes";
  }
  void set_mode(uint32_t mode) {
    check_.set_folder({.owner = kAnn, .mode = mode, .cluster_path = "/kv/cache"});
  }

  sim::SimClock clock_;
  const auth::Key root_ = some_key(std::byte{1});
  const std::shared_ptr<auth::Keyring> keyring_ =
      auth::Keyring::from_root(root_, {.role = auth::Role::meta, .name = "m1"});
  PasswordCheck check_{keyring_, clock_};
};

TEST_F(PasswordCheckTest, TheTextOfATokenIsThePassword) {
  const std::string text = token(user("ann", kAnn));
  EXPECT_EQ(reply("default", text), "writes");
  EXPECT_EQ(reply("ann", text), "writes");
  EXPECT_EQ(reply("user/ann", text), "writes");
  EXPECT_EQ(reply("bob", text), "WRONGPASS");
  std::string line = text;
  for (char& c : line) c = c == '\n' ? ' ' : c;
  EXPECT_EQ(reply("ann", line), "writes");
  EXPECT_EQ(reply("ann", "  " + line + "\r\n"), "writes");
}

TEST_F(PasswordCheckTest, EveryChangeOfATokenIsRefused) {
  const std::string text = token(user("ann", kAnn));
  for (size_t i = 0; i < text.find("scheduler"); i++) {
    std::string changed = text;
    changed[i] = changed[i] == 'a' ? 'b' : 'a';
    EXPECT_EQ(reply("default", changed), "WRONGPASS") << i;
  }
  for (const std::string& other : {std::string(), std::string("meta"), std::string("meta meta"),
                                   text.substr(0, text.find("meta") + 5), std::string(9000, 'a'),
                                   "meta " + std::string(64, '0')}) {
    EXPECT_EQ(reply("default", other), "WRONGPASS");
  }
  // Keys of another cluster.
  const std::string foreign = auth::make_key_text(some_key(std::byte{2}), user("ann", kAnn));
  EXPECT_EQ(reply("ann", foreign), "WRONGPASS");
}

TEST_F(PasswordCheckTest, RightsAreThoseOfTheFolder) {
  const std::string bob = token(user("bob", kBob));
  EXPECT_EQ(reply("bob", bob), "NOPERM");
  set_mode(0755);
  EXPECT_EQ(reply("bob", bob), "reads");
  set_mode(0777);
  EXPECT_EQ(reply("bob", bob), "writes");
  set_mode(0770);
  EXPECT_EQ(reply("bob", bob), "NOPERM");
  EXPECT_EQ(reply("root", token(user("root", 0))), "writes");
  EXPECT_EQ(reply("ops", token({.role = auth::Role::admin, .name = "ops"})), "writes");
  EXPECT_EQ(reply("7", token({.role = auth::Role::storage, .name = "7"})), "NOPERM");
}

TEST_F(PasswordCheckTest, RestrictedKeys) {
  auth::Entity entity{.role = auth::Role::mount, .name = "h", .serial = 1, .generation = 1};
  entity.read_only = true;
  EXPECT_EQ(reply("h", token(entity)), "reads");
  entity.read_only = false;
  for (const auto& [path, expected] :
       {std::pair("/kv", "writes"), std::pair("/kv/cache", "writes"), std::pair("/kv/c", "NOPERM"),
        std::pair("/kv/cache/below", "NOPERM"), std::pair("/other", "NOPERM")}) {
    entity.path = path;
    EXPECT_EQ(reply("h", token(entity)), expected) << path;
  }
}

TEST_F(PasswordCheckTest, RevokedAndExpiredKeys) {
  auth::Entity ann = user("ann", kAnn);
  EXPECT_TRUE(check_.still_valid(ann));
  keyring_->set_revocations({.version = 1, .generation = 1, .serials = {{"user/ann", 5}}});
  EXPECT_EQ(reply("ann", token(ann)), "WRONGPASS");
  EXPECT_FALSE(check_.still_valid(ann));
  ann.serial = 6;
  EXPECT_EQ(reply("ann", token(ann)), "writes");
  ann.expires_s = clock_.wall_ns() / kSecond;
  EXPECT_EQ(reply("ann", token(ann)), "WRONGPASS");
}

}  // namespace
}  // namespace ff::gateway
