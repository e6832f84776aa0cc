// communicator.cc: operations of one rank, and pieces of operations that its threads work on.
#include "training/collective/communicator.h"

#include <algorithm>
#include <cstring>

#include "platform/base/check.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "training/collective/piece.h"

namespace ff::collective {

namespace {

constexpr int64_t kStopPollNs = 100 * kMillisecond;  // the longest time until a stop is noticed
// For rank 0 to find the straggler, beyond its own timeouts.
constexpr int64_t kGraceNs = 5 * kSecond;
constexpr uint64_t kBytesMax = uint64_t{1} << 46;
// An operation with more traffic bypasses the caches: its results would be evicted before a rank
// reads them.
constexpr uint64_t kCachedBytes = 8 << 20;

NumaPlacement placement_of(const CommunicatorOptions& options) {
  io::SystemDisk disk;
  return {numa_nodes(disk, options.sysfs), options.pin};
}

ByteView view(const void* from, uint64_t bytes) {
  return {static_cast<const std::byte*>(from), bytes};
}

}  // namespace

Communicator::Communicator(std::unique_ptr<HostGroup> group, const StopToken& stop,
                           const CommunicatorOptions& options)
    : group_(std::move(group)), stop_(stop), options_(options), placement_(placement_of(options)) {}

Result<std::unique_ptr<Communicator>> Communicator::join(HostRank self, const StopToken& stop,
                                                         const CommunicatorOptions& options,
                                                         const std::optional<Network>& network) {
  self.has_peers = network && network->ranks > self.ranks;
  self.region_wait_ns = options.operation_ns;
  FF_TRY(auto group, HostGroup::join(std::move(self), stop, options.join_ns));
  std::unique_ptr<Communicator> made(new Communicator(std::move(group), stop, options));
  if (made->group_->self().has_peers) {
    FF_TRY(made->connect_peers(*network));
  }
  made->worker_ = std::thread([one = made.get()] {
    one->placement_.pin_rank(one->local_rank(), one->local_ranks());
    if (one->world_) {
      one->work_on_queue();
    } else {
      one->work_on_operations();
    }
  });
  return made;
}

// Local rank 0 connects to the other hosts; the other ranks wait for it.
Result<void> Communicator::connect_peers(const Network& network) {
  OperationTable& operations = group_->operations();
  if (local_rank() == 0) {
    const Peers::LocalHost local{.placement = placement_, .sysfs = options_.sysfs};
    FF_TRY(peers_, Peers::connect(*group_, network, local, stop_, options_.join_ns));
  }
  Clock& clock = stop_.clock();
  const int64_t until_ns = clock.steady_ns() + options_.join_ns + kGraceNs;
  const auto is_settled = [&] {
    return operations.world_table() || operations.async_error() || operations.failed_rank();
  };
  while (!operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + kStopPollNs,
                          is_settled)) {
    FF_TRY(stop_.check());
    if (clock.steady_ns() < until_ns) continue;
    return fail(Errc::deadline, "{} has not connected to the other hosts", group_->name_of(0));
  }
  const auto world = operations.world_table();
  if (auto error = operations.async_error(); error && !world) return std::move(*error);
  if (!world)
    return fail(Errc::unreachable, "{} is gone", group_->name_of(operations.failed_rank()->rank));
  FF_TRY(const std::byte* const table, group_->resolve(0, world->first, world->second));
  FF_TRY(world_, parse_world({table, world->second}));
  return {};
}

Communicator::~Communicator() {
  stopping_.store(true);
  group_->operations().wake(OperationTable::Futex::work);
  if (worker_.joinable()) worker_.join();
  group_->leave();
}

Result<ByteSpan> Communicator::allocate(uint64_t bytes) {
  FF_TRY(auto region, make_region(std::max<uint64_t>(bytes, 1)));
  allocated_.push_back(region);
  return region->memory().first(bytes);
}

Result<std::shared_ptr<const net::SharedRegion>> Communicator::make_region(uint64_t bytes) {
  FF_TRY(auto region, group_->make_region(bytes));
  placement_.interleave_all(region->memory());
  return region;
}

Result<void> Communicator::free(const void* memory) {
  const auto found = std::ranges::find_if(
      allocated_, [&](const auto& region) { return region->memory().data() == memory; });
  if (found == allocated_.end()) return fail(Errc::usage, "ff did not allocate that memory");
  group_->remove_region(*found);
  allocated_.erase(found);
  return {};
}

Result<uint64_t> Communicator::start(const Operation& operation) {
  if (failed_) return *failed_;
  FF_TRY(stop_.check());
  const uint64_t number = next_;
  FF_TRY(make_room(number));
  CollectiveRequest request{.kind = operation.kind,
                            .type = operation.type,
                            .op = operation.op,
                            .root = operation.root,
                            .count = operation.count};
  if (operation.root >= ranks()) {
    return fail(Errc::usage, "{}: the job has {} ranks", text_of(request), ranks());
  }
  if (operation.count > kBytesMax / simd::size_of(operation.type) / ranks()) {
    return fail(Errc::usage, "{}: too many elements", text_of(request));
  }
  const bool has_input = input_bytes(request, rank(), ranks()) > 0;
  const bool has_output = output_bytes(request, rank(), ranks()) > 0;
  if ((has_input && operation.in == nullptr) || (has_output && operation.out == nullptr)) {
    return fail(Errc::usage, "{}: its {} is null", text_of(request),
                has_input && operation.in == nullptr ? "input" : "output");
  }
  FF_TRY(check_overlap(request, rank(), ranks(), operation.in, operation.out));
  InflightOperation started{.used = true, .number = number, .operation = operation};
  if (const uint64_t bytes = input_bytes(request, rank(), ranks()); bytes > 0) {
    FF_TRY(request.in, share(view(operation.in, bytes), true, started.in));
  }
  if (const uint64_t bytes = output_bytes(request, rank(), ranks()); bytes > 0) {
    FF_TRY(request.out, share(view(operation.out, bytes), false, started.out));
  }
  inflight_[number % kInflightMax] = std::move(started);
  next_++;
  if (group_->operations().post(local_rank(), number, request)) group_->wake_leader();
  return number;
}

// The address of `memory` for other ranks; memory that is not shared gets a staging copy.
Result<SharedAddress> Communicator::share(ByteView memory, bool copy,
                                          std::shared_ptr<const net::SharedRegion>& staging) {
  if (const auto shared = group_->address_of(memory)) return *shared;
  FF_TRY(staging, get_staging(memory.size()));
  if (copy) std::memcpy(staging->memory().data(), memory.data(), memory.size());
  return *group_->address_of(staging->memory());
}

Result<std::shared_ptr<const net::SharedRegion>> Communicator::get_staging(uint64_t bytes) {
  const auto fits = std::ranges::find_if(
      free_staging_, [&](const auto& region) { return region->memory().size() >= bytes; });
  if (fits == free_staging_.end()) return make_region(bytes);
  auto region = std::move(*fits);
  free_staging_.erase(fits);
  return region;
}

// Finishes the operation that had the slot of `number` before, if nothing has waited for it.
Result<void> Communicator::make_room(uint64_t number) {
  InflightOperation& before = inflight_[number % kInflightMax];
  if (!before.used) return {};
  const OperationTable& operations = group_->operations();
  const bool has_failed = operations.failed_rank() || operations.async_error();
  if (!has_failed && !operations.is_ready(before.number)) {
    return fail(Errc::busy, "{} operations are unfinished: wait for operation {} first",
                kInflightMax, before.number);
  }
  FF_TRY(complete(before));
  const uint64_t finished = before.number;
  if (auto done = finish(before); !done) errors_.emplace(finished, std::move(done).error());
  return {};
}

Result<void> Communicator::wait(uint64_t number) {
  InflightOperation& inflight = inflight_[number % kInflightMax];
  if (!inflight.used || inflight.number != number) {
    if (const auto error = errors_.extract(number)) return error.mapped();
    if (number < next_ && next_ - number > kInflightMax) return {};  // make_room() has finished it
    return fail(Errc::usage, "operation {} was not started, or was waited for", number);
  }
  FF_TRY(complete(inflight));
  return finish(inflight);
}

Result<void> Communicator::complete(const InflightOperation& inflight) {
  if (failed_) return *failed_;
  while (run_piece(inflight.number, 1)) {
  }
  auto waited = wait_complete(inflight);
  if (!waited) failed_ = waited.error();
  return waited;
}

// Stores the result of a complete operation in its output, and frees its slot.
Result<void> Communicator::finish(InflightOperation& inflight) {
  const OperationTable& operations = group_->operations();
  const uint64_t number = inflight.number;
  const auto differs = operations.mismatch(number);
  Result<void> result;
  if (differs) {
    result = fail(Errc::usage, "operation {}: {} requested {}, {} requested {}", number,
                  group_->name_of(0), text_of(differs->expected), group_->name_of(differs->rank),
                  text_of(differs->posted));
  } else if (inflight.out != nullptr) {
    const uint64_t bytes = output_bytes(operations.request(number, local_rank()), rank(), ranks());
    std::memcpy(inflight.operation.out, inflight.out->memory().data(), bytes);
  }
  for (auto* staging : {&inflight.in, &inflight.out}) {
    if (*staging != nullptr) free_staging_.push_back(std::move(*staging));
  }
  inflight = {};
  return result;
}

Result<void> Communicator::run(const Operation& operation) {
  FF_TRY(const uint64_t number, start(operation));
  return wait(number);
}

Result<void> Communicator::wait_complete(const InflightOperation& inflight) {
  OperationTable& operations = group_->operations();
  Clock& clock = stop_.clock();
  const int64_t until_ns = clock.steady_ns() + options_.operation_ns;
  std::optional<uint32_t> left;  // a rank that left before it posted this
  const auto is_settled = [&] {
    if (operations.is_complete(inflight.number) || operations.failed_rank() ||
        operations.async_error())
      return true;
    for (uint32_t other = 0; other < local_ranks() && !left; other++) {
      if (operations.has_departed(other) && operations.posted(other) <= inflight.number)
        left = other;
    }
    return left.has_value();
  };
  for (;;) {
    const int64_t now_ns = clock.steady_ns();
    const bool settled = operations.wait(OperationTable::Futex::done, clock,
                                         std::min(until_ns, now_ns + kStopPollNs), is_settled);
    if (operations.is_complete(inflight.number)) return {};
    if (const auto error = operations.async_error()) return async_error(*error, inflight);
    if (const auto failed = operations.failed_rank()) {
      Error error = operation_error(group_->name_of(failed->rank), inflight);
      error.code = failed->timed_out ? Errc::deadline : Errc::unreachable;
      error.message += failed->timed_out ? " missed the deadline" : " is gone";
      error.message +=
          fmt::format("; it had started {} operations", operations.posted(failed->rank));
      return error;
    }
    if (left) {
      Error error = operation_error(group_->name_of(*left), inflight);
      error.message += fmt::format(" has left after {} operations", operations.posted(*left));
      return error;
    }
    FF_TRY(stop_.check());
    while (run_piece(inflight.number, 1)) {  // the woken thread may not get a core
    }
    if (!settled && clock.steady_ns() >= until_ns) return straggler_error(inflight);
  }
}

// "allreduce of 4 float, sum (operation 3): REASON".
Error Communicator::operation_error(const std::string& reason,
                                    const InflightOperation& inflight) const {
  Error error = fail(Errc::unreachable, "{} (operation {}): {}",
                     text_of(group_->operations().request(inflight.number, local_rank())),
                     inflight.number, reason);
  error.hint = "Read the output of that process; then start the job again.";
  return error;
}

// An error that the operation table holds for all ranks.
Error Communicator::async_error(const Error& error, const InflightOperation& inflight) const {
  Error result = operation_error(error.message, inflight);
  result.code = error.code;
  if (error.code == Errc::corrupt) {
    result.hint =
        "Check the network cards, cables and memory of both hosts; then start the job again.";
  }
  return result;
}

// Asks rank 0, which asks the other hosts; nothing when rank 0 does not answer in time.
std::optional<Error> Communicator::straggler_of_hosts(const InflightOperation& inflight) const {
  OperationTable& operations = group_->operations();
  Clock& clock = stop_.clock();
  operations.request_straggler_check(inflight.number);
  group_->wake_leader();
  const auto is_known = [&] { return operations.async_error().has_value(); };
  if (!operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + kGraceNs, is_known))
    return {};
  return async_error(*operations.async_error(), inflight);
}

// Finds the straggler and records it in the operation table, so that all ranks fail.
Error Communicator::straggler_error(const InflightOperation& inflight) const {
  OperationTable& operations = group_->operations();
  std::optional<uint32_t> not_started;
  for (uint32_t other = 0; other < local_ranks(); other++) {
    if (operations.posted(other) <= inflight.number) not_started = other;
  }
  if (world_ && !not_started) {
    if (auto error = straggler_of_hosts(inflight)) return std::move(*error);
  }
  // With several hosts, rank 0 may be the straggler itself.
  const uint32_t working =
      operations.find_worker(inflight.number).value_or(world_ ? 0 : local_rank());
  const uint32_t straggler = not_started.value_or(working);
  const char* const what = not_started ? " has not started it" : " has not finished its part";
  operations.set_failed_rank({.rank = straggler, .timed_out = true});
  group_->wake_leader();
  Error error = operation_error(group_->name_of(straggler), inflight);
  error.code = Errc::deadline;
  error.message +=
      fmt::format("{} within {}; it had started {} operations", what,
                  format_duration(options_.operation_ns), operations.posted(straggler));
  return error;
}

// The second thread: pieces of operations that other ranks wait for.
void Communicator::work_on_operations() {
  OperationTable& operations = group_->operations();
  Clock& clock = stop_.clock();
  for (uint64_t number = 0;; number++) {
    const auto has_work = [&] {
      return stopping_.load() || operations.is_ready(number) || operations.failed_rank();
    };
    while (!operations.wait(OperationTable::Futex::work, clock, clock.steady_ns() + 3600 * kSecond,
                            has_work)) {
    }
    if (stopping_.load() || operations.failed_rank()) return;
    while (run_piece(number, 0)) {
    }
  }
}

// The same with several hosts: items of the work queue.
void Communicator::work_on_queue() {
  OperationTable& operations = group_->operations();
  Clock& clock = stop_.clock();
  const OperationTable::Worker self{.rank = local_rank(), .thread = 0};
  const auto has_work = [&] {
    return stopping_.load() || operations.work_queue().waiting() > 0 || operations.failed_rank() ||
           operations.async_error();
  };
  for (;;) {
    while (!operations.wait(OperationTable::Futex::work, clock, clock.steady_ns() + 3600 * kSecond,
                            has_work)) {
    }
    if (stopping_.load() || operations.failed_rank() || operations.async_error()) return;
    const auto claimed = operations.claim_work(self);
    if (!claimed) continue;
    if (!execute_work(*group_, claimed->item)) {
      operations.set_failed_rank({.rank = local_rank()});
      return group_->wake_leader();
    }
    operations.finish_work(self, claimed->ticket);
    group_->wake_leader();
  }
}

bool Communicator::run_piece(uint64_t number, uint32_t thread) {
  OperationTable& operations = group_->operations();
  const OperationTable::Worker worker{.rank = local_rank(), .thread = thread};
  const auto index = operations.claim_piece(worker, number);
  if (!index) return false;
  // The operation cannot complete without this piece: fail it on all ranks.
  if (!execute_piece(number, *index)) {
    operations.set_failed_rank({.rank = local_rank()});
    return false;
  }
  operations.finish_piece(worker, number);
  return true;
}

Result<void> Communicator::execute_piece(uint64_t number, uint64_t index) {
  const OperationTable& operations = group_->operations();
  const CollectiveRequest& first = operations.request(number, 0);
  const Piece piece = piece_of(first, ranks(), piece_elements(first), index);
  const uint64_t bytes = piece.count * simd::size_of(first.type);
  std::array<const void*, kHostRanksMax> inputs;
  std::array<void*, kHostRanksMax> outputs;
  size_t ins = 0, outs = 0;
  for (uint32_t other = 0; other < ranks(); other++) {
    const CollectiveRequest& request = operations.request(number, other);
    if (piece.from == kAllRanks || piece.from == other) {
      SharedAddress from = request.in;
      from.offset += piece.in_at;
      FF_TRY(inputs[ins], group_->resolve(other, from, bytes));
      ins++;
    }
    if (piece.to == kAllRanks || piece.to == other) {
      SharedAddress to = request.out;
      to.offset += piece.out_at;
      FF_TRY(outputs[outs], group_->resolve(other, to, bytes));
      outs++;
    }
  }
  simd::ReduceSpec what{.type = first.type, .op = first.op, .ranks = ranks()};
  what.non_temporal = traffic_bytes(first, ranks()) > kCachedBytes;
  uint64_t count = piece.count;
  if (is_copy(first.kind)) {  // any bits
    what.type = simd::DataType::u8;
    what.op = simd::ReduceOp::sum;
    count = bytes;
  }
  simd::reduce_arrays(what, {{inputs.data(), ins}, {outputs.data(), outs}, count});
  return {};
}

}  // namespace ff::collective
