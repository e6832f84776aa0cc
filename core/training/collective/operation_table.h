// The table of operations: shared memory of all ranks of a host, in which each rank posts the
// operations that it starts. The last rank to post an operation makes it ready; then any thread of
// any rank claims pieces of it, and the thread that finishes the last piece completes it and wakes
// the waiters. Every rank numbers its operations from 0 in the same order; the table has
// kInflightMax slots.
//
//   table := header slot*kInflightMax work_queue message_table vote_table
//   slot  := arrived ready unfinished completed  unclaimed  pieces mismatch  request*kHostRanksMax
//
// A slot serves the operations n, n + kInflightMax, ...: a rank posts n + kInflightMax only after
// it has seen n complete, so no rank reads n any more when the last one posts. Counters that live
// longer contain the operation's number.
//
// Waiting threads sleep on one of two futexes: `work` is woken when there are pieces to claim,
// `done` when an operation completes or the job fails.
//
// In a job with several hosts, rank 0 of each host exchanges data with the others (pipeline.h): it
// queues the work of this host (work_queue.h) and completes the operations.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "training/collective/collective_request.h"
#include "training/collective/futex_word.h"
#include "training/collective/message_table.h"
#include "training/collective/vote_table.h"
#include "training/collective/work_queue.h"

namespace ff::collective {

constexpr uint32_t kInflightMax = 64;  // operations

class OperationTable {
 public:
  static size_t bytes();
  struct Shape {
    uint32_t ranks = 1;      // of this host
    bool has_peers = false;  // the job has ranks on other hosts
  };
  // `memory` is zeroed and not shared yet.
  static OperationTable make(ByteSpan memory, const Shape& shape);
  // Errc::corrupt: made by another version of ff, or for another number of ranks. Errc::usage: the
  // ranks disagree on whether there are other hosts.
  static Result<OperationTable> open(ByteSpan memory, const Shape& shape);

  uint32_t ranks() const { return header_->ranks; }

  // This rank must have seen operation `number` - kInflightMax complete. True for the last rank of
  // the host that posts it.
  bool post(uint32_t rank, uint64_t number, const CollectiveRequest& request);
  // How many operations a rank has posted.
  uint64_t posted(uint32_t rank) const;
  // All ranks of the host have posted it.
  bool is_ready(uint64_t number) const;
  bool is_complete(uint64_t number) const;

  // With other hosts, called by local rank 0: this host has finished its part.
  void complete(uint64_t number);
  WorkQueue work_queue() const;
  MessageTable messages() const;
  VoteTable votes() const;

  // A thread that works on pieces; the table records what each one works on.
  struct Worker {
    uint32_t rank = 0;
    uint32_t thread = 0;  // 0 or 1
  };
  // Claims a piece of an operation that is ready; nothing when none is left. The operation does not
  // complete before finish_piece().
  std::optional<uint64_t> claim_piece(Worker worker, uint64_t number);
  void finish_piece(Worker worker, uint64_t number);
  // The same for an item of the work queue.
  std::optional<WorkQueue::Claimed> claim_work(Worker worker);
  void finish_work(Worker worker, uint64_t ticket);
  // What a rank has posted. Valid while the caller has claimed a piece of it, or until the caller
  // posts the next operation of this slot.
  const CollectiveRequest& request(uint64_t number, uint32_t rank) const;
  // A rank that posted another request than rank 0. Of an operation that is complete; valid until
  // the caller posts number + kInflightMax, even when other ranks already have.
  struct Mismatch {
    uint32_t rank = 0;
    CollectiveRequest posted, expected;  // by that rank, and by rank 0
  };
  std::optional<Mismatch> mismatch(uint64_t number) const;
  // A rank that works on a piece of it.
  std::optional<uint32_t> find_worker(uint64_t number) const;
  // Number + 1 of the operation that a rank works on; 0: none.
  uint64_t current_operation(uint32_t rank) const;
  // While rank `from` waits for rank `to`, the table shows `to` as the one that works.
  using WorkMarks = std::array<uint64_t, 2>;
  WorkMarks reassign_work(uint32_t from, uint32_t to);
  void restore_work(uint32_t from, uint32_t to, const WorkMarks& marks);

  // The rank that makes the job fail; only the first one is recorded. Wakes all waiters.
  struct FailedRank {
    uint32_t rank = 0;
    bool timed_out = false;  // it missed a deadline; else its process is gone
  };
  void set_failed_rank(FailedRank failed);
  std::optional<FailedRank> failed_rank() const;
  // An error of another host or of all hosts (as ncclCommGetAsyncError reports); only the first one
  // is recorded. Wakes all waiters.
  void set_async_error(const Error& error);
  std::optional<Error> async_error() const;
  // Whether one of both is recorded.
  bool has_failed() const;
  // A rank has waited too long for this operation: rank 0 is to find the straggler. The highest
  // number is kept.
  void request_straggler_check(uint64_t number);
  std::optional<uint64_t> straggler_check() const;
  // The same for a message: rank `peer` of the job is late. Rank 0 takes the request.
  void request_message_check(uint32_t peer);
  std::optional<uint32_t> take_message_check();
  // Where rank 0 has stored the encoded World (world.h), and its bytes.
  void set_world_table(const SharedAddress& address, uint64_t bytes);
  std::optional<std::pair<SharedAddress, uint64_t>> world_table() const;
  // The rank posts no more operations.
  void set_departed(uint32_t rank);
  bool has_departed(uint32_t rank) const;
  // Rank 0 passes on no more messages between hosts, nor regions between ranks.
  void set_relay_closed();
  bool is_relay_closed() const;

  enum class Futex : uint8_t { work, done };
  // Returns true once `until` holds, false at that steady time. Checks both after each wake.
  bool wait(Futex futex, Clock& clock, int64_t until_ns, const std::function<bool()>& until) const;
  void wake(Futex futex, int waiters = kAllWaiters) const;

 private:
  static constexpr uint32_t kTimedOut = 1u << 31;
  static constexpr size_t kErrorTextBytes = 1024;
  struct alignas(64) Rank {
    std::atomic<uint64_t> posted;      // how many
    std::atomic<uint64_t> current[2];  // number + 1 that each thread works on; 0: none
    std::atomic<uint32_t> departed;
  };
  struct Header {
    uint64_t magic;
    uint32_t ranks;
    uint32_t has_peers;
    std::atomic<uint32_t> failed_rank;  // rank + 1, and kTimedOut
    std::atomic<uint32_t> error_state;  // 1: being written, 2: complete
    uint32_t error_code;
    std::atomic<uint32_t> relay_closed;
    std::atomic<uint32_t> message_check;      // rank + 1
    std::atomic<uint64_t> straggler_check;    // number + 1
    std::atomic<uint64_t> world_table_bytes;  // 0: not set
    SharedAddress world_table;
    char error_text[kErrorTextBytes];  // zero-terminated
    alignas(64) FutexWord futexes[2];
    Rank rank[kHostRanksMax];
  };
  struct alignas(64) Slot {
    std::atomic<uint64_t> arrived;     // ranks, since the table was made
    std::atomic<uint64_t> ready;       // number + 1
    std::atomic<uint64_t> unfinished;  // pieces
    std::atomic<uint64_t> completed;   // number + 1
    uint64_t pieces;
    uint32_t mismatched_rank;                     // rank + 1; 0: none
    CollectiveRequest mismatched, expected;       // copies of requests[], which live longer
    alignas(64) std::atomic<uint64_t> unclaimed;  // number:u32 pieces:u32
    CollectiveRequest requests[kHostRanksMax];
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  explicit OperationTable(ByteSpan memory);
  Slot& slot(uint64_t number) const { return slots_[number % kInflightMax]; }
  void begin(uint64_t number);

  Header* header_;
  Slot* slots_;
};

}  // namespace ff::collective
