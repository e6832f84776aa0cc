// The inventory of a node, compared with its present parts: missing, changed, new, and unreadable
// for an unprivileged user.
#include "ops/validate/inventory.h"
#include "ops/validate/parts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

constexpr const char* kDimm = "dimm P1 CHANNEL D DIMM 0";

class InventoryTest : public testing::Test {
 protected:
  InventoryTest() { pcie8_.adopt(); }
  Finding about(std::string_view part) { return pcie8_.about("host.inventory", part); }
  Machine pcie8_{"pcie8"};
};

TEST_F(InventoryTest, PartsOfANode) {
  const Inventory& all = *pcie8_.inventory;
  const Inventory wanted = {{"cores", "64"},
                            {"nodes", "2"},
                            {"memory", "512GiB"},
                            {kDimm, "32.0GiB 3200 MT/s"},
                            {"pci 0000:21:00.0", "GPU 10de:20f1"},
                            {"gpu 0000:21:00.0", "10de:20f1"},
                            {"pci 0000:61:00.0", "network card 15b3:101b"},
                            {"pci 0000:c1:00.0", "NVMe disk 144d:a824"},
                            {"ib mlx5_0/1", "InfiniBand 200 Gb/sec (4X HDR)"},
                            {"net enp65s0f0np0", "10000 Mbit/s, MTU 1500"},
                            {"bond bond0", "2 ports"},
                            {"disk S4YNNE0N801310", "SAMSUNG MZWLJ3T8HBLS-00007"},
                            {"disk naa.5002538e10a2b3c4", "SAMSUNG MZ7LH480"},
                            {"aer", "counted"},
                            {"cpufreq", "driven"},
                            {"edac", "counted"},
                            {"fs", "mounted"},
                            {"disk-state", "told"},
                            {"link", "told"}};
  for (const auto& [part, what] : wanted) {
    ASSERT_TRUE(all.contains(part)) << part;
    EXPECT_EQ(all.at(part), what) << part;
  }
  const auto of_kind = [&](std::string_view kind) {
    return std::ranges::count_if(all, [&](const auto& one) { return one.first.starts_with(kind); });
  };
  EXPECT_EQ(of_kind("dimm "), 16);
  EXPECT_EQ(of_kind("gpu "), 8);
  EXPECT_EQ(of_kind("disk "), 3);
  EXPECT_EQ(of_kind("unseen "), 0);
  EXPECT_FALSE(all.contains("throttle")) << "AMD's do not count";
  EXPECT_FALSE(all.contains("pci 0000:06:00.0")) << "a SATA controller is no part";
}

// A virtual disk of the BMC comes and goes.
TEST_F(InventoryTest, PartsOfADgx) {
  Machine dgx("dgx");
  const Inventory all = collect_inventory(dgx.tree);
  EXPECT_EQ(all.at("throttle"), "counted");
  EXPECT_EQ(all.at("memory"), "2.00TiB");
  EXPECT_EQ(all.at("disk S6T1NA0T402101"), "SAMSUNG MZ1L21T9HCLS-00A07");
  for (const auto& [part, what] : all) EXPECT_EQ(what.find("AMI"), what.npos) << part;
}

TEST_F(InventoryTest, WithoutAdoptionNothingIsJudged) {
  pcie8_.inventory.reset();
  const auto findings = pcie8_.run("host.inventory");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(is_finding(findings[0], Verdict::could_not_run, "never adopted"));
}

TEST_F(InventoryTest, AllAsItWasIsOneLine) {
  const auto findings = pcie8_.run("host.inventory");
  ASSERT_EQ(findings.size(), 1u);
  const size_t parts = pcie8_.inventory->size();
  EXPECT_TRUE(is_finding(findings[0], Verdict::pass, fmt::format("{0} of {0} parts", parts)));
  EXPECT_EQ(findings[0].value, static_cast<double>(parts));
}

TEST_F(InventoryTest, AGpuThatIsGoneFails) {
  pcie8_.patch("- /sys/bus/pci/devices/0000:a1:00.0\n");
  const Finding gone = about("pci 0000:a1:00.0");
  EXPECT_TRUE(is_finding(gone, Verdict::fail, "is gone"));
  EXPECT_EQ(gone.expected, "GPU 10de:20f1");
  EXPECT_EQ(gone.source, "adopted");
  // The others are unchanged, and their links pass.
  EXPECT_EQ(pcie8_.run("host.inventory").size(), 3u) << "by PCI, by NVIDIA's, by its ordering";
  EXPECT_TRUE(all_are(pcie8_.run("pci.link"), Verdict::pass));
}

TEST_F(InventoryTest, ANetworkCardThatIsGoneFails) {
  pcie8_.patch(
      "- /sys/bus/pci/devices/0000:61:00.0\n- /sys/class/infiniband/mlx5_0\n"
      "- /sys/class/net/ib0\n");
  for (const char* const part : {"pci 0000:61:00.0", "ib mlx5_0/1", "net ib0"}) {
    EXPECT_TRUE(is_finding(about(part), Verdict::fail, "is gone")) << part;
  }
  EXPECT_TRUE(is_finding(pcie8_.run("network.ib").at(0), Verdict::fail, "no InfiniBand"));
}

// Its slot is empty; the module of the same slot name on the other socket is not blamed.
TEST_F(InventoryTest, AModuleThatIsGoneFailsByName) {
  pcie8_.patch(
      "/sys/firmware/dmi/entries/17-11/raw = hex 11 28 43 11 0a 11 fe ff ff ff ff ff 00 00 09 00"
      " 01 02 02 00*10 00*11 \"DIMM 0\" 00 \"P1 CHANNEL D\" 00*2\n");
  EXPECT_TRUE(is_finding(about(kDimm), Verdict::fail, "is gone"));
  EXPECT_TRUE(is_finding(about("memory"), Verdict::degraded, "480GiB"));
  EXPECT_EQ(pcie8_.run("host.inventory").size(), 2u);
}

TEST_F(InventoryTest, WhatHasChangedIsDegraded) {
  pcie8_.patch(
      "/sys/class/net/enp65s0f0np0/speed = 1000\n"
      "/sys/class/infiniband/mlx5_0/ports/1/rate = 100 Gb/sec (2X HDR)\n");
  const Finding port = about("net enp65s0f0np0");
  EXPECT_TRUE(is_finding(port, Verdict::degraded, "1000 Mbit/s"));
  EXPECT_EQ(port.expected, "10000 Mbit/s, MTU 1500");
  EXPECT_TRUE(is_finding(about("ib mlx5_0/1"), Verdict::degraded, "100 Gb/sec (2X HDR)"));
}

TEST_F(InventoryTest, WhatIsNewIsARemark) {
  pcie8_.inventory->erase("pci 0000:c2:00.0");
  const Finding one = about("pci 0000:c2:00.0");
  EXPECT_TRUE(is_finding(one, Verdict::pass, "NVMe disk 144d:a824, new"));
  EXPECT_NE(one.hint.find("ff validate adopt"), std::string::npos);
  EXPECT_TRUE(all_are(pcie8_.run("host.inventory"), Verdict::pass));
}

// Only root may read the firmware table.
TEST_F(InventoryTest, AnOrdinaryUserMissesNothingButSaysSo) {
  pcie8_.watched.refused = {"/machine/sys/firmware/dmi/entries/17-0/raw"};
  for (const char* const part : {kDimm, "memory"}) {
    EXPECT_TRUE(is_finding(about(part), Verdict::could_not_run, "permission denied")) << part;
    EXPECT_NE(about(part).hint.find("root"), std::string::npos);
  }
  for (const Finding& one : pcie8_.run("host.inventory")) {
    EXPECT_NE(one.verdict, Verdict::fail) << told(one);
  }
}

// A part that the adopting user could not read is neither present nor missing.
TEST_F(InventoryTest, AnOrdinaryUserDoesNotAdoptWhatIsNotSeen) {
  pcie8_.watched.refused = {"/machine/sys/firmware/dmi/entries/17-0/raw"};
  pcie8_.adopt();
  EXPECT_TRUE(pcie8_.inventory->contains("unseen dimm"));
  EXPECT_FALSE(pcie8_.inventory->contains("memory"));
  EXPECT_TRUE(all_are(pcie8_.run("host.inventory"), Verdict::pass));
  pcie8_.watched.refused.clear();
  EXPECT_TRUE(all_are(pcie8_.run("host.inventory"), Verdict::pass));
  pcie8_.patch("- /sys/firmware/dmi/entries\n");
  const Finding none = pcie8_.run("host.dimms").at(0);
  EXPECT_TRUE(is_finding(none, Verdict::could_not_run, "names no module"));
  EXPECT_NE(none.hint.find("could not see it"), std::string::npos) << none.hint;
}

TEST_F(InventoryTest, NothingOfAKind) {
  const auto nothing = [&](std::string_view kind) {
    const CheckContext context{.tree = pcie8_.tree,
                               .clock = pcie8_.clock,
                               .rng = pcie8_.rng,
                               .inventory = pcie8_.inventory,
                               .log_file = pcie8_.log_file,
                               .scratch = pcie8_.log_file,
                               .before = {},
                               .report = {}};
    return missing_finding(context, "a.b", kind, "none");
  };
  EXPECT_TRUE(is_finding(nothing("dimm"), Verdict::fail, "none"));
  EXPECT_TRUE(is_finding(nothing("dim"), Verdict::skipped, "none")) << "another kind";
  EXPECT_TRUE(is_finding(nothing("throttle"), Verdict::skipped, "none"));
  EXPECT_EQ(nothing("throttle").source, "adopted");
  (*pcie8_.inventory)["unseen throttle"] = "why";
  EXPECT_TRUE(is_finding(nothing("throttle"), Verdict::could_not_run, "none"));
  pcie8_.inventory.reset();
  EXPECT_TRUE(is_finding(nothing("dimm"), Verdict::could_not_run, "none"));
}

}  // namespace
}  // namespace ff::validate
