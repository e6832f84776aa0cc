// Two ends of an RDMA connection on one loop and one device, for the conformance suite and for the
// tests of RDMA alone; and the fixture of those.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/system_loop.h"
#include "platform/net/socket_ends.h"
#include "platform/net/tested_pair.h"
#include "platform/net/verbs.h"

namespace ff::net {

constexpr int64_t kTestSecond = 1'000'000'000;

using MaybeConnection = std::optional<Result<std::unique_ptr<Connection>>>;

inline Task<void> keep_connection(Task<Result<std::unique_ptr<Connection>>> task,
                                  MaybeConnection& result) {
  result = co_await std::move(task);
}

inline SocketEnds socket_ends(Loop& loop) {
  return connected_sockets(loop, Address{"127.0.0.1", 0, ""});
}

class VerbsPair final : public TestedPair {
 public:
  // Null where there is no RDMA device.
  static std::unique_ptr<VerbsPair> make(bool poll) {
    auto pair = std::make_unique<VerbsPair>();
    VerbsOptions options;
    options.poll = poll;
    auto device = VerbsDevice::open(pair->loop_, options);
    if (!device) return nullptr;
    pair->device_ = std::move(*device);
    pair->connect();
    return pair;
  }
  ~VerbsPair() override {
    client.reset();
    server.reset();
  }
  Loop& loop() override { return loop_; }
  // The processor of the test guest is emulated.
  size_t scale() override { return 4; }
  VerbsDevice& device() { return *device_; }
  ByteSpan memory(size_t size) override {
    return memory_.emplace_back(std::vector<std::byte>(size));
  }
  // A new pair of connections in place of the old one.
  void connect() {
    SocketEnds sockets = socket_ends(loop_);
    MaybeConnection first;
    MaybeConnection second;
    Gate gate(loop_);
    gate.spawn(keep_connection(
        connect_verbs(*device_, stream_of(loop_, std::move(sockets.client)), "server"), first));
    gate.spawn(keep_connection(
        connect_verbs(*device_, stream_of(loop_, std::move(sockets.server)), "client"), second));
    run_task(loop_, gate.wait_empty());
    if (!first->ok()) ADD_FAILURE() << first->error().message;
    FF_CHECK(first->ok() && second->ok());
    client = std::move(**first);
    server = std::move(**second);
  }

 private:
  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::deque<std::vector<std::byte>> memory_;
  std::unique_ptr<VerbsDevice> device_;
};

}  // namespace ff::net
