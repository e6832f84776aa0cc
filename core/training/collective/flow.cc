// flow.cc: operations and their pieces on this node.
#include "training/collective/flow.h"

#include <algorithm>
#include <thread>

#include "platform/base/check.h"
#include "training/collective/flow_parts.h"

namespace ff::collective {

namespace {

constexpr int64_t kLeavePollNs = 2 * kMillisecond;  // while others take leave
constexpr int64_t kSeenNs = kSecond;                // for them to do so
// Turns of so many bytes are worth waking another thread for.
constexpr uint64_t kSharedBytes = 64 * kKiB;
constexpr uint64_t kPiecesWanted = 4;  // of an array

bool goes_up(Collective kind) { return !only_copies(kind); }
bool goes_down(Collective kind) {
  return only_copies(kind) || kind == Collective::allreduce || kind == Collective::barrier;
}

// Elements of a piece, at most those of a slot: so few that a small array, too, is on several ways
// at once; whole units, for the smaller forms of floats.
uint64_t piece_of_slot(uint64_t count, uint64_t most) {
  const uint64_t part = align_up(count / kPiecesWanted, kUnit);
  return std::clamp(part, kUnit, most);
}

Place place_in(const net::Region& region, uint64_t offset) {
  return {.offset = offset, .region = region.id()};
}

}  // namespace

std::string text_of(const FlowOptions& options) {
  return fmt::format("--algo {}, --wire {}{}", algorithm_name(options.algorithm),
                     simd::wire_name(options.wire),
                     options.deterministic ? ", --deterministic" : "");
}

// Takes turns, one at a time, when nothing else is to be done.
class Flow::Worker final : public Ready {
 public:
  explicit Worker(Flow& flow) : flow_(flow) {}
  void fire() override {
    if (flow_.work()) flow_.loop_.wake_next(*this);
  }

 private:
  Flow& flow_;
};

Flow::Flow(Loop& loop, HostGroup& group, Mesh mesh, const FlowOptions& options,
           std::function<void(const net::Region&)> share)
    : loop_(loop),
      group_(group),
      mesh_(std::move(mesh)),
      options_(options),
      zones_(mesh_.world.zones()),
      share_(std::move(share)),
      has_spare_cores_(std::thread::hardware_concurrency() > group.self().ranks),
      left_told_(group.self().ranks, false),
      worker_(std::make_unique<Worker>(*this)),
      drained_(loop),
      gate_(loop) {
  for (auto& connection : mesh_.connections) {
    auto& peer = peers_.emplace_back();
    if (connection == nullptr) continue;
    peer = std::make_unique<Peer>();
    peer->connection = std::move(connection);
  }
}

Flow::~Flow() = default;

void Flow::start() {
  for (uint32_t node = 0; node < nodes(); node++) {
    if (peers_[node] != nullptr) gate_.spawn(listen(node));
  }
}

void Flow::look() {
  if (failed_) return;
  Board& board = group_.board();
  const uint32_t first_rank = group_.self().first_rank;
  if (const auto lost = board.lost()) {
    const char* const how = lost->is_late ? "has let the time pass" : "is gone";
    return fault(fail(lost->is_late ? Errc::deadline : Errc::unreachable,
                      "{} {}; it had begun {} operations",
                      mesh_.world.name_of(first_rank + lost->rank), how, board.posted(lost->rank)));
  }
  for (uint32_t rank = 0; rank < board.ranks(); rank++) {
    if (left_told_[rank] || !board.left(rank)) continue;
    left_told_[rank] = true;
    std::string message;
    append_le(message, first_rank + rank);
    append_le(message, board.posted(rank));
    tell_all(kLeft, message);
  }
  if (const auto asked = board.asked_late(); asked && *asked >= late_next_) {
    late_next_ = *asked + 1;
    gate_.spawn(find_late(*asked));
  }
  while (!failed_ && board.ready(next_)) begin(next_++);
  for (auto& piece : moving_) {
    if (piece->turn && board.turns().done(*piece->turn)) turn_done(*piece);
    if (failed_) return;
  }
  retire();
  admit();
}

void Flow::begin(uint64_t number) {
  Board& board = group_.board();
  const uint32_t first_rank = group_.self().first_rank;
  const Request& request = board.request(number, 0);
  if (const auto differs = board.disagrees(number)) {
    return fault(fail(Errc::usage, "operation {}: {} asks for {}, {} for {}", number,
                      mesh_.world.name_of(first_rank), text_of(differs->first),
                      mesh_.world.name_of(first_rank + differs->rank), text_of(differs->asked)));
  }
  auto op = std::make_shared<Op>(Op{.number = number, .request = request});
  op->wire = wire_of(request, options_.wire);
  op->goes_up = goes_up(request.kind);
  op->goes_down = goes_down(request.kind);
  const uint64_t widest =
      only_copies(request.kind)
          ? simd::size_of(request.type)
          : std::max(simd::size_of(request.type), simd::size_of(simd::partial_type(request.type)));
  op->elements = piece_of_slot(request.count, kSlotBytes / widest);
  op->pieces = request.kind == Collective::barrier
                   ? 1
                   : pieces_of(request, mesh_.world.ranks(), op->elements);
  op->left = op->pieces;
  announce(*op);
  check_left(number);
  if (failed_) return;
  if (op->pieces == 0) return board.end(number);
  ops_.push_back(std::move(op));
}

Route Flow::route_of(const Request& request, const Piece& piece, uint64_t index) const {
  // Broadcasts and all-gathers go out from who has it; reductions to one rank end there.
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
    return tree_route(zones_, root, second, mesh_.self);
  }
  if (is_free) root = static_cast<uint32_t>(index % nodes());
  return ring_route(nodes(), root, mesh_.self);
}

void Flow::admit() {
  while (!failed_ && !ops_.empty() && moving_.size() < kMoving) {
    const std::shared_ptr<Op> op = ops_.front();
    auto piece = std::make_unique<Moving>();
    piece->op = op;
    piece->index = op->next++;
    if (op->next == op->pieces) ops_.pop_front();
    moving_.push_back(std::move(piece));
    prepare(*moving_.back());
  }
}

// What it will need, in the order of all pieces.
void Flow::prepare(Moving& piece) {
  const Op& op = *piece.op;
  if (op.request.kind != Collective::barrier) {
    piece.piece = piece_of(op.request, mesh_.world.ranks(), op.elements, piece.index);
  }
  piece.route = route_of(op.request, piece.piece, piece.index);
  piece.up = op.goes_up ? up_bytes(op.request, op.wire, piece.piece.count) : 0;
  piece.down = op.goes_down ? down_bytes(op.request, op.wire, piece.piece.count) : 0;
  FF_CHECK(piece.up <= kSlotBytes && piece.down <= kSlotBytes);
  piece.sums = op.goes_up || piece.is_root();
  piece.receives = op.goes_down && !piece.is_root();
  if (own_ == nullptr) {
    auto made = group_.make_region(kMoving * kSlotBytes);
    if (!made) return fault(std::move(made).error());
    own_ = std::move(*made);
    share_(*own_);
    for (uint32_t i = 0; i < kMoving; i++) own_free_.push_back(i);
  }
  if (piece.sums) {
    piece.own = own_free_.back();
    own_free_.pop_back();
  }
  if (op.goes_up) {
    for (const uint32_t below : piece.route.up_from) {
      piece.partials_missing++;
      receiving(below, Way::up).expected.push_back(&piece);
    }
    if (piece.route.up_to) enqueue(*piece.route.up_to, Way::up, piece);
  }
  if (piece.receives) receiving(*piece.route.down_from, Way::down).expected.push_back(&piece);
  if (op.goes_down) {
    for (const uint32_t below : piece.route.down_to) enqueue(below, Way::down, piece);
  }
  advance(piece);
  if (op.goes_up) {
    for (const uint32_t below : piece.route.up_from) match(receiving(below, Way::up));
  }
  if (piece.receives) match(receiving(*piece.route.down_from, Way::down));
}

// What can be done now.
void Flow::advance(Moving& piece) {
  if (failed_ || piece.turn) return;
  const Op& op = *piece.op;
  Turn turn{.number = op.number,
            .piece = piece.piece,
            .wire = op.wire,
            .goes_down = op.goes_down,
            .ranks = mesh_.world.ranks()};
  if (piece.sums && !piece.summed) {
    if (piece.partials_missing > 0) return;
    turn.sums = true;
    turn.is_last = piece.is_root();
    if (op.goes_up) {
      for (uint32_t i = 0; i < piece.route.up_from.count; i++) {
        const Receiving& lane = receiving(piece.route.up_from.node[i], Way::up);
        turn.partials[i] = place_in(*lane.window, piece.partial_slots[i] * kSlotBytes);
      }
      turn.partial_count = piece.route.up_from.count;
    }
    const bool sends = op.goes_down || !piece.is_root();
    if (sends) turn.send = place_in(*own_, *piece.own * kSlotBytes);
    return publish(piece, turn);
  }
  if (piece.receives && !piece.received && piece.result_came) {
    const Receiving& lane = receiving(*piece.route.down_from, Way::down);
    const uint64_t at = *piece.result_slot * kSlotBytes;
    for (const uint32_t below : piece.route.down_to) {
      offer(below, Way::down, piece, lane.window->memory().subspan(at, piece.down));
    }
    turn.result = place_in(*lane.window, at);
    publish(piece, turn);
  }
}

void Flow::publish(Moving& piece, Turn turn) {
  if (piece.piece.count == 0) return turn_done(piece);
  Board& board = group_.board();
  piece.turn = board.turns().publish(turn);
  const uint64_t bytes = piece.piece.count * simd::size_of(piece.op->request.type);
  // Somebody else may do it while this thread speaks with other nodes. Where there is no core for
  // that, one of those that wait is this thread's.
  const bool wakes = has_spare_cores_ || board.turns().waiting() > 1;
  if (bytes >= kSharedBytes && wakes) board.ring(Board::Bell::work, 1);
  loop_.wake_next(*worker_);
}

// One turn, by this thread; false: there is none.
bool Flow::work() {
  Board& board = group_.board();
  const Board::Worker self{.rank = 0, .thread = 1};
  const auto taken = failed_ ? std::nullopt : board.take_turn(self);
  if (!taken) return false;
  if (auto done = do_turn(group_, taken->turn); !done) {
    fault(std::move(done).error());
    return false;
  }
  board.finish_turn(self, taken->ticket);
  look();
  return true;
}

void Flow::turn_done(Moving& piece) {
  piece.turn.reset();
  const Op& op = *piece.op;
  if (piece.sums && !piece.summed) {
    piece.summed = true;
    if (op.goes_up) {
      for (uint32_t i = 0; i < piece.route.up_from.count; i++) {
        give_back(piece.route.up_from.node[i], Way::up, piece.partial_slots[i]);
      }
    }
    const std::byte* const own = own_->memory().data() + *piece.own * kSlotBytes;
    if (!piece.is_root()) {
      offer(*piece.route.up_to, Way::up, piece, {own, piece.up});
    } else if (op.goes_down) {
      for (const uint32_t below : piece.route.down_to) {
        offer(below, Way::down, piece, {own, piece.down});
      }
    }
  } else {
    piece.received = true;
  }
  if ((!piece.sums || piece.summed) && (!piece.receives || piece.received)) done_here(piece);
  advance(piece);
}

// Its inputs are read and its outputs written.
void Flow::done_here(Moving& piece) {
  if (piece.is_done_here) return;
  piece.is_done_here = true;
  if (--piece.op->left == 0) group_.board().end(piece.number());
}

// Pieces that nobody needs anything of any more.
void Flow::retire() {
  for (auto next = moving_.begin(); next != moving_.end();) {
    Moving& piece = **next;
    if (!piece.is_done_here || piece.to_send > 0) {
      ++next;
      continue;
    }
    if (piece.result_slot) give_back(*piece.route.down_from, Way::down, *piece.result_slot);
    if (piece.own) own_free_.push_back(*piece.own);
    next = moving_.erase(next);
  }
  if (moving_.empty() && ops_.empty()) drained_.set();
}

Task<void> Flow::finish(int64_t until_ns) {
  while (!failed_ && !(moving_.empty() && ops_.empty())) {
    drained_.reset();
    const auto waited = co_await drained_.wait(until_ns);
    if (!waited) break;
  }
  if (!failed_) tell_all(kBye, {});
  const int64_t seen_by_ns = std::min(until_ns, loop_.now_ns() + kSeenNs);
  // Until they have heard it: what is on its way to a closed socket undoes what came from there.
  for (auto& peer : peers_) {
    while (peer != nullptr && !peer->connection->failed() && !peer->has_seen &&
           loop_.now_ns() < seen_by_ns) {
      (void)co_await after(loop_, kLeavePollNs);
    }
  }
  co_await gate_.close(fail(Errc::interrupted, "the job ends"));
}

}  // namespace ff::collective
