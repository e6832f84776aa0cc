// Reading a tree like sysfs and proc: contents, numbers, lists, symlinks; in memory and on a folder
// of this machine. And the text format of recorded trees.
#include "ops/validate/system_tree.h"
#include "ops/validate/parts.h"

#include <gtest/gtest.h>

#include "ops/validate/machine.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"

namespace ff::validate {
namespace {

class SystemTreeTest : public testing::Test {
 protected:
  Machine machine_{""};
  const SystemTree& tree_ = machine_.tree;
};

TEST_F(SystemTreeTest, ContentsComeWithoutTheirLastNewline) {
  machine_.patch("/a\n    one\n    two\n/b = \n");
  EXPECT_EQ(tree_.bytes("/a").value(), "one\ntwo\n");
  EXPECT_EQ(tree_.text("/a").value(), "one\ntwo");
  EXPECT_EQ(tree_.maybe_text("/b"), "");
  EXPECT_EQ(io::code_of(tree_.text("/c")), Errc::not_found);
  EXPECT_FALSE(tree_.maybe_text("/c").has_value());
  machine_.watched.refused = {"/machine/a"};
  EXPECT_EQ(io::code_of(tree_.text("/a")), Errc::refused);
}

TEST_F(SystemTreeTest, NumbersMayHaveAUnit) {
  const auto number = [&](const std::string& text) {
    machine_.patch("/n = " + text + "\n");
    return tree_.maybe_number("/n");
  };
  EXPECT_EQ(number("16.0 GT/s PCIe"), 16);
  EXPECT_EQ(number("  1000000"), 1'000'000);
  EXPECT_EQ(number("-1"), -1);
  EXPECT_EQ(number("200 Gb/sec (4X HDR)"), 200);
  for (const char* const none : {"", "Unknown", "x1", "nan", "inf", "-inf", "1e999"}) {
    EXPECT_FALSE(number(none).has_value()) << none;
  }
  const auto error = tree_.number("/n");
  ASSERT_FALSE(error.ok());
  EXPECT_NE(error.error().message.find("/n: '1e999'"), std::string::npos) << error.error().message;
}

TEST_F(SystemTreeTest, NamesAreSortedByTheirNumbers) {
  machine_.patch("for 10 9 1 0\n/d/mc@/x = 1\nend\n/d/mcx = 1\n/d/other = 1\n");
  EXPECT_EQ(tree_.list("/d", "mc"), (std::vector<std::string>{"mc0", "mc1", "mc9", "mc10", "mcx"}));
  EXPECT_EQ(tree_.list("/d").size(), 6u);
  EXPECT_TRUE(tree_.list("/none").empty());
  EXPECT_TRUE(tree_.exists("/d/mc9"));
  EXPECT_FALSE(tree_.exists("/d/mc8"));
}

TEST_F(SystemTreeTest, LinksAreFollowedInsideTheTree) {
  machine_.patch(R"(
/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class = 0x030200
/sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0
/sys/class/drm/card0 -> /sys/bus/pci/devices/0000:01:00.0
/sys/class/loop -> loop
/sys/class/up -> ../../../../../../proc
/proc/1/fd/3 -> /dev/nvidia0
)");
  const std::string real = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
  EXPECT_EQ(tree_.follow("/sys/bus/pci/devices/0000:01:00.0"), real);
  EXPECT_EQ(tree_.follow("/sys/class/drm/card0"), real) << "links of links, from the tree's root";
  EXPECT_EQ(tree_.follow("/sys/class/up"), "/proc") << "nothing is above the root";
  EXPECT_EQ(tree_.follow("/sys/class/loop"), "");
  EXPECT_EQ(tree_.follow("/proc/1/fd/3"), "") << "leads nowhere";
  EXPECT_EQ(tree_.follow(real), "") << "is no link";
  EXPECT_EQ(tree_.link_text("/proc/1/fd/3"), "/dev/nvidia0");
  EXPECT_EQ(tree_.link_text(real), "");
}

TEST(SystemTree, OnlyTheRootIsTheMachine) {
  io::SystemDisk disk;
  EXPECT_TRUE(SystemTree(disk, "").is_machine());
  EXPECT_TRUE(SystemTree(disk, "/").is_machine());
  EXPECT_FALSE(SystemTree(disk, "/tmp/x/").is_machine());
  EXPECT_EQ(SystemTree(disk, "/tmp/x/").on_disk("/proc"), "/tmp/x/proc");
}

// The same machine in a folder, as for `ff validate --root`.
TEST(SystemTree, ARecordedMachineInAFolder) {
  const io::TempDir dir;
  io::SystemDisk disk;
  lay_out(disk, dir.path(), recorded("pcie8"));
  const SystemTree tree(disk, dir.path());
  Machine machine("pcie8");
  EXPECT_EQ(collect_inventory(tree), collect_inventory(machine.tree));
  EXPECT_EQ(tree.follow("/sys/bus/pci/devices/0000:21:00.0"),
            "/sys/devices/pci0000:20/0000:20:01.1/0000:21:00.0");
}

TEST(Recorded, ATextBecomesFiles) {
  Machine machine("");
  machine.patch(R"(
# a remark
for 0-1 7/x
/loop/@1 = number @1
end
/more
    a
/more +=
    b
/hex = hex 00 ff*3 "te xt" 0a
/gone = 1
- /gone
/empty/
)");
  EXPECT_EQ(machine.tree.list("/loop"), (std::vector<std::string>{"0", "1", "7"}));
  EXPECT_EQ(machine.tree.text("/loop/7").value(), "number 7");
  EXPECT_EQ(machine.tree.bytes("/more").value(), "a\nb\n");
  EXPECT_EQ(machine.tree.bytes("/hex").value(), std::string("\0\xff\xff\xffte xt\n", 10));
  EXPECT_FALSE(machine.tree.exists("/gone"));
  EXPECT_TRUE(machine.tree.exists("/empty"));
}

}  // namespace
}  // namespace ff::validate
