// page_tree.cc: descents, splits and merges.
#include "storage/gateway/page_tree.h"

#include <algorithm>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/check.h"

namespace ff::gateway {

namespace {

constexpr size_t kPageItems = 64;
constexpr size_t kPageBytes = 4 * kKiB;
// A leaf with fewer is merged with its neighbour, if both are small.
constexpr size_t kSmallItems = kPageItems / 4;
constexpr size_t kSmallBytes = kPageBytes / 4;

bool is_overfull(const Page& page) {
  return page.size() > kPageItems || (page.size() > 1 && page.bytes() > kPageBytes);
}

// Where a page is split after something was inserted at `index`. Items that come in order, at the
// end or at the front, leave full pages behind.
size_t split_place(const Page& page, size_t index) {
  if (index + 1 == page.size()) return index;
  return index == 0 ? 1 : page.size() / 2;
}

// The shortest text that is larger than `left` and not larger than `right`.
std::string separator(const std::string& left, const std::string& right) {
  const auto end = std::ranges::mismatch(left, right);
  const auto same = static_cast<size_t>(end.in2 - right.begin());
  return right.substr(0, same + 1);
}

size_t child_of_key(const Page& page, std::string_view key) {
  const auto behind = std::ranges::upper_bound(page.children, key, {}, &Page::Child::first);
  return behind == page.children.begin() ? 0
                                         : static_cast<size_t>(behind - page.children.begin()) - 1;
}

}  // namespace

void TreeRoot::append_to(std::string& out) const {
  append_le(out, page);
  append_le(out, depth);
  append_le(out, count);
}

TreeRoot TreeRoot::take(std::string_view& rest) {
  const auto* const at = as_bytes(rest).data();
  const TreeRoot root{.page = load_le<uint64_t>(at),
                      .depth = load_le<uint32_t>(at + 8),
                      .count = load_le<uint64_t>(at + 12)};
  rest.remove_prefix(kBytes);
  return root;
}

Task<Result<PageTree::Path>> PageTree::path_to_key(std::string_view key) {
  Path path;
  uint64_t number = root_.page;
  for (uint32_t level = root_.depth; level > 0; level--) {
    FF_CO_TRY(const Page* const page, co_await space_.load(number));
    if (page->leaf != (level == 1)) co_return damaged_value();
    if (page->leaf) {
      const auto found = std::ranges::lower_bound(page->items, key, {}, &Page::Item::key);
      path.push_back({.page = number, .index = static_cast<size_t>(found - page->items.begin())});
      break;
    }
    path.push_back({.page = number, .index = child_of_key(*page, key)});
    number = page->children[path.back().index].page;
  }
  co_return path;
}

Task<Result<PageTree::Path>> PageTree::path_to_position(uint64_t position) {
  FF_CHECK(counted_);
  Path path;
  uint64_t number = root_.page;
  for (uint32_t level = root_.depth; level > 0; level--) {
    FF_CO_TRY(const Page* const page, co_await space_.load(number));
    if (page->leaf != (level == 1)) co_return damaged_value();
    if (page->leaf) {
      const size_t index = std::min<uint64_t>(position, page->items.size());
      path.push_back({.page = number, .index = index});
      break;
    }
    size_t at = 0;
    while (at + 1 < page->children.size() && position >= page->children[at].count) {
      position -= page->children[at++].count;
    }
    path.push_back({.page = number, .index = at});
    number = page->children[at].page;
  }
  co_return path;
}

Task<Result<const Page::Item*>> PageTree::find(std::string key) {
  FF_CO_TRY(const Path path, co_await path_to_key(key));
  const Page::Item* found = nullptr;
  if (path.empty()) co_return found;
  const Page& leaf = space_.at(path.back().page);
  const size_t index = path.back().index;
  if (index < leaf.items.size() && leaf.items[index].key == key) found = &leaf.items[index];
  co_return found;
}

Task<Result<bool>> PageTree::put(Page::Item item) {
  FF_CO_TRY(Path path, co_await path_to_key(item.key));
  if (!path.empty()) {
    const auto [number, index] = path.back();
    const Page& leaf = space_.at(number);
    if (index < leaf.items.size() && leaf.items[index].key == item.key) {
      space_.edit(number).items[index].value = std::move(item.value);
      if (is_overfull(leaf)) split(std::move(path));
      co_return false;
    }
  }
  insert(std::move(path), std::move(item));
  co_return true;
}

Task<Result<bool>> PageTree::erase(std::string key) {
  FF_CO_TRY(Path path, co_await path_to_key(key));
  if (path.empty()) co_return false;
  const auto [number, index] = path.back();
  const Page& leaf = space_.at(number);
  if (index >= leaf.items.size() || leaf.items[index].key != key) co_return false;
  FF_CO_TRY(co_await erase(std::move(path)));
  co_return true;
}

Task<Result<void>> PageTree::insert_at(uint64_t position, Page::Item item) {
  FF_CO_TRY(Path path, co_await path_to_position(position));
  insert(std::move(path), std::move(item));
  co_return Result<void>();
}

Task<Result<void>> PageTree::erase_at(uint64_t position) {
  FF_CO_TRY(Path path, co_await path_to_position(position));
  co_return co_await erase(std::move(path));
}

Task<Result<void>> PageTree::replace_at(uint64_t position, std::string value) {
  FF_CO_TRY(Path path, co_await path_to_position(position));
  space_.edit(path.back().page).items[path.back().index].value = std::move(value);
  if (is_overfull(space_.at(path.back().page))) split(std::move(path));
  co_return Result<void>();
}

void PageTree::add_to_counts(const Path& path, int64_t items) {
  root_.count += static_cast<uint64_t>(items);
  if (!counted_) return;
  for (size_t level = 0; level + 1 < path.size(); level++) {
    Page& page = space_.edit(path[level].page);
    page.children[path[level].index].count += static_cast<uint64_t>(items);
  }
}

void PageTree::insert(Path path, Page::Item item) {
  if (path.empty()) {
    root_.page = space_.make(true);
    root_.depth = 1;
    path.push_back({.page = root_.page, .index = 0});
  }
  Page& leaf = space_.edit(path.back().page);
  leaf.items.insert(leaf.items.begin() + static_cast<ptrdiff_t>(path.back().index),
                    std::move(item));
  add_to_counts(path, 1);
  if (is_overfull(leaf)) split(std::move(path));
}

uint64_t PageTree::count_below(const Page& page) const {
  if (!counted_) return 0;
  uint64_t items = page.items.size();
  for (const Page::Child& child : page.children) items += child.count;
  return items;
}

// Splits the leaf at the end of the path, and the pages above that become too large by it.
void PageTree::split(Path path) {
  for (size_t level = path.size(); level-- > 0;) {
    Page& page = space_.edit(path[level].page);
    if (!is_overfull(page)) return;
    const size_t at = split_place(page, path[level].index);
    const uint64_t number = space_.make(page.leaf);
    Page& right = space_.edit(number);
    std::string first;
    if (page.leaf) {
      const auto from = page.items.begin() + static_cast<ptrdiff_t>(at);
      first = separator(page.items[at - 1].key, page.items[at].key);
      right.items.assign(std::move_iterator(from), std::move_iterator(page.items.end()));
      page.items.erase(from, page.items.end());
    } else {
      const auto from = page.children.begin() + static_cast<ptrdiff_t>(at);
      first = page.children[at].first;
      right.children.assign(std::move_iterator(from), std::move_iterator(page.children.end()));
      page.children.erase(from, page.children.end());
    }
    if (level == 0) return split_root(number, std::move(first));
    Page& parent = space_.edit(path[level - 1].page);
    size_t& index = path[level - 1].index;
    parent.children[index].count = count_below(page);
    const Page::Child child{.first = std::move(first), .page = number, .count = count_below(right)};
    parent.children.insert(parent.children.begin() + static_cast<ptrdiff_t>(index) + 1, child);
    if (index > 0 || at > 1 || parent.children.size() == 2) index++;
  }
}

void PageTree::split_root(uint64_t right, std::string first) {
  const uint64_t left = root_.page;
  root_.page = space_.make(false);
  root_.depth++;
  Page& root = space_.edit(root_.page);
  root.children.push_back({.page = left, .count = count_below(space_.at(left))});
  root.children.push_back(
      {.first = std::move(first), .page = right, .count = count_below(space_.at(right))});
}

// Pages that have become empty are dropped, up to the root.
Task<Result<void>> PageTree::erase(Path path) {
  Page& leaf = space_.edit(path.back().page);
  leaf.items.erase(leaf.items.begin() + static_cast<ptrdiff_t>(path.back().index));
  add_to_counts(path, -1);
  if (leaf.items.size() < kSmallItems && !leaf.items.empty() && path.size() > 1) {
    FF_CO_TRY(co_await merge(path));
  }
  for (size_t level = path.size(); level-- > 0;) {
    const auto [number, index] = path[level];
    if (space_.at(number).size() > 0) break;
    space_.drop(number);
    if (level == 0) {
      root_ = TreeRoot();
      co_return Result<void>();
    }
    Page& parent = space_.edit(path[level - 1].page);
    parent.children.erase(parent.children.begin() + static_cast<ptrdiff_t>(path[level - 1].index));
  }
  co_return co_await shrink_root();
}

// Moves the items of the right one of two neighbours to the left one. If the leaf of the path is
// the right one, it is empty then, otherwise its neighbour is dropped.
Task<Result<void>> PageTree::merge(const Path& path) {
  const auto [parent_number, index] = path[path.size() - 2];
  const Page& parent = space_.at(parent_number);
  const uint64_t number = path.back().page;
  if (parent.children.size() < 2 || space_.at(number).bytes() > kSmallBytes) {
    co_return Result<void>();
  }
  const bool is_left = index + 1 < parent.children.size();
  const size_t left_index = is_left ? index : index - 1;
  const uint64_t neighbour = parent.children[is_left ? index + 1 : index - 1].page;
  FF_CO_TRY(const Page* const other, co_await space_.load(neighbour));
  const Page& own = space_.at(number);
  if (own.items.size() + other->items.size() > kPageItems / 2 ||
      own.bytes() + other->bytes() > kPageBytes / 2) {
    co_return Result<void>();
  }
  Page& left = space_.edit(is_left ? number : neighbour);
  Page& right = space_.edit(is_left ? neighbour : number);
  std::ranges::move(right.items, std::back_inserter(left.items));
  right.items.clear();
  Page& above = space_.edit(parent_number);
  above.children[left_index].count = count_below(left);
  above.children[left_index + 1].count = 0;
  if (is_left) {
    space_.drop(neighbour);
    above.children.erase(above.children.begin() + static_cast<ptrdiff_t>(index) + 1);
  }
  co_return Result<void>();
}

Task<Result<void>> PageTree::shrink_root() {
  while (root_.depth > 1) {
    FF_CO_TRY(const Page* const page, co_await space_.load(root_.page));
    if (page->children.size() > 1) break;
    if (page->leaf) co_return damaged_value();
    const uint64_t child = page->children.front().page;
    space_.drop(root_.page);
    root_.page = child;
    root_.depth--;
  }
  co_return Result<void>();
}

const Page::Item& PageTree::Cursor::item() const {
  return tree_.space_.at(steps_.back().page).items[steps_.back().index];
}

const std::vector<Page::Item>& PageTree::Cursor::leaf() const {
  return tree_.space_.at(steps_.back().page).items;
}

// From a page down to its first or last item.
Task<Result<void>> PageTree::Cursor::descend(uint64_t number, bool first) {
  for (;;) {
    FF_CO_TRY(const Page* const page, co_await tree_.space_.load(number));
    const size_t index = first ? 0 : page->size() - 1;
    steps_.push_back({.page = number, .index = index});
    if (page->leaf) co_return Result<void>();
    number = page->children[index].page;
  }
}

Task<Result<void>> PageTree::Cursor::to_edge(bool first) {
  steps_.clear();
  if (tree_.root_.depth == 0) co_return Result<void>();
  co_return co_await descend(tree_.root_.page, first);
}

Task<Result<void>> PageTree::Cursor::to_lower(std::string key) {
  FF_CO_TRY(steps_, co_await tree_.path_to_key(key));
  if (!steps_.empty() && steps_.back().index == leaf().size()) {
    steps_.back().index--;
    co_return co_await next();
  }
  co_return Result<void>();
}

Task<Result<void>> PageTree::Cursor::to_upper(std::string key) {
  FF_CO_TRY(co_await to_lower(key));
  if (!valid()) co_return co_await to_last();
  if (item().key != key) co_return co_await previous();
  co_return Result<void>();
}

Task<Result<void>> PageTree::Cursor::to_position(uint64_t position) {
  steps_.clear();
  if (position >= tree_.root_.count) co_return Result<void>();
  FF_CO_TRY(steps_, co_await tree_.path_to_position(position));
  co_return Result<void>();
}

Task<Result<void>> PageTree::Cursor::move(bool forward) {
  while (!steps_.empty()) {
    Step& step = steps_.back();
    const Page& page = tree_.space_.at(step.page);
    if (forward ? step.index + 1 < page.size() : step.index > 0) {
      step.index = forward ? step.index + 1 : step.index - 1;
      if (page.leaf) co_return Result<void>();
      co_return co_await descend(page.children[step.index].page, forward);
    }
    steps_.pop_back();
  }
  co_return Result<void>();
}

}  // namespace ff::gateway
