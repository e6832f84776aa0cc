// chain_load.cc: what is asked, and what is made of the answers.
#include "lab/scenario/chain_load.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "platform/base/clock.h"

namespace ff::scenario::chain_parts {

namespace {

constexpr uint64_t kChainChunkSize = 16 * kKiB;
constexpr uint64_t kPage = 4 * kKiB;
constexpr uint64_t kChunks = 3;  // that are used, of each chain
constexpr int kAtOnce = 3;
constexpr int kReaders = 2;  // beside them, since an update may wait for long
constexpr uint64_t kChainPauseNs = 400 * kMillisecond;  // between two steps at most
constexpr uint64_t kKeepNs = 2 * kSecond;               // what was read, at most

// Content that says which update has made it, at every place.
std::string content_of(History::Token token, size_t size) {
  std::string text(size, '\0');
  for (size_t at = 0; at + sizeof token <= size; at += sizeof token) {
    std::memcpy(text.data() + at, &token, sizeof token);
  }
  return text;
}
// Nothing: it is the content of no one update.
std::optional<History::Token> token_of(std::string_view text) {
  History::Token token = 0;
  if (text.size() < sizeof token) return std::nullopt;
  std::memcpy(&token, text.data(), sizeof token);
  if (content_of(token, text.size()) != text) return std::nullopt;
  return token;
}

}  // namespace

ChainLoad::ChainLoad(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                     History& history, std::function<void(std::string)> broken, ByteSpan arena)
    : context_(context),
      history_(history),
      broken_(std::move(broken)),
      memory_(arena),
      routing_(context, managers, [this] { client_.look(); }),
      client_(context, routing_.routing(), [this] { routing_.refresh(); }),
      gate_(context.loop) {
  gate_.spawn(routing_.run());
  for (int i = 0; i < kReaders; i++) gate_.spawn(work(false));
  for (int i = 0; i < kAtOnce; i++) gate_.spawn(work(true));
}

ChainLoad::~ChainLoad() = default;

Task<void> ChainLoad::close() {
  Error over = fail(Errc::interrupted, "the load is over");
  co_await gate_.close(std::move(over));
  auto closing_client = client_.close();
  co_await std::move(closing_client);
  auto closing_routing = routing_.close();
  co_await std::move(closing_routing);
}

Task<void> ChainLoad::work(bool writes) {
  for (;;) {
    const int64_t pause_ns = static_cast<int64_t>(context_.rng.below(kChainPauseNs));
    const auto waited = co_await after(context_.loop, pause_ns);
    if (!waited) co_return;
    const auto& chains = routing_.routing().chains;
    if (chains.empty()) continue;
    const auto at = std::next(chains.begin(), static_cast<long>(context_.rng.below(chains.size())));
    const chunk::ChunkId id{1, context_.rng.below(kChunks)};
    const uint64_t what = context_.rng.below(12);
    if (!writes || !writing_ || what < 6) {
      auto reading = read(at->first, id);
      co_await std::move(reading);
    } else if (what == 6) {
      auto removing = remove(at->first, id);
      co_await std::move(removing);
    } else if (what < 11) {
      auto writing = write(at->first, id);
      co_await std::move(writing);
    } else {
      auto syncing = sync(at->first);
      co_await std::move(syncing);
    }
  }
}

Task<void> ChainLoad::write(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  const History::Token token = history_.new_token();
  // Of whole pages, which are read in place, or not.
  const bool pages = context_.rng.below(2) == 0;
  const std::string text =
      content_of(token, pages ? kPage * (1 + context_.rng.below(kChainChunkSize / kPage))
                              : 64 + 8 * context_.rng.below(kChainChunkSize / 8 - 8));
  chunk::Update update{.id = id,
                       .change = chunk::Change::replace,
                       .data = as_bytes(text),
                       .chunk_size = kChainChunkSize};
  const auto begun = history_.begin(key);
  writes_++;
  auto updating = client_.update(chain, update);
  const auto done = co_await std::move(updating);
  writes_--;
  if (done) history_.wrote(key, begun, token, done->image.version, done->verifier);
  if (!done) check_failure(done.error());
}

void ChainLoad::check_failure(const Error& error) {
  const bool known = error.code == Errc::deadline || error.code == Errc::disk_full ||
                     error.code == Errc::interrupted;
  if (!known) broken_(fmt::format("an update failed: {}", error.message));
}

Task<void> ChainLoad::remove(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  chunk::Update update{.id = id, .change = chunk::Change::remove, .chunk_size = kChainChunkSize};
  const auto begun = history_.begin(key);
  history_.removal_begins(key);
  writes_++;
  auto updating = client_.update(chain, update);
  const auto done = co_await std::move(updating);
  writes_--;
  if (done && done->image.version <= begun.floor) {
    history_.removed_nothing(key, begun, done->verifier);
  } else if (done) {
    history_.wrote(key, begun, 0, done->image.version, done->verifier);
  } else {
    check_failure(done.error());
  }
}

Task<void> ChainLoad::read(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  const chain::Memory::Bytes memory = memory_.take(kChainChunkSize);
  std::vector<chain::Client::Piece> pieces;
  pieces.push_back({.chain = chain, .id = id, .into = memory.span()});
  const auto begun = history_.begin(key);
  auto reading = client_.read(std::move(pieces));
  const auto got = co_await std::move(reading);
  const std::string all(as_text(memory.span()));
  if (got[0]) {
    const auto token = token_of(std::string_view(all).substr(0, got[0]->bytes));
    if (token) history_.read(key, begun, *token, got[0]->image.version);
    if (!token)
      broken_(fmt::format("chunk {} of chain {}: what was read is of no one update", to_string(id),
                          chain));
  } else if (got[0].error().code == Errc::not_found) {
    history_.read(key, begun, 0, 0);
  } else if (got[0].error().code == Errc::corrupt) {
    broken_("no replica has its bytes");
  }
  // The memory is the program's again.
  if (context_.rng.below(2) != 0) co_return;
  const auto waited =
      co_await after(context_.loop, static_cast<int64_t>(context_.rng.below(kKeepNs)));
  if (waited && as_text(memory.span()) != all) {
    broken_(fmt::format("chunk {} of chain {}: its memory changed after the read", to_string(id),
                        chain));
  }
}

Task<void> ChainLoad::sync(cluster::ChainId chain) {
  const auto begun = history_.begin_sync(chain);
  auto syncing = client_.sync(chain);
  const auto verifier = co_await std::move(syncing);
  if (verifier) history_.synced(chain, begun, *verifier);
}

}  // namespace ff::scenario::chain_parts
