// Recorded sysfs of machines with several NUMA nodes, and the system calls. This machine may have
// one node: the kernel then keeps the part of each policy that it can.
#include "training/collective/numa_placement.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "training/collective/checks.h"
#include "training/collective/environment.h"
#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

using Cpus = std::vector<unsigned>;

class Sysfs {
 public:
  // Two sockets, and memory without CPUs (CXL).
  Sysfs(const std::string& first_cpus, const std::string& second_cpus) {
    put("devices/system/node/has_memory", "0-2");
    put("devices/system/node/node0/cpulist", first_cpus);
    put("devices/system/node/node1/cpulist", second_cpus);
    put("devices/system/node/node2/cpulist", "");
  }
  void put(const std::string& path, const std::string& line) {
    const std::filesystem::path at = dir_ / path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << line << "\n";
  }
  const std::string& path() const { return dir_.path(); }

 private:
  io::TempDir dir_;
};

struct Policy {
  int mode = -1;
  unsigned long nodes = 0;  // a bit each
  friend bool operator==(const Policy&, const Policy&) = default;
};

// Empty where the kernel or a filter hides it.
std::optional<Policy> policy_of(const void* at) {
  std::array<unsigned long, 16> nodes = {};
  Policy policy;
  if (::syscall(SYS_get_mempolicy, &policy.mode, nodes.data(), 8 * sizeof nodes, at, MPOL_F_ADDR) !=
      0) {
    return std::nullopt;
  }
  policy.nodes = nodes[0];
  return policy;
}

Cpus cpus_of(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  Cpus cpus;
  if (::sched_getaffinity(thread, sizeof set, &set) != 0) return cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// The affinity masks of all threads of this process, without duplicates.
std::multiset<Cpus> cpus_of_threads() {
  std::multiset<Cpus> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    all.insert(cpus_of(std::stoi(task.path().filename())));
  }
  return all;
}

TEST(NumaNodesTest, AreThoseWithMemoryAndCpus) {
  io::SystemDisk disk;
  const Sysfs sysfs("0-3,8-11", "4-7,12-15");
  const auto nodes = numa_nodes(disk, sysfs.path());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].number, 0u);
  EXPECT_EQ(nodes[0].cpus, (Cpus{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(nodes[1].number, 1u);
  EXPECT_EQ(nodes[1].cpus, (Cpus{4, 5, 6, 7, 12, 13, 14, 15}));
  const io::TempDir empty;
  EXPECT_TRUE(numa_nodes(disk, empty.path()).empty());
}

TEST(NicTest, ItsNodeComesFromTheDeviceOrTheInterface) {
  io::SystemDisk disk;
  Sysfs sysfs("0", "1");
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("192.0.2.77"), "");
  EXPECT_EQ(numa_node_of(disk, sysfs.path(), {.address = "127.0.0.1"}), std::nullopt);
  sysfs.put("class/net/lo/device/numa_node", "1");
  sysfs.put("class/infiniband/mlx5_0/device/numa_node", "0");
  sysfs.put("class/infiniband/mlx5_1/device/numa_node", "-1");
  EXPECT_EQ(numa_node_of(disk, sysfs.path(), {.address = "127.0.0.1"}), 1u);
  const auto of_device = [&](const char* device) {
    return numa_node_of(disk, sysfs.path(), {.rdma_device = device, .address = "127.0.0.1"});
  };
  EXPECT_EQ(of_device("mlx5_0"), 0u);
  EXPECT_EQ(of_device("mlx5_1"), std::nullopt);
  EXPECT_EQ(of_device("mlx5_2"), std::nullopt);
  EXPECT_EQ(numa_node_of(disk, sysfs.path(), {}), std::nullopt);
}

TEST(MemoryPlacementTest, TheKernelShowsThePolicies) {
  constexpr size_t kBytes = 1 << 20;
  void* const at =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const ByteSpan memory(static_cast<std::byte*>(at), kBytes);
  if (!policy_of(at)) GTEST_SKIP() << "get_mempolicy is not allowed here";
  // The kernel ignores nodes that this machine does not have.
  ASSERT_TRUE(interleave(memory, {{.number = 0}, {.number = 900}}).ok());
  EXPECT_EQ(policy_of(at), (Policy{MPOL_INTERLEAVE, 1}));
  EXPECT_EQ(policy_of(memory.data() + kBytes - 1), (Policy{MPOL_INTERLEAVE, 1}));
  ASSERT_TRUE(prefer_node(memory, 0).ok());
  EXPECT_EQ(policy_of(at), (Policy{MPOL_PREFERRED, 1}));
  EXPECT_FALSE(prefer_node(memory, 900).ok());
  const NumaPlacement one({{.number = 0, .cpus = {0}}}, true);
  one.interleave_all(memory);
  EXPECT_EQ(policy_of(at), (Policy{MPOL_PREFERRED, 1})) << "one node: nothing is done";
  NumaPlacement({{.number = 0}, {.number = 1}}, true).interleave_all(memory);
  EXPECT_EQ(policy_of(at)->mode, MPOL_INTERLEAVE);
  ::munmap(at, kBytes);
}

// The CPUs that a new thread may use after `body`.
Cpus cpus_after(const std::function<void()>& body) {
  Cpus cpus;
  std::thread([&] {
    body();
    cpus = cpus_of(0);
  }).join();
  return cpus;
}

class PinTest : public testing::Test {
 protected:
  void SetUp() override {
    if (all.size() < 2) GTEST_SKIP() << "this machine has one CPU";
  }
  const Cpus all = cpus_of(0);
  const unsigned first = all.front(), last = all.back();
};

TEST_F(PinTest, AThreadUsesTheAllowedOfTheWantedCpus) {
  EXPECT_EQ(cpus_after([&] { EXPECT_TRUE(pin_to_cpus({first, 8000, 90'000}).ok()); }), Cpus{first});
  EXPECT_EQ(cpus_after([&] { EXPECT_TRUE(pin_to_cpus({8000}).ok()); }), all);
  const auto both = [&] {
    EXPECT_TRUE(pin_to_cpus({last}).ok());
    EXPECT_TRUE(pin_to_cpus({first}).ok());
  };
  EXPECT_EQ(cpus_after(both), Cpus{last}) << "a CPU outside the affinity mask stays outside";
}

TEST_F(PinTest, RanksAreDistributedOverNodes) {
  const std::vector<NumaNode> nodes = {{.number = 0, .cpus = {first}},
                                       {.number = 3, .cpus = {last}}};
  const NumaPlacement pins(nodes, true);
  const auto of_rank = [&](uint32_t rank) { return cpus_after([&] { pins.pin_rank(rank, 4); }); };
  EXPECT_EQ(of_rank(0), Cpus{first});
  EXPECT_EQ(of_rank(1), Cpus{first});
  EXPECT_EQ(of_rank(2), Cpus{last});
  EXPECT_EQ(of_rank(3), Cpus{last});
  EXPECT_EQ(cpus_after([&] { pins.pin_near_nic(3); }), Cpus{last});
  EXPECT_EQ(cpus_after([&] { pins.pin_near_nic(1); }), all);
  EXPECT_EQ(cpus_after([&] { pins.pin_near_nic({}); }), all);
  EXPECT_EQ(cpus_after([&] { NumaPlacement(nodes, false).pin_rank(0, 4); }), all);
  EXPECT_EQ(cpus_after([&] { NumaPlacement({nodes[0]}, true).pin_rank(0, 4); }), all);
}

class PlacedJobTest : public PinTest {
 protected:
  // A thread pins itself when it starts, perhaps some time after its rank has joined.
  static bool come_to(const Cpus& cpus, size_t threads) {
    SystemClock clock;
    for (const int64_t until_ns = clock.steady_ns() + 10 * kSecond;;) {
      if (cpus_of_threads().count(cpus) == threads) return true;
      if (clock.steady_ns() > until_ns) return false;
      clock.sleep_ns(kMillisecond);
    }
  }
  Sysfs sysfs{std::to_string(first), std::to_string(last)};
};

TEST_F(PlacedJobTest, RanksOfAHost) {
  for (const bool pin : {true, false}) {
    const auto body = [&](Communicator& ranks) {
      const ByteSpan memory = ranks.allocate(10'000).value();
      const auto policy = policy_of(memory.data());
      EXPECT_TRUE(!policy || policy->mode == MPOL_INTERLEAVE);
      check_one(ranks, {.kind = Collective::allreduce, .count = 600'000}, 1, Memory::own,
                Values::small);
      ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
      EXPECT_TRUE(come_to({first}, pin ? 1 : 0));
      EXPECT_TRUE(come_to({last}, pin ? 1 : 0));
      ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    };
    with_ranks(2, body, {.pin = pin, .sysfs = sysfs.path()});
  }
}

// Mappings of this process with such a policy.
size_t mappings(const std::string& policy) {
  std::ifstream in("/proc/self/numa_maps");
  size_t count = 0;
  for (std::string line; std::getline(in, line);) count += contains(line, " " + policy) ? 1 : 0;
  return count;
}

TEST_F(PlacedJobTest, NodesWithWindowsNearTheCard) {
  sysfs.put("class/net/lo/device/numa_node", "0");
  const bool sees = policy_of(this).has_value();
  const Nodes nodes{.ranks = {1, 1}, .options = {.sysfs = sysfs.path()}};
  with_nodes(nodes, [&](Communicator& ranks) {
    check_one(ranks, {.kind = Collective::allreduce, .count = 600'000}, 1, Memory::own,
              Values::small);
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    // Two nodes, each with a worker thread and a thread for the other host.
    EXPECT_TRUE(come_to({first}, 4));
    if (sees) {
      EXPECT_GE(mappings("prefer"), 4u);      // own buffers, and a window at least
      EXPECT_GE(mappings("interleave"), 4u);  // inputs and outputs
    }
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
  });
}

TEST(PinVariableTest, ZeroTurnsItOff) {
  const auto pin = [](const char* value) {
    return read_pin_threads([=](const char*) { return value; });
  };
  EXPECT_TRUE(*pin(nullptr));
  EXPECT_TRUE(*pin("1"));
  EXPECT_FALSE(*pin("0"));
  EXPECT_EQ(pin("yes").error().code, Errc::usage);
}

}  // namespace
}  // namespace ff::collective
