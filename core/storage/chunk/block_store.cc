// block_store.cc: data files of the size classes, allocation, and the CRC cache.
#include "storage/chunk/block_store.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/io/files.h"

namespace ff::chunk {
namespace {

// Allocation stops when this share of the disk is used; the rest is for metadata and for operations
// that free space.
constexpr uint64_t kFullPercent = 98;

// Limit of dirty data per size class between two syncs: the kernel throttles writers that exceed
// its own limit.
constexpr uint64_t kBufferedBytesMax = 64 * kMiB;

constexpr uint64_t crc_bytes(SizeClass size_class) {
  return checksum_units(size_class) * sizeof(uint32_t);
}

ByteSpan bytes_of(Crcs& crcs, uint64_t first, uint64_t count) {
  return std::as_writable_bytes(std::span(crcs).subspan(first, count));
}

}  // namespace

BlockRef::~BlockRef() {
  if (block_ != nullptr && --block_->references_ == 0) block_->owner_.release(*block_);
}

BlockStore::BlockStore(io::Disk& disk, std::string dir, bool direct, uint64_t buffered_write_max,
                       uint64_t crc_cache_bytes, io::AsyncQueue& queue)
    : disk_(disk),
      dir_(std::move(dir)),
      direct_(direct),
      buffered_write_max_(buffered_write_max),
      crc_cache_bytes_(crc_cache_bytes),
      queue_(queue) {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class)
    files_[size_class] = std::make_unique<Files>(size_class);
}

BlockStore::~BlockStore() { FF_CHECK(cached_.empty()); }

std::string BlockStore::data_path(SizeClass size_class) const {
  return io::join(dir_, class_name(size_class) + ".data");
}

// Opens the data file and the CRC file.
Result<void> BlockStore::open_files(SizeClass size_class, bool create) {
  FF_TRY(auto data, disk_.open(data_path(size_class), {.access = io::AccessMode::read_write,
                                                       .create = create,
                                                       .direct = direct_,
                                                       .mode = 0600}));
  const std::string crc_path = io::join(dir_, class_name(size_class) + ".crc");
  FF_TRY(const bool had_crc, io::exists(disk_, crc_path));
  FF_TRY(
      auto crc,
      disk_.open(crc_path, {.access = io::AccessMode::read_write, .create = true, .mode = 0600}));
  std::unique_ptr<io::File> buffered_data;
  if (data->direct()) {
    FF_TRY(buffered_data,
           disk_.open(data_path(size_class), {.access = io::AccessMode::read_write}));
  }
  // A power loss while both were created may have left only the data file.
  if (create || !had_crc) FF_TRY(disk_.sync_dir(dir_));
  FF_TRY(const io::FileInfo info, data->info());
  Files& own = files(size_class);
  own.data = std::move(data);
  own.buffered_data = std::move(buffered_data);
  own.crc = std::move(crc);
  own.blocks = info.size / block_bytes(size_class);
  return {};
}

Result<void> BlockStore::open() {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    FF_TRY(const bool there, io::exists(disk_, data_path(size_class)));
    if (!there) continue;
    FF_TRY(open_files(size_class, false));
    Files& own = files(size_class);
    FF_TRY(const io::FileInfo data, own.data->info());
    FF_TRY(const io::FileInfo crc, own.crc->info());
    own.data_size_at_open = data.size;
    own.crc_size_at_open = crc.size;
  }
  return {};
}

// Extends the data file to the end of this group.
Result<void> BlockStore::grow(SizeClass size_class, uint64_t group) {
  Files& own = files(size_class);
  if (!own.data) FF_TRY(open_files(size_class, true));
  const uint64_t end = (group + 1) * group_bytes(size_class);
  if (own.blocks >= end / block_bytes(size_class)) return {};
  FF_TRY(own.data->truncate(end));  // before any write: a write that extends a file is slow
  own.blocks = end / block_bytes(size_class);
  own.dirty = true;
  return {};
}

Result<void> BlockStore::load_detached(BlockLocation location) {
  if (files(location.size_class).bitmap.mark_used(location.number)) return {};
  return fail(Errc::corrupt, "{}: two chunks reference block {}", data_path(location.size_class),
              location.number);
}

bool BlockStore::is_stored(BlockLocation location, uint64_t filled) const {
  const Files& own = *files_[location.size_class];
  const uint64_t data_end = location.offset() + filled * checksum_unit_bytes(location.size_class);
  const uint64_t crc_end =
      location.number * crc_bytes(location.size_class) + filled * sizeof(uint32_t);
  return data_end <= own.data_size_at_open && crc_end <= own.crc_size_at_open;
}

BlockRef BlockStore::attach(BlockLocation location, uint64_t filled) {
  BlockRef block(*new Block(*this, location));
  block->filled = static_cast<uint16_t>(filled);
  return block;
}

bool BlockStore::detach(BlockRef& block) {
  if (block->references_ > 1 || block->suspect || block->lost_ || block->crcs_) return false;
  delete std::exchange(block.block_, nullptr);
  return true;
}

Result<BlockRef> BlockStore::load_block(BlockLocation location, uint64_t filled,
                                        std::optional<SizeClass> overlays_of) {
  FF_TRY(load_detached(location));
  BlockRef block(*new Block(*this, location));
  update_filled(*block, filled, overlays_of);
  return block;
}

void BlockStore::update_filled(Block& block, uint64_t filled,
                               std::optional<SizeClass> overlays_of) {
  block.filled = std::max(block.filled, static_cast<uint16_t>(filled));
  const BlockLocation location = block.location;
  const Files& own = files(location.size_class);
  // The CRCs of overlays are in the metadata.
  const uint64_t data_end =
      location.offset() + filled * checksum_unit_bytes(overlays_of.value_or(location.size_class));
  const uint64_t crc_end =
      overlays_of ? 0
                  : location.number * crc_bytes(location.size_class) + filled * sizeof(uint32_t);
  block.lost_ |= data_end > own.data_size_at_open || crc_end > own.crc_size_at_open;
  block.suspect |= block.lost_;
}

void BlockStore::punch_unused_groups() {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    const uint64_t groups = files(size_class).blocks / group_blocks(size_class);
    for (const auto& [first, last] : files(size_class).bitmap.unreserved_ranges(groups))
      punch(size_class, first, last);
  }
}

// Best effort: a range that is not punched is still reused.
void BlockStore::punch(SizeClass size_class, uint64_t first, uint64_t last) {
  if (!files(size_class).data) return;
  (void)files(size_class)
      .data->punch_hole(first * group_bytes(size_class), (last - first) * group_bytes(size_class));
}

// Whether the file system has space for another group.
Result<void> BlockStore::check_space(SizeClass size_class) {
  FF_TRY(const io::Space space, disk_.space(dir_));
  if (space.free >= group_bytes(size_class) + space.total / 100 * (100 - kFullPercent)) return {};
  Error error = fail(Errc::disk_full, "{}: the disk is full ({} % used)", dir_, kFullPercent);
  error.hint = "Remove files, or add disks and move targets to them.";
  return error;
}

Result<void> BlockStore::add_group(SizeClass size_class) {
  auto room = check_space(size_class);
  if (!room && room.error().code == Errc::disk_full) {
    // Empty groups that other classes keep for later.
    for (SizeClass other = 0; other < kSizeClasses; ++other) release_groups(other, 0);
    room = check_space(size_class);
  }
  FF_TRY(std::move(room));
  Files& own = files(size_class);
  const uint64_t group = own.bitmap.first_unreserved_group();
  FF_TRY(grow(size_class, group));
  FF_TRY(own.data->reserve(group * group_bytes(size_class), group_bytes(size_class)));
  own.dirty = true;
  own.bitmap.reserve_group(group);
  return {};
}

Result<BlockRef> BlockStore::allocate(SizeClass size_class) {
  auto number = files(size_class).bitmap.allocate();
  if (!number) {
    FF_TRY(add_group(size_class));
    number = files(size_class).bitmap.allocate();
  }
  // The file may end before a reserved group when its blocks were lost.
  const auto grown = grow(size_class, *number / group_blocks(size_class));
  if (!grown) {
    files(size_class).bitmap.free(*number);
    return grown.error();
  }
  return BlockRef(*new Block(*this, {.size_class = size_class, .number = *number}));
}

Error BlockStore::missing(const Block& block) const {
  return fail(Errc::corrupt, "{}: the file ends before the end of block {}",
              data_path(block.location.size_class), block.location.number);
}

CrcsRef BlockStore::new_crcs(const BlockRef& block) {
  cache(*block, std::make_shared<Crcs>(checksum_units(block->location.size_class)));
  return block->crcs_;
}

void BlockStore::release(Block& block) {
  freed_.push_back({epoch_, block.location});
  if (block.crcs_) cached_bytes_ -= crc_bytes(block.location.size_class);
  delete &block;
}

void BlockStore::reclaim(uint64_t epoch) {
  std::array<bool, kSizeClasses> touched{};
  while (!freed_.empty() && freed_.front().epoch <= epoch) {
    const BlockLocation location = freed_.front().location;
    freed_.pop_front();
    files(location.size_class).bitmap.free(location.number);
    touched[location.size_class] = true;
  }
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    if (touched[size_class]) release_groups(size_class, 1);
  }
}

// Gives empty groups back to the file system, except `kept` of them.
void BlockStore::release_groups(SizeClass size_class, size_t kept) {
  for (const uint64_t group : files(size_class).bitmap.empty_groups(kept)) {
    files(size_class).bitmap.release_group(group);
    punch(size_class, group, group + 1);
  }
}

Task<Result<void>> BlockStore::write(BlockRef block, uint64_t offset, ByteView from) {
  Files& own = files(block->location.size_class);
  FF_CHECK(offset + from.size() <= block_bytes(block->location.size_class));
  const uint64_t at = block->location.offset() + offset;
  if (from.size() <= buffered_write_max_ && own.buffered_bytes < kBufferedBytesMax) {
    own.dirty = true;
    own.buffered_bytes += from.size();
    block->in_page_cache_ = true;
    co_return own.buffered().write_at(from, at);
  }
  auto written = co_await queue_.write(*own.data, from, at);
  own.dirty = true;
  co_return written;
}

Task<Result<void>> BlockStore::read(BlockRef block, uint64_t offset, ByteSpan into) {
  FF_CHECK(offset + into.size() <= block_bytes(block->location.size_class));
  Files& own = files(block->location.size_class);
  if (!own.data) co_return missing(*block);
  if (block->in_page_cache_ && into.size() <= buffered_write_max_) {
    const auto hit = own.buffered().read_cached(into, block->location.offset() + offset);
    if (hit && *hit) co_return Result<void>();
  }
  io::File& data = *own.data;
  auto got = co_await queue_.read(data, into, block->location.offset() + offset);
  if (!got) co_return std::move(got).error();
  if (*got < into.size()) co_return missing(*block);
  co_return Result<void>();
}

// When the cache is full, evicts CRCs that no task holds.
void BlockStore::cache(Block& block, CrcsRef crcs) {
  const size_t most = 8;  // entries checked per insertion: all may be in use
  for (size_t i = 0; i < most && cached_bytes_ > crc_cache_bytes_; ++i) {
    Block& oldest = cached_.pop_front();
    if (oldest.crcs_.use_count() > 1) {
      cached_.push_back(oldest);
      continue;
    }
    oldest.crcs_.reset();
    cached_bytes_ -= crc_bytes(oldest.location.size_class);
  }
  block.crcs_ = std::move(crcs);
  cached_bytes_ += crc_bytes(block.location.size_class);
  cached_.push_back(block);
}

Task<Result<CrcsRef>> BlockStore::crcs(BlockRef block) {
  if (!block->crcs_) {
    const SizeClass size_class = block->location.size_class;
    auto loaded = std::make_shared<Crcs>(checksum_units(size_class));
    const ByteSpan into = bytes_of(*loaded, 0, checksum_units(size_class));
    // CRCs beyond the end of the file were never stored, or are lost; they stay 0.
    io::File* const crc = files(size_class).crc.get();
    if (crc != nullptr) {
      auto got = co_await queue_.read(*crc, into, block->location.number * crc_bytes(size_class));
      if (!got) co_return std::move(got).error();
    }
    // Another task may have loaded them meanwhile and changed them.
    if (!block->crcs_) cache(*block, std::move(loaded));
  } else {
    block->unlink();
    cached_.push_back(*block);
  }
  co_return block->crcs_;
}

Task<Result<void>> BlockStore::store_crcs(BlockRef block, CrcsRef crcs, uint64_t first,
                                          uint64_t count) {
  Files& own = files(block->location.size_class);
  const uint64_t offset = block->location.number * crc_bytes(block->location.size_class);
  const ByteView from = bytes_of(*crcs, first, count);
  const uint64_t at = offset + first * sizeof(uint32_t);
  if (count <= buffered_write_max_ / kChecksumUnitMin) {
    own.dirty = true;
    co_return own.crc->write_at(from, at);
  }
  auto written = co_await queue_.write(*own.crc, from, at);
  own.dirty = true;
  co_return written;
}

Task<Result<void>> BlockStore::sync() {
  for (const auto& own : files_) {
    if (!std::exchange(own->dirty, false)) continue;
    own->buffered_bytes = 0;
    for (io::File* const file : {own->data.get(), own->crc.get()}) {
      auto synced = co_await queue_.sync(*file);
      if (synced) continue;
      // After a failed fsync the data may be lost, and the next fsync would not report it.
      synced.error().code = Errc::failed;
      co_return synced;
    }
  }
  co_return Result<void>();
}

Task<Result<void>> BlockStore::sync_all() {
  for (const auto& own : files_) own->dirty = own->data != nullptr;
  return sync();
}

bool BlockStore::direct() const {
  return std::ranges::all_of(files_,
                             [](const auto& own) { return !own->data || own->data->direct(); });
}

std::vector<SizeClassUsage> BlockStore::usage() const {
  std::vector<SizeClassUsage> all;
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    const BlockBitmap& bitmap = files_[size_class]->bitmap;
    if (bitmap.reserved_bytes() == 0) continue;
    all.push_back({.size_class = size_class,
                   .used_blocks = bitmap.used_blocks(),
                   .reserved_bytes = bitmap.reserved_bytes()});
  }
  return all;
}

}  // namespace ff::chunk
