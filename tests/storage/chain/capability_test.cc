// Capabilities of users: signing and checking, and enforcement at storage nodes.
#include "storage/chain/capability.h"

#include <gtest/gtest.h>

#include "platform/auth/test_entities.h"
#include "platform/base/text.h"
#include "storage/chain/chain_client.h"
#include "storage/chain/chain_world.h"

namespace ff::chain {
namespace {

constexpr int64_t kNow = 1'700'000'000 * kSecond;
constexpr uint64_t kInode = 0x1122334455667788;

auth::Key counted_key() {
  auth::Key key;
  for (size_t i = 0; i < key.size(); i++) key[i] = static_cast<std::byte>(i);
  return key;
}

class CapabilityTest : public testing::Test {
 protected:
  std::string check_one(const std::string& bytes, uint64_t inode = kInode,
                        uint32_t right = kRightRead, int64_t now_ns = kNow - 1) {
    const auto checked = check_capability(keyring_, bytes, holder_, inode, right, now_ns);
    if (checked) return "ok";
    EXPECT_EQ(checked.error().code, Errc::refused);
    EXPECT_EQ(is_capability_expired(checked.error()),
              checked.error().message.find("expired") != std::string::npos);
    return checked.error().message;
  }
  // A valid capability that was modified.
  template <class UpdateType>
  std::string changed(UpdateType change) {
    wire::Capability capability;
    EXPECT_TRUE(capability.ParseFromString(both_));
    change(capability);
    return check_one(capability.SerializeAsString());
  }

  CapabilityTest() { keyring_.set_capability_keys({{1, key_}}); }
  // A capability of the holder.
  static Capability of(uint64_t inode, uint32_t rights, int64_t expires_ns) {
    return {.inode = inode,
            .rights = rights,
            .expires_ns = expires_ns,
            .entity = "user/u1000",
            .serial = 7,
            .uid = 1000,
            .client = 5,
            .session = 6};
  }

  const auth::Key key_ = counted_key();
  const auth::Entity holder_ = auth::user_entity({1000, 7});
  auth::Keyring keyring_{{.role = auth::Role::storage, .name = "3"}};
  const std::string both_ = sign_capability(key_, of(kInode, kRightRead | kRightWrite, kNow));
  const std::string no_mac_ = "the capability was not signed with the key of this cluster";
};

// Computed with Python's hmac, from the formula of capability.h.
TEST_F(CapabilityTest, TheMacIsThatOfTheFormula) {
  wire::Capability capability;
  ASSERT_TRUE(capability.ParseFromString(both_));
  EXPECT_EQ(capability.inode(), kInode);
  EXPECT_EQ(capability.rights(), 3u);
  EXPECT_EQ(capability.expires_ns(), kNow);
  EXPECT_EQ(hex(as_bytes(capability.mac())),
            "302a845e7d42e2c4e342604665ee69c2d5d6be0c9997bbb6cd3779af187cb447");
}

TEST_F(CapabilityTest, GivesItsRightsToItsFileForItsTime) {
  EXPECT_EQ(check_one(both_, kInode, kRightRead), "ok");
  EXPECT_EQ(check_one(both_, kInode, kRightWrite), "ok");
  EXPECT_EQ(check_one(both_, kInode + 1),
            "the capability is for file 1234605616436508552, not " + std::to_string(kInode + 1));
  for (const int64_t late_ns : {int64_t{0}, int64_t{1}, 1000 * kSecond}) {
    const std::string said = check_one(both_, kInode, kRightRead, kNow + late_ns);
    EXPECT_NE(said.find("the capability has expired"), std::string::npos) << said;
  }
  const std::string reads = sign_capability(key_, of(kInode, kRightRead, kNow));
  EXPECT_EQ(check_one(reads, kInode, kRightRead), "ok");
  EXPECT_NE(check_one(reads, kInode, kRightWrite).find("does not grant write"), std::string::npos);
  const std::string writes = sign_capability(key_, of(kInode, kRightWrite, kNow));
  EXPECT_EQ(check_one(writes, kInode, kRightWrite), "ok");
  EXPECT_NE(check_one(writes, kInode, kRightRead).find("does not grant read"), std::string::npos);
  EXPECT_NE(check_one(sign_capability(key_, of(kInode, 0, kNow))), "ok");
}

TEST_F(CapabilityTest, ForgedOnesAreRefused) {
  EXPECT_EQ(changed([](wire::Capability&) {}), "ok");
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_expires_ns(kNow + 1); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_rights(7); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_inode(kInode + 1); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.clear_mac(); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.mutable_mac()->pop_back(); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.mutable_mac()->front() ^= 1; }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.mutable_mac()->push_back('\0'); }), no_mac_);
  EXPECT_EQ(check_one(sign_capability(auth::Key{}, of(kInode, kRightRead, kNow))), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_entity("user/u1001"); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_serial(8); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_uid(0); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_client(6); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_session(7); }), no_mac_);
  EXPECT_EQ(changed([](wire::Capability& it) { it.set_generation(2); }),
            "there is no key for capabilities of generation 2");
  // Keys of users cannot sign capabilities.
  const auth::Key user = auth::client_key(key_, auth::user_entity({1000, 7}));
  EXPECT_EQ(check_one(sign_capability(user, of(kInode, kRightRead, kNow))), no_mac_);
  EXPECT_NE(check_one("\xff\xff").find("malformed"), std::string::npos);
  EXPECT_NE(check_one("").find("requires a capability"), std::string::npos);
}

TEST_F(CapabilityTest, IsOfNoUseToAnybodyElse) {
  const auto held_by = [&](auth::Entity holder) {
    const auto checked = check_capability(keyring_, both_, holder, kInode, kRightRead, kNow - 1);
    return checked ? std::string("ok") : checked.error().message;
  };
  EXPECT_EQ(held_by(holder_), "ok");
  EXPECT_EQ(held_by(auth::user_entity({1001, 7})),
            "the capability belongs to user/u1000, not to user/u1001");
  EXPECT_NE(held_by(auth::user_entity({1000, 8})), "ok") << "a later key of the same user";
  EXPECT_NE(held_by({.role = auth::Role::mount, .name = "u1000", .serial = 7}), "ok");
}

TEST_F(CapabilityTest, TwoGenerationsOfTheKeyAreValid) {
  auth::Key next = key_;
  next[0] = std::byte{9};
  keyring_.set_capability_keys({{1, key_}, {2, next}});
  EXPECT_EQ(check_one(both_), "ok");
  Capability second = of(kInode, kRightRead, kNow);
  second.generation = 2;
  EXPECT_EQ(check_one(sign_capability(next, second)), "ok");
  EXPECT_EQ(check_one(sign_capability(key_, second)), no_mac_);
}

// An untrusted client with a token, beside trusted clients.
class UserTest : public testing::Test {
 protected:
  ~UserTest() override {
    world_.run(client_.close());
    world_.run(trusted_.close());
  }
  std::string can(uint32_t rights, uint64_t inode = 1, int64_t for_ns = kSecond * 1000) {
    const int64_t now_ns = world_.sim.loop().clock().wall_ns();
    return sign_capability(auth::Key{}, {.inode = inode,
                                         .rights = rights,
                                         .expires_ns = now_ns + for_ns,
                                         .entity = "user/u1000",
                                         .serial = 7,
                                         .uid = 1000});
  }
  // "" or the error message.
  std::string write(std::string capability, chunk::ChunkId id = {1, 0}) {
    const int64_t began_ns = world_.sim.now_ns();
    const chunk::Update update{.id = id, .data = as_bytes("text"), .chunk_size = kChunkSize};
    const auto done = world_.run(client_.update(kChain, update, std::move(capability)));
    EXPECT_LT(world_.sim.now_ns() - began_ns, kSecond) << "it is final";
    return said(done);
  }
  std::string read(const std::string& capability, chunk::ChunkId id = {1, 0}) {
    const int64_t began_ns = world_.sim.now_ns();
    std::string text(kChunkSize, '?');
    std::vector<ChainClient::ReadIo> pieces = {{.chain = kChain,
                                                .id = id,
                                                .into = std::as_writable_bytes(std::span(text)),
                                                .capability = capability}};
    const auto got = world_.run(client_.read(std::move(pieces)));
    EXPECT_LT(world_.sim.now_ns() - began_ns, kSecond) << "it is final";
    const std::string untouched(kChunkSize, '?');
    EXPECT_EQ(got[0] ? text.substr(0, got[0]->bytes) : "text", "text");
    EXPECT_TRUE(got[0].ok() || text == untouched);
    return said(got[0]);
  }
  std::string last(std::string capability, uint64_t inode = 1) {
    const int64_t began_ns = world_.sim.now_ns();
    const auto found = world_.run(client_.last_chunk(kChain, inode, std::move(capability)));
    EXPECT_LT(world_.sim.now_ns() - began_ns, kSecond) << "it is final";
    return said(found);
  }
  template <class T>
  static std::string said(const Result<T>& result) {
    if (result) return "";
    EXPECT_EQ(result.error().code, Errc::refused) << result.error().message;
    return result.error().message;
  }
  static void expect_said(const std::string& message, std::string_view words) {
    EXPECT_NE(message.find(words), std::string::npos) << "'" << message << "'";
  }

  ChainWorld world_{3};
  Metrics metrics_;
  rpc::GrantScheduler grants_;
  std::unique_ptr<net::Transport> transport_ =
      world_.net.transport("user", auth::user_entity({1000, 7}));
  rpc::ClientContext context_{world_.sim.loop(), *transport_, grants_,
                              metrics_,          world_.rng,  ChainWorld::identity("user")};
  ClientMachine trusted_machine_{world_, "trusted"};
  ChainClient client_{context_, world_.truth, [] {}};
  ChainClient trusted_{trusted_machine_.context, world_.truth, [] {}};
};

TEST_F(UserTest, WritesAndReadsWithACapability) {
  EXPECT_EQ(write(can(kRightWrite)), "");
  EXPECT_EQ(read(can(kRightRead)), "");
  EXPECT_EQ(last(can(kRightRead)), "");
  EXPECT_EQ(write(can(kRightRead | kRightWrite)), "");
  EXPECT_TRUE(world_.run(client_.sync(kChain)).ok());
  world_.expect_equal(0, 2);
  EXPECT_EQ(world_.store(0).state(world_.target(0), {1, 0})->committed.version, 2u);
}

TEST_F(UserTest, DoesNothingWithoutOneThatIsGood) {
  ASSERT_EQ(write(can(kRightWrite)), "");
  struct Case {
    std::string capability;
    std::string_view words;
  };
  const auto cases = [&](uint32_t right, std::string_view name) {
    wire::Capability changed;
    EXPECT_TRUE(changed.ParseFromString(can(right)));
    changed.mutable_mac()->back() ^= 1;
    const std::string forged = changed.SerializeAsString();
    return std::vector<Case>{{"", "access to file 1 requires a capability"},
                             {can(right, 2), "the capability is for file 2, not 1"},
                             {can(3 - right), name},
                             {can(right, 1, 0), "the capability has expired"},
                             {forged, "not signed"}};
  };
  for (const Case& one : cases(kRightWrite, "does not grant write access to file 1")) {
    expect_said(write(one.capability), one.words);
  }
  for (const Case& one : cases(kRightRead, "does not grant read access to file 1")) {
    expect_said(read(one.capability), one.words);
    expect_said(last(one.capability), one.words);
  }
  EXPECT_EQ(world_.store(0).state(world_.target(0), {1, 0})->committed.version, 1u);
}

TEST_F(UserTest, CannotDoWhatTargetsDo) {
  const auto address = net::parse_address("n1:7000").value();
  rpc::Client node(context_, address, auth::Service{auth::Role::storage, "1"});
  const int64_t deadline_ns = world_.sim.now_ns() + 10 * kSecond;
  const auto refused = [&](auto method, auto request) {
    request.mutable_place()->set_chain(kChain);
    request.mutable_place()->set_chain_version(world_.version());
    request.mutable_place()->set_target(world_.target(0));
    const auto reply = world_.run(rpc::call_method(node, method, request, deadline_ns));
    ASSERT_FALSE(reply.ok()) << method.name;
    EXPECT_EQ(reply.error().code, Errc::refused) << method.name;
    expect_said(reply.error().message, fmt::format("{} is not for the role 'user'", method.name));
  };
  refused(kCommitted, wire::CommittedRequest());
  refused(kList, wire::ListRequest());
  refused(kErase, wire::EraseRequest());
  refused(kCopy, wire::CopyRequest());
  refused(kResults, wire::ResultsRequest());
  refused(kCopied, wire::CopiedRequest());
  refused(kAbsent, wire::AbsentRequest());
  refused(kCompare, wire::CompareRequest());
  refused(kRepair, wire::RepairRequest());
  const auto forwarded =
      world_.run(rpc::call_method(node, kForward, wire::ForwardRequest(), deadline_ns));
  EXPECT_EQ(forwarded.error().code, Errc::refused);
  world_.run(node.close());
}

// A refused item does not affect the other items.
TEST_F(UserTest, EachPieceHasItsOwnCapability) {
  ASSERT_EQ(write(can(kRightWrite)), "");
  ASSERT_EQ(write(can(kRightWrite, 2), {2, 0}), "");
  const std::string good = can(kRightRead);
  std::string memory(2 * 100, '?');
  const ByteSpan into = std::as_writable_bytes(std::span(memory));
  std::vector<ChainClient::ReadIo> pieces = {
      {.chain = kChain, .id = {2, 0}, .into = into.first(100), .capability = good},
      {.chain = kChain, .id = {1, 0}, .into = into.subspan(100), .capability = good},
      {.chain = kChain, .id = {1, 7}, .into = into.first(50), .capability = good}};
  const auto got = world_.run(client_.read(std::move(pieces)));
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].error().code, Errc::refused);
  ASSERT_TRUE(got[1].ok());
  EXPECT_EQ(got[2].error().code, Errc::not_found);
  EXPECT_EQ(memory.substr(0, 100), std::string(100, '?'));
  EXPECT_EQ(memory.substr(100, 4), "text");
}

TEST_F(UserTest, TrustedClientsNeedNone) {
  const chunk::Update update{.id = {1, 0}, .data = as_bytes("text"), .chunk_size = kChunkSize};
  EXPECT_TRUE(world_.run(trusted_.update(kChain, update)).ok());
  EXPECT_TRUE(world_.run(trusted_.last_chunk(kChain, 1)).ok());
  EXPECT_TRUE(world_.run(trusted_.update(kChain, update, "nonsense")).ok());
}

// An update whose response was lost may have been applied: an expired capability in a retry does
// not prove the opposite.
TEST_F(UserTest, ACapabilityThatExpiresMeanwhileLeavesAnUpdateOpen) {
  ASSERT_EQ(write(can(kRightWrite)), "");
  world_.net.block("n1", "user");
  std::optional<Result<ChainClient::UpdateResult>> done;
  const chunk::Update update{
      .id = {1, 0}, .type = chunk::UpdateType::truncate, .length = 2, .chunk_size = kChunkSize};
  world_.begin(client_.update(kChain, update, can(kRightWrite, 1, kSecond)), done);
  ASSERT_TRUE(world_.eventually([&] {
    return world_.store(0).state(world_.target(0), {1, 0})->committed.version == 2;
  }));
  world_.sim.run_for(20 * kSecond);  // the connection is dropped, and with it the response
  world_.net.unblock("n1", "user");
  ASSERT_TRUE(world_.eventually([&] { return done.has_value(); }));
  ASSERT_FALSE(done->ok());
  EXPECT_EQ(done->error().code, Errc::interrupted);
  expect_said(done->error().message, "the capability has expired");
}

}  // namespace
}  // namespace ff::chain
