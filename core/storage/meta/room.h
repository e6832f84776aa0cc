// Where new files go: to chains with room, as far as it is known how full their disks are. A file
// takes the chains that its layout draws by a seed, so what is chosen is the seed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "storage/cluster/fill.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::meta {

struct Room {
  std::map<cluster::TableId, std::vector<cluster::ChainId>> tables = {};  // the newest of each
  std::map<cluster::ChainId, uint32_t> used = {};                         // percent
};
Room room_of(const cluster::Routing& routing, const cluster::Fill& fill);

// The layout with a seed, the first of those that its own begins whose chains have the most room:
// none that is full, none that is nearly full, then by quarters. Where no seed leaves full chains
// out, fewer chains.
Layout placed(Layout layout, const Room& room);

}  // namespace ff::meta
