// What the daemon has taken from the rings of programs and not completed yet, in memory that
// outlives the process and that no program can access (keeper.h). A successor of the process
// repeats these requests: to read or write the same bytes at the same place once more does no harm.
//
//   Header
//   RingRecord    x kRingsMax      counters of one ring, those of usrbio/ring.h
//   RequestRecord x kRequestsMax   requests of all rings
//
// A process may be killed between any two instructions, so each step is one store. The program
// sees completions when the daemon stores their number in the ring. The daemon announces that
// number in the journal before, and frees the records of the completed requests after it. So a
// successor finds in the ring either the number announced, or the one before, and knows for each
// request whether the program has its completion.
//
// Owned by one loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/base/result.h"
#include "storage/usrbio/ring.h"

namespace ff::mount {

class RingJournal;

// The part of the journal for one ring. The destructor frees it.
class RingProgress {
 public:
  RingProgress() = default;
  RingProgress(RingProgress&& other) noexcept;
  RingProgress& operator=(RingProgress&& other) noexcept;
  ~RingProgress();
  explicit operator bool() const { return journal_ != nullptr; }

  // As the ring had when it was registered.
  uint32_t entries() const;
  // The number of the next submission entry to take.
  uint32_t next_request() const;
  // Submission entries before this one may start (io_depth > 0).
  uint32_t released() const;
  void set_released(uint32_t number);
  // Completion entries before this one are published.
  uint32_t completed() const;

  struct Taken {
    uint32_t record = 0;  // in the journal
    usrbio::SubmissionEntry request = {};
  };
  // Counts the next submission entry as taken. Call it only while RingJournal::room() > 0.
  Taken take(const usrbio::SubmissionEntry& request);
  // The completion entry with this number was written for the request.
  void complete(uint32_t record, uint32_t number);
  // Stores `number` in the ring: the program may use the completion entries before it.
  void publish(usrbio::Shared32& completed, uint32_t number);

  // The requests that the predecessor has taken and the program has no completion of, in the order
  // of their submission. `completed`: what the ring says. Errc::refused: the daemon has never
  // stored that number.
  Result<std::vector<Taken>> recover(uint32_t completed);
  // The request will get no completion.
  void drop(uint32_t record);

 private:
  friend class RingJournal;
  RingProgress(RingJournal& journal, uint32_t index) : journal_(&journal), index_(index) {}

  RingJournal* journal_ = nullptr;
  uint32_t index_ = 0;
  std::vector<uint32_t> finished_ = {};  // records with completions that are not published
  std::vector<uint32_t> left_ = {};      // records of the predecessor
};

class RingJournal {
 public:
  static constexpr size_t kRingsMax = 4096;
  static constexpr size_t kRequestsMax = 8192;

  // An empty one, in a memory file.
  static Result<std::unique_ptr<RingJournal>> create();
  // What a predecessor left in the file. Errc::unsupported: another version wrote it.
  static Result<std::unique_ptr<RingJournal>> open(Fd file);
  ~RingJournal();

  // Whoever has it may open the journal.
  int fd() const { return fd_.get(); }
  // How many more requests can be taken, of all rings together.
  size_t room() const { return free_requests_.size(); }

  // `ring`: a number of its own, not 0. Errc::busy: there are kRingsMax.
  Result<RingProgress> add(uint64_t ring, uint32_t entries);
  // That of a ring of the predecessor; once. Nothing: there is none.
  std::optional<RingProgress> take_left(uint64_t ring);
  // Frees what the predecessor left and nobody has taken.
  void drop_left();

 private:
  friend class RingProgress;
  struct Header;
  struct RingRecord;
  struct RequestRecord;
  RingJournal(Fd fd, ByteSpan memory);
  static Result<std::unique_ptr<RingJournal>> map(Fd file);
  RingRecord& ring(size_t index) const;
  RequestRecord& request(size_t index) const;
  void scan();
  void free_request(uint32_t index);
  void free_ring(uint32_t index);

  const Fd fd_;
  const ByteSpan memory_;
  std::vector<uint32_t> free_rings_, free_requests_;
  std::unordered_map<uint64_t, RingProgress> left_;  // by ring
};

}  // namespace ff::mount
