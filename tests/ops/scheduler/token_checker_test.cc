// Tokens: a removed one is refused in time, also while nobody answers; and the file of revoked
// tokens.
#include "ops/scheduler/token_checker.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ops/scheduler/revoked_tokens.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/sim/sim_world.h"

namespace ff::scheduler {
namespace {

constexpr auth::TokenId kAdasToken{.uid = 1000, .serial = 1};
constexpr auth::TokenId kBobsToken{.uid = 1001, .serial = 4};

// The list of a cluster, which may be unreachable.
class TokenCheckerTest : public testing::Test {
 protected:
  TokenCheckerTest() { log_setup({.level = LogLevel::none}); }

  Task<Result<TokenChecker::Tokens>> list() {
    requests_++;
    if (hangs_) {
      auto sleeping = sleep_for(loop_, 3600 * kSecond);
      FF_CO_TRY(co_await sleeping);
    }
    if (!reachable_) co_return fail(Errc::unreachable, "nobody listens");
    co_return tokens_;
  }
  Result<void> check(auth::TokenId token) { return run_task(loop_, checker_.check(token)); }
  void pass(int64_t ns) {
    run_task(loop_, [](sim::SimLoop& on, int64_t pause_ns) -> Task<void> {
      (void)co_await sleep_for(on, pause_ns);
    }(loop_, ns));
  }

  sim::SimWorld world_;
  sim::SimLoop& loop_ = world_.loop();
  TokenChecker::Tokens tokens_ = {{1000, 1}, {1000, 2}};
  bool reachable_ = true, hangs_ = false;
  int requests_ = 0;
  TokenChecker checker_{loop_, [this] { return list(); }};
};

TEST_F(TokenCheckerTest, ARemovedTokenIsRefusedInTime) {
  EXPECT_TRUE(check(kAdasToken).ok());
  EXPECT_EQ(check(kBobsToken).error().code, Errc::refused);
  tokens_.erase({1000, 1});
  pass(TokenChecker::kCacheNs);
  const auto refused = check(kAdasToken);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find("token 1 of user 1000 is revoked"), std::string::npos);
  EXPECT_TRUE(check({.uid = 1000, .serial = 2}).ok());
}

TEST_F(TokenCheckerTest, ANewTokenIsKnownAtOnce) {
  EXPECT_EQ(check(kBobsToken).error().code, Errc::refused);
  tokens_.emplace(kBobsToken.uid, kBobsToken.serial);
  pass(1);
  EXPECT_TRUE(check(kBobsToken).ok());
}

TEST_F(TokenCheckerTest, AnswersAreShared) {
  for (int i = 0; i < 100; i++) EXPECT_TRUE(check(kAdasToken).ok());
  EXPECT_EQ(requests_, 1);
  // Unknown tokens cannot cause many requests.
  const int64_t began_ns = loop_.now_ns();
  for (int i = 0; i < 10; i++) {
    pass(1);
    EXPECT_FALSE(check(kBobsToken).ok());
  }
  EXPECT_LE(requests_, 2 + (loop_.now_ns() - began_ns) / kSecond);
}

TEST_F(TokenCheckerTest, AnOutageIsBridgedForALimitedTime) {
  ASSERT_TRUE(check(kAdasToken).ok());
  const int64_t listed_ns = loop_.now_ns();
  reachable_ = false;
  while (loop_.now_ns() - listed_ns < TokenChecker::kOutageNs - 2 * kSecond) {
    ASSERT_TRUE(check(kAdasToken).ok());
    pass(kSecond);
  }
  EXPECT_LT(requests_, 2 + TokenChecker::kOutageNs / TokenChecker::kCacheNs);
  // A token that was not in the list is refused all the time.
  const auto unknown = check(kBobsToken);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("cannot check tokens"), std::string::npos);
  pass(2 * kSecond);
  const auto refused = check(kAdasToken);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::failed);
  for (const char* const word : {"cannot check tokens", "nobody listens", "5m"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
  EXPECT_NE(refused.error().hint.find("ff serve-meta"), std::string::npos);
  reachable_ = true;
  EXPECT_TRUE(check(kAdasToken).ok());
}

TEST_F(TokenCheckerTest, WithoutAnyAnswerNobodyIsAccepted) {
  reachable_ = false;
  const auto refused = check(kAdasToken);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("since the scheduler started"), std::string::npos)
      << refused.error().message;
}

TEST_F(TokenCheckerTest, ASilentServerDoesNotHoldUsersUp) {
  ASSERT_TRUE(check(kAdasToken).ok());
  hangs_ = true;
  pass(TokenChecker::kCacheNs);
  const int64_t began_ns = loop_.now_ns();
  EXPECT_TRUE(check(kAdasToken).ok());
  EXPECT_LE(loop_.now_ns() - began_ns, 5 * kSecond);  // simulated time
  EXPECT_EQ(check(kBobsToken).error().code, Errc::failed);
}

class RevokedTokensTest : public testing::Test {
 protected:
  void write(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    clock_.advance(RevokedTokens::kReadAgainNs);
  }
  Errc code(auth::TokenId token) {
    const auto checked = tokens_.check(token);
    return checked ? Errc::exists : checked.error().code;  // exists: it is valid
  }

  io::TempDir dir_;
  const std::string path_ = dir_ / "revoked";
  io::SystemDisk disk_;
  sim::SimClock clock_;
  RevokedTokens tokens_{disk_, clock_, path_};
};

TEST_F(RevokedTokensTest, UsersAndSingleTokens) {
  write("# whoever has left\n\n 1000\t # ann\n1001 4\r\n");
  EXPECT_EQ(code(kAdasToken), Errc::refused);
  EXPECT_EQ(code({.uid = 1000, .serial = 99}), Errc::refused);
  EXPECT_EQ(code(kBobsToken), Errc::refused);
  EXPECT_EQ(code({.uid = 1001, .serial = 5}), Errc::exists);
  EXPECT_EQ(code({.uid = 1002, .serial = 4}), Errc::exists);
  write("1002");
  EXPECT_EQ(code(kAdasToken), Errc::exists);
  EXPECT_EQ(code({.uid = 1002, .serial = 4}), Errc::refused);
  write("");
  EXPECT_EQ(code({.uid = 1002, .serial = 4}), Errc::exists);
}

TEST_F(RevokedTokensTest, AFileThatCannotBeReadRefusesAll) {
  EXPECT_EQ(code(kAdasToken), Errc::failed);
  for (const char* const wrong : {"ann", "1000 1 2", "-1", "1000 x", "4294967296", "1000,1001"}) {
    write(std::string("1001\n") + wrong + "\n");
    const auto checked = tokens_.check(kAdasToken);
    ASSERT_FALSE(checked.ok()) << wrong;
    EXPECT_EQ(checked.error().code, Errc::failed) << wrong;
    EXPECT_NE(checked.error().message.find(path_ + ":2:"), std::string::npos)
        << checked.error().message;
    EXPECT_EQ(code(kAdasToken), Errc::failed) << wrong;  // no need to wait for the next read
  }
  write("1001\n");
  EXPECT_EQ(code(kAdasToken), Errc::exists);
  ASSERT_TRUE(std::filesystem::remove(path_));
  clock_.advance(RevokedTokens::kReadAgainNs);
  EXPECT_EQ(code(kAdasToken), Errc::failed);
}

}  // namespace
}  // namespace ff::scheduler
