// record.cc: rows as bytes and back. Whatever the bytes are, decoding them is safe, and what it
// accepts keeps the rules that the rest of the store relies on: lengths that fit their blocks,
// pieces that lie in theirs.
#include "storage/chunk/record.h"

#include <utility>

namespace ff::chunk {
namespace {

constexpr uint8_t kFormat = 2;
constexpr uint8_t kHasPending = 1;
constexpr uint8_t kRemoved = 1;
constexpr uint8_t kHasBlock = 2;
constexpr uint8_t kHasPieces = 4;
constexpr uint8_t kResultCommitted = 1;
constexpr uint8_t kResultRemoved = 2;
constexpr uint8_t kTargetRemoving = 1;
constexpr uint8_t kTargetLossy = 2;

void put(std::string& out, const Place& place) {
  append_le(out, place.of);
  append_le(out, static_cast<uint32_t>(place.number));
}

void put(std::string& out, const ImageRecord& image) {
  uint8_t flags = image.state.removed ? kRemoved : 0;
  if (image.block) flags |= kHasBlock;
  if (image.piece_block) flags |= kHasPieces;
  append_le(out, image.state.version);
  append_le(out, static_cast<uint32_t>(image.state.length));
  append_le(out, image.state.checksum);
  append_le(out, flags);
  if (image.block) put(out, *image.block);
  if (!image.piece_block) return;
  put(out, *image.piece_block);
  append_le(out, static_cast<uint8_t>(image.pieces.size()));
  for (const Piece& piece : image.pieces) {
    append_le(out, piece.granule);
    append_le(out, piece.slot);
    append_le(out, piece.crc);
  }
}

// Takes fields off the front; past the end all are 0 and `sound` is false.
struct Fields {
  std::string_view left;
  bool sound = true;

  template <class T>
  T get() {
    if (left.size() < sizeof(T)) {
      sound = false;
      return 0;
    }
    const T value = load_le<T>(as_bytes(left).data());
    left.remove_prefix(sizeof(T));
    return value;
  }
  Place place() {
    const auto of = get<uint8_t>();
    const uint64_t number = get<uint32_t>();
    sound &= of < kClasses && number < kFileMax / block_bytes(of);
    return {.of = of, .number = number};
  }
  uint8_t flags(uint8_t known) {
    const auto value = get<uint8_t>();
    sound &= (value & ~known) == 0;
    return value;
  }
  bool done() const { return sound && left.empty(); }
};

// The second block, its pieces in ascending order, all within both blocks.
bool get_pieces(Fields& from, ImageRecord& image) {
  image.piece_block = from.place();
  const size_t count = from.get<uint8_t>();
  if (!from.sound || !image.block || !has_pieces(image.block->of) || count > kPieces ||
      image.piece_block->of != piece_class(image.block->of)) {
    return false;
  }
  const uint64_t granule = granule_bytes(image.block->of);
  uint64_t slots = 0;
  for (size_t i = 0; i < count; ++i) {
    const Piece piece{
        .granule = from.get<uint8_t>(), .slot = from.get<uint8_t>(), .crc = from.get<uint32_t>()};
    if (i > 0 && piece.granule <= image.pieces.back().granule) return false;
    if (piece.slot >= kPieces || piece.granule * granule >= image.state.length) return false;
    if ((slots >> piece.slot & 1) != 0) return false;
    slots |= uint64_t{1} << piece.slot;
    image.pieces.push_back(piece);
  }
  return from.sound;
}

bool get_image(Fields& from, ImageRecord& image) {
  image.state.version = from.get<uint64_t>();
  image.state.length = from.get<uint32_t>();
  image.state.checksum = from.get<uint32_t>();
  const uint8_t flags = from.flags(kRemoved | kHasBlock | kHasPieces);
  image.state.removed = (flags & kRemoved) != 0;
  if ((flags & kHasBlock) != 0) image.block = from.place();
  if (!from.sound) return false;
  const uint64_t room = image.block ? block_bytes(image.block->of) : 0;
  if (image.state.length > room) return false;
  if (image.block && (image.state.length == 0 || image.state.removed)) return false;
  if (image.state.version == 0 && (image.block || image.state.removed)) return false;
  return (flags & kHasPieces) == 0 || get_pieces(from, image);
}

Error corrupt(std::string_view what) {
  return fail(Errc::corrupt, "{} does not follow its format", what);
}

}  // namespace

std::string encode(const Record& record) {
  std::string out;
  append_le(out, kFormat);
  append_le(out, record.pending ? kHasPending : uint8_t{0});
  put(out, record.committed);
  append_le(out, record.chain_version);
  append_le(out, record.removed_ns);
  if (!record.pending) return out;
  put(out, record.pending->image);
  append_le(out, record.pending->writer.client);
  append_le(out, record.pending->writer.channel);
  append_le(out, record.pending->writer.sequence);
  return out;
}

Result<Record> decode_record(std::string_view bytes) {
  Fields from{bytes};
  const auto format = from.get<uint8_t>();
  if (from.sound && format > kFormat) {
    return fail(Errc::newer_format, "a chunk's row has format {}, this ff knows {}", format,
                kFormat);
  }
  Record record;
  const uint8_t flags = from.flags(kHasPending);
  if (format != kFormat || !get_image(from, record.committed)) return corrupt("a chunk's row");
  record.chain_version = from.get<uint64_t>();
  record.removed_ns = from.get<int64_t>();
  if ((flags & kHasPending) != 0) {
    Record::Pending& pending = record.pending.emplace();
    if (!get_image(from, pending.image)) return corrupt("a chunk's row");
    pending.writer = {.client = from.get<uint64_t>(),
                      .channel = from.get<uint64_t>(),
                      .sequence = from.get<uint64_t>()};
    if (pending.image.state.version != record.committed.state.version + 1) {
      return corrupt("a chunk's row");
    }
  }
  if (!from.done() || (record.committed.state.version == 0 && !record.pending)) {
    return corrupt("a chunk's row");
  }
  return record;
}

std::string encode(const ChannelResult& result) {
  uint8_t flags = result.committed ? kResultCommitted : 0;
  if (result.image.removed) flags |= kResultRemoved;
  std::string out;
  append_le(out, result.sequence);
  append_le(out, result.id.inode);
  append_le(out, result.id.index);
  append_le(out, result.image.version);
  append_le(out, result.image.length);
  append_le(out, result.image.checksum);
  append_le(out, flags);
  append_le(out, result.used_ns);
  return out;
}

Result<ChannelResult> decode_result(std::string_view bytes) {
  Fields from{bytes};
  ChannelResult result;
  result.sequence = from.get<uint64_t>();
  result.id.inode = from.get<uint64_t>();
  result.id.index = from.get<uint64_t>();
  result.image.version = from.get<uint64_t>();
  result.image.length = from.get<uint64_t>();
  result.image.checksum = from.get<uint32_t>();
  const uint8_t flags = from.flags(kResultCommitted | kResultRemoved);
  result.committed = (flags & kResultCommitted) != 0;
  result.image.removed = (flags & kResultRemoved) != 0;
  result.used_ns = from.get<int64_t>();
  if (!from.done()) return corrupt("a channel's row");
  return result;
}

std::string encode(const TargetRecord& target) {
  std::string out;
  append_le(out, target.chain);
  append_le(out, target.state);
  const int flags = (target.removing ? kTargetRemoving : 0) | (target.lossy ? kTargetLossy : 0);
  append_le(out, static_cast<uint8_t>(flags));
  return out;
}

Result<TargetRecord> decode_target(std::string_view bytes) {
  Fields from{bytes};
  TargetRecord target;
  target.chain = from.get<uint64_t>();
  target.state = from.get<uint64_t>();
  const uint8_t flags = from.flags(kTargetRemoving | kTargetLossy);
  target.removing = (flags & kTargetRemoving) != 0;
  target.lossy = (flags & kTargetLossy) != 0;
  if (!from.done()) return corrupt("a target's row");
  return target;
}

std::string to_string(const ChunkId& id) { return fmt::format("{}.{}", id.inode, id.index); }

}  // namespace ff::chunk
