// chain_load.cc: the random operations, and the recording of their results.
#include "lab/scenario/chain_load.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "platform/base/clock.h"

namespace ff::scenario::chain_parts {

namespace {

constexpr uint64_t kChainChunkSize = 16 * kKiB;
constexpr uint64_t kPage = 4 * kKiB;
constexpr uint64_t kChunks = 3;  // chunks in use per chain
constexpr int kAtOnce = 3;
constexpr int kReaders = 2;  // read-only tasks, since updates may wait for a long time
constexpr uint64_t kChainPauseNs = 400 * kMillisecond;  // maximum between two operations
constexpr uint64_t kKeepNs = 2 * kSecond;               // maximum time to keep a read buffer

// Content that repeats the token of its update.
std::string content_of(History::Token token, size_t size) {
  std::string text(size, '\0');
  for (size_t at = 0; at + sizeof token <= size; at += sizeof token) {
    std::memcpy(text.data() + at, &token, sizeof token);
  }
  return text;
}
// Empty: the bytes are not the content of a single update.
std::optional<History::Token> token_of(std::string_view text) {
  History::Token token = 0;
  if (text.size() < sizeof token) return std::nullopt;
  std::memcpy(&token, text.data(), sizeof token);
  if (content_of(token, text.size()) != text) return std::nullopt;
  return token;
}

}  // namespace

ChainLoad::ChainLoad(rpc::ClientContext& context, const std::vector<net::Address>& managers,
                     History& history, std::function<void(std::string)> report_violation,
                     ByteSpan arena)
    : context_(context),
      history_(history),
      report_violation_(std::move(report_violation)),
      memory_(arena),
      routing_(context, managers, [this] { client_.on_routing_change(); }),
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
  co_await client_.close();
  co_await routing_.close();
}

Task<void> ChainLoad::work(bool writes) {
  for (;;) {
    const int64_t pause_ns = static_cast<int64_t>(context_.rng.below(kChainPauseNs));
    const auto waited = co_await sleep_for(context_.loop, pause_ns);
    if (!waited) co_return;
    const auto& chains = routing_.routing().chains;
    if (chains.empty()) continue;
    const auto at = std::next(chains.begin(), static_cast<long>(context_.rng.below(chains.size())));
    const chunk::ChunkId id{1, context_.rng.below(kChunks)};
    const uint64_t what = context_.rng.below(12);
    if (!writes || !writing_ || what < 6) {
      co_await read(at->first, id);
    } else if (what == 6) {
      co_await remove(at->first, id);
    } else if (what < 11) {
      co_await write(at->first, id);
    } else {
      co_await sync(at->first);
    }
  }
}

Task<void> ChainLoad::write(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  const History::Token token = history_.new_token();
  // Whole pages are read in place, other sizes are not.
  const bool pages = context_.rng.below(2) == 0;
  const std::string text =
      content_of(token, pages ? kPage * (1 + context_.rng.below(kChainChunkSize / kPage))
                              : 64 + 8 * context_.rng.below(kChainChunkSize / 8 - 8));
  chunk::Update update{.id = id,
                       .type = chunk::UpdateType::replace,
                       .data = as_bytes(text),
                       .chunk_size = kChainChunkSize};
  const auto begun = history_.begin(key);
  writes_++;
  const auto done = co_await client_.update(chain, update);
  writes_--;
  if (done) history_.on_write(key, begun, token, done->state.version, done->verifier);
  if (!done) check_failure(done.error());
}

void ChainLoad::check_failure(const Error& error) {
  const bool known = error.code == Errc::deadline || error.code == Errc::disk_full ||
                     error.code == Errc::interrupted;
  if (!known) report_violation_(fmt::format("an update failed: {}", error.message));
}

Task<void> ChainLoad::remove(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  chunk::Update update{.id = id, .type = chunk::UpdateType::remove, .chunk_size = kChainChunkSize};
  const auto begun = history_.begin(key);
  history_.begin_remove(key);
  writes_++;
  const auto done = co_await client_.update(chain, update);
  writes_--;
  if (done && done->state.version <= begun.floor) {
    history_.on_empty_remove(key, begun, done->verifier);
  } else if (done) {
    history_.on_write(key, begun, 0, done->state.version, done->verifier);
  } else {
    check_failure(done.error());
  }
}

Task<void> ChainLoad::read(cluster::ChainId chain, chunk::ChunkId id) {
  const History::Key key{chain, id};
  const chain::BufferPool::Buffer memory = memory_.allocate(kChainChunkSize);
  std::vector<chain::ChainClient::ReadIo> pieces;
  pieces.push_back({.chain = chain, .id = id, .into = memory.span()});
  const auto begun = history_.begin(key);
  const auto got = co_await client_.read(std::move(pieces));
  const std::string all(as_text(memory.span()));
  if (got[0]) {
    const auto token = token_of(std::string_view(all).substr(0, got[0]->bytes));
    if (token) history_.on_read(key, begun, *token, got[0]->state.version);
    if (!token)
      report_violation_(fmt::format(
          "chunk {} of chain {}: the bytes read are not of a single update", to_string(id), chain));
  } else if (got[0].error().code == Errc::not_found) {
    history_.on_read(key, begun, 0, 0);
  } else if (got[0].error().code == Errc::corrupt) {
    report_violation_("no replica of the chunk is intact");
  }
  // After the read nobody else may write the memory.
  if (context_.rng.below(2) != 0) co_return;
  const auto waited =
      co_await sleep_for(context_.loop, static_cast<int64_t>(context_.rng.below(kKeepNs)));
  if (waited && as_text(memory.span()) != all) {
    report_violation_(fmt::format("chunk {} of chain {}: its memory changed after the read",
                                  to_string(id), chain));
  }
}

Task<void> ChainLoad::sync(cluster::ChainId chain) {
  const auto begun = history_.begin_sync(chain);
  const auto verifier = co_await client_.sync(chain);
  if (verifier) history_.on_sync(chain, begun, *verifier);
}

}  // namespace ff::scenario::chain_parts
