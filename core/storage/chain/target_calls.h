// RPCs to targets of chains. A call is tied to a version of its chain: when the chain changes, it
// is cancelled. Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "platform/auth/revocations.h"
#include "platform/base/gate.h"
#include "platform/rpc/error_wire.h"
#include "platform/rpc/method.h"
#include "storage/chain/node_clients.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

class TargetCalls {
 public:
  TargetCalls(Loop& loop, NodeClients& nodes) : loop_(loop), nodes_(nodes) {}

  // `source`: data that the target reads; the request names it in `data` (a ForwardRequest in its
  // `write`). Errors besides those of the target: unreachable (no connection, for any reason);
  // deadline; refused (the key of this client is revoked); the reason given to cancel_calls().
  template <class Request, class Reply>
  Task<Result<Reply>> call(cluster::ChainId chain, cluster::NodeId node,
                           rpc::Method<Request, Reply> method, Request request, ByteView source,
                           int64_t deadline_ns) {
    // Captured before the first suspension.
    auto prepare = [source](rpc::BulkCall& bulk, Request& asked) -> Result<void> {
      if (source.empty()) return {};
      FF_TRY(const net::RemoteBuffer buffer, bulk.source(source));
      set_data(asked, buffer);
      return {};
    };
    co_return co_await call_with(chain, node, method, std::move(request), std::move(prepare),
                                 deadline_ns);
  }

  // `prepare(BulkCall&, Request&)` registers memory and names it in the request; the memory must
  // live until the call has ended.
  template <class Request, class Reply, class Prepare>
  Task<Result<Reply>> call_with(cluster::ChainId chain, cluster::NodeId node,
                                rpc::Method<Request, Reply> method, Request request,
                                Prepare prepare, int64_t deadline_ns) {
    CancellationToken* const parent = co_await current_cancellation();
    CancelScope scope(loop_, parent, deadline_ns, "the target does not respond");
    const Entry entry(outgoing_[chain], scope);
    co_return co_await attempt(node, chain, method, std::move(request), std::move(prepare),
                               deadline_ns)
        .with_cancellation(scope.cancellation());
  }

  // The chain has a new version: cancels all calls of the old one with `reason`.
  void cancel_calls(cluster::ChainId chain, const Error& reason) {
    const auto found = outgoing_.find(chain);
    if (found == outgoing_.end()) return;
    for (CancelScope* const scope : found->second) scope->cancellation().request(reason);
  }
  // Calls in flight by chain; the list of a chain may be empty.
  const std::map<cluster::ChainId, std::vector<CancelScope*>>& outgoing() const {
    return outgoing_;
  }

 private:
  using Scopes = std::vector<CancelScope*>;  // in call order
  struct Entry {
    Entry(Scopes& scopes, CancelScope& which) : in(scopes), scope(which) { in.push_back(&scope); }
    ~Entry() { std::erase(in, &scope); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    Scopes& in;
    CancelScope& scope;
  };

  template <class Request>
  static void set_data(Request& request, const net::RemoteBuffer& buffer) {
    if constexpr (requires { request.mutable_write(); }) {
      rpc::to_wire(buffer, *request.mutable_write()->mutable_data());
    } else if constexpr (requires { request.mutable_data(); }) {
      rpc::to_wire(buffer, *request.mutable_data());
    }
  }

  template <class Request, class Reply, class Prepare>
  Task<Result<Reply>> attempt(cluster::NodeId node, cluster::ChainId chain,
                              rpc::Method<Request, Reply> method, Request request, Prepare prepare,
                              int64_t deadline_ns) {
    FF_CO_TRY(const auto client, nodes_.client_of(node, chain));
    auto channel = co_await client->channel(deadline_ns);
    if (!channel) {
      nodes_.report_failure(node, *client);
      // A connection failure says nothing about the outcome of the request.
      Error error = std::move(channel).error();
      if (!auth::is_revoked(error)) error.code = Errc::unreachable;
      co_return error;
    }
    rpc::BulkCall bulk(std::move(*channel));
    FF_CO_TRY(prepare(bulk, request));
    co_return co_await bulk.run(method, std::move(request), deadline_ns);
  }

  Loop& loop_;
  NodeClients& nodes_;
  std::map<cluster::ChainId, Scopes> outgoing_;
};

}  // namespace ff::chain
