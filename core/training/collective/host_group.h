// The ranks of one host: how they find each other, and what of their memory they share.
//
// Rank 0 listens on a Unix socket whose name is the job's; the others connect, and each end looks
// whether the other is of the same user. Rank 0 sends everyone the board (board.h), and passes on
// what ranks tell of their regions: a message and a descriptor each. A socket that ends without a
// word is a rank that is gone: it is written on the board, where all see it.
//
// Everything but the constructor may be called from any thread; a thread of its own keeps the
// sockets.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/stop.h"
#include "platform/net/region.h"
#include "training/collective/board.h"

namespace ff::collective {

struct HostRank {
  uint32_t rank = 0;  // of this host's
  uint32_t ranks = 1;
  uint32_t first_rank = 0;      // the job's number of the host's rank 0
  bool has_neighbours = false;  // the job has ranks on other hosts
  // The same for all ranks of a job, and no other job's on this host: it names their socket.
  std::string job;
  int64_t reach_ns = 60 * kSecond;  // for memory of another rank to become known
};

class HostGroup {
 public:
  // Waits until all ranks have come. Errc::deadline names those that have not, Errc::refused
  // another user's process or a rank that came twice, Errc::usage ranks that do not agree on their
  // number.
  static Result<std::unique_ptr<HostGroup>> join(HostRank self, const Stop& stop,
                                                 int64_t within_ns);
  ~HostGroup();

  const HostRank& self() const { return self_; }
  Board& board() { return *board_; }
  // "rank 3 (process 4711)", by the job's numbers.
  std::string name_of(uint32_t rank) const;
  int32_t process_of(uint32_t rank) const { return pids_.at(rank); }
  // This rank posts nothing any more.
  void leave();
  // Wakes what speaks with other nodes, in rank 0, by a descriptor that becomes readable.
  void nudge() const;
  int nudged() const { return nudge_.get(); }

  // Memory that all ranks reach, in zeros. They learn of it before anything that this rank posts
  // later.
  Result<std::shared_ptr<const net::Region>> make_region(uint64_t bytes);
  // Nobody uses it any more.
  void remove_region(const std::shared_ptr<const net::Region>& region);
  // The region of this rank that all of `memory` is in.
  std::optional<Place> place_of(ByteView memory) const;
  // Memory of a rank, this one included. Waits until it is known: Errc::unreachable when a rank is
  // gone meanwhile, Errc::deadline when it is not in time, which all are told. Errc::corrupt:
  // beyond the region.
  Result<std::byte*> reach(uint32_t rank, const Place& place, uint64_t bytes);

 private:
  class Keeper;
  struct Mapped;
  struct Reached {
    ByteSpan memory = {};
    std::shared_ptr<const void> held = {};  // what keeps it mapped
  };

  HostGroup(HostRank self, Clock& clock);
  void add_region(uint32_t rank, uint32_t id, Reached region);
  void forget_region(uint32_t rank, uint32_t id);
  Result<std::byte*> within(const Reached& region, uint32_t rank, const Place& place,
                            uint64_t bytes) const;

  const HostRank self_;
  Clock& clock_;
  net::RegionSet own_;
  std::shared_ptr<const net::Region> board_region_;  // rank 0's
  std::shared_ptr<const Mapped> board_mapped_;       // the others'
  std::optional<Board> board_;
  std::map<uint32_t, int32_t> pids_;  // of ranks
  Fd nudge_;                          // an eventfd, rank 0's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint32_t, uint32_t>, Reached> regions_;  // by rank and id

  std::unique_ptr<Keeper> keeper_;
};

}  // namespace ff::collective
