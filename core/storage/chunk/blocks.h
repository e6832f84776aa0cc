// The blocks of one disk: which are in use, their bytes, and the CRC32C of each of their granules.
//
//   DIR/1MiB.data   the blocks of a class, one after the other
//   DIR/1MiB.crc    for each of them a u32 for each granule (or slot, of blocks that hold pieces)
//
// A granule is written once while its block is in use: a version that changes it has another block
// or another slot. So whoever holds a BlockRef may read what its version says, whatever happens
// meanwhile, and CRCs need no transaction: old ones never change. After a loss of power a granule
// and its CRC may both be those of an earlier use of the block: what was not synced is checked
// against the whole version's checksum when the disk is opened (store_open.cc).
//
// The last BlockRef frees the block. It is used again only when settle() says that the transaction
// that no longer names it is durable.
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
#include "storage/chunk/layout.h"
#include "storage/chunk/space.h"

namespace ff::chunk {

class Blocks;

using Crcs = std::vector<uint32_t>;  // by granule
using CrcsRef = std::shared_ptr<Crcs>;

class Block : public ListLink<Block> {
 public:
  Block(Blocks& owner, Place where) : place(where), owner_(owner) {}

  const Place place;
  uint16_t filled = 0;  // granules written so far, from the first on
  // What it holds was found to be lost or damaged, or is not known to be sound. Reads tell anyway.
  bool doubted = false;

 private:
  friend class Blocks;
  friend class BlockRef;
  Blocks& owner_;
  uint32_t references_ = 0;
  bool paged_ = false;  // some of it was written through the page cache
  bool lost_ = false;   // the files ended before it when they were opened: nothing builds upon it
  CrcsRef crcs_;        // while cached
};

// Keeps a block from being freed. Ends before its Blocks does.
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
  std::optional<Place> place() const {
    return block_ == nullptr ? std::nullopt : std::optional(block_->place);
  }

 private:
  Block* block_ = nullptr;
};

struct ClassUsage {
  Class of = 0;
  uint64_t used_blocks = 0;     // those freed but not yet usable included
  uint64_t reserved_bytes = 0;  // on the disk
};

class Blocks {
 public:
  // Writes of up to `paged_max` bytes go to the page cache.
  Blocks(io::Disk& disk, std::string dir, bool direct, uint64_t paged_max, io::AsyncQueue& queue);
  ~Blocks();
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  // Opens the files that are there.
  Result<void> open();
  // A block that the metadata names, with `filled` granules, or slots of `pieces`. One that the
  // files do not have is lost: no file is made or made longer for it, and reads find it corrupt.
  // Errors: corrupt when another chunk has it.
  Result<BlockRef> adopt(Place place, uint64_t filled, std::optional<Class> pieces_of);
  // The same block, of another version.
  void adopted(Block& block, uint64_t filled, std::optional<Class> pieces_of);
  // What was made of it so far counts no more: its versions are adopted once more.
  void trust(Block& block) { block.lost_ = block.doubted = false; }
  // After the last adopt(): groups without a block are punched.
  void drop_unused();

  // A free block, of which no CRC is stored. Errors: disk_full at kFullPercent of the disk, else
  // the disk's.
  Result<BlockRef> allocate(Class of);

  // Bytes of a block, aligned for direct I/O. Errors: the disk's, with the file's name. What is
  // small goes to the page cache at once, as the row does that will name it: both may be lost with
  // the power until they are synced, and waiting for the disk would gain nothing.
  Task<Result<void>> write(BlockRef block, uint64_t offset, ByteView from);
  Task<Result<void>> read(BlockRef block, uint64_t offset, ByteSpan into);
  // The CRCs of a block just allocated: none is read.
  CrcsRef new_crcs(const BlockRef& block);
  // The CRCs of a block; who holds them may add some and then store those.
  Task<Result<CrcsRef>> crcs(BlockRef block);
  Task<Result<void>> store_crcs(BlockRef block, CrcsRef crcs, uint64_t first, uint64_t count);
  // Makes durable what was written and stored.
  Task<Result<void>> sync();
  // The same with what was written before these Blocks were opened.
  Task<Result<void>> sync_all();

  // Blocks freed from now on belong to the next epoch; returns the one that ends.
  uint64_t end_epoch() { return epoch_++; }
  uint64_t epoch() const { return epoch_; }
  // The blocks freed in epochs up to this one may be used again.
  void settle(uint64_t epoch);

  static bool lost(const BlockRef& block) { return block && block->lost_; }

  std::string data_path(Class of) const;
  bool direct() const;
  std::vector<ClassUsage> usage() const;

 private:
  friend class BlockRef;
  struct Files {
    explicit Files(Class of) : space(of) {}
    io::File& cached() { return pages ? *pages : *data; }
    Space space;
    std::unique_ptr<io::File> data;   // made with the first block
    std::unique_ptr<io::File> pages;  // the same through the page cache, where `data` is direct
    std::unique_ptr<io::File> crc;
    uint64_t blocks = 0;      // that the data file has room for
    uint64_t found_data = 0;  // bytes, when it was opened
    uint64_t found_crc = 0;
    bool dirty = false;
    uint64_t in_pages = 0;  // bytes written through the page cache since the last sync
  };
  struct Freed {
    uint64_t epoch = 0;
    Place place;
  };

  Files& files(Class of) { return *files_[of]; }
  Result<void> open_files(Class of, bool create);
  Result<void> grow(Class of, uint64_t group);
  Error missing(const Block& block) const;
  Result<void> add_group(Class of);
  void punch(Class of, uint64_t first, uint64_t last);
  void release(Block& block);
  void cache(Block& block, CrcsRef crcs);

  io::Disk& disk_;
  const std::string dir_;
  const bool direct_;
  const uint64_t paged_max_;
  io::AsyncQueue& queue_;
  std::array<std::unique_ptr<Files>, kClasses> files_;
  std::deque<Freed> freed_;  // epochs ascend
  uint64_t epoch_ = 1;
  IntrusiveList<Block> cached_;  // the one not used for longest first
  uint64_t cached_bytes_ = 0;
};

}  // namespace ff::chunk
