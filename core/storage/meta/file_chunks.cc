// file_chunks.cc: handles the chains of a file in parallel.
#include "storage/meta/file_chunks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "platform/base/task_group.h"
#include "storage/chain/decisions.h"
#include "storage/chunk/layout.h"

namespace ff::meta {

namespace {

constexpr uint32_t kChunksAtOnce = 32;  // chunks per listing of one chain
constexpr size_t kListingsAtOnce = 32;  // of removed files

}  // namespace

// The chunks of a file on one chain.
struct FileChunks::ChainShare {
  cluster::ChainId chain = 0;
  InodeId inode = 0;
  uint64_t chunk_size = 0;
  uint64_t length = 0;  // the length of the file afterwards
  StillNeeded still_needed = {};
};

// The share of one file of a removal, and the result of its file, which all its shares set.
struct FileChunks::Removal {
  ChainShare share;
  Result<void>* file = nullptr;
};

Task<Result<uint64_t>> stored_length(chain::ChainClient& client, Loop& loop, Inode file,
                                     std::vector<cluster::ChainId> chains, std::string capability) {
  std::vector<uint64_t> ends(chains.size());
  TaskGroup all(loop);
  for (size_t i = 0; i < chains.size(); i++) {
    all.add([](chain::ChainClient& storage, cluster::ChainId chain, InodeId inode,
               uint64_t chunk_size, std::string right, uint64_t& end) -> Task<Result<void>> {
      FF_CO_TRY(const auto last, co_await storage.last_chunk(chain, inode, std::move(right)));
      if (last) end = last->id.index * chunk_size + last->state.length;
      co_return Result<void>();
    }(client, chains[i], file.id, file.layout.chunk_size, capability, ends[i]));
  }
  FF_CO_TRY(co_await all.join());
  co_return ends.empty() ? 0 : *std::ranges::max_element(ends);
}

Task<Result<uint64_t>> FileChunks::stored_length(Inode file) {
  FF_CO_TRY(auto chains, chains_of(routing_, file.layout));
  co_return co_await meta::stored_length(client_, loop_, std::move(file), std::move(chains));
}

Task<Result<void>> FileChunks::truncate(Inode file, uint64_t length, StillNeeded still_needed) {
  FF_CO_TRY(const auto chains, chains_of(routing_, file.layout));
  TaskGroup all(loop_);
  for (const cluster::ChainId chain : chains) {
    all.add(truncate_share({.chain = chain,
                            .inode = file.id,
                            .chunk_size = file.layout.chunk_size,
                            .length = length,
                            .still_needed = still_needed}));
  }
  co_return co_await all.join();
}

Task<Result<void>> FileChunks::remove_all(cluster::ChainId chain, InodeId inode) {
  auto cutting = truncate_share({.chain = chain, .inode = inode, .chunk_size = chunk::kChunkMax});
  co_return co_await std::move(cutting);
}

// Returns after the removal is durable: the metadata then records it as done.
Task<Result<void>> FileChunks::truncate_share(ChainShare share) {
  bool over = false;
  for (;;) {
    Verifiers verifiers;
    FF_CO_TRY(co_await truncate_unsynced(share, verifiers, over));
    if (over) co_return Result<void>();
    FF_CO_TRY(const bool kept, co_await sync_chain(share.chain, verifiers));
    if (kept) co_return Result<void>();
  }
}

Task<Result<void>> FileChunks::truncate_unsynced(const ChainShare& share, Verifiers& verifiers,
                                                 bool& over) {
  uint64_t from = share.length / share.chunk_size;
  for (;;) {
    auto asking = client_.list_chunks(share.chain,
                                      {.inode = share.inode, .from = from, .limit = kChunksAtOnce});
    FF_CO_TRY(const auto found, co_await std::move(asking));
    if (found.verifier) verifiers.insert(*found.verifier);
    if (!found.chunks.empty()) {
      FF_CO_TRY(co_await check_still_needed(share, over));
    }
    TaskGroup all(loop_);
    for (const auto& one : found.chunks) all.add(truncate_chunk(share, one, verifiers, over));
    FF_CO_TRY(co_await all.join());
    if (over || !found.next) co_return Result<void>();
    from = *found.next;
  }
}

Task<std::vector<Result<void>>> FileChunks::remove(std::vector<Inode> files) {
  std::vector<Result<void>> removed(files.size());
  std::map<cluster::ChainId, std::vector<Removal>> by_chain;
  for (size_t i = 0; i < files.size(); i++) {
    const auto chains = chains_of(routing_, files[i].layout);
    if (!chains) removed[i] = chains.error();
    if (!chains) continue;
    for (const cluster::ChainId chain : *chains) {
      const uint64_t chunk_size = files[i].layout.chunk_size;
      ChainShare share{.chain = chain, .inode = files[i].id, .chunk_size = chunk_size};
      by_chain[chain].push_back({.share = std::move(share), .file = &removed[i]});
    }
  }
  Semaphore listings(loop_, kListingsAtOnce);
  TaskGroup all(loop_);
  for (auto& [chain, removals] : by_chain) {
    all.add(remove_on_chain(std::move(removals), listings));
  }
  (void)co_await all.join();  // each file has its result
  co_return removed;
}

// `removals` are of one chain. Errors go to the results of the files.
Task<Result<void>> FileChunks::remove_on_chain(std::vector<Removal> removals, Semaphore& listings) {
  const cluster::ChainId id = removals.front().share.chain;
  const cluster::Chain* const known = routing_.chain(id);
  if (known == nullptr || chain::serving_tail(*known) == nullptr) {
    // A call would wait for it until its deadline.
    const Error offline = fail(Errc::unreachable, "chain {} has no serving target", id);
    for (Removal& removal : removals) *removal.file = offline;
    co_return Result<void>();
  }
  const auto one = [this, &listings](Removal& removal, Verifiers& verifiers) -> Task<Result<void>> {
    auto slot = co_await listings.acquire(1);
    bool over = false;
    Result<void> done = slot ? Result<void>() : std::move(slot).error();
    if (done) done = co_await truncate_unsynced(removal.share, verifiers, over);
    if (!done && *removal.file) *removal.file = std::move(done);
    co_return Result<void>();
  };
  for (bool kept = false; !kept;) {
    Verifiers verifiers;
    TaskGroup all(loop_);
    for (Removal& removal : removals) all.add(one(removal, verifiers));
    FF_CO_TRY(co_await all.join());
    std::erase_if(removals, [](const Removal& removal) { return !*removal.file; });
    if (removals.empty()) break;
    const auto synced = co_await sync_chain(id, verifiers);
    for (Removal& removal : removals) {
      if (!synced && *removal.file) *removal.file = synced.error();
    }
    kept = !synced || *synced;
  }
  co_return Result<void>();
}

// Syncs this removal, and chunks that another server has removed but perhaps not synced. False: a
// storage node lost some of it, and the removal must be repeated.
Task<Result<bool>> FileChunks::sync_chain(cluster::ChainId chain, const Verifiers& seen) {
  FF_CO_TRY(const uint64_t synced, co_await client_.sync(chain));
  co_return seen.empty() || seen == Verifiers{synced};
}

Task<Result<void>> FileChunks::check_still_needed(const ChainShare& share, bool& over) {
  if (!share.still_needed) co_return Result<void>();
  FF_CO_TRY(const bool goes, co_await share.still_needed());
  over |= !goes;
  co_return Result<void>();
}

// A server that was silent for a while may resume a truncation that another server has finished,
// while clients have written again. So the update names the chunk version that was listed before
// the truncation was known to be unfinished; newer versions stay.
Task<Result<void>> FileChunks::truncate_chunk(const ChainShare& share,
                                              chain::ChainClient::FoundChunk found,
                                              Verifiers& verifiers, bool& over) {
  const uint64_t begin = found.id.index * share.chunk_size;
  const uint64_t keeps = share.length > begin ? share.length - begin : 0;
  const auto too_long = [&] {
    const chunk::VersionState& state = found.state;
    return state.version > 0 && !state.removed && (keeps == 0 || state.length > keeps);
  };
  while (!over && too_long()) {
    const chunk::Update shorter{
        .id = found.id,
        .type = keeps == 0 ? chunk::UpdateType::remove : chunk::UpdateType::truncate,
        .length = keeps,
        .chunk_size = share.chunk_size,
        .expected_version = found.state.version};
    FF_CO_TRY(const auto updated, co_await client_.update(share.chain, shorter));
    verifiers.insert(updated.verifier);
    found.state = updated.state;
    if (!too_long()) break;
    FF_CO_TRY(co_await check_still_needed(share, over));
  }
  co_return Result<void>();
}

}  // namespace ff::meta
