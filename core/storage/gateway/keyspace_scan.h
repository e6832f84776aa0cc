// Goes over the keys of all partitions that this process owns, page by page. A cursor of Redis is
// one number for all partitions: the number of the partition is in its lowest 12 bits, and the
// cursor of the store, rounded up, in the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/task.h"
#include "storage/gateway/store_view.h"

namespace ff::gateway {

struct KeyPage {
  std::vector<std::string> keys;  // without expired ones
  uint64_t next = 0;              // 0: this was the last page
};

// About `count` keys, from the cursor on; 0: from the start.
Task<Result<KeyPage>> read_key_page(StoreView& view, uint64_t cursor, size_t count);

// One of the keys, by chance; empty: there are none.
Task<Result<std::optional<std::string>>> random_key(StoreView& view, Rng& rng);

}  // namespace ff::gateway
