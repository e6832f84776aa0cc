// Client of the primary cluster manager; finds it among the configured managers. Owned by one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/rpc/client.h"
#include "storage/cluster/service.h"

namespace ff::cluster {

class ManagerClient {
 public:
  // Requires at least one address.
  ManagerClient(rpc::ClientContext& context, const std::vector<net::Address>& managers);

  // Tries the managers in turn, at most `try_ns` each, until the primary has responded or all have
  // refused the connection (Errc::refused: another key). A call that is not `idempotent` is not
  // retried once it may have been executed; it fails with Errc::unreachable or deadline.
  template <class Request, class Reply>
  Task<Result<Reply>> call(rpc::Method<Request, Reply> method, Request request, int64_t try_ns,
                           int64_t deadline_ns, bool idempotent);
  Task<void> close();

 private:
  // After a failure: selects the manager named as primary, else the next one; pauses after each
  // round. Returns the error when the time is over.
  Task<Result<void>> next_manager(Error error, std::string primary, int64_t deadline_ns);

  Loop& loop_;
  std::vector<std::unique_ptr<rpc::Client>> clients_;
  size_t current_ = 0;   // index of the last known primary
  size_t failures_ = 0;  // in a row
};

template <class Request, class Reply>
Task<Result<Reply>> ManagerClient::call(rpc::Method<Request, Reply> method, Request request,
                                        int64_t try_ns, int64_t deadline_ns, bool idempotent) {
  size_t refusals = 0;  // in a row
  for (;;) {
    const int64_t try_until_ns = std::min(loop_.now_ns() + try_ns, deadline_ns);
    rpc::Client& client = *clients_[current_];
    const auto channel = co_await client.channel(try_until_ns);
    Error error;
    std::string primary;
    if (channel) {
      auto reply = co_await rpc::call_method(client, method, request, try_until_ns);
      if (reply && !reply->has_elsewhere()) {
        failures_ = 0;
        co_return reply;
      }
      if (reply) {
        const std::string& trouble = reply->elsewhere().trouble();
        error = fail(Errc::unreachable, "{} is not the primary manager{}{}",
                     client.address().text(), trouble.empty() ? "" : ": ", trouble);
        primary = reply->elsewhere().primary();
      } else {
        error = std::move(reply).error();
        const bool open = error.code == Errc::unreachable || error.code == Errc::deadline;
        if (!open) co_return error;
        if (!idempotent) current_ = (current_ + 1) % clients_.size();
        if (!idempotent) co_return error;
      }
    } else {
      error = channel.error();
    }
    refusals = !channel && error.code == Errc::refused ? refusals + 1 : 0;
    if (refusals == clients_.size()) co_return error;
    FF_CO_TRY(co_await next_manager(std::move(error), std::move(primary), deadline_ns));
  }
}

}  // namespace ff::cluster
