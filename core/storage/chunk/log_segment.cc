// log_segment.cc: encoding of segments, and the search for entries behind a damaged one.
#include "storage/chunk/log_segment.h"

#include <algorithm>
#include <array>
#include <map>

#include "platform/base/bytes.h"
#include "platform/base/log.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_record.h"
#include "storage/chunk/rows.h"

namespace ff::chunk {
namespace {

constexpr uint64_t kSegmentMagic = 0x322d676f6c2d6666;  // "ff-log-2"
constexpr size_t kHeaderBytes = 48;
constexpr size_t kHeaderCrcAt = kHeaderBytes - sizeof(uint32_t);
constexpr uint64_t kHeaderCopyAt = 4096;

constexpr uint64_t kEntryAlign = 8;

std::optional<SegmentHeader> decode_header(ByteView bytes, uint32_t disk) {
  const std::byte* const at = bytes.data();
  if (load_le<uint64_t>(at) != kSegmentMagic ||
      load_le<uint32_t>(at + kHeaderCrcAt) != simd::crc32c(bytes.first(kHeaderCrcAt))) {
    return std::nullopt;
  }
  const SegmentHeader header{.sequence = load_le<uint64_t>(at + 8),
                             .first_lsn = load_le<uint64_t>(at + 16),
                             .durable_lsn = load_le<uint64_t>(at + 24),
                             .disk = load_le<uint32_t>(at + 32),
                             .salt = load_le<uint32_t>(at + 36)};
  return header.disk == disk ? std::optional(header) : std::nullopt;
}

using CrcsByLsn = std::map<uint64_t, uint32_t>;

// The CRC32C of the data in the log to which `rows` refer.
CrcsByLsn data_crcs(std::string_view rows) {
  CrcsByLsn crcs;
  while (const auto row = take_row(rows)) {
    if (row->kind != RowView::Kind::put || row->key[0] != static_cast<char>(RowKind::logged)) {
      continue;
    }
    const auto unit = decode_logged(0, row->value);
    if (!unit) continue;
    if (unit->committed) crcs[unit->committed->lsn] = unit->committed->crc;
    if (unit->pending && unit->pending->data) {
      crcs[unit->pending->data->lsn] = unit->pending->data->crc;
    }
  }
  return crcs;
}

// The CRC32C, which continues `crc`, that rows at `lsn` would have with the data that was written;
// nothing when they are malformed, or data is not named.
std::optional<uint32_t> crc_with_intact_data(std::string_view rows, uint64_t lsn, uint32_t crc) {
  const CrcsByLsn crcs = data_crcs(rows);
  for (std::string_view left = rows; !left.empty();) {
    const std::string_view before = left;
    const auto row = take_row(left);
    if (!row) return std::nullopt;
    const std::string_view text = before.substr(0, before.size() - left.size());
    if (row->kind != RowView::Kind::data) {
      crc = simd::crc32c(as_bytes(text), crc);
      continue;
    }
    crc = simd::crc32c(as_bytes(text.substr(0, kDataAt)), crc);
    uint64_t at = lsn + (before.data() - rows.data()) + kDataAt;
    for (const uint64_t end = at + row->value.size(); at < end;) {
      const auto unit = crcs.find(at);
      if (unit == crcs.end()) return std::nullopt;
      const auto next = std::next(unit);
      const uint64_t unit_end = next == crcs.end() ? end : std::min(end, next->first);
      crc = simd::crc32c_combine(crc, unit->second, unit_end - at);
      at = unit_end;
    }
  }
  return crc;
}

}  // namespace

std::string encode(const SegmentHeader& header) {
  std::string out;
  append_le(out, kSegmentMagic);
  append_le(out, header.sequence);
  append_le(out, header.first_lsn);
  append_le(out, header.durable_lsn);
  append_le(out, header.disk);
  append_le(out, header.salt);
  append_le(out, uint32_t{0});
  append_le(out, simd::crc32c(as_bytes(out)));
  const std::string copy = out;
  out.resize(kHeaderCopyAt);
  out += copy;
  out.resize(kSegmentDataAt);
  return out;
}

Result<std::optional<SegmentHeader>> read_header(io::File& file, uint32_t disk) {
  std::optional<SegmentHeader> found;
  for (const uint64_t offset : {uint64_t{0}, kHeaderCopyAt}) {
    std::array<std::byte, kHeaderBytes> bytes{};
    FF_TRY(const size_t got, file.read_at(bytes, offset));
    if (got < bytes.size()) continue;
    const auto header = decode_header(bytes, disk);
    if (header && (!found || header->sequence > found->sequence)) found = header;
  }
  return found;
}

uint64_t entry_bytes(uint64_t rows) { return align_up(kEntryHeaderBytes + rows, kEntryAlign); }

void append_entry(std::string& out, const SegmentHeader& header, uint64_t lsn, uint64_t durable_lsn,
                  std::string_view rows) {
  const size_t begin = out.size();
  append_le(out, uint32_t{0});
  append_le(out, static_cast<uint32_t>(rows.size()));
  append_le(out, lsn);
  append_le(out, durable_lsn);
  out += rows;
  out.resize(begin + entry_bytes(rows.size()));
  const ByteView covered = as_bytes(std::string_view(out).substr(begin + sizeof(uint32_t)));
  store_le(reinterpret_cast<std::byte*>(out.data()) + begin, simd::crc32c(covered, header.salt));
}

Result<SegmentReader> SegmentReader::open(io::File& file, const SegmentHeader& header,
                                          std::string memory) {
  // What follows the last data was never written.
  uint64_t end = kSegmentDataAt;
  for (;;) {
    FF_TRY(const io::DataRange range, file.next_data(end));
    if (range.begin == range.end) break;
    end = range.end;
  }
  memory.resize(end - kSegmentDataAt);
  const ByteSpan into(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  FF_TRY(const size_t got, file.read_at(into, kSegmentDataAt));
  memory.resize(got);
  return SegmentReader(header, file.path(), std::move(memory));
}

std::optional<SegmentReader::Entry> SegmentReader::entry_at(uint64_t at, Data data) const {
  if (entries_.size() < kEntryHeaderBytes || at > entries_.size() - kEntryHeaderBytes) {
    return std::nullopt;
  }
  const std::byte* const from = as_bytes(entries_).data() + at;
  if (load_le<uint64_t>(from + 8) != header_.first_lsn + at) return std::nullopt;
  const uint64_t rows = load_le<uint32_t>(from + 4);
  const uint64_t bytes = entry_bytes(rows);
  if (bytes > entries_.size() - at) return std::nullopt;
  const Entry entry{.bytes = bytes,
                    .durable_lsn = load_le<uint64_t>(from + 16),
                    .rows = std::string_view(entries_).substr(at + kEntryHeaderBytes, rows)};
  const ByteView covered(from + sizeof(uint32_t), bytes - sizeof(uint32_t));
  std::optional<uint32_t> crc;
  if (data == Data::intact) {
    crc = simd::crc32c(covered, header_.salt);
  } else {
    const size_t before = kEntryHeaderBytes - sizeof(uint32_t);
    crc = crc_with_intact_data(entry.rows, header_.first_lsn + at + kEntryHeaderBytes,
                               simd::crc32c(covered.first(before), header_.salt));
    if (crc) crc = simd::crc32c(covered.subspan(before + rows), *crc);
  }
  return crc == load_le<uint32_t>(from) ? std::optional(entry) : std::nullopt;
}

bool SegmentReader::has_damaged_data() const {
  return !entry_at(at_) && entry_at(at_, Data::damaged);
}

std::optional<std::string_view> SegmentReader::next(uint64_t durable_lsn) {
  auto entry = entry_at(at_);
  if (!entry) {
    entry = entry_at(at_, Data::damaged);
    if (!entry || lsn() + entry->bytes > durable_lsn) return std::nullopt;
    log_error("the log of a disk holds damaged data: reads of its chunk fail until it is repaired",
              {{"file", path_}, {"position", lsn()}});
  }
  at_ += entry->bytes;
  durable_lsn_ = std::max(durable_lsn_, entry->durable_lsn);
  return entry->rows;
}

uint64_t SegmentReader::durable_lsn() const {
  uint64_t highest = durable_lsn_;
  for (uint64_t at = at_; at + kEntryHeaderBytes <= entries_.size();) {
    const auto entry = entry_at(at);
    if (entry) highest = std::max(highest, entry->durable_lsn);
    at += entry ? entry->bytes : kEntryAlign;
  }
  return highest;
}

}  // namespace ff::chunk
