// successor.cc: waiting for the end of lower ranks, and the connection to another leader.
#include "training/collective/successor.h"

#include <sys/eventfd.h>

#include "platform/base/check.h"
#include "platform/base/system_loop.h"
#include "training/collective/host_ballots.h"
#include "training/collective/peer_handshake.h"
#include "training/collective/successor_messages.h"
#include "training/collective/vote_count.h"

namespace ff::collective {

namespace {

constexpr int64_t kStandByNs = 50 * kMillisecond;  // between two looks at the lower ranks
constexpr int64_t kReportNs = 50 * kMillisecond;   // between two looks at the votes
constexpr int64_t kReachNs = 2500 * kMillisecond;  // for one leader to answer
constexpr int64_t kReachAgainNs = 50 * kMillisecond;

const auth::Service kLeaderService{auth::Role::rank, {}};

class Successor {
 public:
  Successor(HostGroup& group, const SuccessorPlace& place, Clock& clock,
            const std::atomic<bool>& stopping)
      : group_(group),
        world_(place.world),
        network_(place.network),
        stopping_(stopping),
        node_(world_.node_of(group.self().first_rank)),
        host_(group, node_),
        loop_(clock) {}

  void run() {
    net::TransportOptions options = network_.transport;
    if (network_.key) {
      const HostRank& self = group_.self();
      auth::Entity entity{.role = auth::Role::rank,
                          .name = std::to_string(self.first_rank + self.rank)};
      options.keyring = auth::Keyring::from_root(*network_.key, std::move(entity));
    }
    net::SystemTransport transport(std::move(options));
    run_task(loop_, serve(transport));
    run_task(loop_, transport.drain(loop_));
  }

 private:
  bool is_over() const { return stopping_.load() || host_.is_over(); }

  Task<void> serve(net::SystemTransport& transport) {
    Gate gate(loop_);
    gate.spawn(find_leaders(transport));
    const auto has_ended = [&] { return is_over() || gate.running() == 0; };
    co_await poll_until(loop_, has_ended);
    co_await gate.close(fail(Errc::interrupted, "the ballots are over"));
  }

  // One after the other, until the shrink is over or none answers.
  Task<void> find_leaders(net::SystemTransport& transport) {
    const int64_t patience_ns = successor_grace_ns(group_.self()) + kVoteGraceNs;
    for (int64_t until_ns = loop_.now_ns() + patience_ns; loop_.now_ns() < until_ns;) {
      for (uint32_t node = 0; node < world_.nodes.size() && !is_over(); node++) {
        if (node == node_) continue;
        auto link = co_await with_deadline(loop_, loop_.now_ns() + kReachNs, "a leader",
                                           reach(transport, node));
        if (!link) continue;
        co_await report_to(**link);
        until_ns = loop_.now_ns() + patience_ns;
      }
      if (is_over() || !co_await sleep_for(loop_, kReachAgainNs)) co_return;
    }
    host_.exclude(HostExclusion::cut_off);
  }

  Task<Result<std::unique_ptr<net::Connection>>> reach(net::SystemTransport& transport,
                                                       uint32_t node) {
    net::Address to = world_.nodes[node].address;
    if (node == 0) to.host = network_.at.host;
    FF_CO_TRY(auto link, co_await transport.connect(loop_, to, kLeaderService));
    const HostRank& self = group_.self();
    const SuccessorHello hello{
        .world = world_.mark(), .node = node_, .rank = self.first_rank + self.rank};
    send_step(*link, HandshakeStep::successor, encode_hello(hello));
    FF_CO_TRY(co_await receive_step(*link, HandshakeStep::successor));
    co_return link;
  }

  // Until the connection ends or the shrink is over.
  Task<void> report_to(net::Connection& link) {
    auto watching = loop_.watch(group_.wake_fd());
    if (!watching) FF_CHECK(!"an eventfd that cannot be watched");
    FdWatch& watched = **watching;
    last_report_.clear();
    Gate gate(loop_);
    gate.spawn(receive_decisions(link));
    while (!is_over() && !link.failed()) {
      watched.readable.reset();
      eventfd_t count = 0;
      (void)::eventfd_read(group_.wake_fd(), &count);
      report(link);
      const auto waited = co_await watched.readable.wait(loop_.now_ns() + kReportNs);
      if (!waited && waited.error().code != Errc::deadline) break;
    }
    co_await gate.close(fail(Errc::interrupted, "the connection has ended"));
  }

  void report(net::Connection& link) {
    const uint32_t ballot = host_.stored();
    const int64_t now_ns = loop_.now_ns();
    if (timed_ != ballot) {
      timed_ = ballot;
      began_ns_.reset();
      vote_.reset();
    }
    if (!began_ns_ && (active_ == ballot + 1 || host_.has_vote())) began_ns_ = now_ns;
    const bool is_late = began_ns_ && now_ns - *began_ns_ >= host_.limit_ns();
    if (began_ns_ && !vote_) vote_ = host_.count(is_late);
    const std::string message =
        encode_report({.ballot = ballot, .mark = host_.mark(world_.nodes.size()), .vote = vote_});
    if (message == last_report_) return;
    last_report_ = message;
    link.send(
        {.kind = net::FrameKind::call, .method = static_cast<uint32_t>(SuccessorMethod::report)},
        message);
  }

  Task<void> receive_decisions(net::Connection& link) {
    for (;;) {
      auto frame = co_await link.receive();
      if (!frame) co_return;
      if (auto handled = handle(*frame); !handled) co_return link.close(handled.error());
      group_.wake_leader();  // report_to()
    }
  }

  Result<void> handle(const net::Frame& frame) {
    const ByteView message = as_bytes(frame.message);
    if (frame.head.kind != net::FrameKind::call) return fail(Errc::corrupt, "no frame of a ballot");
    switch (static_cast<SuccessorMethod>(frame.head.method)) {
      case SuccessorMethod::decision: {
        FF_TRY(const SuccessorDecision decision, parse_decision(message, world_.nodes.size()));
        if (decision.ballot == host_.stored()) host_.store(decision.nodes, decision.all_joined);
        return {};
      }
      case SuccessorMethod::active:
        if (message.size() != sizeof(uint32_t)) return fail(Errc::corrupt, "no ballot");
        active_ = load_le<uint32_t>(message.data()) + 1;
        return {};
      case SuccessorMethod::differs: host_.exclude(HostExclusion::differs); return {};
      default: return fail(Errc::corrupt, "an unknown frame of a ballot");
    }
  }

  HostGroup& group_;
  const World& world_;
  const Network& network_;
  const std::atomic<bool>& stopping_;
  const uint32_t node_;
  HostBallots host_;
  SystemLoop loop_;
  uint32_t active_ = 0;          // the last ballot that is active elsewhere, + 1
  uint32_t timed_ = UINT32_MAX;  // the ballot that the next two are of
  std::optional<int64_t> began_ns_;
  std::optional<NodeMembers> vote_;
  std::string last_report_;  // on this connection
};

}  // namespace

void stand_by_as_successor(HostGroup& group, SuccessorPlace place, Clock& clock,
                           const std::atomic<bool>& stopping) {
  OperationTable& operations = group.operations();
  const uint32_t self = group.self().rank, node = place.world.node_of(group.self().first_rank);
  const auto is_lowest = [&] {
    for (uint32_t rank = 0; rank < self; rank++) {
      if (!operations.votes().has_ceased(rank) && !group.has_ended(rank)) return false;
    }
    return true;
  };
  while (!is_lowest()) {
    if (stopping.load() || HostBallots(group, node).is_over()) return;
    const int64_t until_ns = clock.steady_ns() + kStandByNs;
    (void)operations.wait(OperationTable::Futex::work, clock, until_ns,
                          [&] { return stopping.load(); });
  }
  Successor(group, place, clock, stopping).run();
}

}  // namespace ff::collective
