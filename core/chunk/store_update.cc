// store_update.cc: how versions come to be. The bytes are written first, to granules that no
// version has; then one transaction names them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "chunk/aligned_bytes.h"
#include "chunk/claim.h"
#include "chunk/store.h"
#include "io/alignment.h"
#include "simd/crc32c.h"

namespace ff::chunk {

// The granules of a new version that are written, before they are.
struct Store::Written {
  AlignedBytes own;  // where `bytes` lies, unless it is the caller's memory
  ByteView bytes;    // of the granules, up to the chunk's end, and zeros up to direct alignment
  std::vector<uint32_t> crcs;
};

namespace {

// CRC32C of the whole version from those of its granules.
uint32_t whole_checksum(const Image& image, const Crcs& crcs, const Crcs* piece_crcs) {
  uint32_t checksum = 0;
  for (const Run& run : runs(image, 0, image.granules())) {
    const Crcs& from = run.in_pieces ? *piece_crcs : crcs;
    for (uint64_t i = 0; i < run.count; ++i) {
      checksum = simd::crc32c_combine(checksum, from[run.at + i], image.bytes_in(run.first + i));
    }
  }
  return checksum;
}

// The pieces of the base that the new version still has, and `slots` new ones.
std::vector<Piece> pieces_of(const Image& base, const Plan& plan, uint64_t first_slot) {
  std::vector<Piece> pieces;
  const uint64_t granules = align_up(plan.length, plan.granule()) / plan.granule();
  for (const Piece& piece : base.pieces) {
    const bool replaced = piece.granule >= plan.first && piece.granule < plan.end;
    if (!replaced && piece.granule < granules) pieces.push_back(piece);
  }
  for (uint64_t i = 0; i < plan.slots; ++i) {
    pieces.push_back({.granule = static_cast<uint8_t>(plan.first + i),
                      .slot = static_cast<uint8_t>(first_slot + i)});
  }
  std::ranges::sort(pieces, {}, &Piece::granule);
  return pieces;
}

// Where the update's data would be written as it is.
bool takes_data_as_it_is(const Plan& plan, const Update& update) {
  return update.data.size() == plan.end_byte() - plan.begin_byte() &&
         plan.to - plan.from == update.data.size() && plan.from == plan.begin_byte() &&
         io::direct_aligned(update.data, 0);
}

}  // namespace

// The bytes of the granules to write: old ones around the new, zeros where there is neither.
Task<Result<void>> Store::stage(const Image& base, const Update& update, const Plan& plan,
                                Written& written) {
  const uint64_t begin = plan.begin_byte();
  const uint64_t end = plan.end_byte();
  if (takes_data_as_it_is(plan, update)) {
    written.bytes = update.data;
  } else {
    written.own = AlignedBytes(align_up(end - begin, io::kDirectAlign));
    const ByteSpan bytes = written.own.span();
    std::memset(bytes.data(), 0, bytes.size());
    written.bytes = bytes;
    const bool keeps = update.change != Change::replace;
    const uint64_t old_end = keeps ? std::min(base.state.length, end) : 0;
    if (const uint64_t head = std::min(plan.from, old_end); head > begin) {
      FF_CO_TRY(co_await read_image(base, begin, bytes.first(head - begin)));
    }
    if (const uint64_t tail = std::max(plan.to, begin); tail < old_end) {
      FF_CO_TRY(co_await read_image(base, tail, bytes.subspan(tail - begin, old_end - tail)));
    }
    if (!update.data.empty()) {
      std::memcpy(bytes.data() + (plan.to - update.data.size() - begin), update.data.data(),
                  update.data.size());
    }
  }
  for (uint64_t at = begin; at < end; at += plan.granule()) {
    const uint64_t size = std::min(plan.granule(), end - at);
    written.crcs.push_back(simd::crc32c(written.bytes.subspan(at - begin, size)));
  }
  co_return Result<void>();
}

// Slots first, then the block's own granules; each is one stretch of the disk.
Task<Result<void>> Store::write_granules(const Plan& plan, const Image& image, Written& written) {
  const uint64_t cut = plan.slots * plan.granule();
  const uint64_t count = plan.end - plan.first - plan.slots;
  if (plan.slots > 0) {
    Block& block = *image.piece_block;
    const uint64_t first = block.filled - plan.slots;
    const ByteView bytes = written.bytes.first(std::min<uint64_t>(cut, written.bytes.size()));
    FF_CO_TRY(co_await blocks_.write(image.piece_block, first * plan.granule(), bytes));
    FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(image.piece_block));
    FF_CO_TRY(co_await blocks_.store_crcs(image.piece_block, crcs, first, plan.slots));
  }
  if (count > 0) {
    const uint64_t first = plan.first + plan.slots;
    FF_CO_TRY(
        co_await blocks_.write(image.block, first * plan.granule(), written.bytes.subspan(cut)));
    FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(image.block));
    FF_CO_TRY(co_await blocks_.store_crcs(image.block, crcs, first, count));
  }
  co_return Result<void>();
}

// The version that `update` makes of `base`, on the disk but in no row. Errors: usage, and those of
// build_image().
Task<Result<Image>> Store::make_image(Image base, Update update) {
  const Base shape{.length = base.state.length,
                   .of = base.block ? std::optional(base.block->place.of) : std::nullopt,
                   .filled = base.block ? base.block->filled : uint64_t{0},
                   .slots = base.piece_block ? base.piece_block->filled : uint64_t{0}};
  FF_CO_TRY(const Plan plan, plan_update(shape, update));
  auto building = build_image(std::move(base), update, shape, plan);
  auto image = co_await std::move(building);
  if (image || image.error().code == Errc::corrupt) co_return image;
  co_return failed(std::move(image).error());
}

// Errors: corrupt when the base's bytes are, or the checksum differs; else the disk's.
Task<Result<Image>> Store::build_image(Image base, Update update, Base shape, Plan plan) {
  Image image;
  image.state = {
      .version = update.version, .length = plan.length, .removed = update.change == Change::remove};
  if (plan.length == 0) {
    if (update.checksum.value_or(0) != 0) co_return wrong_checksum(update, 0);
    co_return image;
  }
  // Blocks, and the CRCs they have; these are held, so that nobody drops what is added here.
  if (plan.whole) {
    FF_CO_TRY(image.block, blocks_.allocate(plan.of));
  } else {
    image.block = base.block;
    image.piece_block = base.piece_block;
    if (plan.slots > 0 && !image.piece_block) {
      FF_CO_TRY(image.piece_block, blocks_.allocate(piece_class(plan.of)));
    }
    image.pieces = pieces_of(base, plan, shape.slots);
  }
  FF_CO_TRY(const CrcsRef crcs, co_await blocks_.crcs(image.block));
  CrcsRef piece_crcs;
  if (image.piece_block) {
    FF_CO_TRY(piece_crcs, co_await blocks_.crcs(image.piece_block));
  }
  Written written;
  if (plan.first < plan.end) {
    FF_CO_TRY(co_await stage(base, update, plan, written));
  }
  for (uint64_t i = 0; i < written.crcs.size(); ++i) {
    const bool slot = i < plan.slots;
    (slot ? (*piece_crcs)[shape.slots + i] : (*crcs)[plan.first + i]) = written.crcs[i];
  }
  image.state.checksum = whole_checksum(image, *crcs, piece_crcs.get());
  if (update.checksum && *update.checksum != image.state.checksum) {
    co_return wrong_checksum(update, image.state.checksum);
  }
  // From here on these granules are used up, whatever becomes of the version.
  if (plan.slots > 0) image.piece_block->filled += plan.slots;
  if (plan.end > plan.first + plan.slots) image.block->filled = plan.end;
  FF_CO_TRY(co_await write_granules(plan, image, written));
  if (image.pieces.empty()) image.piece_block = {};
  co_return image;
}

Error Store::wrong_checksum(const Update& update, uint32_t checksum) const {
  return fail(Errc::corrupt,
              "{}: version {} of chunk {} of target {} would have checksum {:08x}, not {:08x}",
              dir(), update.version, to_string(update.id), update.target, checksum,
              *update.checksum);
}

namespace {

RowChange result_row(TargetId target, const Writer& writer,
                     const std::optional<ChannelResult>& result) {
  return {.key = key_of(Table::result, {target, writer.client, writer.channel}),
          .body = result ? std::optional(encode(*result)) : std::nullopt};
}

}  // namespace

Task<Result<ChunkState>> Store::do_write(Update update) {
  FF_CO_TRY(Claim claimed, claim(update.target, update.id));
  const Versions& now = claimed.versions();
  if (now.pending || update.version != now.committed.state.version + 1) {
    co_return fail(Errc::refused, "{}: chunk {} of target {} has version {}{}, not before {}",
                   dir(), to_string(update.id), update.target, now.committed.state.version,
                   now.pending ? " and one pending" : "", update.version);
  }
  Versions next;
  next.committed = now.committed;
  next.chain_version = now.chain_version;
  next.removed_ns = now.removed_ns;
  next.pending = std::make_unique<Versions::Pending>();
  next.pending->writer = update.writer;
  FF_CO_TRY(next.pending->image, co_await make_image(now.committed, update));
  const ChannelResult result{.sequence = update.writer.sequence,
                             .id = update.id,
                             .image = next.pending->image.state,
                             .committed = false,
                             .used_ns = options_.loop.clock().wall_ns()};
  RowChanges more;
  more.push_back(result_row(update.target, update.writer, result));
  FF_CO_TRY(co_await put(claimed, std::move(next), std::move(more)));
  claimed.target().channels[{update.writer.client, update.writer.channel}] = result;
  co_return state_of(claimed.versions());
}

Task<Result<ChunkState>> Store::do_commit(TargetId target, ChunkId id, uint64_t version,
                                          uint64_t chain_version) {
  FF_CO_TRY(Claim claimed, claim(target, id));
  const Versions& now = claimed.versions();
  if (version > 0 && now.committed.state.version == version) co_return state_of(now);
  if (!now.pending || now.pending->image.state.version != version) {
    co_return fail(Errc::refused, "{}: chunk {} of target {} has no pending version {}", dir(),
                   to_string(id), target, version);
  }
  const Writer writer = now.pending->writer;
  const int64_t wall_ns = options_.loop.clock().wall_ns();
  Versions next;
  next.committed = now.pending->image;
  next.chain_version = chain_version;
  next.removed_ns = next.committed.state.removed ? wall_ns : 0;
  const ChannelResult result{.sequence = writer.sequence,
                             .id = id,
                             .image = next.committed.state,
                             .committed = true,
                             .used_ns = wall_ns};
  // The channel may have gone on, after a failure that its client took for an end.
  const auto kept = claimed.target().channels.find({writer.client, writer.channel});
  const bool newer =
      kept != claimed.target().channels.end() && kept->second.sequence > writer.sequence;
  RowChanges more;
  if (!newer) more.push_back(result_row(target, writer, result));
  FF_CO_TRY(co_await put(claimed, std::move(next), std::move(more)));
  if (!newer) claimed.target().channels[{writer.client, writer.channel}] = result;
  co_return state_of(claimed.versions());
}

Task<Result<ChunkState>> Store::do_drop(TargetId target, ChunkId id, uint64_t version) {
  FF_CO_TRY(Claim claimed, claim(target, id));
  const Versions& now = claimed.versions();
  if (!now.pending || now.pending->image.state.version != version) {
    co_return fail(Errc::refused, "{}: chunk {} of target {} has no pending version {}", dir(),
                   to_string(id), target, version);
  }
  const Writer writer = now.pending->writer;
  Versions next;
  next.committed = now.committed;
  next.chain_version = now.chain_version;
  next.removed_ns = now.removed_ns;
  auto& channels = claimed.target().channels;
  const auto kept = channels.find({writer.client, writer.channel});
  const bool its = kept != channels.end() && kept->second.sequence == writer.sequence;
  RowChanges more;
  if (its) more.push_back(result_row(target, writer, std::nullopt));
  FF_CO_TRY(co_await put(claimed, std::move(next), std::move(more)));
  if (its) channels.erase({writer.client, writer.channel});
  co_return state_of(claimed.versions());
}

Task<Result<ChunkState>> Store::do_install(Install install) {
  FF_CO_TRY(Claim claimed, claim(install.target, install.id));
  if (install.state.version == 0 || install.state.length != install.data.size() ||
      (install.state.removed && install.state.length > 0)) {
    co_return fail(Errc::usage, "{}: chunk {}: {} bytes for version {} of length {}", dir(),
                   to_string(install.id), install.data.size(), install.state.version,
                   install.state.length);
  }
  const Update update{.target = install.target,
                      .id = install.id,
                      .version = install.state.version,
                      .change = install.state.removed ? Change::remove : Change::replace,
                      .data = install.data,
                      .chunk_size = kChunkMax,
                      .checksum = install.state.checksum};
  Versions next;
  const Image none;
  FF_CO_TRY(next.committed, co_await make_image(none, update));
  next.chain_version = install.chain_version;
  next.removed_ns = install.state.removed ? options_.loop.clock().wall_ns() : 0;
  RowChanges no_more;
  FF_CO_TRY(co_await put(claimed, std::move(next), std::move(no_more)));
  co_return state_of(claimed.versions());
}

Task<Result<void>> Store::do_erase(TargetId target, ChunkId id) {
  FF_CO_TRY(Claim claimed, claim(target, id));
  if (claimed.versions().absent()) co_return Result<void>();
  Versions none;
  RowChanges no_more;
  co_return co_await put(claimed, std::move(none), std::move(no_more));
}

// Steps that have begun come to their end: what they hold would otherwise be in doubt.

Task<Result<ChunkState>> Store::write(Update update) {
  auto step = do_write(std::move(update));
  co_return co_await std::move(step).shielded();
}

Task<Result<ChunkState>> Store::commit(TargetId target, ChunkId id, uint64_t version,
                                       uint64_t chain_version) {
  auto step = do_commit(target, id, version, chain_version);
  co_return co_await std::move(step).shielded();
}

Task<Result<ChunkState>> Store::drop_pending(TargetId target, ChunkId id, uint64_t version) {
  auto step = do_drop(target, id, version);
  co_return co_await std::move(step).shielded();
}

Task<Result<ChunkState>> Store::install(Install install) {
  auto step = do_install(std::move(install));
  co_return co_await std::move(step).shielded();
}

Task<Result<void>> Store::erase(TargetId target, ChunkId id) {
  auto step = do_erase(target, id);
  co_return co_await std::move(step).shielded();
}

}  // namespace ff::chunk
