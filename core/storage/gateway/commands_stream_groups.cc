// Commands on the consumer groups of streams: groups, acknowledgements, and entries that change
// hands because their consumer is gone.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/stream_entries.h"
#include "storage/gateway/stream_groups.h"

namespace ff::gateway {

namespace {

constexpr int64_t kAttemptsForEach = 10;  // pending entries that XAUTOCLAIM looks at, for each one
constexpr int64_t kClaimCountMax = INT64_MAX / 16;

Error group_error(const char* text) { return Error{Errc::usage, text, {}}; }

Error no_such_group(const CommandCall& call) {
  return fail(Errc::usage, "NOGROUP No such consumer group '{}' for key name '{}'", call.word(3),
              call.word(2));
}

Error missing_stream() {
  return group_error(
      "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
      "use the MKSTREAM option to create an empty stream automatically.");
}

// The key and the group behind a subcommand of XGROUP, which must exist.
Task<Result<OpenGroup>> open_named_group(CommandCall& call) {
  FF_CO_TRY(OpenGroup open, co_await open_group(call.view, call.word(2), call.word(3)));
  if (open.stream == nullptr) co_return missing_stream();
  if (open.group == nullptr) co_return no_such_group(call);
  co_return open;
}

struct GroupOptions {
  bool makes_stream = false;
  int64_t entries_read = StreamGroup::kUnknown;
};

Result<GroupOptions> parse_group_options(const CommandCall& call, bool may_make) {
  GroupOptions options;
  for (size_t i = 5; i < call.size(); i++) {
    if (may_make && call.is_option(i, "MKSTREAM")) {
      options.makes_stream = true;
    } else if (call.is_option(i, "ENTRIESREAD") && i + 1 < call.size()) {
      const auto read = parse_integer(call.word(++i));
      if (!read) return not_an_integer();
      if (*read < 0 && *read != StreamGroup::kUnknown) {
        return group_error("ERR value for ENTRIESREAD must be positive or -1");
      }
      options.entries_read = *read;
    } else {
      return fail(Errc::usage,
                  "ERR unknown subcommand or wrong number of arguments for '{}'. Try XGROUP HELP.",
                  call.word(1));
    }
  }
  return options;
}

// "$" is the last id of the stream.
Result<StreamId> parse_group_id(const CommandCall& call, const StreamValue* stream) {
  if (call.word(4) != "$") return parse_stream_id(call.word(4), 0);
  return stream == nullptr ? StreamId() : stream->last;
}

}  // namespace

Task<Result<void>> run_xgroup_create(CommandCall& call) {
  FF_CO_TRY(const GroupOptions options, parse_group_options(call, true));
  FF_CO_TRY(OpenGroup open, co_await open_group(call.view, call.word(2), call.word(3)));
  if (open.stream == nullptr && !options.makes_stream) co_return missing_stream();
  FF_CO_TRY(const StreamId id, parse_group_id(call, open.stream.get()));
  if (open.group != nullptr) {
    co_return group_error("BUSYGROUP Consumer Group name already exists");
  }
  if (open.stream == nullptr) {
    open.stream = StreamValue::make(call.view, call.word(2), call.gateway.rng().next());
  }
  StreamGroup& group = open.stream->add_group(call.word(3));
  group.last = id;
  group.entries_read = options.entries_read;
  open.stream->save();
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_xgroup_setid(CommandCall& call) {
  FF_CO_TRY(const GroupOptions options, parse_group_options(call, false));
  FF_CO_TRY(const OpenGroup open, co_await open_named_group(call));
  FF_CO_TRY(open.group->last, parse_group_id(call, open.stream.get()));
  open.group->entries_read = options.entries_read;
  open.stream->save();
  call.view.announce(call.word(2));
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_xgroup_destroy(CommandCall& call) {
  FF_CO_TRY(const OpenGroup open, co_await open_group(call.view, call.word(2), call.word(3)));
  if (open.stream == nullptr) co_return missing_stream();
  if (open.group != nullptr) {
    FF_CO_TRY(co_await open.stream->remove_group(call.word(3)));
    open.stream->save();
    call.view.announce(call.word(2));
  }
  call.reply.integer(open.group != nullptr ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_xgroup_createconsumer(CommandCall& call) {
  FF_CO_TRY(const OpenGroup open, co_await open_named_group(call));
  GroupChange change(*open.stream, *open.group, call.view.now_ms());
  FF_CO_TRY(const bool is_new, co_await change.add_consumer(call.word(4)));
  if (is_new) open.stream->save();
  call.reply.integer(is_new ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_xgroup_delconsumer(CommandCall& call) {
  FF_CO_TRY(const OpenGroup open, co_await open_named_group(call));
  GroupChange change(*open.stream, *open.group, call.view.now_ms());
  FF_CO_TRY(const uint64_t pending, co_await change.remove_consumer(call.word(4)));
  if (change.changed()) open.stream->save();
  call.reply.integer(static_cast<int64_t>(pending));
  co_return Result<void>();
}

Task<Result<void>> run_xack(CommandCall& call) {
  FF_CO_TRY(const OpenGroup open, co_await open_group(call.view, call.word(1), call.word(2)));
  if (open.group == nullptr) {
    call.reply.integer(0);
    co_return Result<void>();
  }
  std::vector<StreamId> ids;
  for (size_t i = 3; i < call.size(); i++) {
    FF_CO_TRY(const StreamId id, parse_stream_id(call.word(i), 0));
    ids.push_back(id);
  }
  GroupChange change(*open.stream, *open.group, call.view.now_ms());
  int64_t acknowledged = 0;
  for (const StreamId id : ids) {
    FF_CO_TRY(const bool was_pending, co_await change.remove_pending(id));
    if (was_pending) acknowledged++;
  }
  if (acknowledged > 0) open.stream->save();
  call.reply.integer(acknowledged);
  co_return Result<void>();
}

namespace {

// XPENDING with a range.
struct PendingRange {
  int64_t idle_ms = 0;
  StreamId first = {}, last = {};
  uint64_t most = 0;
  std::optional<std::string> consumer = {};
};

Result<PendingRange> parse_pending_range(const CommandCall& call) {
  PendingRange range;
  size_t at = 3;
  if (call.is_option(3, "IDLE")) {
    const auto idle = parse_integer(call.word(4));
    if (!idle) return not_an_integer();
    if (call.size() < 8) return syntax_error();
    range.idle_ms = *idle;
    at = 5;
  }
  FF_TRY(const int64_t most, parse_count(call, at + 2));
  range.most = static_cast<uint64_t>(most);
  FF_TRY(range.first, parse_interval_start(call.word(at)));
  FF_TRY(range.last, parse_interval_end(call.word(at + 1)));
  if (at + 3 < call.size()) range.consumer = call.word(at + 3);
  return range;
}

// The number of entries, the first and the last id, and how many each consumer has.
Task<Result<void>> reply_pending_summary(CommandCall& call, const OpenGroup& open) {
  RespWriter& reply = call.reply;
  reply.array(4);
  reply.integer(static_cast<int64_t>(open.group->pending.count));
  if (open.group->pending.count == 0) {
    reply.null();
    reply.null();
    reply.null_array();
    co_return Result<void>();
  }
  PageTree entries = open.stream->pending(*open.group);
  PageTree::Cursor edge(entries);
  FF_CO_TRY(co_await edge.to_first());
  reply.bulk(StreamId::of_key(edge.item().key).text());
  FF_CO_TRY(co_await edge.to_last());
  reply.bulk(StreamId::of_key(edge.item().key).text());
  std::vector<std::pair<std::string, uint64_t>> consumers;
  PageTree tree = open.stream->consumers(*open.group);
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_first());
  while (cursor.valid()) {
    FF_CO_TRY(const auto consumer, StreamConsumer::decode(cursor.item().value));
    if (consumer.pending > 0) consumers.emplace_back(cursor.item().key, consumer.pending);
    FF_CO_TRY(co_await cursor.next());
  }
  reply.array(consumers.size());
  for (const auto& [name, pending] : consumers) {
    reply.array(2);
    reply.bulk(name);
    reply.bulk(std::to_string(pending));
  }
  co_return Result<void>();
}

struct FoundPending {
  StreamId id = {};
  PendingEntry entry = {};
};

Task<Result<std::vector<FoundPending>>> find_pending_range(const OpenGroup& open,
                                                           const PendingRange& range,
                                                           int64_t now_ms) {
  std::vector<FoundPending> found;
  PageTree entries = open.stream->pending(*open.group);
  PageTree::Cursor cursor(entries);
  FF_CO_TRY(co_await cursor.to_lower(range.first.key()));
  while (cursor.valid() && found.size() < range.most) {
    FoundPending one;
    one.id = StreamId::of_key(cursor.item().key);
    if (one.id > range.last) break;
    FF_CO_TRY(one.entry, PendingEntry::decode(cursor.item().value));
    const bool is_own = !range.consumer || one.entry.consumer == *range.consumer;
    const bool is_idle = now_ms - one.entry.delivered_ms >= range.idle_ms;
    if (is_own && is_idle) found.push_back(std::move(one));
    FF_CO_TRY(co_await cursor.next());
  }
  co_return found;
}

}  // namespace

Task<Result<void>> run_xpending(CommandCall& call) {
  constexpr size_t kLeastWithRange = 6, kMostWithRange = 9;
  const bool has_range = call.size() != 3;
  if (has_range && (call.size() < kLeastWithRange || call.size() > kMostWithRange)) {
    co_return syntax_error();
  }
  PendingRange range;
  if (has_range) {
    FF_CO_TRY(range, parse_pending_range(call));
  }
  FF_CO_TRY(const OpenGroup open, co_await open_group(call.view, call.word(1), call.word(2)));
  if (open.group == nullptr) co_return no_group(call.word(1), call.word(2), "");
  if (!has_range) co_return co_await reply_pending_summary(call, open);
  FF_CO_TRY(const auto found, co_await find_pending_range(open, range, call.view.now_ms()));
  call.reply.array(found.size());
  for (const auto& [id, entry] : found) {
    call.reply.array(4);
    call.reply.bulk(id.text());
    call.reply.bulk(entry.consumer);
    call.reply.integer(std::max<int64_t>(0, call.view.now_ms() - entry.delivered_ms));
    call.reply.integer(static_cast<int64_t>(entry.deliveries));
  }
  co_return Result<void>();
}

namespace {

struct ClaimOptions {
  int64_t idle_ms = 0;  // that an entry must have
  int64_t delivered_ms = 0;
  std::optional<int64_t> deliveries = {};
  bool force = false, only_ids = false;
  StreamId last = {};
  std::vector<StreamId> ids = {};
};

Result<int64_t> parse_claim_number(const CommandCall& call, size_t at, std::string_view option) {
  const auto number = parse_integer(call.word(at));
  if (number) return *number;
  return fail(Errc::usage, "ERR Invalid {} option argument for XCLAIM", option);
}

Result<int64_t> parse_idle(const CommandCall& call) {
  const auto idle = parse_integer(call.word(4));
  if (idle) return std::max<int64_t>(*idle, 0);
  return fail(Errc::usage, "ERR Invalid min-idle-time argument for {}", upper_case(call.row.name));
}

// Ids, up to the first word that is none, then options.
Result<ClaimOptions> parse_claim_options(const CommandCall& call) {
  ClaimOptions options;
  const int64_t now_ms = call.view.now_ms();
  options.delivered_ms = now_ms;
  FF_TRY(options.idle_ms, parse_idle(call));
  size_t i = 5;
  for (; i < call.size(); i++) {
    const auto id = parse_stream_id(call.word(i), 0);
    if (!id) break;
    options.ids.push_back(*id);
  }
  for (; i < call.size(); i++) {
    const bool has_more = i + 1 < call.size();
    if (call.is_option(i, "FORCE")) {
      options.force = true;
    } else if (call.is_option(i, "JUSTID")) {
      options.only_ids = true;
    } else if (call.is_option(i, "IDLE") && has_more) {
      FF_TRY(const int64_t idle, parse_claim_number(call, ++i, "IDLE"));
      options.delivered_ms =
          static_cast<int64_t>(static_cast<uint64_t>(now_ms) - static_cast<uint64_t>(idle));
    } else if (call.is_option(i, "TIME") && has_more) {
      FF_TRY(options.delivered_ms, parse_claim_number(call, ++i, "TIME"));
    } else if (call.is_option(i, "RETRYCOUNT") && has_more) {
      FF_TRY(options.deliveries, parse_claim_number(call, ++i, "RETRYCOUNT"));
    } else if (call.is_option(i, "LASTID") && has_more) {
      FF_TRY(options.last, parse_stream_id(call.word(++i), 0));
    } else {
      return fail(Errc::usage, "ERR Unrecognized XCLAIM option '{}'", call.word(i));
    }
  }
  if (options.delivered_ms < 0 || options.delivered_ms > now_ms) options.delivered_ms = now_ms;
  return options;
}

// Gives a pending entry to the consumer; empty: it stays where it is. With `removed`, which may be
// null: whether it was dropped, because there is no such entry any more.
Task<Result<std::optional<StreamEntry>>> claim_entry(const OpenGroup& open, GroupChange& change,
                                                     const ClaimOptions& options,
                                                     const std::string& consumer, StreamId id,
                                                     int64_t now_ms, bool* removed) {
  std::optional<StreamEntry> none;
  FF_CO_TRY(auto entry, co_await read_entry(*open.stream, id));
  if (!entry) {
    FF_CO_TRY(const bool was_pending, co_await change.remove_pending(id));
    if (removed != nullptr) *removed = was_pending;
    co_return none;
  }
  FF_CO_TRY(auto pending, co_await change.find_pending(id));
  if (!pending && !options.force) co_return none;
  if (pending && now_ms - pending->delivered_ms < options.idle_ms) co_return none;
  PendingEntry next = pending.value_or(PendingEntry());
  next.consumer = consumer;
  next.delivered_ms = options.delivered_ms;
  if (options.deliveries && *options.deliveries >= 0) {
    next.deliveries = static_cast<uint64_t>(*options.deliveries);
  } else if (!options.only_ids) {
    next.deliveries++;
  }
  FF_CO_TRY(co_await change.see_consumer(consumer));
  FF_CO_TRY(co_await change.set_pending(id, std::move(next)));
  co_return entry;
}

void reply_claimed(RespWriter& reply, const std::vector<StreamEntry>& claimed, bool only_ids) {
  if (!only_ids) return reply_entries(reply, claimed);
  reply.array(claimed.size());
  for (const StreamEntry& entry : claimed) reply.bulk(entry.id.text());
}

}  // namespace

Task<Result<void>> run_xclaim(CommandCall& call) {
  FF_CO_TRY(const OpenGroup open, co_await open_group(call.view, call.word(1), call.word(2)));
  if (open.group == nullptr) co_return no_group(call.word(1), call.word(2), "");
  FF_CO_TRY(const ClaimOptions options, parse_claim_options(call));
  GroupChange change(*open.stream, *open.group, call.view.now_ms());
  const bool moves = options.last > open.group->last;
  if (moves) open.group->last = options.last;
  std::vector<StreamEntry> claimed;
  for (const StreamId id : options.ids) {
    FF_CO_TRY(auto entry, co_await claim_entry(open, change, options, call.word(3), id,
                                               call.view.now_ms(), nullptr));
    if (entry) claimed.push_back(std::move(*entry));
  }
  if (moves || change.changed()) open.stream->save();
  reply_claimed(call.reply, claimed, options.only_ids);
  co_return Result<void>();
}

namespace {

struct AutoClaimOptions {
  ClaimOptions claim = {};
  StreamId first = {};
  int64_t count = 100;
};

Result<AutoClaimOptions> parse_autoclaim_options(const CommandCall& call) {
  AutoClaimOptions options;
  options.claim.delivered_ms = call.view.now_ms();
  FF_TRY(options.claim.idle_ms, parse_idle(call));
  FF_TRY(options.first, parse_interval_start(call.word(5)));
  for (size_t i = 6; i < call.size(); i++) {
    if (call.is_option(i, "COUNT") && i + 1 < call.size()) {
      const auto count = parse_integer(call.word(++i));
      if (!count || *count < 1 || *count > kClaimCountMax) {
        return group_error("ERR COUNT must be > 0");
      }
      options.count = *count;
    } else if (call.is_option(i, "JUSTID")) {
      options.claim.only_ids = true;
    } else {
      return syntax_error();
    }
  }
  return options;
}

// The next ids that are pending.
Task<Result<std::vector<StreamId>>> read_pending_ids(const OpenGroup& open, StreamId first,
                                                     int64_t most) {
  std::vector<StreamId> found;
  PageTree entries = open.stream->pending(*open.group);
  PageTree::Cursor cursor(entries);
  FF_CO_TRY(co_await cursor.to_lower(first.key()));
  while (cursor.valid() && static_cast<int64_t>(found.size()) < most) {
    found.push_back(StreamId::of_key(cursor.item().key));
    FF_CO_TRY(co_await cursor.next());
  }
  co_return found;
}

}  // namespace

Task<Result<void>> run_xautoclaim(CommandCall& call) {
  FF_CO_TRY(const AutoClaimOptions options, parse_autoclaim_options(call));
  FF_CO_TRY(const OpenGroup open, co_await open_group(call.view, call.word(1), call.word(2)));
  if (open.group == nullptr) co_return no_group(call.word(1), call.word(2), "");
  GroupChange change(*open.stream, *open.group, call.view.now_ms());
  const int64_t attempts = options.count * kAttemptsForEach;
  FF_CO_TRY(const auto pending, co_await read_pending_ids(open, options.first, attempts + 1));
  std::vector<StreamEntry> claimed;
  std::vector<StreamId> removed;
  size_t at = 0;
  for (; at < pending.size() && static_cast<int64_t>(at) < attempts; at++) {
    if (static_cast<int64_t>(claimed.size() + removed.size()) == options.count) break;
    bool was_removed = false;
    FF_CO_TRY(auto entry, co_await claim_entry(open, change, options.claim, call.word(3),
                                               pending[at], call.view.now_ms(), &was_removed));
    if (was_removed) removed.push_back(pending[at]);
    if (entry) claimed.push_back(std::move(*entry));
  }
  if (change.changed()) open.stream->save();
  const bool is_end = at == pending.size();
  call.reply.array(3);
  call.reply.bulk((is_end ? StreamId() : pending[at]).text());
  reply_claimed(call.reply, claimed, options.claim.only_ids);
  call.reply.array(removed.size());
  for (const StreamId id : removed) call.reply.bulk(id.text());
  co_return Result<void>();
}

}  // namespace ff::gateway
