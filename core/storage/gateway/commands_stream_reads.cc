// XREAD and XREADGROUP: entries behind ids, of several streams, and waiting for them.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/stream_entries.h"
#include "storage/gateway/stream_groups.h"

namespace ff::gateway {

namespace {

Error read_error(const char* text) { return Error{Errc::usage, text, {}}; }

// The words of a read in front of its keys.
struct ReadOptions {
  bool is_group = false;  // XREADGROUP
  bool acknowledges = false;
  uint64_t count = 0;                   // 0: all
  std::optional<int64_t> wait_ms = {};  // empty: it does not wait
  std::string group = {}, consumer = {};
  size_t keys = 0;     // the position of the first one
  size_t streams = 0;  // how many there are

  size_t id_of(size_t stream) const { return keys + streams + stream; }
};

// What is read of one stream.
struct StreamRead {
  OpenGroup open = {};
  StreamId after = {};
  bool is_new = false;  // ">": what nobody in the group has got
};

Result<int64_t> parse_wait(const CommandCall& call, size_t at) {
  const auto ms = parse_integer(call.word(at));
  if (!ms) return read_error("ERR timeout is not an integer or out of range");
  if (*ms < 0) return read_error("ERR timeout is negative");
  return *ms;
}

Result<void> find_keys(const CommandCall& call, size_t at, ReadOptions& options) {
  options.keys = at + 1;
  const size_t words = call.size() - options.keys;
  if (words % 2 != 0) {
    return fail(Errc::usage,
                "ERR Unbalanced '{}' list of streams: for each stream key an ID or '{}' must be "
                "specified.",
                call.row.name, options.is_group ? '>' : '$');
  }
  options.streams = words / 2;
  return {};
}

// Takes the option at word i with its own words, and moves i to the last of them.
Result<void> take_read_option(const CommandCall& call, size_t& i, ReadOptions& options) {
  const size_t more = call.size() - 1 - i;
  if (call.is_option(i, "BLOCK") && more >= 1) {
    FF_TRY(options.wait_ms, parse_wait(call, ++i));
  } else if (call.is_option(i, "COUNT") && more >= 1) {
    FF_TRY(const int64_t count, parse_count(call, ++i));
    options.count = static_cast<uint64_t>(count);
  } else if (call.is_option(i, "STREAMS") && more >= 1) {
    return find_keys(call, i, options);
  } else if (call.is_option(i, "GROUP") && more >= 2) {
    if (!options.is_group) {
      return read_error(
          "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
    }
    options.group = call.word(i + 1);
    options.consumer = call.word(i + 2);
    i += 2;
  } else if (call.is_option(i, "NOACK")) {
    if (!options.is_group) {
      return read_error(
          "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
    }
    options.acknowledges = true;
  } else {
    return syntax_error();
  }
  return {};
}

Result<ReadOptions> parse_read_options(const CommandCall& call, bool is_group) {
  ReadOptions options;
  options.is_group = is_group;
  bool has_group = false;
  for (size_t i = 1; i < call.size() && options.keys == 0; i++) {
    has_group = has_group || call.is_option(i, "GROUP");
    FF_TRY(take_read_option(call, i, options));
  }
  if (options.keys == 0) return syntax_error();
  if (is_group && !has_group) return read_error("ERR Missing GROUP option for XREADGROUP");
  return options;
}

Result<void> parse_after(const CommandCall& call, const ReadOptions& options, const std::string& id,
                         StreamRead& read) {
  const bool is_group = options.is_group;
  if (id == "$" && is_group) {
    return read_error(
        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of "
        "this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID "
        "would just return an empty result set.");
  }
  if (id == "$") {
    read.after = read.open.stream == nullptr ? StreamId() : read.open.stream->last;
    return {};
  }
  if (id == ">" && !is_group) {
    return read_error(
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
        "<consumer> option.");
  }
  read.is_new = id == ">";
  if (read.is_new) return {};
  FF_TRY(read.after, parse_stream_id(id, 0));
  (void)call;
  return {};
}

Task<Result<std::vector<StreamRead>>> open_streams(CommandCall& call, const ReadOptions& options) {
  std::vector<StreamRead> reads;
  for (size_t i = 0; i < options.streams; i++) {
    const std::string& key = call.word(options.keys + i);
    StreamRead read;
    FF_CO_TRY(read.open, co_await open_group(call.view, key, options.group));
    if (options.is_group && read.open.group == nullptr) {
      co_return no_group(key, options.group, " in XREADGROUP with GROUP option");
    }
    FF_CO_TRY(parse_after(call, options, call.word(options.id_of(i)), read));
    reads.push_back(std::move(read));
  }
  co_return reads;
}

// The head of the reply for one stream.
void reply_stream(CommandCall& call, const std::string& key) {
  if (call.client.version == 2) call.reply.array(2);
  call.reply.bulk(key);
}

// The words for the next attempt: "$" is what was the last id at the first one.
RespRequest next_words(const CommandCall& call, const ReadOptions& options,
                       const std::vector<StreamRead>& reads) {
  RespRequest words = call.words;
  for (size_t i = 0; i < reads.size(); i++) {
    std::string& id = words[options.id_of(i)];
    if (id == "$") id = reads[i].after.text();
  }
  return words;
}

// Nothing was found.
void reply_nothing(CommandCall& call, const ReadOptions& options,
                   const std::vector<StreamRead>& reads) {
  call.reply.null_array();
  if (!options.wait_ms || call.wait == nullptr) return;
  call.wait_for_keys(*options.wait_ms);
  call.wait->words = next_words(call, options, reads);
}

// Where the group is once it has got the entry.
Task<Result<void>> advance(StreamValue& stream, StreamGroup& group, StreamId id) {
  if (id <= group.last) co_return Result<void>();
  FF_CO_TRY(const bool has_gap, co_await stream.has_gap_from(id));
  if (group.entries_read != StreamGroup::kUnknown && !has_gap) {
    group.entries_read++;
  } else if (stream.entries_added > 0) {
    FF_CO_TRY(group.entries_read, co_await stream.count_up_to(id));
  }
  group.last = id;
  co_return Result<void>();
}

// Entries that nobody in the group has got.
Task<Result<std::vector<StreamEntry>>> read_new(const ReadOptions& options, const OpenGroup& open) {
  std::vector<StreamEntry> entries;
  StreamId first = open.group->last;
  if (!first.increment()) co_return entries;
  co_return co_await read_entries(*open.stream, first, StreamId::largest(), options.count);
}

// Gives them to the consumer.
Task<Result<void>> deliver(CommandCall& call, const ReadOptions& options, const OpenGroup& open,
                           GroupChange& change, const std::vector<StreamEntry>& entries) {
  for (const StreamEntry& entry : entries) {
    FF_CO_TRY(co_await advance(*open.stream, *open.group, entry.id));
    if (options.acknowledges) continue;
    PendingEntry pending;
    pending.delivered_ms = call.view.now_ms();
    pending.deliveries = 1;
    pending.consumer = options.consumer;
    FF_CO_TRY(co_await change.set_pending(entry.id, std::move(pending)));
  }
  co_return Result<void>();
}

// What the consumer has got and not acknowledged: it is delivered once more. An entry that was
// removed meanwhile is null.
Task<Result<void>> reply_history(CommandCall& call, const ReadOptions& options, StreamRead& read,
                                 GroupChange& change) {
  std::vector<std::pair<StreamId, PendingEntry>> found;
  StreamId first = read.after;
  const bool any = first.increment();
  PageTree tree = read.open.stream->pending(*read.open.group);
  PageTree::Cursor cursor(tree);
  if (any) FF_CO_TRY(co_await cursor.to_lower(first.key()));
  while (cursor.valid() && (options.count == 0 || found.size() < options.count)) {
    FF_CO_TRY(PendingEntry entry, PendingEntry::decode(cursor.item().value));
    if (entry.consumer == options.consumer) {
      found.emplace_back(StreamId::of_key(cursor.item().key), std::move(entry));
    }
    FF_CO_TRY(co_await cursor.next());
  }
  call.reply.array(found.size());
  for (auto& [id, pending] : found) {
    FF_CO_TRY(const auto entry, co_await read_entry(*read.open.stream, id));
    if (!entry) {
      call.reply.array(2);
      call.reply.bulk(id.text());
      call.reply.null_array();
      continue;
    }
    reply_entry(call.reply, *entry);
    pending.delivered_ms = call.view.now_ms();
    pending.deliveries++;
    FF_CO_TRY(co_await change.set_pending(id, std::move(pending)));
  }
  co_return Result<void>();
}

// Writes the reply for one stream; false: there is nothing. The stream is opened anew: the one
// before may be the same.
Task<Result<bool>> read_group(CommandCall& call, const ReadOptions& options, const std::string& key,
                              StreamRead& read) {
  FF_CO_TRY(read.open, co_await open_group(call.view, key, options.group));
  GroupChange change(*read.open.stream, *read.open.group, call.view.now_ms());
  std::vector<StreamEntry> entries;
  if (read.is_new) {
    FF_CO_TRY(entries, co_await read_new(options, read.open));
    if (entries.empty()) co_return false;
  }
  FF_CO_TRY(co_await change.see_consumer(options.consumer));
  reply_stream(call, key);
  if (read.is_new) {
    FF_CO_TRY(co_await deliver(call, options, read.open, change, entries));
    reply_entries(call.reply, entries);
  } else {
    FF_CO_TRY(co_await reply_history(call, options, read, change));
  }
  if (read.is_new || change.changed()) read.open.stream->save();
  co_return true;
}

Task<Result<bool>> read_plain(CommandCall& call, const ReadOptions& options, const std::string& key,
                              StreamRead& read) {
  StreamId first = read.after;
  if (read.open.stream == nullptr || !first.increment()) co_return false;
  FF_CO_TRY(const auto entries,
            co_await read_entries(*read.open.stream, first, StreamId::largest(), options.count));
  if (entries.empty()) co_return false;
  reply_stream(call, key);
  reply_entries(call.reply, entries);
  co_return true;
}

Task<Result<void>> run_read(CommandCall& call, bool is_group) {
  FF_CO_TRY(const ReadOptions options, parse_read_options(call, is_group));
  FF_CO_TRY(auto reads, co_await open_streams(call, options));
  std::string replies;
  RespWriter writer(replies, call.client.version);
  CommandCall part{call.gateway, call.client, call.row, call.words, call.view, writer, call.wait};
  size_t found = 0;
  for (size_t i = 0; i < reads.size(); i++) {
    const std::string& key = call.word(options.keys + i);
    bool any = false;
    if (is_group) {
      FF_CO_TRY(any, co_await read_group(part, options, key, reads[i]));
    } else {
      FF_CO_TRY(any, co_await read_plain(part, options, key, reads[i]));
    }
    if (any) found++;
  }
  if (found == 0) {
    reply_nothing(call, options, reads);
    co_return Result<void>();
  }
  if (call.client.version == 2) {
    call.reply.array(found);
  } else {
    call.reply.map(found);
  }
  call.reply.append(replies);
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> run_xread(CommandCall& call) { return run_read(call, false); }

Task<Result<void>> run_xreadgroup(CommandCall& call) { return run_read(call, true); }

}  // namespace ff::gateway
