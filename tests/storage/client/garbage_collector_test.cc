// Garbage collection: chunks of unlinked files, removed trees, sessions of dead clients.
#include "storage/meta/garbage_collector.h"

#include "storage/client/file_system_world.h"

namespace ff::client {
namespace {

using meta::InodeType;

class CollectorTest : public FileSystemWorld {
 protected:
  uint64_t mkdir(uint64_t dir, std::string name) {
    auto made =
        run(metadata().create({}, {.id = dir}, name, {.kind = InodeType::directory, .mode = 0755}));
    EXPECT_TRUE(io::ok(made));
    return made ? made->inode.id : 0;
  }
};

TEST_F(CollectorTest, BytesGoAfterTheLastName) {
  const uint64_t id = make("f", text_of(1, 5 * kChunk));
  ASSERT_TRUE(io::ok(run(metadata().link({}, {.id = id}, meta::root(), "g"))));
  EXPECT_EQ(stored(), 2u);  // on two chains
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "f", std::nullopt))));
  pass(30 * kSecond);
  EXPECT_EQ(stored(), 2u);
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "g", std::nullopt))));
  EXPECT_EQ(fsck().garbage(), 1u);
  EXPECT_TRUE(eventually([&] { return stored() == 0; }));
  EXPECT_TRUE(eventually([&] { return fsck().garbage() == 0; }));
  EXPECT_FALSE(run(metadata().stat({.id = id}, false)).ok());
}

// Otherwise they stay for a while, for readers.
TEST_F(CollectorTest, BytesGoAtOnceWhenADiskIsNearlyFull) {
  constexpr int64_t kSoonNs = 4 * kSecond;
  make("f", text_of(1, 2 * kChunk));
  make("g", text_of(2, 2 * kChunk));
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "f", std::nullopt))));
  pass(kSoonNs);
  EXPECT_EQ(stored(), 4u);
  ASSERT_TRUE(eventually([&] { return stored() == 2; }));
  auto& node = *cluster_.nodes()[1];
  sim::SimDisk& disk = node.disk();
  node.kill();
  disk.set_capacity(kGiB);
  node.start();
  const auto other = disk.open("/other", {.access = io::AccessMode::read_write, .create = true});
  ASSERT_TRUE(io::ok(other));
  ASSERT_TRUE(io::ok((*other)->reserve(0, kGiB / 100 * 93)));
  pass(30 * kSecond);
  auto reader = open(make("h", text_of(3, 2 * kChunk)), meta::kMayWrite);
  ASSERT_TRUE(io::ok(reader));
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "g", std::nullopt))));
  ASSERT_TRUE(io::ok(run(metadata().unlink({}, meta::root(), "h", std::nullopt))));
  pass(kSoonNs);
  EXPECT_EQ(stored(), 1u) << "those of the open file stay, on the chain without the full disk";
  ASSERT_TRUE(io::ok(run((*reader)->close())));
  EXPECT_TRUE(eventually([&] { return stored() == 0; }));
}

TEST_F(CollectorTest, ReplacedFilesGo) {
  make("f", text_of(1, 1000));
  make("g", text_of(2, 1000));
  ASSERT_TRUE(io::ok(run(metadata().rename(
      {}, {.from_dir = meta::root(), .from = "f", .to_dir = meta::root(), .to = "g"}))));
  EXPECT_TRUE(eventually([&] { return stored() == 1; }));
}

TEST_F(CollectorTest, ATreeGoesWithAllThatIsInIt) {
  const uint64_t top = mkdir(meta::kRoot, "top");
  for (int i = 0; i < 3; i++) {
    const uint64_t below = mkdir(top, fmt::format("d{}", i));
    for (int j = 0; j < 50; j++) {
      const auto made =
          run(metadata().create({}, {.id = below}, fmt::format("f{}", j), {.mode = 0644}));
      ASSERT_TRUE(io::ok(made));
      if (j > 2) continue;
      auto file = open(made->inode.id, meta::kMayWrite);
      ASSERT_TRUE(io::ok(file));
      ASSERT_TRUE(io::ok(run((*file)->write(0, as_bytes("x")))));
      ASSERT_TRUE(io::ok(run((*file)->close())));
    }
  }
  EXPECT_EQ(stored(), 9u);
  ASSERT_TRUE(io::ok(run(metadata().remove_tree({}, meta::root(), "top"))));
  EXPECT_EQ(fsck().problems(), 0u);
  EXPECT_TRUE(eventually([&] { return fsck().inodes() == 1; }));
  EXPECT_EQ(stored(), 0u);
  EXPECT_EQ(fsck().problems(), 0u);
}

// Servers die while they empty the tree.
TEST_F(CollectorTest, ATreeGoesWhoeverIsPrimary) {
  const uint64_t top = mkdir(meta::kRoot, "top");
  for (int i = 0; i < 200; i++) {
    ASSERT_TRUE(
        io::ok(run(metadata().create({}, {.id = top}, fmt::format("f{}", i), {.mode = 0644}))));
  }
  ASSERT_TRUE(io::ok(run(metadata().remove_tree({}, meta::root(), "top"))));
  for (int i = 0; i < 6; i++) {
    for (const auto& manager : cluster_.managers()) {
      if (manager->epoch() > 0) manager->kill();
    }
    pass(5 * kSecond);
    for (const auto& manager : cluster_.managers()) {
      if (!manager->running()) manager->start();
    }
    EXPECT_EQ(fsck().problems(), 0u);
  }
  EXPECT_TRUE(eventually([&] { return fsck().inodes() == 1; }));
}

}  // namespace
}  // namespace ff::client
