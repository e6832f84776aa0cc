// TLS with keys of entities: who is accepted, what a relay and a peer with another key get, and
// what the messages say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

#include "platform/auth/keyring.h"
#include "platform/net/tls_pair.h"

namespace ff::net {
namespace {

using auth::Entity;
using auth::Keyring;
using auth::Role;

auth::Key key_of(int number) {
  auth::Key key;
  key.fill(static_cast<std::byte>(number));
  return key;
}

const TlsServer kMetaServer = {.host = {}, .service = {Role::meta, {}}};

class TlsKeys : public testing::Test {
 protected:
  std::shared_ptr<const TlsContext> manager(int root = 1) {
    const Entity self{.role = Role::meta, .name = "m1"};
    return TlsContext::make(Keyring::from_root(key_of(root), self));
  }
  std::shared_ptr<const TlsContext> mount(int root = 1) {
    const Entity self{.role = Role::mount, .name = "host7", .serial = 5};
    return TlsContext::make(auth::parse_key_text(auth::make_key_text(key_of(root), self)).value());
  }
  TlsEnds hands(const std::shared_ptr<const TlsContext>& client,
                const std::shared_ptr<const TlsContext>& server,
                const TlsServer& expected = kMetaServer) {
    return shake_hands(loop_, {client, server, expected});
  }
  static void expect_refused(const TlsEnds& ends, std::string_view client,
                             std::string_view server) {
    ASSERT_FALSE(ends.client->ok());
    EXPECT_EQ(ends.client->error().code, Errc::refused) << ends.client->error().message;
    EXPECT_NE(ends.client->error().message.find(client), std::string::npos)
        << ends.client->error().message;
    ASSERT_FALSE(ends.server->ok());
    EXPECT_EQ(ends.server->error().code, Errc::refused) << ends.server->error().message;
    EXPECT_NE(ends.server->error().message.find(server), std::string::npos)
        << ends.server->error().message;
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
};

TEST_F(TlsKeys, TheServerKnowsWhoTheClientIs) {
  TlsEnds ends = hands(mount(), manager());
  ASSERT_TRUE(ends.client->ok()) << ends.client->error().message;
  ASSERT_TRUE(ends.server->ok()) << ends.server->error().message;
  const auto& client = (**ends.server)->client();
  ASSERT_TRUE(client.has_value());
  EXPECT_EQ(client->full_name(), "mount/host7");
  EXPECT_EQ(client->serial, 5u);
  EXPECT_FALSE((**ends.client)->client().has_value());
}

TEST_F(TlsKeys, ExportedKeysAreOfThisConnectionAndThisLabel) {
  TlsEnds one = hands(mount(), manager());
  TlsEnds two = hands(mount(), manager());
  const auth::Key key = (**one.client)->export_key("a");
  EXPECT_EQ((**one.server)->export_key("a"), key);
  EXPECT_NE((**one.client)->export_key("b"), key);
  EXPECT_NE((**two.client)->export_key("a"), key);
}

TEST_F(TlsKeys, AKeyOfAnotherClusterIsRefusedOnBothEnds) {
  expect_refused(hands(mount(2), manager(1)), "does not accept the key of mount/host7",
                 "wrong key: the peer claims to be mount/host7, but its key differs");
}

// A restriction is part of the identity: without it, the key is another one.
TEST_F(TlsKeys, ARestrictionCannotBeDropped) {
  Entity self{.role = Role::mount, .name = "host7", .serial = 5, .uids = {{1000, 1000}}};
  const auto restricted = auth::parse_key_text(auth::make_key_text(key_of(1), self)).value();
  auth::Credential credential = *restricted->credential({Role::meta, {}});
  self.uids.clear();
  credential.identity = auth::format_identity(self);
  const auto forged = std::make_shared<Keyring>(self);
  forged->add({Role::meta, {}}, credential);
  expect_refused(hands(TlsContext::make(forged), manager()), "does not accept the key",
                 "but its key differs");
}

TEST_F(TlsKeys, AnIdentityThatIsNoneIsRefused) {
  const auto forged = std::make_shared<Keyring>(Entity{.role = Role::mount, .name = "host7"});
  for (const std::string& identity :
       {std::string("x"), std::string("ff2 mount/host7"), std::string(auth::kIdentityMax, 'a'),
        std::string(20'000, 'a')}) {
    forged->add({Role::meta, {}}, {identity, key_of(1)});
    const TlsEnds ends = hands(TlsContext::make(forged), manager());
    EXPECT_FALSE(ends.client->ok());
    ASSERT_FALSE(ends.server->ok());
  }
}

TEST_F(TlsKeys, AClientWithoutAKeyForTheServiceDoesNotTry) {
  TlsEnds ends;
  SocketEnds sockets = connected_sockets(loop_, Address{"127.0.0.1", 0, ""});
  const TlsServer node{.host = {}, .service = {Role::storage, "3"}};
  const auto made = run_task(
      loop_, TlsStream::connect(stream_of(loop_, std::move(sockets.client)), mount(), node));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::refused);
  EXPECT_EQ(made.error().message, "mount/host7 has no key for storage/3");
}

// A key for one service is none for another.
TEST_F(TlsKeys, AStorageNodeCannotPlayAManager) {
  const Entity self{.role = Role::storage, .name = "3", .serial = 1};
  const auto node = auth::parse_key_text(auth::make_key_text(key_of(1), self)).value();
  expect_refused(hands(mount(), TlsContext::make(node)), "does not accept the key",
                 "but its key differs");
}

TEST_F(TlsKeys, ATicketIsGoodForItsNodeAlone) {
  const Entity self{.role = Role::storage, .name = "3", .serial = 1};
  const auto node = TlsContext::make(Keyring::from_root(key_of(1), self));
  const Entity client{.role = Role::mount, .name = "host7"};
  const auto keys = std::make_shared<Keyring>(client);
  keys->add_ticket(self, auth::make_ticket(key_of(1), self, client, 1000), 1000);
  const TlsServer expected{.host = {}, .service = {Role::storage, "3"}};
  const TlsEnds ends = hands(TlsContext::make(keys), node, expected);
  ASSERT_TRUE(ends.server->ok()) << ends.server->error().message;
  EXPECT_EQ((**ends.server)->client()->expires_s, 1000);
  // The same node with another key, and another node.
  for (const Entity& other : {Entity{.role = Role::storage, .name = "3", .serial = 2},
                              Entity{.role = Role::storage, .name = "4", .serial = 1}}) {
    const auto stranger = TlsContext::make(Keyring::from_root(key_of(1), other));
    expect_refused(hands(TlsContext::make(keys), stranger, expected), "does not accept the key",
                   "but its key differs");
  }
}

// Peers with certificates and peers with keys do not understand each other.
TEST_F(TlsKeys, ACertificateIsNoKey) {
  const TestCertificate authority({.name = "authority", .authority = true});
  const TestCertificate node = authority.issue({.name = "node", .hosts = "IP:127.0.0.1"});
  TestFiles files;
  const auto certificates = files.context(node, authority.pem());
  const TlsServer both{.host = "127.0.0.1", .service = {Role::meta, {}}};
  for (const bool client_has_key : {true, false}) {
    const auto client = client_has_key ? mount() : certificates;
    const auto server = client_has_key ? certificates : manager();
    const TlsEnds ends = hands(client, server, both);
    EXPECT_FALSE(ends.client->ok() && ends.server->ok());
  }
}

}  // namespace
}  // namespace ff::net
