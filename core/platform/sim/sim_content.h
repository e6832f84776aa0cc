// The bytes of one simulated file: what programs see, what the device certainly holds, and every
// version of every page in between. A power loss picks, page by page, one of the versions.
//
// Sparse: a page that was never written takes no memory. Pages are shared between versions.
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

constexpr uint64_t kPage = 4096;   // the unit in which the page cache is written back
constexpr uint64_t kSector = 512;  // the unit a device writes or does not write

// How much of what was not synced outlives one power loss.
enum class Fate : uint8_t { nothing, everything, some };
Fate pick_fate(Rng& rng);
// How many of `count` ordered changes survive: a prefix.
size_t pick_survivors(Rng& rng, Fate fate, size_t count);

// A set of pages, as ranges: a reservation is long.
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
  // Bytes read; fewer than asked for at the end of the file.
  size_t read(ByteSpan into, uint64_t offset) const;
  void write(ByteView from, uint64_t offset);
  void truncate(uint64_t size);
  // Zeros from `begin` to `end`; whole pages are no longer stored.
  void punch(uint64_t begin, uint64_t end);
  bool stored(uint64_t page) const { return live_.contains(page); }
  // Stored pages, and those of a set.
  uint64_t taken(const PageSet& reserved) const;
  io::DataRange next_data(uint64_t offset) const;

  // All so far becomes durable.
  void sync();
  // Programs see what the device kept, which is now durable.
  void power_loss(Rng& rng, Fate fate);
  // Turns one bit over, on the device and in the cache. `bit` lies inside the file.
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
                   uint64_t limit, Rng& rng, Fate fate) const;
  void change(uint64_t index, PageRef page);
  void resize(uint64_t size);

  Pages live_;
  Pages durable_;
  uint64_t size_ = 0;
  uint64_t durable_size_ = 0;
  uint64_t order_ = 0;  // of the last change
  std::map<uint64_t, std::vector<Version>> unsynced_;
  std::vector<SizeChange> unsynced_sizes_;
};

}  // namespace ff::sim
