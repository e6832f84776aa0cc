// Disk format 1, whose metadata is one SQLite file, and the upgrade of such a disk.
//
//   DIR/chunks.sqlite   one table of rows:
//     key    as in rows.h
//     value  u32 CRC32C of key and body, then the body
//
// The blocks and the bodies of rows are those of later formats.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/db/database.h"
#include "storage/chunk/disk_identity.h"
#include "storage/chunk/metadata.h"
#include "storage/chunk/row_source.h"

namespace ff::chunk {

std::string format1_path(const std::string& dir);

class Format1Rows final : public RowSource {
 public:
  // `rng` must outlive it. Errors: corrupt (also: missing), newer_format; else those of the disk.
  static Result<std::unique_ptr<Format1Rows>> open(io::Disk& disk, const std::string& dir,
                                                   Clock& clock, Rng& rng);
  // Errors: corrupt.
  Result<std::optional<RowView>> next() override;
  // The end of the SQLite log.
  Result<db::LogPosition> position();

 private:
  Format1Rows(db::Database database, db::Statement rows)
      : database_(std::move(database)), rows_(std::move(rows)) {}

  db::Database database_;
  db::Statement rows_;
  std::string last_key_;
};

// Upgrades a disk of format 1 to the present one. Until ff-disk names the new format, the disk is
// one of format 1 and the next call begins again; afterwards remove_format1() may have work left.
// Returns the end of the SQLite log.
Result<db::LogPosition> upgrade_format1(const MetadataOptions& options, DiskIdentity& identity,
                                        Clock& clock);
// Removes the SQLite file of a disk that has been upgraded.
Result<void> remove_format1(io::Disk& disk, const std::string& dir);

}  // namespace ff::chunk
