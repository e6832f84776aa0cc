// rows.cc: keys of metadata rows, and the encoding of their changes.
#include "storage/chunk/rows.h"

#include "platform/base/bytes.h"
#include "platform/base/check.h"

namespace ff::chunk {
namespace {

constexpr size_t kRowHeaderBytes = 6;
constexpr size_t kKeyMax = 255;
constexpr std::string_view kDataKey = "l";
static_assert(kDataAt == kRowHeaderBytes + kDataKey.size());

}  // namespace

std::string key_of(RowKind table, std::initializer_list<uint64_t> numbers) {
  std::string key(1, static_cast<char>(table));
  for (const uint64_t number : numbers) append_be(key, number);
  return key;
}

std::optional<std::vector<uint64_t>> numbers_of(std::string_view key, size_t count) {
  if (key.size() != 1 + count * sizeof(uint64_t)) return std::nullopt;
  std::vector<uint64_t> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] =
        __builtin_bswap64(load_le<uint64_t>(as_bytes(key).data() + 1 + i * sizeof(uint64_t)));
  }
  return numbers;
}

RowChange damage_row(TargetId target, const ChunkId& id, bool damaged) {
  return {.key = key_of(RowKind::damage, {target, id.inode, id.index}),
          .body = damaged ? std::optional(std::string()) : std::nullopt};
}

RowChange data_change(ByteView bytes) {
  return {.key = std::string(kDataKey), .body = std::nullopt, .data = bytes};
}

RowView view_of(const RowChange& change) {
  if (!change.data.empty()) {
    return {.kind = RowView::Kind::data, .key = change.key, .value = as_text(change.data)};
  }
  if (change.body) return {.kind = RowView::Kind::put, .key = change.key, .value = *change.body};
  if (change.end.empty()) return {.kind = RowView::Kind::erase, .key = change.key, .value = {}};
  return {.kind = RowView::Kind::erase_range, .key = change.key, .value = change.end};
}

void append_row(std::string& out, const RowView& row) {
  FF_CHECK(row.key.size() <= kKeyMax && row.value.size() <= UINT32_MAX);
  append_le(out, static_cast<uint8_t>(row.kind));
  append_le(out, static_cast<uint8_t>(row.key.size()));
  append_le(out, static_cast<uint32_t>(row.value.size()));
  out += row.key;
  out += row.value;
}

void append_rows(std::string& out, const RowChanges& changes) {
  for (const RowChange& change : changes) append_row(out, view_of(change));
}

std::optional<RowView> take_row(std::string_view& from) {
  if (from.size() < kRowHeaderBytes) return std::nullopt;
  const std::byte* const at = as_bytes(from).data();
  const auto kind = load_le<uint8_t>(at);
  const size_t key = load_le<uint8_t>(at + 1);
  const size_t value = load_le<uint32_t>(at + 2);
  if (kind < 1 || kind > 4 || key == 0 || from.size() - kRowHeaderBytes < key + value) {
    return std::nullopt;
  }
  const RowView row{.kind = static_cast<RowView::Kind>(kind),
                    .key = from.substr(kRowHeaderBytes, key),
                    .value = from.substr(kRowHeaderBytes + key, value)};
  from.remove_prefix(kRowHeaderBytes + key + value);
  return row;
}

}  // namespace ff::chunk
