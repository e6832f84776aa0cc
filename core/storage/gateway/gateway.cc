// gateway.cc: accepts clients, runs commands, and looks after both.
#include "storage/gateway/gateway.h"

#include <array>
#include <functional>
#include <utility>

#include "platform/base/audit.h"
#include "platform/base/log.h"
#include "platform/base/wait.h"
#include "platform/net/accept.h"
#include "storage/gateway/gateway_connection.h"
#include "storage/gateway/leftover_sweep.h"

namespace ff::gateway {

namespace {

constexpr int64_t kAuthNs = 30 * kSecond;  // for a client to authenticate
constexpr int64_t kSweepNs = 3 * kSecond;
constexpr int64_t kOwnersNs = kSecond / 4;
constexpr int64_t kIdleNs = 10 * kSecond;  // then a client gives memory back
constexpr int64_t kDrainPollNs = 5 * kMillisecond;
constexpr int kAttemptsMax = 10;  // of a command whose keys change meanwhile
// While nobody serves a partition, its commands wait: for the lease of a process that has died, and
// for the claim of the next one; or until the process to which it is given serves it.
constexpr int64_t kOwnerWaitNs = 10 * kSecond;
constexpr int64_t kOwnerPollNs = 50 * kMillisecond;

// Where several gateways share the keys, those of a command are of one slot, as in Redis Cluster:
// otherwise chance would decide whether they lie together.
Result<void> check_slots(const kvstore::Store& store, const CommandRow& row,
                         const RespRequest& words) {
  const bool many = row.last_key != row.first_key || row.has(kStreamKeys) || row.has(kCountedKeys);
  if (!many || !store.is_shared()) return {};
  return check_one_slot(keys_of(row, words));
}

}  // namespace

Gateway::Gateway(Loop& loop, Rng& rng, Metrics& metrics, const PasswordCheck& passwords,
                 GatewayOptions options)
    : loop_(loop),
      rng_(rng),
      metrics_(metrics),
      passwords_(passwords),
      options_(std::move(options)),
      locks_(loop),
      cache_(options_.cache_bytes),
      waits_(loop),
      started_ns_(loop.now_ns()),
      durations_(metrics.histogram("ff_gateway_command_seconds", "Time that commands take")),
      accept_gate_(loop),
      connection_gate_(loop) {}

Gateway::~Gateway() = default;

Result<net::Address> Gateway::listen(const net::Address& address) {
  FF_TRY(listener_, net::SocketListener::listen(loop_, address));
  address_ = listener_->address();
  return address_;
}

Result<net::Address> Gateway::listen(net::InheritedSocket socket) {
  FF_TRY(listener_, net::SocketListener::adopt(loop_, std::move(socket)));
  address_ = listener_->address();
  return address_;
}

void Gateway::start(kvstore::Store& store, std::string address) {
  access_.emplace(StoreAccess{store, loop_, std::move(address), cache_, watched_, waits_});
  if (listener_ != nullptr) {
    accept_gate_.spawn(
        net::accept_sockets(accept_gate_, *listener_, std::bind_front(&Gateway::admit, this)));
  }
  accept_gate_.spawn(sweep());
  accept_gate_.spawn(watch_owners());
  accept_gate_.spawn(sweep_leftovers(*access_, locks_));
}

Task<void> Gateway::close(int64_t drain_ns) {
  Error reason = fail(Errc::interrupted, "the gateway goes down");
  co_await accept_gate_.close(reason);
  listener_.reset();
  for (const auto& [id, connection] : connections_) connection->drain();
  const int64_t until_ns = loop_.now_ns() + drain_ns;
  while (connection_gate_.running() > 0 && loop_.now_ns() < until_ns) {
    if (!co_await sleep_for(loop_, kDrainPollNs)) break;
  }
  co_await connection_gate_.close(std::move(reason));
}

void Gateway::admit(net::Socket socket) {
  if (connections_.size() + connecting_ >= options_.connections_max) {
    return refuse(std::move(socket));
  }
  connecting_++;
  connection_gate_.spawn(serve(std::move(socket)));
}

void Gateway::refuse(net::Socket socket) {
  metrics_.counter("ff_gateway_refused_total", "Connections beyond the limit").add();
  if (options_.certificates != nullptr) return;
  const auto stream = net::SocketStream::make(loop_, std::move(socket));
  if (!stream) return;
  const std::array<ByteView, 1> text = {as_bytes("-ERR max number of clients reached\r\n")};
  (void)(*stream)->try_write(text);
}

Task<void> Gateway::serve(net::Socket socket) {
  RedisClient client;
  client.id = next_id_++;
  client.address = socket.peer.text();
  client.local_address = socket.local.text();
  client.fd = socket.fd.get();
  client.connected_ns = client.active_ns = loop_.now_ns();
  client.authenticated = !passwords_.required();
  auto stream = co_await net::open_accepted(loop_, std::move(socket), options_.certificates);
  connecting_--;
  if (!stream) {
    audit("refused", client.address, {{"error", stream.error().message}});
    co_return;
  }
  RedisConnection connection(*this, std::move(*stream), std::move(client));
  co_await connection.run();
}

// Ends clients that do not authenticate, and those whose keys have become invalid.
Task<void> Gateway::sweep() {
  for (;;) {
    const auto waited = co_await sleep_for(loop_, kSweepNs);
    if (!waited) co_return;
    const int64_t now_ns = loop_.now_ns();
    for (const auto& [id, connection] : connections_) {
      const RedisClient& client = connection->client();
      if (!client.authenticated && client.connected_ns + kAuthNs < now_ns) connection->drain();
      if (client.entity && !passwords_.still_valid(*client.entity)) connection->drain();
      if (client.active_ns + kIdleNs < now_ns) connection->release_idle_memory();
    }
    update_gauges();
  }
}

// When partitions have gone to other owners: versions are known only from one claim to its end,
// what happens to watched keys is not known any more, and commands that wait tell their clients
// where to ask.
Task<void> Gateway::watch_owners() {
  for (;;) {
    const auto waited = co_await sleep_for(loop_, kOwnersNs);
    if (!waited) co_return;
    if (store().losses() == losses_) continue;
    losses_ = store().losses();
    cache_.clear();
    watched_.note_all_changed();
    waits_.announce_all();
  }
}

void Gateway::update_gauges() {
  size_t unsent = 0;
  for (const auto& [id, connection] : connections_) unsent += connection->unsent();
  metrics_.gauge("ff_gateway_connections", "Open connections of clients")
      .set(static_cast<int64_t>(connections_.size()));
  metrics_.gauge("ff_gateway_waiting_commands", "Commands that wait for a key, such as BLPOP")
      .set(static_cast<int64_t>(waits_.commands()));
  metrics_.gauge("ff_gateway_unsent_bytes", "Bytes of replies that clients have not taken")
      .set(static_cast<int64_t>(unsent));
  metrics_.gauge("ff_gateway_cache_bytes", "Bytes of values that were read last")
      .set(static_cast<int64_t>(cache_.bytes()));
}

Counter& Gateway::counter_of(const CommandRow& row) {
  Counter*& counter = counters_[&row];
  if (counter == nullptr) {
    counter = &metrics_.counter("ff_gateway_commands_total", "Commands that were run",
                                {{"command", std::string(row.name)}});
  }
  return *counter;
}

uint64_t Gateway::keys() const {
  uint64_t keys = 0;
  for (uint32_t i = 0; i < store().partitions(); i++) keys += store().counts(i).keys;
  return keys;
}

uint32_t Gateway::owned_partitions() const {
  uint32_t owned = 0;
  for (uint32_t i = 0; i < store().partitions(); i++) owned += store().owned(i) ? 1 : 0;
  return owned;
}

bool Gateway::get_cached(const RedisClient& client, const CommandRow& row, const RespRequest& words,
                         std::string& reply) {
  if (locks_.is_used(words[1])) return false;
  const int64_t begin_ns = loop_.now_ns();
  const auto cached = access_->find_cached(words[1]);
  if (!cached) return false;
  RespWriter writer(reply, client.version);
  if (cached->value == nullptr) {
    writer.null();
  } else if (stored_type(*cached->value) != ValueType::string) {
    writer.error(wrong_type().message);
  } else if (is_plain_string(*cached->value)) {
    writer.bulk(*cached->value);
  } else {
    writer.bulk(decode_string(*cached->value));
  }
  commands_run_++;
  counter_of(row).add();
  durations_.observe_ns(loop_.now_ns() - begin_ns);
  return true;
}

Task<void> Gateway::execute(RedisClient& client, const CommandRow& row, const RespRequest& words,
                            std::string& reply, CommandWait* wait) {
  const int64_t begin_ns = loop_.now_ns();
  commands_run_++;
  counter_of(row).add();
  Result<void> done;
  for (int attempt = 0; attempt < kAttemptsMax;) {
    StoreView view(*access_, now_ms());
    RespWriter writer(reply, client.version);
    if (wait != nullptr) *wait = CommandWait();
    CommandCall call{*this, client, row, words, view, writer, wait};
    done = check_slots(access_->store, row, words);
    if (done) done = co_await row.handler(call);
    if (done) {
      const auto committed = co_await view.commit();
      if (committed && *committed) break;
      if (!committed) done = committed.error();
    }
    reply.clear();
    if (done) {
      done = fail(Errc::stale, "TRYAGAIN the keys change too often");
      attempt++;
      continue;
    }
    const bool waits = done.error().code == Errc::busy && !row.has(kRunsInMulti) &&
                       loop_.now_ns() < begin_ns + kOwnerWaitNs;
    if (!waits) break;
    const auto waited = co_await sleep_for(loop_, kOwnerPollNs);
    if (!waited) break;
  }
  if (!done && wait != nullptr) *wait = CommandWait();
  if (!done) RespWriter(reply, client.version).error(done.error().message);
  durations_.observe_ns(loop_.now_ns() - begin_ns);
}

}  // namespace ff::gateway
