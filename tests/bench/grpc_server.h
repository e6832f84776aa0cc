// The echo server of grpc_peer, which it runs in a process of its own, and what both sides need.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>

namespace ff::peer {

// Ends a queue for which nothing is under way.
inline void drain(grpc::CompletionQueue& queue) {
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

// Says its port (an int) on the socket, then serves until the other side closes it. `in_flight`
// calls are expected at a time; `callback` chooses the interface of gRPC.
void serve_echo(bool callback, uint64_t in_flight, int socket);

}  // namespace ff::peer
