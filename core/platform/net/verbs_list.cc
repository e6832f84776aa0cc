// The list of RDMA devices, in a separate file: using ibv_get_device_list() links the providers
// into a static ff (RDMA_STATIC_PROVIDERS). libff.so replaces this file by its own list
// (bindings/ibverbs.cc).
#include <infiniband/verbs.h>

#include "platform/net/verbs_handles.h"

namespace ff::net {

ibv_device** verbs_devices(int& count) { return ::ibv_get_device_list(&count); }

}  // namespace ff::net
