// What a page of a directory costs: with names and inodes on another machine, each read is a round
// trip, and there must be as few for a thousand names as for one.
#include <gtest/gtest.h>

#include "storage/meta/counting_store.h"
#include "storage/meta/namespace_world.h"

namespace ff::meta {
namespace {

TEST(ListingTest, APageTakesAsFewReadsAsOneName) {
  int reads = 0;
  NamespaceWorld world({"counting", [&] { return std::make_unique<CountingStore>(reads); }});
  const auto reads_of_a_page = [&](const std::string& name, int files, int dirs) {
    const auto made = world.dir(kRootUser, kRoot, name);
    for (int i = 0; i < files; i++) {
      EXPECT_TRUE(world.file(kRootUser, made->id, fmt::format("f{}", i)).ok());
    }
    for (int i = 0; i < dirs; i++) {
      EXPECT_TRUE(world.dir(kRootUser, made->id, fmt::format("d{}", i)).ok());
    }
    reads = 0;
    const auto page = world.run(world.names().list(kRootUser, made->id, "", 1000, true));
    EXPECT_TRUE(page.ok() && page->end);
    EXPECT_EQ(page->entries.size(), static_cast<size_t>(files + dirs));
    for (const auto& entry : page->entries) {
      EXPECT_TRUE(entry.inode && entry.inode->id == entry.id && entry.inode->mtime_ns > 0);
    }
    return reads;
  };
  const int few = reads_of_a_page("few", 1, 1);
  EXPECT_EQ(reads_of_a_page("many", 300, 100), few);
  EXPECT_LE(few, 3);  // the directory, the names, the inodes
}

}  // namespace
}  // namespace ff::meta
