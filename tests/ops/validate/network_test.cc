// Network ports: InfiniBand, Ethernet and bonds, intact and broken, and their counters between two
// runs.
#include "ops/validate/network.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

const std::string kIb = "/sys/class/infiniband/mlx5_0/ports/1";
const std::string kEth = "/sys/class/net/enp65s0f0np0";

class NetworkTest : public testing::Test {
 protected:
  NetworkTest() {
    pcie8_.adopt();
    for (const char* const check : {"network.ib", "network.ethernet"}) pcie8_.remember(check);
  }
  Finding ib() { return pcie8_.about("network.ib", "mlx5_0/1"); }
  Finding ethernet(const char* name = "network.ethernet") {
    return pcie8_.about("network.ethernet", "enp65s0f0np0", name);
  }
  Machine pcie8_{"pcie8"};
};

TEST_F(NetworkTest, ErrorsThatAreNotCountedAreMissedWhereTheyWere) {
  const std::string gone = "- /sys/class/infiniband/mlx5_0/ports/1/counters\n";
  pcie8_.patch(gone);
  EXPECT_EQ(pcie8_.about("network.ib", "mlx5_0/1", "network.ib-errors").verdict,
            Verdict::could_not_run);
  pcie8_.adopt();
  EXPECT_EQ(pcie8_.about("network.ib", "mlx5_0/1", "network.ib-errors").verdict, Verdict::skipped);
}

TEST_F(NetworkTest, PortsOfANode) {
  const auto ports = ib_ports(pcie8_.tree);
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].name, "mlx5_0/1");
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[0].physical, "LinkUp");
  EXPECT_EQ(ports[0].link_layer, "InfiniBand");
  EXPECT_EQ(ports[0].rate_gbit, 200);
  EXPECT_EQ(ports[0].gids, 1);
  EXPECT_EQ(ports[0].errors.size(), 6u);
  std::vector<std::string> names;
  for (const NetPort& port : net_ports(pcie8_.tree)) names.push_back(port.name);
  // Neither loopback nor the bond itself.
  EXPECT_EQ(names, (std::vector<std::string>{"enp65s0f0np0", "enp65s0f1np1", "ib0"}));
  EXPECT_EQ(bonds(pcie8_.tree), std::vector<std::string>{"bond0"});
  Machine dgx("dgx");
  EXPECT_EQ(ib_ports(dgx.tree).size(), 10u);
}

TEST_F(NetworkTest, SoundPortsPass) {
  for (const char* const check : {"network.ib", "network.ethernet", "network.bond"}) {
    EXPECT_TRUE(all_are(pcie8_.run(check), Verdict::pass)) << check;
  }
  EXPECT_TRUE(is_finding(ib(), Verdict::pass, "ACTIVE, LinkUp, 200 Gb/sec (4X HDR)"));
  EXPECT_TRUE(
      is_finding(pcie8_.about("network.bond", "bond0"), Verdict::pass, "2 of 2 ports are up"));
}

TEST_F(NetworkTest, APortThatIsDownFails) {
  pcie8_.patch(kIb + "/state = 1: DOWN\n" + kIb + "/phys_state = 2: Polling\n" + kIb +
               "/rate = 10 Gb/sec (4X SDR)\n");
  const Finding down = ib();
  EXPECT_TRUE(is_finding(down, Verdict::fail, "DOWN, Polling"));
  EXPECT_NE(down.hint.find("cable"), std::string::npos) << down.hint;
  pcie8_.patch(kIb + "/phys_state = 3: Disabled\n");
  EXPECT_TRUE(is_finding(ib(), Verdict::fail, "DOWN, Disabled"));
  EXPECT_NE(ib().hint.find("disabled"), std::string::npos) << ib().hint;
}

TEST_F(NetworkTest, ALinkWithoutASubnetManagerFails) {
  pcie8_.patch(kIb + "/state = 2: INIT\n");
  EXPECT_TRUE(is_finding(ib(), Verdict::fail, "INIT, LinkUp"));
  EXPECT_NE(ib().hint.find("subnet manager"), std::string::npos) << ib().hint;
}

// A dual-port card with one cable, as adopted.
TEST_F(NetworkTest, APortThatWasAdoptedUnusedIsNotMissed) {
  pcie8_.patch(R"(
/sys/class/infiniband/mlx5_1/ports/1/state = 1: DOWN
/sys/class/infiniband/mlx5_1/ports/1/phys_state = 2: Polling
/sys/class/infiniband/mlx5_1/ports/1/link_layer = InfiniBand
/sys/class/infiniband/mlx5_1/ports/1/rate = 10 Gb/sec (4X SDR)
/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed = 0
)");
  EXPECT_EQ(pcie8_.about("network.ib", "mlx5_1/1").verdict, Verdict::fail);
  pcie8_.adopt();
  EXPECT_TRUE(
      is_finding(pcie8_.about("network.ib", "mlx5_1/1"), Verdict::skipped, "DOWN, Polling"));
  EXPECT_TRUE(is_finding(ib(), Verdict::pass, "ACTIVE"));
  EXPECT_TRUE(all_are(pcie8_.run("host.inventory"), Verdict::pass));
  // Using it later is fine.
  pcie8_.patch("/sys/class/infiniband/mlx5_1/ports/1/state = 4: ACTIVE\n");
  EXPECT_TRUE(all_are(pcie8_.run("host.inventory"), Verdict::pass));
}

// Adoption records what hardware there is, and no fault.
TEST_F(NetworkTest, ALinkThatWasAdoptedWithoutASubnetManagerFailsNevertheless) {
  pcie8_.patch("/sys/class/infiniband/mlx5_0/ports/1/state = 2: INIT\n");
  pcie8_.adopt();
  EXPECT_TRUE(is_finding(ib(), Verdict::fail, "INIT, LinkUp"));
  // Nor does a link that came up later hide behind a port that had none.
  (*pcie8_.inventory)["ib mlx5_0/1"] = kNotInUse;
  EXPECT_TRUE(is_finding(ib(), Verdict::fail, "INIT, LinkUp"));
}

TEST_F(NetworkTest, AnEthernetPortThatWasAdoptedUnusedIsNotMissed) {
  pcie8_.patch(kEth + "/carrier = 0\n" + kEth + "/speed = -1\n");
  EXPECT_TRUE(is_finding(pcie8_.about("host.inventory", "net enp65s0f0np0"), Verdict::degraded,
                         "not in use"));
  pcie8_.adopt();
  EXPECT_TRUE(is_finding(ethernet(), Verdict::skipped, "no carrier"));
}

TEST_F(NetworkTest, APortWithoutAGidIsDegraded) {
  pcie8_.patch(kIb + "/gids/0 = 0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_TRUE(is_finding(ib(), Verdict::degraded, "no GID"));
  pcie8_.patch(kIb + "/gids/0 = what is this\n" + kIb + "/gids/1 = fe80\n");
  EXPECT_TRUE(is_finding(ib(), Verdict::degraded, "no GID"));
}

// A rate of 0 would distort the history of the node.
TEST_F(NetworkTest, ARateThatCannotBeReadIsNoValue) {
  EXPECT_EQ(ib().value, 200e9);
  pcie8_.patch("- " + kIb + "/rate\n");
  EXPECT_FALSE(ib().value.has_value());
}

TEST_F(NetworkTest, APortWithoutAStateIsNotJudged) {
  pcie8_.patch("- " + kIb + "/state\n");
  EXPECT_TRUE(is_finding(ib(), Verdict::could_not_run, "state unknown"));
}

// Links that went down and came back between two runs: flash cuts of the paper.
TEST_F(NetworkTest, AFlappingPortIsDegraded) {
  const auto downed = [&] {
    return pcie8_.about("network.ib", "mlx5_0/1 link_downed", "network.ib-errors");
  };
  EXPECT_TRUE(is_finding(downed(), Verdict::pass, "0 more errors (1 since the boot)"));
  pcie8_.patch(kIb + "/counters/link_downed = 3\n" + kEth + "/carrier_changes = 7\n");
  EXPECT_TRUE(is_finding(downed(), Verdict::degraded, "2 more errors (3 since the boot)"));
  EXPECT_TRUE(is_finding(ib(), Verdict::pass, "ACTIVE"));
  EXPECT_TRUE(is_finding(ethernet("network.flaps"), Verdict::degraded, "4 more changes"));
  // In a first run the value at boot is unknown.
  pcie8_.before.clear();
  EXPECT_TRUE(is_finding(downed(), Verdict::pass, "no run to compare with yet"));
  EXPECT_TRUE(is_finding(ethernet("network.flaps"), Verdict::pass, "no run to compare with yet"));
}

TEST_F(NetworkTest, ErrorsThatGrowAreDegraded) {
  pcie8_.patch(kIb + "/counters/symbol_error = 65535\n" + kEth + "/statistics/rx_errors = 12\n" +
               kEth + "/statistics/tx_errors = 1\n");
  EXPECT_TRUE(is_finding(pcie8_.about("network.ib", "mlx5_0/1 symbol_error", "network.ib-errors"),
                         Verdict::degraded, "65535 more errors"));
  EXPECT_TRUE(is_finding(ethernet("network.errors"), Verdict::degraded, "13 more errors"));
}

TEST_F(NetworkTest, CountersThatCannotBeReadAreNotJudged) {
  pcie8_.patch("- " + kEth + "/statistics/rx_errors\n" + kEth + "/carrier_changes = many\n- " +
               kIb + "/counters\n");
  EXPECT_TRUE(is_finding(ethernet("network.errors"), Verdict::could_not_run, "cannot be read"));
  EXPECT_TRUE(is_finding(ethernet("network.flaps"), Verdict::could_not_run, "cannot be read"));
  EXPECT_TRUE(is_finding(pcie8_.about("network.ib", "mlx5_0/1", "network.ib-errors"),
                         Verdict::could_not_run, "cannot be read"));
}

TEST_F(NetworkTest, EthernetWithoutACarrierFails) {
  pcie8_.patch(kEth + "/carrier = 0\n" + kEth + "/speed = -1\n" + kEth + "/duplex = unknown\n");
  EXPECT_TRUE(is_finding(ethernet(), Verdict::fail, "no carrier"));
  pcie8_.patch("- " + kEth + "/carrier\n");
  EXPECT_TRUE(is_finding(ethernet(), Verdict::could_not_run, "cannot be read"));
  // Administratively down: not checked.
  pcie8_.patch(kEth + "/flags = 0x1002\n");
  for (const Finding& one : pcie8_.run("network.ethernet")) EXPECT_NE(one.part, "enp65s0f0np0");
}

TEST_F(NetworkTest, HalfDuplexIsDegraded) {
  pcie8_.patch(kEth + "/duplex = half\n" + kEth + "/speed = 100\n");
  EXPECT_TRUE(is_finding(ethernet(), Verdict::degraded, "half duplex"));
}

// A port of a virtual machine often has no speed.
TEST_F(NetworkTest, ASpeedThatIsUnknownIsSaidSo) {
  pcie8_.patch(kEth + "/speed = -1\n");
  EXPECT_TRUE(is_finding(ethernet(), Verdict::pass, "speed unknown"));
  EXPECT_FALSE(ethernet().value.has_value());
}

TEST_F(NetworkTest, ABondWithAPortDownIsDegraded) {
  const auto with = [&](const char* first, const char* second) {
    pcie8_.patch(
        fmt::format("/proc/net/bonding/bond0\n    Bonding Mode: fault-tolerance\n"
                    "    MII Status: up\n    Slave Interface: enp65s0f0np0\n"
                    "    MII Status: {}\n    Slave Interface: enp65s0f1np1\n"
                    "    MII Status: {}\n",
                    first, second));
    return pcie8_.about("network.bond", "bond0");
  };
  EXPECT_TRUE(is_finding(with("up", "up"), Verdict::pass, "2 of 2"));
  const Finding one = with("up", "down");
  EXPECT_TRUE(is_finding(one, Verdict::degraded, "1 of 2 ports are up, down: enp65s0f1np1"));
  EXPECT_TRUE(is_finding(with("going down", "down"), Verdict::fail, "0 of 2"));
}

TEST_F(NetworkTest, ABondThatTellsNothingIsNotJudged) {
  pcie8_.patch("/proc/net/bonding/bond0 = what is this\n");
  EXPECT_TRUE(
      is_finding(pcie8_.about("network.bond", "bond0"), Verdict::could_not_run, "cannot be read"));
  pcie8_.patch(
      "/proc/net/bonding/bond0\n    Bonding Mode: fault-tolerance\n    MII Status: down\n");
  EXPECT_TRUE(is_finding(pcie8_.about("network.bond", "bond0"), Verdict::fail, "no ports"));
}

TEST_F(NetworkTest, APortThatHasLeftItsBondIsFound) {
  pcie8_.patch(
      "/proc/net/bonding/bond0\n    Bonding Mode: fault-tolerance\n    MII Status: up\n"
      "    Slave Interface: enp65s0f0np0\n    MII Status: up\n");
  EXPECT_TRUE(is_finding(pcie8_.about("network.bond", "bond0"), Verdict::pass, "1 of 1"));
  EXPECT_TRUE(
      is_finding(pcie8_.about("host.inventory", "bond bond0"), Verdict::degraded, "1 port"));
}

TEST_F(NetworkTest, ANodeWithoutPorts) {
  Machine bare("");
  for (const char* const check : {"network.ib", "network.ethernet", "network.bond"}) {
    bare.inventory.reset();
    EXPECT_TRUE(is_finding(bare.run(check).at(0), Verdict::could_not_run, "no ")) << check;
    bare.adopt();
    EXPECT_TRUE(is_finding(bare.run(check).at(0), Verdict::skipped, "no ")) << check;
    bare.inventory = pcie8_.inventory;
    EXPECT_TRUE(is_finding(bare.run(check).at(0), Verdict::fail, "no ")) << check;
  }
}

}  // namespace
}  // namespace ff::validate
