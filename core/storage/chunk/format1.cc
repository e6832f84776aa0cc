// format1.cc: reads the SQLite file of a disk of format 1, and upgrades the disk.
#include "storage/chunk/format1.h"

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {
namespace {

constexpr const char* kMigrations[] = {
    "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
};

constexpr size_t kSealBytes = 4;

uint32_t seal_of(std::string_view key, std::string_view body) {
  return simd::crc32c(as_bytes(body), simd::crc32c(as_bytes(key)));
}

}  // namespace

std::string format1_path(const std::string& dir) { return io::join(dir, "chunks.sqlite"); }

Result<std::unique_ptr<Format1Rows>> Format1Rows::open(io::Disk& disk, const std::string& dir,
                                                       Clock& clock, Rng& rng) {
  const std::string path = format1_path(dir);
  FF_TRY(const bool there, io::exists(disk, path));
  if (!there) {
    return Error{Errc::corrupt,
                 fmt::format("{}: the metadata file is missing, so no chunk can be located", path),
                 "Restore the file, or replace the targets of the disk: ff admin replace-target."};
  }
  const db::DatabaseOptions options{
      .disk = &disk, .rng = &rng, .synchronous = db::Synchronous::normal};
  FF_TRY(auto database, db::Database::open(path, kMigrations, clock, options));
  database.disable_auto_checkpoint();
  FF_TRY(auto rows, database.prepare("SELECT key, value FROM row ORDER BY key"));
  rows.bind();
  return std::unique_ptr<Format1Rows>(new Format1Rows(std::move(database), std::move(rows)));
}

// Reads all rows instead of key ranges: a row with a damaged key would end a range early, and the
// rows behind it would be missed.
Result<std::optional<RowView>> Format1Rows::next() {
  FF_TRY(const bool row, rows_.step());
  if (!row) return std::optional<RowView>();
  const std::string_view key = as_text(rows_.blob(0));
  const std::string_view value = as_text(rows_.blob(1));
  const std::string_view body = value.substr(std::min(kSealBytes, value.size()));
  if (key.empty() || key <= last_key_ || value.size() < kSealBytes ||
      load_le<uint32_t>(as_bytes(value).data()) != seal_of(key, body)) {
    return fail(Errc::corrupt, "{}: a row does not match its checksum", database_.path());
  }
  last_key_ = key;
  return std::optional(RowView{.kind = RowView::Kind::put, .key = key, .value = body});
}

Result<db::LogPosition> Format1Rows::position() {
  FF_TRY(database_.checkpoint());
  return database_.log_position();
}

Result<db::LogPosition> upgrade_format1(const MetadataOptions& options, DiskIdentity& identity,
                                        Clock& clock) {
  log_info("upgrading a disk; earlier versions of ff cannot use it any more",
           {{"dir", options.dir}, {"disk", identity.disk}, {"format", kDiskFormat}});
  const auto rng = std::make_unique<SeededRng>(options.rng.next());
  FF_TRY(const auto rows, Format1Rows::open(options.disk, options.dir, clock, *rng));
  FF_TRY(const db::LogPosition position, rows->position());
  FF_TRY(Metadata::create(options, *rows));
  DiskIdentity upgraded = identity;
  upgraded.format = kDiskFormat;
  FF_TRY(write_identity(options.disk, options.dir, upgraded));
  identity = upgraded;
  return position;
}

Result<void> remove_format1(io::Disk& disk, const std::string& dir) {
  for (const char* const suffix : {"-wal", "-shm", ""}) {
    const std::string path = format1_path(dir) + suffix;
    FF_TRY(const bool there, io::exists(disk, path));
    if (there) FF_TRY(disk.remove(path));
  }
  return {};
}

}  // namespace ff::chunk
