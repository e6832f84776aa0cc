// What a thread of a mount reads storage nodes with: connections, grants and random numbers of its
// own, over the transport of the process.
#pragma once

#include <functional>
#include <utility>

#include "cmd/options/net_client.h"
#include "storage/client/chain_reader.h"

namespace ff::cmd {

class WorkerReader final : public client::SnapshotReader {
 public:
  // `client` outlives it. `refresh`: as for ChainReader; on the thread of `loop`.
  WorkerReader(SystemLoop& loop, NetClient& client, std::function<void()> refresh)
      : loop_(loop),
        transport_(client.transport),
        context_{loop, client.transport, grants_, client.metrics, rng_, client.context.self},
        chains_(context_, std::move(refresh)) {}

  Task<Answer> read(client::ReadSnapshotRef snapshot, uint64_t offset, ByteSpan into) override {
    return chains_.read(std::move(snapshot), offset, into);
  }
  void set_routing(const cluster::Routing& routing) override { chains_.set_routing(routing); }
  Task<void> close() override {
    co_await chains_.close();
    co_await transport_.drain(loop_);
  }

 private:
  // The kernel reads ahead four requests of a file; all threads together may have many.
  static constexpr size_t kSenders = 4;

  SystemLoop& loop_;
  net::SystemTransport& transport_;
  rpc::GrantScheduler grants_{kSenders};
  auth::SecureRng rng_;
  rpc::ClientContext context_;
  client::ChainReader chains_;
};

}  // namespace ff::cmd
