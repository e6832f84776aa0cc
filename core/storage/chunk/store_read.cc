// store_read.cc: bytes of a version, each granule of them checked, and questions about chunks.
//
// What lies together on the disk is read in one piece, into the caller's memory where that is
// aligned and takes whole granules, else into memory of our own.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/gate.h"
#include "platform/io/alignment.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_bytes.h"
#include "storage/chunk/store.h"

namespace ff::chunk {

namespace {

// What is scattered over more runs than these is read in one piece, and sorted in memory.
constexpr size_t kRunsMax = 8;

// Whether [offset, offset + size) of the image is whole granules.
bool whole_granules(const Image& image, uint64_t offset, uint64_t size) {
  const uint64_t end = offset + size;
  return offset % image.granule() == 0 && (end % image.granule() == 0 || end == image.state.length);
}

}  // namespace

// Bytes [begin, end) of a chunk, whole granules or up to its end, in memory for direct I/O: the
// caller's where it takes them, else own.
struct Store::Extent {
  Extent(uint64_t first_byte, uint64_t end_byte, uint64_t offset, ByteSpan into)
      : begin(first_byte), end(end_byte) {
    if (begin >= offset && end <= offset + into.size()) {
      bytes = into.subspan(begin - offset, end - begin);
      if (io::direct_aligned(bytes, 0)) return;
    }
    own = AlignedBytes(align_up(end - begin, io::kDirectAlign));
    bytes = own.span();
  }

  // Where they are own, to the caller's memory, which has [offset, offset + into.size()).
  void copy_out(uint64_t offset, ByteSpan into) const {
    if (own.span().empty()) return;
    const uint64_t from = std::max(begin, offset);
    const uint64_t to = std::min(end, offset + into.size());
    std::memcpy(into.data() + (from - offset), bytes.data() + (from - begin), to - from);
  }

  uint64_t begin = 0;
  uint64_t end = 0;
  AlignedBytes own;
  ByteSpan bytes;
};

// `bytes` begin with those of the run.
Result<void> Store::check_run(const Image& image, Run run, const Crcs& crcs, ByteView bytes) const {
  const BlockRef& block = run.in_pieces ? image.piece_block : image.block;
  const uint64_t granule = image.granule();
  for (uint64_t i = 0; i < run.count; ++i) {
    const uint64_t size = image.bytes_in(run.first + i);
    if (simd::crc32c(bytes.subspan(i * granule, size)) == image.crc(run.first + i, crcs)) continue;
    const uint64_t begin = (run.first + i) * granule;
    return fail(Errc::corrupt, "{}: bytes {} to {} of the chunk do not match their CRC32C",
                blocks_.data_path(block->place.of), begin, begin + size)
        .within(fmt::format("offset {} of ", block->place.offset() + (run.at + i) * granule));
  }
  return {};
}

Task<Result<void>> Store::read_run(const Image& image, Run run, const Crcs& crcs, uint64_t offset,
                                   ByteSpan into, bool unseen) {
  const BlockRef block = run.in_pieces ? image.piece_block : image.block;
  const uint64_t begin = run.first * image.granule();
  const uint64_t end = std::min(begin + run.count * image.granule(), image.state.length);
  const Extent extent(begin, end, offset, into);
  FF_CO_TRY(co_await blocks_.read(block, run.at * image.granule(), extent.bytes));
  if (unseen) co_return Result<void>();
  FF_CO_TRY(check_run(image, run, crcs, extent.bytes));
  extent.copy_out(offset, into);
  co_return Result<void>();
}

// All runs of an extent in one read of its block and one of its pieces.
Task<Result<void>> Store::read_block(const Image& image, const Extent& extent,
                                     const std::vector<Run>& runs, const Crcs& crcs) {
  const uint64_t granule = image.granule();
  uint64_t first = kPieces;
  uint64_t end = 0;
  for (const Run& run : runs) {
    if (!run.in_pieces) continue;
    first = std::min(first, run.at);
    end = std::max(end, run.at + run.count);
  }
  const AlignedBytes pieces((end - first) * granule);
  FF_CO_TRY(co_await blocks_.read(image.block, extent.begin, extent.bytes));
  FF_CO_TRY(co_await blocks_.read(image.piece_block, first * granule, pieces.span()));
  for (const Run& run : runs) {
    const ByteSpan bytes = extent.bytes.subspan(run.first * granule - extent.begin);
    if (run.in_pieces) {
      const ByteView from = pieces.span().subspan((run.at - first) * granule, run.count * granule);
      std::memcpy(bytes.data(), from.data(), std::min(from.size(), bytes.size()));
    }
    FF_CO_TRY(check_run(image, run, crcs, bytes));
  }
  co_return Result<void>();
}

// [offset, offset + into.size()), which lies within the image; the CRC32C of it.
Task<Result<uint32_t>> Store::read_image(Image image, uint64_t offset, ByteSpan into, bool unseen) {
  if (into.empty()) co_return uint32_t{0};
  const uint64_t granule = image.granule();
  const uint64_t first = offset / granule;
  const uint64_t end = align_up(offset + into.size(), granule) / granule;
  const bool whole = whole_granules(image, offset, into.size());
  const auto parts = runs(image, first, end);
  const bool scattered = parts.size() > kRunsMax;
  if (unseen && (!whole || scattered || !io::direct_aligned(into, 0))) {
    co_return fail(Errc::unsupported, "{} bytes at {} cannot be read unseen", into.size(), offset);
  }
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(image.block));
  if (scattered) {
    const Extent extent(first * granule, std::min(end * granule, image.state.length), offset, into);
    FF_CO_TRY(co_await read_block(image, extent, parts, *crcs));
    extent.copy_out(offset, into);
  } else {
    for (const Run& run : parts) {
      FF_CO_TRY(co_await read_run(image, run, *crcs, offset, into, unseen));
    }
  }
  if (offset == 0 && into.size() == image.state.length) co_return image.state.checksum;
  if (!whole) co_return simd::crc32c(into);
  uint32_t checksum = 0;
  for (uint64_t i = first; i < end; ++i) {
    checksum = simd::crc32c_combine(checksum, image.crc(i, *crcs), image.bytes_in(i));
  }
  co_return checksum;
}

Task<Result<ReadDone>> Store::read(ReadRequest request, ByteSpan into) {
  FF_CO_TRY(const Target* const target, std::as_const(*this).find(request.target));
  const Chunk* const chunk = find(*target, request.id);
  const Image* found = nullptr;
  if (chunk != nullptr && request.which == Which::committed) found = &chunk->versions.committed;
  if (chunk != nullptr && request.which == Which::pending && chunk->versions.pending) {
    found = &chunk->versions.pending->image;
  }
  if (found == nullptr || found->state.version == 0 || found->state.removed) {
    co_return fail(Errc::not_found, "{}: target {} has no {} version of chunk {}", dir(),
                   request.target, request.which == Which::pending ? "pending" : "committed",
                   to_string(request.id));
  }
  const Image image = *found;
  ReadDone done{.state = image.state};
  if (request.offset >= image.state.length) co_return done;
  done.bytes = std::min<uint64_t>(into.size(), image.state.length - request.offset);
  auto reading = read_image(image, request.offset, into.first(done.bytes), request.unseen);
  auto read = co_await std::move(reading);
  if (read) {
    done.checksum = *read;
    co_return done;
  }
  const Cancel* const cancel = co_await current_cancel();
  const bool cancelled = cancel != nullptr && cancel->requested();
  Error error = std::move(read).error();
  if (error.code == Errc::unsupported) co_return error;
  // Memory that is somebody else's may go at any moment, which says nothing of the disk.
  const bool gone = request.unseen && error.sys == EFAULT;
  if (gone) error.code = Errc::refused;
  if (!gone && error.code != Errc::corrupt && !cancelled) error = failed(std::move(error));
  co_return std::move(error).within(fmt::format("target {} chunk {} version {}: ", request.target,
                                                to_string(request.id), image.state.version));
}

Task<Result<std::vector<Damage>>> Store::salvage(TargetId target, ChunkId id, ByteSpan into) {
  FF_CO_TRY(const Target* const of, std::as_const(*this).find(target));
  const Chunk* const chunk = find(*of, id);
  const Image image = chunk == nullptr ? Image() : chunk->versions.committed;
  if (image.state.length != into.size()) {
    co_return fail(Errc::refused, "{}: chunk {} of target {} has {} bytes, not {}", dir(),
                   to_string(id), target, image.state.length, into.size());
  }
  std::vector<Damage> damaged;
  if (into.empty()) co_return damaged;
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(image.block));
  const uint64_t granule = image.granule();
  for (const Run& run : runs(image, 0, image.granules())) {
    const AlignedBytes bytes(run.count * granule);
    auto reading = blocks_.read(run.in_pieces ? image.piece_block : image.block, run.at * granule,
                                bytes.span());
    const auto read = co_await std::move(reading);
    if (!read && read.error().code != Errc::corrupt) co_return failed(read.error());
    if (!read) std::memset(bytes.span().data(), 0, bytes.span().size());
    for (uint64_t i = 0; i < run.count; ++i) {
      const ByteView part = bytes.span().subspan(i * granule, image.bytes_in(run.first + i));
      const uint64_t offset = (run.first + i) * granule;
      std::memcpy(into.data() + offset, part.data(), part.size());
      if (!read || simd::crc32c(part) != image.crc(run.first + i, *crcs)) {
        damaged.push_back({offset, part.size()});
      }
    }
  }
  co_return damaged;
}

Result<ChunkState> Store::state(TargetId target, ChunkId id) const {
  FF_TRY(const Target* const of, find(target));
  const Chunk* const chunk = find(*of, id);
  return chunk == nullptr ? ChunkState() : state_of(chunk->versions);
}

Result<std::vector<ChunkInfo>> Store::list(TargetId target, ChunkId from, size_t limit) const {
  FF_TRY(const Target* const of, find(target));
  std::vector<ChunkInfo> all;
  for (auto at = of->chunks.lower_bound(from); at != of->chunks.end() && all.size() < limit; ++at) {
    if (at->second.versions.absent()) continue;
    all.push_back({.id = at->first, .state = state_of(at->second.versions)});
  }
  return all;
}

// Whether there is something to read, or will be.
bool Store::holds(const Versions& versions) {
  const bool there = versions.committed.state.version > 0 && !versions.committed.state.removed;
  return there || (versions.pending && !versions.pending->image.state.removed);
}

Result<std::vector<uint64_t>> Store::inodes(TargetId target, uint64_t from, size_t limit) const {
  FF_TRY(const Target* const of, find(target));
  std::vector<uint64_t> inodes;
  auto at = of->chunks.lower_bound({.inode = from, .index = 0});
  while (at != of->chunks.end() && inodes.size() < limit) {
    if (holds(at->second.versions)) {
      inodes.push_back(at->first.inode);
      at = of->chunks.upper_bound({.inode = at->first.inode, .index = UINT64_MAX});
    } else {
      ++at;
    }
  }
  return inodes;
}

Result<ChunksPage> Store::chunks(TargetId target, ChunksAsked asked) const {
  constexpr size_t kLookedAtMax = 16'384;
  FF_TRY(const Target* const of, find(target));
  ChunksPage page;
  size_t looked_at = 0;
  auto at = of->chunks.lower_bound({.inode = asked.inode, .index = asked.from});
  const auto end = of->chunks.lower_bound({.inode = asked.inode, .index = asked.end});
  for (; at != end; ++at) {
    if (page.chunks.size() >= asked.limit || looked_at++ >= kLookedAtMax) {
      page.next = at->first.index;
      break;
    }
    if (!holds(at->second.versions)) continue;
    page.chunks.push_back({.id = at->first, .state = state_of(at->second.versions)});
  }
  if (asked.step == 0 || page.chunks.empty()) return page;
  const ChunkId first = page.chunks.front().id;
  uint64_t wanted = first.index;
  for (auto of_run = of->chunks.find(first); of_run != end && page.run < asked.run_max; ++of_run) {
    if (of_run->first.index != wanted || !holds(of_run->second.versions)) break;
    page.run++;
    wanted += asked.step;
  }
  return page;
}

Result<std::optional<ChunkInfo>> Store::query_last(TargetId target, uint64_t inode) const {
  FF_TRY(const Target* const of, find(target));
  auto at = of->chunks.upper_bound({.inode = inode, .index = UINT64_MAX});
  while (at != of->chunks.begin() && std::prev(at)->first.inode == inode) {
    --at;
    if (!holds(at->second.versions)) continue;
    return std::optional(ChunkInfo{.id = at->first, .state = state_of(at->second.versions)});
  }
  return std::optional<ChunkInfo>();
}

Task<Result<ScrubPage>> Store::scrub(TargetId target, ChunkId from, size_t limit) {
  FF_CO_TRY(const auto page, list(target, from, limit + 1));
  ScrubPage done;
  for (const ChunkInfo& info : page) {
    if (done.chunks == limit) {
      done.next = info.id;
      break;
    }
    ++done.chunks;
    FF_CO_TRY(const Target* const of, std::as_const(*this).find(target));
    const Chunk* const chunk = find(*of, info.id);
    if (chunk == nullptr) continue;  // removed meanwhile
    Image images[2];
    images[0] = chunk->versions.committed;
    if (chunk->versions.pending) images[1] = chunk->versions.pending->image;
    bool sound = true;
    for (const Image& image : images) {
      auto check = co_await intact(image);
      if (!check) co_return failed(std::move(check).error());
      sound &= *check;
      done.bytes += image.state.length;
    }
    if (!sound) done.bad.push_back(info.id);
  }
  co_return done;
}

}  // namespace ff::chunk
