// Collective operations between the ranks of a job (Fire-Flyer paper, section IV: HFReduce). On one
// host all ranks share the work: any free core reduces a piece of the inputs of all ranks, straight
// into their outputs. With several hosts, local rank 0 of each exchanges data with the others
// (peers.h).
//
// Operations are asynchronous; every rank starts the same operations in the same order. All ranks
// map memory from allocate(), so it needs no copies; other memory is copied in and out.
//
// Messages between two ranks match by tag and order, as in MPI (messages.h); gather, scatter and
// all-to-all consist of messages.
//
// A thread of the communicator works on operations that other ranks wait for. The program starts
// operations in one thread at a time; wait() may run in others meanwhile. If a rank dies or misses
// a deadline, every operation fails with the same error: destroy the communicator, or shrink it.
// With several hosts this also holds when ranks of two hosts start different operations.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"
#include "training/collective/block_table.h"
#include "training/collective/collective_request.h"
#include "training/collective/host_group.h"
#include "training/collective/messages.h"
#include "training/collective/numa_placement.h"
#include "training/collective/peers.h"
#include "training/collective/shrink.h"
#include "training/collective/split.h"
#include "training/collective/staging.h"

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
  // All-to-all: the elements for each rank, and from each; their blocks follow one another. Read
  // by start() only.
  std::span<const uint64_t> in_counts = {}, out_counts = {};

  // What the ranks compare, and messages say of it.
  CollectiveRequest request_without_memory() const {
    return {.kind = kind, .type = type, .op = op, .root = root, .count = count};
  }
};

struct MessageBuffer {
  void* memory = nullptr;
  uint64_t bytes = 0;
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
  // Abandons operations in flight; the other ranks see that this rank has left. If there were
  // messages, rank 0 of a host waits up to 5 s for the other ranks of its host to leave, too, since
  // they need it to exchange more.
  ~Communicator();

  // Every rank of the job calls it, as an operation: ranks with the same color form a communicator,
  // in the order of `key`, then of their ranks. Null for kNoColor. It has the options and network
  // of this one, and outlives it. Errors: those of run() and join().
  Result<std::unique_ptr<Communicator>> split(uint32_t color, uint32_t key, const StopToken& stop);

  // After a failure, and in spite of it: makes a communicator of the ranks that live and call this,
  // in the order of their ranks, with the options and network of this one (shrink.h). First it lets
  // every operation of all ranks fail, then it waits for each rank that lives, at most
  // operation_ns; a rank that comes later gets an error, and is out. Of a part of the network that
  // is cut off, the ranks do not go on with the rest. With several hosts, rank 0 of one of them
  // must live until the shrink is over; of the other hosts any ranks may be lost (successor.h).
  // Errors: those of Shrink::choose_members() and join().
  Result<std::unique_ptr<Communicator>> shrink(const StopToken& stop);

  uint32_t rank() const { return group_->self().first_rank + group_->self().rank; }
  uint32_t ranks() const { return world_ ? world_->ranks() : group_->self().ranks; }
  // "rank 3 (process 4711)".
  std::string name_of(uint32_t rank) const {
    return world_ ? world_->name_of(rank) : group_->name_of(rank);
  }
  const CommunicatorOptions& options() const { return options_; }
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
  // Errc::usage where start() would return it because of the arguments.
  Result<void> check(const Operation& operation) const;
  // Starts a message to or from a rank, and returns its number. Tags of different messages may be
  // equal; those between the same two ranks match in order. A receive may name kAnyRank; wait()
  // stores the sender in `source`, unless that is null. Both ends name the same number of bytes.
  // Errc::usage: a rank that does not exist, too many bytes, a null pointer; Errc::busy:
  // kMessagesMax are unfinished.
  Result<uint64_t> start_send(MessageBuffer data, uint32_t to, uint32_t tag);
  Result<uint64_t> start_receive(MessageBuffer data, uint32_t from, uint32_t tag,
                                 uint32_t* source = nullptr);
  // Waits until the operation or message is complete; at most once for each, in any order. Every
  // message needs one. The memory of an operation without a wait() must stay until kInflightMax
  // later operations were started: its result is stored by then. Errc::usage: the ranks started
  // different operations (all ranks get this error), or a message that its peer expects with
  // another size; Errc::unreachable: a rank is gone; Errc::deadline names the straggler;
  // Errc::corrupt names a link between hosts that changes data; Errc::interrupted.
  Result<void> wait(uint64_t number);
  // start() and wait().
  Result<void> run(const Operation& operation);

  // Why all operations fail, with `what` in front; nothing while they do not.
  std::optional<Error> failure(const std::string& what) const;
  // Lets every operation of all ranks fail with `error`, unless they fail already. Returns it as
  // the others see it: with the name of this rank.
  Error abort(Error error);

 private:
  static constexpr uint64_t kFirstMessage = uint64_t{1} << 63;  // numbers of messages
  struct InflightOperation {
    bool used = false;
    bool has_waiter = false;  // a thread is in wait() for it
    uint64_t number = 0;
    Operation operation = {};
    std::shared_ptr<StagedMemory> in = {}, out = {};  // null: no input, no output
    std::vector<Message> messages = {};               // of which the operation consists
    // All-to-all: where the blocks of each rank begin, in bytes, and where the last one ends.
    std::vector<uint64_t> in_at = {}, out_at = {};
    std::unique_ptr<BlockTable> blocks = {};  // the same, for rank 0; null without other hosts
  };
  struct InflightMessage {
    Message message = {};
    uint32_t* source = nullptr;
  };

  Communicator(std::unique_ptr<HostGroup> group, const StopToken& stop,
               const CommunicatorOptions& options);
  static Result<std::unique_ptr<Communicator>> join(HostRank self, const StopToken& stop,
                                                    const CommunicatorOptions& options,
                                                    const std::optional<Network>& network,
                                                    const JoinCheck& check);
  Result<void> connect_peers(const Network& network, const JoinCheck& check);
  void revoke();
  Result<std::unique_ptr<Communicator>> shrink_once(const StopToken& stop);
  void linger();
  void work_on_operations();
  void work_on_queue();
  void stand_by();
  uint32_t local_rank() const { return group_->self().rank; }
  uint32_t local_ranks() const { return group_->self().ranks; }
  bool run_piece(uint64_t number, uint32_t thread);
  void help(uint64_t number);
  Result<void> execute_piece(uint64_t number, uint64_t index);
  struct Sizes {
    uint64_t in = 0, out = 0;  // bytes
  };
  Result<Sizes> sizes_of(const Operation& operation, const CollectiveRequest& request) const;
  Result<Sizes> check(const Operation& operation, const CollectiveRequest& request) const;
  Result<void> start_messages(InflightOperation& started);
  std::vector<Message> messages_of(const InflightOperation& started) const;
  bool is_gathered(uint32_t peer, uint64_t bytes) const;
  Result<SharedAddress> share_blocks(InflightOperation& started);
  Result<void> receive_blocks(InflightOperation& inflight);
  Message block_message(const InflightOperation& inflight, MessageTable::Kind kind,
                        uint32_t peer) const;
  void copy_own_block(const InflightOperation& started) const;
  Result<uint64_t> start_message(Message message, MessageBuffer data, uint32_t* source);
  Result<void> wait_message(uint64_t number);
  Result<void> make_room(uint64_t number);
  Result<void> complete(uint64_t number);
  Result<void> wait_complete(uint64_t number, int64_t until_ns);
  Result<void> wait_messages(InflightOperation& inflight, int64_t until_ns);
  Result<void> finish(InflightOperation& inflight);
  std::string context_of(uint64_t number) const;
  Error straggler_error(uint64_t number) const;
  std::optional<Error> straggler_of_hosts(uint64_t number) const;

  std::unique_ptr<HostGroup> group_;
  std::optional<Network> network_;  // of a job with several hosts
  std::optional<World> world_;
  std::unique_ptr<Peers> peers_;  // at local rank 0 of a job with several hosts
  const StopToken& stop_;
  const CommunicatorOptions options_;
  const NumaPlacement placement_;
  std::atomic_flag helping_;  // one waiting thread of the program works on pieces
  StagingPool staging_;
  std::optional<Shrink> shrink_;
  std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t splits_ = 0;
  std::optional<Messages> messages_;
  uint64_t next_ = 0;
  std::array<InflightOperation, kInflightMax> inflight_;
  std::map<uint64_t, Error> errors_;  // of operations that finished without a wait()
  uint64_t next_message_ = kFirstMessage;
  std::map<uint64_t, InflightMessage> inflight_messages_;
  std::vector<std::shared_ptr<const net::SharedRegion>> allocated_;
  std::optional<Error> failed_;
  std::atomic<bool> stopping_{false};
  std::thread worker_;
};

}  // namespace ff::collective
