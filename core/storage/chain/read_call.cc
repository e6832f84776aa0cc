// read_call.cc: registers the sinks of all items, and waits for an unresponsive node.
#include "storage/chain/read_call.h"

#include <memory>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/wait.h"
#include "platform/rpc/channel.h"

namespace ff::chain {

namespace {

Result<void> expose(rpc::BulkCall& bulk, const std::vector<ByteSpan>& into,
                    wire::ReadRequest& request) {
  for (size_t i = 0; i < into.size(); i++) {
    if (into[i].empty()) continue;
    FF_TRY(const net::RemoteBuffer sink, bulk.sink(into[i]));
    rpc::to_wire(sink, *request.mutable_items(static_cast<int>(i))->mutable_sink());
  }
  return {};
}

Task<void> wait_until(Loop& loop, int64_t at_ns) {
  (void)co_await sleep_for(loop, at_ns - loop.now_ns());
}

}  // namespace

Task<Result<wire::ReadReply>> read_call(Loop& loop, TargetCalls& calls, cluster::ChainId chain,
                                        cluster::NodeId node, wire::ReadRequest request,
                                        const std::vector<ByteSpan>& into, int64_t deadline_ns) {
  FF_CHECK(into.size() == static_cast<size_t>(request.items_size()));
  std::shared_ptr<rpc::Channel> channel;
  auto prepare = [&](rpc::BulkCall& bulk, wire::ReadRequest& asked) -> Result<void> {
    channel = bulk.channel();
    return expose(bulk, into, asked);
  };
  auto reply = co_await calls.call_with(chain, node, kRead, std::move(request), std::move(prepare),
                                        deadline_ns);
  if (!reply && channel != nullptr && channel->unconfirmed_ns()) {
    co_await wait_until(loop, *channel->unconfirmed_ns() + kHaltedNs).shielded();
  }
  co_return reply;
}

}  // namespace ff::chain
