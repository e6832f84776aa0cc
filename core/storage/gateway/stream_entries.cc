// stream_entries.cc: walks over the entries of a stream.
#include "storage/gateway/stream_entries.h"

#include <algorithm>
#include <utility>

#include "storage/gateway/redis_numbers.h"

namespace ff::gateway {

namespace {

constexpr int64_t kTrimLimit = 10'000;  // of "~" without LIMIT, as in Redis

Result<StreamEntry> entry_of(const Page::Item& item) {
  StreamEntry entry;
  entry.id = StreamId::of_key(item.key);
  FF_TRY(entry.fields, decode_fields(item.value));
  return entry;
}

// How many of the first page's entries may go.
size_t surplus_of(const StreamValue& stream, const std::vector<Page::Item>& leaf,
                  const StreamTrim& trim) {
  if (trim.kind == StreamTrim::Kind::length) {
    const auto most = static_cast<uint64_t>(trim.length);
    return stream.length() <= most ? 0 : std::min<uint64_t>(leaf.size(), stream.length() - most);
  }
  const auto stays = std::ranges::find_if(
      leaf, [&](const Page::Item& item) { return StreamId::of_key(item.key) >= trim.id; });
  return static_cast<size_t>(stays - leaf.begin());
}

Error trim_error(const char* text) { return Error{Errc::usage, text, {}}; }

}  // namespace

Task<Result<std::vector<StreamEntry>>> read_entries(StreamValue& stream, StreamId first,
                                                    StreamId last, uint64_t most) {
  std::vector<StreamEntry> entries;
  PageTree tree = stream.entries();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_lower(first.key()));
  while (cursor.valid() && (most == 0 || entries.size() < most)) {
    FF_CO_TRY(StreamEntry entry, entry_of(cursor.item()));
    if (entry.id > last) break;
    entries.push_back(std::move(entry));
    FF_CO_TRY(co_await cursor.next());
  }
  co_return entries;
}

Task<Result<std::vector<StreamEntry>>> read_entries_back(StreamValue& stream, StreamId first,
                                                         StreamId last, uint64_t most) {
  std::vector<StreamEntry> entries;
  PageTree tree = stream.entries();
  PageTree::Cursor cursor(tree);
  FF_CO_TRY(co_await cursor.to_upper(last.key()));
  while (cursor.valid() && (most == 0 || entries.size() < most)) {
    FF_CO_TRY(StreamEntry entry, entry_of(cursor.item()));
    if (entry.id < first) break;
    entries.push_back(std::move(entry));
    FF_CO_TRY(co_await cursor.previous());
  }
  co_return entries;
}

Task<Result<std::optional<StreamEntry>>> read_entry(StreamValue& stream, StreamId id) {
  std::optional<StreamEntry> entry;
  PageTree tree = stream.entries();
  FF_CO_TRY(const Page::Item* const found, co_await tree.find(id.key()));
  if (found == nullptr) co_return entry;
  FF_CO_TRY(entry, entry_of(*found));
  co_return entry;
}

void reply_entry(RespWriter& reply, const StreamEntry& entry) {
  reply.array(2);
  reply.bulk(entry.id.text());
  reply.array(entry.fields.size());
  for (const std::string& text : entry.fields) reply.bulk(text);
}

void reply_entries(RespWriter& reply, const std::vector<StreamEntry>& entries) {
  reply.array(entries.size());
  for (const StreamEntry& entry : entries) reply_entry(reply, entry);
}

Result<bool> parse_trim_option(const CommandCall& call, size_t& at, StreamTrim& trim) {
  const bool has_more = at + 1 < call.size();
  const bool length = call.is_option(at, "MAXLEN"), id = call.is_option(at, "MINID");
  if (has_more && call.is_option(at, "LIMIT")) {
    const auto limit = parse_integer(call.word(++at));
    if (!limit) return not_an_integer();
    if (*limit < 0) return trim_error("ERR The LIMIT argument must be >= 0.");
    trim.limit = *limit;
    return true;
  }
  if (!has_more || (!length && !id)) return false;
  if (trim.kind != StreamTrim::Kind::none) {
    return trim_error(
        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
  }
  trim.kind = length ? StreamTrim::Kind::length : StreamTrim::Kind::id;
  if (at + 2 < call.size() && (call.word(at + 1) == "~" || call.word(at + 1) == "=")) {
    trim.whole_pages = call.word(++at) == "~";
  }
  const std::string& edge = call.word(++at);
  if (id) {
    FF_TRY(trim.id, parse_stream_id(edge, 0));
    return true;
  }
  const auto most = parse_integer(edge);
  if (!most) return not_an_integer();
  if (*most < 0) return trim_error("ERR The MAXLEN argument must be >= 0.");
  trim.length = *most;
  return true;
}

Result<void> check_trim_options(StreamTrim& trim, bool is_trim_command) {
  const bool none = trim.kind == StreamTrim::Kind::none;
  if (none && trim.limit.value_or(0) != 0) {
    return trim_error(
        "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
  }
  if (none && is_trim_command) {
    return trim_error("ERR syntax error, XTRIM must be called with a trimming strategy");
  }
  if (trim.limit && !trim.whole_pages) {
    return trim_error("ERR syntax error, LIMIT cannot be used without the special ~ option");
  }
  if (!trim.limit) trim.limit = trim.whole_pages ? kTrimLimit : 0;
  return {};
}

Task<Result<int64_t>> trim_stream(StreamValue& stream, StreamTrim trim) {
  int64_t removed = 0;
  if (trim.kind == StreamTrim::Kind::none) co_return removed;
  PageTree tree = stream.entries();
  for (;;) {
    PageTree::Cursor cursor(tree);
    FF_CO_TRY(co_await cursor.to_first());
    if (!cursor.valid()) break;
    const auto leaf = cursor.leaf();
    const size_t surplus = surplus_of(stream, leaf, trim);
    if (surplus == 0 || (trim.whole_pages && surplus < leaf.size())) break;
    const auto after = removed + static_cast<int64_t>(surplus);
    if (*trim.limit > 0 && after > *trim.limit) break;
    for (size_t i = 0; i < surplus; i++) FF_CO_TRY(co_await tree.erase(leaf[i].key));
    removed = after;
  }
  co_return removed;
}

Result<int64_t> parse_count(const CommandCall& call, size_t at) {
  const auto count = parse_integer(call.word(at));
  if (!count) return not_an_integer();
  return std::max<int64_t>(*count, 0);
}

}  // namespace ff::gateway
