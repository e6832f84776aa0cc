// metadata.cc: keys, checksummed rows, and the SQL statements.
#include "storage/chunk/metadata.h"

#include <bit>
#include <utility>

#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {
namespace {

constexpr const char* kMigrations[] = {
    "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
};

// Size of the write-ahead log that triggers a checkpoint: 32 MiB. A checkpoint costs two fsyncs
// during which all writers wait, and opening reads such a log in a short time.
constexpr int kLogPages = 8192;

constexpr size_t kSealBytes = 4;

uint32_t seal_of(std::string_view key, std::string_view body) {
  return simd::crc32c(as_bytes(body), simd::crc32c(as_bytes(key)));
}

std::string sealed(std::string_view key, std::string_view body) {
  std::string value;
  append_le(value, seal_of(key, body));
  value += body;
  return value;
}

}  // namespace

std::string metadata_path(const std::string& dir) { return io::join(dir, "chunks.sqlite"); }

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

Result<Metadata> Metadata::open(io::Disk& disk, const std::string& path, Clock& clock, Rng& rng) {
  auto own_rng = std::make_unique<SeededRng>(rng.next());
  const db::DatabaseOptions options{
      .disk = &disk, .rng = own_rng.get(), .synchronous = db::Synchronous::normal};
  FF_TRY(auto database, db::Database::open(path, kMigrations, clock, options));
  database.disable_auto_checkpoint();
  FF_TRY(auto scan, database.prepare("SELECT key, value FROM row ORDER BY key"));
  FF_TRY(auto put, database.prepare("REPLACE INTO row (key, value) VALUES (?, ?)"));
  FF_TRY(auto erase, database.prepare("DELETE FROM row WHERE key = ?"));
  FF_TRY(auto erase_range, database.prepare("DELETE FROM row WHERE key >= ? AND key < ?"));
  return Metadata(std::move(own_rng), std::move(database), std::move(scan), std::move(put),
                  std::move(erase), std::move(erase_range));
}

Metadata::Metadata(std::unique_ptr<Rng> rng, db::Database database, db::Statement scan,
                   db::Statement put, db::Statement erase, db::Statement erase_range)
    : rng_(std::move(rng)),
      database_(std::move(database)),
      scan_(std::move(scan)),
      put_(std::move(put)),
      erase_(std::move(erase)),
      erase_range_(std::move(erase_range)) {}

bool Metadata::needs_checkpoint() const { return database_.wal_pages() >= kLogPages; }

// If it fails, the next transaction fails with the same error.
void Metadata::checkpoint_if_needed() {
  if (needs_checkpoint()) (void)database_.checkpoint();
}

Result<void> Metadata::apply(const RowChanges& changes) {
  const RowChanges* const batch[] = {&changes};
  return apply(batch);
}

Result<void> Metadata::apply(std::span<const RowChanges* const> batch) {
  FF_TRY(auto transaction, database_.begin());
  for (const RowChanges* const changes : batch) {
    for (const RowChange& change : *changes) {
      if (change.body) {
        const std::string value = sealed(change.key, *change.body);
        put_.bind(as_bytes(change.key), as_bytes(value));
        FF_TRY(put_.run());
      } else if (change.end.empty()) {
        erase_.bind(as_bytes(change.key));
        FF_TRY(erase_.run());
      } else {
        erase_range_.bind(as_bytes(change.key), as_bytes(change.end));
        FF_TRY(erase_range_.run());
      }
    }
  }
  FF_TRY(transaction.commit());
  if (acked_ != nullptr) acked_->advance(database_.log_position());
  return {};
}

// Scans all rows instead of key ranges: a row with a damaged key would end a range early, and the
// rows behind it would be missed.
Result<void> Metadata::scan(const Visit& visit) {
  std::string last;
  scan_.bind();
  for (;;) {
    FF_TRY(const bool row, scan_.step());
    if (!row) return {};
    const std::string_view key = as_text(scan_.blob(0));
    const std::string_view value = as_text(scan_.blob(1));
    const std::string_view body = value.substr(std::min(kSealBytes, value.size()));
    if (key.empty() || key <= last || value.size() < kSealBytes ||
        load_le<uint32_t>(as_bytes(value).data()) != seal_of(key, body)) {
      return fail(Errc::corrupt, "{}: a row does not match its checksum", path());
    }
    FF_TRY(visit(static_cast<RowKind>(key[0]), key, body));
    last = key;
  }
}

}  // namespace ff::chunk
