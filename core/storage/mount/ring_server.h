// The daemon side of one ring (usrbio/ring.h): it takes submission entries, reads and writes files
// that the user has open, and adds completion entries. Owned by one loop.
//
// The program may write anything into the ring at any time. Counters that no library writes close
// the ring. Each entry is copied once, and the copy is checked; an invalid entry completes with an
// error.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/result.h"
#include "storage/chain/buffer_pool.h"
#include "storage/mount/client_memory.h"
#include "storage/mount/operations.h"
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
  // Null: the user has no such memory.
  virtual RegisteredMemoryRef find(const usrbio::IovId& id, uint32_t uid) = 0;
  // A batch has completed; the ring may have more work.
  virtual void on_batch_done() = 0;
};

class RingServer final : public std::enable_shared_from_this<RingServer>, private Runnable {
 public:
  // Entries per turn of a ring.
  static constexpr uint32_t kBatchMax = 32;

  // Errc::refused: not a valid ring.
  static Result<std::shared_ptr<RingServer>> make(RingContext& context,
                                                  const usrbio::IovLinkName& name, uint32_t uid,
                                                  const ClientMemoryFile& file);

  // Takes entries and starts them. Returns how many it took.
  uint32_t take_requests();
  // Tells the program that it must wake the daemon from now on. False: entries arrived meanwhile.
  bool prepare_to_sleep();
  int priority() const { return name_.priority; }
  // Batches in flight.
  size_t running() const { return running_; }
  // Takes no more entries. Batches in flight complete.
  void close() { closed_ = true; }
  // Cancels reads into lost memory.
  void cancel_lost_reads();

 private:
  struct CheckedRequest {
    usrbio::SubmissionEntry request = {};
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

  RingServer(RingContext& context, usrbio::IovLinkName name, uint32_t uid, uint32_t entries,
             ClientMemory memory);
  void on_wake() override;  // the timeout of a batch
  uint32_t ready_count(uint32_t available);
  Result<CheckedRequest> check(const usrbio::SubmissionEntry& request);
  void begin(const usrbio::SubmissionEntry& request, std::vector<ReadBatch>& batches);
  void start(Task<void> task);
  Task<void> run(Task<void> task);
  Task<void> read(ReadBatch batch);
  Task<std::vector<Result<uint64_t>>> read_all(const ReadBatch& batch);
  Task<Result<uint64_t>> read_long(FileRef file, CheckedRequest checked);
  Task<void> write(CheckedRequest checked);
  Task<Result<uint64_t>> write_all(const CheckedRequest& checked);
  void put_result(uint32_t slot, const Result<uint64_t>& result);
  void publish_results();

  RingContext& context_;
  const usrbio::IovLinkName name_;
  const uint32_t uid_;
  const uint32_t entries_;
  const ClientMemory memory_;
  const usrbio::Ring ring_;
  uint32_t next_request_ = 0;  // number of the next submission entry
  uint32_t released_ = 0;      // entries that may start now (io_depth > 0)
  uint32_t completed_ = 0;     // number of the next completion entry
  uint32_t unanswered_ = 0;    // entries without a completion
  size_t running_ = 0;
  std::list<RunningRead> reading_;
  bool closed_ = false;
  bool timed_out_ = false;  // the timeout of the incomplete batch expired
  bool timer_running_ = false;
  Timer timer_;
};

}  // namespace ff::mount
