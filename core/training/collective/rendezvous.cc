// rendezvous.cc: who connects to whom, and which ranks fit together.
#include "training/collective/rendezvous.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "platform/base/fd.h"
#include "platform/base/task_group.h"
#include "platform/net/resolve.h"

namespace ff::collective {

namespace {

constexpr int64_t kHandshakeTimeoutNs = 10 * kSecond;
constexpr int64_t kRendezvousRetryNs = 20 * kMillisecond;
constexpr int64_t kProblemNs = kSecond;  // for late nodes to connect and receive the problem

// Whether only this machine reaches that address.
bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// The address of this machine that `to` would see.
Task<Result<std::string>> local_host(Loop& loop, net::Address to) {
  FF_CO_TRY(auto found, co_await net::resolve(loop, to));
  const net::SocketAddress& first = found.front();
  const Fd socket(::socket(first.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  net::SocketAddress own;
  own.size = sizeof own.storage;
  if (socket.get() < 0 || ::connect(socket.get(), first.get(), first.size) != 0 ||
      ::getsockname(socket.get(), own.get(), &own.size) != 0) {
    Error error = errno_error(errno, fmt::format("the route to {}", to.text()));
    error.code = Errc::unreachable;
    co_return error;
  }
  co_return net::to_address(own).host;
}

Task<Result<void>> receive_connected(net::Connection& connection, CancellationToken* cancel) {
  CancellationToken none;
  auto receiving = receive_step(connection, HandshakeStep::connected);
  auto received =
      co_await std::move(receiving).with_cancellation(cancel != nullptr ? *cancel : none);
  if (!received) co_return std::move(received).error();
  co_return Result<void>();
}

// Whether the task ended with `error` because a deadline has cancelled it.
bool is_late(const Error& error, const CancellationToken* cancel) {
  return error.code == Errc::deadline && cancel != nullptr && cancel->requested();
}

const auth::Service kRankService{auth::Role::rank, {}};

Error wrong_key(Error error) {
  error.message += ": the ranks do not hold the same job's key";
  error.hint = "Give all ranks the same key file (FF_KEY_FILE).";
  return error;
}

}  // namespace

Task<Result<Mesh>> Rendezvous::join(Loop& loop, net::Transport& transport,
                                    RendezvousOptions options, WorldNode self) {
  Rendezvous rendezvous(loop, transport, std::move(options), std::move(self));
  co_return co_await rendezvous.run();
}

Rendezvous::Rendezvous(Loop& loop, net::Transport& transport, RendezvousOptions options,
                       WorldNode self)
    : loop_(loop),
      transport_(transport),
      options_(std::move(options)),
      self_(std::move(self)),
      changed_(loop),
      gate_(loop),
      accepting_(loop) {}

Task<Result<Mesh>> Rendezvous::run() {
  if (transport_.keyring() == nullptr && !is_loopback(options_.at.host)) {
    Error error = fail(Errc::refused, "{} may be another machine, and this job has no key",
                       options_.at.text());
    error.hint =
        "Put 64 hex digits into a file of mode 0600 on every host, and name it in FF_KEY_FILE.";
    co_return error;
  }
  FF_CO_TRY(co_await listen());
  auto joining = self_.first_rank == 0 ? lead() : follow();
  auto joined = co_await std::move(joining);
  CancellationToken* const cancel = co_await current_cancellation();
  if (!joined && is_late(joined.error(), cancel)) joined = timeout_error();
  co_await accepting_.close(fail(Errc::interrupted, "the rendezvous has ended"));
  co_await gate_.close(fail(Errc::interrupted, "the rendezvous has ended"));
  if (!joined) co_return std::move(joined).error();
  Mesh mesh{.world = std::move(world_), .self = index_};
  if (std::ranges::any_of(mesh.world.nodes, [](const WorldNode& one) { return one.ranks() > 1; }))
    mesh.listener = std::move(index_ == 0 ? successors_ : listener_);
  mesh.connections.resize(mesh.world.nodes.size());
  for (auto& [first_rank, connection] : connections_) {
    mesh.connections[mesh.world.node_of(first_rank)] = std::move(connection);
  }
  co_return mesh;
}

Task<Result<void>> Rendezvous::listen() {
  net::Address at = options_.at;
  if (self_.first_rank != 0) {
    FF_CO_TRY(at.host, co_await local_host(loop_, options_.at));
    at.port = 0;
  } else if (is_loopback(at.host)) {
    at.host = at.host == "localhost" ? "127.0.0.1" : at.host;
  } else {
    at.host.clear();
  }
  auto listening = transport_.listen(loop_, at);
  if (!listening) {
    Error error = std::move(listening).error();
    if (error.code == Errc::exists) {
      error.hint = "Another program uses this port: choose another one for the job.";
    }
    co_return error;
  }
  listener_ = std::move(*listening);
  self_.address = listener_->address();
  self_.address.host = at.host;
  if (self_.first_rank == 0) {
    at.port = 0;
    FF_CO_TRY(successors_, transport_.listen(loop_, at));
    self_.address.port = successors_->address().port;
  }
  accepting_.spawn(accept());
  co_return Result<void>();
}

Task<void> Rendezvous::accept() {
  for (;;) {
    auto incoming = co_await listener_->accept();
    if (!incoming) co_return;
    accepting_.spawn(handle_connection(std::move(*incoming)));
  }
}

Task<void> Rendezvous::handle_connection(std::unique_ptr<net::IncomingConnection> incoming) {
  auto opened = co_await incoming->open(loop_);
  if (!opened) co_return;
  std::unique_ptr<net::Connection> connection = std::move(*opened);
  auto node =
      co_await with_deadline(loop_, loop_.now_ns() + kHandshakeTimeoutNs, "a node's handshake",
                             accept_introduction(*connection, options_.terms));
  Result<void> admitted = node ? admit(*node) : Result<void>(node.error());
  if (admitted && problem_) admitted = *problem_;
  if (!admitted) {
    send_refusal(*connection, admitted.error());
    (void)co_await connection->wait_flushed();
    if (node) ranks_told_ += node->ranks();
    // A process without the key is only refused; ranks that do not fit together end the job.
    if (admitted.error().code == Errc::usage && !problem_) problem_ = std::move(admitted).error();
    changed_.set();
    co_return;
  }
  connections_[node->first_rank] = std::move(connection);
  changed_.set();
}

// Errc::usage: the node does not fit to the others.
Result<void> Rendezvous::admit(const WorldNode& node) {
  const uint32_t end = node.first_rank + node.ranks();
  const auto overlaps = [&](const WorldNode& other) {
    return node.first_rank < other.first_rank + other.ranks() && other.first_rank < end;
  };
  if (self_.first_rank != 0) {
    const bool known = !world_.nodes.empty() && std::ranges::any_of(world_.nodes, [&](auto& one) {
      return one.first_rank == node.first_rank;
    });
    if (world_.nodes.empty() || known) return {};
    return fail(Errc::usage, "rank {} on {} is not of this job", node.first_rank, node.host);
  }
  for (const auto& [first_rank, other] : joined_) {
    if (!overlaps(other)) continue;
    return fail(Errc::usage, "rank {} joined twice: from {} (process {}) and {} (process {})",
                std::max(node.first_rank, other.first_rank), other.host, other.pids.front(),
                node.host, node.pids.front());
  }
  if (overlaps(self_)) {
    return fail(Errc::usage, "rank {} joined twice: from {} and {}", node.first_rank, self_.host,
                node.host);
  }
  joined_[node.first_rank] = node;
  update_missing();
  return {};
}

void Rendezvous::update_missing() {
  missing_.clear();
  uint32_t next_rank = self_.ranks();
  const auto gap = [&](uint32_t end) {
    if (end <= next_rank) return;
    missing_ += missing_.empty() ? "" : ", ";
    missing_ += end - next_rank == 1 ? fmt::format("{}", next_rank)
                                     : fmt::format("{} to {}", next_rank, end - 1);
  };
  for (const auto& [first_rank, node] : joined_) {
    gap(first_rank);
    next_rank = first_rank + node.ranks();
  }
  gap(options_.terms.ranks);
}

template <class Condition>
Task<Result<void>> Rendezvous::wait_until(Condition condition) {
  while (!condition()) {
    if (problem_) co_return *problem_;
    changed_.reset();
    FF_CO_TRY(co_await changed_.wait());
  }
  co_return Result<void>();
}

Task<Result<void>> Rendezvous::lead() {
  update_missing();
  auto waiting =
      wait_until([this] { return missing_.empty() && connections_.size() == joined_.size(); });
  auto done = co_await std::move(waiting);
  if (done) {
    make_world();
    for (auto& [rank, connection] : connections_) {
      send_step(*connection, HandshakeStep::table, encode_world(world_));
    }
    done = co_await receive_all_connected();
  }
  CancellationToken* const cancel = co_await current_cancellation();
  if (!done && is_late(done.error(), cancel)) done = timeout_error();
  if (done) {
    co_await accepting_.close(fail(Errc::interrupted, "all nodes have joined"));
    listener_.reset();
  }
  co_await announce(done).shielded();
  // Nodes that connect later must receive the problem as well.
  const int64_t until_ns = loop_.now_ns() + kProblemNs;
  while (problem_ && ranks_told_ + self_.ranks() < options_.terms.ranks &&
         loop_.now_ns() < until_ns) {
    if (!co_await sleep_for(loop_, kRendezvousRetryNs)) break;
  }
  co_return done;
}

// Tells all nodes that have joined whether they may start.
Task<void> Rendezvous::announce(const Result<void>& outcome) {
  const int64_t until_ns = loop_.now_ns() + kProblemNs;
  for (auto& [rank, connection] : connections_) {
    if (outcome) {
      send_step(*connection, HandshakeStep::start, {});
    } else {
      send_refusal(*connection, outcome.error());
    }
    (void)co_await with_deadline(loop_, until_ns, "a node", connection->wait_flushed());
    ranks_told_ += world_.nodes.empty() ? joined_.at(rank).ranks() : 0;
  }
}

void Rendezvous::make_world() {
  world_.nodes.push_back(self_);
  for (const auto& [rank, node] : joined_) world_.nodes.push_back(node);
}

// At the deadline.
Error Rendezvous::timeout_error() const {
  Error error = fail(Errc::deadline, "other ranks have not joined rank 0 in time");
  const bool leads = self_.first_rank == 0;
  if (leads && !missing_.empty()) {
    const bool one = missing_.find_first_of(", ") == std::string::npos;
    error.message = fmt::format("{} {} not joined in time", one ? "rank" : "ranks",
                                missing_ + (one ? " has" : " have"));
  } else if (!missing_.empty()) {
    error.message = fmt::format("rank 0 has not joined in time: {}", missing_);
  } else if (leads) {
    error.message = "the other hosts have not connected to each other in time";
  }
  error.hint =
      "Check that each rank was started and can reach rank 0 at " + options_.at.text() + ".";
  return error;
}

Task<Result<void>> Rendezvous::receive_all_connected() {
  CancellationToken* const cancel = co_await current_cancellation();
  TaskGroup all(loop_);
  for (auto& [rank, connection] : connections_) all.add(receive_connected(*connection, cancel));
  co_return co_await all.join();
}

Task<Result<void>> Rendezvous::follow() {
  FF_CO_TRY(co_await connect_to_leader());
  introduce(*leader_, options_.terms, self_);
  FF_CO_TRY(const std::string table, co_await receive_step(*leader_, HandshakeStep::table));
  FF_CO_TRY(world_, parse_world(as_bytes(table)));
  if (world_.ranks() != options_.terms.ranks) {
    co_return fail(Errc::corrupt, "{}: the table of nodes has another number of ranks",
                   leader_->peer());
  }
  index_ = world_.node_of(self_.first_rank);
  gate_.spawn(receive_start());
  auto connected = co_await connect_to_others();
  if (connected) {
    send_step(*leader_, HandshakeStep::connected, {});
  } else if (!problem_) {
    const std::string name = world_.name_of(self_.first_rank);
    send_refusal(*leader_, std::move(connected).error().with_context(fmt::format("{}: ", name)));
  }
  auto waiting = wait_until([this] { return may_start_; });
  FF_CO_TRY(co_await std::move(waiting));
  connections_[0] = std::move(leader_);
  co_return Result<void>();
}

Task<Result<void>> Rendezvous::connect_to_leader() {
  for (;;) {
    auto connected = co_await transport_.connect(loop_, options_.at, kRankService);
    if (connected) {
      leader_ = std::move(*connected);
      missing_.clear();
      co_return Result<void>();
    }
    if (connected.error().code == Errc::refused) co_return wrong_key(std::move(connected).error());
    if (connected.error().code != Errc::unreachable) co_return std::move(connected).error();
    missing_ = connected.error().message;
    FF_CO_TRY(co_await sleep_for(loop_, kRendezvousRetryNs));  // rank 0 does not listen yet
  }
}

Task<void> Rendezvous::receive_start() {
  auto start = co_await receive_step(*leader_, HandshakeStep::start);
  if (start) {
    may_start_ = true;
  } else {
    problem_ = std::move(start).error();
  }
  changed_.set();
}

// Connects to the nodes before this one in the table; the nodes after it connect to this one.
Task<Result<void>> Rendezvous::connect_to_others() {
  for (uint32_t node = 1; node < index_; node++) {
    const WorldNode& other = world_.nodes[node];
    FF_CO_TRY(auto connection, co_await transport_.connect(loop_, other.address, kRankService));
    introduce(*connection, options_.terms, self_);
    connections_[other.first_rank] = std::move(connection);
  }
  auto waiting = wait_until([this] { return connections_.size() + 2 == world_.nodes.size(); });
  co_return co_await std::move(waiting);
}

}  // namespace ff::collective
