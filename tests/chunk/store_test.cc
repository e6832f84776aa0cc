// What one store promises while all goes well, and what it refuses.
#include <gtest/gtest.h>

#include "chunk/chunk_world.h"
#include "simd/crc32c.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { world_.make(); }

  ChunkWorld world_{1};
  const ChunkId id_{.inode = 5, .index = 2};
};

TEST_F(StoreTest, APendingVersionIsSeenOnlyWhenItIsAskedForAndCommitMakesItTheOne) {
  const std::string text = bytes_of(1, 100000);
  const auto pending = world_.pend(world_.update(id_, Change::write, text));
  ASSERT_TRUE(ok(pending));
  EXPECT_EQ(pending->committed.version, 0u);
  ASSERT_TRUE(pending->pending.has_value());
  EXPECT_EQ(pending->pending->image.version, 1u);
  EXPECT_EQ(pending->pending->image.length, text.size());
  EXPECT_EQ(pending->pending->image.checksum, simd::crc32c(as_bytes(text)));
  EXPECT_EQ(world_.get(id_), "(not_found)");
  EXPECT_TRUE(world_.get(id_, Which::pending) == text);
  const auto done = world_.run(world_.store->commit(kTarget, id_, 1, 9));
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->committed, pending->pending->image);
  EXPECT_EQ(done->chain_version, 9u);
  EXPECT_FALSE(done->pending.has_value());
  EXPECT_TRUE(world_.get(id_) == text);
  EXPECT_EQ(world_.get(id_, Which::pending), "(not_found)");
  // Once more is no harm.
  EXPECT_EQ(*world_.run(world_.store->commit(kTarget, id_, 1, 10)), *done);
}

TEST_F(StoreTest, SurvivesACloseAndAKill) {
  const std::string text = bytes_of(1, 100000);
  ASSERT_TRUE(ok(world_.write(id_, text)));
  world_.close();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->last_end(), LastEnd::closed);
  EXPECT_TRUE(world_.get(id_) == text);
  ASSERT_TRUE(ok(world_.write(id_, "more", text.size())));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->last_end(), LastEnd::stopped);
  EXPECT_TRUE(world_.get(id_) == text + "more");
  EXPECT_EQ(world_.store->rolled_back(), 0u);
}

}  // namespace
}  // namespace ff::chunk
