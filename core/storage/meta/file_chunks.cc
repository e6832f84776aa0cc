// file_chunks.cc: handles the chains of a file in parallel.
#include "storage/meta/file_chunks.h"

#include <algorithm>
#include <utility>

#include "platform/base/task_group.h"
#include "storage/chunk/layout.h"

namespace ff::meta {

namespace {

constexpr uint32_t kChunksAtOnce = 32;  // chunks per listing of one chain

}  // namespace

// The chunks of a file on one chain.
struct FileChunks::ChainShare {
  cluster::ChainId chain = 0;
  InodeId inode = 0;
  uint64_t chunk_size = 0;
  uint64_t length = 0;  // the length of the file afterwards
  StillNeeded still_needed = {};
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
  Verifiers verifiers;
  uint64_t from = share.length / share.chunk_size;
  bool over = false;
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
    if (over) co_return Result<void>();
    if (found.next) {
      from = *found.next;
      continue;
    }
    FF_CO_TRY(const bool kept, co_await sync_chain(share.chain, verifiers));
    if (kept) co_return Result<void>();
    from = share.length / share.chunk_size;
  }
}

// Syncs this removal, and chunks that another server has removed but perhaps not synced. False: a
// storage node lost some of it, and the removal must be repeated.
Task<Result<bool>> FileChunks::sync_chain(cluster::ChainId chain, Verifiers& verifiers) {
  const Verifiers seen = std::exchange(verifiers, {});
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
