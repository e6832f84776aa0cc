// pipeline.cc: operations and their pieces on this node.
#include "training/collective/pipeline.h"

#include <algorithm>
#include <thread>

#include "platform/base/check.h"
#include "platform/simd/crc32c.h"
#include "training/collective/pipeline_state.h"

namespace ff::collective {

namespace {

constexpr int64_t kGoodbyePollNs = 2 * kMillisecond;
constexpr int64_t kGoodbyeNs = kSecond;  // for the peers to acknowledge the goodbye
// A work item of fewer bytes is not worth waking another thread.
constexpr uint64_t kSharedBytes = 64 * kKiB;
constexpr uint64_t kPiecesWanted = 4;  // of an array

bool goes_up(Collective kind) { return !is_copy(kind); }
bool goes_down(Collective kind) {
  return is_copy(kind) || kind == Collective::allreduce || kind == Collective::barrier;
}

// Elements of a piece, at most `slot_elements`: a small array, too, is cut into kPiecesWanted
// pieces, so that it uses several routes at once. Whole units, which the smaller wire formats need.
uint64_t elements_per_piece(uint64_t count, uint64_t slot_elements) {
  const uint64_t part = align_up(count / kPiecesWanted, kUnitElements);
  return std::clamp(part, kUnitElements, slot_elements);
}

SharedAddress address_in(const net::SharedRegion& region, uint64_t offset) {
  return {.offset = offset, .region = region.id()};
}

}  // namespace

std::string text_of(const PipelineOptions& options) {
  return fmt::format("--algo {}, --wire {}{}", algorithm_name(options.algorithm),
                     simd::wire_type_name(options.wire),
                     options.deterministic ? ", --deterministic" : "");
}

// Runs work items, one at a time, when the loop has nothing else to do.
class Pipeline::WorkRunner final : public Runnable {
 public:
  explicit WorkRunner(Pipeline& pipeline) : pipeline_(pipeline) {}
  void on_wake() override {
    if (pipeline_.run_work_item()) pipeline_.loop_.wake_next_turn(*this);
  }

 private:
  Pipeline& pipeline_;
};

Pipeline::Pipeline(Loop& loop, HostGroup& group, Mesh mesh, const PipelineOptions& options,
                   std::function<void(const net::SharedRegion&)> register_memory)
    : loop_(loop),
      group_(group),
      mesh_(std::move(mesh)),
      options_(options),
      trees_(mesh_.world.zones()),
      register_memory_(std::move(register_memory)),
      has_spare_cores_(std::thread::hardware_concurrency() > group.self().ranks),
      departed_sent_(group.self().ranks, false),
      work_runner_(std::make_unique<WorkRunner>(*this)),
      drained_(loop),
      gate_(loop) {
  for (auto& connection : mesh_.connections) {
    auto& peer = peers_.emplace_back();
    if (connection == nullptr) continue;
    peer = std::make_unique<Peer>();
    peer->connection = std::move(connection);
  }
  relay_ = std::make_unique<MessageRelay>(loop_, group_, mesh_.world, mesh_.self, relay_links());
  block_relay_ = std::make_unique<BlockRelay>(group_, mesh_.world, mesh_.self, block_links());
  ballots_ = std::make_unique<NodeBallots>(loop_, group_, mesh_.world, mesh_.self, ballot_links(),
                                           std::move(mesh_.listener));
}

Pipeline::~Pipeline() = default;

void Pipeline::start() {
  for (uint32_t node = 0; node < nodes(); node++) {
    if (peers_[node] != nullptr) gate_.spawn(receive_loop(node));
  }
}

void Pipeline::poll() {
  OperationTable& operations = group_.operations();
  if (operations.has_failed()) ballots_->poll();
  if (failed_) return;
  const uint32_t first_rank = group_.self().first_rank;
  if (const auto failed = operations.failed_rank()) {
    const char* const how = failed->timed_out ? "missed the deadline" : "is gone";
    return fail_job(fail(failed->timed_out ? Errc::deadline : Errc::unreachable,
                         "{} {}; it had started {} operations",
                         mesh_.world.name_of(first_rank + failed->rank), how,
                         operations.posted(failed->rank)));
  }
  // Of a rank whose message is late.
  if (auto error = operations.async_error()) return fail_job(std::move(*error));
  relay_->poll();
  for (uint32_t rank = 0; rank < operations.ranks(); rank++) {
    if (departed_sent_[rank] || !operations.has_departed(rank)) continue;
    departed_sent_[rank] = true;
    std::string message;
    append_le(message, first_rank + rank);
    append_le(message, operations.posted(rank));
    send_to_all(kDeparted, message);
  }
  if (const auto asked = operations.straggler_check(); asked && *asked >= straggler_next_) {
    straggler_next_ = *asked + 1;
    gate_.spawn(find_straggler([this, number = *asked] { return straggler_of(number); }));
  }
  if (const auto late = operations.take_message_check()) {
    gate_.spawn(find_straggler([this, peer = *late] { return message_straggler(peer); }));
  }
  while (!failed_ && operations.is_ready(next_)) begin_operation(next_++);
  for (auto& piece : inflight_) {
    if (!piece->ticket) advance_piece(*piece);
    if (piece->ticket && operations.work_queue().is_finished(*piece->ticket)) on_work_done(*piece);
    if (failed_) return;
  }
  retire_pieces();
  admit_pieces();
}

void Pipeline::begin_operation(uint64_t number) {
  OperationTable& operations = group_.operations();
  const uint32_t first_rank = group_.self().first_rank;
  const CollectiveRequest& request = operations.request(number, 0);
  if (const auto differs = operations.mismatch(number)) {
    return fail_job(fail(Errc::usage, "operation {}: {} requested {}, {} requested {}", number,
                         mesh_.world.name_of(first_rank), text_of(differs->expected),
                         mesh_.world.name_of(first_rank + differs->rank),
                         text_of(differs->posted)));
  }
  auto op = std::make_shared<OperationState>(OperationState{.number = number, .request = request});
  op->wire = wire_format_of(request, options_.wire);
  op->goes_up = goes_up(request.kind);
  op->goes_down = goes_down(request.kind);
  const uint64_t widest =
      is_copy(request.kind)
          ? simd::size_of(request.type)
          : std::max(simd::size_of(request.type), simd::size_of(simd::partial_type(request.type)));
  op->elements_per_piece = elements_per_piece(request.count, kSlotBytes / widest);
  op->pieces = request.kind == Collective::barrier
                   ? 1
                   : piece_count(request, mesh_.world.ranks(), op->elements_per_piece);
  op->unfinished = op->pieces;
  announce_operation(*op);
  check_departed(number);
  if (failed_) return;
  if (request.kind == Collective::alltoall) return block_relay_->begin(number);
  if (op->pieces == 0) return operations.complete(number);
  queued_.push_back(std::move(op));
}

PieceRoute Pipeline::route_of(const CollectiveRequest& request, const Piece& piece,
                              uint64_t index) const {
  // Broadcasts and all-gathers start at the node that has the data; reductions to one rank end at
  // its node.
  uint32_t root = 0;
  bool is_free = false;
  if (piece.from != kAllRanks) {
    root = mesh_.world.node_of(piece.from);
  } else if (piece.to != kAllRanks) {
    root = mesh_.world.node_of(piece.to);
  } else {
    is_free = request.kind != Collective::barrier;
  }
  const bool ring =
      options_.algorithm == Algorithm::ring ||
      (options_.algorithm == Algorithm::automatic && nodes() == 2 && !options_.deterministic);
  if (!ring) {
    const bool second = index % 2 == 1 && !options_.deterministic;
    return trees_.route(root, second, mesh_.self);
  }
  if (is_free) root = static_cast<uint32_t>(index % nodes());
  return ring_route(nodes(), root, mesh_.self);
}

void Pipeline::admit_pieces() {
  while (!failed_ && !queued_.empty() && inflight_.size() < kInflightPiecesMax) {
    const std::shared_ptr<OperationState> op = queued_.front();
    auto piece = std::make_unique<InflightPiece>();
    piece->op = op;
    piece->index = op->next_piece++;
    if (op->next_piece == op->pieces) queued_.pop_front();
    inflight_.push_back(std::move(piece));
    prepare_piece(*inflight_.back());
  }
}

// Reserves buffers and channel positions, in the global order of pieces.
void Pipeline::prepare_piece(InflightPiece& piece) {
  const OperationState& op = *piece.op;
  if (op.request.kind != Collective::barrier) {
    piece.piece = piece_of(op.request, mesh_.world.ranks(), op.elements_per_piece, piece.index);
  }
  piece.route = route_of(op.request, piece.piece, piece.index);
  piece.bytes_up = op.goes_up ? up_bytes(op.request, op.wire, piece.piece.count) : 0;
  piece.bytes_down = op.goes_down ? down_bytes(op.request, op.wire, piece.piece.count) : 0;
  FF_CHECK(piece.bytes_up <= kSlotBytes && piece.bytes_down <= kSlotBytes);
  piece.reduces = op.goes_up || piece.is_root();
  piece.receives = op.goes_down && !piece.is_root();
  if (send_region_ == nullptr) {
    auto made = group_.make_region(kInflightPiecesMax * kSlotBytes);
    if (!made) return fail_job(std::move(made).error());
    send_region_ = std::move(*made);
    register_memory_(*send_region_);
    for (uint32_t i = 0; i < kInflightPiecesMax; i++) send_slots_free_.push_back(i);
  }
  if (piece.reduces) {
    piece.send_slot = send_slots_free_.back();
    send_slots_free_.pop_back();
  }
  if (op.goes_up) {
    for (const uint32_t below : piece.route.up_from) {
      piece.partials_missing++;
      receive_channel(below, Direction::up).expected.push_back(&piece);
    }
    if (piece.route.up_to) enqueue_send(*piece.route.up_to, Direction::up, piece);
  }
  if (piece.receives)
    receive_channel(*piece.route.down_from, Direction::down).expected.push_back(&piece);
  if (op.goes_down) {
    for (const uint32_t below : piece.route.down_to) enqueue_send(below, Direction::down, piece);
  }
  advance_piece(piece);
  if (op.goes_up) {
    for (const uint32_t below : piece.route.up_from)
      match_arrivals(receive_channel(below, Direction::up));
  }
  if (piece.receives) match_arrivals(receive_channel(*piece.route.down_from, Direction::down));
}

// Queues the next work item of the piece, if its data has arrived. If the queue has no room, poll()
// does so later.
void Pipeline::advance_piece(InflightPiece& piece) {
  if (failed_ || piece.ticket || !group_.operations().work_queue().has_room()) return;
  const OperationState& op = *piece.op;
  WorkItem item{.number = op.number,
                .piece = piece.piece,
                .wire = op.wire,
                .broadcasts = op.goes_down,
                .ranks = mesh_.world.ranks()};
  if (piece.reduces && !piece.reduced) {
    if (piece.partials_missing > 0) return;
    item.reduces = true;
    item.is_root = piece.is_root();
    if (op.goes_up) {
      for (uint32_t i = 0; i < piece.route.up_from.count; i++) {
        const ReceiveChannel& channel = receive_channel(piece.route.up_from.node[i], Direction::up);
        item.partials[i] = address_in(*channel.window, piece.partial_slots[i] * kSlotBytes);
      }
      item.partial_count = piece.route.up_from.count;
    }
    const bool sends = op.goes_down || !piece.is_root();
    if (sends) item.send = address_in(*send_region_, *piece.send_slot * kSlotBytes);
    return queue_work(piece, item);
  }
  if (piece.receives && !piece.received && piece.result_arrived) {
    const ReceiveChannel& channel = receive_channel(*piece.route.down_from, Direction::down);
    const uint64_t at = *piece.result_slot * kSlotBytes;
    for (const uint32_t below : piece.route.down_to) {
      set_send_data(below, Direction::down, piece,
                    {.region = channel.window,
                     .bytes = channel.window->memory().subspan(at, piece.bytes_down),
                     .crc = piece.result_crc});
    }
    item.result = address_in(*channel.window, at);
    queue_work(piece, item);
  }
}

void Pipeline::queue_work(InflightPiece& piece, WorkItem item) {
  if (piece.piece.count == 0) return on_work_done(piece);
  OperationTable& operations = group_.operations();
  piece.ticket = operations.work_queue().push(item);
  const uint64_t bytes = piece.piece.count * simd::size_of(piece.op->request.type);
  // Another thread may run it while this one exchanges data with other nodes. Without a spare core,
  // this thread runs one of the waiting items itself.
  const bool wakes = has_spare_cores_ || operations.work_queue().waiting() > 1;
  if (bytes >= kSharedBytes && wakes) operations.wake(OperationTable::Futex::work, 1);
  loop_.wake_next_turn(*work_runner_);
}

// Runs one item in this thread; false: there is none.
bool Pipeline::run_work_item() {
  OperationTable& operations = group_.operations();
  const OperationTable::Worker self{.rank = 0, .thread = 1};
  const auto claimed = failed_ ? std::nullopt : operations.claim_work(self);
  if (!claimed) return false;
  if (auto done = execute_work(group_, claimed->item); !done) {
    fail_job(std::move(done).error());
    return false;
  }
  operations.finish_work(self, claimed->ticket);
  poll();
  return true;
}

void Pipeline::on_work_done(InflightPiece& piece) {
  piece.ticket.reset();
  const OperationState& op = *piece.op;
  if (piece.reduces && !piece.reduced) {
    piece.reduced = true;
    if (op.goes_up) {
      for (uint32_t i = 0; i < piece.route.up_from.count; i++) {
        return_credit(piece.route.up_from.node[i], Direction::up, piece.partial_slots[i]);
      }
    }
    send_own(piece);
  } else {
    piece.received = true;
  }
  if ((!piece.reduces || piece.reduced) && (!piece.receives || piece.received))
    finish_locally(piece);
  advance_piece(piece);
}

// Sends what this node has computed of the piece.
void Pipeline::send_own(InflightPiece& piece) {
  const std::byte* const own = send_region_->memory().data() + *piece.send_slot * kSlotBytes;
  if (!piece.is_root()) {
    const ByteView sum{own, piece.bytes_up};
    set_send_data(*piece.route.up_to, Direction::up, piece,
                  {.region = send_region_, .bytes = sum, .crc = simd::crc32c(sum)});
  } else if (piece.op->goes_down && piece.route.down_to.count > 0) {
    const ByteView result{own, piece.bytes_down};
    const uint32_t crc = simd::crc32c(result);
    for (const uint32_t below : piece.route.down_to) {
      set_send_data(below, Direction::down, piece,
                    {.region = send_region_, .bytes = result, .crc = crc});
    }
  }
}

// The piece's inputs are read and its outputs written.
void Pipeline::finish_locally(InflightPiece& piece) {
  if (piece.is_done_locally) return;
  piece.is_done_locally = true;
  if (--piece.op->unfinished == 0) group_.operations().complete(piece.number());
}

// Removes pieces that are finished here and sent.
void Pipeline::retire_pieces() {
  for (auto next = inflight_.begin(); next != inflight_.end();) {
    InflightPiece& piece = **next;
    if (!piece.is_done_locally || piece.unsent > 0) {
      ++next;
      continue;
    }
    if (piece.result_slot)
      return_credit(*piece.route.down_from, Direction::down, *piece.result_slot);
    if (piece.send_slot) send_slots_free_.push_back(*piece.send_slot);
    next = inflight_.erase(next);
  }
  if (is_drained()) drained_.set();
}

// Other nodes need no more of what this one has started.
bool Pipeline::is_drained() const {
  return inflight_.empty() && queued_.empty() && block_relay_->is_idle();
}

Task<void> Pipeline::finish(int64_t until_ns) {
  while (!failed_ && !is_drained()) {
    drained_.reset();
    const auto waited = co_await drained_.wait(until_ns);
    if (!waited) break;
  }
  co_await relay_->finish(failed_ ? 0 : until_ns);
  if (!failed_) send_to_all(kGoodbye, {});
  const int64_t goodbye_until_ns = std::min(until_ns, loop_.now_ns() + kGoodbyeNs);
  // Wait until they have read it: data sent to a closed socket makes TCP reset the connection and
  // drop what the peer has not read yet.
  for (auto& peer : peers_) {
    while (peer != nullptr && !peer->connection->failed() && !peer->acknowledged &&
           loop_.now_ns() < goodbye_until_ns) {
      (void)co_await sleep_for(loop_, kGoodbyePollNs);
    }
  }
  co_await relay_->close();
  co_await ballots_->close();
  co_await gate_.close(fail(Errc::interrupted, "the communicator is closed"));
}

}  // namespace ff::collective
