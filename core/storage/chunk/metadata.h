// The metadata of one disk: an SQLite file with one table of rows, each with its own CRC32C.
//
//   key    one letter of RowKind, then big-endian u64s, so that keys sort as their numbers:
//          disk    (one row)
//          note    (one row) the owner's record
//          target  target
//          chunk   target inode index
//          damage  target inode index         the chunk is damaged and not yet rewritten
//          result  target client channel
//          undo    epoch target inode index   the chunk's row before its first change in the epoch
//   value  u32 CRC32C of key and body, then the body (chunk_record.h; in an undo row an empty body
//          means that the chunk was absent)
//
// A transaction survives a process crash as soon as apply() returns, and a power loss after
// flush(). After a power loss a prefix of the transactions remains. Use by one thread at a time.
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
#include "storage/chunk/acked_position.h"
#include "storage/chunk/chunk.h"

namespace ff::chunk {

// Path of the metadata file of a disk.
std::string metadata_path(const std::string& dir);

enum class RowKind : char {
  disk = 'a',
  target = 'b',
  chunk = 'c',
  damage = 'd',
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
};
using RowChanges = std::vector<RowChange>;

// Adds or deletes the damage row of a chunk.
RowChange damage_row(TargetId target, const ChunkId& id, bool damaged);

class Metadata {
 public:
  // Opens or creates the file. `rng` is used during the call only. Errors: newer_format, corrupt,
  // disk_full; else those of the disk.
  static Result<Metadata> open(io::Disk& disk, const std::string& path, Clock& clock, Rng& rng);

  // Applies all of `batch` in one transaction.
  Result<void> apply(std::span<const RowChanges* const> batch);
  Result<void> apply(const RowChanges& changes);
  // Makes applied transactions durable.
  Result<void> flush() { return database_.flush(); }
  // Only checkpoint_if_needed() and checkpoint() copy the write-ahead log into the file.
  bool needs_checkpoint() const;
  void checkpoint_if_needed();  // when needs_checkpoint()
  // Copies the write-ahead log into the file, durably.
  Result<void> checkpoint() { return database_.checkpoint(); }
  // The end of the log; after open() only once checkpoint() has been called.
  db::LogPosition log_position() const { return database_.log_position(); }
  // Reports each position from now on, before apply() returns. `acked` must outlive it.
  void report_to(AckedPosition& acked) { acked_ = &acked; }
  // Calls `visit` for each row in ascending key order. Errors: corrupt (checksum or key order
  // wrong), and those of `visit`.
  using Visit =
      std::function<Result<void>(RowKind table, std::string_view key, std::string_view body)>;
  Result<void> scan(const Visit& visit);

  const std::string& path() const { return database_.path(); }

 private:
  Metadata(std::unique_ptr<Rng> rng, db::Database database, db::Statement scan, db::Statement put,
           db::Statement erase, db::Statement erase_range);

  AckedPosition* acked_ = nullptr;
  std::unique_ptr<Rng> rng_;  // used by SQLite in the thread that calls apply()
  db::Database database_;
  db::Statement scan_;
  db::Statement put_;
  db::Statement erase_;
  db::Statement erase_range_;
};

}  // namespace ff::chunk
