// bulk.cc: kinds of bulk that need no regions told.
#include "platform/net/bulk.h"

#include <unistd.h>

namespace ff::net {

void Bulk::unshare(const Slice&) {}

Result<void> Bulk::add_region(const Region& region) {
  ::close(region.fd);
  return fail(Errc::corrupt, "the peer announced a region that this transport does not have");
}

}  // namespace ff::net
