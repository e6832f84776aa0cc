// The store of many machines: etcd, whose transactions are optimistic. A function's first read is
// linearizable and fixes the revision at which it sees everything; its commit carries, as compares,
// the revision of every key that it read, and the guard of every range (compares on ranges would
// miss what was deleted). Whoever meets a change runs again.
//
// An answer may be lost, and the commit be carried out much later, by a member that stood still
// meanwhile. So that it cannot come behind what follows, every commit also compares the engine's
// fence, a key of its own: before a function runs again after a lost answer, the fence is put anew,
// and commits that still carry its old revision fail.
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "platform/kv/etcd_gateway.h"

namespace ff::kv {

class EtcdEngine final : public Engine {
 public:
  // All outlive it.
  EtcdEngine(EtcdGateway& etcd, Loop& loop, Rng& rng)
      : etcd_(etcd), loop_(loop), rng_(rng), fence_key_(etcd.fence_key(rng.hex_id())) {}

  // While no member answers, both try again until the deadline, and then end with its last error.
  Task<Result<void>> run(Function function, int64_t deadline_ns) override;
  Task<Result<void>> view(Function function, int64_t deadline_ns) override;

 private:
  class Transaction;
  struct Pending;
  // How one run of a function has ended.
  enum class End : uint8_t { committed, conflict, outdated, unknown };

  Task<Result<End>> attempt(const Function& function, int64_t deadline_ns);
  Task<Result<void>> run_attempts(Function function, int64_t deadline_ns, bool& unknown);
  Task<Result<End>> commit(const Transaction& txn, int64_t deadline_ns);
  Task<Result<EtcdGateway::Snapshot>> read(EtcdGateway::Reads reads, int64_t deadline_ns);
  Task<Result<int64_t>> fence(int64_t deadline_ns);
  Task<Result<int64_t>> put_fence(int64_t deadline_ns);

  EtcdGateway& etcd_;
  Loop& loop_;
  Rng& rng_;
  const std::string fence_key_;  // goes with a lease, so that those of ended engines do not pile up
  Semaphore fencing_{loop_, 1};  // one task puts the fence
  int64_t fence_ = 0;            // its revision, 0: not known
  int64_t dead_fence_ = 0;       // commits up to this one must fail: an answer was lost
  std::string lease_;
  int64_t lease_ns_ = 0;  // when it was granted
};

}  // namespace ff::kv
