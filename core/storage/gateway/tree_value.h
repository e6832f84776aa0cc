// A list or a set as it lies in the store: a head with the root of one tree (redis_value.h,
// page_tree.h), which counts its items. Items of a list have no keys; an item of a set has the hash
// of its member in front of it, so that SSCAN goes on where it was, whatever changes meanwhile. An
// empty one does not exist.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/gateway/page_tree.h"
#include "storage/gateway/store_view.h"

namespace ff::gateway {

class TreeValue {
 public:
  // Null: there is no such key. Errc::usage with wrong_type(). The view outlives the value.
  static Task<Result<std::unique_ptr<TreeValue>>> open(StoreView& view, std::string key,
                                                       ValueType type);
  // A new one, which is empty; `id` is random.
  static std::unique_ptr<TreeValue> make(StoreView& view, std::string key, ValueType type,
                                         uint64_t id);

  TreeValue(StoreView& view, std::string key, ValueType type, const PartSpace& parts)
      : view_(view), key_(std::move(key)), type_(type), pages_(view, parts) {}

  PageTree tree() { return {pages_, root_, PageTree::Counting::yes}; }
  uint64_t count() const { return root_.count; }
  // Gives head and pages to the view; removes the key of an empty one.
  void save();

 private:
  StoreView& view_;
  const std::string key_;
  const ValueType type_;
  int64_t expires_ms_ = 0;
  PageSpace pages_;
  TreeRoot root_;
};

// The key of a member of a set in its tree; the inverse; and the hash in it.
std::string member_key(std::string_view member);
std::string_view member_of_key(std::string_view key);
uint64_t hash_of_member_key(std::string_view key);
// The smallest key with the hash.
std::string key_of_member_hash(uint64_t hash);

}  // namespace ff::gateway
