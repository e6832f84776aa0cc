// Retry loop shared by all operations of the client: deadline, backoff, and the last error.
// Included by chain_client*.cc only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/backoff.h"
#include "storage/chain/chain_client.h"
#include "storage/chain/decisions.h"

namespace ff::chain {

class ChainClient::Retry {
 public:
  static constexpr int64_t kRetryFirstNs = 2 * kMillisecond;
  static constexpr int64_t kRetryLastNs = kSecond;

  explicit Retry(ChainClient& client)
      : client_(client),
        deadline_ns_(client.context_.loop.now_ns() + kRetryTimeoutNs),
        backoff_(client.context_.rng, kRetryFirstNs, kRetryLastNs) {}

  int64_t deadline(int64_t most_ns) const {
    return std::min(client_.context_.loop.now_ns() + most_ns, deadline_ns_);
  }
  // The chain, if it is known and has a serving target; null: wait and retry.
  const cluster::Chain* chain(cluster::ChainId id) {
    const cluster::Chain* const found = client_.routing_.chain(id);
    if (found == nullptr) why_ = fail(Errc::stale, "chain {} is not known", id);
    if (found != nullptr && serving_tail(*found) == nullptr) {
      why_ = fail(Errc::stale, "chain {} has no serving target", id);
      return nullptr;
    }
    if (found != nullptr) client_.seen_[id] = found->version;
    return found;
  }
  void failed(Error error) { why_ = std::move(error); }
  // Waits before the next attempt. Error: timed out, or cancelled.
  Task<Result<void>> backoff() {
    Loop& loop = client_.context_.loop;
    client_.refresh_();  // an unresponsive target may have left the chain
    const int64_t at_ns = loop.now_ns() + backoff_.next_delay_ns();
    if (at_ns >= deadline_ns_) {
      why_.code = Errc::deadline;
      co_return std::move(why_).with_context(
          fmt::format("gave up after {} s: ", kRetryTimeoutNs / kSecond));
    }
    const auto waited = co_await client_.changed_.wait(at_ns);
    const CancellationToken* const cancel = co_await current_cancellation();
    if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
    co_return Result<void>();
  }

 private:
  ChainClient& client_;
  const int64_t deadline_ns_;
  Backoff backoff_;
  Error why_;
};

}  // namespace ff::chain
