// Owning handles of libibverbs objects, declared without its header: only verbs*.cc may include
// that, since its macros select what is linked. Destroy handles in the reverse order of creation:
// queue pair, completion queue, channel, registrations, protection domain, device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

struct ibv_comp_channel;
struct ibv_context;
struct ibv_cq;
struct ibv_device;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;
struct ibv_wc;

namespace ff::net {

struct VerbsDeleter {
  void operator()(ibv_comp_channel* channel) const;
  void operator()(ibv_context* context) const;
  void operator()(ibv_cq* queue) const;
  void operator()(ibv_mr* region) const;
  void operator()(ibv_pd* domain) const;
  void operator()(ibv_qp* pair) const;
};

// After a queue pair is destroyed, the device no longer accesses memory for it.
template <class T>
using VerbsPtr = std::unique_ptr<T, VerbsDeleter>;

// The devices of this machine and their count (ibv_get_device_list); null with errno on an error.
ibv_device** verbs_devices(int& count);

// Attributes of one port of a device.
struct VerbsPort {
  uint8_t number = 0;
  bool ethernet = false;  // RoCE
  uint16_t lid = 0;       // InfiniBand
  uint16_t mtu = 0;       // bytes
  uint8_t gid_index = 0;
  std::array<std::byte, 16> gid = {};
  uint32_t message_max = 0;   // bytes of one SEND, WRITE or READ
  uint16_t reads_asked = 0;   // outstanding RDMA READs per queue pair, as initiator
  uint16_t reads_served = 0;  // the same, as responder
};

}  // namespace ff::net
