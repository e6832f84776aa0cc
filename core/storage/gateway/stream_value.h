// A stream of Redis as it lies in the store: a head and trees of pages (redis_value.h,
// page_tree.h). The head has the last id, the counters and a few numbers for each consumer group:
// where it is in the stream, and the roots of its trees. Trees of the collection:
//
//   entries                 id -> fields and values (each 32 bits of size, then the bytes)
//   pending, of a group     id -> time of the last delivery (ms), number of deliveries, consumer
//   consumers, of a group   name -> time at which it was seen last (ms), number of pending entries
//
// So XADD writes the head and the last page of entries; XREADGROUP and XACK write the head, a page
// of pending entries and one of consumers, whatever the lengths of the stream and of the other
// groups. What one consumer has pending is found by a walk over all that its group has pending.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/gateway/page_tree.h"
#include "storage/gateway/store_view.h"
#include "storage/gateway/stream_id.h"

namespace ff::gateway {

struct StreamGroup {
  static constexpr int64_t kUnknown = -1;

  std::string name = {};
  StreamId last = {};               // that was delivered
  int64_t entries_read = kUnknown;  // since the stream began, up to `last`
  TreeRoot pending = {};
  TreeRoot consumers = {};
};

struct PendingEntry {
  int64_t delivered_ms = 0;
  uint64_t deliveries = 0;
  std::string consumer = {};

  std::string encode() const;
  static Result<PendingEntry> decode(std::string_view stored);
};

struct StreamConsumer {
  int64_t seen_ms = 0;
  uint64_t pending = 0;

  std::string encode() const;
  static Result<StreamConsumer> decode(std::string_view stored);
};

using StreamFields = std::vector<std::string>;  // fields and values in turn
std::string encode_fields(const StreamFields& fields);
Result<StreamFields> decode_fields(std::string_view stored);

class StreamValue {
 public:
  // Null: there is no such key. Errc::usage with wrong_type(). The view outlives the value.
  static Task<Result<std::unique_ptr<StreamValue>>> open(StoreView& view, std::string key);
  // A new one, which lies in the store after save().
  static std::unique_ptr<StreamValue> make(StoreView& view, std::string key, uint64_t id);

  StreamValue(StoreView& view, std::string key, const PartSpace& parts)
      : view_(view), key_(std::move(key)), pages_(view, parts) {}

  const std::string& key() const { return key_; }
  StoreView& view() { return view_; }
  PageTree entries() { return {pages_, entries_root_, PageTree::Counting::no}; }
  uint64_t length() const { return entries_root_.count; }

  StreamId last = {};         // that was added
  StreamId max_deleted = {};  // by XDEL
  uint64_t entries_added = 0;
  std::vector<StreamGroup> groups = {};  // sorted by name

  // Null: there is none.
  StreamGroup* find_group(std::string_view name);
  StreamGroup& add_group(std::string_view name);
  PageTree pending(StreamGroup& group) { return {pages_, group.pending, PageTree::Counting::no}; }
  PageTree consumers(StreamGroup& group) {
    return {pages_, group.consumers, PageTree::Counting::no};
  }
  // Drops the trees of the group, too.
  Task<Result<void>> remove_group(std::string_view name);

  // The smallest and the largest id that there are; zero: there is no entry.
  Task<Result<StreamId>> first_id();
  Task<Result<StreamId>> last_id();
  Task<Result<bool>> has_entry(StreamId id);
  // Whether an entry was deleted that is not before `from`.
  Task<Result<bool>> has_gap_from(StreamId from);
  // How many entries the stream has had up to this id; StreamGroup::kUnknown.
  Task<Result<int64_t>> count_up_to(StreamId id);

  // Gives head and pages to the view.
  void save();

 private:
  Result<void> decode(std::string_view head);
  Task<Result<void>> drop_tree(uint64_t page, uint32_t depth);

  StoreView& view_;
  const std::string key_;
  int64_t expires_ms_ = 0;
  PageSpace pages_;
  TreeRoot entries_root_;
};

}  // namespace ff::gateway
