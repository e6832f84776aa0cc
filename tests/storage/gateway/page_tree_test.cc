// Trees of pages beside a sorted map and a vector, each command with a new view, as in a gateway.
#include "storage/gateway/page_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "storage/gateway/redis_world.h"

namespace ff::gateway {
namespace {

using Counting = PageTree::Counting;

class PageTreeTest : public testing::Test {
 protected:
  // Runs `change` on the tree, which is read from the store, and commits it.
  template <class Change>
  void with_tree(Counting counting, Change change) {
    run_task(world_.world.loop(), run(counting, std::move(change)));
  }
  template <class Change>
  Task<void> run(Counting counting, Change change) {
    StoreView view(world_.gateway.access(), 1);
    PageSpace space(view, parts_);
    PageTree tree(space, root_, counting);
    co_await change(tree);
    space.save();
    parts_ = space.parts();
    view.put_head("key", parts_.encode_head(ValueType::set), 0);
    const auto committed = co_await view.commit();
    EXPECT_TRUE(committed.ok() && *committed);
  }
  std::vector<Page::Item> all(Counting counting) {
    std::vector<Page::Item> items;
    with_tree(counting, [&](PageTree& tree) -> Task<void> {
      PageTree::Cursor cursor(tree);
      EXPECT_TRUE((co_await cursor.to_first()).ok());
      while (cursor.valid()) {
        items.push_back(cursor.item());
        EXPECT_TRUE((co_await cursor.next()).ok());
      }
    });
    return items;
  }

  RedisWorld world_;
  PartSpace parts_{.slot = kvstore::redis_slot("key"), .id = 7};
  TreeRoot root_;
};

TEST_F(PageTreeTest, AgreesWithAMap) {
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    SeededRng rng(seed);
    std::map<std::string, std::string> model;
    for (int round = 0; round < 400; round++) {
      with_tree(Counting::yes, [&](PageTree& tree) -> Task<void> {
        for (int i = 0; i < 20; i++) {
          const std::string key = fmt::format("k{}", rng.next() % 3000);
          const bool grows = rng.next() % 5 < (round < 250 ? 4u : 1u);
          if (grows) {
            Page::Item item{.key = key, .value = std::string(rng.next() % 120, 'v')};
            const bool is_new = model.insert_or_assign(key, item.value).second;
            const auto put = co_await tree.put(std::move(item));
            EXPECT_EQ(*put, is_new);
          } else {
            const auto erased = co_await tree.erase(key);
            EXPECT_EQ(*erased, model.erase(key) > 0);
          }
        }
        const std::string key = fmt::format("k{}", rng.next() % 3000);
        const auto found = co_await tree.find(key);
        EXPECT_EQ(*found != nullptr, model.contains(key));
        PageTree::Cursor cursor(tree);
        EXPECT_TRUE((co_await cursor.to_lower(key)).ok());
        const auto lower = model.lower_bound(key);
        EXPECT_EQ(cursor.valid(), lower != model.end());
        if (cursor.valid()) {
          EXPECT_EQ(cursor.item().key, lower->first);
        }
        EXPECT_TRUE((co_await cursor.to_upper(key)).ok());
        const auto upper = model.upper_bound(key);
        EXPECT_EQ(cursor.valid(), upper != model.begin());
        if (cursor.valid()) {
          EXPECT_EQ(cursor.item().key, std::prev(upper)->first);
        }
      });
      ASSERT_EQ(root_.count, model.size());
    }
    const auto items = all(Counting::yes);
    ASSERT_EQ(items.size(), model.size());
    EXPECT_TRUE(std::ranges::equal(items, model, [](const auto& item, const auto& pair) {
      return item.key == pair.first && item.value == pair.second;
    }));
    with_tree(Counting::yes, [&](PageTree& tree) -> Task<void> {
      for (const auto& [key, value] : model) EXPECT_TRUE(*co_await tree.erase(key));
    });
    EXPECT_EQ(root_.count, 0u);
    EXPECT_EQ(world_.store.parts(), 0u) << "pages that nothing leads to";
  }
}

TEST_F(PageTreeTest, PositionsAgreeWithAVector) {
  SeededRng rng(5);
  std::vector<std::string> model;
  for (int round = 0; round < 600; round++) {
    with_tree(Counting::yes, [&](PageTree& tree) -> Task<void> {
      for (int i = 0; i < 20; i++) {
        const uint64_t choice = rng.next() % 8;
        const bool grows = round < 400 ? choice < 6 : choice < 1;
        uint64_t at = rng.next() % (model.size() + 1);
        if (choice % 3 == 1) at = 0;
        if (choice % 3 == 2) at = model.size();
        if (grows || model.empty()) {
          at = std::min<uint64_t>(at, model.size());
          const std::string value = fmt::format("{}-{}", round, i);
          Page::Item item{.value = value};
          EXPECT_TRUE((co_await tree.insert_at(at, std::move(item))).ok());
          model.insert(model.begin() + static_cast<ptrdiff_t>(at), value);
        } else {
          at = std::min<uint64_t>(at, model.size() - 1);
          EXPECT_TRUE((co_await tree.erase_at(at)).ok());
          model.erase(model.begin() + static_cast<ptrdiff_t>(at));
        }
      }
      if (model.empty()) co_return;
      const uint64_t at = rng.next() % model.size();
      EXPECT_TRUE((co_await tree.replace_at(at, "new")).ok());
      model[at] = "new";
      PageTree::Cursor cursor(tree);
      EXPECT_TRUE((co_await cursor.to_position(at)).ok());
      EXPECT_EQ(cursor.item().value, "new");
      EXPECT_TRUE((co_await cursor.previous()).ok());
      EXPECT_EQ(cursor.valid(), at > 0);
      if (cursor.valid()) {
        EXPECT_EQ(cursor.item().value, model[at - 1]);
      }
    });
    ASSERT_EQ(root_.count, model.size());
  }
  const auto items = all(Counting::yes);
  EXPECT_TRUE(std::ranges::equal(items, model, {}, &Page::Item::value));
}

// What a change writes does not grow with the tree: head, leaf, and sometimes a page above.
TEST_F(PageTreeTest, AChangeWritesFewPages) {
  for (int i = 0; i < 20'000; i++) {
    with_tree(Counting::no, [&](PageTree& tree) -> Task<void> {
      Page::Item item{.key = fmt::format("{:08}", i), .value = "value"};
      EXPECT_TRUE(*co_await tree.put(std::move(item)));
    });
  }
  EXPECT_EQ(root_.depth, 3u);
  // Full pages, because the keys came in order.
  EXPECT_LT(world_.store.parts(), 20'000 / 64 * 1.1);
  const size_t before = world_.store.bytes_put;
  with_tree(Counting::no,
            [&](PageTree& tree) -> Task<void> { EXPECT_TRUE(*co_await tree.erase("00010000")); });
  EXPECT_LT(world_.store.bytes_put - before, 4096u);
}

TEST_F(PageTreeTest, DamagedPagesAreErrors) {
  with_tree(Counting::no, [&](PageTree& tree) -> Task<void> {
    Page::Item item{.key = "k", .value = "value"};
    EXPECT_TRUE(*co_await tree.put(std::move(item)));
  });
  const std::string name = parts_.name(root_.page);
  const std::string stored = Page{.items = {{.key = "k", .value = "value"}}}.encode();
  for (size_t size = 0; size < stored.size(); size++) {
    EXPECT_EQ(Page::decode(stored.substr(0, size)).error().code, Errc::corrupt) << size;
  }
  StoreView view(world_.gateway.access(), 1);
  PartSpace others = parts_;
  others.id = 8;
  PageSpace space(view, others);
  PageTree tree(space, root_, Counting::no);
  EXPECT_EQ(run_task(world_.world.loop(), tree.find("k")).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace ff::gateway
