// calls.h: how a replica calls the targets beside it, for the units of replica.h alone.
#pragma once

#include <utility>

#include "chain/replica.h"
#include "rpc/error_wire.h"

namespace ff::chain {

namespace calls_detail {

template <class Request>
void set_data(Request& request, const net::Slice& slice) {
  if constexpr (requires { request.mutable_write(); }) {
    rpc::to_wire(slice, *request.mutable_write()->mutable_data());
  } else if constexpr (requires { request.mutable_data(); }) {
    rpc::to_wire(slice, *request.mutable_data());
  }
}

template <class Request, class Reply>
Task<Result<Reply>> call(Nodes& nodes, cluster::NodeId node, rpc::Method<Request, Reply> method,
                         Request request, ByteView data, int64_t deadline_ns) {
  FF_CO_TRY(const auto client, nodes.at(node));
  auto connecting = client->channel(deadline_ns);
  auto channel = co_await std::move(connecting);
  if (!channel) {
    nodes.failed(node, *client);
    // Whatever the reason: it says nothing of what was asked for.
    Error error = std::move(channel).error();
    error.code = Errc::unreachable;
    co_return error;
  }
  rpc::BulkCall bulk(std::move(*channel));
  if (!data.empty()) {
    FF_CO_TRY(const net::Slice slice, bulk.source(data));
    set_data(request, slice);
  }
  auto calling = bulk.run(method, std::move(request), deadline_ns);
  co_return co_await std::move(calling);
}

}  // namespace calls_detail

// Ends with Errc::stale when the chain's version changes meanwhile. `data` must live as long.
template <class Request, class Reply>
Task<Result<Reply>> Replica::call(cluster::NodeId node, rpc::Method<Request, Reply> method,
                                  Request request, ByteView data, int64_t patience_ns) {
  const int64_t deadline_ns = context_.loop.now_ns() + patience_ns;
  Cancel* const parent = co_await current_cancel();
  CancelScope scope(context_.loop, parent, deadline_ns, "a target of the chain does not answer");
  struct Entry {
    std::set<CancelScope*>& in;
    CancelScope* const scope;
    ~Entry() { in.erase(scope); }
  };
  outgoing_.insert(&scope);
  const Entry entry{outgoing_, &scope};
  auto calling =
      calls_detail::call(context_.nodes, node, method, std::move(request), data, deadline_ns);
  co_return co_await std::move(calling).under(scope.cancel());
}

}  // namespace ff::chain
