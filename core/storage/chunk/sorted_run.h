// A sorted run: rows of the metadata of a disk up to some checkpoint, in one file that is written
// once.
//
//   DIR/chunks.run-N   blocks without gaps; each: u32 CRC32C of all that follows, u32 size of the
//                      rows, u64 N, u64 offset of the block in the file, rows (rows.h) in ascending
//                      order, an erased range before the row of its first key
//
// The number and the offset make a block that is read from another place invalid. chunks.index
// (metadata.h) names each run with its size and the CRC32C of the CRCs of its blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/base/result.h"
#include "platform/io/disk.h"
#include "storage/chunk/row_source.h"

namespace ff::chunk {

struct RunInfo {
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint32_t crc = 0;
  bool operator==(const RunInfo&) const = default;
};

std::string run_path(const std::string& dir, uint64_t number);

// Writes all rows of `source` to a new file, durably except for its name. No file is left if it
// fails, or if there are no rows (then `bytes` is 0). Any thread may call it.
Result<RunInfo> write_run(io::Disk& disk, const std::string& dir, uint64_t number,
                          RowSource& source);

class RunReader final : public RowSource {
 public:
  // Errors: corrupt (missing, or of another size).
  static Result<std::unique_ptr<RunReader>> open(io::Disk& disk, const std::string& dir,
                                                 const RunInfo& info);
  // Errors: corrupt.
  Result<std::optional<RowView>> next() override;

 private:
  RunReader(std::unique_ptr<io::File> file, const RunInfo& info)
      : file_(std::move(file)), info_(info) {}
  Result<void> read_block();
  Result<void> fill(uint64_t bytes);
  Error damaged() const;

  std::unique_ptr<io::File> file_;
  const RunInfo info_;
  std::string buffer_;  // bytes of the file from buffer_at_ on
  uint64_t buffer_at_ = 0;
  uint64_t block_at_ = 0;  // offset of the next block
  std::string_view rows_;  // rows of the block that are left, in buffer_
  uint32_t crc_ = 0;       // of the CRCs of the blocks so far
  std::string last_key_;
};

}  // namespace ff::chunk
