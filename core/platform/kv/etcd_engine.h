// A store on etcd, for several machines, with optimistic transactions. The first read of a function
// is linearizable and fixes the revision of all its reads. Its commit compares the revision of
// every key that it read, and of the guard of every range (compares on ranges would miss deleted
// keys). After a conflict the function runs again.
//
// An answer may be lost, and a member that was paused may execute the commit much later. To prevent
// that, every commit also compares the revision of the engine's fence, a key of its own. Before a
// function runs again after a lost answer, the engine puts the fence again, so that commits with
// its old revision fail.
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "platform/kv/etcd_gateway.h"
#include "platform/kv/retry.h"

namespace ff::kv {

class EtcdEngine final : public Engine {
 public:
  // All arguments must outlive it.
  EtcdEngine(EtcdGateway& etcd, Loop& loop, Rng& rng, Metrics& metrics)
      : etcd_(etcd),
        loop_(loop),
        rng_(rng),
        series_(metrics),
        fence_key_(etcd.fence_key(rng.hex_id())) {}

  // If no member answers, both retry until the deadline and then return the last error.
  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) override;
  const TransactionSeries& series() const { return series_; }

 private:
  class Transaction;
  struct Pending;

  Task<Result<AttemptResult>> attempt(const TxnFunction& function, int64_t deadline_ns);
  Task<Result<AttemptResult>> commit(const Transaction& txn, int64_t deadline_ns);
  Task<Result<EtcdGateway::Snapshot>> read(EtcdGateway::Reads reads, int64_t deadline_ns);
  Task<Result<int64_t>> fence(int64_t deadline_ns);
  Task<Result<int64_t>> put_fence(int64_t deadline_ns);

  EtcdGateway& etcd_;
  Loop& loop_;
  Rng& rng_;
  TransactionSeries series_;
  const std::string fence_key_;  // attached to an etcd lease, so that stale fences are deleted
  Semaphore fencing_{loop_, 1};  // one task puts the fence
  int64_t fence_ = 0;            // revision of the fence; 0: unknown
  int64_t revoked_fence_ = 0;    // commits with this or an older fence must fail
  std::string lease_;            // id of the etcd lease
  int64_t lease_ns_ = 0;         // time of its grant
};

}  // namespace ff::kv
