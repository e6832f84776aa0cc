// chain_client_read.cc: which target serves which reads, hedged reads, and retries on other
// targets.
#include <algorithm>
#include <cstring>
#include <utility>

#include "platform/simd/crc32c.h"
#include "storage/chain/chain_client_retry.h"
#include "storage/chain/read_call.h"
#include "storage/chain/wire.h"
#include "storage/chunk/aligned_buffer.h"

namespace ff::chain {

namespace {

constexpr size_t kBatchReads = 128;  // per call
constexpr uint64_t kBatchBytes = 4 * kMiB;
constexpr int64_t kClientReadTimeoutNs = 4 * kSecond;

Result<ChainClient::ReadResult> read_result_of(const wire::ReadDone& done, ByteSpan into) {
  if (done.has_error()) return rpc::from_wire(done.error());
  const bool sound =
      done.bytes() <= into.size() && simd::crc32c(into.first(done.bytes())) == done.crc();
  // Corrupted in transit or on disk: for a zero-copy read the target did not verify it.
  if (!sound) return fail(Errc::busy, "the received data does not match its checksum");
  return ChainClient::ReadResult{from_wire(done.image()), done.bytes()};
}

// Another target would return the same.
bool is_final_read(const Result<ChainClient::ReadResult>& got) {
  return got.ok() || got.error().code == Errc::not_found || got.error().code == Errc::refused;
}

}  // namespace

// Reads that go to one target in one call.
struct ChainClient::Batch {
  Batch(const cluster::Chain& of, cluster::Target at)
      : chain(of.id), chain_version(of.version), target(std::move(at)) {}
  const cluster::ChainId chain;
  const uint64_t chain_version;
  const cluster::Target target;
  std::vector<size_t> indices = {};  // indices of the reads
  uint64_t bytes = 0;
  std::vector<Result<ReadResult>> results = {};  // results of these reads
};

// All reads of one client call: requests, results, and failed targets.
struct ChainClient::ReadState {
  explicit ReadState(std::vector<ReadIo> what)
      : ios(std::move(what)), results(ios.size(), Result<ReadResult>(ReadResult{})) {
    for (size_t i = 0; i < ios.size(); i++) open.push_back(i);
  }
  struct Failures {
    std::set<cluster::TargetId> targets;
    std::set<cluster::TargetId> damaged;  // targets that have the chunk damaged
    bool distrusted = false;              // received data did not match its checksum
  };

  // An empty set: no target has failed.
  const Failures& failures_of(size_t index) const {
    static const Failures none;
    const auto found = failures.find(index);
    return found == failures.end() ? none : found->second;
  }

  std::vector<ReadIo> ios;
  std::vector<Result<ReadResult>> results;
  std::vector<size_t> open;
  std::map<size_t, Failures> failures;
};

// The serving target, not in `failed`, with the fewest reads in flight. Null: there is none.
const cluster::Target* ChainClient::choose_target(const cluster::Chain& chain,
                                                  const std::set<cluster::TargetId>& failed) {
  const cluster::Target* best = nullptr;
  size_t best_load = 0;
  size_t equal = 0;
  for (const cluster::Target& target : chain.targets) {
    if (target.state != cluster::TargetState::serving || failed.contains(target.id)) continue;
    const size_t load = inflight_reads_[target.node];
    equal = best != nullptr && load == best_load ? equal + 1 : 1;
    if (best != nullptr && load > best_load) continue;
    if (best != nullptr && load == best_load && context_.rng.below(equal) != 0) continue;
    best = &target;
    best_load = load;
  }
  return best;
}

// Groups the open reads whose chain is available by target; the others stay open.
std::vector<ChainClient::Batch> ChainClient::make_batches(ReadState& state, Retry& retry) {
  std::vector<Batch> made;
  std::map<cluster::TargetId, size_t> last_batch;  // by target: the batch that is not full
  std::vector<size_t> later;
  for (const size_t index : state.open) {
    const ReadIo& read_io = state.ios[index];
    const cluster::Chain* const chain = retry.chain(read_io.chain);
    const cluster::Target* const target =
        chain == nullptr ? nullptr : choose_target(*chain, state.failures_of(index).targets);
    if (target == nullptr) {
      later.push_back(index);
      continue;
    }
    const auto found = last_batch.find(target->id);
    const bool fits = found != last_batch.end() &&
                      made[found->second].indices.size() < kBatchReads &&
                      made[found->second].bytes + read_io.into.size() <= kBatchBytes;
    if (!fits) {
      last_batch[target->id] = made.size();
      made.emplace_back(*chain, *target);
    }
    Batch& batch = made[last_batch[target->id]];
    batch.indices.push_back(index);
    batch.bytes += read_io.into.size();
    inflight_reads_[target->node]++;
  }
  state.open = std::move(later);
  return made;
}

// One attempt to read a batch from a target.
struct ChainClient::ReadAttempt {
  ReadAttempt(Loop& loop, CancellationToken* parent) : scope(loop, parent, INT64_MAX, {}) {}
  bool sound() const { return !results.empty() && std::ranges::all_of(results, is_final_read); }
  void give_up() {
    scope.cancellation().request(fail(Errc::interrupted, "another target was faster"));
  }

  CancelScope scope;
  std::vector<Result<ReadResult>> results = {};  // complete after the response or a failure
};

wire::ReadRequest ChainClient::read_request_of(const ReadState& state, const Batch& batch,
                                               cluster::TargetId target) const {
  wire::ReadRequest request;
  request.mutable_place()->set_chain(batch.chain);
  request.mutable_place()->set_chain_version(batch.chain_version);
  request.mutable_place()->set_target(target);
  for (const size_t index : batch.indices) {
    wire::ReadItem& item = *request.add_items();
    *item.mutable_chunk() = to_wire(state.ios[index].id);
    item.set_offset(state.ios[index].offset);
    item.set_distrusted(state.failures_of(index).distrusted);
    item.set_capability(std::string(state.ios[index].capability));
  }
  return request;
}

Task<void> ChainClient::read_from(const ReadState& state, const Batch& batch,
                                  cluster::Target target, const std::vector<ByteSpan>& into,
                                  int64_t deadline_ns, ReadAttempt& attempt) {
  const auto reply = co_await read_call(context_.loop, calls_, batch.chain, target.node,
                                        read_request_of(state, batch, target.id), into, deadline_ns)
                         .with_cancellation(attempt.scope.cancellation());
  inflight_reads_[target.node] -= into.size();
  for (size_t i = 0; i < into.size(); i++) {
    const bool has = reply && i < static_cast<size_t>(reply->items_size());
    if (has) attempt.results.push_back(read_result_of(reply->items(static_cast<int>(i)), into[i]));
    if (has) continue;
    attempt.results.push_back(
        reply ? fail(Errc::failed, "the response has fewer items than the request")
              : reply.error());
  }
}

// Another serving target that may have all chunks of the batch; null: none.
const cluster::Target* ChainClient::hedge_target(const ReadState& state, const Batch& batch) {
  const cluster::Chain* const chain = routing_.chain(batch.chain);
  if (chain == nullptr || chain->version != batch.chain_version) return nullptr;
  std::set<cluster::TargetId> out{batch.target.id};
  for (const size_t index : batch.indices) {
    const auto& failed = state.failures_of(index).targets;
    out.insert(failed.begin(), failed.end());
  }
  return choose_target(*chain, out);
}

// A hedged read of a batch from a second target, into memory of its own because the first target
// may still write to the memory of the caller.
class ChainClient::HedgedRead final : private Runnable {
 public:
  HedgedRead(ChainClient& client, const ReadState& state, const Batch& batch, ReadAttempt& first,
             CancellationToken* parent, int64_t deadline_ns)
      : client_(client),
        state_(state),
        batch_(batch),
        first_(first),
        deadline_ns_(deadline_ns),
        attempt_(client.context_.loop, parent),
        timer_(client.context_.loop) {}

  void begin_at(int64_t at_ns) { timer_.set(at_ns, *this); }
  // Call when the first attempt has ended.
  Task<void> end() {
    timer_.stop();
    if (!gate_) co_return;
    if (first_.sound()) attempt_.give_up();
    co_await gate_->wait_empty();
  }
  bool sound() const { return attempt_.sound(); }
  std::vector<Result<ReadResult>> take(const std::vector<ByteSpan>& into) {
    for (size_t i = 0; i < into.size(); i++) {
      const Result<ReadResult>& got = attempt_.results[i];
      if (!got || got->bytes == 0) continue;
      std::memcpy(into[i].data(), spans_[i].data(), got->bytes);
    }
    return std::move(attempt_.results);
  }

 private:
  void on_wake() override {
    const cluster::Target* const target = client_.hedge_target(state_, batch_);
    if (target == nullptr || !client_.hedge_.try_acquire()) return;
    client_.hedged_.add();
    client_.inflight_reads_[target->node] += batch_.indices.size();
    bounce_ = chunk::AlignedBuffer(batch_.bytes);
    ByteSpan rest = bounce_.span();
    for (const size_t index : batch_.indices) {
      const size_t size = state_.ios[index].into.size();
      spans_.push_back(rest.first(size));
      rest = rest.subspan(size);
    }
    gate_.emplace(client_.context_.loop);
    gate_->spawn(run(*target));
  }
  Task<void> run(cluster::Target target) {
    co_await client_.read_from(state_, batch_, std::move(target), spans_, deadline_ns_, attempt_);
    if (attempt_.sound()) first_.give_up();
  }

  ChainClient& client_;
  const ReadState& state_;
  const Batch& batch_;
  ReadAttempt& first_;
  const int64_t deadline_ns_;
  ReadAttempt attempt_;
  chunk::AlignedBuffer bounce_;
  std::vector<ByteSpan> spans_;
  Timer timer_;
  std::optional<Gate> gate_;
};

// Returns when no target writes to the memory of the reads any more.
Task<void> ChainClient::read_batch(const ReadState& state, Batch& batch, int64_t deadline_ns) {
  const int64_t began_ns = context_.loop.now_ns();
  CancellationToken* const parent = co_await current_cancellation();
  std::vector<ByteSpan> into;
  for (const size_t index : batch.indices) into.push_back(state.ios[index].into);
  ReadAttempt first(context_.loop, parent);
  HedgedRead second(*this, state, batch, first, parent, deadline_ns);
  if (const auto delay_ns = hedge_.delay_ns(batch.bytes)) second.begin_at(began_ns + *delay_ns);
  co_await read_from(state, batch, batch.target, into, deadline_ns, first);
  co_await second.end();
  const bool sound = first.sound();
  const bool by_second = !sound && second.sound();
  batch.results = by_second ? second.take(into) : std::move(first.results);
  if (sound || by_second) hedge_.record(batch.bytes, context_.loop.now_ns() - began_ns);
}

// Collects the results of a batch. Reads that another target may serve are open again.
void ChainClient::collect_results(ReadState& state, Batch& batch, Retry& retry) {
  for (size_t i = 0; i < batch.indices.size(); i++) {
    const size_t index = batch.indices[i];
    Result<ReadResult>& result = state.results[index] = std::move(batch.results[i]);
    if (is_final_read(result)) continue;
    ReadState::Failures& failures = state.failures[index];
    if (result.error().code == Errc::busy && !failures.distrusted) {
      failures.distrusted = true;
      state.open.push_back(index);
      continue;
    }
    failures.targets.insert(batch.target.id);
    if (result.error().code == Errc::corrupt) failures.damaged.insert(batch.target.id);
    // Final when damaged on all serving targets; that no target serves is temporary.
    const cluster::Chain& chain = *routing_.chain(batch.chain);
    const bool damaged = result.error().code == Errc::corrupt && serving_tail(chain) != nullptr;
    if (damaged && choose_target(chain, failures.damaged) == nullptr) continue;
    retry.failed(result.error());
    state.open.push_back(index);
  }
}

Task<void> ChainClient::read_batches(const ReadState& state, std::vector<Batch>& made,
                                     int64_t deadline_ns) {
  if (made.size() == 1) {  // the common case
    co_await read_batch(state, made.front(), deadline_ns);
    co_return;
  }
  CancellationToken& cancel = *co_await current_cancellation();
  Gate gate(context_.loop);
  for (Batch& batch : made) {
    gate.spawn([](Task<void> task, CancellationToken& with) -> Task<void> {
      co_await std::move(task).with_cancellation(with);
    }(read_batch(state, batch, deadline_ns), cancel));
  }
  co_await gate.wait_empty();
}

Task<std::vector<Result<ChainClient::ReadResult>>> ChainClient::read(std::vector<ReadIo> ios) {
  ReadState state(std::move(ios));
  Retry retry(*this);
  CancellationToken& cancel = *co_await current_cancellation();
  while (!state.open.empty()) {
    std::vector<Batch> made = make_batches(state, retry);
    co_await read_batches(state, made, retry.deadline(kClientReadTimeoutNs));
    for (Batch& batch : made) collect_results(state, batch, retry);
    if (!made.empty() && !cancel.requested()) continue;  // other targets may serve the open reads
    const auto waited = co_await retry.backoff();
    for (auto& [index, failures] : state.failures) failures.targets = failures.damaged;
    if (waited) continue;
    for (const size_t index : state.open) state.results[index] = waited.error();
    break;
  }
  co_return std::move(state.results);
}

}  // namespace ff::chain
