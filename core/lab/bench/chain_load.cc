// chain_load.cc: chunks spread over the chains of a table, as those of a large file are.
#include "lab/bench/chain_load.h"

#include <algorithm>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/metrics.h"

namespace ff::bench {

namespace {

constexpr int64_t kLookNs = 20 * kMillisecond;
constexpr uint64_t kRemovesAtOnce = 64;
// Files have low numbers, given one after the other (storage.md, "Metadata").
constexpr uint64_t kNoFile = uint64_t{0xff} << 56;

}  // namespace

ChainBenchTarget::ChainBenchTarget(rpc::ClientContext& context,
                                   const std::vector<net::Address>& managers)
    : context_(context),
      inode_(kNoFile | (context.rng.next() >> 8)),
      routing_(context, managers, [this] { client_.on_routing_change(); }),
      client_(context, routing_.routing(), [this] { routing_.refresh(); }),
      gate_(context.loop) {
  gate_.spawn(routing_.run());
}

Task<Result<void>> ChainBenchTarget::open(cluster::TableId table, int64_t deadline_ns) {
  while (routing_.routing().version == 0) {
    const auto waited = co_await sleep_for(context_.loop, kLookNs);
    FF_CO_TRY(waited);
    if (context_.loop.now_ns() < deadline_ns) continue;
    if (routing_.last_error()) co_return *routing_.last_error();
    co_return fail(Errc::deadline, "the managers did not send the routing in time");
  }
  const cluster::ChainTable* const found = routing_.routing().table(table);
  if (found == nullptr || found->chains.empty()) {
    Error error = fail(Errc::not_found, "the cluster has no chain table {}", table);
    error.hint = "Make chains: ff admin plan --apply";
    co_return error;
  }
  chains_ = found->chains;
  replicas_ = routing_.routing().chain(chains_.front())->targets.size();
  co_return Result<void>();
}

Task<void> ChainBenchTarget::close() {
  Error over = fail(Errc::interrupted, "the load is over");
  co_await gate_.close(std::move(over));
  co_await client_.close();
  co_await routing_.close();
}

Task<Result<void>> ChainBenchTarget::update(uint64_t index, chunk::Update update) {
  FF_CO_TRY(const auto updated, co_await client_.update(chain_of(index), update));
  verifiers_[chain_of(index)] = updated.verifier;
  co_return Result<void>();
}

Task<Result<void>> ChainBenchTarget::write(uint64_t index, ByteView from) {
  return update(index, {.id = {inode_, index},
                        .type = chunk::UpdateType::replace,
                        .data = from,
                        .chunk_size = kChunkBytes});
}

Task<Result<void>> ChainBenchTarget::overwrite(uint64_t index, uint64_t offset, ByteView from) {
  return update(index, {.id = {inode_, index},
                        .type = chunk::UpdateType::write,
                        .offset = offset,
                        .data = from,
                        .chunk_size = kChunkBytes});
}

Task<Result<void>> ChainBenchTarget::read(uint64_t index, uint64_t offset, ByteSpan into) {
  std::vector<chain::ChainClient::ReadIo> pieces;
  pieces.push_back(
      {.chain = chain_of(index), .id = {inode_, index}, .offset = offset, .into = into});
  auto got = co_await client_.read(std::move(pieces));
  FF_CO_TRY(std::move(got.front()));
  co_return Result<void>();
}

Task<Result<void>> ChainBenchTarget::sync() {
  Result<void> first;
  Gate syncs(context_.loop);
  for (const auto& [chain, verifier] : verifiers_) {
    syncs.spawn([](chain::ChainClient& client, cluster::ChainId id, uint64_t expected,
                   Result<void>& error) -> Task<void> {
      const auto synced = co_await client.sync(id);
      if (!synced) error = synced.error();
      if (synced && *synced != expected) {
        error = fail(Errc::failed, "chain {} has lost updates that were not synced", id);
      }
    }(client_, chain, verifier, first));
  }
  co_await syncs.wait_empty();
  co_return first;
}

Task<Result<void>> ChainBenchTarget::remove(uint64_t count) {
  Result<void> first;
  Semaphore window(context_.loop, kRemovesAtOnce);
  Gate removes(context_.loop);
  for (uint64_t index = 0; index < count; index++) {
    FF_CO_TRY(auto slot, co_await window.acquire(1));
    removes.spawn([](ChainBenchTarget& on, uint64_t which, Semaphore::Permit,
                     Result<void>& error) -> Task<void> {
      chunk::Update update{
          .id = {on.inode_, which}, .type = chunk::UpdateType::remove, .chunk_size = kChunkBytes};
      const auto updated = co_await on.client_.update(on.chain_of(which), update);
      if (!updated && updated.error().code != Errc::not_found) error = updated.error();
    }(*this, index, std::move(slot), first));
  }
  co_await removes.wait_empty();
  co_return first;
}

namespace {

struct Holding {
  ChainBenchTarget& chains;
  rpc::ClientContext& context;
  const StopToken& stop;
  Progress& progress;
  const HoldLoad& load;
  int64_t end_ns = 0;
  HoldResult figures = {};
  Histogram waits = {};

  void note(const Result<void>& done, int64_t began_ns) {
    const int64_t waited_ns = context.loop.now_ns() - began_ns;
    waits.observe_ns(waited_ns);
    figures.longest_seconds = std::max(figures.longest_seconds, to_seconds(waited_ns));
    progress.done += kChunkBytes;
    if (done) return;
    if (figures.errors++ == 0) figures.first_error = done.error().message;
  }
};

Task<void> hold(Holding& on, bool writes, ByteSpan memory) {
  while (on.context.loop.now_ns() < on.end_ns && on.stop.check()) {
    const uint64_t index = on.context.rng.below(on.load.chunks);
    const int64_t began_ns = on.context.loop.now_ns();
    auto step = writes ? on.chains.write(index, memory) : on.chains.read(index, 0, memory);
    const auto done = co_await std::move(step);
    (writes ? on.figures.updates : on.figures.reads)++;
    on.note(done, began_ns);
  }
}

}  // namespace

Task<Result<HoldResult>> run_hold(ChainBenchTarget& chains, rpc::ClientContext& context,
                                  const StopToken& stop, Progress& progress, const HoldLoad& load,
                                  ByteSpan memory) {
  Holding on{chains, context, stop, progress, load};
  for (uint64_t index = 0; index < load.chunks; index++) {
    FF_CO_TRY(co_await chains.write(index, memory.first(kChunkBytes)));
  }
  on.end_ns = context.loop.now_ns() + load.duration_ns;
  Gate gate(context.loop);
  for (unsigned i = 0; i < load.depth; i++) {
    gate.spawn(hold(on, i % 2 == 0, memory.subspan(i * kChunkBytes, kChunkBytes)));
  }
  co_await gate.wait_empty();
  FF_CO_TRY(stop.check());
  on.figures.p50_seconds = on.waits.quantile_seconds(0.5);
  on.figures.p99_seconds = on.waits.quantile_seconds(0.99);
  co_return on.figures;
}

}  // namespace ff::bench
