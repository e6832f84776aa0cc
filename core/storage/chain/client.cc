// client.cc: whom to ask, and when to ask again.
#include "storage/chain/client.h"

#include <algorithm>
#include <utility>

#include "platform/simd/crc32c.h"
#include "storage/chain/client_attempts.h"
#include "storage/chain/decisions.h"
#include "storage/chain/wire.h"

namespace ff::chain {

namespace {

constexpr size_t kChannels = 256;            // updates at once
constexpr int64_t kUpdateNs = 20 * kSecond;  // for an attempt: longer than a failed target stays
constexpr int64_t kLastNs = 4 * kSecond;
constexpr int64_t kClientSyncNs = 40 * kSecond;

// What an update ends with; all else may be different at the next attempt.
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

Client::Client(rpc::ClientContext& context, const cluster::Routing& routing,
               std::function<void()> refresh)
    : context_(context),
      routing_(routing),
      refresh_(std::move(refresh)),
      nodes_(context, routing),
      calls_(context.loop, nodes_),
      id_(context.rng.next()),
      hedged_(context.metrics.counter("ff_chain_client_hedged_reads_total",
                                      "Reads that were late and asked of a second target")),
      channels_(context.loop, kChannels),
      sequences_(kChannels),
      changed_(context.loop) {
  for (size_t i = kChannels; i > 0; i--) free_.push_back(i - 1);
}

Client::~Client() = default;

Task<void> Client::close() {
  auto closing = nodes_.close();
  co_await std::move(closing);
}

void Client::look() {
  for (const auto& [id, calls] : calls_.outgoing()) {
    const cluster::Chain* const chain = routing_.chain(id);
    if (chain == nullptr || calls.empty()) continue;
    uint64_t& seen = seen_[id];
    if (seen != chain->version) calls_.end(id, fail(Errc::stale, "chain {} has changed", id));
    seen = chain->version;
  }
  changed_.set();
  changed_.reset();
}

wire::Place Client::place_of(const cluster::Chain& chain, cluster::TargetId target) const {
  wire::Place place;
  place.set_chain(chain.id);
  place.set_chain_version(chain.version);
  place.set_target(target);
  return place;
}

// One of the client's channels, given back when it goes.
struct Client::Channel {
  Channel(Client& of, Semaphore::Hold held)
      : client(of), hold(std::move(held)), number(of.free_.back()) {
    client.free_.pop_back();
  }
  ~Channel() { client.free_.push_back(number); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  chunk::Writer next() {
    return {.client = client.id_, .channel = number, .sequence = ++client.sequences_[number]};
  }
  Client& client;
  Semaphore::Hold hold;
  const size_t number;
};

Task<Result<Client::Updated>> Client::update(cluster::ChainId id, chunk::Update update,
                                             std::string capability) {
  auto taking = channels_.take(1);
  FF_CO_TRY(auto hold, co_await std::move(taking));
  Channel channel(*this, std::move(hold));
  update.writer = channel.next();
  wire::WriteRequest request;
  to_wire(update, request);
  request.set_data_crc(simd::crc32c(update.data));
  request.set_capability(std::move(capability));
  Attempts attempts(*this);
  bool left_open = false;  // an attempt may have been done
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target head = chain->targets.front();
      *request.mutable_place() = place_of(*chain, head.id);
      auto calling =
          calls_.call(id, head.node, kWrite, request, update.data, attempts.until(kUpdateNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return Updated{from_wire(reply->image()), reply->verifier()};
      if (is_final(reply.error())) {
        Error error = std::move(reply).error();
        // A capability is looked at before what has become of the update.
        if (left_open && error.code == Errc::refused) error.code = Errc::interrupted;
        co_return error;
      }
      left_open = true;
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

Task<Result<uint64_t>> Client::sync(cluster::ChainId id) {
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target head = chain->targets.front();
      wire::SyncRequest request;
      *request.mutable_place() = place_of(*chain, head.id);
      auto calling =
          calls_.call(id, head.node, kSync, std::move(request), {}, attempts.until(kClientSyncNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return reply->verifier();
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

Task<Result<std::optional<Client::Last>>> Client::last(cluster::ChainId id, uint64_t inode,
                                                       std::string capability) {
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target tail = *reading_tail(*chain);
      wire::LastRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_inode(inode);
      request.set_capability(capability);
      auto calling =
          calls_.call(id, tail.node, kLast, std::move(request), {}, attempts.until(kLastNs));
      auto reply = co_await std::move(calling);
      if (reply && !reply->found()) co_return std::optional<Last>();
      if (reply) {
        co_return std::optional(Last{from_wire(reply->chunk()), from_wire(reply->image())});
      }
      if (reply.error().code == Errc::refused) co_return std::move(reply).error();
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

Task<Result<Client::Found>> Client::chunks(cluster::ChainId id, Chunks asked,
                                           std::string capability) {
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target tail = *reading_tail(*chain);
      wire::ChunksRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_inode(asked.inode);
      request.set_from(asked.from);
      request.set_end(asked.end);
      request.set_limit(asked.limit);
      request.set_step(asked.step);
      request.set_capability(capability);
      auto calling =
          calls_.call(id, tail.node, kChunks, std::move(request), {}, attempts.until(kLastNs));
      auto reply = co_await std::move(calling);
      if (reply) {
        Found found{.run = reply->run()};
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
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

Task<Result<std::vector<uint64_t>>> Client::inodes(cluster::ChainId id, uint64_t from,
                                                   uint32_t limit) {
  Attempts attempts(*this);
  for (;;) {
    if (const cluster::Chain* const chain = attempts.chain(id)) {
      const cluster::Target tail = *reading_tail(*chain);
      wire::InodesRequest request;
      *request.mutable_place() = place_of(*chain, tail.id);
      request.set_from(from);
      request.set_limit(limit);
      auto calling =
          calls_.call(id, tail.node, kInodes, std::move(request), {}, attempts.until(kLastNs));
      auto reply = co_await std::move(calling);
      if (reply) co_return std::vector<uint64_t>(reply->inodes().begin(), reply->inodes().end());
      attempts.failed(std::move(reply).error());
    }
    auto waiting = attempts.again();
    FF_CO_TRY(co_await std::move(waiting));
  }
}

}  // namespace ff::chain
