// metadata_log.cc: replay of the log, and the segment in use.
#include "storage/chunk/metadata_log.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"

namespace ff::chunk {
namespace {

constexpr std::string_view kSegmentPrefix = "chunks.log-";
constexpr uint64_t kSegmentsFree = 4;  // space of so many must be free to reserve one
constexpr uint64_t kCopyBytes = kMiB;

}  // namespace

Result<void> read_closed_segment(uint32_t disk_crc, const ClosedSegment& segment,
                                 std::string& memory, const VisitRows& visit) {
  FF_TRY(const auto header, read_header(*segment.file, disk_crc));
  if (header && header->sequence == segment.sequence) {
    FF_TRY(auto reader, SegmentReader::open(*segment.file, *header, std::move(memory)));
    while (reader.lsn() < segment.end_lsn) {
      const auto rows = reader.next(segment.end_lsn);
      if (!rows) break;
      FF_TRY(visit(*rows));
    }
    const bool complete = reader.lsn() == segment.end_lsn;
    memory = std::move(reader).release();
    if (complete) return {};
  }
  return fail(Errc::corrupt, "{}: the log does not hold what was written to it",
              segment.file->path());
}

MetadataLog::MetadataLog(io::Disk& disk, std::string dir, const std::string& disk_id, Rng& rng,
                         uint64_t segment_bytes)
    : disk_(disk),
      dir_(std::move(dir)),
      disk_crc_(simd::crc32c(as_bytes(std::string_view(disk_id)))),
      rng_(rng),
      segment_bytes_(segment_bytes) {}

std::string MetadataLog::path_of(uint32_t slot) const {
  return io::join(dir_, fmt::format("{}{}", kSegmentPrefix, slot));
}

Result<void> MetadataLog::find_segments() {
  FF_TRY(const auto entries, disk_.list(dir_));
  for (const io::DirEntry& entry : entries) {
    if (!entry.name.starts_with(kSegmentPrefix)) continue;
    const auto slot = parse_u64(std::string_view(entry.name).substr(kSegmentPrefix.size()));
    if (!slot || *slot > UINT32_MAX) continue;
    const auto number = static_cast<uint32_t>(*slot);
    FF_TRY(const auto file, disk_.open(path_of(number), {.access = io::AccessMode::read}));
    FF_TRY(const auto header, read_header(*file, disk_crc_));
    slots_[number] = header ? header->sequence : 0;
    if (header) next_sequence_ = std::max(next_sequence_, header->sequence + 1);
  }
  return {};
}

Error MetadataLog::lost(uint64_t lsn) const {
  Error error =
      fail(Errc::corrupt, "{}: the log of the metadata is damaged at position {}", dir_, lsn);
  error.hint = "Check the health of the disk, and replace its targets: ff admin replace-target.";
  return error;
}

// The highest durable LSN in the segments from `sequence` on.
Result<uint64_t> MetadataLog::read_durable_lsn(uint64_t sequence) {
  uint64_t highest = 0;
  for (const auto& [slot, found] : slots_) {
    if (found < sequence) continue;
    FF_TRY(const auto file, disk_.open(path_of(slot), {.access = io::AccessMode::read}));
    FF_TRY(const auto header, read_header(*file, disk_crc_));
    if (!header) continue;
    FF_TRY(const auto reader, SegmentReader::open(*file, *header));
    highest = std::max(highest, reader.durable_lsn());
  }
  return highest;
}

Result<void> MetadataLog::open(uint64_t sequence, uint64_t lsn, const VisitRows& visit) {
  FF_TRY(find_segments());
  end_lsn_ = durable_lsn_ = lsn;
  next_sequence_ = std::max(next_sequence_, sequence + 1);
  release(sequence);
  std::map<uint64_t, uint32_t> needed;
  for (const auto& [slot, found] : slots_) {
    if (found > 0) needed[found] = slot;
  }
  if (sequence > 0 && !needed.contains(sequence)) return lost(lsn);
  bool ended = false;
  uint64_t expected = sequence;
  for (const auto& [found, slot] : needed) {
    FF_TRY(auto opened, disk_.open(path_of(slot), {.access = io::AccessMode::read_write}));
    std::shared_ptr<io::File> file = std::move(opened);
    FF_TRY(const auto header, read_header(*file, disk_crc_));
    if (!header || (found == sequence && header->first_lsn != lsn)) return lost(end_lsn_);
    FF_TRY(auto reader, SegmentReader::open(*file, *header));
    ended |= found != expected++ || header->first_lsn != end_lsn_;
    if (!ended) {
      segments_.insert_or_assign(end_lsn_, Segment{.sequence = found, .file = file});
      unsynced_.push_back(file);
    }
    while (!ended) {
      auto rows = reader.next();
      if (!rows && reader.has_damaged_data()) {
        // What was not durable may be torn: then the log ends there.
        FF_TRY(const uint64_t durable_lsn, read_durable_lsn(found));
        rows = reader.next(durable_lsn);
      }
      if (!rows) break;
      FF_TRY(visit(*rows));
    }
    if (!ended) end_lsn_ = reader.lsn();
    durable_lsn_ = std::max(durable_lsn_, reader.durable_lsn());
  }
  if (durable_lsn_ > end_lsn_) return lost(end_lsn_);
  return {};
}

// Opens or creates the file of a segment.
Result<std::shared_ptr<io::File>> MetadataLog::open_slot(uint32_t slot) {
  const std::string path = path_of(slot);
  FF_TRY(const bool there, io::exists(disk_, path));
  FF_TRY(auto file, disk_.open(path, {.access = io::AccessMode::read_write,
                                      .create = !there,
                                      .no_follow = true,
                                      .mode = 0600}));
  FF_TRY(const io::FileInfo info, file->info());
  // Before any write: a write that extends a file is slow.
  if (info.size < segment_bytes_) FF_TRY(file->truncate(segment_bytes_));
  FF_TRY(reserve(*file));
  if (!slots_.contains(slot)) FF_TRY(disk_.sync_dir(dir_));
  return std::shared_ptr<io::File>(std::move(file));
}

// Where little space is left, a checkpoint needs it more, without which a disk cannot be opened.
Result<void> MetadataLog::reserve(io::File& file) {
  FF_TRY(const io::Space space, disk_.space(dir_));
  has_space_ = space.free >= kSegmentsFree * segment_bytes_;
  if (!has_space_) return {};
  return file.reserve(0, segment_bytes_);
}

Result<void> MetadataLog::rotate() {
  FF_TRY(clear_torn());
  uint32_t slot = 0;
  while (slots_.contains(slot) && slots_.at(slot) != 0) ++slot;
  FF_TRY(auto file, open_slot(slot));
  const SegmentHeader header{.sequence = next_sequence_,
                             .first_lsn = end_lsn_,
                             .durable_lsn = durable_lsn_,
                             .disk = disk_crc_,
                             .salt = static_cast<uint32_t>(rng_.next())};
  FF_TRY(file->write_at(as_bytes(std::string_view(encode(header))), 0));
  if (file_ != nullptr) {
    closed_.push_back({.file = file_,
                       .sequence = header_.sequence,
                       .first_lsn = header_.first_lsn,
                       .end_lsn = end_lsn_});
  }
  ++next_sequence_;
  slots_[slot] = header.sequence;
  slot_ = slot;
  header_ = header;
  file_ = std::move(file);
  segments_.insert_or_assign(header.first_lsn, Segment{.sequence = header.sequence, .file = file_});
  unsynced_.push_back(file_);
  return {};
}

// What a failed write has left may be a whole entry, which would end the log at its own end.
Result<void> MetadataLog::clear_torn() {
  if (!torn_) return {};
  const std::string zeros(kEntryHeaderBytes, '\0');
  FF_TRY(file_->write_at(as_bytes(zeros), kSegmentDataAt + end_lsn_ - header_.first_lsn));
  torn_ = false;
  return {};
}

Result<void> MetadataLog::append(std::string_view rows) {
  const uint64_t bytes = entry_bytes(rows.size());
  const uint64_t used = kSegmentDataAt + end_lsn_ - header_.first_lsn;
  // An entry that is longer than a segment makes its file longer.
  if (used > kSegmentDataAt && used + bytes > segment_bytes_) FF_TRY(rotate());
  std::string entry;
  entry.reserve(bytes);
  append_entry(entry, header_, end_lsn_, durable_lsn_, rows);
  torn_ = true;
  FF_TRY(file_->write_at(as_bytes(entry), kSegmentDataAt + end_lsn_ - header_.first_lsn));
  torn_ = false;
  end_lsn_ += bytes;
  if (unsynced_.empty()) unsynced_.push_back(file_);
  return {};
}

Result<void> MetadataLog::write_again() {
  std::string bytes(kCopyBytes, '\0');
  const ByteSpan memory(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    const auto after = std::next(at);
    const uint64_t end = after == segments_.end() ? end_lsn_ : after->first;
    const uint64_t size = kSegmentDataAt + end - at->first;
    for (uint64_t offset = 0; offset < size; offset += kCopyBytes) {
      const ByteSpan part = memory.first(std::min(kCopyBytes, size - offset));
      FF_TRY(const size_t got, at->second.file->read_at(part, offset));
      FF_TRY(at->second.file->write_at(part.first(got), offset));
    }
  }
  return {};
}

LogPlace MetadataLog::find(uint64_t lsn) const {
  const auto after = segments_.upper_bound(lsn);
  if (after == segments_.begin()) return {};
  const auto& [first_lsn, segment] = *std::prev(after);
  return {.file = segment.file, .offset = kSegmentDataAt + lsn - first_lsn};
}

std::vector<std::shared_ptr<io::File>> MetadataLog::unsynced_files() {
  return std::exchange(unsynced_, {});
}

void MetadataLog::set_durable(uint64_t lsn) { durable_lsn_ = std::max(durable_lsn_, lsn); }

void MetadataLog::release(uint64_t sequence) {
  for (auto& [slot, used] : slots_) {
    if (used < sequence) used = 0;
  }
  std::erase_if(closed_, [&](const ClosedSegment& old) { return old.sequence < sequence; });
  std::erase_if(segments_, [&](const auto& old) { return old.second.sequence < sequence; });
}

}  // namespace ff::chunk
