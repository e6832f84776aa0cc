// rank_sockets.cc: joining, messages between the ranks of a host, and lost ranks.
#include "training/collective/rank_sockets.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>
#include <utility>

#include "platform/base/text.h"

namespace ff::collective {

// All that the sockets carry. Little-endian, as are all machines that ff runs on.
struct RankSockets::Message {
  static constexpr uint32_t kMagic = 0x32525246;  // "FRR2"
  enum Kind : uint32_t {
    hello = 1,  // to rank 0: rank, pid, value: number of ranks
    welcome,    // from rank 0, for each rank: rank, pid; the first two carry descriptors: of the
                // operation table (value: its bytes) and of the eventfd of rank 0
    refused,    // from rank 0: id: an Errc, value: bytes of the error's text, which follows
    region,     // region `id` of `rank`, `value` bytes: with its descriptor
    region_withdrawn,
    goodbye,  // the sender closes the socket next
  };
  uint32_t magic = kMagic;
  uint32_t kind = hello;
  uint32_t rank = 0;
  uint32_t id = 0;
  uint64_t value = 0;
  int32_t pid = 0;
  uint32_t unused = 0;

  ByteView bytes() const { return {reinterpret_cast<const std::byte*>(this), sizeof *this}; }
  ByteSpan buffer() { return {reinterpret_cast<std::byte*>(this), sizeof *this}; }
};

struct RankSockets::Peer {
  struct Outgoing {
    Message message;
    int fd = -1;
    std::shared_ptr<const void> owner = {};
    std::string text = {};
  };
  std::unique_ptr<net::SocketStream> stream;
  std::deque<Outgoing> queue = {};
  bool writes = false;
  bool said_goodbye = false;
  std::unique_ptr<Event> written = {};
};

namespace {

constexpr int64_t kSocketRetryNs = 5 * kMillisecond;
constexpr size_t kErrorTextMax = 1024;

// Errc::refused: another user runs the process at the other end.
Result<void> check_user(const net::SocketStream& stream) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (::getsockopt(stream.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return errno_error(errno, "the credentials of a rank's socket");
  }
  if (peer.uid == ::geteuid()) return {};
  return fail(Errc::refused, "process {} of user {} uses the socket of this job's ranks", peer.pid,
              peer.uid);
}

}  // namespace

RankSockets::RankSockets(HostState& state)
    : state_(state),
      loop_(state.clock),
      gate_(std::in_place, loop_),
      joining_(std::in_place, loop_),
      all_joined_(loop_) {
  static_assert(sizeof(Message) == 32);
}

RankSockets::~RankSockets() = default;

void RankSockets::start(int64_t until_ns) {
  thread_ = std::thread([this, until_ns] {
    gate_->spawn(join(until_ns));
    loop_.run();
    gate_.reset();
    joining_.reset();
    peers_.clear();
    refused_.clear();
  });
}

std::optional<Result<void>> RankSockets::outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void RankSockets::set_outcome(Result<void> outcome) {
  const std::lock_guard lock(mutex_);
  if (!outcome_) outcome_ = std::move(outcome);
}

void RankSockets::stop() {
  loop_.post([this] { gate_->spawn(close()); });
  thread_.join();
}

void RankSockets::share_region(const std::shared_ptr<const net::SharedRegion>& region) {
  send_to_all({.kind = Message::region,
               .rank = state_.self.rank,
               .id = region->id(),
               .value = region->memory().size()},
              region->fd(), region);
}

void RankSockets::withdraw_region(const net::SharedRegion& region) {
  send_to_all({.kind = Message::region_withdrawn, .rank = state_.self.rank, .id = region.id()}, -1,
              nullptr);
}

// Rank 0 sends to all ranks; another rank sends to rank 0, which forwards it.
void RankSockets::send_to_all(const Message& message, int fd, std::shared_ptr<const void> owner) {
  loop_.post([this, message, fd, owner = std::move(owner)] {
    for (auto& [rank, peer] : peers_) send(*peer, message, fd, owner);
  });
}

net::Address RankSockets::address() const {
  net::Address at;
  at.unix_path = "@ff-reduce-" + state_.self.job;
  return at;
}

Task<void> RankSockets::join(int64_t until_ns) {
  auto joining = with_deadline(loop_, until_ns, "the ranks", is_leader() ? lead() : follow());
  auto joined = co_await std::move(joining);
  const bool late = !joined && joined.error().code == Errc::deadline && loop_.now_ns() >= until_ns;
  if (late) joined = timeout_error();
  if (!joined && is_leader()) {
    co_await stop_listening();
    for (auto& [rank, peer] : peers_) send_error(*peer, joined.error());
    for (auto& peer : refused_) send_error(*peer, joined.error());
  }
  set_outcome(std::move(joined));
}

Error RankSockets::timeout_error() const {
  std::string missing;
  size_t count = 0;
  for (uint32_t rank = 0; rank < state_.self.ranks; rank++) {
    if (rank == state_.self.rank || peers_.contains(rank)) continue;
    if (!is_leader() && rank != 0) continue;  // only rank 0 knows
    missing += fmt::format("{}{}", count++ == 0 ? "" : ", ", rank + state_.self.first_rank);
  }
  if (count == 0) missing = "other ranks";
  const char* const what = count == 0 ? "" : count == 1 ? "rank " : "ranks ";
  Error error = fail(Errc::deadline, "{}{} of this host {} not joined in time", what, missing,
                     count == 1 ? "has" : "have");
  error.hint = "Check that each rank was started for the same job, and read its output.";
  return error;
}

// Connections that come now are not accepted any more.
Task<void> RankSockets::stop_listening() {
  co_await joining_->close(fail(Errc::interrupted, "no rank joins any more"));
  listener_.reset();
}

Task<Result<void>> RankSockets::lead() {
  FF_CO_TRY(listener_, net::SocketListener::listen(loop_, address()));
  joining_->spawn(accept());
  if (state_.self.ranks == 1) all_joined_.set();
  FF_CO_TRY(co_await all_joined_.wait());
  if (refusal_) co_return std::move(*refusal_);
  co_await stop_listening();
  const auto& table = state_.table_region;
  for (auto& [rank, peer] : peers_) {
    for (const auto& [other, pid] : state_.pids) {
      const Message welcome{
          .kind = Message::welcome, .rank = other, .value = table->memory().size(), .pid = pid};
      const int fd = other == 0 ? table->fd() : other == 1 ? state_.wake_fd.get() : -1;
      send(*peer, welcome, fd, table);
    }
    gate_->spawn(receive_loop(rank));
  }
  co_return Result<void>();
}

Task<void> RankSockets::accept() {
  for (;;) {
    auto socket = co_await listener_->accept();
    if (!socket) co_return;
    auto stream = net::SocketStream::make(loop_, std::move(*socket));
    if (stream && check_user(**stream)) joining_->spawn(greet(std::move(*stream)));
  }
}

Task<void> RankSockets::greet(std::unique_ptr<net::SocketStream> stream) {
  Message hello;
  const auto read = co_await net::read_all(*stream, hello.buffer());
  if (!read || hello.magic != Message::kMagic || hello.kind != Message::hello) co_return;
  if (auto fits = check_hello(hello); !fits) {
    refused_.push_back(make_peer(std::move(stream)));
    if (!refusal_) refusal_ = std::move(fits).error();
    all_joined_.set();
    co_return;
  }
  state_.pids[hello.rank] = hello.pid;
  peers_[hello.rank] = make_peer(std::move(stream));
  if (peers_.size() + 1 == state_.self.ranks) all_joined_.set();
}

Result<void> RankSockets::check_hello(const Message& hello) const {
  if (hello.value != state_.self.ranks || hello.rank >= state_.self.ranks) {
    return fail(Errc::usage, "a rank {} of {} (process {}) joined a job of {} ranks", hello.rank,
                hello.value, hello.pid, state_.self.ranks);
  }
  if (hello.rank == 0 || peers_.contains(hello.rank)) {
    return fail(Errc::usage, "rank {} joined twice, the second time as process {}", hello.rank,
                hello.pid);
  }
  return {};
}

// Tells a rank why it cannot join.
void RankSockets::send_error(Peer& peer, const Error& error) {
  const std::string text = error.message.substr(0, kErrorTextMax);
  const Message refused{
      .kind = Message::refused, .id = static_cast<uint32_t>(error.code), .value = text.size()};
  send(peer, refused, -1, nullptr, text);
}

Task<Result<void>> RankSockets::follow() {
  std::unique_ptr<net::SocketStream> stream;
  while (stream == nullptr) {
    auto socket = co_await net::connect_socket(loop_, address());
    if (socket) {
      FF_CO_TRY(stream, net::SocketStream::make(loop_, std::move(*socket)));
    } else {
      if (socket.error().code != Errc::unreachable) co_return std::move(socket).error();
      FF_CO_TRY(co_await sleep_for(loop_, kSocketRetryNs));  // rank 0 does not listen yet
    }
  }
  FF_CO_TRY(check_user(*stream));
  const HostRank& self = state_.self;
  const Message hello{.rank = self.rank, .value = self.ranks, .pid = ::getpid()};
  FF_CO_TRY(co_await net::write_all(*stream, hello.bytes()));
  peers_[0] = make_peer(std::move(stream));
  FF_CO_TRY(co_await receive_welcome(*peers_[0]));
  FF_CO_TRY(state_.operations,
            OperationTable::open(state_.table_mapping->memory(),
                                 {.ranks = self.ranks, .has_peers = self.has_peers}));
  gate_->spawn(receive_loop(0));
  co_return Result<void>();
}

// One message for each rank: their process ids, the operation table, the eventfd of rank 0.
Task<Result<void>> RankSockets::receive_welcome(Peer& leader) {
  const HostRank& self = state_.self;
  for (uint32_t welcomed = 0; welcomed < self.ranks; welcomed++) {
    Message message;
    FF_CO_TRY(co_await receive(leader, message));
    if (message.kind == Message::refused) co_return co_await receive_error(leader, message);
    if (message.kind == Message::goodbye) {
      co_return fail(Errc::unreachable, "rank {} left before all ranks of this host had joined",
                     self.first_rank);
    }
    if (message.kind != Message::welcome) {
      co_return fail(Errc::corrupt, "rank 0 did not send the operation table");
    }
    state_.pids[message.rank] = message.pid;
    const auto fd = leader.stream->receive_descriptor();
    if (!fd) continue;
    if (message.rank == 1) {
      state_.wake_fd = Fd(*fd);
      continue;
    }
    FF_CO_TRY(state_.table_mapping, MappedRegion::map(Fd(*fd), message.value));
  }
  if (state_.table_mapping == nullptr) {
    co_return fail(Errc::corrupt, "rank 0 did not send the operation table");
  }
  co_return Result<void>();
}

// The error of rank 0, for which no rank joins.
Task<Error> RankSockets::receive_error(Peer& leader, const Message& refused) {
  std::string text(std::min<uint64_t>(refused.value, kErrorTextMax), '\0');
  const ByteSpan bytes(reinterpret_cast<std::byte*>(text.data()), text.size());
  const auto read = co_await net::read_all(*leader.stream, bytes);
  if (!read) co_return read.error();
  Error error = fail(refused.id < kErrcCount ? static_cast<Errc>(refused.id) : Errc::failed,
                     "rank {}: {}", state_.self.first_rank, printable(text));
  error.hint = "Read the output of that process; then start the job again.";
  co_return error;
}

std::unique_ptr<RankSockets::Peer> RankSockets::make_peer(
    std::unique_ptr<net::SocketStream> stream) {
  auto peer = std::make_unique<Peer>();
  peer->stream = std::move(stream);
  peer->written = std::make_unique<Event>(loop_);
  return peer;
}

Task<Result<void>> RankSockets::receive(Peer& peer, Message& message) {
  FF_CO_TRY(co_await net::read_all(*peer.stream, message.buffer()));
  if (message.magic != Message::kMagic) {
    co_return fail(Errc::corrupt, "a process that is no rank uses this socket");
  }
  co_return Result<void>();
}

Task<void> RankSockets::receive_loop(uint32_t rank) {
  Peer& peer = *peers_.at(rank);
  for (;;) {
    Message message;
    const auto received = co_await receive(peer, message);
    const auto handled = received ? handle(rank, peer, message) : received;
    if (handled) continue;
    const bool ends = gate_->cancellation().requested();
    if (!ends && !peer.said_goodbye) on_disconnect(rank, handled.error());
    co_return;
  }
}

Result<void> RankSockets::handle(uint32_t from, Peer& peer, const Message& message) {
  const bool is_region = message.kind == Message::region;
  const bool is_withdrawn = message.kind == Message::region_withdrawn;
  if (message.kind == Message::goodbye) peer.said_goodbye = true;
  if (is_withdrawn) state_.remove_region(message.rank, message.id);
  std::shared_ptr<const Fd> fd;
  if (is_region) {
    fd = std::make_shared<const Fd>(peer.stream->receive_descriptor().value_or(-1));
    FF_TRY(const auto region, MappedRegion::map(*fd, message.value));
    state_.add_region(message.rank, message.id, {region->memory(), region});
  }
  if (!is_leader() || (!is_region && !is_withdrawn)) return {};
  for (auto& [rank, other] : peers_) {
    if (rank != from) send(*other, message, fd != nullptr ? fd->get() : -1, fd);
  }
  return {};
}

void RankSockets::on_disconnect(uint32_t rank, const Error& error) {
  if (error.code == Errc::unreachable) {
    state_.operations->set_failed_rank({.rank = rank});
  } else {  // the rank is alive, but this process cannot use what it sent
    const std::string self = state_.name_of(state_.self.rank);
    state_.operations->set_async_error(
        Error(error).with_context(fmt::format("{}, from {}: ", self, state_.name_of(rank))));
  }
  state_.notify_failure();
  state_.wake_leader();
}

void RankSockets::send(Peer& peer, const Message& message, int fd,
                       std::shared_ptr<const void> owner, std::string text) {
  peer.queue.push_back({message, fd, std::move(owner), std::move(text)});
  // One writer at a time: a descriptor belongs to the message that is written next.
  if (!std::exchange(peer.writes, true)) gate_->spawn(write_queue(peer));
}

Task<void> RankSockets::write_queue(Peer& peer) {
  while (!peer.queue.empty()) {
    const Peer::Outgoing next = std::move(peer.queue.front());
    peer.queue.pop_front();
    if (next.fd >= 0) peer.stream->send_descriptor(next.fd);
    auto written = co_await write(*peer.stream, next.message.bytes());
    if (written && !next.text.empty()) written = co_await write(*peer.stream, as_bytes(next.text));
    if (!written) peer.queue.clear();  // receive_loop() reports the lost rank
  }
  peer.writes = false;
  peer.written->set();
}

Task<Result<void>> RankSockets::write(net::SocketStream& stream, ByteView bytes) {
  for (;;) {
    auto written = co_await net::write_all(stream, bytes);
    // Linux limits the descriptors in flight of a user other than root to RLIMIT_NOFILE.
    if (written || written.error().sys != ETOOMANYREFS) co_return written;
    FF_CO_TRY(co_await sleep_for(loop_, kSocketRetryNs));
  }
}

Task<void> RankSockets::close() {
  std::vector<Peer*> all;
  for (auto& [rank, peer] : peers_) all.push_back(peer.get());
  for (auto& peer : refused_) all.push_back(peer.get());
  for (Peer* const peer : all) {
    const Message goodbye{.kind = Message::goodbye, .rank = state_.self.rank};
    peer->written->reset();
    send(*peer, goodbye, -1, nullptr);
  }
  const int64_t until_ns = loop_.now_ns() + kSecond;  // a stopped process reads nothing
  for (Peer* const peer : all) (void)co_await peer->written->wait(until_ns);
  for (Peer* const peer : all) peer->stream->close();
  gate_->cancellation().request(fail(Errc::interrupted, "the communicator is closed"));
  loop_.stop();
}

}  // namespace ff::collective
