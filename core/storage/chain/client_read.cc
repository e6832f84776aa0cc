// client_read.cc: which targets are asked for which pieces, when another is asked as well, and
// where a piece is looked for next.
#include <algorithm>
#include <utility>

#include "platform/simd/crc32c.h"
#include "storage/chain/client_attempts.h"
#include "storage/chain/read_call.h"
#include "storage/chain/wire.h"
#include "storage/chunk/aligned_bytes.h"

namespace ff::chain {

namespace {

constexpr size_t kBatchPieces = 128;  // of one call
constexpr uint64_t kBatchBytes = 4 * kMiB;
constexpr int64_t kClientReadNs = 4 * kSecond;

Result<Client::Got> got_of(const wire::ReadDone& done, ByteSpan into) {
  if (done.has_error()) return rpc::from_wire(done.error());
  const bool sound =
      done.bytes() <= into.size() && simd::crc32c(into.first(done.bytes())) == done.crc();
  // On its way, or on the disk: the target has not looked at it.
  if (!sound) return fail(Errc::busy, "what came does not match its checksum");
  return Client::Got{from_wire(done.image()), done.bytes()};
}

// No other target would say anything else.
bool is_final_read(const Result<Client::Got>& got) {
  return got.ok() || got.error().code == Errc::not_found || got.error().code == Errc::refused;
}

}  // namespace

// Pieces that go to one target in one call.
struct Client::Batch {
  Batch(const cluster::Chain& of, cluster::Target at)
      : chain(of.id), chain_version(of.version), target(std::move(at)) {}
  const cluster::ChainId chain;
  const uint64_t chain_version;
  const cluster::Target target;
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

  // None: nobody has failed.
  const Failures& failures_of(size_t which) const {
    static const Failures none;
    const auto found = failures.find(which);
    return found == failures.end() ? none : found->second;
  }

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
    const cluster::Target* const target =
        chain == nullptr ? nullptr : choose(*chain, reading.failures_of(which).targets);
    if (target == nullptr) {
      later.push_back(which);
      continue;
    }
    const auto found = last.find(target->id);
    const bool fits = found != last.end() && made[found->second].which.size() < kBatchPieces &&
                      made[found->second].bytes + piece.into.size() <= kBatchBytes;
    if (!fits) {
      last[target->id] = made.size();
      made.emplace_back(*chain, *target);
    }
    Batch& batch = made[last[target->id]];
    batch.which.push_back(which);
    batch.bytes += piece.into.size();
    reading_[target->node]++;
  }
  reading.open = std::move(later);
  return made;
}

// What one target has said to a batch.
struct Client::Asked {
  Asked(Loop& loop, Cancel* parent) : scope(loop, parent, INT64_MAX, {}) {}
  bool sound() const { return !got.empty() && std::ranges::all_of(got, is_final_read); }
  void give_up() { scope.cancel().request(fail(Errc::interrupted, "another was faster")); }

  CancelScope scope;
  std::vector<Result<Got>> got = {};  // all, once it has answered or cannot
};

wire::ReadRequest Client::request_of(const Reading& reading, const Batch& batch,
                                     cluster::TargetId target) const {
  wire::ReadRequest request;
  request.mutable_place()->set_chain(batch.chain);
  request.mutable_place()->set_chain_version(batch.chain_version);
  request.mutable_place()->set_target(target);
  for (const size_t which : batch.which) {
    wire::ReadItem& item = *request.add_items();
    *item.mutable_chunk() = to_wire(reading.pieces[which].id);
    item.set_offset(reading.pieces[which].offset);
    item.set_distrusted(reading.failures_of(which).distrusted);
    item.set_capability(std::string(reading.pieces[which].capability));
  }
  return request;
}

Task<void> Client::ask(const Reading& reading, const Batch& batch, cluster::Target target,
                       const std::vector<ByteSpan>& into, int64_t deadline_ns, Asked& asked) {
  auto calling = read_call(context_.loop, calls_, batch.chain, target.node,
                           request_of(reading, batch, target.id), into, deadline_ns);
  const auto reply = co_await std::move(calling).under(asked.scope.cancel());
  reading_[target.node] -= into.size();
  for (size_t i = 0; i < into.size(); i++) {
    const bool has = reply && i < static_cast<size_t>(reply->items_size());
    if (has) asked.got.push_back(got_of(reply->items(static_cast<int>(i)), into[i]));
    if (has) continue;
    asked.got.push_back(reply ? fail(Errc::failed, "not as many pieces as were asked for")
                              : reply.error());
  }
}

// Another target that may have all of the batch. Null: none.
const cluster::Target* Client::another(const Reading& reading, const Batch& batch) {
  const cluster::Chain* const chain = routing_.chain(batch.chain);
  if (chain == nullptr || chain->version != batch.chain_version) return nullptr;
  std::set<cluster::TargetId> out{batch.target.id};
  for (const size_t which : batch.which) {
    const auto& failed = reading.failures_of(which).targets;
    out.insert(failed.begin(), failed.end());
  }
  return choose(*chain, out);
}

// A second target that is asked when the first is late: into memory of our own, since the first may
// still write to the caller's.
class Client::Second final : private Ready {
 public:
  Second(Client& client, const Reading& reading, const Batch& batch, Asked& first, Cancel* parent,
         int64_t deadline_ns)
      : client_(client),
        reading_(reading),
        batch_(batch),
        first_(first),
        deadline_ns_(deadline_ns),
        asked_(client.context_.loop, parent),
        timer_(client.context_.loop) {}

  void begin_at(int64_t at_ns) { timer_.set(at_ns, *this); }
  // The first has ended.
  Task<void> end() {
    timer_.stop();
    if (!gate_) co_return;
    if (first_.sound()) asked_.give_up();
    co_await gate_->wait_empty();
  }
  bool sound() const { return asked_.sound(); }
  std::vector<Result<Got>> take(const std::vector<ByteSpan>& into) {
    for (size_t i = 0; i < into.size(); i++) {
      const Result<Got>& got = asked_.got[i];
      if (got) std::ranges::copy(spans_[i].first(got->bytes), into[i].begin());
    }
    return std::move(asked_.got);
  }

 private:
  void fire() override {
    const cluster::Target* const target = client_.another(reading_, batch_);
    if (target == nullptr || !client_.hedge_.take()) return;
    client_.hedged_.add();
    client_.reading_[target->node] += batch_.which.size();
    bounce_ = chunk::AlignedBytes(batch_.bytes);
    ByteSpan rest = bounce_.span();
    for (const size_t which : batch_.which) {
      const size_t size = reading_.pieces[which].into.size();
      spans_.push_back(rest.first(size));
      rest = rest.subspan(size);
    }
    gate_.emplace(client_.context_.loop);
    gate_->spawn(run(*target));
  }
  Task<void> run(cluster::Target target) {
    auto asking = client_.ask(reading_, batch_, std::move(target), spans_, deadline_ns_, asked_);
    co_await std::move(asking);
    if (asked_.sound()) first_.give_up();
  }

  Client& client_;
  const Reading& reading_;
  const Batch& batch_;
  Asked& first_;
  const int64_t deadline_ns_;
  Asked asked_;
  chunk::AlignedBytes bounce_;
  std::vector<ByteSpan> spans_;
  Timer timer_;
  std::optional<Gate> gate_;
};

// It ends when nobody writes to the pieces' memory any more.
Task<void> Client::read_batch(const Reading& reading, Batch& batch, int64_t deadline_ns) {
  const int64_t began_ns = context_.loop.now_ns();
  Cancel* const parent = co_await current_cancel();
  std::vector<ByteSpan> into;
  for (const size_t which : batch.which) into.push_back(reading.pieces[which].into);
  Asked first(context_.loop, parent);
  Second second(*this, reading, batch, first, parent, deadline_ns);
  if (const auto late_ns = hedge_.late_ns(batch.bytes)) second.begin_at(began_ns + *late_ns);
  auto asking = ask(reading, batch, batch.target, into, deadline_ns, first);
  co_await std::move(asking);
  auto ending = second.end();
  co_await std::move(ending);
  const bool sound = first.sound();
  const bool by_second = !sound && second.sound();
  batch.got = by_second ? second.take(into) : std::move(first.got);
  if (sound || by_second) hedge_.took(batch.bytes, context_.loop.now_ns() - began_ns);
}

// What the batch's pieces have come to. Those that others may have are open again.
void Client::take(Reading& reading, Batch& batch, Attempts& attempts) {
  for (size_t i = 0; i < batch.which.size(); i++) {
    const size_t which = batch.which[i];
    Result<Got>& result = reading.results[which] = std::move(batch.got[i]);
    if (is_final_read(result)) continue;
    Reading::Failures& failures = reading.failures[which];
    if (result.error().code == Errc::busy && !failures.distrusted) {
      failures.distrusted = true;
      reading.open.push_back(which);
      continue;
    }
    failures.targets.insert(batch.target.id);
    if (result.error().code == Errc::corrupt) failures.damaged.insert(batch.target.id);
    // Damaged on all that serve; that none does is another matter, and passes.
    const cluster::Chain& chain = *routing_.chain(batch.chain);
    const bool damaged = result.error().code == Errc::corrupt && reading_tail(chain) != nullptr;
    if (damaged && choose(chain, failures.damaged) == nullptr) continue;
    attempts.failed(result.error());
    reading.open.push_back(which);
  }
}

Task<void> Client::read_batches(const Reading& reading, std::vector<Batch>& made,
                                int64_t deadline_ns) {
  if (made.size() == 1) {  // as most are
    auto only = read_batch(reading, made.front(), deadline_ns);
    co_await std::move(only);
    co_return;
  }
  Cancel& cancel = *co_await current_cancel();
  Gate gate(context_.loop);
  for (Batch& batch : made) {
    gate.spawn([](Task<void> task, Cancel& with) -> Task<void> {
      co_await std::move(task).under(with);
    }(read_batch(reading, batch, deadline_ns), cancel));
  }
  co_await gate.wait_empty();
}

Task<std::vector<Result<Client::Got>>> Client::read(std::vector<Piece> pieces) {
  Reading reading(std::move(pieces));
  Attempts attempts(*this);
  Cancel& cancel = *co_await current_cancel();
  while (!reading.open.empty()) {
    std::vector<Batch> made = batches(reading, attempts);
    auto reads = read_batches(reading, made, attempts.until(kClientReadNs));
    co_await std::move(reads);
    for (Batch& batch : made) take(reading, batch, attempts);
    if (!made.empty() && !cancel.requested()) continue;  // others may have what is open
    auto waiting = attempts.again();
    const auto waited = co_await std::move(waiting);
    for (auto& [which, failures] : reading.failures) failures.targets = failures.damaged;
    if (waited) continue;
    for (const size_t which : reading.open) reading.results[which] = waited.error();
    break;
  }
  co_return std::move(reading.results);
}

}  // namespace ff::chain
