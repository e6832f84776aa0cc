// chunk_store_read.cc: reads with verification of each checksum unit, and queries about chunks.
//
// Units that are adjacent on disk are read with one I/O: into the caller's memory if it is aligned
// and the range is whole units, otherwise into a bounce buffer.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/gate.h"
#include "platform/io/alignment.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_buffer.h"
#include "storage/chunk/chunk_store.h"

namespace ff::chunk {

namespace {

// A range with more extents than this is read with one I/O per block and sorted in memory.
constexpr size_t kExtentsMax = 8;

// Whether [offset, offset + size) consists of whole checksum units.
bool whole_units(const ChunkVersion& version, uint64_t offset, uint64_t size) {
  const uint64_t end = offset + size;
  return offset % version.unit_bytes() == 0 &&
         (end % version.unit_bytes() == 0 || end == version.state.length);
}

}  // namespace

// Destination of bytes [begin, end) of a chunk (whole units, or up to its end), aligned for direct
// I/O: the caller's memory if possible, otherwise a bounce buffer `own`.
struct ChunkStore::ReadBuffer {
  ReadBuffer(uint64_t first_byte, uint64_t end_byte, uint64_t offset, ByteSpan into)
      : begin(first_byte), end(end_byte) {
    if (begin >= offset && end <= offset + into.size()) {
      bytes = into.subspan(begin - offset, end - begin);
      if (io::direct_aligned(bytes, 0)) return;
    }
    own = AlignedBuffer(align_up(end - begin, io::kDirectAlign));
    bytes = own.span();
  }

  // Copies a bounce buffer to the caller's memory, which holds [offset, offset + into.size()).
  void copy_out(uint64_t offset, ByteSpan into) const {
    if (own.span().empty()) return;
    const uint64_t from = std::max(begin, offset);
    const uint64_t to = std::min(end, offset + into.size());
    std::memcpy(into.data() + (from - offset), bytes.data() + (from - begin), to - from);
  }

  uint64_t begin = 0;
  uint64_t end = 0;
  AlignedBuffer own;
  ByteSpan bytes;
};

// Reads the extent, up to the end of the chunk, or more to fill `into`.
Task<Result<void>> ChunkStore::read_units(ChunkVersion version, Extent extent, ByteSpan into) {
  if (extent.place != UnitPlace::log) {
    co_return co_await blocks_.read(block_of(version, extent), extent.at * version.unit_bytes(),
                                    into);
  }
  const uint64_t begin = extent.first * version.unit_bytes();
  const uint64_t end = std::min(begin + extent.count * version.unit_bytes(), version.state.length);
  co_return co_await read_log(extent.at, into.first(end - begin));
}

// `bytes` starts with the bytes of the extent.
Result<void> ChunkStore::verify_extent(const ChunkVersion& version, Extent extent, const Crcs& crcs,
                                       ByteView bytes) const {
  const uint64_t unit_bytes = version.unit_bytes();
  for (uint64_t i = 0; i < extent.count; ++i) {
    const uint64_t size = version.unit_length(extent.first + i);
    if (simd::crc32c(bytes.subspan(i * unit_bytes, size)) ==
        version.unit_crc(extent.first + i, crcs))
      continue;
    const uint64_t begin = (extent.first + i) * unit_bytes;
    if (extent.place == UnitPlace::log) {
      return fail(Errc::corrupt,
                  "position {} of the log of {}: bytes {} to {} of the chunk do not match their "
                  "CRC32C",
                  extent.at + i * unit_bytes, dir(), begin, begin + size);
    }
    const BlockRef& block = block_of(version, extent);
    return fail(Errc::corrupt, "{}: bytes {} to {} of the chunk do not match their CRC32C",
                blocks_.data_path(block->location.size_class), begin, begin + size)
        .with_context(
            fmt::format("offset {} of ", block->location.offset() + (extent.at + i) * unit_bytes));
  }
  return {};
}

Task<Result<void>> ChunkStore::read_extent(const ChunkVersion& version, Extent extent,
                                           const Crcs& crcs, uint64_t offset, ByteSpan into,
                                           bool zero_copy) {
  const uint64_t begin = extent.first * version.unit_bytes();
  const uint64_t end = std::min(begin + extent.count * version.unit_bytes(), version.state.length);
  const ReadBuffer buffer(begin, end, offset, into);
  FF_CO_TRY(co_await read_units(version, extent, buffer.bytes));
  if (zero_copy) co_return Result<void>();
  FF_CO_TRY(verify_extent(version, extent, crcs, buffer.bytes));
  buffer.copy_out(offset, into);
  co_return Result<void>();
}

// Reads all extents with one I/O of the block, one of the overlay block, and one for each of those
// in the log.
Task<Result<void>> ChunkStore::read_scattered(const ChunkVersion& version, const ReadBuffer& buffer,
                                              const std::vector<Extent>& extents,
                                              const Crcs& crcs) {
  const uint64_t unit_bytes = version.unit_bytes();
  uint64_t first = kOverlaySlots;
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.place != UnitPlace::overlay) continue;
    first = std::min(first, extent.at);
    end = std::max(end, extent.at + extent.count);
  }
  FF_CO_TRY(co_await blocks_.read(version.block, buffer.begin, buffer.bytes));
  AlignedBuffer overlays;
  if (first < end) {
    overlays = AlignedBuffer((end - first) * unit_bytes);
    FF_CO_TRY(co_await blocks_.read(version.overlay_block, first * unit_bytes, overlays.span()));
  }
  for (const Extent& extent : extents) {
    const ByteSpan bytes = buffer.bytes.subspan(extent.first * unit_bytes - buffer.begin);
    if (extent.place == UnitPlace::log) FF_CO_TRY(co_await read_units(version, extent, bytes));
    if (extent.place == UnitPlace::overlay) {
      const ByteView from =
          overlays.span().subspan((extent.at - first) * unit_bytes, extent.count * unit_bytes);
      std::memcpy(bytes.data(), from.data(), std::min(from.size(), bytes.size()));
    }
    FF_CO_TRY(verify_extent(version, extent, crcs, bytes));
  }
  co_return Result<void>();
}

// Reads [offset, offset + into.size()), which must lie within the version; returns its CRC32C.
Task<Result<uint32_t>> ChunkStore::read_version(ChunkVersion version, uint64_t offset,
                                                ByteSpan into, bool zero_copy) {
  if (into.empty()) co_return uint32_t{0};
  const uint64_t unit_bytes = version.unit_bytes();
  const uint64_t first = offset / unit_bytes;
  const uint64_t end = align_up(offset + into.size(), unit_bytes) / unit_bytes;
  const bool whole = whole_units(version, offset, into.size());
  const auto parts = extents(version, first, end);
  const bool scattered = parts.size() > kExtentsMax;
  if (zero_copy && (!whole || scattered || !io::direct_aligned(into, 0))) {
    co_return fail(Errc::unsupported, "{} bytes at offset {} cannot be read zero-copy", into.size(),
                   offset);
  }
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(version.block));
  if (scattered) {
    const ReadBuffer buffer(first * unit_bytes, std::min(end * unit_bytes, version.state.length),
                            offset, into);
    FF_CO_TRY(co_await read_scattered(version, buffer, parts, *crcs));
    buffer.copy_out(offset, into);
  } else {
    for (const Extent& extent : parts) {
      FF_CO_TRY(co_await read_extent(version, extent, *crcs, offset, into, zero_copy));
    }
  }
  if (offset == 0 && into.size() == version.state.length) co_return version.state.checksum;
  if (!whole) co_return simd::crc32c(into);
  uint32_t checksum = 0;
  for (uint64_t i = first; i < end; ++i) {
    checksum = simd::crc32c_combine(checksum, version.unit_crc(i, *crcs), version.unit_length(i));
  }
  co_return checksum;
}

Task<Result<ReadResult>> ChunkStore::read(ReadRequest request, ByteSpan into) {
  FF_CO_TRY(Target* const target, find(request.target));
  const auto phase = read_phase_;
  target->chunks.pack_some(durable_epoch_);
  const Chunk* const chunk = find(*target, request.id);
  const ChunkVersion* found = nullptr;
  if (chunk != nullptr && request.kind == VersionKind::committed)
    found = &chunk->versions.committed;
  if (chunk != nullptr && request.kind == VersionKind::pending && chunk->versions.pending) {
    found = &chunk->versions.pending->version;
  }
  if (found == nullptr || found->state.version == 0 || found->state.removed) {
    co_return fail(Errc::not_found, "{}: target {} has no {} version of chunk {}", dir(),
                   request.target, request.kind == VersionKind::pending ? "pending" : "committed",
                   to_string(request.id));
  }
  const ChunkVersion version = *found;
  ReadResult done{.state = version.state};
  if (request.offset >= version.state.length) co_return done;
  done.bytes = std::min<uint64_t>(into.size(), version.state.length - request.offset);
  auto read =
      co_await read_version(version, request.offset, into.first(done.bytes), request.zero_copy);
  if (read) {
    done.checksum = *read;
    co_return done;
  }
  const CancellationToken* const cancel = co_await current_cancellation();
  const bool cancelled = cancel != nullptr && cancel->requested();
  Error error = std::move(read).error();
  if (error.code == Errc::unsupported) co_return error;
  // Memory of another process may be unmapped at any time; that is no disk failure.
  const bool gone = request.zero_copy && error.sys == EFAULT;
  if (gone) error.code = Errc::refused;
  if (!gone && error.code != Errc::corrupt && !cancelled) error = record_failure(std::move(error));
  co_return std::move(error).with_context(
      fmt::format("target {} chunk {} version {}: ", request.target, to_string(request.id),
                  version.state.version));
}

Task<Result<std::vector<DamagedRange>>> ChunkStore::salvage(TargetId target, ChunkId id,
                                                            ByteSpan into) {
  FF_CO_TRY(Target* const entry, find(target));
  const auto phase = read_phase_;
  const Chunk* const chunk = find(*entry, id);
  const ChunkVersion version = chunk == nullptr ? ChunkVersion() : chunk->versions.committed;
  if (version.state.length != into.size()) {
    co_return fail(Errc::refused, "{}: chunk {} of target {} has {} bytes, not {}", dir(),
                   to_string(id), target, version.state.length, into.size());
  }
  std::vector<DamagedRange> damaged;
  if (into.empty()) co_return damaged;
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(version.block));
  const uint64_t unit_bytes = version.unit_bytes();
  for (const Extent& extent : extents(version, 0, version.units())) {
    const AlignedBuffer bytes(extent.count * unit_bytes);
    const auto read = co_await read_units(version, extent, bytes.span());
    if (!read && read.error().code != Errc::corrupt) co_return record_failure(read.error());
    if (!read) std::memset(bytes.span().data(), 0, bytes.span().size());
    for (uint64_t i = 0; i < extent.count; ++i) {
      const ByteView part =
          bytes.span().subspan(i * unit_bytes, version.unit_length(extent.first + i));
      const uint64_t offset = (extent.first + i) * unit_bytes;
      std::memcpy(into.data() + offset, part.data(), part.size());
      if (!read || simd::crc32c(part) != version.unit_crc(extent.first + i, *crcs)) {
        damaged.push_back({offset, part.size()});
      }
    }
  }
  co_return damaged;
}

Result<ChunkState> ChunkStore::state(TargetId target, ChunkId id) const {
  FF_TRY(const Target* const entry, find(target));
  return entry->chunks.state(id).value_or(ChunkState());
}

Result<std::vector<ChunkInfo>> ChunkStore::list(TargetId target, ChunkId from, size_t limit) const {
  FF_TRY(const Target* const entry, find(target));
  std::vector<ChunkInfo> all;
  for (auto at = entry->chunks.first_from(from); at && all.size() < limit;
       at = entry->chunks.first_from(next(at->id))) {
    if (at->state.committed.version > 0 || at->state.pending) all.push_back(*at);
  }
  return all;
}

// Whether the chunk exists, or a pending version creates it.
bool ChunkStore::has_content(const ChunkState& state) {
  const bool there = state.committed.version > 0 && !state.committed.removed;
  return there || (state.pending && !state.pending->state.removed);
}

Result<std::vector<uint64_t>> ChunkStore::list_inodes(TargetId target, uint64_t from,
                                                      size_t limit) const {
  FF_TRY(const Target* const entry, find(target));
  std::vector<uint64_t> inodes;
  auto at = entry->chunks.first_from({.inode = from, .index = 0});
  while (at && inodes.size() < limit) {
    ChunkId last = at->id;
    if (has_content(at->state)) {
      inodes.push_back(last.inode);
      last.index = UINT64_MAX;
    }
    at = entry->chunks.first_from(next(last));
  }
  return inodes;
}

Result<ChunkRangePage> ChunkStore::list_range(TargetId target, ChunkRangeQuery asked) const {
  constexpr size_t kScannedMax = 16'384;
  FF_TRY(const Target* const entry, find(target));
  ChunkRangePage page;
  size_t scanned = 0;
  const auto within = [&](const std::optional<ChunkInfo>& at) {
    return at && at->id < ChunkId{.inode = asked.inode, .index = asked.end};
  };
  for (auto at = entry->chunks.first_from({.inode = asked.inode, .index = asked.from}); within(at);
       at = entry->chunks.first_from(next(at->id))) {
    if (page.chunks.size() >= asked.limit || scanned++ >= kScannedMax) {
      page.next = at->id.index;
      break;
    }
    if (has_content(at->state)) page.chunks.push_back(*at);
  }
  if (asked.step == 0 || page.chunks.empty()) return page;
  uint64_t wanted = page.chunks.front().id.index;
  for (auto at = entry->chunks.first_from(page.chunks.front().id);
       within(at) && page.run < asked.run_max; at = entry->chunks.first_from(next(at->id))) {
    if (at->id.index != wanted || !has_content(at->state)) break;
    page.run++;
    wanted += asked.step;
  }
  return page;
}

Result<std::optional<ChunkInfo>> ChunkStore::last_chunk(TargetId target, uint64_t inode) const {
  FF_TRY(const Target* const entry, find(target));
  for (auto at = entry->chunks.last_before(next({.inode = inode, .index = UINT64_MAX}));
       at && at->id.inode == inode; at = entry->chunks.last_before(at->id)) {
    if (has_content(at->state)) return at;
  }
  return std::optional<ChunkInfo>();
}

Task<Result<ScrubPage>> ChunkStore::scrub(TargetId target, ChunkId from, size_t limit) {
  FF_CO_TRY(const auto page, list(target, from, limit + 1));
  ScrubPage done;
  for (const ChunkInfo& info : page) {
    if (done.chunks == limit) {
      done.next = info.id;
      break;
    }
    ++done.chunks;
    FF_CO_TRY(Target* const entry, find(target));
    entry->chunks.pack_some(durable_epoch_);
    const auto phase = read_phase_;
    const Chunk* const chunk = find(*entry, info.id);
    if (chunk == nullptr) continue;  // removed meanwhile
    ChunkVersion stored_versions[2];
    stored_versions[0] = chunk->versions.committed;
    if (chunk->versions.pending) stored_versions[1] = chunk->versions.pending->version;
    bool sound = true;
    for (const ChunkVersion& version : stored_versions) {
      auto check = co_await verify_version(version);
      if (!check) co_return record_failure(std::move(check).error());
      sound &= *check;
      done.bytes += version.state.length;
    }
    if (!sound) done.damaged.push_back(info.id);
  }
  co_return done;
}

}  // namespace ff::chunk
