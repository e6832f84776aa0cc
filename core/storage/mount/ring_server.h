// The daemon side of one ring (usrbio/ring.h): it takes submission entries, reads and writes files
// that the user has open, and adds completion entries. Owned by one loop.
//
// The program may write anything into the ring at any time. Counters that no library writes close
// the ring. Each entry is copied once, and the copy is checked; an invalid entry completes with an
// error.
//
// The journal of the daemon (ring_journal.h) has a copy of each entry from when it is taken until
// the program has its completion. So a successor of the daemon continues the ring: it repeats these
// and no others.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/result.h"
#include "storage/chain/buffer_pool.h"
#include "storage/mount/client_memory.h"
#include "storage/mount/operations.h"
#include "storage/mount/ring_journal.h"
#include "storage/usrbio/iov_link_name.h"
#include "storage/usrbio/ring.h"

namespace ff::mount {

// Memory of a program that rings may use for data (Iov).
struct RegisteredMemory {
  uint32_t uid = 0;
  uint64_t block = 0;  // I/O must not cross a multiple of it; 0: no limit
  Fd fd = {};
  ClientMemory memory = {};
};
using RegisteredMemoryRef = std::shared_ptr<const RegisteredMemory>;

// The environment of a ring.
class RingContext {
 public:
  virtual ~RingContext() = default;
  virtual Loop& loop() = 0;
  virtual Gate& gate() = 0;
  virtual Operations& operations() = 0;
  // For data on its way to storage.
  virtual chain::BufferPool& memory() = 0;
  virtual RingJournal& journal() = 0;
  // Null: the user has no such memory.
  virtual RegisteredMemoryRef find(const usrbio::IovId& id, uint32_t uid) = 0;
  // A batch has completed; the ring may have more work.
  virtual void on_batch_done() = 0;
};

class RingServer final : public std::enable_shared_from_this<RingServer>, private Runnable {
 public:
  // Entries per turn of a ring.
  static constexpr uint32_t kBatchMax = 32;

  // `number`: of the ring in the journal. Errc::refused: not a valid ring.
  static Result<std::shared_ptr<RingServer>> make(RingContext& context,
                                                  const usrbio::IovLinkName& name, uint32_t uid,
                                                  const ClientMemoryFile& file, uint64_t number);
  // Continues a ring that the predecessor of this process has served.
  static Result<std::shared_ptr<RingServer>> restore(RingContext& context,
                                                     const usrbio::IovLinkName& name, uint32_t uid,
                                                     const ClientMemoryFile& file, uint64_t number);

  ~RingServer();

  // Takes entries and starts them, at most kBatchMax. Returns how many it took.
  uint32_t take_requests();
  // Tells the program that it must wake the daemon from now on. False: entries arrived meanwhile.
  bool prepare_to_sleep();
  int priority() const { return name_.priority; }
  // It takes what the predecessor has taken, which needs no room in the journal.
  bool repeats() const { return !repeats_.empty(); }
  // Batches in flight.
  size_t running() const { return running_; }
  // Takes no more entries. Batches in flight complete.
  void close() { closed_ = true; }
  // Cancels reads into lost memory.
  void cancel_lost_reads();

 private:
  using Taken = RingProgress::Taken;
  struct CheckedRequest {
    Taken taken = {};
    RegisteredMemoryRef memory = {};
    ByteSpan bytes = {};
  };
  using FileRef = std::shared_ptr<client::File>;
  // Reads of one file that are sent together.
  struct ReadBatch {
    FileRef file = {};
    std::vector<CheckedRequest> requests = {};
    uint64_t bytes = 0;

    bool lost() const;  // whether the memory of one of them is lost
  };
  struct RunningRead {
    const ReadBatch& batch;
    CancellationToken& cancel;
  };

  RingServer(RingContext& context, usrbio::IovLinkName name, uint32_t uid, ClientMemory memory,
             RingProgress progress);
  void on_wake() override;  // the timeout of a batch
  uint32_t ready_count(uint32_t available);
  std::vector<Taken> take_some();
  Result<CheckedRequest> check(const Taken& taken);
  void begin(const Taken& taken, std::vector<ReadBatch>& batches);
  void start(Task<void> task);
  Task<void> run(Task<void> task);
  Task<void> read(ReadBatch batch);
  Task<std::vector<Result<uint64_t>>> read_all(const ReadBatch& batch);
  Task<Result<uint64_t>> read_long(FileRef file, CheckedRequest checked);
  Task<void> write(CheckedRequest checked);
  Task<Result<uint64_t>> write_all(const CheckedRequest& checked);
  void put_result(const Taken& taken, const Result<uint64_t>& result);
  void publish_results();
  void wake_waiters();

  RingContext& context_;
  const usrbio::IovLinkName name_;
  const uint32_t uid_;
  const ClientMemory memory_;
  RingProgress progress_;
  const uint32_t entries_;
  const usrbio::Ring ring_;
  std::deque<Taken> repeats_ = {};  // taken by the predecessor
  uint32_t next_request_ = 0;       // number of the next submission entry
  uint32_t released_ = 0;           // entries that may start now (io_depth > 0)
  uint32_t completed_ = 0;          // number of the next completion entry
  uint32_t unanswered_ = 0;         // entries without a completion
  size_t running_ = 0;
  std::list<RunningRead> reading_;
  bool closed_ = false;
  bool timed_out_ = false;  // the timeout of the incomplete batch expired
  bool timer_running_ = false;
  Timer timer_;
};

}  // namespace ff::mount
