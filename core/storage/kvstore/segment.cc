// segment.cc: whole segments: creation, scan, footer.
#include "storage/kvstore/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "platform/base/text.h"
#include "platform/base/wait.h"
#include "platform/io/files.h"

namespace ff::kvstore {

namespace {

constexpr uint64_t kScanPiece = kMiB;
constexpr uint64_t kGrowthPiece = 4 * kKiB;  // mostly nothing has been added

IndexedRecord indexed(const RecordView& record, uint64_t offset, uint32_t length,
                      std::string_view secret) {
  KeyHash hash;
  if (record.kind == RecordKind::remove) {
    hash = removed_hash(record.key);
  } else if (is_part(record.role)) {
    hash = hash_part(secret, record.key);
  } else {
    hash = hash_key(secret, record.key);
  }
  IndexedRecord one{.hash = hash,
                    .version = record.version,
                    .expires_ms = record.expires_ms,
                    .offset = offset,
                    .length = length,
                    .key_bytes = static_cast<uint16_t>(record.key.size()),
                    .kind = record.kind,
                    .role = record.role};
  if (const auto range = parse_pointer(record, offset)) {
    one.kind = RecordKind::put;
    one.pointer = offset;
    one.offset = range->offset;
    one.length = static_cast<uint32_t>(range->length);
  }
  return one;
}

bool is_damaged(const ParsedRecord& parsed, uint64_t offset) {
  if (parsed.state == ParsedRecord::State::damaged) return true;
  return parsed.record.kind == RecordKind::pointer && !parse_pointer(parsed.record, offset);
}

// Collects the records of complete groups.
struct GroupedRecords {
  SegmentIndex index;
  std::vector<IndexedRecord> open = {};  // of the group that has not ended
  bool broken = false;                   // a record of it is damaged

  void add(const ParsedRecord& parsed, uint64_t offset, const Segment& segment,
           std::string_view secret) {
    if (is_damaged(parsed, offset)) {
      broken = true;
      const bool removal = parsed.record.kind == RecordKind::remove;
      const std::string key = removal ? std::string("(a removal)") : printable(parsed.record.key);
      index.damage.push_back(
          fmt::format("{}: the record at {} is damaged; key: {}", segment.path, offset, key));
    } else {
      open.push_back(indexed(parsed.record, offset, parsed.length, secret));
    }
    if (parsed.record.more) return;
    if (!broken) index.records.insert(index.records.end(), open.begin(), open.end());
    end_at(offset + padded(parsed.length));
  }

  void end_at(uint64_t end) {
    index.end = end;
    if (index.damage.empty()) index.intact_end = end;
    open.clear();
    broken = false;
  }
};

Task<Result<SegmentIndex>> scan_records(io::AsyncQueue& queue, Loop& loop, const Segment& segment,
                                        std::string_view secret, uint64_t from, uint64_t limit,
                                        uint64_t piece) {
  ScanWindow window(queue, *segment.file, limit, piece);
  GroupedRecords groups;
  groups.index.end = groups.index.intact_end = from;
  uint64_t offset = from;
  uint64_t need = kRecordHeader;
  uint64_t yielded = 0;
  for (;;) {
    FF_CO_TRY(const bool there, co_await window.fill(offset, need));
    if (!there) break;
    const ParsedRecord parsed = parse_record(window.at(offset));
    if (parsed.state == ParsedRecord::State::none) break;
    if (parsed.state == ParsedRecord::State::longer) {
      need = parsed.length;
      continue;
    }
    if (parsed.state == ParsedRecord::State::reserved) {
      groups.end_at(offset + parsed.length);
    } else {
      groups.add(parsed, offset, segment, secret);
    }
    offset += padded(parsed.length);
    need = kRecordHeader;
    if (offset - yielded < kScanPiece) continue;
    yielded = offset;
    FF_CO_TRY(co_await YieldWait(loop));
  }
  co_return std::move(groups.index);
}

// After a power loss a pointer may be there, and its record not: of a store that is not durable.
Task<Result<void>> check_pointers(io::AsyncQueue& queue, const Segment& segment,
                                  SegmentIndex& index) {
  std::vector<IndexedRecord> intact;
  std::string bytes;
  for (const IndexedRecord& one : index.records) {
    bool valid = one.pointer == 0;
    if (!valid) {
      bytes.resize(one.length);
      FF_CO_TRY(const size_t got, co_await queue.read(*segment.file, writable(bytes), one.offset));
      const ParsedRecord parsed = parse_record(as_bytes(bytes).first(got));
      valid = parsed.state == ParsedRecord::State::whole && parsed.length == one.length &&
              parsed.record.version == one.version;
    }
    if (valid) {
      intact.push_back(one);
      continue;
    }
    index.intact_end = std::min(index.intact_end, one.pointer);
    index.damage.push_back(
        fmt::format("{}: the record at {} is damaged", segment.path, one.offset));
  }
  index.records = std::move(intact);
  co_return {};
}

Task<Result<std::optional<SegmentIndex>>> read_footer(io::AsyncQueue& queue,
                                                      const Segment& segment) {
  std::optional<SegmentIndex> none;
  FF_CO_TRY(const io::FileInfo info, segment.file->info());
  if (info.size < kSegmentHeader + kTrailer) co_return none;
  std::string bytes(kTrailer, '\0');
  FF_CO_TRY(co_await queue.read(*segment.file, writable(bytes), info.size - kTrailer));
  const auto trailer = parse_trailer(as_bytes(bytes), info.size);
  if (!trailer) co_return none;
  bytes.resize(trailer->count * kIndexedRecord);
  FF_CO_TRY(const size_t got, co_await queue.read(*segment.file, writable(bytes), trailer->begin));
  auto records = parse_footer(as_bytes(bytes).first(got), *trailer);
  if (!records) co_return none;
  SegmentIndex index;
  index.records = std::move(*records);
  index.end = index.intact_end = trailer->begin;
  index.sealed = true;
  co_return std::optional(std::move(index));
}

}  // namespace

std::optional<uint64_t> parse_hex(std::string_view digits) {
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  if (error != std::errc() || stop != end) return {};
  return value;
}

ByteView ScanWindow::at(uint64_t offset) const { return as_bytes(bytes_).subspan(offset - begin_); }

Task<Result<bool>> ScanWindow::fill(uint64_t offset, uint64_t need) {
  if (offset > limit_ || need > limit_ - offset) co_return false;
  if (offset - begin_ + need <= bytes_.size()) co_return true;
  bytes_.erase(0, std::min<uint64_t>(offset - begin_, bytes_.size()));
  begin_ = offset;
  const size_t had = bytes_.size();
  const uint64_t want = std::min(std::max(need, piece_), limit_ - offset);
  piece_ = std::max(piece_, std::min(2 * piece_, kScanPiece));
  bytes_.resize(want);
  FF_CO_TRY(const size_t got,
            co_await queue_.read(file_, writable(bytes_).subspan(had), begin_ + had));
  bytes_.resize(had + got);
  co_return bytes_.size() >= need;
}

std::string segment_file(SegmentName name) {
  return fmt::format("seg-{:016x}-{:016x}", name.epoch, name.number);
}

std::optional<SegmentName> parse_segment_file(std::string_view name) {
  const auto parts = split(name, '-');
  if (parts.size() != 3 || parts[0] != "seg") return {};
  if (parts[1].size() != 16 || parts[2].size() != 16) return {};
  const auto epoch = parse_hex(parts[1]);
  const auto number = parse_hex(parts[2]);
  if (!epoch || !number) return {};
  return SegmentName{.epoch = *epoch, .number = *number};
}

Task<Result<std::unique_ptr<Segment>>> create_segment(io::Disk& disk, io::AsyncQueue& queue,
                                                      const std::string& dir, SegmentHead header,
                                                      uint64_t bytes) {
  auto segment = std::make_unique<Segment>();
  segment->name = {.epoch = header.epoch, .number = header.number};
  segment->path = io::join(dir, segment_file(segment->name));
  const io::OpenOptions options{
      .access = io::AccessMode::read_write, .create = true, .truncate = true, .mode = 0600};
  FF_CO_TRY(segment->file, disk.open(segment->path, options));
  FF_CO_TRY(segment->file->truncate(std::max(bytes, uint64_t{kSegmentHeader})));
  const std::string encoded = encode_header(header);
  FF_CO_TRY(co_await queue.write(*segment->file, as_bytes(encoded), 0));
  FF_CO_TRY(co_await queue.sync(*segment->file));
  FF_CO_TRY(disk.sync_dir(dir));
  segment->end = kSegmentHeader;
  segment->synced = kSegmentHeader;
  co_return std::move(segment);
}

Task<Result<SegmentHead>> read_header(io::AsyncQueue& queue, const Segment& segment) {
  std::string bytes(kSegmentHeader, '\0');
  FF_CO_TRY(const size_t got, co_await queue.read(*segment.file, writable(bytes), 0));
  const auto header = parse_header(as_bytes(bytes).first(got));
  if (!header) co_return fail(Errc::corrupt, "{}: no header of a segment", segment.path);
  co_return *header;
}

Task<Result<SegmentIndex>> read_index(io::AsyncQueue& queue, Loop& loop, const Segment& segment,
                                      std::string_view secret, uint64_t limit) {
  FF_CO_TRY(auto footer, co_await read_footer(queue, segment));
  if (!footer) {
    FF_CO_TRY(auto scanned, co_await scan_records(queue, loop, segment, secret, kSegmentHeader,
                                                  limit, kScanPiece));
    FF_CO_TRY(co_await check_pointers(queue, segment, scanned));
    co_return std::move(scanned);
  }
  if (footer->end > limit) {
    // A former owner has sealed it after it had lost the partition.
    std::erase_if(footer->records, [&](const IndexedRecord& r) { return r.end() > limit; });
    footer->end = footer->intact_end = limit;
  }
  co_return std::move(*footer);
}

Task<Result<SegmentIndex>> read_growth(io::AsyncQueue& queue, Loop& loop, const Segment& segment,
                                       std::string_view secret, uint64_t from, uint64_t limit) {
  return scan_records(queue, loop, segment, secret, from, limit, kGrowthPiece);
}

Task<Result<void>> sync_segment(io::AsyncQueue& queue, Segment& segment) {
  const uint64_t end = segment.end;
  if (segment.sync_failed) {
    std::string bytes;
    for (uint64_t at = segment.synced; at < end; at += bytes.size()) {
      bytes.resize(std::min(kScanPiece, end - at));
      FF_CO_TRY(const size_t got, co_await queue.read(*segment.file, writable(bytes), at));
      if (got < bytes.size()) co_return fail(Errc::corrupt, "{}: it ends early", segment.path);
      FF_CO_TRY(co_await queue.write(*segment.file, as_bytes(bytes), at));
    }
  }
  auto synced = co_await queue.sync(*segment.file);
  segment.sync_failed = !synced;
  if (synced) segment.synced = std::max(segment.synced, end);
  co_return synced;
}

Task<Result<void>> seal_segment(io::AsyncQueue& queue, Loop& loop, Segment& segment,
                                std::string_view secret) {
  FF_CO_TRY(const SegmentIndex index,
            co_await read_index(queue, loop, segment, secret, segment.end));
  if (!index.damage.empty() || index.end != segment.end) {
    segment.damaged = true;  // a footer would hide it
    co_return fail(Errc::corrupt, "{}: damaged records", segment.path);
  }
  // First the records: after a power loss, a footer must not point to what was never stored.
  FF_CO_TRY(co_await sync_segment(queue, segment));
  const std::string footer = encode_footer(index.records, segment.end);
  FF_CO_TRY(co_await queue.write(*segment.file, as_bytes(footer), segment.end));
  FF_CO_TRY(segment.file->truncate(segment.end + footer.size()));
  FF_CO_TRY(co_await sync_segment(queue, segment));
  segment.sealed = true;
  co_return {};
}

}  // namespace ff::kvstore
