// What the commands on consumer groups have in common: entries that were delivered and not
// acknowledged, and their consumers. Numbers of pending entries are kept with each change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "storage/gateway/command.h"
#include "storage/gateway/stream_value.h"

namespace ff::gateway {

// A stream and one of its groups, for a command.
struct OpenGroup {
  std::unique_ptr<StreamValue> stream;  // null: there is no such key
  StreamGroup* group = nullptr;         // null: nor such a group
};
Task<Result<OpenGroup>> open_group(StoreView& view, std::string key, std::string name);
// "NOGROUP No such key 'k' or consumer group 'g'", and `behind`.
Error no_group(std::string_view key, std::string_view group, std::string_view behind);

class GroupChange {
 public:
  // Both outlive it.
  GroupChange(StreamValue& stream, StreamGroup& group, int64_t now_ms)
      : stream_(stream), group_(group), now_ms_(now_ms) {}

  // Whether anything has changed: then the stream must be saved.
  bool changed() const { return changed_; }

  Task<Result<std::optional<StreamConsumer>>> find_consumer(std::string name);
  // False: there is one.
  Task<Result<bool>> add_consumer(std::string name);
  // The consumer has got something now; it is added if it is missing. Times are kept to the second,
  // so that a consumer that asks for its history again and again does not write each time.
  Task<Result<void>> see_consumer(std::string name);
  // The number of entries that the consumer had pending.
  Task<Result<uint64_t>> remove_consumer(std::string name);

  Task<Result<std::optional<PendingEntry>>> find_pending(StreamId id);
  // Stores an entry as pending, whoever had it before.
  Task<Result<void>> set_pending(StreamId id, PendingEntry entry);
  // False: it was not pending.
  Task<Result<bool>> remove_pending(StreamId id);

 private:
  Task<Result<void>> add_to_consumer(std::string name, int64_t entries);

  StreamValue& stream_;
  StreamGroup& group_;
  const int64_t now_ms_;
  bool changed_ = false;
};

}  // namespace ff::gateway
