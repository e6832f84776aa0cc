// chain_client.cc: updates, syncs and queries, with retries.
#include "storage/chain/chain_client.h"

#include <algorithm>
#include <utility>

#include "platform/simd/crc32c.h"
#include "storage/chain/chain_client_retry.h"
#include "storage/chain/decisions.h"
#include "storage/chain/wire.h"

namespace ff::chain {

namespace {

constexpr size_t kChannels = 256;  // concurrent updates
constexpr int64_t kUpdateTimeoutNs =
    20 * kSecond;  // for an attempt: longer than a failed target stays
constexpr int64_t kQueryTimeoutNs = 4 * kSecond;
constexpr int64_t kClientSyncTimeoutNs = 40 * kSecond;

// Errors that end an update; all other errors may disappear at the next attempt.
bool is_final(const Error& error) {
  switch (error.code) {
    case Errc::disk_full:
    case Errc::usage:
    case Errc::refused:
    case Errc::corrupt:
    case Errc::not_found: return true;
    default: return false;
  }
}

}  // namespace

ChainClient::ChainClient(rpc::ClientContext& context, const cluster::Routing& routing,
                         std::function<void()> refresh)
    : context_(context),
      routing_(routing),
      refresh_(std::move(refresh)),
      nodes_(context, routing),
      calls_(context.loop, nodes_),
      id_(context.rng.next()),
      hedged_(context.metrics.counter("ff_chain_client_hedged_reads_total",
                                      "Slow reads that were also sent to a second target")),
      channels_(context.loop, kChannels),
      sequences_(kChannels),
      changed_(context.loop) {
  for (size_t i = kChannels; i > 0; i--) free_.push_back(i - 1);
}

ChainClient::~ChainClient() = default;

Task<void> ChainClient::close() { co_await nodes_.close(); }

void ChainClient::on_routing_change() {
  for (const auto& [id, calls] : calls_.outgoing()) {
    const cluster::Chain* const chain = routing_.chain(id);
    if (chain == nullptr || calls.empty()) continue;
    uint64_t& seen = seen_[id];
    if (seen != chain->version)
      calls_.cancel_calls(id, fail(Errc::stale, "chain {} has changed", id));
    seen = chain->version;
  }
  changed_.set();
  changed_.reset();
}

wire::Place ChainClient::place_of(const cluster::Chain& chain, cluster::TargetId target) const {
  wire::Place place;
  place.set_chain(chain.id);
  place.set_chain_version(chain.version);
  place.set_target(target);
  return place;
}

// A channel of the client; the destructor returns it.
struct ChainClient::Channel {
  Channel(ChainClient& of, Semaphore::Permit held)
      : client(of), hold(std::move(held)), number(of.free_.back()) {
    client.free_.pop_back();
  }
  ~Channel() { client.free_.push_back(number); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  chunk::RequestId next() {
    return {.client = client.id_, .channel = number, .sequence = ++client.sequences_[number]};
  }
  ChainClient& client;
  Semaphore::Permit hold;
  const size_t number;
};

Task<Result<ChainClient::UpdateResult>> ChainClient::update(cluster::ChainId id,
                                                            chunk::Update update,
                                                            std::string capability) {
  FF_CO_TRY(auto hold, co_await channels_.acquire(1));
  Channel channel(*this, std::move(hold));
  update.request_id = channel.next();
  wire::WriteRequest request;
  to_wire(update, request);
  request.set_data_crc(simd::crc32c(update.data));
  request.set_capability(std::move(capability));
  Retry retry(*this);
  bool left_open = false;  // an attempt may have been applied
  for (;;) {
    if (const cluster::Chain* const chain = retry.chain(id)) {
      const cluster::Target head = chain->targets.front();
      *request.mutable_place() = place_of(*chain, head.id);
      auto reply = co_await calls_.call(id, head.node, kWrite, request, update.data,
                                        retry.deadline(kUpdateTimeoutNs));
      if (reply) co_return UpdateResult{from_wire(reply->image()), reply->verifier()};
      if (is_final(reply.error())) {
        Error error = std::move(reply).error();
        // The target checks the capability before the outcome of an earlier attempt.
        if (left_open && error.code == Errc::refused) error.code = Errc::interrupted;
        co_return error;
      }
      left_open = true;
      retry.failed(std::move(reply).error());
    }
    FF_CO_TRY(co_await retry.backoff());
  }
}

Task<Result<uint64_t>> ChainClient::sync(cluster::ChainId id) {
  Retry retry(*this);
  for (;;) {
    if (const cluster::Chain* const chain = retry.chain(id)) {
      const cluster::Target head = chain->targets.front();
      wire::SyncRequest request;
      *request.mutable_place() = place_of(*chain, head.id);
      auto calling = calls_.call(id, head.node, kSync, std::move(request), {},
                                 retry.deadline(kClientSyncTimeoutNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return reply->verifier();
      retry.failed(std::move(reply).error());
    }
    FF_CO_TRY(co_await retry.backoff());
  }
}

Task<Result<std::optional<ChainClient::FoundChunk>>> ChainClient::last_chunk(
    cluster::ChainId id, uint64_t inode, std::string capability) {
  Retry retry(*this);
  for (;;) {
    if (const cluster::Chain* const chain = retry.chain(id)) {
      const cluster::Target tail = *serving_tail(*chain);
      wire::LastRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_inode(inode);
      request.set_capability(capability);
      auto calling = calls_.call(id, tail.node, kLast, std::move(request), {},
                                 retry.deadline(kQueryTimeoutNs));
      auto reply = co_await std::move(calling);
      if (reply && !reply->found()) co_return std::optional<FoundChunk>();
      if (reply) {
        co_return std::optional(FoundChunk{from_wire(reply->chunk()), from_wire(reply->image())});
      }
      if (reply.error().code == Errc::refused) co_return std::move(reply).error();
      retry.failed(std::move(reply).error());
    }
    FF_CO_TRY(co_await retry.backoff());
  }
}

Task<Result<ChainClient::ChunkList>> ChainClient::list_chunks(cluster::ChainId id, ChunkQuery query,
                                                              std::string capability) {
  Retry retry(*this);
  for (;;) {
    if (const cluster::Chain* const chain = retry.chain(id)) {
      const cluster::Target tail = *serving_tail(*chain);
      wire::ChunksRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_inode(query.inode);
      request.set_from(query.from);
      request.set_end(query.end);
      request.set_limit(query.limit);
      request.set_step(query.step);
      request.set_capability(capability);
      auto calling = calls_.call(id, tail.node, kChunks, std::move(request), {},
                                 retry.deadline(kQueryTimeoutNs));
      auto reply = co_await std::move(calling);
      if (reply) {
        ChunkList found{.run = reply->run()};
        for (const wire::ListedChunk& listed : reply->chunks()) {
          found.chunks.push_back({from_wire(listed.chunk()), from_wire(listed.committed())});
        }
        if (reply->next() != 0) found.next = reply->next();
        if (reply->has_verifier()) found.verifier = reply->verifier();
        co_return found;
      }
      const Errc code = reply.error().code;
      if (code == Errc::refused || code == Errc::unsupported || code == Errc::corrupt) {
        co_return std::move(reply).error();
      }
      retry.failed(std::move(reply).error());
    }
    FF_CO_TRY(co_await retry.backoff());
  }
}

Task<Result<std::vector<uint64_t>>> ChainClient::list_inodes(cluster::ChainId id, uint64_t from,
                                                             uint32_t limit) {
  Retry retry(*this);
  for (;;) {
    if (const cluster::Chain* const chain = retry.chain(id)) {
      const cluster::Target tail = *serving_tail(*chain);
      wire::InodesRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_from(from);
      request.set_limit(limit);
      auto calling = calls_.call(id, tail.node, kInodes, std::move(request), {},
                                 retry.deadline(kQueryTimeoutNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return std::vector<uint64_t>(reply->inodes().begin(), reply->inodes().end());
      retry.failed(std::move(reply).error());
    }
    FF_CO_TRY(co_await retry.backoff());
  }
}

}  // namespace ff::chain
