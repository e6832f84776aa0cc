// Rows of the metadata of a disk: their kinds and keys, changes of them, and how log and runs
// encode changes.
//
//   key    one letter of RowKind, then big-endian u64s, so that keys sort as their numbers:
//          disk    (one row)
//          note    (one row) the owner's record
//          target  target
//          chunk   target inode index
//          damage  target inode index         the chunk is damaged and not yet rewritten
//          logged  target inode index unit    data of the checksum unit is in the log
//          result  target client channel
//          undo    epoch target inode index   the chunk's row before its first change in the epoch
//   body   chunk_record.h; in an undo row an empty body means that the chunk was absent
//
//   row    u8 kind: 1 put, 2 erase, 3 erase range, 4 data; u8 key size, u32 value size, key, value
//          value: the body; or the end of the range, exclusive; empty for erase
//          data (in the log only): no change, but bytes to which rows refer by their LSN
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/chunk/chunk.h"

namespace ff::chunk {

enum class RowKind : char {
  disk = 'a',
  target = 'b',
  chunk = 'c',
  damage = 'd',
  logged = 'l',
  owner_record = 'n',
  result = 'r',
  undo = 'u'
};

std::string key_of(RowKind table, std::initializer_list<uint64_t> numbers);
// The numbers of a key; nothing when their count differs.
std::optional<std::vector<uint64_t>> numbers_of(std::string_view key, size_t count);

// One change of one row or of a range of rows.
struct RowChange {
  std::string key;
  std::optional<std::string> body;  // nothing: delete
  std::string end = {};             // not empty: delete the range [key, end)
  ByteView data = {};               // not empty: no change; these bytes go to the log
};
using RowChanges = std::vector<RowChange>;

// Adds or deletes the damage row of a chunk.
RowChange damage_row(TargetId target, const ChunkId& id, bool damaged);

// A change in encoded form; it refers to memory of others.
struct RowView {
  enum class Kind : uint8_t { put = 1, erase = 2, erase_range = 3, data = 4 };
  Kind kind = Kind::put;
  std::string_view key;
  std::string_view value;
};

// A change that stores `bytes`, which must live until it is encoded, and where the bytes begin in
// its encoded form.
RowChange data_change(ByteView bytes);
constexpr uint64_t kDataAt = 7;

RowView view_of(const RowChange& change);
void append_row(std::string& out, const RowView& row);
void append_rows(std::string& out, const RowChanges& changes);
// Removes the first row of `from`; nothing when it is malformed.
std::optional<RowView> take_row(std::string_view& from);

}  // namespace ff::chunk
