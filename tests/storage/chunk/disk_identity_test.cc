// Identity of a disk: which disks are refused, and the messages.
#include "storage/chunk/disk_identity.h"

#include <gtest/gtest.h>

#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

const DiskIdentity kIdentity{.cluster = "cluster-1", .disk = "disk-1", .node = 5};

TEST(ChunkIdentity, RoundTripsAndEveryFlippedBitShows) {
  const std::string line = to_line(kIdentity);
  ASSERT_TRUE(ok(parse_identity(line, "x")));
  EXPECT_EQ(*parse_identity(line, "x"), kIdentity);
  for (size_t bit = 0; bit < line.size() * 8; ++bit) {
    std::string flipped = line;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(parse_identity(flipped, "x").ok()) << bit;
  }
  for (size_t size = 0; size < line.size(); ++size) {
    EXPECT_FALSE(parse_identity(line.substr(0, size), "x").ok());
  }
}

TEST(ChunkIdentity, ForeignAndNewerDisksAreToldApart) {
  EXPECT_EQ(code_of(parse_identity("something else\n", "x")), Errc::refused);
  EXPECT_EQ(code_of(parse_identity("", "x")), Errc::refused);
  EXPECT_EQ(code_of(parse_identity("ff-disk 4 whatever comes then\n", "x")), Errc::newer_format);
  DiskIdentity older = kIdentity;
  older.format = 1;
  EXPECT_EQ(*parse_identity(to_line(older), "x"), older);
  EXPECT_EQ(code_of(parse_identity("ff-disk 1 cluster=a disk=b node=1\n", "x")), Errc::corrupt);
  EXPECT_EQ(code_of(parse_identity("ff-disk 0 cluster=a\n", "x")), Errc::corrupt);
}

class DiskOwnerTest : public testing::Test {
 protected:
  void rewrite(const std::string& text) {
    ASSERT_TRUE(ok(io::replace_file(world_.disk, kDir + "/ff-disk", text, "test")));
  }
  // Opening fails with this code, and the message contains `words`.
  void refused(Errc code, const std::string& words) {
    const auto opened = world_.open();
    EXPECT_EQ(code_of(opened), code);
    if (opened) return;
    EXPECT_NE(opened.error().message.find(words), std::string::npos) << opened.error().message;
    EXPECT_NE(opened.error().message.find(kDir), std::string::npos) << opened.error().message;
    EXPECT_NE(opened.error().hint, "");
  }
  ChunkWorld world_{1};
};

TEST_F(DiskOwnerTest, AFolderWithoutADiskIsNotWrittenTo) {
  EXPECT_EQ(code_of(world_.open()), Errc::not_found);  // no folder either
  ASSERT_TRUE(ok(world_.disk.make_dir(kDir, 0755)));
  refused(Errc::not_found, "no disk of ff");
  rewrite("a file of somebody else\n");
  refused(Errc::refused, "not a disk of ff");
  EXPECT_EQ(world_.disk.list(kDir)->size(), 1u);
}

TEST_F(DiskOwnerTest, OtherClustersNewerFormatsAndDamageAreRefused) {
  world_.make();
  world_.close();
  DiskIdentity other = kIdentity;
  other.cluster = "cluster-2";
  rewrite(to_line(other));
  refused(Errc::refused, "cluster-2");
  rewrite("ff-disk 4 unknown\n");
  refused(Errc::newer_format, "format 4");
  rewrite("ff-disk 1 cluster=x\n");
  refused(Errc::corrupt, "damaged");
  other = kIdentity;
  other.disk = "disk-2";
  rewrite(to_line(other));
  refused(Errc::corrupt, "not the metadata of disk disk-2");
  rewrite(to_line(kIdentity));
  EXPECT_TRUE(ok(world_.open()));
}

TEST_F(DiskOwnerTest, OnlyOneProcessHasTheDisk) {
  world_.make();
  const auto second = world_.run(ChunkStore::open(world_.options()));
  EXPECT_EQ(code_of(second), Errc::busy);
  EXPECT_EQ(code_of(world_.create()), Errc::busy);
  world_.kill();
  EXPECT_TRUE(ok(world_.open()));
}

TEST_F(DiskOwnerTest, ADiskIsMadeOnceAndNeverOverAnother) {
  world_.make();
  world_.close();
  const auto again = world_.create();
  EXPECT_EQ(code_of(again), Errc::exists);
  ASSERT_TRUE(ok(world_.disk.remove(kDir + "/ff-disk")));
  EXPECT_EQ(code_of(world_.create()), Errc::refused);
  rewrite("of somebody else");
  EXPECT_EQ(code_of(world_.create()), Errc::refused);
  rewrite(to_line(kIdentity));
  EXPECT_TRUE(ok(world_.open()));
}

TEST_F(DiskOwnerTest, ACreationThatWasCutOffIsDoneAgain) {
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    ChunkWorld world(n);
    world.disk.crash_at(n);
    const bool made = world.create().ok();
    const bool crashed = world.disk.crashed();
    world.power_loss();
    if (made) {
      EXPECT_TRUE(ok(world.open()));
    } else {
      const auto again = world.create();
      EXPECT_TRUE(again.ok() || again.error().code == Errc::exists) << again.error().message;
      EXPECT_TRUE(ok(world.open()));
    }
    if (!crashed) break;
    ASSERT_LT(n, 300u);
  }
}

}  // namespace
}  // namespace ff::chunk
