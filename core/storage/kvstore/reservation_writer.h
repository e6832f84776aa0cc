// Writes records into ranges that the owners of partitions have reserved (Store::reserve()). The
// owner confirms them then; nobody reads them before.
//
// If an owner's sync of a file does not make durable what other processes have written (a cluster),
// all records must be durable before they are confirmed, also without Options::durable: compaction
// may remove the former value of a key as soon as the new one counts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/kvstore/calls.h"
#include "storage/kvstore/segment.h"
#include "storage/kvstore/transfer_buffers.h"

namespace ff::kvstore {

class ReservationWriter {
 public:
  struct Options {
    // Of 2 MiB each, if the disk has memory that it writes from best; 0: it writes from where
    // values are.
    size_t buffers = 0;
    bool syncs_own_writes_only = false;  // the disk, as above
  };
  // `folder`: of the store. `disk` and `loop` outlive it.
  static Result<std::unique_ptr<ReservationWriter>> make(io::Disk& disk, Loop& loop,
                                                         std::string folder, Options options);

  // Returns when the disk has the record. Key and value must stay until then. Errc::not_found:
  // compaction has removed the segment; reserve again. Others: of the disk. No call may run when
  // the writer is destroyed.
  Task<Result<void>> write(uint32_t partition, RecordReservation to, std::string_view key,
                           std::string_view value);
  // Makes the records that were written to the same segment before as durable as they must be
  // before they are confirmed.
  Task<Result<void>> sync(uint32_t partition, RecordReservation to);

 private:
  ReservationWriter(io::Disk& disk, Loop& loop, std::string folder, Options options,
                    std::optional<io::Buffers> memory);
  Result<std::shared_ptr<io::File>> open(uint32_t partition, SegmentName name);
  Task<Result<void>> write_buffered(io::File& file, uint64_t offset, std::string_view head,
                                    std::string_view value);
  Task<Result<void>> write_piece(io::File& file, uint64_t offset, std::string_view first,
                                 std::string_view second);

  io::Disk& disk_;
  Loop& loop_;
  const std::string folder_;
  const Options options_;
  io::AsyncQueue queue_;
  std::optional<TransferBuffers> buffers_;
  // The segment of each partition that was written to last.
  std::map<uint32_t, std::pair<SegmentName, std::shared_ptr<io::File>>> files_;
};

}  // namespace ff::kvstore
