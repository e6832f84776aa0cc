// bulk.cc: defaults for transports without shared regions.
#include "platform/net/bulk.h"

#include <unistd.h>

namespace ff::net {

void Bulk::deregister_memory(const RemoteBuffer&) {}

Result<void> Bulk::apply_region_update(const RegionUpdate& region) {
  ::close(region.fd);
  return fail(Errc::corrupt, "the peer announced a region that this transport does not have");
}

}  // namespace ff::net
