// Xids: NVIDIA's whole catalogue beside the classes of the paper, and the lines of the driver.
#include "ops/validate/xid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/validate/log_rules.h"

namespace ff::validate {
namespace {

TEST(Xids, AreTheWholeCatalogueInOrder) {
  int code = 0;
  int total = 0;
  for (const Xid& xid : xid_table()) {
    EXPECT_EQ(xid.code, ++code);
    total += xid.count;
    EXPECT_NE(std::string_view(xid.about), "") << code;
    EXPECT_NE(xid_hint(xid), "") << code;
    EXPECT_NE(xid_actor(xid), "") << code;
    EXPECT_TRUE(xid.count == 0 || xid.of != XidClass::none) << code;
  }
  EXPECT_EQ(code, 172);
  EXPECT_EQ(total, 12'970) << "Table VI";
  EXPECT_EQ(find_xid(0), nullptr);
  EXPECT_EQ(find_xid(173), nullptr);
}

TEST(Xids, TheStricterSourceDecides) {
  const auto verdict = [](int code) { return xid_verdict(*find_xid(code)); };
  const std::set<int> failures = {44,  46,  48,  54,  61,  62,  64,  69,  79,  95,  109,
                                  110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148,
                                  149, 150, 151, 154, 155, 156, 158, 167, 169, 171, 172};
  const std::set<int> passes = {11, 13, 14,  25,  31,  37,  38,  43,  45,  60, 66,
                                67, 93, 106, 107, 108, 137, 141, 152, 153, 162};
  for (const Xid& xid : xid_table()) {
    const Verdict expected = failures.contains(xid.code) ? Verdict::fail
                             : passes.contains(xid.code) ? Verdict::pass
                                                         : Verdict::degraded;
    EXPECT_EQ(verdict(xid.code), expected) << xid.code << " " << xid.about;
  }
}

TEST(Xids, SomebodyActs) {
  const auto actor = [](int code) { return xid_actor(*find_xid(code)); };
  EXPECT_EQ(actor(13), "the owner of the program");
  EXPECT_EQ(actor(79), "the operator");
  EXPECT_EQ(actor(63), "the operator") << "NVIDIA: ignore; paper: reset";
  EXPECT_EQ(actor(1), "the support of NVIDIA or of the vendor");
  EXPECT_EQ(actor(106), "nobody");
}

TEST(Xids, SomeLinesSayHowBadItIs) {
  const auto verdict = [](int code, std::string_view message) {
    return xid_verdict(*find_xid(code), message);
  };
  EXPECT_EQ(verdict(149, ", NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x11 0x0)"), Verdict::fail);
  EXPECT_EQ(verdict(149, ", NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x13 0x0)"),
            Verdict::degraded);
  EXPECT_EQ(verdict(145, ", RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x7 0x4)"), Verdict::degraded);
  const std::string changed = ", GPU recovery action changed from 0x0 (None) to ";
  EXPECT_EQ(verdict(154, changed + "0x1 (GPU Reset Required)"), Verdict::fail);
  EXPECT_EQ(verdict(154, changed + "0x2 (Node Reboot Required)"), Verdict::fail);
  EXPECT_EQ(verdict(154, changed + "0x3 (Drain P2P)"), Verdict::fail);
  EXPECT_EQ(verdict(154, changed + "0x4 (Drain and Reset)"), Verdict::degraded);
  EXPECT_EQ(
      verdict(154, ", GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
      Verdict::pass);
  EXPECT_EQ(verdict(154, ", whatever"), Verdict::fail);
}

TEST(Xids, TheLastRecoveryActionCountsAndTheWorstErrorElse) {
  LogAnalyzer analyzer;
  for (const char* const text :
       {"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (R)",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (R) to 0x0 (None)",
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x11)",
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x13)"}) {
    analyzer.add({.boot_ns = kSecond, .text = text});
  }
  for (const Finding& one : analyzer.findings()) {
    const bool recovered = one.found.starts_with("Xid 154");
    if (one.name != "log.xid") continue;
    EXPECT_EQ(one.verdict, recovered ? Verdict::pass : Verdict::fail) << one.found;
  }
}

TEST(Xids, AreReadFromTheDriversLines) {
  const auto full = parse_xid("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen");
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->device, "0000:3b:00");
  EXPECT_EQ(full->code, 79);
  EXPECT_EQ(full->message, ", pid='<unknown>', GPU has fallen");
  EXPECT_EQ(parse_xid("NVRM: Xid (0000:03:00): 13, Graphics Exception")->code, 13);
  EXPECT_EQ(parse_xid("NVRM: Xid (0000:03:00): 13")->message, "");
  for (const char* const none :
       {"NVRM: Xid", "NVRM: Xid (PCI:0000:3b:00)", "NVRM: Xid (PCI:0000:3b:00): x",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999", "Xid (PCI:0000:3b:00): 79"}) {
    EXPECT_FALSE(parse_xid(none).has_value()) << none;
  }
}

}  // namespace
}  // namespace ff::validate
