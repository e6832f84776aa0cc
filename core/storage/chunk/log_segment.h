// One file of the log of a disk's metadata (metadata_log.h), and its reader.
//
//   DIR/chunks.log-N   at 0, and again at 4096, the header:
//                        u64 magic "ff-log-2", u64 sequence of the segment, u64 LSN of the first
//                        entry, u64 durable LSN, u32 CRC32C of the disk id, u32 salt, u32 0,
//                        u32 CRC32C of all before it
//                      from 8192 on entries without gaps; each is one batch of changes:
//                        u32 CRC32C, beginning with the salt, of all that follows, u32 size of the
//                        rows, u64 LSN, u64 durable LSN, rows (rows.h), zeros to a multiple of 8
//
// The LSN of an entry is the number of bytes of all entries before it since the disk was made. The
// durable LSN tells up to where the log was durable when the header or the entry was written. An
// entry that is torn, lost, written elsewhere, or of an earlier use of the file does not match its
// CRC32C or its LSN. What follows it is void; if it proves that the entry was durable, the disk is
// damaged. In a durable entry, damaged data (data_change()) costs no more than that data: the rows
// of the entry name its CRC32C, with which that of the entry proves that all else is intact.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::chunk {

struct SegmentHeader {
  uint64_t sequence = 0;
  uint64_t first_lsn = 0;
  uint64_t durable_lsn = 0;
  uint32_t disk = 0;  // CRC32C of the disk id
  uint32_t salt = 0;
};

constexpr uint64_t kSegmentDataAt = 8192;

// Both copies of the header.
std::string encode(const SegmentHeader& header);
// The valid copy with the higher sequence; nothing when there is none of this disk.
Result<std::optional<SegmentHeader>> read_header(io::File& file, uint32_t disk);

void append_entry(std::string& out, const SegmentHeader& header, uint64_t lsn, uint64_t durable_lsn,
                  std::string_view rows);
// Size of an entry with so many bytes of rows.
uint64_t entry_bytes(uint64_t rows);
// Where the rows of an entry begin in it.
constexpr uint64_t kEntryHeaderBytes = 24;

class SegmentReader {
 public:
  // Reads the whole file into `memory`.
  static Result<SegmentReader> open(io::File& file, const SegmentHeader& header,
                                    std::string memory = std::string());
  // Ends the use, and returns the memory for another segment.
  std::string release() && { return std::move(entries_); }

  // The rows of the next entry; nothing when no valid entry follows. `durable_lsn`: entries that
  // end there or before were durable, and are valid, too, if only data in them is damaged.
  std::optional<std::string_view> next(uint64_t durable_lsn = 0);
  // Whether the next entry is intact but for data in it.
  bool has_damaged_data() const;
  // The LSN of the next entry.
  uint64_t lsn() const { return header_.first_lsn + at_; }
  // The highest durable LSN in the header, in the entries that next() has returned, and in valid
  // entries behind them.
  uint64_t durable_lsn() const;

 private:
  SegmentReader(const SegmentHeader& header, std::string path, std::string entries)
      : header_(header),
        path_(std::move(path)),
        entries_(std::move(entries)),
        durable_lsn_(header.durable_lsn) {}
  struct Entry {
    uint64_t bytes = 0;
    uint64_t durable_lsn = 0;
    std::string_view rows;
  };
  enum class Data : uint8_t { intact, damaged };
  std::optional<Entry> entry_at(uint64_t at, Data data = Data::intact) const;

  SegmentHeader header_;
  std::string path_;
  std::string entries_;
  uint64_t at_ = 0;
  uint64_t durable_lsn_;
};

}  // namespace ff::chunk
