// tree_value.cc: heads of lists and sets, and keys of members.
#include "storage/gateway/tree_value.h"

#include "platform/base/bytes.h"
#include "storage/kvstore/record.h"

namespace ff::gateway {

Task<Result<std::unique_ptr<TreeValue>>> TreeValue::open(StoreView& view, std::string key,
                                                         ValueType type) {
  std::unique_ptr<TreeValue> value;
  FF_CO_TRY(const auto stored, co_await view.get(key));
  if (!stored) co_return value;
  if (stored_type(stored->bytes) != type) co_return wrong_type();
  std::string_view head = stored->bytes;
  FF_CO_TRY(const PartSpace parts, PartSpace::take(head, kvstore::redis_slot(key)));
  if (head.size() < TreeRoot::kBytes) co_return damaged_value();
  value = std::make_unique<TreeValue>(view, std::move(key), type, parts);
  value->expires_ms_ = stored->expires_ms;
  value->root_ = TreeRoot::take(head);
  co_return value;
}

std::unique_ptr<TreeValue> TreeValue::make(StoreView& view, std::string key, ValueType type,
                                           uint64_t id) {
  const PartSpace parts{.slot = kvstore::redis_slot(key), .id = id};
  return std::make_unique<TreeValue>(view, std::move(key), type, parts);
}

void TreeValue::save() {
  pages_.save();
  if (root_.count == 0) return view_.remove_empty(key_, pages_.parts());
  std::string head = pages_.parts().encode_head(type_);
  root_.append_to(head);
  view_.put_head(key_, std::move(head), expires_ms_);
}

std::string member_key(std::string_view member) {
  const uint64_t hash = kvstore::hash_key(std::string_view(), member).high;
  return key_of_member_hash(hash).append(member);
}

std::string_view member_of_key(std::string_view key) {
  return key.substr(std::min(key.size(), sizeof(uint64_t)));
}

uint64_t hash_of_member_key(std::string_view key) {
  if (key.size() < sizeof(uint64_t)) return 0;
  return __builtin_bswap64(load_le<uint64_t>(as_bytes(key).data()));
}

std::string key_of_member_hash(uint64_t hash) {
  std::string key;
  append_le(key, __builtin_bswap64(hash));
  return key;
}

}  // namespace ff::gateway
