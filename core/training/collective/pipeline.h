// Operations between hosts ("nodes"), run by local rank 0 of each: pieces go up and down their
// routes (route.h) in a pipeline, and any thread of the host does the arithmetic as work items
// (work_queue.h).
//
// A channel carries pieces from one node to another, in one direction (up or down). The receiver
// grants a window: slots in memory that all ranks of its host have mapped. The sender writes a
// piece into a free slot (RDMA WRITE where possible), then announces it by a message; the receiver
// returns the slot as a credit. Over TCP without TLS the network reads the piece from where it is,
// which must not change before the receiver has it. All nodes put pieces into a channel in the same
// order, by operation and piece, so the oldest unfinished piece always finds free slots and the
// pipeline cannot deadlock. The announcement has the CRC32C of the piece; the receiver checks it
// before it adds, stores or forwards the bytes. Memory:
//
//   window  kSlots slots of kSlotBytes, for each channel that this node receives
//   send    kInflightPiecesMax slots of the same size: sums of this node, until they are sent
//
// Messages between two ranks (message_relay.h) and the blocks of an all-to-all (block_relay.h)
// use the same connections.
//
// The first error of any node is sent to all nodes, and every operation fails with it. Then the
// nodes can agree over the same connections which ranks go on (node_ballots.h). Used by one loop
// only.
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
#include "training/collective/block_relay.h"
#include "training/collective/host_group.h"
#include "training/collective/mesh.h"
#include "training/collective/message_relay.h"
#include "training/collective/node_ballots.h"
#include "training/collective/route.h"
#include "training/collective/work_executor.h"

namespace ff::collective {

constexpr uint64_t kSlotBytes = 512 * kKiB;
constexpr uint32_t kSlots = 4;
constexpr uint32_t kInflightPiecesMax = 16;

struct PipelineOptions {
  Algorithm algorithm = Algorithm::automatic;
  simd::WireType wire = simd::WireType::none;  // format of partial sums of floats between nodes
  // Results depend only on the inputs and on the placement of ranks: all pieces use one tree.
  bool deterministic = false;
};
// As command-line options; nodes compare these texts when they join.
std::string text_of(const PipelineOptions& options);

class Pipeline {
 public:
  // `register_memory` makes a region known to network devices; called once for each.
  Pipeline(Loop& loop, HostGroup& group, Mesh mesh, const PipelineOptions& options,
           std::function<void(const net::SharedRegion&)> register_memory);
  ~Pipeline();

  void start();
  // Handles what has changed in the operation table and the work queue.
  void poll();
  // Sends what other nodes still need, then says goodbye. Cannot be cancelled.
  Task<void> finish(int64_t until_ns);

 private:
  enum class Direction : uint8_t { up, down };
  struct OperationState;
  struct InflightPiece;
  struct SendChannel;
  struct ReceiveChannel;
  struct Peer;
  class WorkRunner;
  struct RankStatus;

  // Operations and pieces (pipeline.cc).
  void begin_operation(uint64_t number);
  void admit_pieces();
  void prepare_piece(InflightPiece& piece);
  void advance_piece(InflightPiece& piece);
  void queue_work(InflightPiece& piece, WorkItem item);
  void on_work_done(InflightPiece& piece);
  void send_own(InflightPiece& piece);
  void finish_locally(InflightPiece& piece);
  void retire_pieces();
  MessageRelay::Links relay_links();
  BlockRelay::Links block_links();
  bool is_drained() const;
  NodeBallots::Links ballot_links();
  Task<void> flush();
  PieceRoute route_of(const CollectiveRequest& request, const Piece& piece, uint64_t index) const;
  bool run_work_item();

  // Channels (pipeline_channels.cc).
  SendChannel& send_channel(uint32_t node, Direction direction);
  ReceiveChannel& receive_channel(uint32_t node, Direction direction);
  Result<void> open_window(uint32_t node, Direction direction, ReceiveChannel& channel);
  void match_arrivals(ReceiveChannel& channel);
  void return_credit(uint32_t node, Direction direction, uint32_t slot);
  void send_slot(uint32_t node, uint32_t method, Direction direction, uint32_t slot);
  void enqueue_send(uint32_t node, Direction direction, InflightPiece& piece);
  struct SendData;
  void set_send_data(uint32_t node, Direction direction, InflightPiece& piece,
                     const SendData& data);
  void on_sent(InflightPiece& piece);
  Task<void> send_loop(uint32_t node, Direction direction);

  // Messages between nodes (peer_messages.cc).
  Task<void> receive_loop(uint32_t node);
  Result<void> handle_message(uint32_t node, const net::Frame& frame);
  Result<void> handle_chunk(uint32_t node, ByteView message);
  Result<void> handle_window(uint32_t node, ByteView message);
  Result<void> handle_credit(uint32_t node, ByteView message);
  Result<void> handle_arrived(uint32_t node, ByteView message);
  void confirm(SendChannel& channel, uint32_t slot);
  Error corrupt_link(uint32_t node, const std::string& what) const;
  void handle_announcement(uint32_t node, uint64_t number, const CollectiveRequest& request);
  void handle_status(uint32_t node, ByteView message);
  void announce_operation(const OperationState& op);
  void compare_requests(uint64_t number, uint32_t node, const CollectiveRequest& theirs);
  void send(uint32_t node, uint32_t method, std::string_view message, uint64_t number = 0);
  void send_to_all(uint32_t method, std::string_view message, uint64_t number = 0);
  Task<void> handle_disconnect(uint32_t node, Error why);
  void check_departed(uint64_t number);
  void fail_job(Error error);
  Task<void> find_straggler(std::function<std::optional<Error>()> find);
  std::string encode_status() const;
  std::optional<Error> straggler_of(uint64_t number) const;
  std::optional<Error> silent_node() const;
  Error message_straggler(uint32_t peer) const;
  RankStatus status_of(uint32_t rank) const;

  uint32_t nodes() const { return static_cast<uint32_t>(mesh_.world.nodes.size()); }

  Loop& loop_;
  HostGroup& group_;
  Mesh mesh_;
  const PipelineOptions options_;
  const Trees trees_;
  const std::function<void(const net::SharedRegion&)> register_memory_;
  const bool has_spare_cores_;
  bool failed_ = false;
  uint64_t straggler_next_ = 0;      // operations before it were checked for stragglers
  std::vector<bool> departed_sent_;  // by local rank: other nodes know that it has left

  uint64_t next_ = 0;                                   // operation to begin
  std::deque<std::shared_ptr<OperationState>> queued_;  // with pieces to admit
  std::list<std::unique_ptr<InflightPiece>> inflight_;
  std::map<uint64_t, CollectiveRequest> own_requests_;  // started here, not yet compared
  std::map<uint64_t, CollectiveRequest> announced_;     // by the previous node, not started here
  std::shared_ptr<const net::SharedRegion> send_region_;
  std::vector<uint32_t> send_slots_free_;

  std::vector<std::unique_ptr<Peer>> peers_;  // by node; null: this one
  std::unique_ptr<MessageRelay> relay_;
  std::unique_ptr<BlockRelay> block_relay_;
  std::unique_ptr<NodeBallots> ballots_;
  std::unique_ptr<WorkRunner> work_runner_;
  Event drained_;
  Gate gate_;
};

}  // namespace ff::collective
