// The blocks of one disk: allocation, block data, and the CRC32C of each checksum unit.
//
//   DIR/1MiB.data   the blocks of one size class, one after the other
//   DIR/1MiB.crc    one u32 per checksum unit of each block (for overlay blocks: per slot)
//
// A checksum unit is written only once while its block is in use: a new version of it goes to
// another block or to an overlay slot. So a reader that holds a BlockRef can read its version at
// any time, and CRCs need no transaction because stored ones never change. After a power loss a
// unit and its CRC may both come from an earlier use of the block. Therefore chunk_store_open.cc
// checks unsynced versions against the checksum of the whole version.
//
// Destroying the last BlockRef frees the block. The allocator reuses it only after reclaim()
// reports that the transaction which dropped the block is durable.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/intrusive_list.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/chunk/block_bitmap.h"
#include "storage/chunk/layout.h"

namespace ff::chunk {

class BlockStore;

using Crcs = std::vector<uint32_t>;  // indexed by checksum unit
using CrcsRef = std::shared_ptr<Crcs>;

class Block : public ListLink<Block> {
 public:
  Block(BlockStore& owner, BlockLocation where) : location(where), owner_(owner) {}

  const BlockLocation location;
  uint16_t filled = 0;  // checksum units written so far, from the first one on
  // Known or suspected to be lost or damaged. Reads still verify every CRC.
  bool suspect = false;

 private:
  friend class BlockStore;
  friend class BlockRef;
  BlockStore& owner_;
  uint32_t references_ = 0;
  bool in_page_cache_ = false;  // written through the page cache at least in part
  bool lost_ =
      false;      // beyond the end of the files when they were opened; no version may build on it
  CrcsRef crcs_;  // null when not cached
};

// Keeps a block allocated. Must be destroyed before its BlockStore.
class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(Block& block) : block_(&block) { ++block.references_; }
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->references_;
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  explicit operator bool() const { return block_ != nullptr; }
  Block* operator->() const { return block_; }
  Block& operator*() const { return *block_; }
  std::optional<BlockLocation> location() const {
    return block_ == nullptr ? std::nullopt : std::optional(block_->location);
  }

 private:
  friend class BlockStore;
  Block* block_ = nullptr;
};

struct SizeClassUsage {
  SizeClass size_class = 0;
  uint64_t used_blocks = 0;     // including freed blocks that cannot be reused yet
  uint64_t reserved_bytes = 0;  // allocated in the file system
};

class BlockStore {
 public:
  // Writes of at most `buffered_write_max` bytes go through the page cache. CRCs of up to
  // `crc_cache_bytes` stay in memory.
  BlockStore(io::Disk& disk, std::string dir, bool direct, uint64_t buffered_write_max,
             uint64_t crc_cache_bytes, io::AsyncQueue& queue);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // Opens the existing files.
  Result<void> open();
  // Registers a block that the metadata references, with `filled` checksum units (or overlay slots
  // of units of class `overlays_of`). A block beyond the end of the files is marked lost: no file
  // is created or extended, and reads return Errc::corrupt. Errors: corrupt when another chunk
  // already uses the block.
  Result<BlockRef> load_block(BlockLocation location, uint64_t filled,
                              std::optional<SizeClass> overlays_of);
  // Blocks of chunks at rest (chunk_table.h) have no object. load_detached() registers such a
  // block, with the errors of load_block(); is_stored(): its first units are within the files.
  Result<void> load_detached(BlockLocation location);
  bool is_stored(BlockLocation location, uint64_t filled) const;
  // Makes the object of a registered block.
  BlockRef attach(BlockLocation location, uint64_t filled);
  // Removes the object and keeps the block registered. Returns false when the object is
  // needed: others reference it, it is suspect, or its CRCs are cached.
  bool detach(BlockRef& block);
  // Another version references the same block.
  void update_filled(Block& block, uint64_t filled, std::optional<SizeClass> overlays_of);
  // Clears the lost and suspect flags; the caller registers the remaining versions again.
  void clear_suspect(Block& block) { block.lost_ = block.suspect = false; }
  // Call after the last load_block(): punches groups that have no used block.
  void punch_unused_groups();

  // Allocates a block; it has no stored CRCs. Errors: disk_full when the disk is kFullPercent full
  // (has_freed(): it may have space after the next reclaim()); else those of the disk.
  Result<BlockRef> allocate(SizeClass size_class);

  // Block data, aligned for direct I/O. Errors: those of the disk, with the file name. Small writes
  // go to the page cache: the metadata row that references them is not durable before a sync
  // either, so waiting for the disk gains nothing.
  Task<Result<void>> write(BlockRef block, uint64_t offset, ByteView from);
  Task<Result<void>> read(BlockRef block, uint64_t offset, ByteSpan into);
  // Empty CRCs of a newly allocated block; nothing is read.
  CrcsRef new_crcs(const BlockRef& block);
  // The CRCs of a block. The holder may add some and then store them.
  Task<Result<CrcsRef>> crcs(BlockRef block);
  Task<Result<void>> store_crcs(BlockRef block, CrcsRef crcs, uint64_t first, uint64_t count);
  // Makes all finished writes and stored CRCs durable.
  Task<Result<void>> sync();
  // Also covers writes made before this BlockStore was opened.
  Task<Result<void>> sync_all();

  // Blocks freed from now on belong to the next epoch. Returns the epoch that ended.
  uint64_t end_epoch() { return epoch_++; }
  uint64_t epoch() const { return epoch_; }
  // Makes blocks freed in epochs up to this one allocatable again.
  void reclaim(uint64_t epoch);
  // Whether blocks wait for that.
  bool has_freed() const { return !freed_.empty(); }

  static bool lost(const BlockRef& block) { return block && block->lost_; }

  std::string data_path(SizeClass size_class) const;
  bool direct() const;
  std::vector<SizeClassUsage> usage() const;

 private:
  friend class BlockRef;
  struct Files {
    explicit Files(SizeClass size_class) : bitmap(size_class) {}
    io::File& buffered() { return buffered_data ? *buffered_data : *data; }
    BlockBitmap bitmap;
    std::unique_ptr<io::File> data;  // created with the first block
    std::unique_ptr<io::File>
        buffered_data;  // the data file through the page cache, when `data` uses direct I/O
    std::unique_ptr<io::File> crc;
    uint64_t blocks = 0;             // capacity of the data file
    uint64_t data_size_at_open = 0;  // bytes
    uint64_t crc_size_at_open = 0;
    bool dirty = false;
    uint64_t buffered_bytes = 0;  // written through the page cache since the last sync
  };
  struct Freed {
    uint64_t epoch = 0;
    BlockLocation location;
  };

  Files& files(SizeClass size_class) { return *files_[size_class]; }
  Result<void> open_files(SizeClass size_class, bool create);
  Result<void> grow(SizeClass size_class, uint64_t group);
  Error missing(const Block& block) const;
  Result<void> check_space(SizeClass size_class);
  void release_groups(SizeClass size_class, size_t kept);
  Result<void> add_group(SizeClass size_class);
  void punch(SizeClass size_class, uint64_t first, uint64_t last);
  void release(Block& block);
  void cache(Block& block, CrcsRef crcs);

  io::Disk& disk_;
  const std::string dir_;
  const bool direct_;
  const uint64_t buffered_write_max_;
  const uint64_t crc_cache_bytes_;
  io::AsyncQueue& queue_;
  std::array<std::unique_ptr<Files>, kSizeClasses> files_;
  std::deque<Freed> freed_;  // in ascending order of epochs
  uint64_t epoch_ = 1;
  IntrusiveList<Block> cached_;  // least recently used first
  uint64_t cached_bytes_ = 0;
};

}  // namespace ff::chunk
