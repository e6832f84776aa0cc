// One target's part in its chain: what it stores, passes on, commits, answers, and copies to the
// target that comes back behind it (storage.md, "Chains"). What is decided is in decisions.h, what
// the disk keeps in chunk/store.h, what the chain looks like in cluster/member.h.
//
// An update that is stored as pending lives on as a flight of its own: neither its caller's
// deadline nor a closed connection ends it. It ends by commit, by a definite refusal of the
// successor, or when the target no longer serves: then whoever copies to the target, or the target
// when it is the first to serve again, decides.
//
// replica_update.cc carries versions down the chain, replica_read.cc answers questions,
// replica_sync.cc makes them durable and brings a target back, replica_copy.cc copies,
// replica_reach.cc tells of a successor that cannot be reached, replica_repair.cc has written anew
// what is damaged, replica_compare.cc looks for what differs,
// replica_prune.cc forgets what was removed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/auth/key.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "storage/chain/calls.h"
#include "storage/chain/counters.h"
#include "storage/chain/decisions.h"
#include "storage/chain/locks.h"
#include "storage/chain/memory.h"
#include "storage/chain/nodes.h"
#include "storage/chain/pace.h"
#include "storage/chain/service.h"
#include "storage/chain/steps.h"
#include "storage/chunk/aligned_bytes.h"
#include "storage/chunk/store.h"
#include "storage/cluster/member.h"

namespace ff::chain {

constexpr size_t kChunkPage = 1000;           // chunks of a list, of a store or from a peer
constexpr int64_t kPeerCallNs = 5 * kSecond;  // a call to another target of the chain

// What the replicas of a node share; outlives them.
struct ReplicaContext {
  Loop& loop;
  cluster::Member& member;
  Nodes& nodes;
  Rng& rng;
  Pace& pace;  // of copies
  Memory& memory;
  Metrics& metrics;
  // The member has news, or needs them: a heartbeat now.
  std::function<void()> poke;
  // The target can no longer be used, for this reason.
  std::function<void(cluster::TargetId, const Error&)> fail;
  // The cluster's, for capabilities. None: all who can call are trusted.
  std::optional<auth::Key> key = {};
};

// What became of an update.
struct Done {
  chunk::VersionState image = {};
  uint64_t chain_version = 0;
};

class Replica {
 public:
  // Fills memory with the data of an update, and checks it.
  using Pull = std::function<Task<Result<void>>(ByteSpan into)>;

  Replica(ReplicaContext& context, chunk::Store& store, cluster::TargetId id,
          cluster::ChainId chain);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  cluster::TargetId id() const { return id_; }
  cluster::ChainId chain() const { return chain_; }
  chunk::Store& store() { return store_; }
  uint64_t verifier() const { return verifier_; }
  // For clients: another one whenever the chain has given up data.
  uint64_t told_verifier() const;
  // Whether the chunk, which is not here, is missing: it is not a hole of its file.
  bool missing(chunk::ChunkId id) const;
  Error missing_error(chunk::ChunkId id) const;
  Counters& counters() { return counters_; }
  // Answers what its part asks for; false while it is on its way to (return_to_service).
  bool ready() const { return ready_; }
  // Whether it is the one that clients write to, as far as it knows.
  bool head() const;
  // Flights, copies and the like that are under way.
  size_t running() const { return gate_.running(); }
  // The member may hold newer routing, or leave to serve that it had not before.
  void look();
  // Ends all that is under way where it stands, as the end of the process would.
  Task<void> close();

  // service.h. Each is asked under `version` of the chain. Data is pulled into `bytes` long memory.
  Task<Result<Done>> write(uint64_t version, chunk::Update update, uint64_t bytes, Pull pull);
  struct Forward {
    chunk::Update update;
    uint64_t bytes = 0;
    bool checked = false;
  };
  Task<Result<Done>> forward(uint64_t version, Forward forward, Pull pull);
  // Up to `into`'s size; `unseen` as in chunk::ReadRequest.
  Task<Result<chunk::ReadDone>> read(uint64_t version, chunk::ChunkId id, uint64_t offset,
                                     ByteSpan into, bool unseen);
  Task<Result<uint64_t>> committed(uint64_t version, chunk::ChunkId id);
  Task<Result<std::optional<chunk::ChunkInfo>>> last(uint64_t version, uint64_t inode);
  // Those of a file in a range, none of them pending.
  Task<Result<chunk::ChunksPage>> chunks(uint64_t version, chunk::ChunksAsked asked);
  // Files from `from` on that have chunks, pending ones too.
  Result<std::vector<uint64_t>> inodes(uint64_t version, uint64_t from, size_t limit);
  // The verifier.
  Task<Result<uint64_t>> sync(uint64_t version);

  // What the target has of this chunk is damaged: the chain is to write it anew. Kept until it is.
  void damaged(chunk::ChunkId id);
  // As the head.
  Task<Result<void>> repair(uint64_t version, chunk::ChunkId id);

  // Begins to compare what it has with what its successor has; one that differs fails.
  void compare_soon();
  struct Range {
    chunk::ChunkId first;
    chunk::ChunkId last;
  };
  // Those of the range that the target before has otherwise. `settled`: none of them changes.
  Result<std::vector<chunk::ChunkId>> differing(uint64_t version,
                                                std::vector<chunk::ChunkInfo> theirs, Range range,
                                                bool settled);

  // Begins to forget tombstones that are old at `now_ns` (wall).
  void prune_at(int64_t now_ns);
  // Those of the chunks that are not there, for its successor.
  Task<Result<std::vector<chunk::ChunkId>>> absent(uint64_t version,
                                                   std::vector<chunk::ChunkId> ids);

  // From its predecessor.
  Result<std::vector<chunk::ChunkInfo>> list(uint64_t version, chunk::ChunkId from, size_t limit);
  Task<Result<void>> erase(uint64_t version, chunk::ChunkId id);
  Task<Result<void>> copy(uint64_t version, chunk::Install copy, Pull pull);
  Task<Result<void>> results(uint64_t version, std::vector<chunk::ChannelInfo> results);
  Task<Result<void>> copied(uint64_t version, uint64_t verifier);

 private:
  struct Flight;
  struct Copying;

  // replica.cc
  const cluster::Chain* routed() const;
  Error stale(std::string_view why) const;
  Result<Part> take_part(uint64_t version);
  Result<Part> may_answer(uint64_t version);
  Result<void> be_head(uint64_t version);
  Result<Part> be_tail(uint64_t version);
  Result<void> copied_to(uint64_t version);
  Task<Result<void>> wait_for_change(int64_t most_ns);
  void begin_once(bool& running, Task<Result<void>> task);
  void leave();
  void watch_successor(const std::optional<Part>& part);
  Task<void> try_successor(uint64_t version, cluster::Target to);
  Task<Result<void>> try_while(uint64_t version, cluster::Target to);

  // Ends with Errc::stale when the chain's version changes meanwhile. `data` must live as long.
  template <class Request, class Reply>
  Task<Result<Reply>> call(cluster::NodeId node, rpc::Method<Request, Reply> method,
                           Request request, ByteView data, int64_t patience_ns) {
    const int64_t now_ns = context_.loop.now_ns();
    const bool watched = node == successor_;
    if (watched && unanswered_since_ns_ == 0) unanswered_since_ns_ = now_ns;
    auto calling =
        calls_.call(chain_, node, method, std::move(request), data, now_ns + patience_ns);
    auto reply = co_await std::move(calling);
    if (watched && node == successor_ && answered(reply)) unanswered_since_ns_ = 0;
    co_return reply;
  }
  // Whatever the other says, it was reached; an error of this end says nothing.
  template <class Reply>
  static bool answered(const Result<Reply>& reply) {
    if (reply) return true;
    const Errc code = reply.error().code;
    return code != Errc::unreachable && code != Errc::deadline && code != Errc::interrupted;
  }
  wire::Place place_of(cluster::TargetId target, uint64_t version) const;

  // replica_update.cc
  std::optional<chunk::ChannelResult> result_of(const chunk::Writer& writer) const;
  std::shared_ptr<Flight> flight_of(ChunkLocks::Hold hold, const chunk::PendingState& pending,
                                    chunk::ChunkId id);
  std::shared_ptr<Flight> flight_with(ChunkLocks::Hold hold, const chunk::Update& update,
                                      Memory::Bytes bytes);
  Task<Result<void>> load(Flight& flight, uint64_t bytes, Pull pull);
  void lay_out_zeros(Flight& flight);
  Task<Result<Done>> keep_unchanged(chunk::Update update, chunk::ChunkState state);
  Task<Result<Done>> end_of(std::shared_ptr<Flight> flight);
  Task<void> fly(std::shared_ptr<Flight> flight);
  Task<Result<Done>> carry(Flight& flight);
  std::optional<uint64_t> is_last();
  Task<Result<void>> store_update(Flight& flight, std::optional<uint64_t> commit_under);
  Error store_failed(Error error);
  Error copy_failed(Error error);
  Error condemn(Error error);
  Task<Result<Done>> store_replacement(Flight& flight);
  Task<Result<Done>> pass_on(Flight& flight, Part part, cluster::Target successor,
                             uint64_t version);
  Task<Result<Done>> commit(Flight& flight, uint64_t chain_version);
  Task<Result<void>> read_whole(Flight& flight);
  Task<Result<void>> differs(Flight& flight, Error error);
  Task<Result<Done>> drop(Flight& flight, Error error);
  Task<Result<void>> settle(chunk::ChunkId id);
  Task<Result<bool>> own_is_sound(chunk::ChunkId id, chunk::Which which);

  // replica_read.cc
  Task<Result<std::optional<chunk::Which>>> which_counts(uint64_t version, chunk::ChunkId id);
  void count(chunk::ChunkId id, const Result<chunk::ReadDone>& read);

  // replica_prune.cc
  Task<Result<void>> prune(int64_t now_ns);
  Task<Result<std::vector<chunk::ChunkId>>> forgotten_before(std::vector<chunk::ChunkId> ids,
                                                             uint64_t version);

  // replica_compare.cc
  Task<Result<void>> compare_all();
  Task<Result<void>> compare_one(uint64_t version, chunk::ChunkId id);
  Task<Result<std::vector<chunk::ChunkId>>> ask_what_differs(uint64_t version, cluster::Target who,
                                                             std::vector<chunk::ChunkInfo> chunks,
                                                             Range range, bool settled = false);

  // replica_repair.cc
  void repair_soon();
  Task<void> run_repairs();
  struct Repairs;
  Task<void> repair_all(Repairs& repairs);
  Task<void> have_repaired(chunk::ChunkId id, Repairs& repairs);
  Task<Result<void>> ask_for_repair(chunk::ChunkId id);
  Task<Result<void>> find_sound(uint64_t version, chunk::ChunkId id, chunk::VersionState wanted,
                                ByteSpan into);

  // replica_sync.cc
  Task<void> return_to_service(uint64_t spell);
  Task<Result<void>> prepare_to_serve();
  Task<Result<void>> settle_all();
  Task<void> begin_copy_to(uint64_t spell);
  Task<Result<void>> pass_sync(uint64_t version, cluster::Target to);

  // replica_copy.cc
  Task<void> run_copy(uint64_t version);
  Task<Result<void>> copy_all(Copying& copying);
  Task<Result<void>> copy_page(Copying& copying, std::vector<chunk::ChunkInfo> remote,
                               std::vector<chunk::ChunkInfo> local, chunk::ChunkId end);
  Task<Result<void>> copy_chunk(Copying& copying, chunk::ChunkId id);
  Task<Result<void>> copy_whole(Copying& copying, chunk::ChunkId id,
                                const chunk::ChunkState& state);
  Task<Result<void>> salvage(chunk::ChunkId id, ByteSpan into, wire::CopyRequest& request);
  Task<Result<void>> copy_results(Copying& copying);
  Task<Result<bool>> is_sound(chunk::ChunkId id);

  ReplicaContext& context_;
  chunk::Store& store_;
  const cluster::TargetId id_;
  const cluster::ChainId chain_;
  Counters counters_;
  uint64_t verifier_ = 0;
  ChunkLocks locks_;
  Calls calls_;

  uint64_t seen_version_ = 0;  // of the chain, by look()
  cluster::State seen_state_ = cluster::State::offline;
  uint64_t spell_ = 0;               // grows with every change of its state
  Steps steps_;                      // that change chunks
  bool ready_ = false;               // of the part that it plays in this spell
  bool lossy_ = false;               // what the verifier does not tell yet
  uint64_t copying_ = 0;             // the chain version under which it copies, or has copied
  cluster::NodeId successor_ = 0;    // its node; 0: there is none
  int64_t unanswered_since_ns_ = 0;  // calls to it are; 0: none is
  bool trying_ = false;
  bool repairing_ = false;
  bool pruning_ = false;
  bool comparing_ = false;
  Event changed_;
  Gate gate_;
};

}  // namespace ff::chain
