// Connections: pipelines and their order, slow readers, transactions between clients, logging in.
#include "storage/gateway/gateway_connection.h"

#include <gtest/gtest.h>

#include "storage/gateway/redis_world.h"

namespace ff::gateway {
namespace {

class RedisConnectionTest : public testing::Test {
 protected:
  RedisWorld world_;
  RedisWorld::Client client_{world_, 1};
};

TEST_F(RedisConnectionTest, RepliesComeInTheOrderOfTheRequests) {
  std::string text, expected;
  for (int i = 0; i < 1000; i++) {
    text += encode_request({"SET", fmt::format("k{}", i % 7), std::to_string(i)});
    text += encode_request({"GET", fmt::format("k{}", i % 7)});
    text += encode_request({"NOSUCH"}) + "PING\r\n";
    expected += fmt::format("+OK\r\n${}\r\n{}\r\n", std::to_string(i).size(), i);
    expected += "-ERR unknown command 'NOSUCH', with args beginning with: \r\n+PONG\r\n";
  }
  EXPECT_EQ(client_.say(text), expected);
}

TEST_F(RedisConnectionTest, CommandsOnOneKeyRunInOrder) {
  std::string text, expected;
  for (int i = 1; i <= 300; i++) {
    text += "INCR n\r\nAPPEND s x\r\n";
    expected += fmt::format(":{}\r\n:{}\r\n", i, i);
  }
  EXPECT_EQ(client_.say(text + "GET n\r\n"), expected + "$3\r\n300\r\n");
}

TEST_F(RedisConnectionTest, ValuesThatWereReadAreNotReadAgain) {
  HashValue hash;
  hash.set("f", "v");
  world_.store.put("k", "v");
  world_.store.put("h", hash.encode());
  EXPECT_EQ(client_.say("GET k\r\nGET h\r\n").substr(0, 17), "$1\r\nv\r\n-WRONGTYPE");
  EXPECT_EQ(world_.store.reads, 2u);
  const std::string many = "GET k\r\nGET none\r\nMGET k none\r\nSTRLEN k\r\nGETRANGE k 0 0\r\n";
  EXPECT_EQ(client_.say(many), "$1\r\nv\r\n$-1\r\n*2\r\n$1\r\nv\r\n$-1\r\n:1\r\n$1\r\nv\r\n");
  EXPECT_EQ(client_.say("GET h\r\n").substr(0, 10), "-WRONGTYPE");
  EXPECT_EQ(world_.store.reads, 2u);
  // Whoever changes the key.
  world_.store.put("k", "w");
  EXPECT_EQ(client_.say("GET k\r\n"), "$1\r\nw\r\n");
  EXPECT_EQ(client_.say("SET k x\r\nGET k\r\nGET k\r\n"), "+OK\r\n$1\r\nx\r\n$1\r\nx\r\n");
  EXPECT_EQ(client_.say("DEL k\r\nGET k\r\n"), ":1\r\n$-1\r\n");
}

TEST_F(RedisConnectionTest, AfterALossOfItsPartitionsNothingIsKnown) {
  world_.store.put("k", "v");
  client_.say("GET k\r\n");
  world_.world.run_for(4 * kSecond);
  world_.store.others[world_.store.partition_of("k")] = "other:1";
  world_.store.lost = 1;
  world_.world.run_for(4 * kSecond);
  world_.store.others.clear();
  const size_t before = world_.store.reads;
  EXPECT_EQ(client_.say("GET k\r\n"), "$1\r\nv\r\n");
  EXPECT_EQ(world_.store.reads, before + 1);
}

TEST_F(RedisConnectionTest, ClientsIncrementTogether) {
  RedisWorld::Client other(world_, 2);
  for (int i = 0; i < 100; i++) {
    client_.stream->feed("INCR n\r\n");
    other.stream->feed("INCR n\r\n");
  }
  client_.settle();
  EXPECT_EQ(client_.say("GET n\r\n"), "$3\r\n200\r\n");
}

TEST_F(RedisConnectionTest, AChangeFromElsewhereIsNotOverwritten) {
  world_.store.put("n", "5");
  int left = 1;
  world_.store.before_apply = [&] {
    if (left-- > 0) world_.store.put("n", "100");
  };
  EXPECT_EQ(client_.say("INCR n\r\n"), ":101\r\n");
  left = 1000;
  EXPECT_EQ(client_.say("INCR n\r\n"), "-TRYAGAIN the keys change too often\r\n");
}

TEST_F(RedisConnectionTest, AClientThatTakesNoRepliesIsNotRead) {
  world_.store.put("k", std::string(100'000, 'v'));
  client_.stream->take(0);
  std::string text;
  for (int i = 0; i < 20'000; i++) text += encode_request({"GET", "k"});
  EXPECT_EQ(client_.say(text), "");
  EXPECT_GT(client_.stream->unread(), text.size() / 2);
  // What runs when the bound is reached still replies.
  constexpr size_t kMost =
      RedisConnection::kRepliesWait + RedisConnection::kRunningMax * size_t{100'100};
  EXPECT_LE(client_.connection().unsent(), kMost);
  const std::string reply = fmt::format("$100000\r\n{}\r\n", std::string(100'000, 'v'));
  client_.stream->take(reply.size() + 10);
  EXPECT_EQ(client_.settle(), reply + reply.substr(0, 10));
  // It takes the rest.
  client_.stream->take(SIZE_MAX);
  size_t bytes = 0;
  while (const size_t more = client_.settle().size()) bytes += more;
  EXPECT_EQ(bytes, 20'000 * reply.size() - reply.size() - 10);
  EXPECT_EQ(client_.connection().unsent(), 0u);
}

TEST_F(RedisConnectionTest, ProtocolErrorsEndTheConnectionAfterTheReplies) {
  EXPECT_EQ(client_.say("SET k v\r\nGET k\r\n*1\r\n!\r\nPING\r\n"),
            "+OK\r\n$1\r\nv\r\n-ERR Protocol error: expected '$', got '!'\r\n");
  EXPECT_TRUE(client_.stream->closed());
}

TEST_F(RedisConnectionTest, QuitAndTheEndOfInput) {
  EXPECT_EQ(client_.say("SET k v\r\nQUIT\r\nSET k w\r\n"), "+OK\r\n+OK\r\n");
  EXPECT_TRUE(client_.stream->closed());
  RedisWorld::Client other(world_, 2);
  other.stream->feed("SET k x\r\nGET k\r\n");
  other.stream->end();
  EXPECT_EQ(other.settle(), "+OK\r\n$1\r\nx\r\n");
  EXPECT_TRUE(other.stream->closed());
}

TEST_F(RedisConnectionTest, DrainFinishesWhatHasBegun) {
  client_.stream->feed("SET a 1\r\nSET b 2\r\n");
  world_.world.run_for(0);
  client_.settle();
  client_.connection().drain();
  client_.stream->feed("SET c 3\r\n");
  EXPECT_EQ(client_.settle(), "");
  EXPECT_TRUE(client_.stream->closed());
  EXPECT_TRUE(world_.store.has("a") && world_.store.has("b"));
  EXPECT_FALSE(world_.store.has("c"));
}

TEST_F(RedisConnectionTest, ErrorsOfTheStore) {
  world_.store.put("k", "v");
  world_.store.error = fail(Errc::disk_full, "/kv/p0: No space left on device");
  EXPECT_EQ(client_.say("SET k w\r\n"), "-MISCONF /kv/p0: No space left on device\r\n");
  world_.store.error = fail(Errc::corrupt, "segment 3 is damaged");
  EXPECT_EQ(client_.say("GET k\r\n"), "-ERR segment 3 is damaged\r\n");
  world_.store.error.reset();
  EXPECT_EQ(client_.say("GET k\r\n"), "$1\r\nv\r\n");
  const uint32_t partition = world_.store.partition_of("foo");
  world_.store.others[partition] = "host:7000";
  EXPECT_EQ(client_.say("GET foo\r\n"), "-MOVED 12182 host:7000\r\n");
  EXPECT_EQ(client_.say("SET foo bar\r\n"), "-MOVED 12182 host:7000\r\n");
}

TEST_F(RedisConnectionTest, CommandsWaitForTheNextOwner) {
  world_.store.put("foo", "v");
  const uint32_t partition = world_.store.partition_of("foo");
  world_.store.others[partition] = "127.0.0.1:6379";  // as this process had before it was killed
  EXPECT_EQ(client_.say("SET foo w\r\nGET foo\r\nDBSIZE\r\n"), "");
  world_.world.run_for(5 * kSecond);
  EXPECT_EQ(client_.settle(), "");
  world_.store.others.clear();
  world_.world.run_for(kSecond);
  EXPECT_EQ(client_.settle(), "+OK\r\n$1\r\nw\r\n:1\r\n");
  world_.store.others[partition] = "127.0.0.1:6379";
  client_.say("GET foo\r\n");
  world_.world.run_for(11 * kSecond);
  EXPECT_EQ(client_.settle(), "-LOADING the gateway takes over slot 12182 within seconds\r\n");
  world_.store.others[partition] = "";
  client_.say("GET foo\r\n");
  world_.world.run_for(11 * kSecond);
  EXPECT_EQ(client_.settle(), "-CLUSTERDOWN Hash slot 12182 is not served\r\n");
  client_.say("DBSIZE\r\n");
  world_.world.run_for(11 * kSecond);
  EXPECT_EQ(client_.settle().substr(0, 12), "-CLUSTERDOWN");
}

// As Redis Cluster does it: the client learns of the other owner when it queues a command, or with
// EXEC. While a partition changes its owner, EXEC waits.
TEST_F(RedisConnectionTest, TransactionsOfOtherOwners) {
  const uint32_t partition = world_.store.partition_of("foo");
  world_.store.others[partition] = "host:7000";
  EXPECT_EQ(client_.say("MULTI\r\nSET foo 1\r\nEXEC\r\n"),
            "+OK\r\n-MOVED 12182 host:7000\r\n"
            "-EXECABORT Transaction discarded because of previous errors.\r\n");
  world_.store.others.clear();
  EXPECT_EQ(client_.say("MULTI\r\nSET foo 1\r\nGET foo\r\n"), "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
  world_.store.others[partition] = "";
  EXPECT_EQ(client_.say("EXEC\r\n"), "");
  world_.world.run_for(5 * kSecond);
  EXPECT_EQ(client_.settle(), "");
  world_.store.others.clear();
  world_.world.run_for(kSecond);
  EXPECT_EQ(client_.settle(), "*2\r\n+OK\r\n$1\r\n1\r\n");
  EXPECT_EQ(client_.say("MULTI\r\nSET foo 2\r\n"), "+OK\r\n+QUEUED\r\n");
  world_.store.others[partition] = "host:7000";
  EXPECT_EQ(client_.say("EXEC\r\n"), "-MOVED 12182 host:7000\r\n");
  world_.store.others[partition] = "";
  EXPECT_EQ(client_.say("MULTI\r\nSET foo 2\r\nEXEC\r\n"), "+OK\r\n+QUEUED\r\n");
  world_.world.run_for(11 * kSecond);
  EXPECT_EQ(client_.settle().substr(0, 11), "-EXECABORT ");
  world_.store.others.clear();
  EXPECT_EQ(client_.say("GET foo\r\n"), "$1\r\n1\r\n");
}

// What waits for a key, or watches it, notices that the key goes to another owner.
TEST_F(RedisConnectionTest, PartitionsThatAreGivenAway) {
  RedisWorld::Client other(world_, 2);
  EXPECT_EQ(client_.say("BLPOP foo 0\r\n"), "");
  EXPECT_EQ(other.say("WATCH foo\r\nMULTI\r\nSET foo 1\r\n"), "+OK\r\n+OK\r\n+QUEUED\r\n");
  const uint32_t partition = world_.store.partition_of("foo");
  world_.store.others[partition] = "host:7000";
  world_.store.lost = 1;
  world_.world.run_for(kSecond);
  EXPECT_EQ(client_.settle(), "-MOVED 12182 host:7000\r\n");
  world_.store.others.clear();  // and back again
  EXPECT_EQ(other.say("EXEC\r\n"), "*-1\r\n");
}

TEST_F(RedisConnectionTest, TransactionsAreOneChange) {
  const size_t before = world_.store.applied;
  EXPECT_EQ(
      client_.say("MULTI\r\nSET {t}a 1\r\nINCR {t}a\r\nHSET {t}b f v\r\nINCR {t}b\r\nEXEC\r\n"),
      "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n+OK\r\n:2\r\n:1\r\n"
      "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
  EXPECT_EQ(world_.store.applied, before + 1);
  EXPECT_EQ(client_.say("GET {t}a\r\n"), "$1\r\n2\r\n");
}

TEST_F(RedisConnectionTest, NothingOfAFailedTransactionIsWritten) {
  EXPECT_EQ(client_.say("MULTI\r\nSET {t}a 1\r\nNOSUCH\r\nEXEC\r\n").substr(0, 16),
            "+OK\r\n+QUEUED\r\n-E");
  EXPECT_FALSE(world_.store.has("{t}a"));
  client_.say("MULTI\r\nSET {t}a 1\r\n");
  world_.store.error = fail(Errc::disk_full, "full");
  EXPECT_EQ(client_.say("EXEC\r\n"),
            "-EXECABORT Transaction discarded because of: MISCONF full\r\n");
  world_.store.error.reset();
  EXPECT_FALSE(world_.store.has("{t}a"));
  EXPECT_EQ(client_.say("MULTI\r\nSET a 1\r\nSET b 2\r\nEXEC\r\n"),
            "+OK\r\n+QUEUED\r\n+QUEUED\r\n"
            "-CROSSSLOT Keys in request don't hash to the same slot\r\n");
  EXPECT_FALSE(world_.store.has("a"));
  EXPECT_EQ(client_.say("EXEC\r\n"), "-ERR EXEC without MULTI\r\n");
}

TEST_F(RedisConnectionTest, WatchedKeys) {
  RedisWorld::Client other(world_, 2);
  EXPECT_EQ(client_.say("WATCH {t}a\r\nMULTI\r\nSET {t}b 1\r\n"), "+OK\r\n+OK\r\n+QUEUED\r\n");
  EXPECT_EQ(other.say("SET {t}a 1\r\n"), "+OK\r\n");
  EXPECT_EQ(client_.say("EXEC\r\n"), "*-1\r\n");
  EXPECT_FALSE(world_.store.has("{t}b"));
  EXPECT_EQ(client_.say("WATCH {t}a\r\nMULTI\r\nSET {t}b 1\r\nEXEC\r\n"),
            "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
  // A key that another client changes while EXEC waits for the disk.
  EXPECT_EQ(client_.say("WATCH {t}a\r\nMULTI\r\nGET {t}a\r\n"), "+OK\r\n+OK\r\n+QUEUED\r\n");
  EXPECT_EQ(other.say("DEL {t}a\r\n"), ":1\r\n");
  EXPECT_EQ(client_.say("EXEC\r\n"), "*-1\r\n");
}

TEST_F(RedisConnectionTest, VersionThree) {
  EXPECT_EQ(client_.say("HELLO 3\r\n").substr(0, 16), "%7\r\n$6\r\nserver\r\n");
  EXPECT_EQ(client_.say("HSET h a 1\r\nHGETALL h\r\nGET none\r\n"),
            ":1\r\n%1\r\n$1\r\na\r\n$1\r\n1\r\n_\r\n");
  EXPECT_EQ(client_.say("HELLO 2\r\nGET none\r\n").find("*14\r\n"), 0u);
  EXPECT_EQ(client_.say("GET none\r\n"), "$-1\r\n");
}

class RedisLoginTest : public testing::Test {
 protected:
  static auth::Key root() {
    auth::Key key;
    key.fill(std::byte{3});
    return key;
  }
  static std::string token(uint32_t uid) {
    return auth::make_key_text(root(), {.role = auth::Role::user,
                                        .name = "ann",
                                        .serial = 1,
                                        .generation = 1,
                                        .uids = {{uid, uid}}});
  }
  RedisLoginTest() {
    world_.passwords.set_folder({.owner = 1000, .mode = 0755, .cluster_path = ""});
  }

  const std::shared_ptr<auth::Keyring> keyring_ =
      auth::Keyring::from_root(root(), {.role = auth::Role::meta, .name = "m1"});
  RedisWorld world_{keyring_};
  RedisWorld::Client client_{world_, 1};
};

TEST_F(RedisLoginTest, NothingWithoutAPassword) {
  const std::string refusal = "-NOAUTH Authentication required.\r\n";
  EXPECT_EQ(client_.say("GET k\r\nPING\r\nMULTI\r\nINFO\r\n"),
            refusal + refusal + refusal + refusal);
  EXPECT_EQ(client_.say("AUTH wrong\r\n"),
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
  EXPECT_EQ(client_.say("HELLO 3\r\n").substr(0, 13), "-NOAUTH HELLO");
  EXPECT_EQ(client_.say("GET k\r\n"), refusal);
  EXPECT_EQ(client_.say(encode_request({"SET", "k", std::string(17'000, 'v')})),
            "-ERR Protocol error: unauthenticated bulk length\r\n");
  EXPECT_TRUE(client_.stream->closed());
}

TEST_F(RedisLoginTest, ATokenOpensAndLargeValuesFollowAtOnce) {
  EXPECT_EQ(client_.say(encode_request({"AUTH", "ann", token(1000)}) +
                        encode_request({"SET", "k", std::string(17'000, 'v')}) + "STRLEN k\r\n"),
            "+OK\r\n+OK\r\n:17000\r\n");
  EXPECT_NE(client_.say("CLIENT INFO\r\n").find("user=user/ann"), std::string::npos);
  EXPECT_EQ(client_.say("RESET\r\nGET k\r\n"), "+RESET\r\n-NOAUTH Authentication required.\r\n");
  EXPECT_EQ(client_.say(encode_request({"HELLO", "3", "AUTH", "default", token(1000)})).front(),
            '%');
}

TEST_F(RedisLoginTest, OthersReadAsTheFolderSays) {
  world_.store.put("k", "v");
  EXPECT_EQ(client_.say(encode_request({"AUTH", token(1001)})), "+OK\r\n");
  EXPECT_EQ(client_.say("GET k\r\n"), "$1\r\nv\r\n");
  EXPECT_EQ(client_.say("DEL k\r\n"),
            "-NOPERM this user has no permissions to run the 'del' command\r\n");
  EXPECT_EQ(client_.say("FLUSHALL\r\n"),
            "-NOPERM this user has no permissions to run the 'flushall' command\r\n");
  EXPECT_EQ(client_.say("MULTI\r\nSET k w\r\nEXEC\r\n").substr(0, 12), "+OK\r\n-NOPERM");
  EXPECT_TRUE(world_.store.has("k"));
}

TEST_F(RedisLoginTest, ClientsHaveToLogInSoon) {
  RedisWorld::Client other(world_, 2);
  EXPECT_EQ(other.say(encode_request({"AUTH", token(1000)})), "+OK\r\n");
  world_.world.run_for(29 * kSecond);
  EXPECT_FALSE(client_.stream->closed());
  world_.world.run_for(5 * kSecond);
  EXPECT_TRUE(client_.stream->closed());
  EXPECT_FALSE(other.stream->closed());
}

TEST_F(RedisLoginTest, ARevokedTokenEndsItsConnections) {
  EXPECT_EQ(client_.say(encode_request({"AUTH", token(1000)})), "+OK\r\n");
  keyring_->set_revocations({.version = 1, .generation = 1, .serials = {{"user/ann", 1}}});
  world_.world.run_for(4 * kSecond);
  EXPECT_TRUE(client_.stream->closed());
}

}  // namespace
}  // namespace ff::gateway
