// Operations between nodes, on the rank that speaks for its node: pieces go up and down their
// routes (route.h), sums of this node's ranks are made by whoever takes a turn (turns.h).
//
// A lane is one way of bytes from a node to another, up or down. Who receives gives it a window of
// slots in memory that all ranks of its host reach, and tells when one is free; who sends writes a
// piece into a slot (RDMA WRITE where there is RDMA) and then says so. Each lane carries its pieces
// in the order of operations and pieces, which is the same on all nodes: so the earliest piece that
// is not done always finds slots on its way, and nothing stands still. What stands in memory:
//
//   window  kSlots slots of kSlotBytes, for each lane that comes in
//   own     kMoving buffers of the same size: what this node adds up, until it is sent
//
// All nodes hear of what one of them cannot go on with; then everything ends with the same error.
// Owned by one loop.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/net/connection.h"
#include "training/collective/host_group.h"
#include "training/collective/mesh.h"
#include "training/collective/route.h"
#include "training/collective/turn_work.h"

namespace ff::collective {

constexpr uint64_t kSlotBytes = 512 * kKiB;
constexpr uint32_t kSlots = 4;
constexpr uint32_t kMoving = 16;  // pieces at once

struct FlowOptions {
  Algorithm algorithm = Algorithm::automatic;
  simd::Wire wire = simd::Wire::none;  // of sums of floats, between nodes
  // Bits depend on the inputs and on which ranks a node has, on nothing else: one tree for all.
  bool deterministic = false;
};
// In words, for nodes to compare.
std::string text_of(const FlowOptions& options);

class Flow {
 public:
  // `share` makes memory known to devices. Once.
  Flow(Loop& loop, HostGroup& group, Mesh mesh, const FlowOptions& options,
       std::function<void(const net::Region&)> share);
  ~Flow();

  void start();
  // There may be something new on the board.
  void look();
  // Sends what others still need, and takes leave. Cannot be cancelled.
  Task<void> finish(int64_t until_ns);

 private:
  enum class Way : uint8_t { up, down };
  struct Op;
  struct Moving;
  struct Sending;
  struct Receiving;
  struct Peer;
  class Worker;

  // Operations and pieces (flow.cc).
  void begin(uint64_t number);
  void admit();
  void prepare(Moving& piece);
  void advance(Moving& piece);
  void publish(Moving& piece, Turn turn);
  void turn_done(Moving& piece);
  void done_here(Moving& piece);
  void retire();
  Route route_of(const Request& request, const Piece& piece, uint64_t index) const;
  bool work();

  // Lanes (flow_lanes.cc).
  Sending& sending(uint32_t node, Way way);
  Receiving& receiving(uint32_t node, Way way);
  Result<void> open(uint32_t node, Way way, Receiving& lane);
  void match(Receiving& lane);
  void give_back(uint32_t node, Way way, uint32_t slot);
  void enqueue(uint32_t node, Way way, Moving& piece);
  void offer(uint32_t node, Way way, Moving& piece, ByteView bytes);
  Task<void> send_lane(uint32_t node, Way way);

  // What nodes say to each other (flow_talk.cc).
  Task<void> listen(uint32_t node);
  Result<void> hear(uint32_t node, const net::Frame& frame);
  Result<void> hear_chunk(uint32_t node, ByteView message);
  Result<void> hear_window(uint32_t node, ByteView message);
  Result<void> hear_credit(uint32_t node, ByteView message);
  void hear_announced(uint32_t node, uint64_t number, const Request& request);
  void hear_status(uint32_t node, ByteView message);
  void announce(const Op& op);
  void compare(uint64_t number, uint32_t node, const Request& theirs);
  void tell(uint32_t node, uint32_t what, std::string_view message, uint64_t number = 0);
  void tell_all(uint32_t what, std::string_view message, uint64_t number = 0);
  Task<void> lose(uint32_t node, Error why);
  void check_left(uint64_t number);
  void fault(Error error);
  Task<void> find_late(uint64_t number);
  std::string status() const;
  Error late(uint64_t number) const;

  uint32_t nodes() const { return static_cast<uint32_t>(mesh_.world.nodes.size()); }

  Loop& loop_;
  HostGroup& group_;
  Mesh mesh_;
  const FlowOptions options_;
  const std::vector<uint32_t> zones_;
  const std::function<void(const net::Region&)> share_;
  const bool has_spare_cores_;
  bool failed_ = false;
  uint64_t late_next_ = 0;       // operations before it were asked about
  std::vector<bool> left_told_;  // of local ranks that have left

  uint64_t next_ = 0;                    // operation to begin
  std::deque<std::shared_ptr<Op>> ops_;  // with pieces to admit
  std::list<std::unique_ptr<Moving>> moving_;
  std::map<uint64_t, Request> asked_;      // begun here, and not yet compared
  std::map<uint64_t, Request> announced_;  // by the node before this one, and not begun here
  std::shared_ptr<const net::Region> own_;
  std::vector<uint32_t> own_free_;

  std::vector<std::unique_ptr<Peer>> peers_;  // by node; null: this one
  std::unique_ptr<Worker> worker_;
  Event drained_;
  Gate gate_;
};

}  // namespace ff::collective
