// The daemon's side of one ring (usrbio/ring.h): takes requests out of it, does them with the files
// that its user has open, and puts the outcomes in. Owned by one loop.
//
// Whoever has the ring can write anything into it at any time. Numbers that no library writes end
// the ring; each request is copied once, and what is wrong with the copy is its outcome.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/result.h"
#include "storage/chain/memory.h"
#include "storage/mount/foreign_memory.h"
#include "storage/mount/operations.h"
#include "storage/usrbio/link_name.h"
#include "storage/usrbio/ring.h"

namespace ff::mount {

// Memory for data, of a program.
struct ProgramMemory {
  uint32_t uid = 0;
  uint64_t block = 0;  // nothing crosses a multiple of it; 0: there are none
  Fd fd = {};
  ForeignMemory memory = {};
};
using ProgramMemoryRef = std::shared_ptr<const ProgramMemory>;

// What a ring finds around it.
class RingHost {
 public:
  virtual ~RingHost() = default;
  virtual Loop& loop() = 0;
  virtual Gate& gate() = 0;
  virtual Operations& operations() = 0;
  // Where data on its way to storage lies.
  virtual chain::Memory& memory() = 0;
  // Null: the user has none of that name.
  virtual ProgramMemoryRef find(const usrbio::Id& id, uint32_t uid) = 0;
  // A job has ended: there may be more to do.
  virtual void ended() = 0;
};

class RingServer final : public std::enable_shared_from_this<RingServer>, private Ready {
 public:
  // Requests taken before others have their turn.
  static constexpr uint32_t kTakenMax = 32;

  // Errc::refused: it is no ring of so many entries.
  static Result<std::shared_ptr<RingServer>> make(RingHost& host, const usrbio::LinkName& name,
                                                  uint32_t uid, const ForeignFile& file);

  // Takes what is there and begins with it. How many requests it has taken.
  uint32_t scan();
  // Who adds requests has to wake the host from now on. False: some have come meanwhile.
  bool sleep();
  int priority() const { return name_.priority; }
  // Jobs under way.
  size_t running() const { return running_; }
  // Nothing more is taken. What is under way ends by itself.
  void close() { closed_ = true; }
  // Ends reads into memory that is lost, which nobody waits for any more.
  void give_up_lost();

 private:
  struct Wanted {
    usrbio::Request request = {};
    ProgramMemoryRef memory = {};
    ByteSpan bytes = {};
  };
  using FileRef = std::shared_ptr<client::File>;
  // Reads of one file.
  struct Job {
    FileRef file = {};
    std::vector<Wanted> wanted = {};
    uint64_t bytes = 0;

    bool lost() const;  // memory of one of them
  };
  struct Reading {
    const Job& job;
    Cancel& cancel;
  };

  RingServer(RingHost& host, usrbio::LinkName name, uint32_t uid, uint32_t entries,
             ForeignMemory memory);
  void fire() override;  // the time of a batch has come
  uint32_t due(uint32_t available);
  Result<Wanted> check(const usrbio::Request& request);
  void begin(const usrbio::Request& request, std::vector<Job>& jobs);
  void start(Task<void> task);
  Task<void> run(Task<void> task);
  Task<void> read(Job job);
  Task<std::vector<Result<uint64_t>>> read_all(const Job& job);
  Task<Result<uint64_t>> read_long(FileRef file, Wanted wanted);
  Task<void> write(Wanted wanted);
  Task<Result<uint64_t>> write_all(const Wanted& wanted);
  void put(uint32_t slot, const Result<uint64_t>& result);
  void publish();

  RingHost& host_;
  const usrbio::LinkName name_;
  const uint32_t uid_;
  const uint32_t entries_;
  const ForeignMemory memory_;
  const usrbio::Ring ring_;
  uint32_t taken_ = 0;      // requests before this number
  uint32_t allowed_ = 0;    // of the next ones, which may be taken now
  uint32_t completed_ = 0;  // outcomes before this number
  uint32_t open_ = 0;       // requests without an outcome yet
  size_t running_ = 0;
  std::list<Reading> reading_;
  bool closed_ = false;
  bool late_ = false;  // what is there has waited long enough
  bool timed_ = false;
  Timer timer_;
};

}  // namespace ff::mount
