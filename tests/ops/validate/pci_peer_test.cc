// Peer-to-peer settings of GPUs: bits of configuration spaces, and IOMMU groups.
#include "ops/validate/pci_peer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/validate/machine.h"
#include "platform/base/bytes.h"

namespace ff::validate {
namespace {

constexpr uint16_t kRelaxed = 0x10, kRedirect = 0x04, kValidation = 0x01;
constexpr uint16_t kEndpoint = 0, kRootPort = 4, kDownstream = 6;

// A configuration space: capabilities for power management and PCI Express; extended ones for
// error reporting and ACS.
std::string config(uint16_t type, uint16_t control, std::optional<uint16_t> acs = {}) {
  std::string bytes(4096, '\0');
  const auto put = [&]<class T>(size_t at, T value) {
    store_le<T>(reinterpret_cast<std::byte*>(bytes.data()) + at, value);
  };
  put(0x06, uint16_t{0x0010});
  put(0x34, uint8_t{0x40});
  put(0x40, uint16_t{0x6001});
  put(0x60, uint16_t{0x0010});
  put(0x62, static_cast<uint16_t>(type << 4 | 2));
  put(0x68, control);
  put(0x100, uint32_t{0x1402'0001});
  if (acs) put(0x140, uint32_t{0x0001'000d});
  if (acs) put(0x146, *acs);
  return bytes;
}

TEST(PciConfig, IsReadAsTheBusHasIt) {
  const PciConfig gpu = parse_pci_config(config(kEndpoint, kRelaxed));
  EXPECT_TRUE(gpu.whole);
  EXPECT_EQ(gpu.relaxed_ordering, true);
  EXPECT_FALSE(gpu.is_switch_port);
  EXPECT_FALSE(gpu.redirects);
  EXPECT_EQ(parse_pci_config(config(kEndpoint, 0x2800)).relaxed_ordering, false);
  const PciConfig port = parse_pci_config(config(kDownstream, 0, kRedirect));
  EXPECT_TRUE(port.is_switch_port);
  EXPECT_TRUE(port.redirects);
  EXPECT_FALSE(parse_pci_config(config(kDownstream, 0, kValidation)).redirects);
  EXPECT_FALSE(parse_pci_config(config(kRootPort, 0, kRedirect)).is_switch_port);
}

TEST(PciConfig, WhatIsCutOrGarbledSaysNothing) {
  const std::string whole = config(kDownstream, kRelaxed, kRedirect);
  const PciConfig head = parse_pci_config(whole.substr(0, 64));
  EXPECT_FALSE(head.whole);
  EXPECT_FALSE(head.relaxed_ordering.has_value());
  for (size_t length = 0; length < 400; length++) {
    (void)parse_pci_config(whole.substr(0, length));
  }
  (void)parse_pci_config(std::string(4096, '\xff'));  // a device that fell off the bus
  std::string loop = whole;
  loop[0x41] = '\x40';  // its first capability points to itself
  EXPECT_FALSE(parse_pci_config(loop).relaxed_ordering.has_value());
}

// A machine with two GPUs below a switch, and a network card.
class PciPeerTest : public testing::Test {
 protected:
  PciPeerTest() {
    const std::string root = "/sys/devices/pci0000:00/0000:00:01.0";
    const std::string up = root + "/0000:01:00.0";
    add(root, "0x060400", config(kRootPort, 0, kRedirect));
    add(up, "0x060400", config(5, 0));
    for (const char* const slot : {"10", "11"}) {
      const std::string port = fmt::format("{}/0000:02:{}.0", up, slot);
      add(port, "0x060400", config(kDownstream, 0, kValidation));
      add(fmt::format("{}/0000:{}:00.0", port, slot), "0x030200", config(kEndpoint, kRelaxed));
    }
    add("/sys/devices/pci0000:40/0000:40:01.0", "0x060400", config(kRootPort, 0));
    add(kCard, "0x020700", config(kEndpoint, kRelaxed));
  }
  void add(const std::string& at, const char* kind, const std::string& bytes) {
    const std::string address = at.substr(at.rfind('/') + 1);
    machine_.patch(
        fmt::format("{0}/class = {2}\n{0}/vendor = 0x10de\n{0}/device = 0x20f1\n"
                    "{0}/current_link_speed = 16.0 GT/s PCIe\n"
                    "{0}/current_link_width = 16\n{0}/max_link_speed = 16.0 GT/s PCIe\n"
                    "{0}/max_link_width = 16\n/sys/bus/pci/devices/{1} -> ../../..{3}\n",
                    at, address, kind, at.substr(4)));
    set(at, bytes);
  }
  void set(const std::string& at, const std::string& bytes) {
    machine_.patch(fmt::format("{}/config = hex {}\n", at, hex(as_bytes(bytes))));
  }
  void put_into_group(const std::string& at, const char* type) {
    machine_.patch(
        fmt::format("/sys/kernel/iommu_groups/7/type = {}\n"
                    "{}/iommu_group -> /sys/kernel/iommu_groups/7\n",
                    type, at));
  }
  Finding about(const char* name, const std::string& part = "") {
    return machine_.about("pci.peer", part, name);
  }

  static constexpr const char* kCard = "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0";
  static constexpr const char* kPort =
      "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:10.0";
  static constexpr const char* kCardPart = "0000:41:00.0 network card 10de:20f1";
  Machine machine_{""};
};

TEST_F(PciPeerTest, AFastNodePasses) {
  const auto findings = machine_.run("pci.peer");
  EXPECT_EQ(findings.size(), 5u);  // ordering of three devices, ACS, IOMMU
  EXPECT_TRUE(all_are(findings, Verdict::pass));
}

TEST_F(PciPeerTest, OrderingThatIsOffIsDegradedUnlessAdopted) {
  set(kCard, config(kEndpoint, 0));
  EXPECT_TRUE(is_finding(about("pci.ordering", kCardPart), Verdict::degraded, "off"));
  machine_.adopt();
  EXPECT_EQ(about("pci.ordering", kCardPart).verdict, Verdict::pass);
  set(kCard, config(kEndpoint, kRelaxed));
  EXPECT_EQ(about("pci.ordering", kCardPart).verdict, Verdict::pass);
}

TEST_F(PciPeerTest, ASwitchThatRedirectsIsNamed) {
  set(kPort, config(kDownstream, 0, kRedirect | kValidation));
  EXPECT_TRUE(is_finding(about("pci.acs"), Verdict::degraded, "0000:02:10.0"));
  machine_.adopt();
  EXPECT_EQ(about("pci.acs").verdict, Verdict::pass);
}

TEST_F(PciPeerTest, AnIommuThatTranslatesIsDegraded) {
  put_into_group(kCard, "identity");
  EXPECT_EQ(about("pci.iommu").verdict, Verdict::pass);
  EXPECT_EQ(about("pci.iommu").found, "identity");
  put_into_group(kCard, "DMA-FQ");
  EXPECT_TRUE(is_finding(about("pci.iommu"), Verdict::degraded, "translates"));
}

TEST_F(PciPeerTest, AnOrdinaryUserSeesTooLittle) {
  set(kCard, config(kEndpoint, kRelaxed).substr(0, 64));
  const Finding card = about("pci.ordering", kCardPart);
  EXPECT_EQ(card.verdict, Verdict::could_not_run);
  EXPECT_NE(card.hint.find("root"), std::string::npos);
  machine_.adopt();
  EXPECT_TRUE(machine_.inventory->contains("unseen ordering"));
}

TEST_F(PciPeerTest, WithoutAGpuThereIsNothingToSlowDown) {
  machine_.patch("- /sys/bus/pci/devices/0000:10:00.0\n- /sys/bus/pci/devices/0000:11:00.0\n");
  EXPECT_TRUE(all_are(machine_.run("pci.peer"), Verdict::skipped));
}

}  // namespace
}  // namespace ff::validate
