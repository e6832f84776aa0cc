// mesh.cc: the handshake of mesh.h, and who connects to whom.
#include "training/collective/mesh.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <map>

#include "platform/base/fd.h"
#include "platform/base/text.h"
#include "platform/base/together.h"
#include "platform/net/resolve.h"
#include "training/collective/numbers.h"

namespace ff::collective {

namespace {

constexpr size_t kNonceBytes = 32;
constexpr int64_t kGreetingNs = 10 * kSecond;
constexpr int64_t kMeshRetryNs = 20 * kMillisecond;
constexpr int64_t kTellNs = kSecond;  // for others to come and hear that the job cannot be
constexpr std::string_view kHello = "ff reduce 1|";  // and a nonce

enum MeshStep : uint32_t { kNonce = 1, kAnswer, kNode, kTable, kRefusal, kMet, kGo };

void send(net::Connection& connection, MeshStep step, std::string_view message) {
  connection.send({.kind = net::FrameKind::hello, .method = step}, message);
}

// The next step; what the other end refuses is an error here.
Task<Result<std::string>> next(net::Connection& connection, MeshStep wanted) {
  auto receiving = connection.receive();
  FF_CO_TRY(const net::Frame frame, co_await std::move(receiving));
  if (frame.head.kind == net::FrameKind::hello && frame.head.method == kRefusal) {
    const ByteView bytes = as_bytes(frame.message);
    Error error = fail(Errc::refused, "{}",
                       printable(frame.message.substr(std::min<size_t>(1, bytes.size()))));
    if (!bytes.empty() && static_cast<size_t>(bytes[0]) < kErrcs) {
      error.code = static_cast<Errc>(bytes[0]);
    }
    co_return error;
  }
  if (frame.head.kind != net::FrameKind::hello || frame.head.method != wanted) {
    co_return fail(Errc::corrupt, "{}: no node of a job speaks there", connection.peer());
  }
  co_return frame.message;
}

void refuse(net::Connection& connection, const Error& error) {
  std::string message(1, static_cast<char>(error.code));
  send(connection, kRefusal, message + error.message);
}

std::string nonce() {
  auth::SecureRng rng;
  std::array<std::byte, kNonceBytes> bytes;
  auth::fill_random(bytes, rng);
  return std::string(as_text(bytes));
}

std::string proof(const std::optional<auth::Key>& key, std::string_view side,
                  const std::string& nonces) {
  if (!key) return {};
  const std::string said = "ff reduce " + std::string(side) + "|" + nonces;
  return std::string(as_text(auth::hmac(*key, as_bytes(said))));
}

bool proven(const std::string& wanted, std::string_view got) {
  return auth::equal_secrets(as_bytes(wanted), as_bytes(got));
}

Error other_key(const net::Connection& connection) {
  Error error = fail(Errc::refused, "{}: it does not hold this job's key", connection.peer());
  error.hint = "Give all ranks the same key file (FF_KEY_FILE).";
  return error;
}

// The end that comes.
Task<Result<void>> introduce(net::Connection& connection, const Meeting& meeting,
                             const Node& self) {
  const std::string mine = nonce();
  send(connection, kNonce, std::string(kHello) + mine);
  auto answering = next(connection, kAnswer);
  FF_CO_TRY(const std::string answer, co_await std::move(answering));
  if (answer.size() < kNonceBytes) co_return fail(Errc::corrupt, "{}: no nonce", connection.peer());
  const std::string nonces = mine + answer.substr(0, kNonceBytes);
  if (!proven(proof(meeting.key, "server", nonces), answer.substr(kNonceBytes))) {
    refuse(connection, fail(Errc::refused, "another node does not hold the key of this one"));
    co_return other_key(connection);
  }
  const std::string own = proof(meeting.key, "client", nonces);
  std::string message;
  append_le(message, static_cast<uint32_t>(own.size()));
  message += own;
  append_le(message, meeting.ranks);
  append_le(message, static_cast<uint32_t>(meeting.settings.size()));
  send(connection, kNode, message + meeting.settings + encode_node(self));
  co_return Result<void>();
}

// The end that listens: who has come.
Task<Result<Node>> greet(net::Connection& connection, const Meeting& meeting) {
  auto coming = next(connection, kNonce);
  FF_CO_TRY(const std::string hello, co_await std::move(coming));
  if (hello.size() != kHello.size() + kNonceBytes || !hello.starts_with(kHello)) {
    co_return fail(Errc::corrupt, "{}: another version of ff, or none", connection.peer());
  }
  const std::string mine = nonce();
  const std::string nonces = hello.substr(kHello.size()) + mine;
  send(connection, kAnswer, mine + proof(meeting.key, "server", nonces));
  auto telling = next(connection, kNode);
  FF_CO_TRY(const std::string said, co_await std::move(telling));
  Numbers numbers(as_bytes(said));
  const auto text = [&numbers] {
    const auto size = numbers.next<uint32_t>();
    return as_text(numbers.take(size));
  };
  const std::string_view given = text();
  if (!proven(proof(meeting.key, "client", nonces), given)) co_return other_key(connection);
  const auto ranks = numbers.next<uint32_t>();
  const std::string settings(text());
  FF_CO_TRY(Node node, parse_node(numbers.take(numbers.left())));
  if (ranks != meeting.ranks) {
    co_return fail(Errc::usage, "rank {} on {} is of a job of {} ranks, rank 0 of one of {}",
                   node.first_rank, node.host, ranks, meeting.ranks);
  }
  if (settings != meeting.settings) {
    co_return fail(Errc::usage, "rank {} on {} has {}, rank 0 has {}", node.first_rank, node.host,
                   printable(settings), meeting.settings);
  }
  if (node.first_rank >= ranks || node.ranks() > ranks - node.first_rank) {
    co_return fail(Errc::usage, "{} has ranks {} to {} of a job of {}", node.host, node.first_rank,
                   node.first_rank + node.ranks() - 1, ranks);
  }
  co_return node;
}

// Whether only this machine reaches that address.
bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// The address of this machine that `to` would see.
Task<Result<std::string>> own_host(Loop& loop, net::Address to) {
  auto resolving = net::resolve(loop, to);
  FF_CO_TRY(auto found, co_await std::move(resolving));
  const net::SocketAddress& first = found.front();
  const Fd socket(::socket(first.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  net::SocketAddress own;
  own.size = sizeof own.storage;
  if (socket.get() < 0 || ::connect(socket.get(), first.get(), first.size) != 0 ||
      ::getsockname(socket.get(), own.get(), &own.size) != 0) {
    Error error = errno_error(errno, fmt::format("the way to {}", to.text()));
    error.code = Errc::unreachable;
    co_return error;
  }
  co_return net::to_address(own).host;
}

class Joining {
 public:
  Joining(Loop& loop, net::Transport& transport, Meeting meeting, Node self, std::string& missing)
      : loop_(loop),
        transport_(transport),
        meeting_(std::move(meeting)),
        self_(std::move(self)),
        missing_(missing),
        changed_(loop),
        gate_(loop) {}

  Task<Result<Mesh>> run() {
    if (!meeting_.key && !is_loopback(meeting_.at.host)) {
      Error error = fail(Errc::refused, "{} may be another machine, and this job has no key",
                         meeting_.at.text());
      error.hint =
          "Put 64 hex digits into a file of mode 0600 on every host, and name it in "
          "FF_KEY_FILE.";
      co_return error;
    }
    FF_CO_TRY(co_await listen());
    auto meeting = self_.first_rank == 0 ? lead() : follow();
    auto met = co_await std::move(meeting);
    co_await gate_.close(fail(Errc::interrupted, "the nodes have met"));
    if (!met) co_return std::move(met).error();
    Mesh mesh{.world = std::move(world_), .self = index_, .connections = {}};
    mesh.connections.resize(mesh.world.nodes.size());
    for (auto& [first_rank, connection] : connections_) {
      mesh.connections[mesh.world.node_of(first_rank)] = std::move(connection);
    }
    co_return mesh;
  }

 private:
  Task<Result<void>> listen() {
    net::Address at = meeting_.at;
    if (self_.first_rank != 0) {
      auto looking = own_host(loop_, meeting_.at);
      FF_CO_TRY(at.host, co_await std::move(looking));
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
        error.hint = "Another program has this port: choose another one for the job.";
      }
      co_return error;
    }
    listener_ = std::move(*listening);
    self_.listens = listener_->address();
    self_.listens.host = at.host;
    gate_.spawn(accept());
    co_return Result<void>();
  }

  Task<void> accept() {
    for (;;) {
      auto accepting = listener_->accept();
      auto arrival = co_await std::move(accepting);
      if (!arrival) co_return;
      gate_.spawn(arrived(std::move(*arrival)));
    }
  }
  Task<void> arrived(std::unique_ptr<net::Arrival> arrival) {
    auto opening = arrival->open(loop_);
    auto opened = co_await std::move(opening);
    if (!opened) co_return;
    std::unique_ptr<net::Connection> connection = std::move(*opened);
    auto greeting = with_deadline(loop_, loop_.now_ns() + kGreetingNs, "a node's greeting",
                                  greet(*connection, meeting_));
    auto node = co_await std::move(greeting);
    Result<void> fits = node ? add(*node) : Result<void>(node.error());
    if (fits && problem_) fits = *problem_;
    if (!fits) {
      refuse(*connection, fits.error());
      auto flushing = connection->flushed();
      (void)co_await std::move(flushing);
      if (node) told_ += node->ranks();
      // Strangers are turned away; ranks that do not fit together end the job.
      if (fits.error().code == Errc::usage && !problem_) problem_ = std::move(fits).error();
      changed_.set();
      co_return;
    }
    connections_[node->first_rank] = std::move(connection);
    changed_.set();
  }
  // Of a node that has come.
  Result<void> add(const Node& node) {
    const uint32_t end = node.first_rank + node.ranks();
    const auto meets = [&](const Node& other) {
      return node.first_rank < other.first_rank + other.ranks() && other.first_rank < end;
    };
    if (self_.first_rank != 0) {
      const bool known = !world_.nodes.empty() && std::ranges::any_of(world_.nodes, [&](auto& one) {
        return one.first_rank == node.first_rank;
      });
      if (world_.nodes.empty() || known) return {};
      return fail(Errc::usage, "rank {} on {} is not of this job", node.first_rank, node.host);
    }
    for (const auto& [first_rank, other] : came_) {
      if (!meets(other)) continue;
      return fail(Errc::usage, "rank {} came twice: from {} (process {}) and {} (process {})",
                  std::max(node.first_rank, other.first_rank), other.host, other.processes.front(),
                  node.host, node.processes.front());
    }
    if (meets(self_)) {
      return fail(Errc::usage, "rank {} came twice: from {} and {}", node.first_rank, self_.host,
                  node.host);
    }
    came_[node.first_rank] = node;
    tell_missing();
    return {};
  }
  void tell_missing() {
    missing_.clear();
    uint32_t next_rank = self_.ranks();
    const auto gap = [&](uint32_t end) {
      if (end <= next_rank) return;
      missing_ += missing_.empty() ? "" : ", ";
      missing_ += end - next_rank == 1 ? fmt::format("{}", next_rank)
                                       : fmt::format("{} to {}", next_rank, end - 1);
    };
    for (const auto& [first_rank, node] : came_) {
      gap(first_rank);
      next_rank = first_rank + node.ranks();
    }
    gap(meeting_.ranks);
  }

  template <class Condition>
  Task<Result<void>> until(Condition condition) {
    while (!condition()) {
      if (problem_) co_return *problem_;
      changed_.reset();
      FF_CO_TRY(co_await changed_.wait());
    }
    co_return Result<void>();
  }

  // The node of rank 0.
  Task<Result<void>> lead() {
    tell_missing();
    auto waiting =
        until([this] { return missing_.empty() && connections_.size() == came_.size(); });
    auto came = co_await std::move(waiting);
    if (came) came = order();
    if (came) {
      for (auto& [rank, connection] : connections_) send(*connection, kTable, encode_world(world_));
      auto meeting = hear_all();
      came = co_await std::move(meeting);
    }
    for (auto& [rank, connection] : connections_) {
      if (came) {
        send(*connection, kGo, {});
      } else {
        refuse(*connection, came.error());
      }
      auto flushing = connection->flushed();
      (void)co_await std::move(flushing);
      told_ += world_.nodes.empty() ? came_.at(rank).ranks() : 0;
    }
    // Those that come too late to fit hear of it as well.
    const int64_t until_ns = loop_.now_ns() + kTellNs;
    while (problem_ && told_ + self_.ranks() < meeting_.ranks && loop_.now_ns() < until_ns) {
      if (!co_await after(loop_, kMeshRetryNs)) break;
    }
    co_return came;
  }
  // The table.
  Result<void> order() {
    world_.nodes.push_back(self_);
    for (const auto& [rank, node] : came_) world_.nodes.push_back(node);
    std::map<uint32_t, uint32_t> last;  // of each zone
    for (uint32_t i = 0; i < world_.nodes.size(); i++) {
      const Node& node = world_.nodes[i];
      const auto found = last.find(node.zone);
      if (found != last.end() && found->second + 1 != i) {
        return fail(Errc::usage, "rank {} on {} is of zone {}, as is {}, but not those between",
                    node.first_rank, node.host, node.zone, world_.nodes[found->second].host);
      }
      last[node.zone] = i;
    }
    return {};
  }
  Task<Result<void>> hear_all() {
    Cancel* const cancel = co_await current_cancel();
    Together all(loop_);
    for (auto& [rank, connection] : connections_) all.add(hear_met(*connection, cancel));
    auto done = all.done();
    co_return co_await std::move(done);
  }
  Task<Result<void>> hear_met(net::Connection& connection, Cancel* cancel) {
    Cancel none;
    auto hearing = next(connection, kMet);
    auto met = co_await std::move(hearing).under(cancel != nullptr ? *cancel : none);
    if (!met) co_return std::move(met).error();
    co_return Result<void>();
  }

  // The others.
  Task<Result<void>> follow() {
    auto finding = find_first();
    FF_CO_TRY(co_await std::move(finding));
    auto introducing = introduce(*first_, meeting_, self_);
    FF_CO_TRY(co_await std::move(introducing));
    auto hearing = next(*first_, kTable);
    FF_CO_TRY(const std::string table, co_await std::move(hearing));
    FF_CO_TRY(world_, parse_world(as_bytes(table)));
    if (world_.ranks() != meeting_.ranks) {
      co_return fail(Errc::corrupt, "{}: a table of other ranks", first_->peer());
    }
    index_ = world_.node_of(self_.first_rank);
    gate_.spawn(hear_go());
    auto connecting = connect_all();
    auto connected = co_await std::move(connecting);
    if (connected) {
      send(*first_, kMet, {});
    } else if (!problem_) {
      refuse(*first_, std::move(connected).error().within(
                          fmt::format("{}: ", world_.name_of(self_.first_rank))));
    }
    auto going = until([this] { return may_go_; });
    FF_CO_TRY(co_await std::move(going));
    connections_[0] = std::move(first_);
    co_return Result<void>();
  }
  Task<Result<void>> find_first() {
    for (;;) {
      auto connecting = transport_.connect(loop_, meeting_.at);
      auto connected = co_await std::move(connecting);
      if (connected) {
        first_ = std::move(*connected);
        missing_.clear();
        co_return Result<void>();
      }
      if (connected.error().code != Errc::unreachable) co_return std::move(connected).error();
      missing_ = "0 (" + connected.error().message + ")";
      FF_CO_TRY(co_await after(loop_, kMeshRetryNs));  // it does not listen yet
    }
  }
  // What rank 0 says of them all.
  Task<void> hear_go() {
    auto hearing = next(*first_, kGo);
    auto go = co_await std::move(hearing);
    if (go) {
      may_go_ = true;
    } else {
      problem_ = std::move(go).error();
    }
    changed_.set();
  }
  // To the nodes before this one; those behind it come.
  Task<Result<void>> connect_all() {
    for (uint32_t node = 1; node < index_; node++) {
      const Node& other = world_.nodes[node];
      auto connecting = transport_.connect(loop_, other.listens);
      FF_CO_TRY(auto connection, co_await std::move(connecting));
      auto introducing = introduce(*connection, meeting_, self_);
      FF_CO_TRY(co_await std::move(introducing));
      connections_[other.first_rank] = std::move(connection);
    }
    auto waiting = until([this] { return connections_.size() + 2 == world_.nodes.size(); });
    co_return co_await std::move(waiting);
  }

  Loop& loop_;
  net::Transport& transport_;
  const Meeting meeting_;
  Node self_;
  std::string& missing_;
  uint32_t index_ = 0;
  World world_;
  std::map<uint32_t, Node> came_;  // rank 0's node: all others that have come
  std::map<uint32_t, std::unique_ptr<net::Connection>> connections_;  // by first rank
  std::unique_ptr<net::Connection> first_;  // to rank 0, until all have met
  bool may_go_ = false;
  std::optional<Error> problem_;
  uint32_t told_ = 0;  // ranks that have heard of it
  Event changed_;
  std::unique_ptr<net::Listener> listener_;
  Gate gate_;
};

}  // namespace

Task<Result<Mesh>> Mesh::join(Loop& loop, net::Transport& transport, Meeting meeting, Node self,
                              std::string& missing) {
  Joining joining(loop, transport, std::move(meeting), std::move(self), missing);
  auto running = joining.run();
  co_return co_await std::move(running);
}

}  // namespace ff::collective
