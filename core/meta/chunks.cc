// chunks.cc: each chain of a file has its share of the chunks, and they are looked at side by side.
#include "meta/chunks.h"

#include <algorithm>
#include <utility>

#include "base/together.h"
#include "chunk/layout.h"

namespace ff::meta {

namespace {

// Removals at once on one chain. Where the file has holes some of them find nothing.
constexpr uint64_t kAtOnce = 32;

}  // namespace

// The chunks of a file on one chain: first, first + step, ...
struct Chunks::Share {
  cluster::ChainId chain = 0;
  InodeId inode = 0;
  uint64_t first = 0;
  uint64_t step = 0;
  uint64_t chunk_size = 0;
  uint64_t length = 0;  // that the file shall have
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

Task<Result<void>> Chunks::cut(Inode file, uint64_t length) {
  FF_CO_TRY(const auto chains, chains_of(routing_, file.layout));
  Together all(loop_);
  for (size_t i = 0; i < chains.size(); i++) {
    all.add(cut_share({.chain = chains[i],
                       .inode = file.id,
                       .first = i,
                       .step = chains.size(),
                       .chunk_size = file.layout.chunk_size,
                       .length = length}));
  }
  auto doing = all.done();
  co_return co_await std::move(doing);
}

// Until it is durable: the metadata says that it is done from then on.
Task<Result<void>> Chunks::cut_share(Share share) {
  Verifiers verifiers;
  for (;;) {
    auto asking = client_.last(share.chain, share.inode);
    FF_CO_TRY(const auto last, co_await std::move(asking));
    const uint64_t begin = last ? last->id.index * share.chunk_size : 0;
    if (!last || begin + last->image.length <= share.length) {
      auto keeping = keep(share.chain, verifiers);
      FF_CO_TRY(const bool kept, co_await std::move(keeping));
      if (kept) co_return Result<void>();
      continue;
    }
    if (begin >= share.length) {
      auto removing = remove_below(share, last->id.index, verifiers);
      FF_CO_TRY(co_await std::move(removing));
      continue;
    }
    chunk::Update shorter{.id = last->id,
                          .change = chunk::Change::resize,
                          .length = share.length - begin,
                          .chunk_size = share.chunk_size};
    auto updating = update(share.chain, shorter, verifiers);
    FF_CO_TRY(co_await std::move(updating));
  }
}

// Syncs what was changed. False: some of it was lost before, and is to be done again.
Task<Result<bool>> Chunks::keep(cluster::ChainId chain, Verifiers& verifiers) {
  if (verifiers.empty()) co_return true;
  const Verifiers changed = std::exchange(verifiers, {});
  auto syncing = client_.sync(chain);
  FF_CO_TRY(const uint64_t synced, co_await std::move(syncing));
  co_return changed == Verifiers{synced};
}

// The last chunks of a share, `last` being the very last, as far as they are to go.
Task<Result<void>> Chunks::remove_below(Share share, uint64_t last, Verifiers& verifiers) {
  Together all(loop_);
  for (uint64_t i = 0; i < kAtOnce; i++) {
    all.add(update(share.chain,
                   {.id = {share.inode, last},
                    .change = chunk::Change::remove,
                    .chunk_size = share.chunk_size},
                   verifiers));
    if (last < share.step || (last - share.step) * share.chunk_size < share.length) break;
    last -= share.step;
  }
  auto doing = all.done();
  co_return co_await std::move(doing);
}

Task<Result<void>> Chunks::remove_all(cluster::ChainId chain, InodeId inode) {
  Verifiers verifiers;
  for (;;) {
    auto asking = client_.last(chain, inode);
    FF_CO_TRY(const auto last, co_await std::move(asking));
    if (!last) {
      auto keeping = keep(chain, verifiers);
      FF_CO_TRY(const bool kept, co_await std::move(keeping));
      if (kept) co_return Result<void>();
      continue;
    }
    chunk::Update removal{
        .id = last->id, .change = chunk::Change::remove, .chunk_size = chunk::kChunkMax};
    auto removing = update(chain, removal, verifiers);
    FF_CO_TRY(co_await std::move(removing));
  }
}

Task<Result<void>> Chunks::update(cluster::ChainId chain, chunk::Update update,
                                  Verifiers& verifiers) {
  auto updating = client_.update(chain, update);
  const auto updated = co_await std::move(updating);
  if (updated) verifiers.insert(updated->verifier);
  if (!updated && updated.error().code != Errc::not_found) co_return updated.error();
  co_return Result<void>();
}

}  // namespace ff::meta
