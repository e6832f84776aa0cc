// manager_client.cc: selection of the next manager.
#include "storage/cluster/manager_client.h"

#include <algorithm>

#include "platform/base/check.h"
#include "platform/base/wait.h"

namespace ff::cluster {

namespace {

// Pause after a round in which no manager was primary.
constexpr int64_t kManagerRetryNs = 200 * kMillisecond;

}  // namespace

ManagerClient::ManagerClient(rpc::ClientContext& context, const std::vector<net::Address>& managers)
    : loop_(context.loop) {
  FF_CHECK(!managers.empty());
  for (const net::Address& address : managers) {
    clients_.push_back(
        std::make_unique<rpc::Client>(context, address, auth::Service{auth::Role::meta, {}}));
  }
}

Task<Result<void>> ManagerClient::next_manager(Error error, std::string primary,
                                               int64_t deadline_ns) {
  const auto named = std::ranges::find_if(
      clients_, [&](const auto& client) { return client->address().text() == primary; });
  const auto index = static_cast<size_t>(named - clients_.begin());
  current_ =
      named != clients_.end() && index != current_ ? index : (current_ + 1) % clients_.size();
  failures_++;
  if (failures_ % clients_.size() == 0) {
    const int64_t again_ns = loop_.now_ns() + kManagerRetryNs;
    if (again_ns >= deadline_ns) co_return std::move(error).with_context("no primary manager: ");
    FF_CO_TRY(co_await sleep_until(loop_, again_ns));
  }
  if (loop_.now_ns() >= deadline_ns)
    co_return std::move(error).with_context("no primary manager: ");
  co_return Result<void>();
}

Task<void> ManagerClient::close() {
  for (const auto& client : clients_) {
    co_await client->close();
  }
}

}  // namespace ff::cluster
