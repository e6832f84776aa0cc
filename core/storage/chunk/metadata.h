// The metadata of one disk: an SQLite file with one table of rows, each with a CRC32C of its own.
//
//   key    one letter of Table, then big-endian u64s, so that keys ascend as their numbers:
//          disk    (nothing: one row)
//          note    (nothing: one row) the owner's
//          target  target
//          chunk   target inode index
//          damage  target inode index         the chunk is damaged, and not yet written anew
//          result  target client channel
//          undo    epoch target inode index   the chunk's row before the first change of the epoch
//   value  u32 CRC32C of key and body, then the body (record.h; an undo row's may be empty: absent)
//
// A transaction survives the end of the process as soon as apply() returns, a loss of power after
// flush(); what a loss of power leaves is all transactions up to some one. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/db/database.h"
#include "platform/io/disk.h"
#include "storage/chunk/chunk.h"

namespace ff::chunk {

// Where a disk's metadata lies.
std::string metadata_path(const std::string& dir);

enum class Table : char {
  disk = 'a',
  target = 'b',
  chunk = 'c',
  damage = 'd',
  note = 'n',
  result = 'r',
  undo = 'u'
};

std::string key_of(Table table, std::initializer_list<uint64_t> numbers);
// The numbers of a key; none when it has another count of them.
std::optional<std::vector<uint64_t>> numbers_of(std::string_view key, size_t count);

// One change of the rows.
struct RowChange {
  std::string key;
  std::optional<std::string> body;  // nothing: erase
  std::string end = {};             // not empty: erase all from `key` on and before `end`
};
using RowChanges = std::vector<RowChange>;

// Says that the chunk is damaged, or no longer.
RowChange damage_row(TargetId target, const ChunkId& id, bool damaged);

class Metadata {
 public:
  // Opens or makes the file. `rng` is used in here only. Errors: newer_format, corrupt, disk_full,
  // else the disk's.
  static Result<Metadata> open(io::Disk& disk, const std::string& path, Clock& clock, Rng& rng);

  // All of `batch` in one transaction.
  Result<void> apply(std::span<const RowChanges* const> batch);
  Result<void> apply(const RowChanges& changes);
  // Makes durable what was applied.
  Result<void> flush() { return database_.flush(); }
  // From now on the log is copied into the file by shorten_log() alone, not within an apply().
  void shorten_log_by_hand() { database_.checkpoint_by_hand(); }
  bool log_is_long() const;
  void shorten_log();  // if it is
  // Calls `visit` with every row, in ascending order of the keys. Errors: corrupt when a row does
  // not match its checksum or its place, and those of `visit`.
  using Visit =
      std::function<Result<void>(Table table, std::string_view key, std::string_view body)>;
  Result<void> scan(const Visit& visit);

  const std::string& path() const { return database_.path(); }

 private:
  Metadata(std::unique_ptr<Rng> rng, db::Database database, db::Statement scan, db::Statement put,
           db::Statement erase, db::Statement erase_range);

  std::unique_ptr<Rng> rng_;  // SQLite's, in the thread that calls apply()
  db::Database database_;
  db::Statement scan_;
  db::Statement put_;
  db::Statement erase_;
  db::Statement erase_range_;
};

}  // namespace ff::chunk
