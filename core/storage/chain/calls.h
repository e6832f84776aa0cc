// Calls to targets of chains: under a version of the chain, and no longer than that holds. Owned by
// one loop.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/method.h"
#include "storage/chain/nodes.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

class Calls {
 public:
  Calls(Loop& loop, Nodes& nodes) : loop_(loop), nodes_(nodes) {}

  // `source`: read by the target, named in the request's `data` (a ForwardRequest's in its write).
  // Errors beside the target's: unreachable when there is no connection, for whatever reason;
  // deadline; what end() says.
  template <class Request, class Reply>
  Task<Result<Reply>> call(cluster::ChainId chain, cluster::NodeId node,
                           rpc::Method<Request, Reply> method, Request request, ByteView source,
                           int64_t deadline_ns) {
    // Taken in before anything waits.
    auto prepare = [source](rpc::BulkCall& bulk, Request& asked) -> Result<void> {
      if (source.empty()) return {};
      FF_TRY(const net::Slice slice, bulk.source(source));
      set_data(asked, slice);
      return {};
    };
    auto calling =
        call_with(chain, node, method, std::move(request), std::move(prepare), deadline_ns);
    co_return co_await std::move(calling);
  }

  // `prepare(BulkCall&, Request&)` exposes memory and names it in the request; it must live until
  // the call has ended.
  template <class Request, class Reply, class Prepare>
  Task<Result<Reply>> call_with(cluster::ChainId chain, cluster::NodeId node,
                                rpc::Method<Request, Reply> method, Request request,
                                Prepare prepare, int64_t deadline_ns) {
    Cancel* const parent = co_await current_cancel();
    CancelScope scope(loop_, parent, deadline_ns, "the target does not answer");
    const Entry entry(outgoing_[chain], scope);
    auto calling = attempt(node, method, std::move(request), std::move(prepare), deadline_ns);
    co_return co_await std::move(calling).under(scope.cancel());
  }

  // The chain has another version: calls under the one before end with `reason`.
  void end(cluster::ChainId chain, const Error& reason) {
    const auto found = outgoing_.find(chain);
    if (found == outgoing_.end()) return;
    for (CancelScope* const scope : found->second) scope->cancel().request(reason);
  }
  // Chains with calls under way, and those that had some.
  const std::map<cluster::ChainId, std::vector<CancelScope*>>& outgoing() const {
    return outgoing_;
  }

 private:
  using Scopes = std::vector<CancelScope*>;  // in the order of the calls
  struct Entry {
    Entry(Scopes& into, CancelScope& which) : in(into), scope(which) { in.push_back(&scope); }
    ~Entry() { std::erase(in, &scope); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    Scopes& in;
    CancelScope& scope;
  };

  template <class Request>
  static void set_data(Request& request, const net::Slice& slice) {
    if constexpr (requires { request.mutable_write(); }) {
      rpc::to_wire(slice, *request.mutable_write()->mutable_data());
    } else if constexpr (requires { request.mutable_data(); }) {
      rpc::to_wire(slice, *request.mutable_data());
    }
  }

  template <class Request, class Reply, class Prepare>
  Task<Result<Reply>> attempt(cluster::NodeId node, rpc::Method<Request, Reply> method,
                              Request request, Prepare prepare, int64_t deadline_ns) {
    FF_CO_TRY(const auto client, nodes_.at(node));
    auto connecting = client->channel(deadline_ns);
    auto channel = co_await std::move(connecting);
    if (!channel) {
      nodes_.failed(node, *client);
      // Whatever the reason: it says nothing of what was asked for.
      Error error = std::move(channel).error();
      error.code = Errc::unreachable;
      co_return error;
    }
    rpc::BulkCall bulk(std::move(*channel));
    FF_CO_TRY(prepare(bulk, request));
    auto calling = bulk.run(method, std::move(request), deadline_ns);
    co_return co_await std::move(calling);
  }

  Loop& loop_;
  Nodes& nodes_;
  std::map<cluster::ChainId, Scopes> outgoing_;
};

}  // namespace ff::chain
