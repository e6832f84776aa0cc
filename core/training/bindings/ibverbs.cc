// ibverbs.cc: libibverbs for net/verbs*.cc within libff.so, loaded at the first list of devices. So
// libff.so also loads on machines without RDMA; they have no devices.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>

#include "platform/net/verbs_handles.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace {

void* library() {
  static void* const loaded = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  return loaded;
}

template <class Function>
Function* find(const char* name) {
  return library() != nullptr ? reinterpret_cast<Function*>(::dlsym(library(), name)) : nullptr;
}

}  // namespace

// Called only for devices of the list, so the library is loaded.
#define FF_FORWARD(result, name, declared, given)           \
  result name declared {                                    \
    static auto* const real = find<result declared>(#name); \
    return real given;                                      \
  }

// Replaces net/verbs_list.cc.
ibv_device** ff::net::verbs_devices(int& count) {
  static auto* const real = find<ibv_device**(int*)>("ibv_get_device_list");
  if (real != nullptr) return real(&count);
  count = 0;
  errno = ENOSYS;
  return nullptr;
}

extern "C" {

FF_FORWARD(void, ibv_free_device_list, (ibv_device * *list), (list))
FF_FORWARD(const char*, ibv_get_device_name, (ibv_device * device), (device))
FF_FORWARD(ibv_context*, ibv_open_device, (ibv_device * device), (device))
FF_FORWARD(int, ibv_close_device, (ibv_context * context), (context))
FF_FORWARD(int, ibv_query_device, (ibv_context * context, ibv_device_attr* attributes),
           (context, attributes))
FF_FORWARD(int, ibv_query_port,
           (ibv_context * context, uint8_t port, _compat_ibv_port_attr* attributes),
           (context, port, attributes))
FF_FORWARD(int, _ibv_query_gid_ex,
           (ibv_context * context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
            uint32_t flags, size_t size),
           (context, port, index, entry, flags, size))
FF_FORWARD(int, ibv_get_async_event, (ibv_context * context, ibv_async_event* event),
           (context, event))
FF_FORWARD(void, ibv_ack_async_event, (ibv_async_event * event), (event))
FF_FORWARD(const char*, ibv_event_type_str, (ibv_event_type event), (event))
FF_FORWARD(ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context))
FF_FORWARD(int, ibv_dealloc_pd, (ibv_pd * domain), (domain))
FF_FORWARD(ibv_mr*, ibv_reg_mr, (ibv_pd * domain, void* at, size_t size, int access),
           (domain, at, size, access))
FF_FORWARD(ibv_mr*, ibv_reg_mr_iova2,
           (ibv_pd * domain, void* at, size_t size, uint64_t address, unsigned access),
           (domain, at, size, address, access))
FF_FORWARD(int, ibv_dereg_mr, (ibv_mr * memory), (memory))
FF_FORWARD(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * context), (context))
FF_FORWARD(int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel))
FF_FORWARD(ibv_cq*, ibv_create_cq,
           (ibv_context * context, int entries, void* mine, ibv_comp_channel* channel, int vector),
           (context, entries, mine, channel, vector))
FF_FORWARD(int, ibv_destroy_cq, (ibv_cq * queue), (queue))
FF_FORWARD(int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq** queue, void** mine),
           (channel, queue, mine))
FF_FORWARD(void, ibv_ack_cq_events, (ibv_cq * queue, unsigned events), (queue, events))
FF_FORWARD(ibv_qp*, ibv_create_qp, (ibv_pd * domain, ibv_qp_init_attr* attributes),
           (domain, attributes))
FF_FORWARD(int, ibv_modify_qp, (ibv_qp * queue, ibv_qp_attr* attributes, int mask),
           (queue, attributes, mask))
FF_FORWARD(int, ibv_destroy_qp, (ibv_qp * queue), (queue))
FF_FORWARD(const char*, ibv_wc_status_str, (ibv_wc_status status), (status))

}  // extern "C"
