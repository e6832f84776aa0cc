// Health data of disks, and the findings. tests/ops/validate/guest.py queries real drivers.
#include "ops/validate/smart.h"

#include <gtest/gtest.h>

#include "platform/base/bytes.h"

namespace ff::validate {
namespace {

// The log of a healthy NVMe disk at 40 C.
SmartPage healthy_nvme() {
  SmartPage page = {};
  store_le<uint16_t>(page.data() + 1, 313);
  page[3] = std::byte{100};
  page[4] = std::byte{10};
  page[5] = std::byte{3};
  store_le<uint64_t>(page.data() + 128, 12'345);
  return page;
}

TEST(NvmeHealth, IsReadFromItsLog) {
  SmartPage page = healthy_nvme();
  store_le<uint64_t>(page.data() + 160, 7);
  const NvmeHealth health = parse_nvme_health(page);
  EXPECT_EQ(health.warnings, 0);
  EXPECT_NEAR(health.celsius, 40, 0.5);
  EXPECT_EQ(health.spare_percent, 100);
  EXPECT_EQ(health.spare_least_percent, 10);
  EXPECT_EQ(health.used_percent, 3);
  EXPECT_EQ(health.power_on_hours, 12'345);
  EXPECT_EQ(health.media_errors, 7);
}

TEST(NvmeHealth, EachWarningHasItsVerdict) {
  EXPECT_EQ(nvme_finding("nvme0", parse_nvme_health(healthy_nvme())).verdict, Verdict::pass);
  const std::vector<std::pair<uint8_t, Verdict>> warnings = {{1, Verdict::fail},
                                                             {2, Verdict::degraded},
                                                             {4, Verdict::fail},
                                                             {8, Verdict::fail},
                                                             {16, Verdict::degraded}};
  for (const auto& [bit, verdict] : warnings) {
    SmartPage page = healthy_nvme();
    page[0] = std::byte{bit};
    const Finding finding = nvme_finding("nvme0", parse_nvme_health(page));
    EXPECT_EQ(finding.verdict, verdict) << int{bit};
    EXPECT_NE(finding.hint, "") << int{bit};
  }
}

TEST(NvmeHealth, LittleSpareAndWearAreTold) {
  SmartPage page = healthy_nvme();
  page[3] = std::byte{9};
  EXPECT_EQ(nvme_finding("nvme0", parse_nvme_health(page)).verdict, Verdict::fail);
  page = healthy_nvme();
  page[5] = std::byte{100};
  const Finding worn = nvme_finding("nvme0", parse_nvme_health(page));
  EXPECT_EQ(worn.verdict, Verdict::degraded);
  EXPECT_NE(worn.found.find("100 % worn"), std::string::npos) << worn.found;
  page[0] = std::byte{12};
  EXPECT_EQ(nvme_finding("nvme0", parse_nvme_health(page)).verdict, Verdict::fail)
      << "the worst of several counts";
}

AtaHealth ata(std::vector<std::pair<uint8_t, uint32_t>> attributes, bool failing = false) {
  AtaHealth health{.failing = failing};
  size_t at = 2;
  for (const auto& [id, raw] : attributes) {
    health.data[at] = std::byte{id};
    store_le<uint32_t>(health.data.data() + at + 5, raw);
    health.data[at + 9] = std::byte{0xff};  // vendors use it for other data
    at += 12;
  }
  return health;
}

TEST(AtaHealth, ItsAttributesForetellItsEnd) {
  EXPECT_EQ(
      ata_finding("sda", parse_ata_health(ata({{9, 1000}, {5, 0}, {197, 0}, {198, 0}}))).verdict,
      Verdict::pass);
  const AtaFacts facts = parse_ata_health(ata({{5, 12}, {197, 3}}));
  EXPECT_EQ(facts.reallocated, 12u);
  EXPECT_EQ(facts.pending, 3u);
  EXPECT_FALSE(facts.uncorrectable.has_value());
  EXPECT_EQ(ata_finding("sda", facts).verdict, Verdict::degraded);
  EXPECT_EQ(ata_finding("sda", parse_ata_health(ata({{198, 1}}))).verdict, Verdict::degraded);
  EXPECT_EQ(ata_finding("sda", parse_ata_health(ata({{5, 12}}))).verdict, Verdict::pass)
      << "reallocated ones count when they grow";
  const Finding failing = ata_finding("sda", parse_ata_health(ata({{5, 0}}, true)));
  EXPECT_EQ(failing.verdict, Verdict::fail);
  EXPECT_NE(failing.hint, "");
}

}  // namespace
}  // namespace ff::validate
