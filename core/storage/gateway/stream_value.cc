// stream_value.cc: heads and items as bytes, and the counting of entries, as Redis does it.
#include "storage/gateway/stream_value.h"

#include <algorithm>
#include <utility>

#include "platform/base/bytes.h"

namespace ff::gateway {

namespace {

constexpr size_t kGroupBytes = sizeof(uint32_t) + 3 * sizeof(uint64_t) + 2 * TreeRoot::kBytes;
constexpr size_t kStreamBytes = 5 * sizeof(uint64_t) + TreeRoot::kBytes;
constexpr size_t kNumbersBytes = 2 * sizeof(uint64_t);  // in front of items

uint64_t take_number(std::string_view& rest) {
  const auto number = load_le<uint64_t>(as_bytes(rest).data());
  rest.remove_prefix(sizeof(uint64_t));
  return number;
}

StreamId take_id(std::string_view& rest) {
  const uint64_t ms = take_number(rest);
  return {ms, take_number(rest)};
}

void append_id(std::string& out, StreamId id) {
  append_le(out, id.ms);
  append_le(out, id.seq);
}

// A size of 32 bits, and so many bytes.
Result<std::string> take_text(std::string_view& rest) {
  if (rest.size() < sizeof(uint32_t)) return damaged_value();
  const size_t size = load_le<uint32_t>(as_bytes(rest).data());
  rest.remove_prefix(sizeof(uint32_t));
  if (rest.size() < size) return damaged_value();
  std::string text(rest.substr(0, size));
  rest.remove_prefix(size);
  return text;
}

void append_text(std::string& out, std::string_view text) {
  append_le(out, static_cast<uint32_t>(text.size()));
  out += text;
}

}  // namespace

std::string PendingEntry::encode() const {
  std::string out;
  append_le(out, delivered_ms);
  append_le(out, deliveries);
  return out + consumer;
}

Result<PendingEntry> PendingEntry::decode(std::string_view stored) {
  if (stored.size() < kNumbersBytes) return damaged_value();
  PendingEntry entry;
  entry.delivered_ms = static_cast<int64_t>(take_number(stored));
  entry.deliveries = take_number(stored);
  entry.consumer = stored;
  return entry;
}

std::string StreamConsumer::encode() const {
  std::string out;
  append_le(out, seen_ms);
  append_le(out, pending);
  return out;
}

Result<StreamConsumer> StreamConsumer::decode(std::string_view stored) {
  if (stored.size() < kNumbersBytes) return damaged_value();
  StreamConsumer consumer;
  consumer.seen_ms = static_cast<int64_t>(take_number(stored));
  consumer.pending = take_number(stored);
  return consumer;
}

std::string encode_fields(const StreamFields& fields) {
  std::string out;
  for (const std::string& text : fields) append_text(out, text);
  return out;
}

Result<StreamFields> decode_fields(std::string_view stored) {
  StreamFields fields;
  while (!stored.empty()) {
    FF_TRY(std::string text, take_text(stored));
    fields.push_back(std::move(text));
  }
  return fields;
}

Task<Result<std::unique_ptr<StreamValue>>> StreamValue::open(StoreView& view, std::string key) {
  std::unique_ptr<StreamValue> stream;
  FF_CO_TRY(const auto stored, co_await view.get(key));
  if (!stored) co_return stream;
  if (stored_type(stored->bytes) != ValueType::stream) co_return wrong_type();
  std::string_view head = stored->bytes;
  FF_CO_TRY(const PartSpace parts, PartSpace::take(head, kvstore::redis_slot(key)));
  stream = std::make_unique<StreamValue>(view, std::move(key), parts);
  stream->expires_ms_ = stored->expires_ms;
  FF_CO_TRY(stream->decode(head));
  co_return stream;
}

std::unique_ptr<StreamValue> StreamValue::make(StoreView& view, std::string key, uint64_t id) {
  const PartSpace parts{.slot = kvstore::redis_slot(key), .id = id};
  return std::make_unique<StreamValue>(view, std::move(key), parts);
}

Result<void> StreamValue::decode(std::string_view head) {
  if (head.size() < kStreamBytes) return damaged_value();
  last = take_id(head);
  max_deleted = take_id(head);
  entries_added = take_number(head);
  entries_root_ = TreeRoot::take(head);
  while (!head.empty()) {
    StreamGroup group;
    FF_TRY(group.name, take_text(head));
    if (head.size() < kGroupBytes - sizeof(uint32_t)) return damaged_value();
    group.last = take_id(head);
    group.entries_read = static_cast<int64_t>(take_number(head));
    group.pending = TreeRoot::take(head);
    group.consumers = TreeRoot::take(head);
    groups.push_back(std::move(group));
  }
  return {};
}

void StreamValue::save() {
  pages_.save();
  std::string head = pages_.parts().encode_head(ValueType::stream);
  append_id(head, last);
  append_id(head, max_deleted);
  append_le(head, entries_added);
  entries_root_.append_to(head);
  for (const StreamGroup& group : groups) {
    append_text(head, group.name);
    append_id(head, group.last);
    append_le(head, group.entries_read);
    group.pending.append_to(head);
    group.consumers.append_to(head);
  }
  view_.put_head(key_, std::move(head), expires_ms_);
}

StreamGroup* StreamValue::find_group(std::string_view name) {
  const auto found = std::ranges::lower_bound(groups, name, {}, &StreamGroup::name);
  return found == groups.end() || found->name != name ? nullptr : &*found;
}

StreamGroup& StreamValue::add_group(std::string_view name) {
  const auto behind = std::ranges::lower_bound(groups, name, {}, &StreamGroup::name);
  StreamGroup group;
  group.name = name;
  return *groups.insert(behind, std::move(group));
}

Task<Result<void>> StreamValue::remove_group(std::string_view name) {
  const auto found = std::ranges::find(groups, name, &StreamGroup::name);
  const StreamGroup group = std::move(*found);
  groups.erase(found);
  FF_CO_TRY(co_await drop_tree(group.pending.page, group.pending.depth));
  co_return co_await drop_tree(group.consumers.page, group.consumers.depth);
}

Task<Result<void>> StreamValue::drop_tree(uint64_t page, uint32_t depth) {
  if (depth > 1) {
    FF_CO_TRY(const Page* const loaded, co_await pages_.load(page));
    const auto children = loaded->children;
    for (const Page::Child& child : children) {
      FF_CO_TRY(co_await drop_tree(child.page, depth - 1));
    }
  }
  if (depth > 0) pages_.drop(page);
  co_return Result<void>();
}

Task<Result<StreamId>> StreamValue::first_id() {
  PageTree tree = entries();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  co_return cursor.valid() ? StreamId::of_key(cursor.item().key) : StreamId();
}

Task<Result<StreamId>> StreamValue::last_id() {
  PageTree tree = entries();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_last());
  co_return cursor.valid() ? StreamId::of_key(cursor.item().key) : StreamId();
}

Task<Result<bool>> StreamValue::has_entry(StreamId id) {
  PageTree tree = entries();
  FF_CO_TRY(const Page::Item* const found, co_await tree.find(id.key()));
  co_return found != nullptr;
}

Task<Result<bool>> StreamValue::has_gap_from(StreamId from) {
  if (length() == 0 || max_deleted.is_zero() || from > max_deleted) co_return false;
  FF_CO_TRY(const StreamId first, co_await first_id());
  co_return first <= max_deleted;
}

// The rules are those of streamEstimateDistanceFromFirstEverEntry().
Task<Result<int64_t>> StreamValue::count_up_to(StreamId id) {
  const auto added = static_cast<int64_t>(entries_added);
  if (added == 0) co_return int64_t{0};
  if (length() == 0 && id <= last) co_return added;
  if (id == last) co_return added;
  if (id > last) co_return StreamGroup::kUnknown;
  FF_CO_TRY(const StreamId first, co_await first_id());
  if (!max_deleted.is_zero() && max_deleted >= first) co_return StreamGroup::kUnknown;
  const int64_t before = added - static_cast<int64_t>(length());
  if (id < first) co_return before;
  co_return id == first ? before + 1 : StreamGroup::kUnknown;
}

}  // namespace ff::gateway
