// The content of one simulated file: the current (cached) pages, the durable pages, and all page
// versions written in between. A power loss selects one version of each page.
//
// Sparse: pages that were never written take no memory. Versions share pages.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"

namespace ff::sim {

constexpr uint64_t kPage = 4096;   // unit of page cache writeback
constexpr uint64_t kSector = 512;  // unit of atomic device writes

// How much unsynced data survives a power loss.
enum class Survival : uint8_t { nothing, everything, some };
Survival pick_survival(Rng& rng);
// The length of the surviving prefix of `count` ordered changes.
size_t pick_survivors(Rng& rng, Survival survival, size_t count);

// A set of pages, stored as ranges.
class PageSet {
 public:
  bool contains(uint64_t page) const;
  void add(uint64_t begin, uint64_t end);
  void erase(uint64_t begin, uint64_t end);
  uint64_t size() const;

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin -> end; they do not touch
};

class SimContent {
 public:
  uint64_t size() const { return size_; }
  // Returns the number of bytes read; fewer than requested at the end of the file.
  size_t read(ByteSpan into, uint64_t offset) const;
  void write(ByteView from, uint64_t offset);
  void truncate(uint64_t size);
  // Zeroes [begin, end); whole pages are deallocated.
  void punch(uint64_t begin, uint64_t end);
  bool stored(uint64_t page) const { return live_.contains(page); }
  // Number of pages that are stored or reserved.
  uint64_t allocated_pages(const PageSet& reserved) const;
  io::DataRange next_data(uint64_t offset) const;

  // Makes the current content durable, except pages that a failed sync has dropped.
  void sync();
  // A sync has failed: pages with unsynced changes count as clean, and later syncs skip them until
  // they are written again.
  void fail_sync() { dropped_order_ = order_; }
  // Replaces the current content by what survives; that is durable afterwards.
  void power_loss(Rng& rng, Survival survival);
  // Flips one bit on the device and in the cache. `bit` must be inside the file.
  void flip(uint64_t bit);

 private:
  using Page = std::array<std::byte, kPage>;
  using PageRef = std::shared_ptr<const Page>;  // null: zeros, not stored
  using Pages = std::map<uint64_t, PageRef>;    // without nulls
  struct Version {
    uint64_t order = 0;
    PageRef page;
  };
  struct SizeChange {
    uint64_t order = 0;
    uint64_t size = 0;
    bool shrinks = false;
  };

  static PageRef find(const Pages& pages, uint64_t index);
  static void put(Pages& pages, uint64_t index, PageRef page);
  static PageRef zero_from(const PageRef& page, uint64_t keep);
  static PageRef flipped(const PageRef& page, uint64_t bit);
  static PageRef torn(const PageRef& older, const PageRef& newer, Rng& rng);
  PageRef survivor(uint64_t index, const std::vector<Version>& versions, size_t kept_sizes,
                   uint64_t limit, Rng& rng, Survival survival) const;
  void change(uint64_t index, PageRef page);
  void resize(uint64_t size);

  Pages live_;
  Pages durable_;
  uint64_t size_ = 0;
  uint64_t durable_size_ = 0;
  uint64_t order_ = 0;          // sequence number of the last change
  uint64_t dropped_order_ = 0;  // of the last change before a failed sync
  std::map<uint64_t, std::vector<Version>> unsynced_;
  std::vector<SizeChange> unsynced_sizes_;
};

}  // namespace ff::sim
