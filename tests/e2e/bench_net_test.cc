// ff bench net as it is typed: what it refuses, and every test on one machine and against a server.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "e2e/child.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

test::ProcessResult bench_net(Words words) {
  words.insert(words.begin(), {"bench", "net"});
  return test::run_ff(std::move(words));
}

TEST(BenchNet, MistakesAreNamed) {
  struct Case {
    Words words;
    int exit;
    std::string said;
  };
  const Case cases[] = {
      {{"--test", "disk"}, 2, "--disk"},
      {{"--test", "ping"}, 2, "'ping' is not one of"},
      {{"--in-flight", "0"}, 2, "--in-flight 0: 1 to 1024"},
      {{"--size", "5MiB"}, 2, "--size 5242880"},
      {{"--incast", "0"}, 2, "--incast 0"},
      {{"--duration", "0s"}, 2, "--duration"},
      {{"--http", "9"}, 2, "--http requires --listen"},
      {{"--listen", "nonsense"}, 2, "HOST:PORT"},
      {{"--listen", "127.0.0.1:0", "--connect", "127.0.0.1:1"}, 2, "--listen only serves"},
      {{"--incast", "2", "--connect", "127.0.0.1:1"}, 2, "--incast and --connect"},
      {{"--disk", "/tmp", "--connect", "127.0.0.1:1"},
       2,
       "--disk belongs to the process with --listen"},
      {{"--connect", "127.0.0.1:1"}, 1, "127.0.0.1:1: Connection refused"},
      {{"--disk", "/nonexistent", "--test", "disk"}, 1, "/nonexistent"},
      {{"--token", "/nonexistent"}, 2, "--token is for clients"},
      {{"--token", "/nonexistent", "--connect", "127.0.0.1:1"}, 1, "/nonexistent: No such file"},
      {{"--key", "/nonexistent"}, 1, "/nonexistent: No such file"},
      {{"--listen", "0.0.0.0:0"}, 5, "--key"},
      {{"--tls-cert", "/nonexistent"}, 2, "net.tls-"},
  };
  for (const Case& one : cases) {
    const auto ran = bench_net(one.words);
    EXPECT_EQ(ran.exit, one.exit) << one.words[0] << ": " << ran.err;
    EXPECT_NE(ran.err.find(one.said), std::string::npos) << one.words[0] << ": " << ran.err;
    EXPECT_EQ(ran.out, "") << one.words[0];
  }
}

TEST(BenchNet, EveryTestRunsOverEveryWayOfThisMachine) {
  const auto ran = bench_net({"--duration", "20ms", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err << ran.out;
  for (const char* const way : {"tcp", "shm"}) {
    for (const char* const test : {"call", "read", "read-crc", "write"}) {
      const std::string row = fmt::format(R"("test":"{}","way":"{}")", test, way);
      const std::string other = fmt::format(R"("way":"{}","test":"{}")", way, test);
      EXPECT_TRUE(ran.out.find(row) != std::string::npos ||
                  ran.out.find(other) != std::string::npos)
          << row << " in " << ran.out;
    }
  }
  EXPECT_NE(ran.out.find(R"("way":"memcpy")"), std::string::npos) << ran.out;
}

TEST(BenchNet, ManyServersAnswerOneClient) {
  const auto ran = bench_net({"--incast", "3", "--duration", "20ms", "--json"});
  ASSERT_EQ(ran.exit, 0) << ran.err << ran.out;
  EXPECT_NE(ran.out.find("all at once"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("8 senders"), std::string::npos) << ran.out;
}

TEST(BenchNet, AServerOutlivesItsClients) {
  test::Launch launch;
  launch.argv = {FF_BINARY, "bench", "net", "--listen", "127.0.0.1:0"};
  test::Child server(launch);
  ASSERT_TRUE(server.wait_for_out("\n")) << server.err;
  const size_t at = server.out.find("127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << server.out;
  const std::string address = server.out.substr(at, server.out.find_first_of(" \n", at) - at);
  for (const char* const net : {"auto", "tcp"}) {
    const auto ran = bench_net(
        {"--connect", address, "--net", net, "--test", "read", "--duration", "20ms", "--json"});
    EXPECT_EQ(ran.exit, 0) << ran.err << ran.out;
  }
  // It has no file: the client hears so, and the server goes on.
  const auto ran = bench_net({"--connect", address, "--test", "disk"});
  EXPECT_EQ(ran.exit, 1) << ran.out;
  EXPECT_NE(ran.err.find("started without --disk"), std::string::npos) << ran.err;
  EXPECT_EQ(bench_net({"--connect", address, "--test", "call", "--duration", "20ms"}).exit, 0);
  server.signal(SIGTERM);
  EXPECT_EQ(server.finish(), 0) << server.err;
}

}  // namespace
}  // namespace ff::cmd
