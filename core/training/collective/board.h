// The board: memory that all ranks of a host have mapped, where each posts what it asks for. When
// the last one has posted an operation, any rank takes pieces of it; who finishes the last piece
// tells all. Operations are numbered from 0 on every rank alike; kJobs of them have a slot at once.
//
//   board := header job*kJobs turns
//   job   := arrived ready left ended  remaining  pieces disagrees  request*kHostRanksMax
//
// A slot serves number n, n + kJobs, …: a rank posts n + kJobs once it has seen n ended, so nobody
// looks at n any more when the last rank posts. Counters that outlive that carry the number.
//
// Ranks that wait sleep on a futex; it is rung when there is work, and when something has ended.
//
// Of a job on several nodes, rank 0 of the host speaks with the others (flow.h): then it is the one
// to say when there is something to do of an operation (turns.h), and when it has ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "training/collective/request.h"
#include "training/collective/turns.h"

namespace ff::collective {

constexpr uint32_t kHostRanksMax = 64;
constexpr uint32_t kJobs = 64;

class Board {
 public:
  static size_t bytes();
  struct Shape {
    uint32_t ranks = 1;           // of this host
    bool has_neighbours = false;  // there are other nodes
  };
  // In zeros, which nobody else has seen yet.
  static Board make(ByteSpan memory, const Shape& shape);
  // Errc::corrupt: another version's, or of another shape.
  static Result<Board> open(ByteSpan memory, const Shape& shape);

  uint32_t ranks() const { return header_->ranks; }

  // Number - kJobs has ended, and this rank has seen how. Whether it was the last of the host.
  bool post(uint32_t rank, uint64_t number, const Request& request);
  // How many operations a rank has posted.
  uint64_t posted(uint32_t rank) const;
  // All have, and they agree: there may be pieces to take.
  bool ready(uint64_t number) const;
  bool ended(uint64_t number) const;

  // With other nodes, by local rank 0: all of it is done on this node.
  void end(uint64_t number);
  Turns turns() const;

  // Who works on pieces: one of two threads of a rank, each with a place to say so.
  struct Worker {
    uint32_t rank = 0;
    uint32_t thread = 0;  // 0 or 1
  };
  // Of one that is ready, or has ended: a piece that nobody has taken. Then it does not end before
  // finish().
  std::optional<uint64_t> take(Worker worker, uint64_t number);
  void finish(Worker worker, uint64_t number);
  // The same for a turn.
  std::optional<Turns::Taken> take_turn(Worker worker);
  void finish_turn(Worker worker, uint64_t ticket);
  // What a rank has posted; while this rank has a piece of it, or before it has posted the next.
  const Request& request(uint64_t number, uint32_t rank) const;
  // Of one that has ended: a rank that asked for something else than rank 0. Before this rank has
  // posted number + kJobs, which the others may have.
  struct Disagreement {
    uint32_t rank = 0;
    Request asked, first;  // by it, and by rank 0
  };
  std::optional<Disagreement> disagrees(uint64_t number) const;
  // A rank that works on a piece of it.
  std::optional<uint32_t> works_on(uint64_t number) const;
  // Number + 1 of what a rank works on; 0: nothing.
  uint64_t works(uint32_t rank) const;
  // While `from` cannot go on without `to`, it is `to` that works on what `from` did.
  using Works = std::array<uint64_t, 2>;
  Works hand_over_works(uint32_t from, uint32_t to);
  void take_works_back(uint32_t from, uint32_t to, const Works& works);

  // A rank that the others cannot go on with; the first one counts. All that wait are woken.
  struct Lost {
    uint32_t rank = 0;
    bool is_late = false;  // it has let a deadline pass; else it is gone without a word
  };
  void set_lost(Lost lost);
  std::optional<Lost> lost() const;
  // What another node, or all of them, cannot go on with; the first one counts. All that wait are
  // woken.
  void set_fault(const Error& error);
  std::optional<Error> fault() const;
  // Somebody has waited too long for this operation, and asks who is late; the last one counts.
  void ask_late(uint64_t number);
  std::optional<uint64_t> asked_late() const;
  // Where rank 0 has put the table of all nodes, and its bytes.
  void set_world(const Place& place, uint64_t bytes);
  std::optional<std::pair<Place, uint64_t>> world() const;
  // A rank posts nothing any more.
  void set_left(uint32_t rank);
  bool left(uint32_t rank) const;

  enum class Bell : uint8_t { work, done };
  // Until `until` holds: true; or a steady time has come: false. Both it looks at after each ring.
  bool wait(Bell bell, Clock& clock, int64_t until_ns, const std::function<bool()>& until) const;
  void ring(Bell bell, int waiters = kEverybody) const;

 private:
  static constexpr uint32_t kLate = 1u << 31;
  static constexpr int kEverybody = INT32_MAX;
  static constexpr size_t kFaultBytes = 1024;
  struct alignas(64) Rank {
    std::atomic<uint64_t> posted;    // how many
    std::atomic<uint64_t> works[2];  // number + 1 of what its threads work on; 0: nothing
    std::atomic<uint32_t> left;
  };
  struct Header {
    uint64_t magic;
    uint32_t ranks;
    uint32_t has_neighbours;
    std::atomic<uint32_t> lost;   // rank + 1, and kLate
    std::atomic<uint32_t> fault;  // 1: is being written, 2: is there
    uint32_t fault_code;
    std::atomic<uint64_t> asked_late;   // number + 1
    std::atomic<uint64_t> world_bytes;  // 0: not yet
    Place world;
    char fault_text[kFaultBytes];  // with a zero behind
    alignas(64) std::atomic<uint32_t> bells[2];
    Rank rank[kHostRanksMax];
  };
  struct alignas(64) Job {
    std::atomic<uint64_t> arrived;  // ranks, ever
    std::atomic<uint64_t> ready;    // number + 1
    std::atomic<uint64_t> left;     // pieces that are not finished
    std::atomic<uint64_t> ended;    // number + 1
    uint64_t pieces;
    uint32_t disagrees;                           // rank + 1
    Request asked, first;                         // then: as requests[], for longer
    alignas(64) std::atomic<uint64_t> remaining;  // number:u32 pieces that are not taken:u32
    Request requests[kHostRanksMax];
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  explicit Board(ByteSpan memory);
  Job& job(uint64_t number) const { return jobs_[number % kJobs]; }
  void begin(uint64_t number);

  Header* header_;
  Job* jobs_;
};

}  // namespace ff::collective
