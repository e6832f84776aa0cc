// replica_repair.cc: chunks that are not what was stored any more. Whoever finds one, by a read, a
// copy or a scrub, has the head write it anew, from a replica that still has it: an ordinary update
// with a version of its own.
#include <algorithm>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/log.h"
#include "platform/rpc/error_wire.h"
#include "platform/simd/crc32c.h"
#include "storage/chain/read_call.h"
#include "storage/chain/replica.h"
#include "storage/chain/wire.h"

namespace ff::chain {

using chunk::ChunkId;
using chunk::ChunkState;

namespace {

constexpr size_t kRepairsAtOnce = 8;  // chunks
constexpr int64_t kRepairNs = 30 * kSecond;
constexpr int64_t kRepairReadNs = 5 * kSecond;
constexpr int64_t kRepairRetryFirstNs = 50 * kMillisecond;
constexpr int64_t kRepairRetryLastNs = 2 * kSecond;
// While no target that serves has what is missing, unless the chain changes.
constexpr int64_t kHopelessNs = 600 * kSecond;

}  // namespace

// What one walk over the damaged chunks has come to.
struct Replica::Repairs {
  uint64_t done = 0;
  uint64_t hopeless = 0;  // nobody has them
  uint64_t failed = 0;
  std::string cause;  // of one of those that are left
};

void Replica::damaged(ChunkId id) {
  if (store_.doubted(id_, id)) return;
  log_warning("a chunk is damaged", {{"target", id_}, {"chunk", to_string(id)}});
  store_.doubt(id_, id);
  repair_soon();
}

void Replica::repair_soon() {
  if (store_.damaged(id_, {}, 1).empty()) return;
  changed_.set();
  changed_.reset();
  if (std::exchange(repairing_, true)) return;
  gate_.spawn(run_repairs());
}

// As long as any is left, however long the target does not serve. While it is copied to, the copy
// brings what is damaged here (list()).
Task<void> Replica::run_repairs() {
  Backoff backoff(context_.rng, kRepairRetryFirstNs, kRepairRetryLastNs);
  uint64_t told = 0;  // chunks that nobody has
  while (!store_.damaged(id_, {}, 1).empty() && store_.health()) {
    Repairs repairs;
    if (ready_ && seen_state_ == cluster::State::serving) {
      auto repairing = repair_all(repairs);
      co_await std::move(repairing);
    }
    if (repairs.done > 0) backoff.reset();
    if (repairs.hopeless > 0 && repairs.hopeless != std::exchange(told, repairs.hopeless)) {
      log_error("damaged chunks are not repaired",
                {{"target", id_}, {"chunks", repairs.hopeless}, {"cause", repairs.cause}});
    }
    const bool hopeless = repairs.hopeless > 0 && repairs.failed == 0 && repairs.done == 0;
    auto waiting = wait_for_change(hopeless ? kHopelessNs : backoff.pause_ns());
    const auto waited = co_await std::move(waiting);
    if (!waited) break;
  }
  repairing_ = false;
}

Task<void> Replica::repair_all(Repairs& repairs) {
  Cancel& cancel = *co_await current_cancel();
  Semaphore window(context_.loop, kRepairsAtOnce);
  Gate beside(context_.loop);
  ChunkId from;
  for (bool more = true; more;) {
    const auto page = store_.damaged(id_, from, kChunkPage);
    more = page.size() >= kChunkPage;
    for (const ChunkId id : page) {
      from = chunk::next(id);
      auto waiting = window.take(1);
      auto slot = co_await std::move(waiting);
      more &= slot.ok();
      if (!slot) break;
      beside.spawn([](Task<void> repairing, Semaphore::Hold, Cancel& with) -> Task<void> {
        co_await std::move(repairing).under(with);
      }(have_repaired(id, repairs), std::move(*slot), cancel));
    }
  }
  co_await beside.wait_empty();
}

Task<void> Replica::have_repaired(ChunkId id, Repairs& repairs) {
  auto checking = store_.check(id_, id);
  const auto sound = co_await std::move(checking);
  if (sound && *sound) {
    repairs.done++;
    co_return;
  }
  auto asking = ask_for_repair(id);
  const auto repaired = co_await std::move(asking);
  if (repaired) {
    repairs.done++;
    counters_.repaired.add();
    log_info("a damaged chunk is repaired", {{"target", id_}, {"chunk", to_string(id)}});
    co_return;
  }
  const bool hopeless = repaired.error().code == Errc::corrupt;
  (hopeless ? repairs.hopeless : repairs.failed)++;
  if (hopeless) repairs.cause = repaired.error().message;
}

Task<Result<void>> Replica::ask_for_repair(ChunkId id) {
  const uint64_t version = routed()->version;
  FF_CO_TRY(const Part part, take_part(version));
  if (part.head) {
    auto repairing = repair(version, id);
    co_return co_await std::move(repairing);
  }
  const cluster::Target head = routed()->targets.front();
  wire::RepairRequest request;
  *request.mutable_place() = place_of(head.id, version);
  *request.mutable_chunk() = to_wire(id);
  auto calling = call(head.node, kRepair, std::move(request), {}, kRepairNs);
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

// As the head. Nothing else changes the chunk meanwhile: all updates come through here.
Task<Result<void>> Replica::repair(uint64_t version, ChunkId id) {
  FF_CO_TRY(be_head(version));
  auto settling = settle(id);
  FF_CO_TRY(co_await std::move(settling));
  auto locking = locks_.take(id);
  FF_CO_TRY(auto hold, co_await std::move(locking));
  FF_CO_TRY(be_head(version));
  FF_CO_TRY(const ChunkState state, store_.state(id_, id));
  if (state.pending) co_return stale("has a version on its way");
  if (state.committed.version == 0 || state.committed.removed) co_return Result<void>();
  Memory::Bytes bytes = context_.memory.take(state.committed.length);
  auto finding = find_sound(version, id, state.committed, bytes.span());
  FF_CO_TRY(co_await std::move(finding));
  FF_CO_TRY(be_head(version));
  const chunk::Update update{.target = id_,
                             .id = id,
                             .version = state.committed.version + 1,
                             .writer = {.client = context_.rng.next(), .sequence = 1},
                             .change = chunk::Change::replace,
                             .data = bytes.span(),
                             .chunk_size = chunk::kChunkMax};
  auto ending = end_of(flight_with(std::move(hold), update, std::move(bytes)));
  FF_CO_TRY(co_await std::move(ending));
  co_return Result<void>();
}

// The chunk's committed version, from whichever target still has it.
Task<Result<void>> Replica::find_sound(uint64_t version, ChunkId id, chunk::VersionState wanted,
                                       ByteSpan into) {
  auto reading = store_.read({.target = id_, .id = id}, into);
  const auto own = co_await std::move(reading);
  if (own) co_return Result<void>();
  if (own.error().code != Errc::corrupt) co_return store_failed(own.error());
  const std::vector<cluster::Target> targets = routed()->targets;
  Result<void> unsure;
  for (const cluster::Target& target : targets) {
    if (target.id == id_ || target.state != cluster::State::serving) continue;
    wire::ReadRequest request;
    *request.mutable_place() = place_of(target.id, version);
    wire::ReadItem& item = *request.add_items();
    *item.mutable_chunk() = to_wire(id);
    item.set_distrusted(true);
    const std::vector<ByteSpan> sinks{into};
    auto calling = read_call(context_.loop, calls_, chain_, target.node, std::move(request), sinks,
                             context_.loop.now_ns() + kRepairReadNs);
    const auto reply = co_await std::move(calling);
    if (!reply && reply.error().code == Errc::interrupted) co_return reply.error();
    if (!reply || reply->items_size() != 1) {
      unsure = stale("hears nothing from one of the others");
      continue;
    }
    if (reply->items(0).has_error()) {
      const Error error = rpc::from_wire(reply->items(0).error());
      if (error.code != Errc::corrupt) unsure = stale(error.message);
      continue;
    }
    const bool same = from_wire(reply->items(0).image()) == wanted;
    if (same && simd::crc32c(into) == wanted.checksum) co_return Result<void>();
  }
  FF_CO_TRY(std::move(unsure));
  co_return fail(Errc::corrupt, "chunk {} of chain {}: no target that serves has its bytes",
                 to_string(id), chain_);
}

}  // namespace ff::chain
