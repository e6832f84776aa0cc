// Disks and file systems as the kernel shows them: healthy, failed, read-only, and read-only on
// purpose.
#include "ops/validate/storage.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

class StorageTest : public testing::Test {
 protected:
  StorageTest() { pcie8_.adopt(); }
  Finding fs(std::string_view part) { return pcie8_.about("storage.fs", part); }
  Finding disk(std::string_view name) { return pcie8_.about("storage.disks", name); }
  // The line of /data/0 in /proc/mounts.
  void mount(const std::string& line) {
    pcie8_.patch("/proc/mounts\n    " + line +
                 "\n    /dev/sda2 / ext4 rw,relatime 0 0\n"
                 "    /dev/nvme1n1 /data/1 ext4 rw 0 0\n");
  }
  Machine pcie8_{"pcie8"};
};

TEST_F(StorageTest, FileSystemsOfANode) {
  const auto mounted = mounted_disks(pcie8_.tree);
  ASSERT_EQ(mounted.size(), 3u) << "not in memory, nor that of the firmware";
  EXPECT_EQ(mounted[0].device, "/dev/nvme0n1");
  EXPECT_EQ(mounted[0].dir, "/data/0");
  EXPECT_EQ(mounted[0].kind, "xfs");
  const auto findings = pcie8_.run("storage.fs");
  EXPECT_EQ(findings.size(), 5u) << "three mounts, and what two remember";
  EXPECT_TRUE(all_are(findings, Verdict::pass));
}

TEST_F(StorageTest, OneDeviceCountsOnceWhereverItIsMounted) {
  pcie8_.patch("/proc/mounts +=\n    /dev/sda2 /var/lib/docker ext4 ro 0 0\n");
  EXPECT_EQ(mounted_disks(pcie8_.tree).size(), 3u);
}

TEST_F(StorageTest, AFileSystemThatIsReadOnlyFails) {
  mount("/dev/nvme0n1 /data/0 xfs ro,noatime 0 0");
  const Finding found = fs("/data/0");
  EXPECT_TRUE(is_finding(found, Verdict::fail, "is read-only"));
  EXPECT_EQ(found.expected, "as /etc/fstab has it");
  EXPECT_EQ(fs("/").verdict, Verdict::pass);
}

TEST_F(StorageTest, OneThatIsMeantToBeReadOnlyPasses) {
  mount("/dev/nvme0n1 /data/0 xfs ro,noatime 0 0");
  pcie8_.patch("/etc/fstab = /dev/nvme0n1\t/data/0\txfs\tnoatime,ro\t0\t2\n");
  EXPECT_TRUE(is_finding(fs("/data/0"), Verdict::pass, "mounted ro"));
  // An option with this prefix is another option.
  pcie8_.patch("/etc/fstab = /dev/nvme0n1 /data/0 xfs errors=remount-ro,rox 0 2\n");
  EXPECT_EQ(fs("/data/0").verdict, Verdict::fail);
  pcie8_.patch("- /etc/fstab\n");
  EXPECT_EQ(fs("/data/0").verdict, Verdict::fail);
}

TEST_F(StorageTest, OneThatWasShutDownFails) {
  for (const char* const option : {"shutdown", "emergency_ro"}) {
    mount(fmt::format("/dev/nvme0n1 /data/0 xfs rw,{} 0 0", option));
    EXPECT_TRUE(is_finding(fs("/data/0"), Verdict::fail, "was shut down after an error")) << option;
  }
}

TEST_F(StorageTest, AMountPointWithASpaceIsRead) {
  mount("/dev/nvme0n1 /data/my\\040disk xfs ro 0 0");
  EXPECT_EQ(mounted_disks(pcie8_.tree)[0].dir, "/data/my disk");
  EXPECT_TRUE(is_finding(fs("/data/my disk"), Verdict::fail, "is read-only"));
  pcie8_.patch("/etc/fstab = /dev/nvme0n1 /data/my\\040disk xfs ro 0 2\n");
  EXPECT_EQ(fs("/data/my disk").verdict, Verdict::pass);
  mount("/dev/nvme0n1 /data/a\\04 xfs rw 0 0");
  EXPECT_EQ(mounted_disks(pcie8_.tree)[0].dir, "/data/a\\04");
}

TEST_F(StorageTest, ErrorsThatAFileSystemRemembersFail) {
  pcie8_.patch("/sys/fs/ext4/sda2/errors_count = 2\n");
  EXPECT_TRUE(is_finding(fs("ext4 on sda2"), Verdict::fail, "2 errors"));
  EXPECT_EQ(fs("ext4 on nvme1n1").verdict, Verdict::pass);
  pcie8_.patch("- /sys/fs/ext4/sda2/errors_count\n");
  EXPECT_TRUE(is_finding(fs("ext4 on sda2"), Verdict::could_not_run, "cannot be read"));
  pcie8_.patch("- /sys/fs/ext4/sda2\n");
  EXPECT_TRUE(is_finding(fs("ext4"), Verdict::could_not_run, "2 mounted, of which 1 report"));
}

TEST_F(StorageTest, ANodeWithoutFileSystems) {
  pcie8_.patch("- /proc/mounts\n- /sys/fs/ext4\n");
  EXPECT_TRUE(is_finding(pcie8_.run("storage.fs").at(0), Verdict::fail, "no file system"));
  pcie8_.adopt();
  EXPECT_TRUE(is_finding(pcie8_.run("storage.fs").at(0), Verdict::skipped, "no file system"));
}

TEST_F(StorageTest, DisksOfANode) {
  const auto all = disks(pcie8_.tree);
  ASSERT_EQ(all.size(), 3u) << "no loop device";
  EXPECT_EQ(all[0].name, "nvme0n1");
  EXPECT_EQ(all[0].model, "SAMSUNG MZWLJ3T8HBLS-00007");
  EXPECT_EQ(all[0].serial, "S4YNNE0N801310");
  EXPECT_EQ(all[0].state, "live");
  EXPECT_EQ(all[2].serial, "naa.5002538e10a2b3c4") << "its world-wide name";
  EXPECT_TRUE(all_are(pcie8_.run("storage.disks"), Verdict::pass));
}

TEST_F(StorageTest, ADiskThatIsOfflineFails) {
  pcie8_.patch("/sys/block/sda/device/state = offline\n/sys/block/nvme1n1/device/state = dead\n");
  EXPECT_TRUE(is_finding(disk("sda"), Verdict::fail, "offline, SAMSUNG MZ7LH480"));
  EXPECT_TRUE(is_finding(disk("nvme1n1"), Verdict::fail, "dead"));
  EXPECT_EQ(disk("nvme0n1").verdict, Verdict::pass);
}

// Dual-port disks: a subsystem has the worst state of its controllers.
TEST_F(StorageTest, ADiskOfTwoPortsTellsByItsControllers) {
  Machine dgx("dgx");
  EXPECT_TRUE(is_finding(dgx.about("storage.disks", "nvme0n1"), Verdict::pass, "live"));
  EXPECT_EQ(dgx.run("storage.disks").size(), 2u) << "what the board lends is none";
  dgx.patch(
      "/sys/class/nvme/nvme2/state = connecting\n"
      "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme2 -> ../../../../class/nvme/nvme2\n");
  EXPECT_TRUE(is_finding(dgx.about("storage.disks", "nvme0n1"), Verdict::fail, "connecting"));
  EXPECT_EQ(dgx.about("storage.disks", "nvme1n1").verdict, Verdict::pass);
}

TEST_F(StorageTest, DisksThatTellNoState) {
  pcie8_.patch(
      "- /sys/block/sda\n- /sys/block/nvme0n1\n- /sys/block/nvme1n1\n"
      "/sys/block/vda/device/vendor = 0x1af4\n/sys/block/vda/serial = abc\n");
  EXPECT_TRUE(is_finding(pcie8_.run("storage.disks").at(0), Verdict::fail, "no disk reports"));
  const auto all = disks(pcie8_.tree);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].model, "disk");
  EXPECT_EQ(all[0].serial, "abc");
  pcie8_.adopt();
  EXPECT_TRUE(is_finding(pcie8_.run("storage.disks").at(0), Verdict::skipped, "no disk reports"));
}

}  // namespace
}  // namespace ff::validate
