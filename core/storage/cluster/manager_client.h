// Calls to whichever manager is primary. Owned by one loop.
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
  // At least one address.
  ManagerClient(rpc::ClientContext& context, const std::vector<net::Address>& managers);

  // Asks one manager after the other, at most `try_ns` each, until the primary has answered, or all
  // of them have refused the connection (Errc::refused: another key). Calls that must not be done
  // twice are not asked again once they may have been done; they fail with Errc::unreachable or
  // deadline.
  template <class Request, class Reply>
  Task<Result<Reply>> call(rpc::Method<Request, Reply> method, Request request, int64_t try_ns,
                           int64_t deadline_ns, bool repeatable);
  Task<void> close();

 private:
  // After a failure: the one that is said to be primary, else the next; after all of them a pause.
  // The error when there is no more time.
  Task<Result<void>> next(Error error, std::string primary, int64_t deadline_ns);

  Loop& loop_;
  std::vector<std::unique_ptr<rpc::Client>> clients_;
  size_t at_ = 0;      // who was primary last
  size_t failed_ = 0;  // in a row
};

template <class Request, class Reply>
Task<Result<Reply>> ManagerClient::call(rpc::Method<Request, Reply> method, Request request,
                                        int64_t try_ns, int64_t deadline_ns, bool repeatable) {
  size_t refusals = 0;  // in a row
  for (;;) {
    const int64_t try_until_ns = std::min(loop_.now_ns() + try_ns, deadline_ns);
    rpc::Client& client = *clients_[at_];
    auto connecting = client.channel(try_until_ns);
    const auto channel = co_await std::move(connecting);
    Error error;
    std::string primary;
    if (channel) {
      auto calling = rpc::call_method(client, method, request, try_until_ns);
      auto reply = co_await std::move(calling);
      if (reply && !reply->has_elsewhere()) {
        failed_ = 0;
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
        if (!repeatable) at_ = (at_ + 1) % clients_.size();
        if (!repeatable) co_return error;
      }
    } else {
      error = channel.error();
    }
    refusals = !channel && error.code == Errc::refused ? refusals + 1 : 0;
    if (refusals == clients_.size()) co_return error;
    auto advancing = next(std::move(error), std::move(primary), deadline_ns);
    FF_CO_TRY(co_await std::move(advancing));
  }
}

}  // namespace ff::cluster
