// chunks.cc: each chain of a file has its share of the chunks, and they are looked at side by side.
#include "storage/meta/chunks.h"

#include <algorithm>
#include <utility>

#include "platform/base/together.h"
#include "storage/chunk/layout.h"

namespace ff::meta {

namespace {

constexpr uint32_t kChunksAtOnce = 32;  // chunks of one chain

}  // namespace

// The chunks of a file on one chain.
struct Chunks::Share {
  cluster::ChainId chain = 0;
  InodeId inode = 0;
  uint64_t chunk_size = 0;
  uint64_t length = 0;  // that the file shall have
  Still still = {};
};

Task<Result<uint64_t>> stored_end(chain::Client& client, Loop& loop, Inode file,
                                  std::vector<cluster::ChainId> chains, std::string capability) {
  std::vector<uint64_t> ends(chains.size());
  Together all(loop);
  for (size_t i = 0; i < chains.size(); i++) {
    all.add([](chain::Client& storage, cluster::ChainId chain, InodeId inode, uint64_t chunk_size,
               std::string right, uint64_t& end) -> Task<Result<void>> {
      auto asking = storage.last(chain, inode, std::move(right));
      FF_CO_TRY(const auto last, co_await std::move(asking));
      if (last) end = last->id.index * chunk_size + last->image.length;
      co_return Result<void>();
    }(client, chains[i], file.id, file.layout.chunk_size, capability, ends[i]));
  }
  auto doing = all.done();
  FF_CO_TRY(co_await std::move(doing));
  co_return ends.empty() ? 0 : *std::ranges::max_element(ends);
}

Task<Result<uint64_t>> Chunks::end(Inode file) {
  FF_CO_TRY(auto chains, chains_of(routing_, file.layout));
  auto asking = stored_end(client_, loop_, std::move(file), std::move(chains));
  co_return co_await std::move(asking);
}

Task<Result<void>> Chunks::cut(Inode file, uint64_t length, Still still) {
  FF_CO_TRY(const auto chains, chains_of(routing_, file.layout));
  Together all(loop_);
  for (const cluster::ChainId chain : chains) {
    all.add(cut_share({.chain = chain,
                       .inode = file.id,
                       .chunk_size = file.layout.chunk_size,
                       .length = length,
                       .still = still}));
  }
  auto doing = all.done();
  co_return co_await std::move(doing);
}

Task<Result<void>> Chunks::remove_all(cluster::ChainId chain, InodeId inode) {
  auto cutting = cut_share({.chain = chain, .inode = inode, .chunk_size = chunk::kChunkMax});
  co_return co_await std::move(cutting);
}

// Until it is durable: the metadata says that it is done from then on.
Task<Result<void>> Chunks::cut_share(Share share) {
  Verifiers verifiers;
  uint64_t from = share.length / share.chunk_size;
  bool over = false;
  for (;;) {
    auto asking =
        client_.chunks(share.chain, {.inode = share.inode, .from = from, .limit = kChunksAtOnce});
    FF_CO_TRY(const auto found, co_await std::move(asking));
    if (found.verifier) verifiers.insert(*found.verifier);
    if (!found.chunks.empty()) {
      auto looking = goes_still(share, over);
      FF_CO_TRY(co_await std::move(looking));
    }
    Together all(loop_);
    for (const auto& one : found.chunks) all.add(cut_chunk(share, one, verifiers, over));
    auto doing = all.done();
    FF_CO_TRY(co_await std::move(doing));
    if (over) co_return Result<void>();
    if (found.next) {
      from = *found.next;
      continue;
    }
    auto keeping = keep(share.chain, verifiers);
    FF_CO_TRY(const bool kept, co_await std::move(keeping));
    if (kept) co_return Result<void>();
    from = share.length / share.chunk_size;
  }
}

// Syncs what was changed, and what was found as it shall be: another server may be at the same
// file, and not have synced it yet. False: some of it was lost before, and is to be done again.
Task<Result<bool>> Chunks::keep(cluster::ChainId chain, Verifiers& verifiers) {
  const Verifiers seen = std::exchange(verifiers, {});
  auto syncing = client_.sync(chain);
  FF_CO_TRY(const uint64_t synced, co_await std::move(syncing));
  co_return seen.empty() || seen == Verifiers{synced};
}

Task<Result<void>> Chunks::goes_still(const Share& share, bool& over) {
  if (!share.still) co_return Result<void>();
  auto asking = share.still();
  FF_CO_TRY(const bool goes, co_await std::move(asking));
  over |= !goes;
  co_return Result<void>();
}

// Whoever is late here - a server that was silent for a while, whose truncation another has
// finished - meets what others have written since. So it is the version that was looked at which
// goes, before the truncation was known to be unfinished, and no later one.
Task<Result<void>> Chunks::cut_chunk(const Share& share, chain::Client::Last found,
                                     Verifiers& verifiers, bool& over) {
  const uint64_t begin = found.id.index * share.chunk_size;
  const uint64_t keeps = share.length > begin ? share.length - begin : 0;
  const auto too_long = [&] {
    const chunk::VersionState& image = found.image;
    return image.version > 0 && !image.removed && (keeps == 0 || image.length > keeps);
  };
  while (!over && too_long()) {
    const chunk::Update shorter{
        .id = found.id,
        .change = keeps == 0 ? chunk::Change::remove : chunk::Change::resize,
        .length = keeps,
        .chunk_size = share.chunk_size,
        .only_version = found.image.version};
    auto updating = client_.update(share.chain, shorter);
    FF_CO_TRY(const auto updated, co_await std::move(updating));
    verifiers.insert(updated.verifier);
    found.image = updated.image;
    if (!too_long()) break;
    auto looking = goes_still(share, over);
    FF_CO_TRY(co_await std::move(looking));
  }
  co_return Result<void>();
}

}  // namespace ff::meta
