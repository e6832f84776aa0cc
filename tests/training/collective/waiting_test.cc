// Ranks that wait for other ranks use no CPU time, on one host and between hosts.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <fstream>
#include <sstream>

#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

constexpr int64_t kWindowNs = kSecond / 2;
constexpr long kTicksMax = 2;  // hundredths of a second, of fifty

// The CPU time of all threads of a process, in hundredths of a second.
long ticks_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; i++) fields >> skipped;
  long user = 0, system = 0;
  fields >> user >> system;
  return user + system;
}

// Whether the process becomes idle; a process that spins never does.
bool becomes_idle(pid_t pid) {
  SystemClock clock;
  const int64_t until_ns = clock.steady_ns() + 30 * kSecond;
  while (clock.steady_ns() < until_ns) {
    const long before = ticks_of(pid);
    clock.sleep_ns(kWindowNs);
    if (ticks_of(pid) - before <= kTicksMax) return true;
  }
  return false;
}

// The last rank starts the operation only when the test lets it.
void check_waiting(const Nodes& nodes) {
  std::array<int, 2> late = {}, begun = {};
  ASSERT_EQ(::pipe2(late.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(begun.data(), O_CLOEXEC), 0);
  const auto body = [&](Communicator& ranks) {
    char byte = 0;
    if (ranks.rank() + 1 == ranks.ranks()) {
      if (::read(late[0], &byte, 1) != 1) return 2;
    } else if (::write(begun[1], &byte, 1) != 1) {
      return 3;
    }
    std::vector<float> values(100'000, 1);
    const auto done =
        ranks.run({.count = values.size(), .in = values.data(), .out = values.data()});
    return done && values[7] == static_cast<float>(ranks.ranks()) ? 0 : 1;
  };
  std::vector<pid_t> pids;
  const auto count = static_cast<uint32_t>(nodes.ranks.size());
  for (uint32_t node = 0; node < count; node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      pids.push_back(fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
    }
  }
  for (size_t i = 0; i + 1 < pids.size(); i++) {
    char byte = 0;
    EXPECT_EQ(::read(begun[0], &byte, 1), 1);
  }
  for (const pid_t pid : pids) EXPECT_TRUE(becomes_idle(pid));
  EXPECT_EQ(::write(late[1], "g", 1), 1);
  for (const pid_t pid : pids) EXPECT_EQ(exit_of(pid), 0);
  for (const int fd : {late[0], late[1], begun[0], begun[1]}) ::close(fd);
}

TEST(WaitingTest, OnOneHost) { check_waiting({.ranks = {4}}); }

TEST(WaitingTest, BetweenHosts) { check_waiting({.ranks = {2, 2}}); }

}  // namespace
}  // namespace ff::collective
