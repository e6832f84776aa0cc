// blocks.cc: files of classes, allocation, and the cache of CRCs.
#include "storage/chunk/blocks.h"

#include <algorithm>
#include <utility>

#include "platform/base/check.h"
#include "platform/io/files.h"

namespace ff::chunk {
namespace {

// Of the disk, the metadata's share included: past it only what frees space may go on.
constexpr uint64_t kFullPercent = 98;

// In the page cache between two syncs, of a class: the kernel halts who writes much more.
constexpr uint64_t kInPagesMax = 64 * kMiB;

// CRCs kept in memory, of a disk: those of 64 GiB in chunks of 1 MiB.
constexpr uint64_t kCachedBytes = 64 * kMiB;

constexpr uint64_t crc_bytes(Class of) { return granules(of) * sizeof(uint32_t); }

ByteSpan bytes_of(Crcs& crcs, uint64_t first, uint64_t count) {
  return std::as_writable_bytes(std::span(crcs).subspan(first, count));
}

}  // namespace

BlockRef::~BlockRef() {
  if (block_ != nullptr && --block_->references_ == 0) block_->owner_.release(*block_);
}

Blocks::Blocks(io::Disk& disk, std::string dir, bool direct, uint64_t paged_max,
               io::AsyncQueue& queue)
    : disk_(disk), dir_(std::move(dir)), direct_(direct), paged_max_(paged_max), queue_(queue) {
  for (Class of = 0; of < kClasses; ++of) files_[of] = std::make_unique<Files>(of);
}

Blocks::~Blocks() { FF_CHECK(cached_.empty()); }

std::string Blocks::data_path(Class of) const { return io::join(dir_, class_name(of) + ".data"); }

// Both or none.
Result<void> Blocks::open_files(Class of, bool create) {
  FF_TRY(auto data, disk_.open(data_path(of), {.access = io::Access::read_write,
                                               .create = create,
                                               .direct = direct_,
                                               .mode = 0600}));
  const std::string crc_path = io::join(dir_, class_name(of) + ".crc");
  FF_TRY(const bool had_crc, io::exists(disk_, crc_path));
  FF_TRY(auto crc,
         disk_.open(crc_path, {.access = io::Access::read_write, .create = true, .mode = 0600}));
  std::unique_ptr<io::File> pages;
  if (data->direct()) {
    FF_TRY(pages, disk_.open(data_path(of), {.access = io::Access::read_write}));
  }
  // Power that was lost while both were made may have left the first alone.
  if (create || !had_crc) FF_TRY(disk_.sync_dir(dir_));
  FF_TRY(const io::FileInfo info, data->info());
  Files& own = files(of);
  own.data = std::move(data);
  own.pages = std::move(pages);
  own.crc = std::move(crc);
  own.blocks = info.size / block_bytes(of);
  return {};
}

Result<void> Blocks::open() {
  for (Class of = 0; of < kClasses; ++of) {
    FF_TRY(const bool there, io::exists(disk_, data_path(of)));
    if (!there) continue;
    FF_TRY(open_files(of, false));
    Files& own = files(of);
    FF_TRY(const io::FileInfo data, own.data->info());
    FF_TRY(const io::FileInfo crc, own.crc->info());
    own.found_data = data.size;
    own.found_crc = crc.size;
  }
  return {};
}

// Gives the file room for blocks up to this one, whole groups of them.
Result<void> Blocks::grow(Class of, uint64_t group) {
  Files& own = files(of);
  if (!own.data) FF_TRY(open_files(of, true));
  const uint64_t end = (group + 1) * group_bytes(of);
  if (own.blocks >= end / block_bytes(of)) return {};
  FF_TRY(own.data->truncate(end));  // before any write: one that grows a file is slow
  own.blocks = end / block_bytes(of);
  own.dirty = true;
  return {};
}

Result<BlockRef> Blocks::adopt(Place place, uint64_t filled, std::optional<Class> pieces_of) {
  if (!files(place.of).space.take(place.number)) {
    return fail(Errc::corrupt, "{}: two chunks have block {}", data_path(place.of), place.number);
  }
  BlockRef block(*new Block(*this, place));
  adopted(*block, filled, pieces_of);
  return block;
}

void Blocks::adopted(Block& block, uint64_t filled, std::optional<Class> pieces_of) {
  block.filled = std::max(block.filled, static_cast<uint16_t>(filled));
  const Place place = block.place;
  const Files& own = files(place.of);
  // The CRCs of pieces are in the metadata.
  const uint64_t data_end = place.offset() + filled * granule_bytes(pieces_of.value_or(place.of));
  const uint64_t crc_end =
      pieces_of ? 0 : place.number * crc_bytes(place.of) + filled * sizeof(uint32_t);
  block.lost_ |= data_end > own.found_data || crc_end > own.found_crc;
  block.doubted |= block.lost_;
}

void Blocks::drop_unused() {
  for (Class of = 0; of < kClasses; ++of) {
    const uint64_t groups = files(of).blocks / group_blocks(of);
    for (const auto& [first, last] : files(of).space.gaps(groups)) punch(of, first, last);
  }
}

// Best effort: what is not given back is used again all the same.
void Blocks::punch(Class of, uint64_t first, uint64_t last) {
  if (!files(of).data) return;
  (void)files(of).data->punch(first * group_bytes(of), (last - first) * group_bytes(of));
}

Result<void> Blocks::add_group(Class of) {
  FF_TRY(const io::Space space, disk_.space(dir_));
  if (space.free < group_bytes(of) + space.total / 100 * (100 - kFullPercent)) {
    Error error = fail(Errc::disk_full, "{}: the disk is full to {} %", dir_, kFullPercent);
    error.hint = "Remove files, or add disks and move targets to them.";
    return error;
  }
  Files& own = files(of);
  const uint64_t group = own.space.next_group();
  FF_TRY(grow(of, group));
  FF_TRY(own.data->reserve(group * group_bytes(of), group_bytes(of)));
  own.dirty = true;
  own.space.reserve(group);
  return {};
}

Result<BlockRef> Blocks::allocate(Class of) {
  auto number = files(of).space.allocate();
  if (!number) {
    FF_TRY(add_group(of));
    number = files(of).space.allocate();
  }
  // A group of blocks that were lost may have no file yet.
  const auto grown = grow(of, *number / group_blocks(of));
  if (!grown) {
    files(of).space.free(*number);
    return grown.error();
  }
  return BlockRef(*new Block(*this, {.of = of, .number = *number}));
}

Error Blocks::missing(const Block& block) const {
  return fail(Errc::corrupt, "{}: ends before or inside block {}", data_path(block.place.of),
              block.place.number);
}

CrcsRef Blocks::new_crcs(const BlockRef& block) {
  cache(*block, std::make_shared<Crcs>(granules(block->place.of)));
  return block->crcs_;
}

void Blocks::release(Block& block) {
  freed_.push_back({epoch_, block.place});
  if (block.crcs_) cached_bytes_ -= crc_bytes(block.place.of);
  delete &block;
}

void Blocks::settle(uint64_t epoch) {
  std::array<bool, kClasses> touched{};
  while (!freed_.empty() && freed_.front().epoch <= epoch) {
    const Place place = freed_.front().place;
    freed_.pop_front();
    files(place.of).space.free(place.number);
    touched[place.of] = true;
  }
  for (Class of = 0; of < kClasses; ++of) {
    if (!touched[of]) continue;
    for (const uint64_t group : files(of).space.spare_groups()) {
      files(of).space.drop(group);
      punch(of, group, group + 1);
    }
  }
}

Task<Result<void>> Blocks::write(BlockRef block, uint64_t offset, ByteView from) {
  Files& own = files(block->place.of);
  FF_CHECK(offset + from.size() <= block_bytes(block->place.of));
  const uint64_t at = block->place.offset() + offset;
  if (from.size() <= paged_max_ && own.in_pages < kInPagesMax) {
    own.dirty = true;
    own.in_pages += from.size();
    block->paged_ = true;
    co_return own.cached().write_at(from, at);
  }
  auto written = co_await queue_.write(*own.data, from, at);
  own.dirty = true;
  co_return written;
}

Task<Result<void>> Blocks::read(BlockRef block, uint64_t offset, ByteSpan into) {
  FF_CHECK(offset + into.size() <= block_bytes(block->place.of));
  Files& own = files(block->place.of);
  if (!own.data) co_return missing(*block);
  if (block->paged_ && into.size() <= paged_max_) {
    const auto cached = own.cached().read_cached(into, block->place.offset() + offset);
    if (cached && *cached) co_return Result<void>();
  }
  io::File& data = *own.data;
  auto got = co_await queue_.read(data, into, block->place.offset() + offset);
  if (!got) co_return std::move(got).error();
  if (*got < into.size()) co_return missing(*block);
  co_return Result<void>();
}

// In a full cache those that nobody works with make room.
void Blocks::cache(Block& block, CrcsRef crcs) {
  const size_t most = 8;  // looked at for each one that comes: all may be in use
  for (size_t i = 0; i < most && cached_bytes_ > kCachedBytes; ++i) {
    Block& oldest = cached_.pop_front();
    if (oldest.crcs_.use_count() > 1) {
      cached_.push_back(oldest);
      continue;
    }
    oldest.crcs_.reset();
    cached_bytes_ -= crc_bytes(oldest.place.of);
  }
  block.crcs_ = std::move(crcs);
  cached_bytes_ += crc_bytes(block.place.of);
  cached_.push_back(block);
}

Task<Result<CrcsRef>> Blocks::crcs(BlockRef block) {
  if (!block->crcs_) {
    const Class of = block->place.of;
    auto loaded = std::make_shared<Crcs>(granules(of));
    const ByteSpan into = bytes_of(*loaded, 0, granules(of));
    // Past the end of the file are CRCs that were never stored, of granules never written, or lost.
    io::File* const crc = files(of).crc.get();
    if (crc != nullptr) {
      auto got = co_await queue_.read(*crc, into, block->place.number * crc_bytes(of));
      if (!got) co_return std::move(got).error();
    }
    // Another task may have been faster, and changed what it loaded.
    if (!block->crcs_) cache(*block, std::move(loaded));
  } else {
    block->unlink();
    cached_.push_back(*block);
  }
  co_return block->crcs_;
}

Task<Result<void>> Blocks::store_crcs(BlockRef block, CrcsRef crcs, uint64_t first,
                                      uint64_t count) {
  Files& own = files(block->place.of);
  const uint64_t offset = block->place.number * crc_bytes(block->place.of);
  const ByteView from = bytes_of(*crcs, first, count);
  const uint64_t at = offset + first * sizeof(uint32_t);
  if (count <= paged_max_ / kGranuleMin) {
    own.dirty = true;
    co_return own.crc->write_at(from, at);
  }
  auto written = co_await queue_.write(*own.crc, from, at);
  own.dirty = true;
  co_return written;
}

Task<Result<void>> Blocks::sync() {
  for (const auto& own : files_) {
    if (!std::exchange(own->dirty, false)) continue;
    own->in_pages = 0;
    for (io::File* const file : {own->data.get(), own->crc.get()}) {
      auto synced = co_await queue_.sync(*file);
      if (synced) continue;
      // Whatever the reason: what was to be synced may be gone, and the next sync will not tell.
      synced.error().code = Errc::failed;
      co_return synced;
    }
  }
  co_return Result<void>();
}

Task<Result<void>> Blocks::sync_all() {
  for (const auto& own : files_) own->dirty = own->data != nullptr;
  return sync();
}

bool Blocks::direct() const {
  return std::ranges::all_of(files_,
                             [](const auto& own) { return !own->data || own->data->direct(); });
}

std::vector<ClassUsage> Blocks::usage() const {
  std::vector<ClassUsage> all;
  for (Class of = 0; of < kClasses; ++of) {
    const Space& space = files_[of]->space;
    if (space.reserved_bytes() == 0) continue;
    all.push_back(
        {.of = of, .used_blocks = space.used_blocks(), .reserved_bytes = space.reserved_bytes()});
  }
  return all;
}

}  // namespace ff::chunk
