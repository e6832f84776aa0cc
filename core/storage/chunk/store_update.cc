// store_update.cc: how versions come to be. The bytes are written first, to granules that no
// version has; then one transaction names them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "platform/io/alignment.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/aligned_bytes.h"
#include "storage/chunk/store.h"
#include "storage/chunk/store_claim.h"

namespace ff::chunk {

// Granules that lie together in a block, of the size that a class has.
struct Store::Stretch {
  BlockRef block;
  bool pieces = false;
  Class granules_of = 0;
  uint64_t first = 0;
  uint64_t count = 0;
  ByteView bytes;
};

// The granules of a new version that are written.
struct Store::Written {
  AlignedBytes own;    // where `bytes` lies, unless it is the caller's memory
  ByteView bytes;      // of the granules, up to the chunk's end, and zeros up to direct alignment
  CrcsRef block_crcs;  // of the version's block
  std::vector<Stretch> stretches;
};

namespace {

// CRC32C of the whole version from those of its granules.
uint32_t whole_checksum(const Image& image, const Crcs& crcs) {
  uint32_t checksum = 0;
  for (uint64_t granule = 0; granule < image.granules(); ++granule) {
    checksum = simd::crc32c_combine(checksum, image.crc(granule, crcs), image.bytes_in(granule));
  }
  return checksum;
}

// The same for a version that has other bytes than its base in some granules, and is as long: the
// checksum is the sum (exclusive or) of what each granule adds to it by what comes behind it.
uint32_t changed_checksum(const Image& base, const Image& image, const Plan& plan,
                          const Crcs& crcs) {
  uint32_t checksum = base.state.checksum;
  for (uint64_t granule = plan.first; granule < plan.end; ++granule) {
    const uint64_t end = std::min((granule + 1) * plan.granule(), image.state.length);
    checksum ^= simd::crc32c_combine(base.crc(granule, crcs) ^ image.crc(granule, crcs), 0,
                                     image.state.length - end);
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

bool is_damaged(const Update& update, uint64_t offset, uint64_t size) {
  return std::ranges::any_of(update.damaged, [&](const Damage& at) {
    return at.offset < offset + size && offset < at.offset + at.length;
  });
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
      FF_CO_TRY(co_await read_image(base, begin, bytes.first(head - begin), false));
    }
    if (const uint64_t tail = std::max(plan.to, begin); tail < old_end) {
      FF_CO_TRY(
          co_await read_image(base, tail, bytes.subspan(tail - begin, old_end - tail), false));
    }
    if (!update.data.empty()) {
      std::memcpy(bytes.data() + (plan.to - update.data.size() - begin), update.data.data(),
                  update.data.size());
    }
  }
  co_return Result<void>();
}

// Slots first, then the block's own granules. From here on they are used up, whatever becomes of
// the version.
void Store::use_up(const Plan& plan, Image& image, Written& written) {
  const uint64_t cut = std::min<uint64_t>(plan.slots * plan.granule(), written.bytes.size());
  if (plan.slots > 0) {
    written.stretches.push_back({.block = image.piece_block,
                                 .pieces = true,
                                 .granules_of = plan.of,
                                 .first = image.piece_block->filled,
                                 .count = plan.slots,
                                 .bytes = written.bytes.first(cut)});
    image.piece_block->filled += plan.slots;
  }
  if (const uint64_t first = plan.first + plan.slots; first < plan.end) {
    written.stretches.push_back({.block = image.block,
                                 .granules_of = plan.of,
                                 .first = first,
                                 .count = plan.end - first,
                                 .bytes = written.bytes.subspan(cut)});
    image.block->filled = plan.end;
  }
}

// Makes the checksums of the granules, and that of the version; stores those of the granules. Those
// of damaged ones do not match.
Task<Result<void>> Store::store_checksums(const Image& base, const Plan& plan, const Update& update,
                                          const Written& written, Image& image) {
  ByteView rest = written.bytes.first(plan.end_byte() - plan.begin_byte());
  uint64_t offset = plan.begin_byte();
  // The new pieces lie together among those of the image.
  const auto first_piece = std::ranges::lower_bound(image.pieces, plan.first, {}, &Piece::granule);
  auto piece_at = static_cast<size_t>(first_piece - image.pieces.begin());
  for (const Stretch& stretch : written.stretches) {
    for (uint64_t i = 0; i < stretch.count; ++i) {
      const ByteView granule = rest.first(std::min<uint64_t>(plan.granule(), rest.size()));
      const uint32_t crc = simd::crc32c(granule);
      uint32_t& stored =
          stretch.pieces ? image.pieces[piece_at++].crc : (*written.block_crcs)[stretch.first + i];
      stored = is_damaged(update, offset, granule.size()) ? ~crc : crc;
      offset += granule.size();
      rest = rest.subspan(granule.size());
    }
  }
  // Granules that only pieces replace have their old checksums beside the new ones.
  const bool pieces = plan.first + plan.slots == plan.end && base.state.length == plan.length;
  image.state.checksum = pieces ? changed_checksum(base, image, plan, *written.block_crcs)
                                : whole_checksum(image, *written.block_crcs);
  if (!update.damaged.empty()) image.state.checksum = update.checksum.value_or(0);
  if (update.checksum && *update.checksum != image.state.checksum) {
    co_return wrong_checksum(update, image.state.checksum);
  }
  for (const Stretch& stretch : written.stretches) {
    if (stretch.pieces) continue;
    FF_CO_TRY(co_await blocks_.store_crcs(stretch.block, written.block_crcs, stretch.first,
                                          stretch.count));
  }
  co_return Result<void>();
}

Task<Result<void>> Store::write_bytes(const Written& written) {
  for (const Stretch& stretch : written.stretches) {
    const uint64_t offset = stretch.first * granule_bytes(stretch.granules_of);
    FF_CO_TRY(co_await blocks_.write(stretch.block, offset, stretch.bytes));
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
  if (!plan.whole && (Blocks::lost(base.block) || Blocks::lost(base.piece_block))) {
    co_return fail(Errc::corrupt,
                   "{}: what version {} of chunk {} of target {} builds upon is lost", dir(),
                   update.version, to_string(update.id), update.target);
  }
  // Blocks, and the CRCs they have; these are held, so that nobody drops what is added here.
  Written written;
  if (plan.whole) {
    FF_CO_TRY(image.block, blocks_.allocate(plan.of));
    written.block_crcs = blocks_.new_crcs(image.block);
  } else {
    FF_CO_TRY(written.block_crcs, co_await blocks_.crcs(base.block));
    image.block = base.block;
    image.piece_block = base.piece_block;
    if (plan.slots > 0 && !image.piece_block) {
      FF_CO_TRY(image.piece_block, blocks_.allocate(piece_class(plan.of)));
    }
    image.pieces = pieces_of(base, plan, shape.slots);
  }
  if (plan.first < plan.end) {
    FF_CO_TRY(co_await stage(base, update, plan, written));
    use_up(plan, image, written);
  }
  // The disk works on the bytes while their checksums are made: the gate's task begins when this
  // one waits. Either way both end before this does.
  Result<void> stored;
  Gate beside(options_.loop);
  beside.spawn([](Task<Result<void>> storing, Result<void>& result) -> Task<void> {
    result = co_await std::move(storing);
  }(store_checksums(base, plan, update, written, image), stored));
  auto wrote = co_await write_bytes(written);
  co_await beside.wait_empty();
  FF_CO_TRY(std::move(wrote));
  FF_CO_TRY(std::move(stored));
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
  FF_CO_TRY(Image image, co_await make_image(now.committed, update));
  const bool at_once = update.committed_under.has_value();
  const int64_t wall_ns = options_.loop.clock().wall_ns();
  const ChannelResult result{.sequence = update.writer.sequence,
                             .id = update.id,
                             .image = image.state,
                             .committed = at_once,
                             .used_ns = wall_ns};
  Versions next;
  if (at_once) {
    next.chain_version = *update.committed_under;
    next.removed_ns = image.state.removed ? wall_ns : 0;
    next.committed = std::move(image);
  } else {
    next.committed = now.committed;
    next.chain_version = now.chain_version;
    next.removed_ns = now.removed_ns;
    next.pending = std::make_unique<Versions::Pending>();
    next.pending->image = std::move(image);
    next.pending->writer = update.writer;
  }
  RowChanges more;
  claimed.changes(update.writer);
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
  claimed.changes(writer);
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
                      .checksum = install.state.checksum,
                      .damaged = install.damaged};
  Versions next;
  const Image none;
  FF_CO_TRY(next.committed, co_await make_image(none, update));
  next.chain_version = install.chain_version;
  const int64_t wall_ns = options_.loop.clock().wall_ns();
  next.removed_ns = install.state.removed ? wall_ns : 0;
  ChannelResult result;
  RowChanges more;
  if (install.writer) {
    result = {.sequence = install.writer->sequence,
              .id = install.id,
              .image = next.committed.state,
              .committed = true,
              .used_ns = wall_ns};
    claimed.changes(*install.writer);
    more.push_back(result_row(install.target, *install.writer, result));
  }
  FF_CO_TRY(co_await put(claimed, std::move(next), std::move(more)));
  if (install.writer) {
    claimed.target().channels[{install.writer->client, install.writer->channel}] = result;
  }
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
