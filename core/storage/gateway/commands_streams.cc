// Commands on the entries of streams, and what is known of streams.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/stream_entries.h"

namespace ff::gateway {

namespace {

using StreamPointer = std::unique_ptr<StreamValue>;

Error stream_error(const char* text) { return Error{Errc::usage, text, {}}; }

struct AddOptions {
  StreamTrim trim = {};
  bool makes_stream = true;
  std::optional<NewStreamId> id = {};  // empty: "*"
  size_t fields = 0;                   // the position of the first one
};

// Options, then the id, then fields with values.
Result<AddOptions> parse_add_options(const CommandCall& call) {
  AddOptions options;
  size_t i = 2;
  for (; i < call.size() && call.word(i) != "*"; i++) {
    FF_TRY(const bool trims, parse_trim_option(call, i, options.trim));
    if (trims) continue;
    if (call.is_option(i, "NOMKSTREAM")) {
      options.makes_stream = false;
      continue;
    }
    FF_TRY(options.id, parse_new_stream_id(call.word(i)));
    break;
  }
  FF_TRY(check_trim_options(options.trim, false));
  options.fields = i + 1;
  const size_t words = call.size() - std::min(call.size(), options.fields);
  if (words < 2 || words % 2 == 1) return wrong_arity(call.row);
  if (options.id && options.id->has_seq && options.id->id.is_zero()) {
    return stream_error("ERR The ID specified in XADD must be greater than 0-0");
  }
  return options;
}

// The id of the new entry. As Redis: a clock that stands still or goes back counts on.
Result<StreamId> next_id(const StreamValue& stream, const AddOptions& options, int64_t now_ms) {
  const auto too_small = [] {
    return stream_error(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item");
  };
  if (stream.last == StreamId::largest()) {
    return stream_error(
        "ERR The stream has exhausted the last possible ID, unable to add more items");
  }
  StreamId id;
  if (!options.id) {
    id = {static_cast<uint64_t>(now_ms), 0};
    if (id > stream.last) return id;
    id = stream.last;
    (void)id.increment();
    return id;
  }
  id = options.id->id;
  if (!options.id->has_seq && id.ms == stream.last.ms) {
    if (stream.last.seq == UINT64_MAX) return too_small();
    id.seq = stream.last.seq + 1;
  }
  if (id <= stream.last) return too_small();
  return id;
}

Task<Result<void>> reply_range(CommandCall& call, bool back) {
  FF_CO_TRY(const StreamId first, parse_interval_start(call.word(back ? 3 : 2)));
  FF_CO_TRY(const StreamId last, parse_interval_end(call.word(back ? 2 : 3)));
  std::optional<int64_t> most;
  for (size_t i = 4; i < call.size(); i++) {
    if (!call.is_option(i, "COUNT") || i + 1 == call.size()) co_return syntax_error();
    FF_CO_TRY(most, parse_count(call, ++i));
  }
  FF_CO_TRY(const StreamPointer stream, co_await StreamValue::open(call.view, call.word(1)));
  if (stream == nullptr) {
    call.reply.array(0);
    co_return Result<void>();
  }
  if (most == 0) {
    call.reply.null_array();
    co_return Result<void>();
  }
  const auto count = static_cast<uint64_t>(most.value_or(0));
  std::vector<StreamEntry> entries;
  if (back) {
    FF_CO_TRY(entries, co_await read_entries_back(*stream, first, last, count));
  } else {
    FF_CO_TRY(entries, co_await read_entries(*stream, first, last, count));
  }
  reply_entries(call.reply, entries);
  co_return Result<void>();
}

Task<Result<void>> reply_edge(CommandCall& call, StreamValue& stream, StreamId id) {
  FF_CO_TRY(const auto entry, co_await read_entry(stream, id));
  if (entry) {
    reply_entry(call.reply, *entry);
  } else {
    call.reply.null();
  }
  co_return Result<void>();
}

// How many entries the group has not read; empty: it is not known.
Task<Result<std::optional<int64_t>>> lag_of(StreamValue& stream, const StreamGroup& group) {
  const auto added = static_cast<int64_t>(stream.entries_added);
  if (added == 0) co_return std::optional<int64_t>(0);
  int64_t read = group.entries_read;
  FF_CO_TRY(const bool has_gap, co_await stream.has_gap_from(group.last));
  if (read == StreamGroup::kUnknown || has_gap) {
    FF_CO_TRY(read, co_await stream.count_up_to(group.last));
  }
  if (read == StreamGroup::kUnknown) co_return std::optional<int64_t>();
  co_return std::optional(added - read);
}

void reply_known(RespWriter& reply, std::optional<int64_t> number) {
  if (number) {
    reply.integer(*number);
  } else {
    reply.null();
  }
}

Task<Result<StreamPointer>> open_existing(CommandCall& call, size_t key) {
  FF_CO_TRY(StreamPointer stream, co_await StreamValue::open(call.view, call.word(key)));
  if (stream == nullptr) co_return stream_error("ERR no such key");
  co_return stream;
}

}  // namespace

Task<Result<void>> run_xadd(CommandCall& call) {
  FF_CO_TRY(const AddOptions options, parse_add_options(call));
  FF_CO_TRY(StreamPointer stream, co_await StreamValue::open(call.view, call.word(1)));
  if (stream == nullptr && !options.makes_stream) {
    call.reply.null();
    co_return Result<void>();
  }
  if (stream == nullptr) {
    stream = StreamValue::make(call.view, call.word(1), call.gateway.rng().next());
  }
  FF_CO_TRY(const StreamId id, next_id(*stream, options, call.view.now_ms()));
  const StreamFields fields(call.words.begin() + static_cast<ptrdiff_t>(options.fields),
                            call.words.end());
  PageTree tree = stream->entries();
  Page::Item item;
  item.key = id.key();
  item.value = encode_fields(fields);
  FF_CO_TRY(co_await tree.put(std::move(item)));
  stream->last = id;
  stream->entries_added++;
  FF_CO_TRY(co_await trim_stream(*stream, options.trim));
  stream->save();
  call.view.announce(call.word(1));
  call.reply.bulk(id.text());
  co_return Result<void>();
}

Task<Result<void>> run_xlen(CommandCall& call) {
  FF_CO_TRY(const StreamPointer stream, co_await StreamValue::open(call.view, call.word(1)));
  call.reply.integer(stream == nullptr ? 0 : static_cast<int64_t>(stream->length()));
  co_return Result<void>();
}

Task<Result<void>> run_xrange(CommandCall& call) { return reply_range(call, false); }

Task<Result<void>> run_xrevrange(CommandCall& call) { return reply_range(call, true); }

Task<Result<void>> run_xdel(CommandCall& call) {
  FF_CO_TRY(const StreamPointer stream, co_await StreamValue::open(call.view, call.word(1)));
  if (stream == nullptr) {
    call.reply.integer(0);
    co_return Result<void>();
  }
  std::vector<StreamId> ids;
  for (size_t i = 2; i < call.size(); i++) {
    FF_CO_TRY(const StreamId id, parse_stream_id(call.word(i), 0));
    ids.push_back(id);
  }
  int64_t removed = 0;
  PageTree tree = stream->entries();
  for (const StreamId id : ids) {
    FF_CO_TRY(const bool there, co_await tree.erase(id.key()));
    if (!there) continue;
    removed++;
    stream->max_deleted = std::max(stream->max_deleted, id);
  }
  if (removed > 0) stream->save();
  call.reply.integer(removed);
  co_return Result<void>();
}

Task<Result<void>> run_xtrim(CommandCall& call) {
  StreamTrim trim;
  for (size_t i = 2; i < call.size(); i++) {
    FF_CO_TRY(const bool known, parse_trim_option(call, i, trim));
    if (!known) co_return syntax_error();
  }
  FF_CO_TRY(check_trim_options(trim, true));
  FF_CO_TRY(const StreamPointer stream, co_await StreamValue::open(call.view, call.word(1)));
  int64_t removed = 0;
  if (stream != nullptr) {
    FF_CO_TRY(removed, co_await trim_stream(*stream, trim));
    if (removed > 0) stream->save();
  }
  call.reply.integer(removed);
  co_return Result<void>();
}

Task<Result<void>> run_xsetid(CommandCall& call) {
  FF_CO_TRY(const StreamId id, parse_stream_id(call.word(2), 0));
  std::optional<int64_t> added;
  std::optional<StreamId> max_deleted;
  for (size_t i = 3; i < call.size(); i += 2) {
    if (i + 1 == call.size()) co_return syntax_error();
    if (call.is_option(i, "ENTRIESADDED")) {
      added = parse_integer(call.word(i + 1));
      if (!added) co_return not_an_integer();
      if (*added < 0) co_return stream_error("ERR entries_added must be positive");
    } else if (call.is_option(i, "MAXDELETEDID")) {
      FF_CO_TRY(max_deleted, parse_stream_id(call.word(i + 1), 0));
      if (id < *max_deleted) {
        co_return stream_error(
            "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
      }
    } else {
      co_return syntax_error();
    }
  }
  FF_CO_TRY(const StreamPointer stream, co_await open_existing(call, 1));
  FF_CO_TRY(const StreamId largest, co_await stream->last_id());
  if (stream->length() > 0 && id < largest) {
    co_return stream_error(
        "ERR The ID specified in XSETID is smaller than the target stream top item");
  }
  if (id < stream->max_deleted) {
    co_return stream_error(
        "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
  }
  if (added && stream->length() > static_cast<uint64_t>(*added)) {
    co_return stream_error(
        "ERR The entries_added specified in XSETID is smaller than the target stream length");
  }
  stream->last = id;
  if (added) stream->entries_added = static_cast<uint64_t>(*added);
  if (max_deleted && !max_deleted->is_zero()) stream->max_deleted = *max_deleted;
  stream->save();
  call.reply.ok();
  co_return Result<void>();
}

namespace {

// Of XINFO STREAM ... FULL: at most so many entries of each list, 0: all; empty: it is not FULL.
Result<std::optional<uint64_t>> parse_full(const CommandCall& call) {
  constexpr int64_t kUsual = 10;
  const size_t words = call.size() - 3;
  if (words == 0) return std::optional<uint64_t>();
  const bool is_full = (words == 1 || words == 3) && call.is_option(3, "FULL") &&
                       (words == 1 || call.is_option(4, "COUNT"));
  if (!is_full) {
    return fail(Errc::usage,
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try XINFO HELP.",
                call.word(1));
  }
  int64_t count = kUsual;
  if (words == 3) {
    const auto number = parse_integer(call.word(5));
    if (!number) return not_an_integer();
    if (*number >= 0) count = *number;
  }
  return std::optional(static_cast<uint64_t>(count));
}

// What FULL and its counterpart begin with.
void reply_counters(RespWriter& reply, StreamValue& stream, StreamId first) {
  reply.bulk("length");
  reply.integer(static_cast<int64_t>(stream.length()));
  reply.bulk("last-generated-id");
  reply.bulk(stream.last.text());
  reply.bulk("max-deleted-entry-id");
  reply.bulk(stream.max_deleted.text());
  reply.bulk("entries-added");
  reply.integer(static_cast<int64_t>(stream.entries_added));
  reply.bulk("recorded-first-entry-id");
  reply.bulk(first.text());
}

struct PendingRow {
  StreamId id = {};
  PendingEntry entry = {};
};
struct PendingLists {
  std::vector<PendingRow> all;
  std::map<std::string, std::vector<PendingRow>> of_consumer;
};

// The first entries that a group has pending, and those of each consumer.
Task<Result<PendingLists>> read_pending(StreamValue& stream, StreamGroup& group, uint64_t most) {
  PendingLists lists;
  PageTree tree = stream.pending(group);
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  while (cursor.valid()) {
    PendingRow row;
    row.id = StreamId::of_key(cursor.item().key);
    FF_CO_TRY(row.entry, PendingEntry::decode(cursor.item().value));
    auto& own = lists.of_consumer[row.entry.consumer];
    if (most == 0 || own.size() < most) own.push_back(row);
    if (most == 0 || lists.all.size() < most) lists.all.push_back(std::move(row));
    FF_CO_TRY(co_await cursor.next());
  }
  co_return lists;
}

void reply_pending(RespWriter& reply, const std::vector<PendingRow>& rows, bool with_consumer) {
  reply.bulk("pending");
  reply.array(rows.size());
  for (const auto& [id, entry] : rows) {
    reply.array(with_consumer ? 4 : 3);
    reply.bulk(id.text());
    if (with_consumer) reply.bulk(entry.consumer);
    reply.integer(entry.delivered_ms);
    reply.integer(static_cast<int64_t>(entry.deliveries));
  }
}

Task<Result<void>> reply_full_group(RespWriter& reply, StreamValue& stream, StreamGroup& group,
                                    uint64_t most) {
  FF_CO_TRY(const auto lag, co_await lag_of(stream, group));
  FF_CO_TRY(PendingLists pending, co_await read_pending(stream, group, most));
  const bool known = group.entries_read != StreamGroup::kUnknown;
  reply.map(7);
  reply.bulk("name");
  reply.bulk(group.name);
  reply.bulk("last-delivered-id");
  reply.bulk(group.last.text());
  reply.bulk("entries-read");
  reply_known(reply, known ? std::optional(group.entries_read) : std::nullopt);
  reply.bulk("lag");
  reply_known(reply, lag);
  reply.bulk("pel-count");
  reply.integer(static_cast<int64_t>(group.pending.count));
  reply_pending(reply, pending.all, true);
  reply.bulk("consumers");
  reply.array(group.consumers.count);
  PageTree tree = stream.consumers(group);
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  while (cursor.valid()) {
    const std::string& name = cursor.item().key;
    FF_CO_TRY(const auto consumer, StreamConsumer::decode(cursor.item().value));
    reply.map(4);
    reply.bulk("name");
    reply.bulk(name);
    reply.bulk("seen-time");
    reply.integer(consumer.seen_ms);
    reply.bulk("pel-count");
    reply.integer(static_cast<int64_t>(consumer.pending));
    reply_pending(reply, pending.of_consumer[name], false);
    FF_CO_TRY(co_await cursor.next());
  }
  co_return Result<void>();
}

Task<Result<void>> reply_full_stream(CommandCall& call, StreamValue& stream, StreamId first,
                                     uint64_t most) {
  FF_CO_TRY(const auto entries,
            co_await read_entries(stream, StreamId(), StreamId::largest(), most));
  RespWriter& reply = call.reply;
  reply.map(7);
  reply_counters(reply, stream, first);
  reply.bulk("entries");
  reply_entries(reply, entries);
  reply.bulk("groups");
  reply.array(stream.groups.size());
  for (StreamGroup& group : stream.groups) {
    FF_CO_TRY(co_await reply_full_group(reply, stream, group, most));
  }
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> run_xinfo_stream(CommandCall& call) {
  FF_CO_TRY(const StreamPointer stream, co_await open_existing(call, 2));
  FF_CO_TRY(const auto full, parse_full(call));
  FF_CO_TRY(const StreamId first, co_await stream->first_id());
  if (full) co_return co_await reply_full_stream(call, *stream, first, *full);
  FF_CO_TRY(const StreamId last, co_await stream->last_id());
  RespWriter& reply = call.reply;
  reply.map(8);
  reply_counters(reply, *stream, first);
  reply.bulk("groups");
  reply.integer(static_cast<int64_t>(stream->groups.size()));
  reply.bulk("first-entry");
  FF_CO_TRY(co_await reply_edge(call, *stream, first));
  reply.bulk("last-entry");
  FF_CO_TRY(co_await reply_edge(call, *stream, last));
  co_return Result<void>();
}

Task<Result<void>> run_xinfo_groups(CommandCall& call) {
  FF_CO_TRY(const StreamPointer stream, co_await open_existing(call, 2));
  RespWriter& reply = call.reply;
  reply.array(stream->groups.size());
  for (const StreamGroup& group : stream->groups) {
    FF_CO_TRY(const auto lag, co_await lag_of(*stream, group));
    const bool known = group.entries_read != StreamGroup::kUnknown;
    reply.map(6);
    reply.bulk("name");
    reply.bulk(group.name);
    reply.bulk("consumers");
    reply.integer(static_cast<int64_t>(group.consumers.count));
    reply.bulk("pending");
    reply.integer(static_cast<int64_t>(group.pending.count));
    reply.bulk("last-delivered-id");
    reply.bulk(group.last.text());
    reply.bulk("entries-read");
    reply_known(reply, known ? std::optional(group.entries_read) : std::nullopt);
    reply.bulk("lag");
    reply_known(reply, lag);
  }
  co_return Result<void>();
}

Task<Result<void>> run_xinfo_consumers(CommandCall& call) {
  FF_CO_TRY(const StreamPointer stream, co_await open_existing(call, 2));
  StreamGroup* const group = stream->find_group(call.word(3));
  if (group == nullptr) {
    co_return fail(Errc::usage, "NOGROUP No such consumer group '{}' for key name '{}'",
                   call.word(3), call.word(2));
  }
  RespWriter& reply = call.reply;
  reply.array(group->consumers.count);
  PageTree tree = stream->consumers(*group);
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  while (cursor.valid()) {
    FF_CO_TRY(const auto consumer, StreamConsumer::decode(cursor.item().value));
    reply.map(3);
    reply.bulk("name");
    reply.bulk(cursor.item().key);
    reply.bulk("pending");
    reply.integer(static_cast<int64_t>(consumer.pending));
    reply.bulk("idle");
    reply.integer(std::max<int64_t>(0, call.view.now_ms() - consumer.seen_ms));
    FF_CO_TRY(co_await cursor.next());
  }
  co_return Result<void>();
}

}  // namespace ff::gateway
