// chunk_record.cc: encoding and decoding of rows. Decoding arbitrary bytes is safe, and accepted
// rows satisfy the invariants of the store: lengths fit their blocks, overlays fit theirs.
#include "storage/chunk/chunk_record.h"

#include <utility>

namespace ff::chunk {
namespace {

constexpr uint8_t kFormat = 2;
constexpr uint8_t kFormatLogged = 3;
constexpr uint8_t kHasPending = 1;
constexpr uint8_t kRemoved = 1;
constexpr uint8_t kHasBlock = 2;
constexpr uint8_t kHasOverlay = 4;
constexpr uint8_t kHasLogged = 8;
constexpr uint8_t kLoggedCommitted = 1;
constexpr uint8_t kLoggedPending = 2;
constexpr uint8_t kLoggedPendingData = 4;
constexpr uint8_t kResultCommitted = 1;
constexpr uint8_t kResultRemoved = 2;
constexpr uint8_t kTargetRemoving = 1;
constexpr uint8_t kTargetPowerLost = 2;

void put(std::string& out, const BlockLocation& location) {
  append_le(out, location.size_class);
  append_le(out, static_cast<uint32_t>(location.number));
}

void put_overlays(std::string& out, const VersionRecord& version) {
  put(out, *version.overlay_block);
  append_le(out, static_cast<uint8_t>(version.overlays.size()));
  for (const Overlay& overlay : version.overlays) {
    append_le(out, overlay.unit);
    append_le(out, overlay.slot);
    append_le(out, overlay.crc);
  }
}

void put_data(std::string& out, const LoggedUnit& logged) {
  append_le(out, logged.crc);
  append_le(out, logged.lsn);
}

void put(std::string& out, const VersionRecord& version) {
  uint8_t flags = version.state.removed ? kRemoved : 0;
  if (version.block) flags |= kHasBlock;
  if (version.overlay_block) flags |= kHasOverlay;
  if (!version.logged.empty()) flags |= kHasLogged;
  append_le(out, version.state.version);
  append_le(out, static_cast<uint32_t>(version.state.length));
  append_le(out, version.state.checksum);
  append_le(out, flags);
  if (version.block) put(out, *version.block);
  if (version.overlay_block) put_overlays(out, version);
  if (version.logged.empty()) return;
  append_le(out, static_cast<uint16_t>(version.logged.size()));
  for (const LoggedUnit& logged : version.logged) {
    append_le(out, logged.unit);
    put_data(out, logged);
  }
}

bool has_logged(const ChunkRecord& record) {
  return !record.committed.logged.empty() ||
         (record.pending && !record.pending->version.logged.empty());
}

// Reads fields from the front; past the end all are 0 and `sound` is false.
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
  BlockLocation location() {
    const auto size_class = get<uint8_t>();
    const uint64_t number = get<uint32_t>();
    sound &= size_class < kSizeClasses && number < kFileMax / block_bytes(size_class);
    return {.size_class = size_class, .number = number};
  }
  LoggedUnit data(uint8_t unit) {
    const auto crc = get<uint32_t>();
    return {.unit = unit, .crc = crc, .lsn = get<uint64_t>()};
  }
  uint8_t flags(uint8_t known) {
    const auto value = get<uint8_t>();
    sound &= (value & ~known) == 0;
    return value;
  }
  bool done() const { return sound && left.empty(); }
};

// The overlay block and its overlays in ascending order, all within both blocks.
bool get_overlays(Fields& from, VersionRecord& version) {
  version.overlay_block = from.location();
  const size_t count = from.get<uint8_t>();
  if (!from.sound || !version.block || !has_overlay(version.block->size_class) ||
      count > kOverlaySlots ||
      version.overlay_block->size_class != overlay_class(version.block->size_class)) {
    return false;
  }
  const uint64_t unit_bytes = checksum_unit_bytes(version.block->size_class);
  uint64_t slots = 0;
  for (size_t i = 0; i < count; ++i) {
    const Overlay overlay{
        .unit = from.get<uint8_t>(), .slot = from.get<uint8_t>(), .crc = from.get<uint32_t>()};
    if (i > 0 && overlay.unit <= version.overlays.back().unit) return false;
    if (overlay.slot >= kOverlaySlots || overlay.unit * unit_bytes >= version.state.length)
      return false;
    if ((slots >> overlay.slot & 1) != 0) return false;
    slots |= uint64_t{1} << overlay.slot;
    version.overlays.push_back(overlay);
  }
  return from.sound;
}

bool get_logged(Fields& from, VersionRecord& version) {
  const size_t count = from.get<uint16_t>();
  if (!from.sound || !version.block || count == 0) return false;
  const uint64_t unit_bytes = checksum_unit_bytes(version.block->size_class);
  for (size_t i = 0; i < count; ++i) {
    const LoggedUnit logged = from.data(from.get<uint8_t>());
    if (i > 0 && logged.unit <= version.logged.back().unit) return false;
    if (!from.sound || logged.unit * unit_bytes >= version.state.length) return false;
    version.logged.push_back(logged);
  }
  return true;
}

bool get_version(Fields& from, VersionRecord& version) {
  version.state.version = from.get<uint64_t>();
  version.state.length = from.get<uint32_t>();
  version.state.checksum = from.get<uint32_t>();
  const uint8_t flags = from.flags(kRemoved | kHasBlock | kHasOverlay | kHasLogged);
  version.state.removed = (flags & kRemoved) != 0;
  if ((flags & kHasBlock) != 0) version.block = from.location();
  if (!from.sound) return false;
  const uint64_t room = version.block ? block_bytes(version.block->size_class) : 0;
  if (version.state.length > room) return false;
  if (version.block && (version.state.length == 0 || version.state.removed)) return false;
  if (version.state.version == 0 && (version.block || version.state.removed)) return false;
  if ((flags & kHasOverlay) != 0 && !get_overlays(from, version)) return false;
  return (flags & kHasLogged) == 0 || get_logged(from, version);
}

Error corrupt(std::string_view what) { return fail(Errc::corrupt, "{} is malformed", what); }

}  // namespace

std::string encode(const ChunkRecord& record) {
  std::string out;
  append_le(out, has_logged(record) ? kFormatLogged : kFormat);
  append_le(out, record.pending ? kHasPending : uint8_t{0});
  put(out, record.committed);
  append_le(out, record.chain_version);
  append_le(out, record.removed_ns);
  if (!record.pending) return out;
  put(out, record.pending->version);
  append_le(out, record.pending->request_id.client);
  append_le(out, record.pending->request_id.channel);
  append_le(out, record.pending->request_id.sequence);
  return out;
}

Result<ChunkRecord> decode_record(std::string_view bytes) {
  Fields from{bytes};
  const auto format = from.get<uint8_t>();
  if (from.sound && format > kFormatLogged) {
    return fail(Errc::newer_format, "a chunk's row has format {}, and this ff supports {}", format,
                kFormatLogged);
  }
  ChunkRecord record;
  const uint8_t flags = from.flags(kHasPending);
  if (format < kFormat || !get_version(from, record.committed)) return corrupt("a chunk's row");
  record.chain_version = from.get<uint64_t>();
  record.removed_ns = from.get<int64_t>();
  if ((flags & kHasPending) != 0) {
    ChunkRecord::Pending& pending = record.pending.emplace();
    if (!get_version(from, pending.version)) return corrupt("a chunk's row");
    pending.request_id = {.client = from.get<uint64_t>(),
                          .channel = from.get<uint64_t>(),
                          .sequence = from.get<uint64_t>()};
    if (pending.version.state.version != record.committed.state.version + 1) {
      return corrupt("a chunk's row");
    }
  }
  if (!from.done() || (record.committed.state.version == 0 && !record.pending) ||
      has_logged(record) != (format == kFormatLogged)) {
    return corrupt("a chunk's row");
  }
  return record;
}

std::string encode(const LoggedRecord& unit) {
  uint8_t flags = unit.committed ? kLoggedCommitted : 0;
  if (unit.pending) flags |= kLoggedPending;
  if (unit.pending && unit.pending->data) flags |= kLoggedPendingData;
  std::string out;
  append_le(out, flags);
  if (unit.committed) put_data(out, *unit.committed);
  if (unit.pending) append_le(out, unit.pending->version);
  if (unit.pending && unit.pending->data) put_data(out, *unit.pending->data);
  return out;
}

Result<LoggedRecord> decode_logged(uint8_t unit, std::string_view bytes) {
  Fields from{bytes};
  LoggedRecord record;
  const uint8_t flags = from.flags(kLoggedCommitted | kLoggedPending | kLoggedPendingData);
  if ((flags & kLoggedCommitted) != 0) record.committed = from.data(unit);
  if ((flags & kLoggedPending) != 0) {
    record.pending.emplace().version = from.get<uint64_t>();
    if ((flags & kLoggedPendingData) != 0) record.pending->data = from.data(unit);
  }
  const bool any = record.committed || (record.pending && record.pending->data);
  const bool stray = (flags & kLoggedPendingData) != 0 && !record.pending;
  if (!from.done() || !any || stray) {
    return corrupt("the row of a chunk's unit in the log");
  }
  return record;
}

std::string encode(const ChannelResult& result) {
  uint8_t flags = result.committed ? kResultCommitted : 0;
  if (result.state.removed) flags |= kResultRemoved;
  std::string out;
  append_le(out, result.sequence);
  append_le(out, result.id.inode);
  append_le(out, result.id.index);
  append_le(out, result.state.version);
  append_le(out, result.state.length);
  append_le(out, result.state.checksum);
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
  result.state.version = from.get<uint64_t>();
  result.state.length = from.get<uint64_t>();
  result.state.checksum = from.get<uint32_t>();
  const uint8_t flags = from.flags(kResultCommitted | kResultRemoved);
  result.committed = (flags & kResultCommitted) != 0;
  result.state.removed = (flags & kResultRemoved) != 0;
  result.used_ns = from.get<int64_t>();
  if (!from.done()) return corrupt("a channel's row");
  return result;
}

std::string encode(const TargetRecord& target) {
  std::string out;
  append_le(out, target.chain);
  append_le(out, target.state);
  const int flags =
      (target.removing ? kTargetRemoving : 0) | (target.power_lost ? kTargetPowerLost : 0);
  append_le(out, static_cast<uint8_t>(flags));
  return out;
}

Result<TargetRecord> decode_target(std::string_view bytes) {
  Fields from{bytes};
  TargetRecord target;
  target.chain = from.get<uint64_t>();
  target.state = from.get<uint64_t>();
  const uint8_t flags = from.flags(kTargetRemoving | kTargetPowerLost);
  target.removing = (flags & kTargetRemoving) != 0;
  target.power_lost = (flags & kTargetPowerLost) != 0;
  if (!from.done()) return corrupt("a target's row");
  return target;
}

std::string to_string(const ChunkId& id) { return fmt::format("{}.{}", id.inode, id.index); }

}  // namespace ff::chunk
