// The bytes of segments, which never change, and what parsers do with any others; the index.
#include "storage/kvstore/record.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "storage/kvstore/calls.h"
#include "storage/kvstore/claim.h"
#include "storage/kvstore/key_table.h"

namespace ff::kvstore {
namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::string hex_of(std::string_view bytes) { return hex(as_bytes(bytes)); }

std::string sample_record() {
  std::string bytes;
  append_record(bytes, {.more = true,
                        .version = 0x1122,
                        .expires_ms = 0x0102030405,
                        .key = "key",
                        .value = "value"});
  return bytes;
}

TEST(RecordFormat, SlotsAreThoseOfRedisCluster) {
  EXPECT_EQ(redis_slot("123456789"), 12739U);
  EXPECT_EQ(redis_slot("foo"), 12182U);
  EXPECT_EQ(redis_slot("{foo}.bar"), redis_slot("foo"));
  EXPECT_EQ(redis_slot("a{foo}b{bar}"), redis_slot("foo"));
  EXPECT_EQ(redis_slot("a{{foo}}"), redis_slot("{foo"));
  EXPECT_NE(redis_slot("{}foo"), redis_slot(""));  // an empty tag does not count
  EXPECT_EQ(redis_slot(""), 0U);
}

// A store that these bytes do not describe any more cannot be opened by this version.
TEST(RecordFormat, IsFrozen) {
  EXPECT_EQ(hex_of(sample_record()),
            "f835c6d7280000008d846f9103000101221100000000000005040302010000006b657976616c7565");
  std::string removal;
  const std::string hash = removal_key(hash_key(kSecret, "key"));
  append_record(removal, {.kind = RecordKind::remove, .version = 7, .key = hash});
  EXPECT_EQ(
      hex_of(removal),
      "6fe81be2300000009abccbad1000020007000000000000000000000000000000e934f327c9582b9f4e43c934"
      "fd21a7ef");
  EXPECT_EQ(
      hex_of(encode_header({.epoch = 3, .number = 9, .previous = 8, .previous_end = 200})),
      "46464b5653454731030000000000000009000000000000000800000000000000c80000000000000000000000"
      "00000000000000000000000000000000461f97cd");
  const IndexedRecord record{.hash = hash_key(kSecret, "key"),
                             .version = 5,
                             .expires_ms = 6,
                             .offset = 64,
                             .length = 40,
                             .key_bytes = 3};
  EXPECT_EQ(
      hex_of(encode_footer({record}, 104)),
      "e934f327c9582b9f4e43c934fd21a7ef05000000000000000600000000000000080000002800000003000100"
      "0000000046464b564944583168000000000000000100000000000000920ab2545c781590");
  const Base base{.epoch = 4,
                  .next_version = 77,
                  .first_number = 12,
                  .segments = {{{.epoch = 3, .number = 9}, 104}}};
  EXPECT_EQ(encode_base(base),
            "ff-kv base 1\nepoch 4\nversion 77\nfirst 12\nsegment 3 9 104\ncrc 858f15b8\n");
}

TEST(RecordFormat, RolesReadBack) {
  for (const RecordRole role :
       {RecordRole::plain, RecordRole::owner, RecordRole::part, RecordRole::leftover}) {
    for (const bool more : {false, true}) {
      std::string bytes;
      append_record(bytes, {.more = more, .role = role, .version = 1, .key = "name"});
      EXPECT_EQ(bytes[15], static_cast<char>(static_cast<int>(role) * 2 + (more ? 1 : 0)));
      const ParsedRecord parsed = parse_record(as_bytes(bytes));
      ASSERT_EQ(parsed.state, ParsedRecord::State::whole);
      EXPECT_EQ(parsed.record.role, role);
      EXPECT_EQ(parsed.record.more, more);
    }
    const std::string footer = encode_footer(
        {{.version = 1, .expires_ms = 0, .offset = 64, .length = 40, .key_bytes = 3, .role = role}},
        104);
    const ByteView bytes = as_bytes(footer);
    const auto trailer = parse_trailer(bytes.last(kTrailer), 104 + footer.size());
    ASSERT_TRUE(trailer);
    const auto records = parse_footer(bytes.first(bytes.size() - kTrailer), *trailer);
    ASSERT_TRUE(records);
    EXPECT_EQ(records->front().role, role);
  }
  EXPECT_NE(hash_key(kSecret, "key"), hash_part(kSecret, "key"));
}

TEST(RecordFormat, RecordsReadBack) {
  const std::string bytes = sample_record();
  const ParsedRecord parsed = parse_record(as_bytes(bytes));
  ASSERT_EQ(parsed.state, ParsedRecord::State::whole);
  EXPECT_EQ(parsed.length, record_bytes(3, 5));
  EXPECT_EQ(parsed.record.key, "key");
  EXPECT_EQ(parsed.record.value, "value");
  EXPECT_EQ(parsed.record.version, 0x1122U);
  EXPECT_EQ(parsed.record.expires_ms, 0x0102030405);
  EXPECT_TRUE(parsed.record.more);
  const std::string head = bytes.substr(0, record_bytes(3, 0));
  EXPECT_EQ(parse_key(as_bytes(head)), "key");
}

TEST(RecordFormat, EveryFlippedBitIsNoticed) {
  const std::string bytes = sample_record();
  const size_t length = record_bytes(3, 5);
  for (size_t bit = 0; bit < length * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(parse_record(as_bytes(flipped)).state, ParsedRecord::State::whole) << bit;
  }
  for (size_t end = 0; end < length; ++end) {
    const ParsedRecord parsed = parse_record(as_bytes(bytes).first(end));
    EXPECT_EQ(parsed.state, ParsedRecord::State::longer) << end;
    EXPECT_GT(parsed.length, end);
  }
  std::string value = bytes;
  value[record_bytes(3, 2)] ^= 1;
  const ParsedRecord damaged = parse_record(as_bytes(value));
  EXPECT_EQ(damaged.state, ParsedRecord::State::damaged);
  EXPECT_EQ(damaged.record.key, "key");
}

TEST(RecordFormat, FootersReadBackUnlessDamaged) {
  std::vector<IndexedRecord> records;
  uint64_t end = kSegmentHeader;
  for (int i = 0; i < 3; ++i) {
    records.push_back({.hash = hash_key(kSecret, std::to_string(i)),
                       .version = 1,
                       .offset = end,
                       .length = static_cast<uint32_t>(record_bytes(1, 10)),
                       .key_bytes = 1});
    end = records.back().end();
  }
  const std::string footer = encode_footer(records, end);
  const uint64_t file = end + footer.size();
  const auto read = [&](const std::string& bytes) -> std::optional<std::vector<IndexedRecord>> {
    const ByteView view = as_bytes(bytes);
    const auto trailer = parse_trailer(view.last(kTrailer), file);
    if (!trailer) return {};
    return parse_footer(view.first(view.size() - kTrailer), *trailer);
  };
  const auto back = read(footer);
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back->size(), 3U);
  EXPECT_EQ((*back)[2].offset, records[2].offset);
  EXPECT_EQ((*back)[2].hash, records[2].hash);
  for (size_t bit = 0; bit < footer.size() * 8; ++bit) {
    std::string flipped = footer;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(read(flipped).has_value()) << bit;
  }
}

TEST(RecordFormat, BasesReadBackUnlessDamaged) {
  const Base base{.epoch = 4,
                  .next_version = 77,
                  .first_number = 12,
                  .segments = {{{.epoch = 3, .number = 9}, 104}, {{.epoch = 4, .number = 1}, 64}}};
  const std::string text = encode_base(base);
  const auto back = parse_base(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(encode_base(*back), text);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 4);
    EXPECT_FALSE(parse_base(flipped).has_value()) << i;
    EXPECT_FALSE(parse_base(text.substr(0, i)).has_value()) << i;
  }
}

// The table against a map, through growth and removals, with hashes that crowd at one place.
TEST(KeyTable, AgreesWithAMap) {
  for (const uint64_t mask : {UINT64_MAX, uint64_t{0xff} << 56, uint64_t{3}}) {
    SeededRng rng(mask);
    KeyTable table;
    std::map<KeyHash, uint64_t> model;
    for (uint64_t i = 1; i < 20'000; ++i) {
      const KeyHash hash{.high = rng.next() & mask, .low = rng.below(500)};
      if (rng.below(3) != 0 || model.empty()) {
        TableEntry& entry = table.insert(hash);
        EXPECT_EQ(entry.version, model.contains(hash) ? model[hash] : 0);
        entry.version = i;
        model[hash] = i;
      } else {
        auto victim = model.lower_bound(hash);
        if (victim == model.end()) victim = model.begin();
        table.erase(victim->first);
        model.erase(victim);
      }
      const TableEntry* const found = table.find(hash);
      ASSERT_EQ(found != nullptr, model.contains(hash));
    }
    ASSERT_EQ(table.size(), model.size());
    const TableEntry* entry = table.from(0);
    for (const auto& [hash, version] : model) {
      ASSERT_NE(entry, nullptr);
      ASSERT_EQ(entry->hash, hash);
      ASSERT_EQ(entry->version, version);
      entry = table.next(entry);
    }
    EXPECT_EQ(entry, nullptr);
  }
}

TEST(KeyTable, TakesAtMost100BytesForAKey) {
  SeededRng rng(1);
  KeyTable table;
  for (uint64_t i = 1; i <= 300'000; ++i) {
    table.insert({.high = rng.next(), .low = rng.next()}).version = i;
    if (i < 1000) continue;
    ASSERT_LE(table.memory_bytes(), i * 100);
  }
}

}  // namespace
}  // namespace ff::kvstore
