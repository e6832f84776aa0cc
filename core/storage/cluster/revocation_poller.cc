// revocation_poller.cc: while no manager answers, the last revocations count.
#include "storage/cluster/revocation_poller.h"

#include "platform/base/log.h"
#include "storage/cluster/key_service.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// With the agents' interval, every server refuses a revoked key within 10 s.
constexpr int64_t kAskIntervalNs = 3 * kSecond;
constexpr int64_t kAnswerNs = 3 * kSecond;

}  // namespace

Task<void> RevocationPoller::run() {
  bool failed = false;
  for (;;) {
    wire::ListKeysRequest request;
    auto reply = co_await managers_.call(kListKeys, std::move(request), kAnswerNs,
                                         loop_.now_ns() + kAnswerNs, true);
    Result<KeyRecords> records =
        reply ? from_wire(reply->records()) : Result<KeyRecords>(std::move(reply).error());
    if (records && records->revocations != *keyring_.revocations()) {
      keyring_.set_revocations(std::move(records->revocations));
    } else if (!records && !failed) {
      log_warning("cannot read the revoked keys", {{"cause", records.error().message}});
    }
    failed = !records;
    if (!co_await sleep_for(loop_, kAskIntervalNs)) co_return;
  }
}

Task<void> RevocationPoller::close() {
  Error reason = fail(Errc::interrupted, "the server goes down");
  co_await gate_.close(std::move(reason));
  co_await managers_.close();
}

}  // namespace ff::cluster
