// What the commands on streams have in common: reading ranges, trimming, and replies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/gateway/command.h"
#include "storage/gateway/stream_value.h"

namespace ff::gateway {

struct StreamEntry {
  StreamId id = {};
  StreamFields fields = {};
};

// From the first to the last id; `most` entries, 0: all.
Task<Result<std::vector<StreamEntry>>> read_entries(StreamValue& stream, StreamId first,
                                                    StreamId last, uint64_t most);
// Likewise, the last one first.
Task<Result<std::vector<StreamEntry>>> read_entries_back(StreamValue& stream, StreamId first,
                                                         StreamId last, uint64_t most);
// One entry; empty: there is none.
Task<Result<std::optional<StreamEntry>>> read_entry(StreamValue& stream, StreamId id);
void reply_entry(RespWriter& reply, const StreamEntry& entry);
void reply_entries(RespWriter& reply, const std::vector<StreamEntry>& entries);

// MAXLEN and MINID of XADD and XTRIM.
struct StreamTrim {
  enum class Kind : uint8_t { none, length, id };
  Kind kind = Kind::none;
  bool whole_pages = false;  // "~": what is beyond may stay until a page of it can go
  int64_t length = 0;
  StreamId id = {};
  std::optional<int64_t> limit = {};  // of entries to remove; 0: none
};
// Parses the option at word `at`, and moves `at` to its last word. False: it is no such option.
Result<bool> parse_trim_option(const CommandCall& call, size_t& at, StreamTrim& trim);
// After all options.
Result<void> check_trim_options(StreamTrim& trim, bool is_trim_command);
// How many entries were removed.
Task<Result<int64_t>> trim_stream(StreamValue& stream, StreamTrim trim);

// COUNT of XREAD and XRANGE: as Redis, negative is zero.
Result<int64_t> parse_count(const CommandCall& call, size_t at);

}  // namespace ff::gateway
