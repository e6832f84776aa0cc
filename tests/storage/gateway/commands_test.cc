// Each command with its replies and errors. tests/e2e/serve_kv_replies.py compares the same and
// more with a Redis server.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "storage/gateway/command_table.h"
#include "storage/gateway/keyspace_scan.h"
#include "storage/gateway/redis_world.h"

namespace ff::gateway {
namespace {

struct Exchange {
  std::string request, reply;  // without the last line end
};

class CommandsTest : public testing::Test {
 protected:
  void expect(const std::vector<Exchange>& exchanges) {
    for (const Exchange& one : exchanges) {
      EXPECT_EQ(client_.say(one.request + "\r\n"), one.reply + "\r\n") << one.request;
    }
  }

  RedisWorld world_;
  RedisWorld::Client client_{world_, 1};
};

const std::string kNil = "$-1", kOk = "+OK", kSyntax = "-ERR syntax error",
                  kCrossSlot = "-CROSSSLOT Keys in request don't hash to the same slot";
const std::string kNotInteger = "-ERR value is not an integer or out of range";
const std::string kWrongType = "-WRONGTYPE Operation against a key holding the wrong kind of value";

TEST_F(CommandsTest, Set) {
  expect({{"GET k", kNil},
          {"SET k v", kOk},
          {"SET k w NX", kNil},
          {"SET k w XX GET", "$1\r\nv"},
          {"SET n w XX", kNil},
          {"SET n w NX GET", kNil},
          {"GET n", "$1\r\nw"},
          {"SET k v EX 100", kOk},
          {"TTL k", ":100"},
          {"SET k w KEEPTTL", kOk},
          {"TTL k", ":100"},
          {"SET k v", kOk},
          {"TTL k", ":-1"},
          {"SET k v NX XX", kSyntax},
          {"SET k v EX", kSyntax},
          {"SET k v EX 1 PX 1", kSyntax},
          {"SET k v EX 1 KEEPTTL", kSyntax},
          {"SET k v EX x", kNotInteger},
          {"SET k v EX 0", "-ERR invalid expire time in 'set' command"},
          {"SET k v EX 9223372036854775807", "-ERR invalid expire time in 'set' command"},
          {"SET k v PXAT 1", kOk},
          {"GET k", kNil},
          {"SET k", "-ERR wrong number of arguments for 'set' command"}});
}

// The store of these tests writes the value itself.
TEST_F(CommandsTest, Reservations) {
  const std::string ended = "-TRYAGAIN the range is not reserved any more";
  RedisWorld::Client watcher(world_, 2);
  watcher.say("WATCH k\r\n");
  std::string reserved = client_.say("FF.RESERVE k 300000\r\n");
  ASSERT_TRUE(reserved.starts_with("+1 0 300000 ")) << reserved;
  expect({{"GET k", kNil}});
  const std::string confirm = "FF.CONFIRM k \"" + reserved.substr(1, reserved.size() - 3) + "\"";
  expect({{confirm, kOk}, {"GET k", "$26\r\nwritten by another process"}, {confirm, ended}});
  watcher.say("MULTI\r\n");
  watcher.say("SET k v\r\n");
  EXPECT_EQ(watcher.say("EXEC\r\n"), "*-1\r\n");
  reserved = client_.say("FF.RESERVE k 1 PX 5000\r\n");
  expect({{"FF.CONFIRM k \"" + reserved.substr(1, reserved.size() - 3) + "\"", kOk},
          {"TTL k", ":5"},
          {"FF.CONFIRM k \"1 0 1 99 0 0\"", ended},
          {"FF.CONFIRM k 1", kSyntax},
          {"FF.CONFIRM k \"1 2 3 4 5 x\"", kSyntax},
          {"FF.RESERVE k x", kNotInteger},
          {"FF.RESERVE k -1", kNotInteger},
          {"FF.RESERVE k 1 EX 5", kSyntax},
          {"FF.RESERVE k 1 PX 0", "-ERR invalid expire time in 'ff.reserve' command"},
          {"MULTI", kOk},
          {"FF.RESERVE k 1", "-ERR Command not allowed inside a transaction"}});
}

TEST_F(CommandsTest, OtherWaysToSet) {
  expect({{"SETNX k v", ":1"},
          {"SETNX k w", ":0"},
          {"SETEX k 10 v", kOk},
          {"TTL k", ":10"},
          {"PSETEX k 10000 v", kOk},
          {"PTTL k", ":10000"},
          {"SETEX k -1 v", "-ERR invalid expire time in 'setex' command"},
          {"MSET a 1 b 2 a 3", kOk},
          {"MGET a b c", "*3\r\n$1\r\n3\r\n$1\r\n2\r\n$-1"},
          {"MSET a", "-ERR wrong number of arguments for 'mset' command"},
          {"MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"},
          {"MSETNX {t}a 1 {t}b 2", ":1"},
          {"MSETNX {t}b 3 {t}c 4", ":0"},
          {"EXISTS {t}c", ":0"},
          {"MSETNX a 1 b 2", "-CROSSSLOT Keys in request don't hash to the same slot"},
          {"GETSET a 9", "$1\r\n3"},
          {"GETDEL a", "$1\r\n9"},
          {"GETDEL a", kNil},
          {"GETEX b EX 50", "$1\r\n2"},
          {"TTL b", ":50"},
          {"GETEX b PERSIST", "$1\r\n2"},
          {"TTL b", ":-1"},
          {"GETEX b PXAT 1", "$1\r\n2"},
          {"EXISTS b", ":0"},
          {"GETEX b EX 1 PERSIST", kSyntax}});
}

TEST_F(CommandsTest, PartsOfStrings) {
  expect(
      {{"SET k Hello", kOk},
       {"GETRANGE k 1 3", "$3\r\nell"},
       {"GETRANGE k -3 -1", "$3\r\nllo"},
       {"GETRANGE k 3 1", "$0\r\n"},
       {"GETRANGE k 0 100", "$5\r\nHello"},
       {"GETRANGE none 0 -1", "$0\r\n"},
       {"SETRANGE k 7 World", ":12"},
       {"STRLEN k", ":12"},
       {"SETRANGE none 5 \"\"", ":0"},
       {"EXISTS none", ":0"},
       {"SETRANGE k -1 x", "-ERR offset is out of range"},
       {"SETRANGE k 67108864 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"},
       {"APPEND k !", ":13"},
       {"APPEND fresh ab", ":2"},
       {"STRLEN none", ":0"}});
}

TEST_F(CommandsTest, Numbers) {
  expect({{"INCR n", ":1"},
          {"INCRBY n 9", ":10"},
          {"DECR n", ":9"},
          {"DECRBY n 10", ":-1"},
          {"SET n 9223372036854775807", kOk},
          {"INCR n", "-ERR increment or decrement would overflow"},
          {"DECRBY n -9223372036854775808", "-ERR decrement would overflow"},
          {"SET n x", kOk},
          {"INCR n", kNotInteger},
          {"INCRBY n x", kNotInteger},
          {"INCRBYFLOAT n 1", "-ERR value is not a valid float"},
          {"SET n 10.50", kOk},
          {"INCRBYFLOAT n 0.1", "$4\r\n10.6"},
          {"INCRBYFLOAT n inf", "-ERR increment would produce NaN or Infinity"},
          {"EXPIRE n 100", ":1"},
          {"INCRBYFLOAT n -10.6", "$1\r\n0"},
          {"TTL n", ":100"}});
}

TEST_F(CommandsTest, Keys) {
  expect({{"MSET a 1 b 2", kOk},
          {"EXISTS a b a c", ":3"},
          {"TOUCH a c", ":1"},
          {"TYPE a", "+string"},
          {"TYPE c", "+none"},
          {"DEL a a c", ":1"},
          {"UNLINK b", ":1"},
          {"SET k v EX 100", kOk},
          {"RENAME k l", kOk},
          {"TTL l", ":100"},
          {"RENAME k l", "-ERR no such key"},
          {"RENAME l l", kOk},
          {"SET k w", kOk},
          {"RENAMENX k l", ":0"},
          {"RENAMENX k m", ":1"},
          {"COPY m l", ":0"},
          {"COPY m l REPLACE", ":1"},
          {"GET l", "$1\r\nw"},
          {"TTL l", ":-1"},
          {"COPY m m", "-ERR source and destination objects are the same"},
          {"COPY m x DB 1", "-ERR DB index is out of range"},
          {"COPY m x DB 0", ":1"},
          {"COPY none x", ":0"}});
}

TEST_F(CommandsTest, Expiry) {
  expect({{"TTL k", ":-2"},
          {"EXPIRE k 10", ":0"},
          {"SET k v", kOk},
          {"EXPIRE k 100 XX", ":0"},
          {"EXPIRE k 100 GT", ":0"},
          {"EXPIRE k 100 LT", ":1"},
          {"EXPIRE k 50 GT", ":0"},
          {"EXPIRE k 200 GT", ":1"},
          {"EXPIRE k 300 NX", ":0"},
          {"EXPIRE k 100 NX XX",
           "-ERR NX and XX, GT or LT options at the same time are not compatible"},
          {"EXPIRE k 100 GT LT", "-ERR GT and LT options at the same time are not compatible"},
          {"EXPIRE k 100 YY", "-ERR Unsupported option YY"},
          {"EXPIRE k x", kNotInteger},
          {"EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command"},
          {"PERSIST k", ":1"},
          {"PERSIST k", ":0"},
          {"PEXPIREAT k 33177117420000", ":1"},
          {"EXPIRETIME k", ":33177117420"},
          {"PEXPIRETIME k", ":33177117420000"},
          {"EXPIREAT k 33177117420", ":1"},
          {"PEXPIRE k 1500", ":1"},
          {"PTTL k", ":1500"}});
  world_.world.run_for(1501 * kMillisecond);
  expect({{"GET k", kNil}, {"SET k v", kOk}, {"EXPIRE k -1", ":1"}, {"EXISTS k", ":0"}});
}

TEST_F(CommandsTest, Hashes) {
  expect({{"HSET h a 1 b 2", ":2"},
          {"HSET h a 3 c 4", ":1"},
          {"HSET h a", "-ERR wrong number of arguments for 'hset' command"},
          {"HGET h a", "$1\r\n3"},
          {"HGET h x", kNil},
          {"HMGET h a x", "*2\r\n$1\r\n3\r\n$-1"},
          {"HGETALL h", "*6\r\n$1\r\na\r\n$1\r\n3\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n4"},
          {"HKEYS h", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc"},
          {"HVALS h", "*3\r\n$1\r\n3\r\n$1\r\n2\r\n$1\r\n4"},
          {"HLEN h", ":3"},
          {"HEXISTS h a", ":1"},
          {"HSETNX h a 9", ":0"},
          {"HSETNX h d 9", ":1"},
          {"HINCRBY h d 1", ":10"},
          {"HINCRBY h e 5", ":5"},
          {"HSCAN h 0 MATCH a", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\n3"},
          {"TYPE h", "+hash"},
          {"GET h", kWrongType},
          {"APPEND h x", kWrongType},
          {"MGET h", "*1\r\n$-1"},
          {"SET s x", kOk},
          {"HGET s a", kWrongType},
          {"HSET s a 1", kWrongType},
          {"HSET h f x", ":1"},
          {"HINCRBY h f 1", "-ERR hash value is not an integer"},
          {"EXPIRE h 100", ":1"},
          {"HDEL h a b c d e x", ":5"},
          {"TTL h", ":100"},
          {"HDEL h f", ":1"},
          {"EXISTS h", ":0"},
          {"HGETALL h", "*0"}});
}

TEST_F(CommandsTest, ConnectionsAndServer) {
  expect({{"PING", "+PONG"},
          {"ping hi", "$2\r\nhi"},
          {"PING a b", "-ERR wrong number of arguments for 'ping' command"},
          {"ECHO x", "$1\r\nx"},
          {"SELECT 0", kOk},
          {"SELECT 1", "-ERR DB index is out of range"},
          {"CLIENT ID", ":1"},
          {"CLIENT GETNAME", kNil},
          {"CLIENT SETNAME x", kOk},
          {"CLIENT GETNAME", "$1\r\nx"},
          {"CLIENT SETNAME \"a b\"",
           "-ERR Client names cannot contain spaces, newlines or special characters."},
          {"CLIENT SETINFO LIB-NAME redis-py", kOk},
          {"CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."},
          {"CLIENT", "-ERR wrong number of arguments for 'client' command"},
          {"FOO a b", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b' "},
          {"COMMAND COUNT", fmt::format(":{}", command_table().size())},
          {"CONFIG GET maxmemor[y]", "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0"},
          {"HELLO 4", "-NOPROTO unsupported protocol version"},
          {"HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'"},
          {"DISCARD", "-ERR DISCARD without MULTI"},
          {"FLUSHALL FOO", kSyntax},
          {"FLUSHALL", kOk}});
}

// Ranges of one owner are joined; the gateway that is asked also stands for slots that nobody
// serves.
TEST_F(CommandsTest, ClusterNamesTheOwners) {
  world_.store.others[1] = "[::1]:7";
  expect(
      {{"CLUSTER KEYSLOT foo", ":12182"},
       {"COMMAND GETKEYS XREADGROUP GROUP streams c STREAMS a b > 0", "*2\r\n$1\r\na\r\n$1\r\nb"},
       {"COMMAND GETKEYS PING", "-ERR The command has no key arguments"},
       {"COMMAND GETKEYS GET", "-ERR Invalid number of arguments specified for command"},
       {"COMMAND GETKEYS NOSUCH x", "-ERR Invalid command specified"}});
  const std::string id = client_.say("CLUSTER MYID\r\n").substr(5, 40);
  const std::string own = id + " 127.0.0.1:6379@6379 myself,master - 0 0 1 connected 0-0 2-3\n";
  const std::string nodes = client_.say("CLUSTER NODES\r\n");
  EXPECT_NE(nodes.find(own), nodes.npos) << nodes;
  EXPECT_NE(nodes.find(" ::1:7@7 master - 0 0 1 connected 1-1\n"), nodes.npos) << nodes;
  const std::string slots = client_.say("CLUSTER SLOTS\r\n");
  const std::string last = "*3\r\n:1\r\n:1\r\n*4\r\n$3\r\n::1\r\n:7\r\n$40\r\n";
  EXPECT_EQ(slots.substr(0, 4), "*3\r\n");
  EXPECT_NE(slots.find(last), slots.npos) << slots;
  world_.store.others[1] = "";
  const std::string all = "*1\r\n*3\r\n:0\r\n:3\r\n*4\r\n$9\r\n127.0.0.1\r\n";
  EXPECT_EQ(client_.say("CLUSTER SLOTS\r\n").substr(0, all.size()), all);
  const std::string info = client_.say("CLUSTER INFO\r\n");
  EXPECT_NE(info.find("cluster_state:fail\r\ncluster_slots_assigned:3\r\n"), info.npos) << info;
}

TEST_F(CommandsTest, ScanFindsEveryKeyOnce) {
  std::multiset<std::string> expected;
  for (int i = 0; i < 500; i++) {
    const std::string key = fmt::format("key:{}", i);
    world_.store.put(key, "v");
    expected.insert(key);
  }
  for (const size_t count : {size_t{1}, size_t{10}, size_t{1000}}) {
    std::multiset<std::string> found;
    uint64_t cursor = 0;
    size_t pages = 0;
    do {
      StoreView view(world_.gateway.access(), 1);
      const auto page = run_task(world_.world.loop(), read_key_page(view, cursor, count));
      found.insert(page->keys.begin(), page->keys.end());
      cursor = page->next;
      ASSERT_LT(pages++, 1000u);
    } while (cursor != 0);
    EXPECT_EQ(found, expected) << count;
  }
  expect({{"DBSIZE", ":500"},
          {"SCAN x", "-ERR invalid cursor"},
          {"SCAN 0 COUNT 0", kSyntax},
          {"SCAN 0 TYPE hash COUNT 100000", "*2\r\n$1\r\n0\r\n*0"},
          {"SCAN 0 MATCH key:499 COUNT 100000", "*2\r\n$1\r\n0\r\n*1\r\n$7\r\nkey:499"}});
  EXPECT_EQ(client_.say("KEYS key:49?\r\n").substr(0, 5), "*10\r\n");
  EXPECT_EQ(client_.say("RANDOMKEY\r\n").substr(0, 1), "$");
  expect({{"FLUSHDB ASYNC", kOk}, {"RANDOMKEY", kNil}, {"KEYS *", "*0"}, {"DBSIZE", ":0"}});
}

// Commands without keys tell of the own partitions alone; the keys of others must be of one slot,
// as in Redis Cluster, also if they lie here by chance. Nothing is changed by half.
TEST_F(CommandsTest, PartitionsOfOthers) {
  world_.store.put("foo", "1");
  world_.store.put("bar", "2");
  world_.store.others[world_.store.partition_of("foo")] = "other:1";
  ASSERT_NE(world_.store.partition_of("foo"), world_.store.partition_of("bar"));
  expect({{"DBSIZE", ":1"},
          {"KEYS *", "*1\r\n$3\r\nbar"},
          {"MGET bar foo", kCrossSlot},
          {"DEL bar foo", kCrossSlot},
          {"MSET bar 3 bar4 4", kCrossSlot},
          {"SUNION bar bar4", kCrossSlot},
          {"XREAD STREAMS bar foo 0 0", kCrossSlot},
          {"MGET foo {foo}b", "-MOVED 12182 other:1"},
          {"MGET bar {bar}b", "*2\r\n$1\r\n2\r\n$-1"},
          {"GET bar", "$1\r\n2"}});
  EXPECT_NE(client_.say("INFO server\r\n").find("redis_mode:cluster\r\n"), std::string::npos);
  world_.store.others.clear();
  expect({{"MGET bar foo", "*2\r\n$1\r\n2\r\n$1\r\n1"}});
  EXPECT_NE(client_.say("INFO server\r\n").find("redis_mode:standalone\r\n"), std::string::npos);
}

}  // namespace
}  // namespace ff::gateway
