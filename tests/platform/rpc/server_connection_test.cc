// One server connection against a scripted client, in simulated time.
#include "platform/rpc/server_connection.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/grant_scheduler.h"
#include "rpc_world.h"
#include "scripted_stream.h"

namespace ff::rpc {
namespace {

using net::FrameKind;
using Answer = Task<Result<std::string>>;

constexpr uint32_t kMethod = 7;
constexpr net::RemoteBuffer kSessionSink{.token = 1, .size = kMiB, .address = 0, .key = 0};

class SessionTest : public testing::Test {
 protected:
  // A server connection whose method does `handler`.
  void open(Handler handler, ServerConnectionLimits limits = {},
            std::unique_ptr<net::Bulk> bulk = nullptr) {
    router_.add(kMethod, "test.method", std::move(handler));
    methods_.emplace(router_, metrics_);
    script_.emplace(std::move(bulk));
    connection_.emplace(std::move(script_->connection), peer_, *methods_, limits, &keyring_);
    gate_.emplace(script_->loop);
    gate_->spawn(run());
  }
  Task<void> run() {
    co_await connection_->run();
    ended_ = true;
  }
  void TearDown() override {
    if (!connection_) return;
    connection_->stop(fail(Errc::unreachable, "the test is over"));
    run_task(script_->loop, gate_->wait_empty());
    EXPECT_TRUE(ended_);
  }
  void feed(net::FrameHeader head, std::string_view message = {}) {
    script_->stream->feed(head, message);
    script_->settle();
  }
  void call(uint64_t number, std::string_view message = {}, uint32_t deadline_ms = 0,
            uint8_t flags = 0, uint32_t method = kMethod) {
    feed({.kind = FrameKind::call,
          .flags = flags,
          .call = number,
          .method = method,
          .deadline_ms = deadline_ms},
         message);
  }
  // The answer to the only call that has been answered.
  Result<std::string> answer() {
    const auto sent = script_->sent();
    if (sent.size() != 1 || sent[0].head.kind != FrameKind::reply) {
      return fail(Errc::incomplete, "{} frames", sent.size());
    }
    if ((sent[0].head.flags & kFlagError) == 0) return sent[0].message;
    wire::Error error;
    FF_CHECK(error.ParseFromString(sent[0].message));
    return from_wire(error);
  }
  void expect_broken(std::string_view words) {
    ASSERT_TRUE(connection_->connection().failed());
    EXPECT_EQ(connection_->connection().fault(), net::FrameFault::protocol);
    const std::string& message = connection_->connection().close_reason()->message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("client at script"), std::string::npos) << message;
    script_->settle();
    EXPECT_TRUE(ended_);
  }
  uint64_t counted(std::string_view code) { return answered_calls(metrics_, "test.method", code); }

  Peer peer_{.name = "client",
             .software = "ff x",
             .address = "script",
             .has_key = true,
             .entity = auth::admin_entity("ann")};
  auth::Keyring keyring_{{.role = auth::Role::meta, .name = "m1"}};
  Metrics metrics_;
  Router router_;
  std::optional<ServerMethods> methods_;
  std::optional<Scripted> script_;
  std::optional<ServerConnection> connection_;
  std::optional<Gate> gate_;
  bool ended_ = false;
};

Answer echo(ServerCall&, std::string message) { co_return message; }

Answer never(ServerCall& call, std::string) {
  FF_CO_TRY(co_await sleep_until(call.loop(), INT64_MAX - 1));
  co_return std::string();
}

TEST_F(SessionTest, AHandlerSeesWhoCallsAndHowLongItHas) {
  std::vector<int64_t> deadlines;
  open([&deadlines](ServerCall& call, std::string) -> Answer {
    deadlines.push_back(call.deadline_ns());
    co_return call.peer().text() + (call.peer().has_key ? ", with the key" : "");
  });
  call(1);
  EXPECT_EQ(*answer(), "client at script, with the key");
  call(2, "", 1500);
  EXPECT_TRUE(answer().ok());
  const int64_t now = script_->loop.now_ns();
  ASSERT_EQ(deadlines.size(), 2u);
  EXPECT_LE(deadlines[0], now + 24 * 3600 * kSecond) << "no call runs for ever";
  EXPECT_LE(deadlines[1], now + 1500 * kMillisecond);
  EXPECT_GT(deadlines[1], now + 1499 * kMillisecond);
}

TEST_F(SessionTest, TheDeadlineEndsACallOfItself) {
  open(never);
  call(1, "", 1500);
  script_->world.run_for(1400 * kMillisecond);
  EXPECT_EQ(connection_->calls(), 1u);
  script_->world.run_for(200 * kMillisecond);
  EXPECT_EQ(answer().error().code, Errc::deadline);
  EXPECT_EQ(connection_->calls(), 0u);
  EXPECT_EQ(counted("deadline"), 1u);
}

// A handler that computes for long, without a wait in which it could be cancelled.
TEST_F(SessionTest, NothingIsPushedAfterTheDeadline) {
  std::vector<std::byte> bytes(100);
  open([this, &bytes](ServerCall& call, std::string) -> Answer {
    script_->world.clock().advance(2 * kSecond);
    FF_CO_TRY(co_await call.push(kSessionSink, 0, bytes));
    co_return std::string("pushed");
  });
  call(1, "", 1500);
  EXPECT_EQ(answer().error().code, Errc::deadline);
  call(2, "", 2500);
  const auto sent = script_->sent();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].head.kind, FrameKind::push);
}

TEST_F(SessionTest, LargeBulkWaitsForAGrantUnlessTheCallBringsOne) {
  std::vector<std::byte> bytes(kUngrantedMax + 1);
  open([&bytes](ServerCall& call, std::string message) -> Answer {
    const ByteView part = ByteView(bytes).first(message == "small" ? kUngrantedMax : bytes.size());
    FF_CO_TRY(co_await call.push(kSessionSink, 0, part));
    FF_CO_TRY(co_await call.push(kSessionSink, 0, part));
    co_return std::string("pushed");
  });
  const auto kinds = [this] {
    std::string text;
    for (const auto& frame : script_->sent()) {
      switch (frame.head.kind) {
        case FrameKind::request_to_send: text += "ask "; break;
        case FrameKind::push: text += "push "; break;
        case FrameKind::reply: text += "reply "; break;
        default: text += "? "; break;
      }
    }
    return text;
  };
  call(1, "small");
  EXPECT_EQ(kinds(), "push push reply ");
  call(2, "large");
  EXPECT_EQ(kinds(), "ask ");
  feed({.kind = FrameKind::grant, .call = 1});  // an older call's
  EXPECT_EQ(kinds(), "");
  feed({.kind = FrameKind::grant, .call = 2});
  EXPECT_EQ(kinds(), "push push reply ");
  call(3, "large", 0, net::kFlagGranted);
  EXPECT_EQ(kinds(), "push push reply ");
}

TEST_F(SessionTest, MemoryOfThisMachineNeedsNoGrantAndIsReached) {
  std::vector<std::byte> memory(10);
  std::optional<ByteSpan> reached;
  open(
      [&reached](ServerCall& call, std::string) -> Answer {
        const net::RemoteBuffer buffer{.token = 1, .size = kMiB, .address = 0, .key = 1};
        if (const auto mapped = call.mapped_memory(buffer)) reached = mapped->bytes();
        const std::vector<std::byte> bytes(kUngrantedMax + 1);
        const auto pushed = co_await call.push(buffer, 0, bytes);
        co_return pushed.error().message;
      },
      {}, std::make_unique<ScriptedBulk>(memory));
  call(1);
  EXPECT_EQ(*answer(), "not in this test");
  ASSERT_TRUE(reached.has_value());
  EXPECT_EQ(reached->data(), memory.data());
}

TEST_F(SessionTest, ACancelEndsItsCallAlone) {
  open(never);
  call(1);
  call(2);
  feed({.kind = FrameKind::cancel, .call = 1});
  EXPECT_EQ(answer().error().code, Errc::interrupted);
  EXPECT_EQ(connection_->calls(), 1u);
  feed({.kind = FrameKind::cancel, .call = 1});  // has ended
  feed({.kind = FrameKind::grant, .call = 1});
  EXPECT_TRUE(script_->sent().empty());
  EXPECT_FALSE(connection_->connection().failed());
}

TEST_F(SessionTest, ALostConnectionCancelsItsCalls) {
  open(never);
  call(1);
  call(2);
  script_->stream->end();
  script_->settle();
  EXPECT_TRUE(ended_);
  EXPECT_EQ(connection_->calls(), 0u);
  EXPECT_EQ(counted("unreachable"), 2u);
}

TEST_F(SessionTest, CallsUnderWayAreBounded) {
  open(never, {.calls_max = 2});
  call(1);
  call(2);
  EXPECT_TRUE(script_->sent().empty());
  call(3);
  const auto third = answer();
  EXPECT_EQ(third.error().code, Errc::busy);
  EXPECT_NE(third.error().message.find("client at script"), std::string::npos);
  feed({.kind = FrameKind::cancel, .call = 1});
  (void)script_->sent();
  call(4);
  EXPECT_TRUE(script_->sent().empty());
}

TEST_F(SessionTest, BytesOfMessagesUnderWayAreBounded) {
  open(
      [](ServerCall& call, std::string message) -> Answer {
        if (message.starts_with("slow")) FF_CO_TRY(co_await sleep_for(call.loop(), kSecond));
        co_return std::string("done");
      },
      {.message_bytes_max = 1000});
  const std::string fast(600, 'x');
  for (uint64_t number = 1; number <= 5; number++) {  // one after the other they fit
    call(number, fast);
    EXPECT_TRUE(answer().ok());
  }
  call(6, "slow" + fast);
  call(7, fast);
  EXPECT_EQ(answer().error().code, Errc::busy);
  script_->world.run_for(2 * kSecond);
  EXPECT_TRUE(answer().ok());
  call(8, fast);
  EXPECT_TRUE(answer().ok());
}

TEST_F(SessionTest, ADrainTellsTheClientAndEndsNothing) {
  open([](ServerCall& call, std::string) -> Answer {
    FF_CO_TRY(co_await sleep_for(call.loop(), kSecond));
    co_return std::string("done");
  });
  call(1);
  connection_->drain();
  auto sent = script_->sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].head.kind, FrameKind::goaway);
  call(2);  // sent before the client has heard it
  EXPECT_EQ(answer().error().code, Errc::unreachable);
  script_->world.run_for(2 * kSecond);
  EXPECT_EQ(*answer(), "done");
}

TEST_F(SessionTest, StopEndsCallsAndConnection) {
  open(never);
  call(1);
  connection_->stop(fail(Errc::unreachable, "the server goes down"));
  script_->settle();
  EXPECT_TRUE(ended_);
  EXPECT_TRUE(script_->stream->closed());
  EXPECT_EQ(connection_->connection().close_reason()->message, "the server goes down");
}

TEST_F(SessionTest, ACallMadeTwiceBreaksTheConnection) {
  open(never);
  call(1);
  call(1);
  expect_broken("call 1 was made twice");
}

TEST_F(SessionTest, AFrameForAClientBreaksTheConnection) {
  open(echo);
  feed({.kind = FrameKind::reply, .call = 1});
  expect_broken("a frame of kind 3 for a server");
}

TEST_F(SessionTest, AnswersAndErrorsFitIntoAFrame) {
  open([](ServerCall&, std::string message) -> Answer {
    std::string large(net::kMessageMax + 1, 'x');
    if (message == "answer") co_return large;
    co_return fail(Errc::disk_full, "{}", large);
  });
  call(1, "answer");
  const auto too_long = answer();
  EXPECT_EQ(too_long.error().code, Errc::failed);
  EXPECT_NE(too_long.error().message.find("the limit is"), std::string::npos);
  call(2, "error");
  const auto cut = answer();
  EXPECT_EQ(cut.error().code, Errc::disk_full);
  EXPECT_GT(cut.error().message.size(), 1000u);
}

TEST_F(SessionTest, UnknownMethodsAreRefusedAndShareOneSeries) {
  open(echo);
  for (uint64_t number = 1; number <= 20; number++) {
    call(number, "", 0, 0, 1000 + static_cast<uint32_t>(number));
    EXPECT_EQ(answer().error().code, Errc::unsupported);
  }
  EXPECT_EQ(&methods_->find(1001), &methods_->find(1002));
  EXPECT_NE(&methods_->find(1001), &methods_->find(kMethod));
  EXPECT_EQ(series(metrics_, "ff_rpc_server_calls_total{method=\"unknown\",code=\"unsupported\"}"),
            20u);
}

TEST_F(SessionTest, UsersCallWhatIsForUsersAlone) {
  constexpr uint32_t kForUsers = 8;
  peer_.entity = auth::user_entity({1000, 7});
  router_.add(kForUsers, "test.for_users", echo, auth::kFileClients);
  open([](ServerCall&, std::string) -> Answer {
    ADD_FAILURE() << "it was called";
    co_return std::string();
  });
  call(1, "hello", 0, 0, kForUsers);
  EXPECT_EQ(*answer(), "hello");
  call(2);
  const auto refused = answer();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_EQ(refused.error().message,
            "test.method is not for the role 'user': client at script came as user/u1000");
  EXPECT_NE(refused.error().hint.find("ff admin key create"), std::string::npos);
  EXPECT_EQ(counted("refused"), 1u);
  EXPECT_FALSE(connection_->connection().failed());
}

TEST_F(SessionTest, EveryRoleCallsItsOwnMethodsAlone) {
  const std::vector<auth::Role> all = {
      auth::Role::admin,     auth::Role::meta,  auth::Role::storage, auth::Role::mount,
      auth::Role::scheduler, auth::Role::agent, auth::Role::user,    auth::Role::rank};
  for (const auth::Role mine : all) {
    peer_.entity = auth::Entity{.role = mine, .name = "a", .uids = {{1, 1}}};
    Router router;
    for (const auth::Role role : all) {
      router.add(static_cast<uint32_t>(role), auth::role_name(role), echo, auth::Roles{role});
    }
    ServerMethods methods(router, metrics_);
    Scripted script;
    ServerConnection connection(std::move(script.connection), peer_, methods, {});
    Gate gate(script.loop);
    gate.spawn(connection.run());
    for (const auth::Role role : all) {
      script.stream->feed(
          {.kind = FrameKind::call, .call = 1, .method = static_cast<uint32_t>(role)}, "");
      script.settle();
      const auto sent = script.sent();
      ASSERT_EQ(sent.size(), 1u);
      EXPECT_EQ((sent[0].head.flags & kFlagError) == 0, role == mine) << auth::role_name(role);
    }
    connection.stop(fail(Errc::unreachable, "the test is over"));
    run_task(script.loop, gate.wait_empty());
  }
}

TEST_F(SessionTest, ARevokedKeyEndsOnAnOpenConnection) {
  peer_.entity->serial = 7;
  open(echo);
  call(1);
  EXPECT_TRUE(answer().ok());
  auth::Revocations list{.version = 1};
  list.serials["admin/ann"] = 7;
  keyring_.set_revocations(list);
  call(2);
  const auto sent = script_->sent();
  ASSERT_EQ(sent.size(), 2u);  // the refusal, and a goaway
  EXPECT_TRUE((sent[0].head.flags & kFlagError) != 0);
  EXPECT_EQ(sent[1].head.kind, FrameKind::goaway);
  EXPECT_EQ(counted("refused"), 1u);
}

TEST_F(SessionTest, AKeyExpiresOnAnOpenConnection) {
  script_.emplace(nullptr);
  peer_.entity->expires_s = script_->loop.clock().wall_ns() / kSecond + 5;
  open(echo);
  call(1);
  EXPECT_TRUE(answer().ok());
  script_->world.run_for(6 * kSecond);
  (void)script_->sent();  // pings
  call(2);
  const auto sent = script_->sent();
  ASSERT_GE(sent.size(), 1u);
  EXPECT_TRUE((sent[0].head.flags & kFlagError) != 0);
}

TEST_F(SessionTest, WhoHasProvenNothingIsNotTrusted) {
  peer_.entity.reset();
  open(echo);
  call(1);
  const auto refused = answer();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
}

TEST_F(SessionTest, WithoutAKeyAllAreTrusted) {
  peer_.has_key = false;
  peer_.entity.reset();
  open(echo);
  call(1, "hello");
  EXPECT_EQ(*answer(), "hello");
}

TEST(RouterTest, HasOneHandlerANumber) {
  Router router;
  router.add(1, "first", echo);
  EXPECT_EQ(router.find(2), nullptr);
  ASSERT_NE(router.find(1), nullptr);
  EXPECT_EQ(router.find(1)->name, "first");
  EXPECT_EQ(router.find(1)->roles, auth::kOperators);
  EXPECT_DEATH(router.add(1, "second", echo), "check failed");
}

}  // namespace
}  // namespace ff::rpc
