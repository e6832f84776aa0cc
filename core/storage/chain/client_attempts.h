// What tries again share, in all that a client does: time, pauses, and the reason of the last
// failure. For client*.cc alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/backoff.h"
#include "storage/chain/client.h"
#include "storage/chain/decisions.h"

namespace ff::chain {

class Client::Attempts {
 public:
  static constexpr int64_t kAgainFirstNs = 2 * kMillisecond;
  static constexpr int64_t kAgainLastNs = kSecond;

  explicit Attempts(Client& client)
      : client_(client),
        deadline_ns_(client.context_.loop.now_ns() + kPatienceNs),
        backoff_(client.context_.rng, kAgainFirstNs, kAgainLastNs) {}

  int64_t until(int64_t most_ns) const {
    return std::min(client_.context_.loop.now_ns() + most_ns, deadline_ns_);
  }
  // The chain, once it is known and `ready` of it. Nothing: to be waited for.
  const cluster::Chain* chain(cluster::ChainId id) {
    const cluster::Chain* const found = client_.routing_.chain(id);
    if (found == nullptr) why_ = fail(Errc::stale, "chain {} is not known", id);
    if (found != nullptr && reading_tail(*found) == nullptr) {
      why_ = fail(Errc::stale, "chain {} has no target that serves", id);
      return nullptr;
    }
    if (found != nullptr) client_.seen_[id] = found->version;
    return found;
  }
  void failed(Error error) { why_ = std::move(error); }
  // Until another attempt may go better. Error: there is no more time, or cancelled.
  Task<Result<void>> again() {
    Loop& loop = client_.context_.loop;
    client_.refresh_();  // whoever does not answer may have been taken out
    const int64_t at_ns = loop.now_ns() + backoff_.pause_ns();
    if (at_ns >= deadline_ns_) {
      why_.code = Errc::deadline;
      co_return std::move(why_).within(fmt::format("not done in {} s: ", kPatienceNs / kSecond));
    }
    const auto waited = co_await client_.changed_.wait(at_ns);
    const Cancel* const cancel = co_await current_cancel();
    if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
    co_return Result<void>();
  }

 private:
  Client& client_;
  const int64_t deadline_ns_;
  Backoff backoff_;
  Error why_;
};

}  // namespace ff::chain
