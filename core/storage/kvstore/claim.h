// Who owns a partition, by files alone. A folder of a partition contains:
//
//   epoch-N   the claim of the N-th owner: its member id, and a mark. Exclusive creation decides
//             who is the N-th. Each later claimer first writes the mark into all earlier claims,
//             and then reads what their owners have written.
//   base-N    what the N-th owner has found: which segments of earlier epochs are valid, and how
//             many of their bytes. It replaces base-M of all M < N.
//   seg-*     segments (segment.h); those that no base lists and the last owner has not written are
//             not valid
//
// An owner acknowledges a change only if, after it was written, its own claim has no mark. So the
// claimer, which reads after it has set the mark, finds whatever was acknowledged; and what the
// former owner writes later, it cannot acknowledge, and no base lists it.
//
// An owner may also give a partition to another process: it answers no more calls, marks its own
// claim as released, and whoever is to own the partition next claims it at once (shares.h).
//
// Besides, members/ID is the heartbeat of a process: a counter that changes while it lives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "platform/io/async.h"
#include "platform/io/disk.h"
#include "storage/kvstore/calls.h"
#include "storage/kvstore/segment.h"

namespace ff::kvstore {

enum class ClaimMark : uint8_t { none = 0, superseded = 1, released = 2 };

struct Claim {
  uint64_t epoch = 0;  // 0: nobody has claimed the partition so far
  std::string member = {};
  ClaimMark mark = ClaimMark::none;
};

struct Base {
  struct Valid {
    SegmentName name = {};
    uint64_t end = 0;
  };
  uint64_t epoch = 0;         // the owner that has written it; 0: none has
  uint64_t next_version = 1;  // all records have smaller ones, except those of the epoch itself
  uint64_t first_number = 1;  // of the segments of the epoch itself
  std::vector<Valid> segments = {};
};
std::string encode_base(const Base& base);
std::optional<Base> parse_base(std::string_view text);

// The files of ownership of one partition.
class ClaimFolder {
 public:
  ClaimFolder(io::Disk& disk, io::AsyncQueue& queue, std::string dir);

  const std::string& dir() const { return dir_; }
  // The newest claim.
  Task<Result<Claim>> newest();
  // Claims the partition as the successor of `after`, and marks all earlier claims. Errc::stale:
  // another process has been faster.
  Task<Result<void>> claim(const Claim& after, std::string member, std::string temp_suffix);
  // Whether this claim has no mark: everything that was written before the call is acknowledged.
  // Errc::stale: another process has claimed the partition.
  Task<Result<void>> check();
  // Tells others that they can claim the partition at once.
  Task<Result<void>> release();
  uint64_t epoch() const { return epoch_; }

  // What is in the folder at one moment: the newest base (0: none), and all segments, by number.
  struct Listing {
    uint64_t base = 0;
    std::vector<SegmentName> segments = {};
  };
  Result<Listing> list();
  // Errc::not_found: a newer one has replaced it.
  Result<Base> read_base(uint64_t epoch);
  // A base that was read. While its file is open, no other one gets its inode number.
  struct OpenBase {
    Base base = {};
    std::unique_ptr<io::File> file = {};
    io::FileInfo info = {};
  };
  Result<OpenBase> open_base(uint64_t epoch);
  // Whether nothing has replaced it, by one look at its name. Errc::not_found, likewise.
  Result<bool> is_current(const OpenBase& base);
  Result<Base> newest_base();
  Result<std::vector<SegmentName>> segments();
  Result<void> write_base(const Base& base);
  // Removes claims and bases before this one.
  Result<void> remove_older();

 private:
  Task<Result<void>> mark(std::string path, ClaimMark mark);
  Result<std::vector<uint64_t>> numbers_of(std::string_view prefix);  // sorted

  io::Disk& disk_;
  io::AsyncQueue& queue_;
  const std::string dir_;
  uint64_t epoch_ = 0;
  std::unique_ptr<io::File> own_;
};

// Heartbeats of this process and of others.
class StoreHeartbeats {
 public:
  // Of `options`, address, host, and lease_ns: a process whose heartbeat stands still for so long
  // counts as dead.
  StoreHeartbeats(io::Disk& disk, io::AsyncQueue& queue, Loop& loop, std::string dir,
                  std::string id, const Options& options);

  const std::string& id() const { return id_; }
  // Writes the next heartbeat.
  Task<Result<void>> beat();
  Result<void> remove_own();
  struct Peer {
    uint64_t counter = 0;
    std::string address = {};
    std::string host = {};
    int64_t changed_ns = 0;   // when this process has seen the counter change; steady time
    uint64_t changes = 0;     // that it has seen, since it has taken the other one for dead
    bool has_lapsed = false;  // whether it ever has
  };
  // Reads the heartbeat of another process; nullopt: it has none, because it has ended.
  Task<Result<std::optional<Peer>>> observe(std::string id);
  // Likewise, of all other processes.
  Task<Result<void>> observe_all();
  // As they were when they were observed last.
  const std::map<std::string, Peer>& peers() const { return peers_; }
  bool is_live(const Peer& peer) const { return loop_.now_ns() - peer.changed_ns < lease_ns_; }
  // Likewise, long enough to be given partitions: not a file that a dead process has left. One that
  // was taken for dead must live for half a minute of heartbeats first.
  bool is_settled(const Peer& peer) const;
  // Forgets a process that owns nothing any more.
  void forget(const std::string& id);

 private:
  std::string path_of(const std::string& id) const;

  io::Disk& disk_;
  io::AsyncQueue& queue_;
  Loop& loop_;
  const std::string dir_;
  const std::string id_;
  const std::string address_;
  const std::string host_;
  const int64_t lease_ns_;
  uint64_t counter_ = 0;
  std::map<std::string, Peer> peers_;
};

}  // namespace ff::kvstore
