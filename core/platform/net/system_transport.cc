// system_transport.cc: settling the way of a connection, on both ends, and what each way needs.
#include "platform/net/system_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/net/shm.h"
#include "platform/net/socket.h"

namespace ff::net {

namespace {

// From the accepted TCP connection to the way of its bytes; each part of it.
constexpr int64_t kPrefaceNs = 10 * kSecond;
// A peer on this host connects to the Unix socket at once, or cannot.
constexpr int64_t kSharedNs = 3 * kSecond;
// How long a way that did not work is left out.
constexpr int64_t kFailedNs = 60 * kSecond;
constexpr size_t kFailedMax = 10'000;  // addresses remembered
// Whether there is a device now is asked again so often.
constexpr int64_t kLookAgainNs = 10 * kSecond;

Address region_address(const std::array<std::byte, 16>& name) {
  return {"", 0, "@ff-" + hex(name)};
}

// A TCP connection, and TLS over it when it is wanted.
struct Line {
  std::unique_ptr<SocketStream> socket;  // null below TLS
  std::unique_ptr<Stream> tls;

  Stream& stream() { return tls != nullptr ? *tls : *socket; }
  std::unique_ptr<Stream> take() {
    return tls != nullptr ? std::move(tls) : std::unique_ptr<Stream>(std::move(socket));
  }
};

Task<Result<Line>> client_line(Loop& loop, Socket socket, std::shared_ptr<const TlsContext> context,
                               std::string host) {
  Line line;
  FF_CO_TRY(line.socket, SocketStream::make(loop, std::move(socket)));
  if (context != nullptr) {
    FF_CO_TRY(line.tls, co_await TlsStream::connect(std::move(line.socket), context, host));
  }
  co_return line;
}

Task<Result<Line>> server_line(Loop& loop, Socket socket,
                               std::shared_ptr<const TlsContext> context) {
  Line line;
  FF_CO_TRY(line.socket, SocketStream::make(loop, std::move(socket)));
  if (context != nullptr) {
    FF_CO_TRY(line.tls, co_await TlsStream::accept(std::move(line.socket), context));
  }
  co_return line;
}

Task<Result<Offer>> read_offer(Stream& stream) {
  std::array<std::byte, kOfferBytes> bytes;
  FF_CO_TRY(co_await read_all(stream, bytes));
  co_return parse_offer(bytes);
}

Task<Result<Choice>> read_choice(Stream& stream, Offer offer) {
  FF_CO_TRY(co_await write_all(stream, encode_offer(offer)));
  std::array<std::byte, kChoiceBytes> bytes;
  FF_CO_TRY(co_await read_all(stream, bytes));
  FF_CO_TRY(const Choice choice, parse_choice(bytes));
  if (choice.way == Way::none) {
    Error error =
        fail(Errc::refused, "it takes nothing of what this end offers ({})", ways_text(offer.ways));
    error.hint = "Give both ends the same --net.";
    co_return error;
  }
  if (!has(offer.ways, choice.way)) {
    co_return fail(Errc::corrupt, "it chose a way that was not offered");
  }
  co_return choice;
}

}  // namespace

// A TCP connection that has come; its preface has not been read.
class SystemTransport::SystemArrival final : public Arrival {
 public:
  SystemArrival(SystemTransport& transport, Socket socket)
      : transport_(transport), peer_(socket.peer.text()), socket_(std::move(socket)) {}

  std::string peer() const override { return peer_; }
  Task<Result<std::unique_ptr<Connection>>> open(Loop& loop) override {
    auto accepting = transport_.accept(loop, std::move(socket_));
    auto made = co_await std::move(accepting);
    if (!made) co_return std::move(made).error().within(peer_ + ": ");
    co_return made;
  }

 private:
  SystemTransport& transport_;
  const std::string peer_;
  Socket socket_;
};

class SystemTransport::SystemListener final : public Listener {
 public:
  SystemListener(SystemTransport& transport, std::unique_ptr<SocketListener> listener)
      : transport_(transport), listener_(std::move(listener)) {}

  const Address& address() const override { return listener_->address(); }
  Task<Result<std::unique_ptr<Arrival>>> accept() override {
    FF_CO_TRY(auto socket, co_await listener_->accept());
    std::unique_ptr<Arrival> arrival =
        std::make_unique<SystemArrival>(transport_, std::move(socket));
    co_return arrival;
  }

 private:
  SystemTransport& transport_;
  std::unique_ptr<SocketListener> listener_;
};

SystemTransport::SystemTransport(TransportOptions options) : options_(std::move(options)) {}

SystemTransport::~SystemTransport() = default;

Result<ByteSpan> SystemTransport::memory(uint64_t size) {
  FF_TRY(auto region, regions_.make(size));
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(region));
  return memory_.back()->memory();
}

std::shared_ptr<const Region> SystemTransport::adopt(Loop& loop, ByteSpan memory, Fd fd) {
  auto region = regions_.adopt(memory, std::move(fd));
  OfLoop& mine = of(loop);
  mine.adopted[region->id()] = region;
  for (Device& device : mine.devices) {
    device.lasting.emplace(region->id(), device.verbs->memory().lasting(region->memory()));
  }
  return region;
}

void SystemTransport::give_back(Loop& loop, const Region& region) {
  OfLoop& mine = of(loop);
  for (Device& device : mine.devices) device.lasting.erase(region.id());
  const auto last = mine.adopted.extract(region.id());
  regions_.remove(region);
}

std::string SystemTransport::rdma_device(Loop& loop) {
  const OfLoop& mine = of(loop);
  return mine.devices.empty() ? "" : mine.devices.back().verbs->name();
}

Task<void> SystemTransport::settled(Loop& loop) {
  for (Device& device : of(loop).devices) co_await device.verbs->settled();
}

SystemTransport::OfLoop& SystemTransport::of(Loop& loop) {
  const std::lock_guard lock(mutex_);
  return of_loops_[&loop];
}

Result<VerbsDevice*> SystemTransport::device(Loop& loop) {
  OfLoop& mine = of(loop);
  if (mine.devices.empty() || mine.devices.back().verbs->lost()) {
    if (mine.error && loop.now_ns() < mine.looked_ns + kLookAgainNs) return *mine.error;
    mine.looked_ns = loop.now_ns();
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
  const auto tell = [&](const Region& region) {
    if (device.lasting.contains(region.id())) return;
    device.lasting.emplace(region.id(), device.verbs->memory().lasting(region.memory()));
  };
  for (const auto& region : memory_) tell(*region);
  for (const auto& [id, region] : mine.adopted) tell(*region);
  return device.verbs.get();
}

Result<Ways> SystemTransport::ways(Loop& loop, const Address& local, const Address& peer) {
  Ways ways = 0;
  if (options_.use != NetUse::verbs) ways |= static_cast<Ways>(Way::stream);
  // One address for both ends: nothing lies between them.
  if (options_.use == NetUse::automatic && local.host == peer.host) {
    ways |= static_cast<Ways>(Way::shm);
  }
  if (options_.use != NetUse::tcp && options_.tls == nullptr && !options_.token) {
    auto found = device(loop);
    if (found) ways |= static_cast<Ways>(Way::verbs);
    if (!found && options_.use == NetUse::verbs) return std::move(found).error();
  }
  return ways;
}

Ways SystemTransport::failed_ways(Loop& loop, const Address& to) {
  const std::lock_guard lock(mutex_);
  const auto found = failed_.find(to.text());
  if (found == failed_.end()) return 0;
  if (loop.now_ns() < found->second.until_ns) return found->second.ways;
  failed_.erase(found);
  return 0;
}

void SystemTransport::leave_out(Loop& loop, const Address& to, Way way, const Error& error) {
  log_warning("connecting in another way", {{"address", to.text()},
                                            {"without", ways_text(static_cast<Ways>(way))},
                                            {"error", error.message}});
  const std::lock_guard lock(mutex_);
  if (failed_.size() >= kFailedMax) failed_.clear();
  Failed& failed = failed_[to.text()];
  failed.ways |= static_cast<Ways>(way);
  failed.until_ns = loop.now_ns() + kFailedNs;
}

Result<std::unique_ptr<Connection>> SystemTransport::shared(Loop& loop, Socket socket) {
  FF_TRY(auto stream, SocketStream::make(loop, std::move(socket)));
  return std::make_unique<Connection>(loop, std::move(stream),
                                      std::make_unique<ShmBulk>(loop, regions_));
}

Task<Result<std::unique_ptr<Connection>>> SystemTransport::connect(Loop& loop, Address to) {
  if (to.is_unix()) {
    FF_CO_TRY(auto socket, co_await connect_socket(loop, std::move(to)));
    co_return shared(loop, std::move(socket));
  }
  const Cancel* const cancel = co_await current_cancel();
  for (;;) {
    Way way = Way::none;
    auto attempting = attempt(loop, to, way);
    auto made = co_await std::move(attempting);
    const bool another = (way == Way::shm || way == Way::verbs) && options_.use != NetUse::verbs;
    if (made || !another) co_return made;
    if (cancel != nullptr && cancel->requested()) co_return made;
    if (made.error().code != Errc::unreachable && made.error().code != Errc::deadline) {
      co_return made;
    }
    leave_out(loop, to, way, made.error());
  }
}

// Sets `way` once it is settled.
Task<Result<std::unique_ptr<Connection>>> SystemTransport::attempt(Loop& loop, Address to,
                                                                   Way& way) {
  FF_CO_TRY(auto socket, co_await connect_socket(loop, to));
  const std::string peer = socket.peer.text();
  FF_CO_TRY(const Ways mine, ways(loop, socket.local, socket.peer));
  const Offer offer = {static_cast<Ways>(mine & ~failed_ways(loop, to))};
  auto connecting = client_line(loop, std::move(socket), options_.tls, to.host);
  FF_CO_TRY(Line line, co_await std::move(connecting));
  auto reading = read_choice(line.stream(), offer);
  auto choice = co_await std::move(reading);
  if (!choice) co_return std::move(choice).error().within(peer + ": ");
  way = choice->way;
  if (way == Way::shm) {
    FF_CO_TRY(auto inside, co_await connect_socket(loop, region_address(choice->name)));
    inside.peer_name = peer + " (shm)";
    co_return shared(loop, std::move(inside));
  }
  if (way == Way::verbs) {
    FF_CO_TRY(VerbsDevice* const verbs, device(loop));
    VerbsSide side = {true, options_.key};
    auto setting_up = connect_verbs(*verbs, std::move(line.socket), std::move(side));
    co_return co_await std::move(setting_up);
  }
  co_return std::make_unique<Connection>(loop, line.take(), nullptr);
}

Task<Result<std::unique_ptr<Connection>>> SystemTransport::accept(Loop& loop, Socket socket) {
  if (socket.peer.is_unix()) co_return shared(loop, std::move(socket));
  const std::string peer = socket.peer.text();
  FF_CO_TRY(const Ways mine, ways(loop, socket.local, socket.peer));
  const int64_t deadline_ns = loop.now_ns() + kPrefaceNs;
  auto opening = server_line(loop, std::move(socket), options_.tls);
  FF_CO_TRY(Line line, co_await with_deadline(loop, deadline_ns, "no end of the TLS handshake",
                                              std::move(opening)));
  auto reading = read_offer(line.stream());
  FF_CO_TRY(const Offer offer,
            co_await with_deadline(loop, deadline_ns, "it offers nothing", std::move(reading)));
  Choice choice = {best_way(offer.ways, mine), {}};
  std::unique_ptr<SocketListener> inside;
  if (choice.way == Way::shm) {
    auth::SecureRng rng;
    auth::fill_random(choice.name, rng);
    FF_CO_TRY(inside, SocketListener::listen(loop, region_address(choice.name)));
  }
  const auto chosen = encode_choice(choice);
  auto writing = write_all(line.stream(), chosen);
  FF_CO_TRY(co_await with_deadline(loop, deadline_ns, "it does not read", std::move(writing)));
  switch (choice.way) {
    case Way::stream: co_return std::make_unique<Connection>(loop, line.take(), nullptr);
    case Way::shm: {
      auto accepting = inside->accept();
      FF_CO_TRY(auto accepted,
                co_await with_deadline(loop, loop.now_ns() + kSharedNs,
                                       "it did not come to the Unix socket", std::move(accepting)));
      accepted.peer_name = peer + " (shm)";
      co_return shared(loop, std::move(accepted));
    }
    case Way::verbs: {
      FF_CO_TRY(VerbsDevice* const verbs, device(loop));
      VerbsSide side = {false, options_.key};
      auto setting_up = connect_verbs(*verbs, std::move(line.socket), std::move(side));
      co_return co_await std::move(setting_up);
    }
    case Way::none: break;
  }
  co_return fail(Errc::refused, "it offers {}, this end takes {} (--net)", ways_text(offer.ways),
                 ways_text(mine));
}

Result<std::unique_ptr<Listener>> SystemTransport::listen(Loop& loop, const Address& at) {
  if (options_.use == NetUse::verbs && !at.is_unix()) {
    FF_TRY(device(loop));
  }
  FF_TRY(auto listener, SocketListener::listen(loop, at));
  return std::unique_ptr<Listener>(std::make_unique<SystemListener>(*this, std::move(listener)));
}

}  // namespace ff::net
