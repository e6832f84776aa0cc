// sorted_run.cc: writes and reads sorted runs, one block at a time.
#include "storage/chunk/sorted_run.h"

#include <algorithm>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {
namespace {

constexpr uint64_t kBlockHeaderBytes = 24;
constexpr uint64_t kBlockRows = 64 * kKiB;  // a block ends with the row that makes it so long
constexpr uint64_t kReadBytes = kMiB;       // read at a time

void begin_block(std::string& block, uint64_t number, uint64_t offset) {
  block.clear();
  append_le(block, uint32_t{0});
  append_le(block, uint32_t{0});
  append_le(block, number);
  append_le(block, offset);
}

Result<void> write_block(io::File& file, std::string& block, RunInfo& info) {
  std::byte* const at = reinterpret_cast<std::byte*>(block.data());
  store_le(at + 4, static_cast<uint32_t>(block.size() - kBlockHeaderBytes));
  const uint32_t crc = simd::crc32c(as_bytes(block).subspan(sizeof(uint32_t)));
  store_le(at, crc);
  FF_TRY(file.write_at(as_bytes(block), info.bytes));
  info.bytes += block.size();
  info.crc = simd::crc32c(ByteView(at, sizeof(crc)), info.crc);
  return {};
}

Result<RunInfo> write_rows(io::Disk& disk, const std::string& path, uint64_t number,
                           RowSource& source) {
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::write,
                                           .create = true,
                                           .truncate = true,
                                           .no_follow = true,
                                           .mode = 0600}));
  RunInfo info{.number = number};
  std::string block;
  begin_block(block, number, 0);
  for (;;) {
    FF_TRY(const auto row, source.next());
    if (row) append_row(block, *row);
    const bool full = block.size() >= kBlockHeaderBytes + kBlockRows;
    if (block.size() > kBlockHeaderBytes && (full || !row)) {
      FF_TRY(write_block(*file, block, info));
      begin_block(block, number, info.bytes);
    }
    if (!row) break;
  }
  FF_TRY(file->sync());
  return info;
}

}  // namespace

std::string run_path(const std::string& dir, uint64_t number) {
  return io::join(dir, fmt::format("chunks.run-{}", number));
}

Result<RunInfo> write_run(io::Disk& disk, const std::string& dir, uint64_t number,
                          RowSource& source) {
  const std::string path = run_path(dir, number);
  auto written = write_rows(disk, path, number, source);
  if (!written || written->bytes == 0) (void)disk.remove(path);
  return written;
}

Result<std::unique_ptr<RunReader>> RunReader::open(io::Disk& disk, const std::string& dir,
                                                   const RunInfo& info) {
  auto file = disk.open(run_path(dir, info.number), {.access = io::AccessMode::read});
  if (!file && file.error().code == Errc::not_found) {
    return fail(Errc::corrupt, "{}: the file is missing, so chunks cannot be located",
                run_path(dir, info.number));
  }
  FF_TRY(auto opened, std::move(file));
  std::unique_ptr<RunReader> reader(new RunReader(std::move(opened), info));
  FF_TRY(const io::FileInfo found, reader->file_->info());
  if (found.size != info.bytes) return reader->damaged();
  return reader;
}

Error RunReader::damaged() const {
  return fail(Errc::corrupt, "{}: the file does not match its checksum", file_->path());
}

// Makes `bytes` bytes from the block on available in the buffer.
Result<void> RunReader::fill(uint64_t bytes) {
  const uint64_t have = buffer_at_ + buffer_.size() - block_at_;
  if (have >= bytes) return {};
  if (bytes > info_.bytes - block_at_) return damaged();
  buffer_.erase(0, block_at_ - buffer_at_);
  buffer_at_ = block_at_;
  const uint64_t wanted = std::min(std::max(bytes, kReadBytes), info_.bytes - block_at_);
  buffer_.resize(wanted);
  const ByteSpan into(reinterpret_cast<std::byte*>(buffer_.data()) + have, wanted - have);
  FF_TRY(const size_t got, file_->read_at(into, buffer_at_ + have));
  if (got < into.size()) return damaged();
  return {};
}

Result<void> RunReader::read_block() {
  FF_TRY(fill(kBlockHeaderBytes));
  const std::byte* header = as_bytes(buffer_).data() + (block_at_ - buffer_at_);
  const uint64_t rows = load_le<uint32_t>(header + 4);
  FF_TRY(fill(kBlockHeaderBytes + rows));
  header = as_bytes(buffer_).data() + (block_at_ - buffer_at_);
  const ByteView block(header, kBlockHeaderBytes + rows);
  if (load_le<uint32_t>(header) != simd::crc32c(block.subspan(sizeof(uint32_t))) ||
      load_le<uint64_t>(header + 8) != info_.number ||
      load_le<uint64_t>(header + 16) != block_at_) {
    return damaged();
  }
  crc_ = simd::crc32c(block.first(sizeof(uint32_t)), crc_);
  rows_ = as_text(block.subspan(kBlockHeaderBytes));
  block_at_ += block.size();
  return {};
}

Result<std::optional<RowView>> RunReader::next() {
  if (rows_.empty() && block_at_ == info_.bytes) {
    if (crc_ != info_.crc) return damaged();
    return std::optional<RowView>();
  }
  if (rows_.empty()) FF_TRY(read_block());
  const auto row = take_row(rows_);
  if (!row || row->key < last_key_) return damaged();
  last_key_ = row->key;
  return row;
}

}  // namespace ff::chunk
