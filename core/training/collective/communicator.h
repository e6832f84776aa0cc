// Collective operations between the ranks of a job (Fire-Flyer paper, section IV: HFReduce). On one
// host each rank's memory is summed by whoever has a core, straight into the memory of all; with
// several hosts one rank of each speaks with the others (neighbours.h).
//
// Operations are asynchronous; every rank starts the same ones in the same order. Memory from
// allocate() is reached by all ranks and costs no copy; any other is copied in and out.
//
// One thread of the program calls; a thread of the communicator's own works on what others wait
// for. Once a rank is gone or has let a deadline pass, every operation fails with the same error:
// leave. Between hosts, so it is once two of them ask for different things.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/stop.h"
#include "training/collective/host_group.h"
#include "training/collective/neighbours.h"
#include "training/collective/placement.h"
#include "training/collective/request.h"

namespace ff::collective {

struct Operation {
  Collective kind = Collective::allreduce;
  simd::DataType type = simd::DataType::f32;
  simd::ReduceOp op = simd::ReduceOp::sum;
  uint32_t root = 0;
  uint64_t count = 0;  // elements, as NCCL counts them (request.h)
  // May be the same; nothing that another operation in flight uses. Null where nothing is given or
  // got.
  const void* in = nullptr;
  void* out = nullptr;
};

struct Options {
  int64_t join_ns = 60 * kSecond;       // until all ranks have come
  int64_t operation_ns = 60 * kSecond;  // for an operation, from when it is waited for
  bool pin = true;                      // threads to NUMA nodes (placement.h)
  std::string sysfs = "/sys";           // what tells of those
};

class Communicator {
 public:
  // `network`: how to find other hosts; without one, all ranks are on this one. Errors: those of
  // HostGroup::join() and Neighbours::meet().
  static Result<std::unique_ptr<Communicator>> join(HostRank self, const Stop& stop,
                                                    const Options& options,
                                                    const std::optional<Network>& network = {});
  // What is in flight is given up; the others see that this rank has left.
  ~Communicator();

  uint32_t rank() const { return group_->self().first_rank + group_->self().rank; }
  uint32_t ranks() const { return world_ ? world_->ranks() : group_->self().ranks; }
  // Of the job; null when it is on this host alone.
  const World* world() const { return world_ ? &*world_ : nullptr; }

  // In zeros. Errors: no memory.
  Result<ByteSpan> allocate(uint64_t bytes);
  // What allocate() gave, when no operation of any rank uses it. Errc::usage: it gave no such.
  Result<void> free(const void* memory);

  // Begins an operation, and returns its number. At most kJobs are in flight. Errc::usage:
  // a root that is none, more elements than there can be, null; Errc::busy: wait for some first;
  // Errc::interrupted.
  Result<uint64_t> start(const Operation& operation);
  // Until it has ended. Once for each; in any order. Errc::usage: the ranks asked for different
  // things (all of them get this error); Errc::unreachable: a rank is gone; Errc::deadline names
  // the rank that has not come; Errc::interrupted.
  Result<void> wait(uint64_t number);
  Result<void> run(const Operation& operation);

 private:
  // An operation that this rank has started.
  struct Flight {
    bool used = false;
    uint64_t number = 0;
    Operation operation = {};
    std::shared_ptr<const net::Region> in = {}, out = {};  // copies of memory that is the program's
  };

  Communicator(std::unique_ptr<HostGroup> group, const Stop& stop, const Options& options);
  Result<void> meet(const Network& network);
  void work();
  void work_on_turns();
  uint32_t local_rank() const { return group_->self().rank; }
  uint32_t local_ranks() const { return group_->self().ranks; }
  bool work_on(uint64_t number, uint32_t thread);
  Result<void> do_piece(uint64_t number, uint64_t index);
  Result<Place> place(ByteView memory, bool copy, std::shared_ptr<const net::Region>& staged);
  Result<std::shared_ptr<const net::Region>> make_region(uint64_t bytes);
  Result<std::shared_ptr<const net::Region>> stage(uint64_t bytes);
  Result<void> until_ended(const Flight& flight);
  Error missing(const Flight& flight) const;
  Error told(const Error& fault, const Flight& flight) const;
  std::optional<Error> ask_late(const Flight& flight) const;
  Error stuck(const std::string& who, const Flight& flight) const;

  std::unique_ptr<HostGroup> group_;
  std::optional<World> world_;
  std::unique_ptr<Neighbours> neighbours_;  // of the rank that speaks with them
  const Stop& stop_;
  const Options options_;
  const Placement placement_;
  uint64_t next_ = 0;
  std::array<Flight, kJobs> flights_;
  std::vector<std::shared_ptr<const net::Region>> allocated_;
  std::vector<std::shared_ptr<const net::Region>> spare_;  // staging memory that nobody uses now
  std::optional<Error> failed_;
  std::atomic<bool> ends_{false};
  std::thread worker_;
};

}  // namespace ff::collective
