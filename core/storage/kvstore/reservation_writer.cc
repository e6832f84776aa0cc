// reservation_writer.cc: one record in pieces, through buffers where the disk has some.
#include "storage/kvstore/reservation_writer.h"

#include <algorithm>
#include <cstring>

#include "platform/base/task_group.h"
#include "platform/io/files.h"
#include "storage/kvstore/store_settings.h"

namespace ff::kvstore {

namespace {

constexpr unsigned kReservedQueueDepth = 64;

}  // namespace

Result<std::unique_ptr<ReservationWriter>> ReservationWriter::make(io::Disk& disk, Loop& loop,
                                                                   std::string folder,
                                                                   Options options) {
  std::optional<io::Buffers> memory;
  if (options.buffers > 0) {
    FF_TRY(memory, disk.make_buffers(options.buffers, TransferBuffers::kBytes));
  }
  return std::unique_ptr<ReservationWriter>(
      new ReservationWriter(disk, loop, std::move(folder), options, std::move(memory)));
}

ReservationWriter::ReservationWriter(io::Disk& disk, Loop& loop, std::string folder,
                                     Options options, std::optional<io::Buffers> memory)
    : disk_(disk),
      loop_(loop),
      folder_(std::move(folder)),
      options_(options),
      queue_(disk, loop, kReservedQueueDepth) {
  if (memory) buffers_.emplace(loop, std::move(*memory));
}

Result<std::shared_ptr<io::File>> ReservationWriter::open(uint32_t partition, SegmentName name) {
  auto& [has, file] = files_[partition];
  if (file != nullptr && has == name) return file;
  const std::string path = io::join(partition_dir(folder_, partition), segment_file(name));
  const io::OpenOptions options{.access = io::AccessMode::read_write};
  FF_TRY(file, disk_.open(path, options));
  has = name;
  return file;
}

Task<Result<void>> ReservationWriter::write(uint32_t partition, RecordReservation to,
                                            std::string_view key, std::string_view value) {
  const SegmentName name{.epoch = to.segment_epoch, .number = to.segment_number};
  FF_CO_TRY(const auto file, open(partition, name));
  const std::string head =
      record_head({.version = to.version, .expires_ms = to.expires_ms, .key = key, .value = value});
  if (buffers_) {
    FF_CO_TRY(co_await write_buffered(*file, to.offset, head, value));
  } else {
    TaskGroup both(loop_);
    both.add(queue_.write(*file, as_bytes(head), to.offset));
    both.add(queue_.write(*file, as_bytes(value), to.offset + head.size()));
    FF_CO_TRY(co_await both.join());
  }
  co_return {};
}

Task<Result<void>> ReservationWriter::sync(uint32_t partition, RecordReservation to) {
  if (!to.durable && !options_.syncs_own_writes_only) co_return {};
  const SegmentName name{.epoch = to.segment_epoch, .number = to.segment_number};
  FF_CO_TRY(const auto file, open(partition, name));
  co_return co_await queue_.sync(*file);
}

Task<Result<void>> ReservationWriter::write_buffered(io::File& file, uint64_t offset,
                                                     std::string_view head,
                                                     std::string_view value) {
  TaskGroup pieces(loop_);
  for (size_t at = 0; at < head.size() || !value.empty();) {
    const std::string_view first = head.substr(std::min(at, head.size()));
    const size_t size = std::min(value.size(), TransferBuffers::kBytes - first.size());
    pieces.add(write_piece(file, offset + at, first, value.substr(0, size)));
    at += first.size() + size;
    value.remove_prefix(size);
  }
  co_return co_await pieces.join();
}

Task<Result<void>> ReservationWriter::write_piece(io::File& file, uint64_t offset,
                                                  std::string_view first, std::string_view second) {
  FF_CO_TRY(const auto buffer, co_await buffers_->take());
  const ByteSpan memory = buffer.memory().first(first.size() + second.size());
  std::memcpy(memory.data(), first.data(), first.size());
  if (!second.empty()) std::memcpy(memory.data() + first.size(), second.data(), second.size());
  co_return co_await queue_.write(file, memory, offset);
}

}  // namespace ff::kvstore
