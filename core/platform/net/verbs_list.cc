// The list of RDMA devices, apart from all other use of libibverbs: asking for it links the named
// providers into a static ff (RDMA_STATIC_PROVIDERS). libff.so has a list of its own instead
// (bindings/ibverbs.cc).
#include <infiniband/verbs.h>

#include "platform/net/verbs_parts.h"

namespace ff::net {

ibv_device** verbs_devices(int& count) { return ::ibv_get_device_list(&count); }

}  // namespace ff::net
