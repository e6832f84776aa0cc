// replica.cc: what changes with the routing, and what every answer is checked against.
#include "storage/chain/replica.h"

#include <algorithm>
#include <utility>

namespace ff::chain {

Replica::Replica(ReplicaContext& context, chunk::Store& store, cluster::TargetId id,
                 cluster::ChainId chain)
    : context_(context),
      store_(store),
      id_(id),
      chain_(chain),
      counters_(context.metrics, id, chain),
      locks_(context.loop),
      calls_(context.loop, context.nodes),
      steps_(context.loop),
      changed_(context.loop),
      gate_(context.loop) {
  for (const chunk::TargetInfo& info : store.targets()) {
    if (info.id != id) continue;
    verifier_ = info.state;
    lossy_ = info.lossy;
  }
}

Replica::~Replica() = default;

Task<void> Replica::close() {
  Error reason = fail(Errc::interrupted, "target {} is closed", id_);
  co_await gate_.close(std::move(reason));
}

const cluster::Chain* Replica::routed() const { return context_.member.routing().chain(chain_); }

bool Replica::head() const {
  const cluster::Chain* const chain = routed();
  const auto part = chain == nullptr ? std::nullopt : part_of(*chain, id_);
  return part && part->head;
}

Error Replica::stale(std::string_view why) const {
  return fail(Errc::stale, "target {} of chain {} {}", id_, chain_, why);
}

void Replica::look() {
  const cluster::Chain* const chain = routed();
  const cluster::Target* const self =
      chain == nullptr ? nullptr : cluster::find_target(*chain, id_);
  if (!context_.member.returned()) return;
  if (self == nullptr) {
    leave();
    return;
  }
  const bool changed = chain->version != seen_version_;
  if (changed) {
    seen_version_ = chain->version;
    calls_.end(chain_, stale("has called under another version of the chain"));
  }
  // A copy begins anew with every change: between two of them another may have gone unseen.
  if (self->state != seen_state_ || (changed && self->state == cluster::State::syncing)) {
    seen_state_ = self->state;
    counters_.state.set(static_cast<int64_t>(seen_state_));
    spell_++;
    ready_ = false;
    if (seen_state_ == cluster::State::serving) gate_.spawn(return_to_service(spell_));
    if (seen_state_ == cluster::State::syncing) gate_.spawn(begin_copy_to(spell_));
  }
  if (changed) {
    changed_.set();
    changed_.reset();
  }
  const auto part = part_of(*chain, id_);
  if (changed) successor_ = 0;
  watch_successor(part);
  const bool copies =
      ready_ && part && part->serves && part->successor != nullptr && !part->successor_serves;
  if (!copies || copying_ == chain->version) return;
  copying_ = chain->version;
  gate_.spawn(run_copy(chain->version));
}

// Another has taken its place, while it served perhaps.
void Replica::leave() {
  if (seen_state_ == cluster::State::offline) return;
  seen_state_ = cluster::State::offline;
  counters_.state.set(static_cast<int64_t>(seen_state_));
  spell_++;
  ready_ = false;
  seen_version_ = 0;
  successor_ = 0;
  calls_.end(chain_, stale("has left its chain"));
  changed_.set();
  changed_.reset();
}

uint64_t Replica::told_verifier() const {
  const cluster::Chain* const chain = routed();
  const uint64_t lost = chain == nullptr ? 0 : chain->lost_version;
  return verifier_ + lost * 0x9e3779b97f4a7c15;
}

bool Replica::missing(chunk::ChunkId id) const {
  const cluster::Chain* const chain = routed();
  return chain != nullptr && id.inode < chain->lost_below;
}

Error Replica::missing_error(chunk::ChunkId id) const {
  return fail(Errc::corrupt,
              "chunk {} of chain {} is missing since data was given up (ff admin accept-loss)",
              chunk::to_string(id), chain_);
}

Result<Part> Replica::take_part(uint64_t version) {
  const cluster::Chain* const chain = routed();
  if (chain == nullptr) return stale("is not known here");
  if (chain->version != seen_version_) look();
  if (version != chain->version) {
    if (version > chain->version) context_.poke();
    return stale(fmt::format("is at version {} of it, not {}", chain->version, version));
  }
  if (!context_.member.may_write(id_, context_.loop.now_ns())) return stale("may not serve now");
  const auto part = part_of(*chain, id_);
  if (!part) return stale("does not serve");
  if (!ready_) return stale("is on its way to serve");
  return *part;
}

Result<Part> Replica::may_answer(uint64_t version) {
  FF_TRY(const Part part, take_part(version));
  if (context_.member.may_read(id_, context_.loop.now_ns())) return part;
  return stale("does not serve reads yet");
}

Result<Part> Replica::be_tail(uint64_t version) {
  FF_TRY(const Part part, may_answer(version));
  if (reading_tail(*routed())->id == id_) return part;
  return stale("is not the last that serves");
}

// Whether it takes a copy.
Result<void> Replica::copied_to(uint64_t version) {
  FF_TRY(const Part part, take_part(version));
  if (part.serves) return stale("serves, and takes no copies");
  return {};
}

// Work that comes round again, and so may fail, but not beside itself.
void Replica::begin_once(bool& running, Task<Result<void>> task) {
  if (!ready_ || std::exchange(running, true)) return;
  gate_.spawn([](Task<Result<void>> work, bool& under_way) -> Task<void> {
    (void)co_await std::move(work);
    under_way = false;
  }(std::move(task), running));
}

// Until something may have changed, at most so long. Error: cancelled.
Task<Result<void>> Replica::wait_for_change(int64_t most_ns) {
  const int64_t until_ns = context_.loop.now_ns() + most_ns;
  auto waited = co_await changed_.wait(until_ns);
  if (!waited && context_.loop.now_ns() < until_ns) co_return waited;
  const Cancel* const cancel = co_await current_cancel();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  co_return Result<void>();
}

}  // namespace ff::chain
