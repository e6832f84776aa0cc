// communicator.cc: operations of one rank, and pieces of operations that its threads work on.
#include "training/collective/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "platform/base/check.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "training/collective/free_port.h"
#include "training/collective/job_failure.h"
#include "training/collective/piece.h"
#include "training/collective/successor.h"

namespace ff::collective {

namespace {

constexpr int64_t kStopPollNs = 100 * kMillisecond;  // the longest time until a stop is noticed
constexpr int64_t kGraceNs = 5 * kSecond;   // beyond the timeouts of rank 0, to find the straggler
constexpr int64_t kLingerNs = 5 * kSecond;  // after rank 0 has left, for the others of its host
constexpr uint64_t kShrinkSplits = uint64_t{1} << 32;
constexpr uint32_t kShrinkFailuresMax = 3;  // of this rank alone
constexpr uint64_t kBytesMax = uint64_t{1} << 46;
// An operation with more traffic bypasses the caches: its results would be evicted before a rank
// reads them.
constexpr uint64_t kCachedBytes = 8 << 20;
constexpr uint64_t kOperationTags = uint64_t{1} << 32;  // from here: operations of messages

NumaPlacement placement_of(const CommunicatorOptions& options) {
  io::SystemDisk disk;
  return {numa_nodes(disk, options.sysfs), options.pin};
}

ByteSpan span_of(const void* memory, uint64_t bytes) {
  return {static_cast<std::byte*>(const_cast<void*>(memory)), bytes};
}

// Where the blocks of each rank begin, and where the last one ends.
std::vector<uint64_t> offsets_of(std::span<const uint64_t> counts, uint64_t element_bytes) {
  std::vector<uint64_t> offsets = {0};
  for (const uint64_t count : counts) offsets.push_back(offsets.back() + count * element_bytes);
  return offsets;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<HostGroup> group, const StopToken& stop,
                           const CommunicatorOptions& options)
    : group_(std::move(group)),
      stop_(stop),
      options_(options),
      placement_(placement_of(options)),
      staging_(*group_, placement_) {}

Result<std::unique_ptr<Communicator>> Communicator::join(HostRank self, const StopToken& stop,
                                                         const CommunicatorOptions& options,
                                                         const std::optional<Network>& network) {
  return join(std::move(self), stop, options, network, {});
}

Result<std::unique_ptr<Communicator>> Communicator::join(HostRank self, const StopToken& stop,
                                                         const CommunicatorOptions& options,
                                                         const std::optional<Network>& network,
                                                         const JoinCheck& check) {
  self.has_peers = network && network->ranks > self.ranks;
  self.join_ns = options.join_ns;
  self.operation_ns = options.operation_ns;
  FF_TRY(auto group, HostGroup::join(std::move(self), stop, options.join_ns, check));
  std::unique_ptr<Communicator> made(new Communicator(std::move(group), stop, options));
  if (made->group_->self().has_peers) {
    made->network_ = network;
    FF_TRY(made->connect_peers(*network, check));
  }
  made->shrink_.emplace(*made->group_, made->world(), stop);
  made->messages_.emplace(*made->group_, made->world(), stop, options.operation_ns);
  made->worker_ = std::thread([one = made.get()] {
    one->placement_.pin_rank(one->local_rank(), one->local_ranks());
    if (one->world_) {
      one->work_on_queue();
      one->stand_by();
    } else {
      one->work_on_operations();
    }
  });
  return made;
}

// Local rank 0 connects to the other hosts; the other ranks wait for it.
Result<void> Communicator::connect_peers(const Network& network, const JoinCheck& check) {
  OperationTable& operations = group_->operations();
  if (local_rank() == 0) {
    const Peers::LocalHost local{.placement = placement_, .sysfs = options_.sysfs};
    FF_TRY(peers_, Peers::connect(*group_, network, local, stop_, options_.join_ns, check));
  }
  Clock& clock = stop_.clock();
  const int64_t until_ns = clock.steady_ns() + options_.join_ns + kGraceNs;
  const auto is_settled = [&] {
    return operations.world_table() || operations.async_error() || operations.failed_rank();
  };
  while (!operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + kStopPollNs,
                          is_settled)) {
    FF_TRY(stop_.check());
    if (check) FF_TRY(check());
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
  OperationTable& operations = group_->operations();
  stopping_.store(true);
  operations.wake(OperationTable::Futex::work);
  if (worker_.joinable()) worker_.join();
  group_->leave();
  if (local_rank() == 0) linger();
  peers_.reset();
  operations.votes().cease(local_rank());  // the next rank may succeed this one
}

// With several hosts, once the job has failed: this rank may have to succeed the leader of its
// host.
void Communicator::stand_by() {
  if (local_rank() == 0 || stopping_.load()) return;
  stand_by_as_successor(*group_, {.world = *world_, .network = *network_}, stop_.clock(),
                        stopping_);
}

// Rank 0 passes on memory regions and messages of its host, for a while.
void Communicator::linger() {
  OperationTable& operations = group_->operations();
  const auto all_left = [&] {
    for (uint32_t rank = 0; rank < local_ranks(); rank++) {
      if (!operations.has_departed(rank)) return false;
    }
    return true;
  };
  Clock& clock = stop_.clock();
  if (operations.messages().is_used()) {
    (void)operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + kLingerNs,
                          [&] { return operations.has_failed() || all_left(); });
  }
  if (peers_ == nullptr) operations.set_relay_closed();  // else at the end of the relay
}

Result<std::unique_ptr<Communicator>> Communicator::split(uint32_t color, uint32_t key,
                                                          const StopToken& stop) {
  SplitChoice own{.color = color, .key = key};
  if (world_) {
    FF_TRY(own.port, find_free_port());
  }
  std::vector<SplitChoice> choices(ranks());
  FF_TRY(run({.kind = Collective::allgather,
              .type = simd::DataType::u8,
              .count = sizeof own,
              .in = &own,
              .out = choices.data()}));
  SplitParent parent{.self = group_->self(), .network = network_, .world = world()};
  {
    const std::lock_guard lock(mutex_);
    parent.splits = splits_++;
  }
  if (color == kNoColor) return std::unique_ptr<Communicator>();
  SplitGroup group = plan_split(parent, choices, rank());
  return join(std::move(group.self), stop, options_, group.network);
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(const StopToken& stop) {
  revoke();
  auto made = shrink_once(stop);
  if (!made) group_->leave();  // the others do not wait for this rank
  return made;
}

// Lets every operation of all ranks fail.
void Communicator::revoke() {
  OperationTable& operations = group_->operations();
  if (!operations.has_failed()) {
    operations.set_async_error(
        fail(Errc::unreachable, "{} shrinks the communicator", name_of(rank())));
  }
  group_->wake_leader();
}

std::optional<Error> Communicator::failure(const std::string& what) const {
  return job_failure(*group_, what);
}

Error Communicator::abort(Error error) {
  Error named = std::move(error).with_context(name_of(rank()) + ": ");
  OperationTable& operations = group_->operations();
  if (!operations.has_failed()) operations.set_async_error(named);
  group_->wake_leader();
  return named;
}

Result<std::unique_ptr<Communicator>> Communicator::shrink_once(const StopToken& stop) {
  for (uint32_t failures = 0;;) {
    FF_TRY(const std::vector<SplitChoice> choices, shrink_->choose_members());
    // A number that split() does not reach, and no other attempt has.
    const SplitParent parent{.self = group_->self(),
                             .network = network_,
                             .world = world(),
                             .splits = kShrinkSplits + shrink_->ballots()};
    SplitGroup group = plan_split(parent, choices, rank());
    auto joined = join(std::move(group.self), stop, options_, group.network,
                       [this] { return shrink_->check_joining(); });
    const bool is_void = !shrink_->check_joining();
    FF_TRY(const bool all_joined, shrink_->confirm(joined.ok()));
    if (all_joined) return joined;
    if (!joined && !is_void && ++failures == kShrinkFailuresMax) return joined;
  }
}

Result<ByteSpan> Communicator::allocate(uint64_t bytes) {
  FF_TRY(auto region, staging_.make_region(std::max<uint64_t>(bytes, 1)));
  const std::lock_guard lock(mutex_);
  allocated_.push_back(region);
  return region->memory().first(bytes);
}

Result<void> Communicator::free(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      allocated_, [&](const auto& region) { return region->memory().data() == memory; });
  if (found == allocated_.end()) return fail(Errc::usage, "ff did not allocate that memory");
  group_->remove_region(*found);
  allocated_.erase(found);
  return {};
}

Result<uint64_t> Communicator::start(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (failed_) return *failed_;
  FF_TRY(stop_.check());
  CollectiveRequest request = operation.request_without_memory();
  if (group_->operations().has_failed()) {
    failed_ = job_failure(*group_, text_of(request));
    if (failed_) return *failed_;
  }
  const uint64_t number = next_;
  FF_TRY(make_room(number));
  FF_TRY(const Sizes sizes, check(operation, request));
  InflightOperation started{.used = true, .number = number, .operation = operation};
  if (sizes.in > 0) {
    started.in = std::make_shared<StagedMemory>(staging_, span_of(operation.in, sizes.in));
  }
  if (sizes.out > 0) {
    started.out = std::make_shared<StagedMemory>(staging_, span_of(operation.out, sizes.out));
  }
  if (uses_messages(operation.kind)) {
    if (operation.kind == Collective::alltoall) {
      started.in_at = offsets_of(operation.in_counts, simd::size_of(operation.type));
      started.out_at = offsets_of(operation.out_counts, simd::size_of(operation.type));
      if (world_) {
        FF_TRY(request.in, share_blocks(started));
      }
    }
    FF_TRY(start_messages(started));
  } else {
    if (sizes.in > 0) {
      FF_TRY(request.in, started.in->share(0, sizes.in, true));
    }
    if (sizes.out > 0) {
      FF_TRY(request.out, started.out->share(0, sizes.out, false));
    }
  }
  inflight_[number % kInflightMax] = std::move(started);
  next_++;
  if (group_->operations().post(local_rank(), number, request)) group_->wake_leader();
  return number;
}

// The bytes of this rank's input and output. Errc::usage: a root that does not exist, too many.
Result<Communicator::Sizes> Communicator::sizes_of(const Operation& operation,
                                                   const CollectiveRequest& request) const {
  if (operation.root >= ranks()) {
    return fail(Errc::usage, "{}: the job has {} ranks", text_of(request), ranks());
  }
  const uint64_t most = kBytesMax / simd::size_of(operation.type) / ranks();
  const auto fits = [&](uint64_t count) { return count <= most; };
  const auto& [in, out] = std::pair(operation.in_counts, operation.out_counts);
  if (!fits(operation.count) || !std::ranges::all_of(in, fits) || !std::ranges::all_of(out, fits)) {
    return fail(Errc::usage, "{}: too many elements", text_of(request));
  }
  if (operation.kind != Collective::alltoall) {
    return Sizes{.in = input_bytes(request, rank(), ranks()),
                 .out = output_bytes(request, rank(), ranks())};
  }
  if (operation.count != 0 || in.size() != ranks() || out.size() != ranks()) {
    return fail(Errc::usage, "{}: it needs {} counts for the input and for the output",
                text_of(request), ranks());
  }
  if (in[rank()] != out[rank()]) {
    return fail(Errc::usage, "{}: rank {} sends {} elements to itself, and receives {}",
                text_of(request), rank(), in[rank()], out[rank()]);
  }
  const uint64_t size = simd::size_of(operation.type);
  return Sizes{.in = std::accumulate(in.begin(), in.end(), uint64_t{0}) * size,
               .out = std::accumulate(out.begin(), out.end(), uint64_t{0}) * size};
}

Result<void> Communicator::check(const Operation& operation) const {
  FF_TRY(check(operation, operation.request_without_memory()));
  return {};
}

Result<Communicator::Sizes> Communicator::check(const Operation& operation,
                                                const CollectiveRequest& request) const {
  FF_TRY(const Sizes sizes, sizes_of(operation, request));
  const bool no_input = sizes.in > 0 && operation.in == nullptr;
  if (no_input || (sizes.out > 0 && operation.out == nullptr)) {
    return fail(Errc::usage, "{}: its {} is null", text_of(request), no_input ? "input" : "output");
  }
  if (operation.kind != Collective::alltoall) {
    FF_TRY(check_overlap(request, rank(), ranks(), operation.in, operation.out));
    return sizes;
  }
  const ByteSpan in = span_of(operation.in, sizes.in), out = span_of(operation.out, sizes.out);
  if (in.empty() || out.empty() || &in.back() < &out.front() || &out.back() < &in.front())
    return sizes;
  return fail(Errc::usage, "{}: the input of rank {} overlaps its output", text_of(request),
              rank());
}

// Posts the messages of a gather, scatter or all-to-all.
Result<void> Communicator::start_messages(InflightOperation& started) {
  copy_own_block(started);
  started.messages = messages_of(started);
  for (Message& message : started.messages) {
    auto posted = messages_->start(message);
    if (posted) continue;
    for (Message& before : started.messages) messages_->withdraw(before);
    return posted;
  }
  return {};
}

std::vector<Message> Communicator::messages_of(const InflightOperation& started) const {
  const Operation& operation = started.operation;
  const uint64_t size = simd::size_of(operation.type), block = operation.count * size;
  const bool is_root = operation.root == rank();
  std::vector<Message> messages;
  const auto add = [&](MessageTable::Kind kind, uint32_t peer, uint64_t offset, uint64_t bytes) {
    const bool sends = kind == MessageTable::Kind::send;
    messages.push_back({.kind = kind,
                        .peer = peer,
                        .tag = kOperationTags + started.number,
                        .offset = offset,
                        .bytes = bytes,
                        .memory = sends ? started.in : started.out});
  };
  using enum MessageTable::Kind;
  if (operation.kind == Collective::alltoall) {
    for (uint32_t step = 1; step < ranks(); step++) {
      const uint32_t to = (rank() + step) % ranks(), from = (rank() + ranks() - step) % ranks();
      for (const Message& one :
           {block_message(started, send, to), block_message(started, receive, from)}) {
        if (!is_gathered(one.peer, one.bytes)) messages.push_back(one);
      }
    }
    return messages;
  }
  const auto to_root = operation.kind == Collective::gather ? send : receive;
  const auto from_root = operation.kind == Collective::gather ? receive : send;
  if (!is_root) add(to_root, operation.root, 0, block);
  for (uint32_t step = 1; is_root && step < ranks(); step++) {
    const uint32_t peer = (rank() + step) % ranks();
    add(from_root, peer, peer * block, block);
  }
  return messages;
}

// A block of an all-to-all, as a message.
Message Communicator::block_message(const InflightOperation& inflight, MessageTable::Kind kind,
                                    uint32_t peer) const {
  const bool sends = kind == MessageTable::Kind::send;
  const std::vector<uint64_t>& at = sends ? inflight.in_at : inflight.out_at;
  return {.kind = kind,
          .peer = peer,
          .tag = kOperationTags + inflight.number,
          .offset = at[peer],
          .bytes = at[peer + 1] - at[peer],
          .memory = sends ? inflight.in : inflight.out};
}

// Whether a block of an all-to-all travels with others (block_relay.h).
bool Communicator::is_gathered(uint32_t peer, uint64_t bytes) const {
  if (!world_) return false;
  const WorldNode& there = world_->nodes[world_->node_of(peer)];
  if (there.first_rank == group_->self().first_rank) return false;
  return bytes <= gathered_block_max(local_ranks(), there.ranks());
}

// Tells rank 0 of this host of all blocks for other hosts and from them.
Result<SharedAddress> Communicator::share_blocks(InflightOperation& started) {
  FF_TRY(started.blocks, BlockTable::make(staging_, ranks()));
  for (uint32_t peer = 0; peer < ranks(); peer++) {
    BlockPair& pair = started.blocks->pairs()[peer];
    const Message sent = block_message(started, MessageTable::Kind::send, peer);
    const Message received = block_message(started, MessageTable::Kind::receive, peer);
    pair.in_bytes = pair.their_out = sent.bytes;
    pair.out_bytes = pair.their_in = received.bytes;
    if (sent.bytes > 0 && is_gathered(peer, sent.bytes)) {
      FF_TRY(pair.in, sent.memory->share(sent.offset, sent.bytes, true));
    }
    if (received.bytes > 0 && is_gathered(peer, received.bytes)) {
      FF_TRY(pair.out, received.memory->share(received.offset, received.bytes, false));
    }
  }
  return started.blocks->address();
}

// All blocks of other hosts that are not messages have arrived: stores them in the output. Where
// the peer has named another size, it is an error of this operation only.
Result<void> Communicator::receive_blocks(InflightOperation& inflight) {
  for (uint32_t peer = 0; peer < ranks(); peer++) {
    const BlockPair& pair = inflight.blocks->pairs()[peer];
    Message received = block_message(inflight, MessageTable::Kind::receive, peer);
    if (pair.their_in == pair.out_bytes) {
      if (received.bytes > 0 && is_gathered(peer, received.bytes))
        received.memory->store(received.offset, received.bytes);
    } else if (!is_gathered(peer, pair.their_in)) {
      // It comes as a message. This rank may expect none; then the two ends of one learn the sizes.
      if (!is_gathered(peer, pair.out_bytes)) continue;
      FF_TRY(messages_->start(received));
      inflight.messages.push_back(std::move(received));
    } else {
      // No message comes that this rank may wait for.
      std::erase_if(inflight.messages, [&](Message& message) {
        const bool is_it = message.kind == MessageTable::Kind::receive && message.peer == peer;
        if (is_it) messages_->withdraw(message);
        return is_it;
      });
      received.error = messages_->mismatch_error(received, {.rank = peer, .bytes = pair.their_in});
      inflight.messages.push_back(std::move(received));
    }
    Message sent = block_message(inflight, MessageTable::Kind::send, peer);
    if (pair.their_out == pair.in_bytes || !is_gathered(peer, pair.in_bytes)) continue;
    sent.error = messages_->mismatch_error(sent, {.rank = peer, .bytes = pair.their_out});
    inflight.messages.push_back(std::move(sent));
  }
  return {};
}

// What a rank sends to itself.
void Communicator::copy_own_block(const InflightOperation& started) const {
  const Operation& operation = started.operation;
  const uint64_t size = simd::size_of(operation.type);
  uint64_t bytes = operation.count * size, in_at = 0, out_at = 0;
  if (operation.kind == Collective::alltoall) {
    in_at = started.in_at[rank()];
    out_at = started.out_at[rank()];
    bytes = started.in_at[rank() + 1] - in_at;
  } else if (operation.root != rank()) {
    return;
  } else {
    (operation.kind == Collective::gather ? out_at : in_at) = rank() * bytes;
  }
  if (bytes == 0) return;
  const std::byte* const from = started.in->memory().data() + in_at;
  std::byte* const to = started.out->memory().data() + out_at;
  if (from != to) std::memcpy(to, from, bytes);
}

Result<uint64_t> Communicator::start_send(MessageBuffer data, uint32_t to, uint32_t tag) {
  if (to == kAnyRank) return fail(Errc::usage, "a message goes to one rank");
  return start_message({.kind = MessageTable::Kind::send, .peer = to, .tag = tag}, data, nullptr);
}

Result<uint64_t> Communicator::start_receive(MessageBuffer data, uint32_t from, uint32_t tag,
                                             uint32_t* source) {
  return start_message({.kind = MessageTable::Kind::receive, .peer = from, .tag = tag}, data,
                       source);
}

Result<uint64_t> Communicator::start_message(Message message, MessageBuffer data,
                                             uint32_t* source) {
  const std::lock_guard lock(mutex_);
  if (failed_) return *failed_;
  FF_TRY(stop_.check());
  if (message.peer != kAnyRank && message.peer >= ranks()) {
    return fail(Errc::usage, "a message to or from rank {}: the job has {} ranks", message.peer,
                ranks());
  }
  if (data.bytes > kBytesMax) {
    return fail(Errc::usage, "a message of {} bytes: the most are {}", data.bytes, kBytesMax);
  }
  if (data.bytes > 0 && data.memory == nullptr) {
    return fail(Errc::usage, "a message of {} bytes: its memory is null", data.bytes);
  }
  message.bytes = data.bytes;
  message.memory = std::make_shared<StagedMemory>(staging_, span_of(data.memory, data.bytes));
  FF_TRY(messages_->start(message));
  inflight_messages_[next_message_] = {.message = std::move(message), .source = source};
  return next_message_++;
}

// Finishes the operation that had the slot of `number` before, if nothing has waited for it.
Result<void> Communicator::make_room(uint64_t number) {
  InflightOperation& before = inflight_[number % kInflightMax];
  if (!before.used) return {};
  const OperationTable& operations = group_->operations();
  const bool is_ready = operations.has_failed() || operations.is_ready(before.number);
  if (!is_ready || before.has_waiter) {
    return fail(Errc::busy, "{} operations are unfinished: wait for operation {} first",
                kInflightMax, before.number);
  }
  if (auto completed = complete(before.number); !completed) {
    failed_ = completed.error();
    return completed;
  }
  const uint64_t finished = before.number;
  if (auto done = finish(before); !done) errors_.emplace(finished, std::move(done).error());
  return {};
}

Result<void> Communicator::wait(uint64_t number) {
  if (number >= kFirstMessage) return wait_message(number);
  InflightOperation& inflight = inflight_[number % kInflightMax];
  {
    const std::lock_guard lock(mutex_);
    if (!inflight.used || inflight.number != number || inflight.has_waiter) {
      if (const auto error = errors_.extract(number)) return error.mapped();
      if (number < next_ && next_ - number > kInflightMax) return {};  // make_room() finished it
      return fail(Errc::usage, "operation {} was not started, or was waited for", number);
    }
    if (failed_) return *failed_;
    inflight.has_waiter = true;
  }
  auto completed = complete(number);
  const std::lock_guard lock(mutex_);
  inflight.has_waiter = false;
  if (!completed) {
    failed_ = completed.error();
    return completed;
  }
  return finish(inflight);
}

Result<void> Communicator::wait_message(uint64_t number) {
  std::map<uint64_t, InflightMessage>::node_type found;
  {
    const std::lock_guard lock(mutex_);
    found = inflight_messages_.extract(number);
    if (!found) {
      return fail(Errc::usage, "message {} was not started, or was waited for",
                  number - kFirstMessage);
    }
    if (failed_) return *failed_;
  }
  InflightMessage& inflight = found.mapped();
  auto waited =
      messages_->wait(inflight.message, stop_.clock().steady_ns() + options_.operation_ns, "");
  if (waited && inflight.source != nullptr) *inflight.source = inflight.message.peer;
  if (!waited && waited.error().code != Errc::usage) {
    const std::lock_guard lock(mutex_);
    failed_ = waited.error();
  }
  return waited;
}

// All ranks have started the operation, and its pieces and messages are done.
Result<void> Communicator::complete(uint64_t number) {
  const int64_t until_ns = stop_.clock().steady_ns() + options_.operation_ns;
  help(number);
  FF_TRY(wait_complete(number, until_ns));
  InflightOperation& inflight = inflight_[number % kInflightMax];
  if (inflight.blocks != nullptr) FF_TRY(receive_blocks(inflight));
  return wait_messages(inflight, until_ns);
}

// The errors of single messages stay in them, for finish().
Result<void> Communicator::wait_messages(InflightOperation& inflight, int64_t until_ns) {
  if (inflight.messages.empty()) return {};
  // Of a rank that started another operation, none will come.
  const bool differs = group_->operations().mismatch(inflight.number).has_value();
  const std::string context = context_of(inflight.number) + ": ";
  for (Message& message : inflight.messages) {
    if (differs) messages_->withdraw(message);
    auto waited = messages_->wait(message, until_ns, context);
    if (waited) continue;
    if (waited.error().code != Errc::usage) return waited;
    message.error = std::move(waited).error();
  }
  return {};
}

// Stores the result of a complete operation in its output, and frees its slot.
Result<void> Communicator::finish(InflightOperation& inflight) {
  const OperationTable& operations = group_->operations();
  const uint64_t number = inflight.number;
  const auto failed = std::ranges::find_if(
      inflight.messages, [](const Message& message) { return message.error.has_value(); });
  Result<void> result;
  if (const auto differs = operations.mismatch(number)) {
    result = fail(Errc::usage, "operation {}: {} requested {}, {} requested {}", number,
                  group_->name_of(0), text_of(differs->expected), group_->name_of(differs->rank),
                  text_of(differs->posted));
  } else if (failed != inflight.messages.end()) {
    result = *failed->error;
  } else if (inflight.out != nullptr && !uses_messages(inflight.operation.kind)) {
    inflight.out->store(0, inflight.out->memory().size());
  }
  inflight = {};
  return result;
}

Result<void> Communicator::run(const Operation& operation) {
  FF_TRY(const uint64_t number, start(operation));
  return wait(number);
}

Result<void> Communicator::wait_complete(uint64_t number, int64_t until_ns) {
  OperationTable& operations = group_->operations();
  Clock& clock = stop_.clock();
  std::optional<uint32_t> left;  // a rank that left before it posted this
  const auto is_settled = [&] {
    if (operations.is_complete(number) || operations.has_failed()) return true;
    for (uint32_t other = 0; other < local_ranks() && !left; other++) {
      if (operations.has_departed(other) && operations.posted(other) <= number) left = other;
    }
    return left.has_value();
  };
  for (;;) {
    const int64_t now_ns = clock.steady_ns();
    const bool settled = operations.wait(OperationTable::Futex::done, clock,
                                         std::min(until_ns, now_ns + kStopPollNs), is_settled);
    if (operations.is_complete(number)) return {};
    if (auto failure = job_failure(*group_, context_of(number))) return std::move(*failure);
    if (left) {
      return operation_error(context_of(number),
                             fmt::format("{} has left after {} operations", group_->name_of(*left),
                                         operations.posted(*left)));
    }
    FF_TRY(stop_.check());
    help(number);  // the woken thread may not get a core
    if (!settled && clock.steady_ns() >= until_ns) return straggler_error(number);
  }
}

// "allreduce of 4 float, sum (operation 3)".
std::string Communicator::context_of(uint64_t number) const {
  return fmt::format("{} (operation {})",
                     text_of(group_->operations().request(number, local_rank())), number);
}

// Asks rank 0, which asks the other hosts; nothing when rank 0 does not answer in time.
std::optional<Error> Communicator::straggler_of_hosts(uint64_t number) const {
  OperationTable& operations = group_->operations();
  Clock& clock = stop_.clock();
  operations.request_straggler_check(number);
  group_->wake_leader();
  const auto is_known = [&] { return operations.async_error().has_value(); };
  if (!operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + kGraceNs, is_known))
    return {};
  return job_failure(*group_, context_of(number));
}

// Finds the straggler and records it in the operation table, so that all ranks fail.
Error Communicator::straggler_error(uint64_t number) const {
  OperationTable& operations = group_->operations();
  std::optional<uint32_t> not_started;
  for (uint32_t other = 0; other < local_ranks(); other++) {
    if (operations.posted(other) <= number) not_started = other;
  }
  if (world_ && (!not_started || operations.messages().awaited(*not_started))) {
    if (auto error = straggler_of_hosts(number)) return std::move(*error);
  }
  // With several hosts, rank 0 may be the straggler itself.
  const uint32_t working = operations.find_worker(number).value_or(world_ ? 0 : local_rank());
  const uint32_t suspect = not_started.value_or(working);
  const uint32_t first_rank = group_->self().first_rank;
  const MessageTable messages = operations.messages();
  // It may itself wait for the message of another rank of this host.
  const uint32_t straggler = last_awaited(suspect, [&](uint32_t local) -> std::optional<uint32_t> {
    const auto awaited = messages.awaited(local);
    if (!awaited || *awaited < first_rank || *awaited - first_rank >= local_ranks()) return {};
    return *awaited - first_rank;
  });
  const char* what = not_started ? " has not started it" : " has not finished its part";
  if (straggler != suspect) what = " is late with a message";
  operations.set_failed_rank({.rank = straggler, .timed_out = true});
  group_->wake_leader();
  Error error = operation_error(context_of(number), group_->name_of(straggler));
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

// Works on pieces of an operation that a thread of the program waits for.
void Communicator::help(uint64_t number) {
  if (helping_.test_and_set(std::memory_order_acquire)) return;
  while (run_piece(number, 1)) {
  }
  helping_.clear(std::memory_order_release);
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
