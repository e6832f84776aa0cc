// The pages of one collection (a stream, a list, a set), as one command sees them. A collection is
// too large to be written as a whole with each change, so it lies in pages of about 4 KiB: parts
// (kvstore/calls.h) of its key, whose value is only its head. A page has a number; the name of its
// part is made from the number and the id of the collection, which is random: so a page is never
// taken for one of another collection that had the same key.
//
// A page is a leaf, with items in order, or has children, which are pages themselves
// (page_tree.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/gateway/store_view.h"

namespace ff::gateway {

struct Page {
  struct Item {
    std::string key = {};  // empty where items have no keys but an order
    std::string value = {};
  };
  struct Child {
    std::string first = {};  // no key below is smaller, except below the first child
    uint64_t page = 0;
    uint64_t count = 0;  // of items below; 0 where they are not counted
  };
  bool leaf = true;
  std::vector<Item> items = {};      // of a leaf
  std::vector<Child> children = {};  // of others

  size_t size() const { return leaf ? items.size() : children.size(); }
  size_t bytes() const;
  std::string encode() const;
  // Errc::corrupt: not a page.
  static Result<Page> decode(std::string_view stored);
};

class PageSpace {
 public:
  // The view outlives the space.
  PageSpace(StoreView& view, const PartSpace& parts) : view_(view), parts_(parts) {}

  // Valid while the space is and the page is not dropped. Errc::corrupt: there is no such page.
  Task<Result<Page*>> load(uint64_t number);
  // A new page, which is empty.
  uint64_t make(bool leaf);
  // A page that is loaded, or made.
  Page& at(uint64_t number) { return loaded_.at(number).page; }
  // Likewise, to change it.
  Page& edit(uint64_t number);
  void drop(uint64_t number);
  // Gives what has changed to the view.
  void save();
  const PartSpace& parts() const { return parts_; }

 private:
  struct LoadedPage {
    Page page = {};
    bool changed = false;
  };

  StoreView& view_;
  PartSpace parts_;
  std::map<uint64_t, LoadedPage> loaded_;
};

}  // namespace ff::gateway
