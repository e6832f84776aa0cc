// system_transport.cc: negotiates the transport of a connection, on both ends, and sets it up.
#include "platform/net/system_transport.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/net/peer_user.h"
#include "platform/net/shm.h"
#include "platform/net/socket.h"

namespace ff::net {

namespace {

// Deadline for TLS handshake and preface of an accepted connection.
constexpr int64_t kPrefaceNs = 10 * kSecond;
// A peer on this host connects to the Unix socket immediately or not at all.
constexpr int64_t kSharedNs = 3 * kSecond;
// How long a transport that did not work is excluded.
constexpr int64_t kFailedNs = 60 * kSecond;
constexpr size_t kFailedMax = 10'000;  // addresses remembered
// Interval of checks for a new RDMA device.
constexpr int64_t kDeviceCheckNs = 10 * kSecond;

Address region_address(const std::array<std::byte, 16>& name) {
  return {"", 0, "@ff-" + hex(name)};
}

StreamCredentials credentials_of(const TransportOptions& options) {
  if (options.keyring == nullptr) return {};
  return {options.keyring, TlsContext::make(options.keyring), options.certificates};
}

// Takes the shard word from the socket, if the peer sent one first. Whatever it sent is longer.
Task<Result<std::optional<uint32_t>>> read_shard_word(Loop& loop, Socket& socket) {
  FF_CO_TRY(const auto stream, SocketStream::make(loop, std::move(socket)));
  std::array<std::byte, kShardWordBytes> bytes;
  FF_CO_TRY(co_await stream->peek(bytes));
  const std::optional<uint32_t> shard = parse_shard_word(bytes);
  if (shard) FF_CO_TRY(co_await read_all(*stream, bytes));
  socket = stream->release();
  co_return shard;
}

// Users of this machine share its address, so they count one by one; root and this process's own
// user without a limit.
std::string source_of(const Socket& socket) {
  std::optional<uint32_t> user = local_user_of(socket.peer, socket.local);
  if (socket.peer.is_unix()) {
    if (const auto uid = unix_peer_user(socket.fd.get())) user = *uid;
  }
  if (!user) return socket.peer.host;
  return *user == 0 || *user == ::geteuid() ? std::string() : fmt::format("uid {}", *user);
}

Task<Result<std::unique_ptr<SocketStream>>> make_stream(Loop& loop, Socket socket) {
  FF_CO_TRY(auto stream, SocketStream::make(loop, std::move(socket)));
  stream->keep_alive();
  co_return stream;
}

Task<Result<TransportOffer>> read_offer(Stream& stream) {
  std::array<std::byte, kOfferBytes> bytes;
  FF_CO_TRY(co_await read_all(stream, bytes));
  co_return parse_offer(bytes);
}

Task<Result<TransportChoice>> read_choice(Stream& stream, TransportOffer offer) {
  FF_CO_TRY(co_await write_all(stream, encode_offer(offer)));
  std::array<std::byte, kChoiceBytes> bytes;
  FF_CO_TRY(co_await read_all(stream, bytes));
  FF_CO_TRY(const TransportChoice choice, parse_choice(bytes));
  if (choice.kind == TransportKind::key) {
    Error error = fail(Errc::refused, "connection refused: no key or token was given");
    error.hint = "Give this end a key, too (--key), or a user's token (--token).";
    co_return error;
  }
  if (choice.kind == TransportKind::none) {
    Error error =
        fail(Errc::refused, "the peer accepts none of the transports that this end offers ({})",
             transport_names(offer.kinds));
    error.hint = "Give both ends the same --net.";
    co_return error;
  }
  if (!has(offer.kinds, choice.kind)) {
    co_return fail(Errc::corrupt, "the peer chose a transport that was not offered");
  }
  co_return choice;
}

}  // namespace

// An accepted TCP connection whose preface has not been read.
class SystemTransport::SystemIncomingConnection final : public IncomingConnection {
 public:
  SystemIncomingConnection(SystemTransport& transport, Socket socket)
      : transport_(transport),
        peer_(socket.peer.text()),
        source_(source_of(socket)),
        socket_(std::move(socket)) {}

  std::string peer() const override { return peer_; }
  std::string source() const override { return source_; }
  Task<Result<std::optional<uint32_t>>> read_shard(Loop& loop) override {
    if (std::exchange(shard_read_, true)) co_return shard_;
    auto reading = read_shard_word(loop, socket_);
    auto read =
        co_await with_deadline(loop, loop.now_ns() + kPrefaceNs,
                               "the peer did not begin its handshake in time", std::move(reading));
    if (!read) co_return std::move(read).error().with_context(peer_ + ": ");
    co_return shard_ = *read;
  }
  Task<Result<std::unique_ptr<Connection>>> open(Loop& loop) override {
    FF_CO_TRY(co_await read_shard(loop));
    auto made = co_await transport_.accept(loop, std::move(socket_));
    if (!made) co_return std::move(made).error().with_context(peer_ + ": ");
    co_return made;
  }

 private:
  SystemTransport& transport_;
  const std::string peer_;
  const std::string source_;
  Socket socket_;
  bool shard_read_ = false;
  std::optional<uint32_t> shard_;
};

class SystemTransport::SystemListener final : public Listener {
 public:
  SystemListener(SystemTransport& transport, std::unique_ptr<SocketListener> listener)
      : transport_(transport), listener_(std::move(listener)) {}

  const Address& address() const override { return listener_->address(); }
  Task<Result<std::unique_ptr<IncomingConnection>>> accept() override {
    FF_CO_TRY(auto socket, co_await listener_->accept());
    std::unique_ptr<IncomingConnection> arrival =
        std::make_unique<SystemIncomingConnection>(transport_, std::move(socket));
    co_return arrival;
  }

 private:
  SystemTransport& transport_;
  std::unique_ptr<SocketListener> listener_;
};

SystemTransport::SystemTransport(TransportOptions options)
    : options_(std::move(options)), credentials_(credentials_of(options_)) {}

SystemTransport::~SystemTransport() = default;

Result<ByteSpan> SystemTransport::allocate_shared_memory(uint64_t size) {
  FF_TRY(auto region, regions_.make(size));
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(region));
  return memory_.back()->memory();
}

Result<Fd> SystemTransport::memory_fd(ByteView memory) const {
  const auto region = regions_.find(memory);
  if (region == nullptr) return fail(Errc::usage, "not shared memory");
  return open_again(region->fd());
}

void SystemTransport::continue_shared_memory(ByteSpan memory, Fd fd) {
  auto region = regions_.adopt(memory, std::move(fd));
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(region));
}

std::shared_ptr<const SharedRegion> SystemTransport::adopt_memory(Loop& loop, ByteSpan memory,
                                                                  Fd fd) {
  auto region = regions_.adopt(memory, std::move(fd));
  LoopState& mine = state_of(loop);
  mine.adopted[region->id()] = region;
  for (Device& device : mine.devices) {
    device.cacheable.emplace(region->id(),
                             device.verbs->registrations().cacheable(region->memory()));
  }
  return region;
}

void SystemTransport::release_memory(Loop& loop, const SharedRegion& region) {
  LoopState& mine = state_of(loop);
  for (Device& device : mine.devices) device.cacheable.erase(region.id());
  const auto last = mine.adopted.extract(region.id());
  regions_.remove(region);
}

std::string SystemTransport::rdma_device(Loop& loop) {
  const LoopState& mine = state_of(loop);
  return mine.devices.empty() ? "" : mine.devices.back().verbs->name();
}

Task<void> SystemTransport::drain(Loop& loop) {
  for (Device& device : state_of(loop).devices) co_await device.verbs->drain();
}

SystemTransport::LoopState& SystemTransport::state_of(Loop& loop) {
  const std::lock_guard lock(mutex_);
  return loop_states_[&loop];
}

Result<VerbsDevice*> SystemTransport::device(Loop& loop) {
  LoopState& mine = state_of(loop);
  if (mine.devices.empty() || mine.devices.back().verbs->failed()) {
    if (mine.error && loop.now_ns() < mine.checked_ns + kDeviceCheckNs) return *mine.error;
    mine.checked_ns = loop.now_ns();
    auto opened = VerbsDevice::open(loop, options_.verbs);
    if (!opened) {
      mine.error = std::move(opened).error();
      return *mine.error;
    }
    mine.error.reset();
    mine.devices.push_back({std::move(*opened), {}});
  }
  Device& device = mine.devices.back();
  const std::lock_guard lock(mutex_);
  const auto make_cacheable = [&](const SharedRegion& region) {
    if (device.cacheable.contains(region.id())) return;
    device.cacheable.emplace(region.id(), device.verbs->registrations().cacheable(region.memory()));
  };
  for (const auto& region : memory_) make_cacheable(*region);
  for (const auto& [id, region] : mine.adopted) make_cacheable(*region);
  return device.verbs.get();
}

Result<TransportKinds> SystemTransport::available_transports(Loop& loop, const Address& local,
                                                             const Address& peer,
                                                             const auth::Entity* client) {
  TransportKinds kinds = 0;
  if (options_.mode != NetMode::verbs) kinds |= static_cast<TransportKinds>(TransportKind::stream);
  if (kinds != 0 && options_.trusted_network && options_.keyring != nullptr) {
    kinds |= static_cast<TransportKinds>(TransportKind::plain);
  }
  // Equal addresses: both ends are on this host.
  if (options_.mode == NetMode::automatic && local.host == peer.host) {
    kinds |= static_cast<TransportKinds>(TransportKind::shm);
  }
  const bool is_user = client != nullptr && client->role == auth::Role::user;
  if (options_.mode != NetMode::tcp && !is_user) {
    auto found = device(loop);
    if (found) kinds |= static_cast<TransportKinds>(TransportKind::verbs);
    if (!found && options_.mode == NetMode::verbs) return std::move(found).error();
  }
  return kinds;
}

TransportKinds SystemTransport::failed_transports(Loop& loop, const Address& to) {
  const std::lock_guard lock(mutex_);
  const auto found = failed_.find(to.text());
  if (found == failed_.end()) return 0;
  if (loop.now_ns() < found->second.until_ns) return found->second.kinds;
  failed_.erase(found);
  return 0;
}

std::shared_ptr<const void> SystemTransport::count_shm(const auth::Entity& user) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shm_connections_, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<int>& known = shm_connections_[user.full_name()];
  if (known.use_count() >= kUserShmConnections) return nullptr;
  auto counted = known.expired() ? std::make_shared<int>() : known.lock();
  known = counted;
  return counted;
}

void SystemTransport::exclude(Loop& loop, const Address& to, TransportKind kind,
                              const Error& error) {
  log_warning("connecting over another transport",
              {{"address", to.text()},
               {"without", transport_names(static_cast<TransportKinds>(kind))},
               {"error", error.message}});
  const std::lock_guard lock(mutex_);
  if (failed_.size() >= kFailedMax) failed_.clear();
  FailedTransports& failed = failed_[to.text()];
  failed.kinds |= static_cast<TransportKinds>(kind);
  failed.until_ns = loop.now_ns() + kFailedNs;
}

Task<Result<std::unique_ptr<Connection>>> SystemTransport::open_shm(Loop& loop, Socket socket,
                                                                    UnixPeer peer) {
  socket.peer_name = peer.name + " (shm)";
  FF_CO_TRY(auto stream, SocketStream::make(loop, std::move(socket)));
  FF_CO_TRY(const uint32_t uid, unix_peer_user(stream->fd()));
  // A process of another user may have taken the name of the socket.
  if (uid != peer.uid) {
    co_return fail(Errc::unreachable, "user {} is at the Unix socket of {}, not user {}", uid,
                   peer.name, peer.uid);
  }
  if (peer.secret) {
    auto proving = prove_secret(*stream, *peer.secret, peer.is_server);
    FF_CO_TRY(co_await with_deadline(loop, loop.now_ns() + kSharedNs,
                                     "no proof arrived over the Unix socket in time",
                                     std::move(proving)));
  }
  auto bulk = std::make_unique<ShmBulk>(loop, regions_, std::move(peer.user));
  co_return std::make_unique<Connection>(loop, std::move(stream), std::move(bulk));
}

Task<Result<std::unique_ptr<Connection>>> SystemTransport::connect(Loop& loop, Address to,
                                                                   auth::Service service) {
  const CancellationToken* const cancel = co_await current_cancellation();
  for (;;) {
    TransportKind kind = TransportKind::none;
    auto made = co_await attempt(loop, to, service, kind);
    const bool another = (kind == TransportKind::shm || kind == TransportKind::verbs) &&
                         options_.mode != NetMode::verbs;
    if (made || !another) co_return made;
    if (cancel != nullptr && cancel->requested()) co_return made;
    if (made.error().code != Errc::unreachable && made.error().code != Errc::deadline) {
      co_return made;
    }
    exclude(loop, to, kind, made.error());
  }
}

// Sets `kind` as soon as the server has chosen.
Task<Result<std::unique_ptr<Connection>>> SystemTransport::attempt(Loop& loop, Address to,
                                                                   auth::Service service,
                                                                   TransportKind& kind) {
  FF_CO_TRY(auto socket, co_await connect_socket(loop, to));
  const std::string peer = socket.peer.text();
  const auth::Entity* const self =
      options_.keyring != nullptr ? &options_.keyring->self() : nullptr;
  FF_CO_TRY(const TransportKinds mine, available_transports(loop, socket.local, socket.peer, self));
  const TransportOffer offer = {static_cast<TransportKinds>(mine & ~failed_transports(loop, to)),
                                ::geteuid()};
  FF_CO_TRY(auto tcp, co_await make_stream(loop, std::move(socket)));
  if (to.shard) {
    const auto word = encode_shard_word(*to.shard);
    FF_CO_TRY(co_await write_all(*tcp, word));
  }
  TlsServer expected{.host = to.host, .service = std::move(service)};
  auto secured = co_await connect_secure_stream(std::move(tcp), credentials_, std::move(expected));
  if (!secured) co_return std::move(secured).error().with_context(peer + ": ");
  auto choice = co_await read_choice(*secured->stream, offer);
  if (!choice) co_return std::move(choice).error().with_context(peer + ": ");
  kind = choice->kind;
  Result<std::unique_ptr<Connection>> made(nullptr);
  if (kind == TransportKind::shm) {
    FF_CO_TRY(auto inside, co_await connect_socket(loop, region_address(choice->name)));
    UnixPeer server{true, choice->uid, secured->secret, peer, nullptr};
    made = co_await open_shm(loop, std::move(inside), std::move(server));
  } else if (kind == TransportKind::verbs) {
    FF_CO_TRY(VerbsDevice* const verbs, device(loop));
    made = co_await connect_verbs(*verbs, std::move(secured->stream), peer);
  } else if (kind == TransportKind::plain) {
    made = std::make_unique<Connection>(loop, secured->take_plain(), nullptr);
  } else {
    made = std::make_unique<Connection>(loop, std::move(secured->stream), nullptr);
  }
  if (made) (*made)->set_proof(std::move(secured->proof));
  co_return made;
}

Task<Result<std::unique_ptr<Connection>>> SystemTransport::accept(Loop& loop, Socket socket) {
  const std::string peer = socket.peer.text();
  const Address local = socket.local;
  const Address remote = socket.peer;
  const int64_t deadline_ns = loop.now_ns() + kPrefaceNs;
  FF_CO_TRY(auto tcp, co_await make_stream(loop, std::move(socket)));
  auto securing = accept_secure_stream(std::move(tcp), credentials_);
  FF_CO_TRY(
      SecureStream secured,
      co_await with_deadline(loop, deadline_ns, "the peer did not finish the TLS handshake in time",
                             std::move(securing)));
  const auth::Entity* const client = secured.proof.client ? &*secured.proof.client : nullptr;
  FF_CO_TRY(TransportKinds mine, available_transports(loop, local, remote, client));
  std::shared_ptr<const void> user;
  if (client != nullptr && client->role == auth::Role::user) {
    user = count_shm(*client);
    if (user == nullptr) mine &= ~static_cast<TransportKinds>(TransportKind::shm);
  }
  auto reading = read_offer(*secured.stream);
  auto offered = co_await with_deadline(
      loop, deadline_ns, "the peer sent no transport offer in time", std::move(reading));
  if (!offered) {
    // A peer with a key waits for TLS: bytes that are not TLS end that at once.
    const TransportChoice none = {TransportKind::none, 0, {}};
    if (offered.error().code == Errc::refused) {
      (void)co_await write_all(*secured.stream, encode_choice(none));
    }
    co_return std::move(offered).error();
  }
  const TransportOffer offer = *offered;
  TransportChoice choice = {best_transport(offer.kinds, mine), ::geteuid(), {}};
  std::unique_ptr<SocketListener> inside;
  if (choice.kind == TransportKind::shm) {
    auth::SecureRng rng;
    auth::fill_random(choice.name, rng);
    FF_CO_TRY(inside, SocketListener::listen(loop, region_address(choice.name)));
  }
  const auto chosen = encode_choice(choice);
  auto writing = write_all(*secured.stream, chosen);
  FF_CO_TRY(
      co_await with_deadline(loop, deadline_ns, "the peer does not read", std::move(writing)));
  Result<std::unique_ptr<Connection>> made(nullptr);
  switch (choice.kind) {
    case TransportKind::stream:
      made = std::make_unique<Connection>(loop, std::move(secured.stream), nullptr);
      break;
    case TransportKind::plain:
      made = std::make_unique<Connection>(loop, secured.take_plain(), nullptr);
      break;
    case TransportKind::shm: {
      UnixPeer from{false, offer.uid, secured.secret, peer, std::move(user)};
      made = co_await accept_shm(loop, *inside, std::move(from));
      break;
    }
    case TransportKind::verbs: {
      FF_CO_TRY(VerbsDevice* const verbs, device(loop));
      made = co_await connect_verbs(*verbs, std::move(secured.stream), peer);
      break;
    }
    case TransportKind::key:
    case TransportKind::none:
      made = fail(Errc::refused, "the peer offers {}, this end accepts {} (--net)",
                  transport_names(offer.kinds), transport_names(mine));
  }
  if (made) (*made)->set_proof(std::move(secured.proof));
  co_return made;
}

// The connection of the client to the Unix socket. Others may connect before it: they are refused.
Task<Result<std::unique_ptr<Connection>>> SystemTransport::accept_shm(Loop& loop,
                                                                      SocketListener& listener,
                                                                      UnixPeer peer) {
  const int64_t deadline_ns = loop.now_ns() + kSharedNs;
  int refused = 0;
  for (;;) {
    auto accepting = listener.accept();
    FF_CO_TRY(auto socket,
              co_await with_deadline(loop, deadline_ns,
                                     "the peer did not connect to the Unix socket in time",
                                     std::move(accepting)));
    auto made = co_await open_shm(loop, std::move(socket), peer);
    if (made || loop.now_ns() >= deadline_ns) co_return made;
    // Once: a stranger may come again and again.
    if (++refused == 1) {
      log_warning("refused a stranger at a Unix socket", {{"error", made.error().message}});
    }
  }
}

Result<std::unique_ptr<Listener>> SystemTransport::listen(Loop& loop, const Address& at) {
  if (options_.mode == NetMode::verbs && !at.is_unix()) {
    FF_TRY(device(loop));
  }
  FF_TRY(auto listener, SocketListener::listen(loop, at));
  return std::unique_ptr<Listener>(std::make_unique<SystemListener>(*this, std::move(listener)));
}

}  // namespace ff::net
