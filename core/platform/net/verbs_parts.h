// What libibverbs hands out, owned, and named without its header: that is for verbs*.cc alone,
// since its macros decide what is linked in. Parts go in the reverse order of their making: queue
// pair, completion queue, channel, registrations, protection domain, device.
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

struct VerbsFree {
  void operator()(ibv_comp_channel* channel) const;
  void operator()(ibv_context* context) const;
  void operator()(ibv_cq* queue) const;
  void operator()(ibv_mr* region) const;
  void operator()(ibv_pd* domain) const;
  void operator()(ibv_qp* pair) const;
};

// Destroying a queue pair is final: when it returns, the device reads and writes no memory on its
// behalf any more.
template <class T>
using VerbsPtr = std::unique_ptr<T, VerbsFree>;

// The devices of this machine (ibv_get_device_list), and how many; null, with errno, on an error.
ibv_device** verbs_devices(int& count);

// One port of a device, as its connections need it.
struct VerbsPort {
  uint8_t number = 0;
  bool ethernet = false;  // RoCE
  uint16_t lid = 0;       // InfiniBand
  uint16_t mtu = 0;       // bytes
  uint8_t gid_index = 0;
  std::array<std::byte, 16> gid = {};
  uint32_t message_max = 0;  // bytes of one SEND, WRITE or READ
  uint16_t reads_asked = 0;  // RDMA READs that a queue pair may have under way
  uint16_t reads_served = 0;
};

}  // namespace ff::net
