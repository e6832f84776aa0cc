// Requests and replies of one thread through a descriptor of /dev/fuse.
#pragma once

#include <cstdint>
#include <string_view>

#include "platform/base/metrics.h"
#include "storage/chain/buffer_pool.h"
#include "storage/mount/fuse_request.h"
#include "storage/mount/fuse_slots.h"

namespace ff::mount {

// Requests that a thread reads before it lets its loop do other work.
constexpr size_t kRequestsAtOnce = 32;

class DeviceReader {
 public:
  // Holds `slot` while it exists. All others outlive it. `memory`: for the data of WRITE requests
  // when few slots are free.
  DeviceReader(int fd, FuseSlots& slots, chain::BufferPool& memory, size_t slot)
      : fd_(fd), slots_(slots), memory_(memory), slot_(slot) {}
  ~DeviceReader() { slots_.release(slot_); }
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  int fd() const { return fd_; }
  enum class State : uint8_t { request, empty, unmounted };
  // `into`: the next request, if there is one. Its data stays in the slot, or is copied.
  Result<State> read(FuseRequest& into);

 private:
  FuseRequest request_of(ByteView bytes);

  const int fd_;
  FuseSlots& slots_;
  chain::BufferPool& memory_;
  size_t slot_;
};

// To the descriptor that the request came from, from any thread.
void write_device_reply(const FuseRequest& request, int error, std::string_view bytes,
                        ByteView data);

// Counts and logs the errors that the cluster has caused; for one thread.
class FailureLog {
 public:
  explicit FailureLog(Metrics& metrics);
  // Returns the errno for the kernel.
  int errno_for(const Error& error, int64_t now_ns);

 private:
  Counter& failed_;
  int64_t logged_ns_ = 0;
};

}  // namespace ff::mount
