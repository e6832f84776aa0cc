// page_space.cc: pages as bytes: a letter, then items or children one behind the other.
#include "storage/gateway/page_space.h"

#include <utility>

#include "platform/base/bytes.h"

namespace ff::gateway {

namespace {

constexpr char kLeafLetter = 'l';
constexpr char kInnerLetter = 'i';
constexpr size_t kItemHead = 2 * sizeof(uint32_t);
constexpr size_t kChildHead = sizeof(uint32_t) + 2 * sizeof(uint64_t);

Result<Page::Item> take_item(std::string_view& rest) {
  if (rest.size() < kItemHead) return damaged_value();
  const auto* const at = as_bytes(rest).data();
  const size_t key = load_le<uint32_t>(at), value = load_le<uint32_t>(at + sizeof(uint32_t));
  rest.remove_prefix(kItemHead);
  if (rest.size() < key || rest.size() - key < value) return damaged_value();
  Page::Item item{.key = std::string(rest.substr(0, key)),
                  .value = std::string(rest.substr(key, value))};
  rest.remove_prefix(key + value);
  return item;
}

Result<Page::Child> take_child(std::string_view& rest) {
  if (rest.size() < kChildHead) return damaged_value();
  const auto* const at = as_bytes(rest).data();
  const size_t first = load_le<uint32_t>(at);
  Page::Child child{.page = load_le<uint64_t>(at + sizeof(uint32_t)),
                    .count = load_le<uint64_t>(at + sizeof(uint32_t) + sizeof(uint64_t))};
  rest.remove_prefix(kChildHead);
  if (rest.size() < first) return damaged_value();
  child.first = rest.substr(0, first);
  rest.remove_prefix(first);
  return child;
}

}  // namespace

size_t Page::bytes() const {
  size_t all = 1;
  for (const Item& item : items) all += kItemHead + item.key.size() + item.value.size();
  for (const Child& child : children) all += kChildHead + child.first.size();
  return all;
}

std::string Page::encode() const {
  std::string out(1, leaf ? kLeafLetter : kInnerLetter);
  out.reserve(bytes());
  for (const Item& item : items) {
    append_le(out, static_cast<uint32_t>(item.key.size()));
    append_le(out, static_cast<uint32_t>(item.value.size()));
    out += item.key;
    out += item.value;
  }
  for (const Child& child : children) {
    append_le(out, static_cast<uint32_t>(child.first.size()));
    append_le(out, child.page);
    append_le(out, child.count);
    out += child.first;
  }
  return out;
}

Result<Page> Page::decode(std::string_view stored) {
  if (stored.empty()) return damaged_value();
  Page page{.leaf = stored.front() == kLeafLetter};
  if (!page.leaf && stored.front() != kInnerLetter) return damaged_value();
  std::string_view rest = stored.substr(1);
  while (!rest.empty()) {
    if (page.leaf) {
      FF_TRY(Item item, take_item(rest));
      page.items.push_back(std::move(item));
    } else {
      FF_TRY(Child child, take_child(rest));
      page.children.push_back(std::move(child));
    }
  }
  if (page.size() == 0) return damaged_value();
  return page;
}

Task<Result<Page*>> PageSpace::load(uint64_t number) {
  const auto loaded = loaded_.find(number);
  if (loaded != loaded_.end()) co_return &loaded->second.page;
  FF_CO_TRY(const auto stored, co_await view_.get_part(parts_.name(number)));
  if (!stored) co_return damaged_value();
  FF_CO_TRY(Page page, Page::decode(*stored));
  LoadedPage& kept = loaded_[number];
  kept.page = std::move(page);
  co_return &kept.page;
}

uint64_t PageSpace::make(bool leaf) {
  const uint64_t number = parts_.next_page++;
  LoadedPage& made = loaded_[number];
  made.page.leaf = leaf;
  made.changed = true;
  return number;
}

Page& PageSpace::edit(uint64_t number) {
  LoadedPage& page = loaded_.at(number);
  page.changed = true;
  return page.page;
}

void PageSpace::drop(uint64_t number) {
  loaded_.erase(number);
  view_.remove_part(parts_.name(number));
}

void PageSpace::save() {
  for (auto& [number, page] : loaded_) {
    if (page.changed) view_.put_part(parts_.name(number), page.page.encode());
    page.changed = false;
  }
}

}  // namespace ff::gateway
