// stream_groups.cc: two trees of a group that change together.
#include "storage/gateway/stream_groups.h"

#include <utility>
#include <vector>

namespace ff::gateway {

namespace {

constexpr int64_t kSeenMs = 1000;

}  // namespace

Task<Result<OpenGroup>> open_group(StoreView& view, std::string key, std::string name) {
  OpenGroup open;
  FF_CO_TRY(open.stream, co_await StreamValue::open(view, std::move(key)));
  if (open.stream != nullptr) open.group = open.stream->find_group(name);
  co_return open;
}

Error no_group(std::string_view key, std::string_view group, std::string_view behind) {
  return fail(Errc::usage, "NOGROUP No such key '{}' or consumer group '{}'{}", key, group, behind);
}

Task<Result<std::optional<StreamConsumer>>> GroupChange::find_consumer(std::string name) {
  std::optional<StreamConsumer> consumer;
  PageTree tree = stream_.consumers(group_);
  FF_CO_TRY(const Page::Item* const found, co_await tree.find(std::move(name)));
  if (found == nullptr) co_return consumer;
  FF_CO_TRY(consumer, StreamConsumer::decode(found->value));
  co_return consumer;
}

Task<Result<bool>> GroupChange::add_consumer(std::string name) {
  FF_CO_TRY(const auto found, co_await find_consumer(name));
  if (found) co_return false;
  StreamConsumer consumer;
  consumer.seen_ms = now_ms_;
  PageTree tree = stream_.consumers(group_);
  Page::Item item;
  item.key = std::move(name);
  item.value = consumer.encode();
  FF_CO_TRY(co_await tree.put(std::move(item)));
  changed_ = true;
  co_return true;
}

Task<Result<void>> GroupChange::see_consumer(std::string name) {
  FF_CO_TRY(const bool is_new, co_await add_consumer(name));
  if (is_new) co_return Result<void>();
  FF_CO_TRY(auto consumer, co_await find_consumer(name));
  if (now_ms_ < consumer->seen_ms + kSeenMs) co_return Result<void>();
  co_return co_await add_to_consumer(std::move(name), 0);
}

Task<Result<void>> GroupChange::add_to_consumer(std::string name, int64_t entries) {
  FF_CO_TRY(auto consumer, co_await find_consumer(name));
  if (!consumer) co_return damaged_value();
  if (entries >= 0) consumer->seen_ms = now_ms_;
  consumer->pending += static_cast<uint64_t>(entries);
  PageTree tree = stream_.consumers(group_);
  Page::Item item;
  item.key = std::move(name);
  item.value = consumer->encode();
  FF_CO_TRY(co_await tree.put(std::move(item)));
  changed_ = true;
  co_return Result<void>();
}

Task<Result<uint64_t>> GroupChange::remove_consumer(std::string name) {
  FF_CO_TRY(const auto consumer, co_await find_consumer(name));
  if (!consumer) co_return uint64_t{0};
  std::vector<std::string> pending;
  PageTree entries = stream_.pending(group_);
  PageTree::Cursor cursor(entries);
  FF_CO_TRY(co_await cursor.to_first());
  while (cursor.valid() && pending.size() < consumer->pending) {
    FF_CO_TRY(const auto entry, PendingEntry::decode(cursor.item().value));
    if (entry.consumer == name) pending.push_back(cursor.item().key);
    FF_CO_TRY(co_await cursor.next());
  }
  for (const std::string& id : pending) FF_CO_TRY(co_await entries.erase(id));
  PageTree consumers = stream_.consumers(group_);
  FF_CO_TRY(co_await consumers.erase(std::move(name)));
  changed_ = true;
  co_return consumer->pending;
}

Task<Result<std::optional<PendingEntry>>> GroupChange::find_pending(StreamId id) {
  std::optional<PendingEntry> entry;
  PageTree tree = stream_.pending(group_);
  FF_CO_TRY(const Page::Item* const found, co_await tree.find(id.key()));
  if (found == nullptr) co_return entry;
  FF_CO_TRY(entry, PendingEntry::decode(found->value));
  co_return entry;
}

Task<Result<void>> GroupChange::set_pending(StreamId id, PendingEntry entry) {
  FF_CO_TRY(const auto former, co_await find_pending(id));
  if (!former || former->consumer != entry.consumer) {
    if (former) FF_CO_TRY(co_await add_to_consumer(former->consumer, -1));
    FF_CO_TRY(co_await add_to_consumer(entry.consumer, 1));
  }
  PageTree tree = stream_.pending(group_);
  Page::Item item;
  item.key = id.key();
  item.value = entry.encode();
  FF_CO_TRY(co_await tree.put(std::move(item)));
  changed_ = true;
  co_return Result<void>();
}

Task<Result<bool>> GroupChange::remove_pending(StreamId id) {
  FF_CO_TRY(const auto former, co_await find_pending(id));
  if (!former) co_return false;
  PageTree tree = stream_.pending(group_);
  FF_CO_TRY(co_await tree.erase(id.key()));
  FF_CO_TRY(co_await add_to_consumer(former->consumer, -1));
  co_return true;
}

}  // namespace ff::gateway
