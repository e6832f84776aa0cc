// Collective operations between the ranks of a job (Fire-Flyer paper, section IV: HFReduce). On one
// host all ranks share the work: any free core reduces a piece of the inputs of all ranks, straight
// into their outputs. With several hosts, local rank 0 of each exchanges data with the others
// (peers.h).
//
// Operations are asynchronous; every rank starts the same operations in the same order. All ranks
// map memory from allocate(), so it needs no copies; other memory is copied in and out.
//
// One thread of the program calls; a second thread, of the communicator, works on operations that
// other ranks wait for. If a rank dies or misses a deadline, every operation fails with the same
// error: destroy the communicator. With several hosts this also holds when ranks of two hosts start
// different operations.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "training/collective/collective_request.h"
#include "training/collective/host_group.h"
#include "training/collective/numa_placement.h"
#include "training/collective/peers.h"

namespace ff::collective {

struct Operation {
  Collective kind = Collective::allreduce;
  simd::DataType type = simd::DataType::f32;
  simd::ReduceOp op = simd::ReduceOp::sum;
  uint32_t root = 0;
  uint64_t count = 0;  // elements, as NCCL counts them (collective_request.h)
  // Null where this rank has no input or output. They may overlap in place only (check_overlap());
  // no other operation in flight may use the memory.
  const void* in = nullptr;
  void* out = nullptr;
};

constexpr int64_t kNoTimeLimit = INT64_MAX / 4;  // 73 years; steady times plus it do not overflow

struct CommunicatorOptions {            // times: at most kNoTimeLimit
  int64_t join_ns = 60 * kSecond;       // until all ranks have joined
  int64_t operation_ns = 60 * kSecond;  // for an operation, from the start of wait()
  bool pin = true;                      // threads to NUMA nodes (numa_placement.h)
  std::string sysfs = "/sys";           // for NUMA nodes
};

class Communicator {
 public:
  // `network`: how to reach other hosts; without it all ranks are on this host. Errors: those of
  // HostGroup::join() and Peers::connect().
  static Result<std::unique_ptr<Communicator>> join(HostRank self, const StopToken& stop,
                                                    const CommunicatorOptions& options,
                                                    const std::optional<Network>& network = {});
  // Abandons operations in flight; the other ranks see that this rank has left.
  ~Communicator();

  uint32_t rank() const { return group_->self().first_rank + group_->self().rank; }
  uint32_t ranks() const { return world_ ? world_->ranks() : group_->self().ranks; }
  // Null when all ranks of the job are on this host.
  const World* world() const { return world_ ? &*world_ : nullptr; }

  // Zeroed. Errors: no memory.
  Result<ByteSpan> allocate(uint64_t bytes);
  // Memory from allocate() that no operation of any rank uses. Errc::usage: other memory.
  Result<void> free(const void* memory);

  // Starts an operation and returns its number; at most kInflightMax may be unfinished.
  // Errc::usage: a root that does not exist, too many elements, a null pointer, memory that
  // overlaps; Errc::busy: kInflightMax are unfinished, and a rank of this host has not started the
  // oldest: wait for that first; the errors of wait() once the job has failed.
  Result<uint64_t> start(const Operation& operation);
  // Waits until the operation is complete; at most once for each, in any order. The memory of an
  // operation without a wait() must stay until kInflightMax later operations were started: its
  // result is stored by then. Errc::usage: the ranks started different operations (all ranks get
  // this error); Errc::unreachable: a rank is gone; Errc::deadline names the straggler;
  // Errc::corrupt names a link between hosts that changes data; Errc::interrupted.
  Result<void> wait(uint64_t number);
  // start() and wait().
  Result<void> run(const Operation& operation);

 private:
  struct InflightOperation {
    bool used = false;
    uint64_t number = 0;
    Operation operation = {};
    std::shared_ptr<const net::SharedRegion> in = {}, out = {};  // staging copies; null: none
  };

  Communicator(std::unique_ptr<HostGroup> group, const StopToken& stop,
               const CommunicatorOptions& options);
  Result<void> connect_peers(const Network& network);
  void work_on_operations();
  void work_on_queue();
  uint32_t local_rank() const { return group_->self().rank; }
  uint32_t local_ranks() const { return group_->self().ranks; }
  bool run_piece(uint64_t number, uint32_t thread);
  Result<void> execute_piece(uint64_t number, uint64_t index);
  Result<SharedAddress> share(ByteView memory, bool copy,
                              std::shared_ptr<const net::SharedRegion>& staging);
  Result<std::shared_ptr<const net::SharedRegion>> make_region(uint64_t bytes);
  Result<std::shared_ptr<const net::SharedRegion>> get_staging(uint64_t bytes);
  Result<void> make_room(uint64_t number);
  Result<void> complete(const InflightOperation& inflight);
  Result<void> wait_complete(const InflightOperation& inflight);
  Result<void> finish(InflightOperation& inflight);
  Error straggler_error(const InflightOperation& inflight) const;
  Error async_error(const Error& error, const InflightOperation& inflight) const;
  std::optional<Error> straggler_of_hosts(const InflightOperation& inflight) const;
  Error operation_error(const std::string& reason, const InflightOperation& inflight) const;

  std::unique_ptr<HostGroup> group_;
  std::optional<World> world_;
  std::unique_ptr<Peers> peers_;  // at local rank 0 of a job with several hosts
  const StopToken& stop_;
  const CommunicatorOptions options_;
  const NumaPlacement placement_;
  uint64_t next_ = 0;
  std::array<InflightOperation, kInflightMax> inflight_;
  std::map<uint64_t, Error> errors_;  // of operations that finished without a wait()
  std::vector<std::shared_ptr<const net::SharedRegion>> allocated_;
  std::vector<std::shared_ptr<const net::SharedRegion>> free_staging_;
  std::optional<Error> failed_;
  std::atomic<bool> stopping_{false};
  std::thread worker_;
};

}  // namespace ff::collective
