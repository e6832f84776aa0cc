// A tree of pages (a B+ tree): items in the order of their keys, or, where they have no keys, in an
// order that the caller gives by positions. A change writes one leaf, and the pages above it only
// if a page is split or emptied, or if the tree counts: then positions are found without a walk. So
// the cost of a change grows with the depth of the tree alone: 64 items or 4 KiB a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/gateway/page_space.h"

namespace ff::gateway {

// Where a tree begins; the head of its collection has it.
struct TreeRoot {
  static constexpr size_t kBytes = 20;

  uint64_t page = 0;
  uint32_t depth = 0;  // pages from the root to a leaf; 0: there are no items
  uint64_t count = 0;  // of all items

  void append_to(std::string& out) const;
  // Takes kBytes from the front of `rest`, which has them.
  static TreeRoot take(std::string_view& rest);
};

class PageTree {
 public:
  enum class Counting : uint8_t { no, yes };

  // Space and root outlive the tree; the root changes with it.
  PageTree(PageSpace& space, TreeRoot& root, Counting counting)
      : space_(space), root_(root), counted_(counting == Counting::yes) {}

  uint64_t count() const { return root_.count; }

  // The item with the key; null: there is none. Valid until the next change.
  Task<Result<const Page::Item*>> find(std::string key);
  // Inserts the item, or replaces the one with its key. True: it is new.
  Task<Result<bool>> put(Page::Item item);
  // False: there was none.
  Task<Result<bool>> erase(std::string key);
  // Of a tree that counts; positions from 0 on, which exist; of an insertion also the one behind
  // the last item.
  Task<Result<void>> insert_at(uint64_t position, Page::Item item);
  Task<Result<void>> erase_at(uint64_t position);
  Task<Result<void>> replace_at(uint64_t position, std::string value);

  // A place in the tree, until the next change of it.
  class Cursor {
   public:
    explicit Cursor(PageTree& tree) : tree_(tree) {}

    bool valid() const {
      return !steps_.empty();
    }  // false: behind the last item, or before the first
    const Page::Item& item() const;
    Task<Result<void>> to_first() { return to_edge(true); }
    Task<Result<void>> to_last() { return to_edge(false); }
    // The first item whose key is not smaller.
    Task<Result<void>> to_lower(std::string key);
    // The last item whose key is not larger.
    Task<Result<void>> to_upper(std::string key);
    // Of a tree that counts.
    Task<Result<void>> to_position(uint64_t position);
    Task<Result<void>> next() { return move(true); }
    Task<Result<void>> previous() { return move(false); }
    // All items of the leaf in which the cursor is.
    const std::vector<Page::Item>& leaf() const;

   private:
    friend class PageTree;
    struct Step {
      uint64_t page = 0;
      size_t index = 0;
    };
    Task<Result<void>> to_edge(bool first);
    Task<Result<void>> move(bool forward);
    Task<Result<void>> descend(uint64_t page, bool first);

    PageTree& tree_;
    std::vector<Step> steps_;  // from the root to an item
  };

 private:
  using Path = std::vector<Cursor::Step>;

  // To the leaf of the key or the position, and the index there: that of the first item that is not
  // before, which may be the end of the leaf.
  Task<Result<Path>> path_to_key(std::string_view key);
  Task<Result<Path>> path_to_position(uint64_t position);
  void insert(Path path, Page::Item item);
  Task<Result<void>> erase(Path path);
  void add_to_counts(const Path& path, int64_t items);
  void split(Path path);
  void split_root(uint64_t right, std::string first);
  Task<Result<void>> merge(const Path& path);
  Task<Result<void>> shrink_root();
  uint64_t count_below(const Page& page) const;

  PageSpace& space_;
  TreeRoot& root_;
  const bool counted_;
};

}  // namespace ff::gateway
