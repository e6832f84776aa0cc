// store_read.cc: bytes of a version, each granule of them checked, and questions about chunks.
//
// What lies together on the disk is read in one piece, into the caller's memory where that is
// aligned and takes whole granules, else into memory of our own.
#include <algorithm>
#include <utility>

#include "base/gate.h"
#include "chunk/aligned_bytes.h"
#include "chunk/store.h"
#include "io/alignment.h"
#include "simd/crc32c.h"

namespace ff::chunk {

namespace {

// Whether [offset, offset + size) of the image is whole granules.
bool whole_granules(const Image& image, uint64_t offset, uint64_t size) {
  const uint64_t end = offset + size;
  return offset % image.granule() == 0 && (end % image.granule() == 0 || end == image.state.length);
}

}  // namespace

Task<Result<void>> Store::read_run(const Image& image, Run run, const Crcs& crcs, uint64_t offset,
                                   ByteSpan into, bool unseen) {
  const BlockRef block = run.in_pieces ? image.piece_block : image.block;
  const uint64_t granule = image.granule();
  const uint64_t begin = run.first * granule;
  const uint64_t end = std::min(begin + run.count * granule, image.state.length);
  const bool inside = begin >= offset && end <= offset + into.size();
  AlignedBytes own;
  ByteSpan bytes;
  if (inside) bytes = into.subspan(begin - offset, end - begin);
  if (!inside || !io::direct_aligned(bytes, 0)) {
    own = AlignedBytes(align_up(end - begin, io::kDirectAlign));
    bytes = own.span();
  }
  FF_CO_TRY(co_await blocks_.read(block, run.at * granule, bytes));
  if (unseen) co_return Result<void>();
  for (uint64_t i = 0; i < run.count; ++i) {
    const uint64_t size = std::min(granule, end - begin - i * granule);
    if (simd::crc32c(bytes.subspan(i * granule, size)) == crcs[run.at + i]) continue;
    co_return fail(Errc::corrupt, "{}: bytes {} to {} of the chunk do not match their CRC32C",
                   blocks_.data_path(block->place.of), begin + i * granule,
                   begin + i * granule + size)
        .within(fmt::format("offset {} of ", block->place.offset() + (run.at + i) * granule));
  }
  if (own.span().empty()) co_return Result<void>();
  const uint64_t from = std::max(begin, offset);
  const uint64_t to = std::min(end, offset + into.size());
  std::memcpy(into.data() + (from - offset), bytes.data() + (from - begin), to - from);
  co_return Result<void>();
}

// [offset, offset + into.size()), which lies within the image; the CRC32C of it.
Task<Result<uint32_t>> Store::read_image(Image image, uint64_t offset, ByteSpan into, bool unseen) {
  if (into.empty()) co_return uint32_t{0};
  const uint64_t granule = image.granule();
  const uint64_t end = align_up(offset + into.size(), granule) / granule;
  const bool whole = whole_granules(image, offset, into.size());
  if (unseen && (!whole || !io::direct_aligned(into, 0))) {
    co_return fail(Errc::unsupported, "{} bytes at {} cannot be read unseen", into.size(), offset);
  }
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(image.block));
  CrcsRef piece_crcs;
  if (image.piece_block) {
    FF_CO_TRY(piece_crcs, co_await blocks_.crcs(image.piece_block));
  }
  uint32_t checksum = 0;  // of the granules so far
  const bool all = offset == 0 && into.size() == image.state.length;
  for (const Run& run : runs(image, offset / granule, end)) {
    const Crcs& of = run.in_pieces ? *piece_crcs : *crcs;
    FF_CO_TRY(co_await read_run(image, run, of, offset, into, unseen));
    for (uint64_t i = 0; whole && !all && i < run.count; ++i) {
      const uint64_t size = std::min(granule, image.state.length - (run.first + i) * granule);
      checksum = simd::crc32c_combine(checksum, of[run.at + i], size);
    }
  }
  if (all) co_return image.state.checksum;
  co_return whole ? checksum : simd::crc32c(into);
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
  if (error.code != Errc::corrupt && !cancelled) error = failed(std::move(error));
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
  CrcsRef piece_crcs;
  if (image.piece_block) {
    FF_CO_TRY(piece_crcs, co_await blocks_.crcs(image.piece_block));
  }
  const uint64_t granule = image.granule();
  for (const Run& run : runs(image, 0, image.granules())) {
    const AlignedBytes bytes(run.count * granule);
    auto reading = blocks_.read(run.in_pieces ? image.piece_block : image.block, run.at * granule,
                                bytes.span());
    const auto read = co_await std::move(reading);
    if (!read) co_return failed(read.error());
    const Crcs& stored = run.in_pieces ? *piece_crcs : *crcs;
    for (uint64_t i = 0; i < run.count; ++i) {
      const ByteView part = bytes.span().subspan(i * granule, image.bytes_in(run.first + i));
      const uint64_t offset = (run.first + i) * granule;
      std::memcpy(into.data() + offset, part.data(), part.size());
      if (simd::crc32c(part) != stored[run.at + i]) damaged.push_back({offset, part.size()});
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
