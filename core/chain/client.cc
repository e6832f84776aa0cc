// client.cc: whom to ask, and when to ask again.
#include "chain/client.h"

#include <algorithm>
#include <utility>

#include "chain/decisions.h"
#include "chain/wire.h"
#include "cluster/timing.h"
#include "rpc/channel.h"
#include "simd/crc32c.h"

namespace ff::chain {

namespace {

constexpr size_t kChannels = 256;     // updates at once
constexpr size_t kBatchPieces = 128;  // of one read call
constexpr uint64_t kBatchBytes = 4 * kMiB;
constexpr int64_t kUpdateNs = 20 * kSecond;  // for an attempt: longer than a failed target stays
// With the time for a cancel to be confirmed (rpc/channel.h) longer than a halted node's lease, by
// any clock: before memory is used again that such a node reaches, it may no longer read into it.
constexpr int64_t kReadNs = 4 * kSecond;
static_assert((kReadNs + rpc::kConfirmNs) * 9 > cluster::kServeNs * 10);
constexpr int64_t kSyncNs = 40 * kSecond;
constexpr int64_t kAgainFirstNs = 2 * kMillisecond;
constexpr int64_t kAgainLastNs = kSecond;

// What an update ends with; all else may be different at the next attempt.
bool is_final(const Error& error) {
  switch (error.code) {
    case Errc::disk_full:
    case Errc::usage:
    case Errc::refused:
    case Errc::corrupt:
    case Errc::not_found: return true;
    default: return false;
  }
}

Result<Client::Got> got_of(const wire::ReadDone& done, ByteSpan into) {
  if (done.has_error()) return rpc::from_wire(done.error());
  const bool sound =
      done.bytes() <= into.size() && simd::crc32c(into.first(done.bytes())) == done.crc();
  // On its way, or on the disk: the target has not looked at it.
  if (!sound) return fail(Errc::busy, "what came does not match its checksum");
  return Client::Got{from_wire(done.image()), done.bytes()};
}

}  // namespace

Client::Client(rpc::ClientContext& context, const cluster::Routing& routing,
               std::function<void()> refresh)
    : context_(context),
      routing_(routing),
      refresh_(std::move(refresh)),
      nodes_(context, routing),
      calls_(context.loop, nodes_),
      id_(context.rng.next()),
      channels_(context.loop, kChannels),
      sequences_(kChannels),
      changed_(context.loop) {
  for (size_t i = kChannels; i > 0; i--) free_.push_back(i - 1);
}

Client::~Client() = default;

Task<void> Client::close() {
  auto closing = nodes_.close();
  co_await std::move(closing);
}

void Client::look() {
  for (const auto& [id, calls] : calls_.outgoing()) {
    const cluster::Chain* const chain = routing_.chain(id);
    if (chain == nullptr || calls.empty()) continue;
    uint64_t& seen = seen_[id];
    if (seen != chain->version) calls_.end(id, fail(Errc::stale, "chain {} has changed", id));
    seen = chain->version;
  }
  changed_.set();
  changed_.reset();
}

// What tries again share: time, pauses, and the reason of the last failure.
class Client::Attempts {
 public:
  explicit Attempts(Client& client)
      : client_(client),
        deadline_ns_(client.context_.loop.now_ns() + kPatienceNs),
        backoff_(client.context_.rng, kAgainFirstNs, kAgainLastNs) {}

  int64_t until(int64_t most_ns) const {
    return std::min(client_.context_.loop.now_ns() + most_ns, deadline_ns_);
  }
  // The chain, once it is known and `ready` of it. Nothing: to be waited for.
  const cluster::Chain* chain(cluster::ChainId id) {
    const cluster::Chain* const found = client_.routing_.chain(id);
    if (found == nullptr) why_ = fail(Errc::stale, "chain {} is not known", id);
    if (found != nullptr && reading_tail(*found) == nullptr) {
      why_ = fail(Errc::stale, "chain {} has no target that serves", id);
      return nullptr;
    }
    if (found != nullptr) client_.seen_[id] = found->version;
    return found;
  }
  void failed(Error error) { why_ = std::move(error); }
  // Until another attempt may go better. Error: there is no more time, or cancelled.
  Task<Result<void>> again() {
    Loop& loop = client_.context_.loop;
    client_.refresh_();  // whoever does not answer may have been taken out
    const int64_t at_ns = loop.now_ns() + backoff_.pause_ns();
    if (at_ns >= deadline_ns_) {
      why_.code = Errc::deadline;
      co_return std::move(why_).within(fmt::format("not done in {} s: ", kPatienceNs / kSecond));
    }
    const auto waited = co_await client_.changed_.wait(at_ns);
    const Cancel* const cancel = co_await current_cancel();
    if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
    co_return Result<void>();
  }

 private:
  Client& client_;
  const int64_t deadline_ns_;
  Backoff backoff_;
  Error why_;
};

wire::Place Client::place_of(const cluster::Chain& chain, cluster::TargetId target) const {
  wire::Place place;
  place.set_chain(chain.id);
  place.set_chain_version(chain.version);
  place.set_target(target);
  return place;
}

// One of the client's channels, given back when it goes.
struct Client::Channel {
  Channel(Client& of, Semaphore::Hold held)
      : client(of), hold(std::move(held)), number(of.free_.back()) {
    client.free_.pop_back();
  }
  ~Channel() { client.free_.push_back(number); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  chunk::Writer next() {
    return {.client = client.id_, .channel = number, .sequence = ++client.sequences_[number]};
  }
  Client& client;
  Semaphore::Hold hold;
  const size_t number;
};

Task<Result<Client::Updated>> Client::update(cluster::ChainId id, chunk::Update update) {
  auto taking = channels_.take(1);
  FF_CO_TRY(auto hold, co_await std::move(taking));
  Channel channel(*this, std::move(hold));
  update.writer = channel.next();
  wire::WriteRequest request;
  to_wire(update, request);
  request.set_data_crc(simd::crc32c(update.data));
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target head = chain->targets.front();
      *request.mutable_place() = place_of(*chain, head.id);
      auto calling =
          calls_.call(id, head.node, kWrite, request, update.data, attempts.until(kUpdateNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return Updated{from_wire(reply->image()), reply->verifier()};
      if (is_final(reply.error())) co_return std::move(reply).error();
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

Task<Result<uint64_t>> Client::sync(cluster::ChainId id) {
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target head = chain->targets.front();
      wire::SyncRequest request;
      *request.mutable_place() = place_of(*chain, head.id);
      auto calling =
          calls_.call(id, head.node, kSync, std::move(request), {}, attempts.until(kSyncNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return reply->verifier();
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

Task<Result<std::optional<Client::Last>>> Client::last(cluster::ChainId id, uint64_t inode) {
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target tail = *reading_tail(*chain);
      wire::LastRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_inode(inode);
      auto calling =
          calls_.call(id, tail.node, kLast, std::move(request), {}, attempts.until(kReadNs));
      auto reply = co_await std::move(calling);
      if (reply && !reply->found()) co_return std::optional<Last>();
      if (reply) {
        co_return std::optional(Last{from_wire(reply->chunk()), from_wire(reply->image())});
      }
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

// Pieces that go to one target in one call.
struct Client::Batch {
  Batch(cluster::ChainId id, cluster::Target at) : chain(id), target(std::move(at)) {}
  const cluster::ChainId chain;
  const cluster::Target target;
  wire::ReadRequest request = {};
  std::vector<size_t> which = {};  // of the pieces
  uint64_t bytes = 0;
  std::vector<Result<Got>> got = {};  // of those
};

// Pieces, what has come of them, and from whom they could not be had.
struct Client::Reading {
  explicit Reading(std::vector<Piece> what)
      : pieces(std::move(what)), results(pieces.size(), Result<Got>(Got{})) {
    for (size_t i = 0; i < pieces.size(); i++) open.push_back(i);
  }
  struct Failures {
    std::set<cluster::TargetId> targets;
    std::set<cluster::TargetId> damaged;  // those of them that have it damaged
    bool distrusted = false;              // what came did not match its checksum
  };

  std::vector<Piece> pieces;
  std::vector<Result<Got>> results;
  std::vector<size_t> open;
  std::map<size_t, Failures> failures;
};

// The target that the fewest pieces are read from now, of those that serve and have not failed.
// Null: all have.
const cluster::Target* Client::choose(const cluster::Chain& chain,
                                      const std::set<cluster::TargetId>& failed) {
  const cluster::Target* best = nullptr;
  size_t best_load = 0;
  size_t equal = 0;
  for (const cluster::Target& target : chain.targets) {
    if (target.state != cluster::State::serving || failed.contains(target.id)) continue;
    const size_t load = reading_[target.node];
    equal = best != nullptr && load == best_load ? equal + 1 : 1;
    if (best != nullptr && load > best_load) continue;
    if (best != nullptr && load == best_load && context_.rng.below(equal) != 0) continue;
    best = &target;
    best_load = load;
  }
  return best;
}

// Of the pieces whose chains are known; the others stay open.
std::vector<Client::Batch> Client::batches(Reading& reading, Attempts& attempts) {
  std::vector<Batch> made;
  std::map<cluster::TargetId, size_t> last;  // the batch that still takes pieces, by target
  std::vector<size_t> later;
  for (const size_t which : reading.open) {
    const Piece& piece = reading.pieces[which];
    const cluster::Chain* const chain = attempts.chain(piece.chain);
    const auto failures = reading.failures.find(which);
    const cluster::Target* target = nullptr;
    if (chain != nullptr) {
      target = choose(*chain, failures == reading.failures.end() ? std::set<cluster::TargetId>()
                                                                 : failures->second.targets);
    }
    if (target == nullptr) {
      later.push_back(which);
      continue;
    }
    const auto found = last.find(target->id);
    const bool fits = found != last.end() && made[found->second].which.size() < kBatchPieces &&
                      made[found->second].bytes + piece.into.size() <= kBatchBytes;
    if (!fits) {
      last[target->id] = made.size();
      made.emplace_back(chain->id, *target);
      *made.back().request.mutable_place() = place_of(*chain, target->id);
    }
    Batch& batch = made[last[target->id]];
    wire::ReadItem& item = *batch.request.add_items();
    *item.mutable_chunk() = to_wire(piece.id);
    item.set_offset(piece.offset);
    item.set_distrusted(failures != reading.failures.end() && failures->second.distrusted);
    batch.which.push_back(which);
    batch.bytes += piece.into.size();
    reading_[target->node]++;
  }
  reading.open = std::move(later);
  return made;
}

Task<void> Client::read_batch(const Reading& reading, Batch& batch, int64_t deadline_ns) {
  auto prepare = [&](rpc::BulkCall& bulk, wire::ReadRequest& request) -> Result<void> {
    for (size_t i = 0; i < batch.which.size(); i++) {
      const ByteSpan into = reading.pieces[batch.which[i]].into;
      if (into.empty()) continue;
      FF_TRY(const net::Slice sink, bulk.sink(into));
      rpc::to_wire(sink, *request.mutable_items(static_cast<int>(i))->mutable_sink());
    }
    return {};
  };
  auto calling = calls_.call_with(batch.chain, batch.target.node, kRead, batch.request,
                                  std::move(prepare), deadline_ns);
  const auto reply = co_await std::move(calling);
  reading_[batch.target.node] -= batch.which.size();
  for (size_t i = 0; i < batch.which.size(); i++) {
    const bool has = reply && i < static_cast<size_t>(reply->items_size());
    if (has)
      batch.got.push_back(
          got_of(reply->items(static_cast<int>(i)), reading.pieces[batch.which[i]].into));
    if (has) continue;
    batch.got.push_back(reply ? fail(Errc::failed, "not as many pieces as were asked for")
                              : reply.error());
  }
}

// What the batch's pieces have come to. Those that others may have are open again.
void Client::take(Reading& reading, Batch& batch, Attempts& attempts) {
  for (size_t i = 0; i < batch.which.size(); i++) {
    const size_t which = batch.which[i];
    Result<Got>& result = reading.results[which] = std::move(batch.got[i]);
    if (result || result.error().code == Errc::not_found) continue;
    Reading::Failures& failures = reading.failures[which];
    if (result.error().code == Errc::busy && !failures.distrusted) {
      failures.distrusted = true;
      reading.open.push_back(which);
      continue;
    }
    failures.targets.insert(batch.target.id);
    if (result.error().code == Errc::corrupt) failures.damaged.insert(batch.target.id);
    if (choose(*routing_.chain(batch.chain), failures.damaged) == nullptr) continue;
    attempts.failed(result.error());
    reading.open.push_back(which);
  }
}

Task<std::vector<Result<Client::Got>>> Client::read(std::vector<Piece> pieces) {
  Reading reading(std::move(pieces));
  Attempts attempts(*this);
  Cancel& cancel = *co_await current_cancel();
  while (!reading.open.empty()) {
    std::vector<Batch> made = batches(reading, attempts);
    Gate gate(context_.loop);
    for (Batch& batch : made) {
      gate.spawn([](Task<void> task, Cancel& with) -> Task<void> {
        co_await std::move(task).under(with);
      }(read_batch(reading, batch, attempts.until(kReadNs)), cancel));
    }
    co_await gate.wait_empty();
    for (Batch& batch : made) take(reading, batch, attempts);
    if (!made.empty() && !cancel.requested()) continue;  // others may have what is open
    auto waiting = attempts.again();
    const auto waited = co_await std::move(waiting);
    for (auto& [which, failures] : reading.failures) failures.targets = failures.damaged;
    if (waited) continue;
    for (const size_t which : reading.open) reading.results[which] = waited.error();
    break;
  }
  co_return reading.results;
}

}  // namespace ff::chain
