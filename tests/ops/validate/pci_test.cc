// PCI Express links and errors on recorded machines, intact and with one broken part.
#include "ops/validate/pci.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

// The real paths of a GPU and a card of pcie8.
const std::string kGpu = "/sys/devices/pci0000:20/0000:20:01.1/0000:21:00.0";
const std::string kGpuPort = "/sys/devices/pci0000:20/0000:20:01.1";
const std::string kCard = "/sys/devices/pci0000:60/0000:60:03.1/0000:61:00.0";
constexpr const char* kGpuPart = "0000:21:00.0 GPU 10de:20f1";
constexpr const char* kCardPart = "0000:61:00.0 network card 15b3:101b";

class PciTest : public testing::Test {
 protected:
  PciTest() { pcie8_.adopt(); }
  Machine pcie8_{"pcie8"};
};

TEST_F(PciTest, DevicesOfANode) {
  const auto devices = pci_devices(pcie8_.tree);
  const auto of_kind = [&](PciKind kind) {
    return std::ranges::count(devices, kind, &PciDevice::kind);
  };
  EXPECT_EQ(of_kind(PciKind::gpu), 8);
  EXPECT_EQ(of_kind(PciKind::network), 3);
  EXPECT_EQ(of_kind(PciKind::nvme), 2);
  const auto gpu = std::ranges::find(devices, "0000:82:00.0", &PciDevice::address);
  ASSERT_NE(gpu, devices.end());
  EXPECT_EQ(gpu->name(), "GPU 10de:20f1");
  EXPECT_EQ(gpu->numa_node, 1);
  const PciLink gen4{.gt = 16, .lanes = 16};
  EXPECT_EQ(gpu->link, gen4);
  EXPECT_EQ(gpu->can, gen4);
  EXPECT_EQ(gpu->port_can, gen4);
  EXPECT_TRUE(gpu->answers);
}

TEST_F(PciTest, SoundLinksPass) {
  const auto findings = pcie8_.run("pci.link");
  EXPECT_EQ(findings.size(), 13u);
  EXPECT_TRUE(all_are(findings, Verdict::pass));
  EXPECT_EQ(pcie8_.about("pci.link", kGpuPart).found, "16 GT/s x16");
  Machine dgx("dgx");
  EXPECT_EQ(dgx.run("pci.link").size(), 18u);
  EXPECT_TRUE(all_are(dgx.run("pci.link"), Verdict::pass));
}

TEST_F(PciTest, ANarrowOrSlowLinkIsDegraded) {
  pcie8_.patch(kGpu + "/current_link_width = 8\n");
  const Finding narrow = pcie8_.about("pci.link", kGpuPart);
  EXPECT_TRUE(is_finding(narrow, Verdict::degraded, "16 GT/s x8"));
  EXPECT_EQ(narrow.expected, "16 GT/s x16");
  EXPECT_EQ(narrow.source, "both ends of the link");
  pcie8_.patch(kCard + "/current_link_speed = 8.0 GT/s PCIe\n");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.link", kCardPart), Verdict::degraded, "8 GT/s x16"));
  const auto findings = pcie8_.run("pci.link");
  EXPECT_EQ(std::ranges::count(findings, Verdict::pass, &Finding::verdict), 11);
}

// A limit of the port is no fault of the card.
TEST_F(PciTest, ThePortAboveLimitsWhatIsExpected) {
  pcie8_.patch(kGpuPort + "/max_link_width = 8\n" + kGpu + "/current_link_width = 8\n");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::pass, "16 GT/s x8"));
}

TEST_F(PciTest, AnIdleGpuIsSlowAndACardIsNot) {
  pcie8_.patch(kGpu + "/current_link_speed = 2.5 GT/s PCIe\n");
  EXPECT_TRUE(
      is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::pass, "while the GPU is idle"));
  pcie8_.patch(kGpu + "/current_link_width = 4\n" + kCard +
               "/current_link_speed = 2.5 GT/s PCIe\n");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::degraded, "x4"));
  EXPECT_TRUE(is_finding(pcie8_.about("pci.link", kCardPart), Verdict::degraded, "2.5 GT/s"));
}

TEST_F(PciTest, ALinkThatIsDownFails) {
  pcie8_.patch(kGpu + "/current_link_speed = Unknown\n" + kGpu + "/current_link_width = 0\n");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::fail, "its link is down"));
}

// A device that fell off the bus reads as all ones; cached values remain.
TEST_F(PciTest, ADeviceThatDoesNotAnswerFails) {
  pcie8_.patch(kGpu + "/current_link_speed = Unknown\n" + kGpu + "/current_link_width = 63\n" +
               kGpu + "/max_link_speed = Unknown\n" + kGpu + "/max_link_width = 63\n");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::fail, "no longer responds"));
}

TEST_F(PciTest, ALinkThatCannotBeReadIsNotJudged) {
  pcie8_.patch("- " + kGpu + "/current_link_width\n");
  EXPECT_TRUE(
      is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::could_not_run, "cannot be read"));
  pcie8_.patch(kGpu + "/current_link_width = 16\n- " + kGpu + "/max_link_speed\n");
  EXPECT_TRUE(
      is_finding(pcie8_.about("pci.link", kGpuPart), Verdict::could_not_run, "16 GT/s x16"));
}

// Passed-through devices of a virtual machine have no port above.
TEST_F(PciTest, AGuestSeesOneEndOnly) {
  Machine guest("");
  guest.patch(R"(
for 05/0x030200/16 06/0x020000/8
/sys/bus/pci/devices/0000:00:@1.0 -> ../../../devices/pci0000:00/0000:00:@1.0
/sys/devices/pci0000:00/0000:00:@1.0/class = @2
/sys/devices/pci0000:00/0000:00:@1.0/vendor = 0x10de
/sys/devices/pci0000:00/0000:00:@1.0/device = 0x20f1
/sys/devices/pci0000:00/0000:00:@1.0/current_link_speed = 16.0 GT/s PCIe
/sys/devices/pci0000:00/0000:00:@1.0/current_link_width = @3
/sys/devices/pci0000:00/0000:00:@1.0/max_link_speed = 16.0 GT/s PCIe
/sys/devices/pci0000:00/0000:00:@1.0/max_link_width = 16
end
/sys/bus/pci/devices/0000:00:07.0 -> ../../../devices/pci0000:00/0000:00:07.0
/sys/devices/pci0000:00/0000:00:07.0/class = 0x020000
/sys/devices/pci0000:00/0000:00:07.0/vendor = 0x1af4
/sys/devices/pci0000:00/0000:00:07.0/device = 0x1041
)");
  const Finding whole = guest.about("pci.link", "0000:00:05.0 GPU 10de:20f1");
  EXPECT_TRUE(is_finding(whole, Verdict::pass, "16 GT/s x16"));
  EXPECT_EQ(whole.source, "the device, without the port above");
  EXPECT_TRUE(is_finding(guest.about("pci.link", "0000:00:06.0 network card 10de:20f1"),
                         Verdict::degraded, "16 GT/s x8"));
  EXPECT_EQ(guest.run("pci.link").size(), 2u);  // a virtual card has no link
}

TEST_F(PciTest, ANodeWithoutLinks) {
  Machine bare("");
  EXPECT_TRUE(is_finding(bare.run("pci.link").at(0), Verdict::could_not_run, "no GPU"));
  EXPECT_TRUE(is_finding(bare.run("pci.aer").at(0), Verdict::could_not_run, "no device counts"));
  bare.adopt();
  EXPECT_TRUE(is_finding(bare.run("pci.link").at(0), Verdict::skipped, "no GPU"));
  EXPECT_TRUE(is_finding(bare.run("pci.aer").at(0), Verdict::skipped, "no device counts"));
  bare.inventory = pcie8_.inventory;
  EXPECT_TRUE(is_finding(bare.run("pci.link").at(0), Verdict::fail, "no GPU"));
  EXPECT_TRUE(is_finding(bare.run("pci.aer").at(0), Verdict::fail, "no device counts"));
}

TEST_F(PciTest, SoundCountersPass) {
  EXPECT_EQ(pcie8_.run("pci.aer").size(), 13u);
  EXPECT_TRUE(all_are(pcie8_.run("pci.aer"), Verdict::pass));
}

TEST_F(PciTest, CorrectedErrorsCountOnceTheyGrow) {
  pcie8_.patch(kGpu + "/aer_dev_correctable\n    RxErr 7\n    BadTLP 2\n    TOTAL_ERR_COR 9\n");
  const Finding first = pcie8_.about("pci.aer", kGpuPart);
  EXPECT_TRUE(is_finding(first, Verdict::degraded, "9 corrected, 0 uncorrected since the boot"));
  EXPECT_EQ(first.expected, "none uncorrected, none since the boot");
  EXPECT_EQ(first.value, 9);
  pcie8_.remember("pci.aer");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.aer", kGpuPart), Verdict::pass, "0 of them new"));
  pcie8_.patch(kGpu + "/aer_dev_correctable\n    RxErr 8\n    TOTAL_ERR_COR 12\n");
  EXPECT_TRUE(is_finding(pcie8_.about("pci.aer", kGpuPart), Verdict::degraded, "3 of them new"));
}

TEST_F(PciTest, UncorrectedErrorsFail) {
  for (const char* const kind : {"nonfatal", "fatal"}) {
    Machine machine("pcie8");
    machine.patch(
        fmt::format("{}/aer_dev_{}\n    CmpltTO 1\n    TOTAL_ERR_{} 1\n", kCard, kind, kind));
    EXPECT_TRUE(is_finding(machine.about("pci.aer", kCardPart), Verdict::fail, "1 uncorrected"))
        << kind;
    machine.remember("pci.aer");
    EXPECT_TRUE(is_finding(machine.about("pci.aer", kCardPart), Verdict::fail, "0 of them new"))
        << kind;
  }
}

TEST_F(PciTest, CountersThatCannotBeReadAreNotJudged) {
  for (const char* const kind : {"correctable", "nonfatal", "fatal"}) {
    Machine machine("pcie8");
    machine.patch(fmt::format("{}/aer_dev_{} = what is this\n", kGpu, kind));
    EXPECT_TRUE(is_finding(machine.about("pci.aer", kGpuPart), Verdict::could_not_run, "not all"));
    machine.patch(fmt::format("- {}/aer_dev_{}\n", kGpu, kind));
    EXPECT_TRUE(is_finding(machine.about("pci.aer", kGpuPart), Verdict::could_not_run, "not all"));
  }
}

}  // namespace
}  // namespace ff::validate
