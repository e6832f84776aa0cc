// replica.cc: reaction to routing changes, and the checks before every response.
#include "storage/chain/replica.h"

#include <algorithm>
#include <utility>

namespace ff::chain {

Replica::Replica(ReplicaContext& context, chunk::ChunkStore& store, cluster::TargetId id,
                 cluster::ChainId chain)
    : context_(context),
      store_(store),
      id_(id),
      chain_(chain),
      metrics_(context.metrics, id, chain),
      locks_(context.loop),
      calls_(context.loop, context.nodes),
      operations_(context.loop),
      changed_(context.loop),
      gate_(context.loop) {
  for (const chunk::TargetInfo& info : store.targets()) {
    if (info.id != id) continue;
    verifier_ = info.state;
    power_lost_ = info.power_lost;
  }
}

Replica::~Replica() = default;

Task<void> Replica::close() {
  Error reason = fail(Errc::interrupted, "target {} is closed", id_);
  co_await gate_.close(std::move(reason));
}

const cluster::Chain* Replica::routed_chain() const {
  return context_.member.routing().chain(chain_);
}

bool Replica::is_head() const {
  const cluster::Chain* const chain = routed_chain();
  const auto role = chain == nullptr ? std::nullopt : role_of(*chain, id_);
  return role && role->is_head;
}

Error Replica::stale(std::string_view why) const {
  return fail(Errc::stale, "target {} of chain {} {}", id_, chain_, why);
}

void Replica::on_routing_change() {
  const cluster::Chain* const chain = routed_chain();
  const cluster::Target* const self =
      chain == nullptr ? nullptr : cluster::find_target(*chain, id_);
  if (!context_.member.has_rejoined()) return;
  if (self == nullptr) {
    leave_chain();
    return;
  }
  const bool changed = chain->version != seen_version_;
  if (changed) {
    seen_version_ = chain->version;
    calls_.cancel_calls(chain_, stale("called under an outdated version of the chain"));
  }
  // A new copy starts with every chain change: between two changes a third one may have been
  // missed.
  if (self->state != seen_state_ || (changed && self->state == cluster::TargetState::syncing)) {
    seen_state_ = self->state;
    metrics_.state.set(static_cast<int64_t>(seen_state_));
    epoch_++;
    ready_ = false;
    if (seen_state_ == cluster::TargetState::serving) gate_.spawn(return_to_service(epoch_));
    if (seen_state_ == cluster::TargetState::syncing) gate_.spawn(prepare_to_sync(epoch_));
  }
  if (changed) {
    changed_.set();
    changed_.reset();
  }
  const auto role = role_of(*chain, id_);
  if (changed) successor_ = 0;
  watch_successor(role);
  const bool copies =
      ready_ && role && role->serving && role->successor != nullptr && !role->successor_serving;
  if (!copies || copying_ == chain->version) return;
  copying_ = chain->version;
  gate_.spawn(run_copy(chain->version));
}

// Another target has replaced this one, possibly while it was serving.
void Replica::leave_chain() {
  if (seen_state_ == cluster::TargetState::offline) return;
  seen_state_ = cluster::TargetState::offline;
  metrics_.state.set(static_cast<int64_t>(seen_state_));
  epoch_++;
  ready_ = false;
  seen_version_ = 0;
  successor_ = 0;
  calls_.cancel_calls(chain_, stale("has left its chain"));
  changed_.set();
  changed_.reset();
}

uint64_t Replica::client_verifier() const {
  const cluster::Chain* const chain = routed_chain();
  const uint64_t lost = chain == nullptr ? 0 : chain->lost_version;
  return verifier_ + lost * 0x9e3779b97f4a7c15;
}

bool Replica::is_missing(chunk::ChunkId id) const {
  const cluster::Chain* const chain = routed_chain();
  return chain != nullptr && id.inode < chain->missing_below;
}

Error Replica::missing_error(chunk::ChunkId id) const {
  return fail(
      Errc::corrupt,
      "chunk {} of chain {} was lost when the operator accepted a data loss (ff admin accept-loss)",
      chunk::to_string(id), chain_);
}

Result<ChainRole> Replica::check_role(uint64_t version) {
  const cluster::Chain* const chain = routed_chain();
  if (chain == nullptr) return stale("is unknown to this node");
  if (chain->version != seen_version_) on_routing_change();
  if (version != chain->version) {
    if (version > chain->version) context_.request_heartbeat();
    return stale(fmt::format("has chain version {}, not {}", chain->version, version));
  }
  if (!context_.member.may_write(id_, context_.loop.now_ns()))
    return stale("has no lease to serve now");
  const auto role = role_of(*chain, id_);
  if (!role) return stale("does not serve");
  if (!ready_) return stale("is preparing to serve");
  return *role;
}

Result<ChainRole> Replica::check_readable(uint64_t version) {
  FF_TRY(const ChainRole role, check_role(version));
  if (context_.member.may_read(id_, context_.loop.now_ns())) return role;
  return stale("does not serve reads yet");
}

Result<ChainRole> Replica::check_tail(uint64_t version) {
  FF_TRY(const ChainRole role, check_readable(version));
  if (serving_tail(*routed_chain())->id == id_) return role;
  return stale("is not the last serving target");
}

// Checks that this target is syncing.
Result<void> Replica::check_syncing(uint64_t version) {
  FF_TRY(const ChainRole role, check_role(version));
  if (role.serving) return stale("serves and accepts no copies");
  return {};
}

// Starts a periodic job unless it is running; its failure is ignored because it runs again.
void Replica::start_once(bool& running, Task<Result<void>> task) {
  if (!ready_ || std::exchange(running, true)) return;
  gate_.spawn([](Task<Result<void>> work, bool& under_way) -> Task<void> {
    (void)co_await std::move(work);
    under_way = false;
  }(std::move(task), running));
}

// Waits for a change, at most `most_ns`. Error: cancelled.
Task<Result<void>> Replica::wait_for_change(int64_t most_ns) {
  const int64_t until_ns = context_.loop.now_ns() + most_ns;
  auto waited = co_await changed_.wait(until_ns);
  if (!waited && context_.loop.now_ns() < until_ns) co_return waited;
  const CancellationToken* const cancel = co_await current_cancellation();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  co_return Result<void>();
}

}  // namespace ff::chain
