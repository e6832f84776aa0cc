// communicator.cc: operations of one rank, and the pieces of all that its threads work on.
#include "training/collective/communicator.h"

#include <algorithm>
#include <cstring>

#include "platform/base/check.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "training/collective/plan.h"

namespace ff::collective {

namespace {

constexpr int64_t kStopPollNs = 100 * kMillisecond;  // how soon a stop is noticed
// For another rank to say who is late, beyond what that waits for answers.
constexpr int64_t kGraceNs = 5 * kSecond;
constexpr uint64_t kBytesMax = uint64_t{1} << 46;
// What an operation moves beyond which nothing of it stays in caches until somebody reads it.
constexpr uint64_t kCachedBytes = 8 << 20;

Placement placement_of(const Options& options) {
  io::SystemDisk disk;
  return {numa_nodes(disk, options.sysfs), options.pin};
}

ByteView view(const void* from, uint64_t bytes) {
  return {static_cast<const std::byte*>(from), bytes};
}

}  // namespace

Communicator::Communicator(std::unique_ptr<HostGroup> group, const Stop& stop,
                           const Options& options)
    : group_(std::move(group)), stop_(stop), options_(options), placement_(placement_of(options)) {}

Result<std::unique_ptr<Communicator>> Communicator::join(HostRank self, const Stop& stop,
                                                         const Options& options,
                                                         const std::optional<Network>& network) {
  self.has_neighbours = network && network->ranks > self.ranks;
  self.reach_ns = options.operation_ns;
  FF_TRY(auto group, HostGroup::join(std::move(self), stop, options.join_ns));
  std::unique_ptr<Communicator> made(new Communicator(std::move(group), stop, options));
  if (made->group_->self().has_neighbours) {
    FF_TRY(made->meet(*network));
  }
  made->worker_ = std::thread([one = made.get()] {
    one->placement_.pin_rank(one->local_rank(), one->local_ranks());
    if (one->world_) {
      one->work_on_turns();
    } else {
      one->work();
    }
  });
  return made;
}

// The other nodes: by rank 0 of the host, for which the others wait.
Result<void> Communicator::meet(const Network& network) {
  Board& board = group_->board();
  if (local_rank() == 0) {
    const Neighbours::Here here{.placement = placement_, .sysfs = options_.sysfs};
    FF_TRY(neighbours_, Neighbours::meet(*group_, network, here, stop_, options_.join_ns));
  }
  Clock& clock = stop_.clock();
  const int64_t until_ns = clock.steady_ns() + options_.join_ns + kGraceNs;
  const auto looks = [&] { return board.world() || board.fault() || board.lost(); };
  while (!board.wait(Board::Bell::done, clock, clock.steady_ns() + kStopPollNs, looks)) {
    FF_TRY(stop_.check());
    if (clock.steady_ns() < until_ns) continue;
    return fail(Errc::deadline, "{} has not met the other hosts", group_->name_of(0));
  }
  const auto world = board.world();
  if (auto fault = board.fault(); fault && !world) return std::move(*fault);
  if (!world) return fail(Errc::unreachable, "{} is gone", group_->name_of(board.lost()->rank));
  FF_TRY(const std::byte* const table, group_->reach(0, world->first, world->second));
  FF_TRY(world_, parse_world({table, world->second}));
  return {};
}

Communicator::~Communicator() {
  ends_.store(true);
  group_->board().ring(Board::Bell::work);
  if (worker_.joinable()) worker_.join();
  group_->leave();
}

Result<ByteSpan> Communicator::allocate(uint64_t bytes) {
  FF_TRY(auto region, make_region(std::max<uint64_t>(bytes, 1)));
  allocated_.push_back(region);
  return region->memory().first(bytes);
}

Result<std::shared_ptr<const net::Region>> Communicator::make_region(uint64_t bytes) {
  FF_TRY(auto region, group_->make_region(bytes));
  placement_.spread(region->memory());
  return region;
}

Result<void> Communicator::free(const void* memory) {
  const auto found = std::ranges::find_if(
      allocated_, [&](const auto& region) { return region->memory().data() == memory; });
  if (found == allocated_.end()) return fail(Errc::usage, "that memory was not allocated here");
  group_->remove_region(*found);
  allocated_.erase(found);
  return {};
}

Result<uint64_t> Communicator::start(const Operation& operation) {
  if (failed_) return *failed_;
  FF_TRY(stop_.check());
  const uint64_t number = next_;
  Flight& flight = flights_[number % kJobs];
  if (flight.used) {
    return fail(Errc::busy, "{} operations are in flight: wait for operation {} first", kJobs,
                flight.number);
  }
  Request request{.kind = operation.kind,
                  .type = operation.type,
                  .op = operation.op,
                  .root = operation.root,
                  .count = operation.count};
  if (operation.root >= ranks()) {
    return fail(Errc::usage, "{}: there are {} ranks", text_of(request), ranks());
  }
  if (operation.count > kBytesMax / simd::size_of(operation.type) / ranks()) {
    return fail(Errc::usage, "{}: more than there can be", text_of(request));
  }
  const bool gives = in_bytes(request, rank(), ranks()) > 0;
  const bool gets = out_bytes(request, rank(), ranks()) > 0;
  if ((gives && operation.in == nullptr) || (gets && operation.out == nullptr)) {
    return fail(Errc::usage, "{}: its {} is null", text_of(request),
                gives && operation.in == nullptr ? "input" : "output");
  }
  Flight begun{.used = true, .number = number, .operation = operation};
  if (const uint64_t bytes = in_bytes(request, rank(), ranks()); bytes > 0) {
    FF_TRY(request.in, place(view(operation.in, bytes), true, begun.in));
  }
  if (const uint64_t bytes = out_bytes(request, rank(), ranks()); bytes > 0) {
    FF_TRY(request.out, place(view(operation.out, bytes), false, begun.out));
  }
  flight = std::move(begun);
  next_++;
  if (group_->board().post(local_rank(), number, request)) group_->nudge();
  return number;
}

// Where others reach it, through a copy if it is the program's own.
Result<Place> Communicator::place(ByteView memory, bool copy,
                                  std::shared_ptr<const net::Region>& staged) {
  if (const auto shared = group_->place_of(memory)) return *shared;
  FF_TRY(staged, stage(memory.size()));
  if (copy) std::memcpy(staged->memory().data(), memory.data(), memory.size());
  return *group_->place_of(staged->memory());
}

Result<std::shared_ptr<const net::Region>> Communicator::stage(uint64_t bytes) {
  const auto fits = std::ranges::find_if(
      spare_, [&](const auto& region) { return region->memory().size() >= bytes; });
  if (fits == spare_.end()) return make_region(bytes);
  auto region = std::move(*fits);
  spare_.erase(fits);
  return region;
}

Result<void> Communicator::wait(uint64_t number) {
  Flight& flight = flights_[number % kJobs];
  if (!flight.used || flight.number != number) {
    return fail(Errc::usage, "operation {} was not started, or was waited for", number);
  }
  if (failed_) return *failed_;
  while (work_on(number, 1)) {
  }
  if (auto waited = until_ended(flight); !waited) {
    failed_ = waited.error();
    return waited;
  }
  const Board& board = group_->board();
  const auto differs = board.disagrees(number);
  Result<void> result;
  if (differs) {
    result =
        fail(Errc::usage, "operation {}: {} asks for {}, {} for {}", number, group_->name_of(0),
             text_of(differs->first), group_->name_of(differs->rank), text_of(differs->asked));
  } else if (flight.out != nullptr) {
    const uint64_t bytes = out_bytes(board.request(number, local_rank()), rank(), ranks());
    std::memcpy(flight.operation.out, flight.out->memory().data(), bytes);
  }
  for (auto* staged : {&flight.in, &flight.out}) {
    if (*staged != nullptr) spare_.push_back(std::move(*staged));
  }
  flight = {};
  return result;
}

Result<void> Communicator::run(const Operation& operation) {
  FF_TRY(const uint64_t number, start(operation));
  return wait(number);
}

Result<void> Communicator::until_ended(const Flight& flight) {
  Board& board = group_->board();
  Clock& clock = stop_.clock();
  const int64_t until_ns = clock.steady_ns() + options_.operation_ns;
  std::optional<uint32_t> left;  // before it had posted this
  const auto looks = [&] {
    if (board.ended(flight.number) || board.lost() || board.fault()) return true;
    for (uint32_t other = 0; other < local_ranks() && !left; other++) {
      if (board.left(other) && board.posted(other) <= flight.number) left = other;
    }
    return left.has_value();
  };
  for (;;) {
    const int64_t now_ns = clock.steady_ns();
    const bool looked =
        board.wait(Board::Bell::done, clock, std::min(until_ns, now_ns + kStopPollNs), looks);
    if (board.ended(flight.number)) return {};
    if (const auto fault = board.fault()) return told(*fault, flight);
    if (const auto lost = board.lost()) {
      Error error = stuck(group_->name_of(lost->rank), flight);
      error.code = lost->is_late ? Errc::deadline : Errc::unreachable;
      error.message += lost->is_late ? " has let the time pass" : " is gone";
      error.message += fmt::format("; it had begun {} operations", board.posted(lost->rank));
      return error;
    }
    if (left) {
      Error error = stuck(group_->name_of(*left), flight);
      error.message += fmt::format(" has left after {} operations", board.posted(*left));
      return error;
    }
    FF_TRY(stop_.check());
    while (work_on(flight.number, 1)) {  // whoever was woken for it may not run
    }
    if (!looked && clock.steady_ns() >= until_ns) return missing(flight);
  }
}

// "allreduce of 4 float, sum (operation 3): WHO".
Error Communicator::stuck(const std::string& who, const Flight& flight) const {
  Error error =
      fail(Errc::unreachable, "{} (operation {}): {}",
           text_of(group_->board().request(flight.number, local_rank())), flight.number, who);
  error.hint = "Look at what that process says; then start the job again.";
  return error;
}

// What was written on the board for all.
Error Communicator::told(const Error& fault, const Flight& flight) const {
  Error error = stuck(fault.message, flight);
  error.code = fault.code;
  return error;
}

// What the rank that speaks with other hosts finds out, unless it is late itself.
std::optional<Error> Communicator::ask_late(const Flight& flight) const {
  Board& board = group_->board();
  Clock& clock = stop_.clock();
  board.ask_late(flight.number);
  group_->nudge();
  const auto looks = [&] { return board.fault().has_value(); };
  if (!board.wait(Board::Bell::done, clock, clock.steady_ns() + kGraceNs, looks)) return {};
  return told(*board.fault(), flight);
}

// Who is late; the others are told.
Error Communicator::missing(const Flight& flight) const {
  Board& board = group_->board();
  std::optional<uint32_t> not_begun;
  for (uint32_t other = 0; other < local_ranks(); other++) {
    if (board.posted(other) <= flight.number) not_begun = other;
  }
  if (world_ && !not_begun) {
    if (auto said = ask_late(flight)) return std::move(*said);
  }
  // Between hosts, all waits for the rank that speaks with them.
  const uint32_t works = board.works_on(flight.number).value_or(world_ ? 0 : local_rank());
  const uint32_t late = not_begun.value_or(works);
  const char* const what = not_begun ? " has not begun it" : " has not finished its part";
  board.set_lost({.rank = late, .is_late = true});
  group_->nudge();
  Error error = stuck(group_->name_of(late), flight);
  error.code = Errc::deadline;
  error.message += fmt::format("{} within {}; it had begun {} operations", what,
                               format_duration(options_.operation_ns), board.posted(late));
  return error;
}

// The thread that works on what others wait for.
void Communicator::work() {
  Board& board = group_->board();
  Clock& clock = stop_.clock();
  for (uint64_t number = 0;; number++) {
    const auto looks = [&] { return ends_.load() || board.ready(number) || board.lost(); };
    while (!board.wait(Board::Bell::work, clock, clock.steady_ns() + 3600 * kSecond, looks)) {
    }
    if (ends_.load() || board.lost()) return;
    while (work_on(number, 0)) {
    }
  }
}

// The same between hosts.
void Communicator::work_on_turns() {
  Board& board = group_->board();
  Clock& clock = stop_.clock();
  const Board::Worker self{.rank = local_rank(), .thread = 0};
  const auto looks = [&] {
    return ends_.load() || board.turns().waiting() > 0 || board.lost() || board.fault();
  };
  for (;;) {
    while (!board.wait(Board::Bell::work, clock, clock.steady_ns() + 3600 * kSecond, looks)) {
    }
    if (ends_.load() || board.lost() || board.fault()) return;
    const auto taken = board.take_turn(self);
    if (!taken) continue;
    if (!do_turn(*group_, taken->turn)) {
      board.set_lost({.rank = local_rank()});
      return group_->nudge();
    }
    board.finish_turn(self, taken->ticket);
    group_->nudge();
  }
}

bool Communicator::work_on(uint64_t number, uint32_t thread) {
  Board& board = group_->board();
  const Board::Worker worker{.rank = local_rank(), .thread = thread};
  const auto index = board.take(worker, number);
  if (!index) return false;
  // Without its piece the operation does not end, and the others must know.
  if (!do_piece(number, *index)) {
    board.set_lost({.rank = local_rank()});
    return false;
  }
  board.finish(worker, number);
  return true;
}

Result<void> Communicator::do_piece(uint64_t number, uint64_t index) {
  const Board& board = group_->board();
  const Request& first = board.request(number, 0);
  const Piece piece = piece_of(first, ranks(), piece_elements(first), index);
  const uint64_t bytes = piece.count * simd::size_of(first.type);
  std::array<const void*, kHostRanksMax> inputs;
  std::array<void*, kHostRanksMax> outputs;
  size_t ins = 0, outs = 0;
  for (uint32_t other = 0; other < ranks(); other++) {
    const Request& request = board.request(number, other);
    if (piece.from == kAllRanks || piece.from == other) {
      Place from = request.in;
      from.offset += piece.in_at;
      FF_TRY(inputs[ins], group_->reach(other, from, bytes));
      ins++;
    }
    if (piece.to == kAllRanks || piece.to == other) {
      Place to = request.out;
      to.offset += piece.out_at;
      FF_TRY(outputs[outs], group_->reach(other, to, bytes));
      outs++;
    }
  }
  simd::Reduce what{.type = first.type, .op = first.op, .ranks = ranks()};
  what.past_caches = moved_bytes(first, ranks()) > kCachedBytes;
  uint64_t count = piece.count;
  if (only_copies(first.kind)) {  // whatever the bits mean
    what.type = simd::DataType::u8;
    what.op = simd::ReduceOp::sum;
    count = bytes;
  }
  simd::reduce_arrays(what, {{inputs.data(), ins}, {outputs.data(), outs}, count});
  return {};
}

}  // namespace ff::collective
