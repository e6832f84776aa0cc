// Successors of leaders (successor.h) beside the shrinks of shrink_test.cc: one that comes too
// late, leaders that leave instead of dying, and processes that only say they were successors.
#include "training/collective/successor.h"

#include <sys/mman.h>

#include <atomic>

#include "platform/base/system_loop.h"
#include "training/collective/failed_rank.h"
#include "training/collective/peer_handshake.h"
#include "training/collective/successor_messages.h"

namespace ff::collective {
namespace {

// The ranks of a communicator, as they were numbered at first.
std::vector<uint32_t> who_goes_on(Communicator& ranks, uint32_t self) {
  std::vector<uint32_t> members(ranks.ranks());
  const auto run = ranks.run({.kind = Collective::allgather,
                              .type = simd::DataType::i32,
                              .count = 1,
                              .in = &self,
                              .out = members.data()});
  EXPECT_TRUE(run.ok()) << run.error().message;
  return members;
}

void run_until_failure(Communicator& ranks) {
  while (ranks.run({.kind = Collective::barrier})) {
  }
}

// A flag that processes share.
class SharedFlag {
 public:
  SharedFlag()
      : flag_(new (::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<bool>(false)) {}
  ~SharedFlag() { ::munmap(flag_, sizeof *flag_); }
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  void set() { flag_->store(true); }
  bool wait() const {
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + 60 * kSecond;
    while (!flag_->load() && clock.steady_ns() < until_ns) clock.sleep_ns(kMillisecond);
    return flag_->load();
  }

 private:
  std::atomic<bool>* flag_;
};

// The leader of the second host dies, and its successor sleeps until the others have gone on.
class LateSuccessorTest : public testing::TestWithParam<bool> {};

TEST_P(LateSuccessorTest, LearnsThatTheOthersWentOn) {
  const bool others_live = GetParam();
  const Nodes nodes{.ranks = {1, 2}, .options = {.operation_ns = 4 * kSecond}};
  SharedFlag stopped, went_on, ended;
  SystemClock clock;
  const StopToken stop(clock);
  const auto fork_one = [&](uint32_t node, uint32_t local, const auto& body) {
    return fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node));
  };
  const pid_t first = fork_one(0, 0, [&](Communicator& ranks) {
    run_until_failure(ranks);
    const auto made = ranks.shrink(stop);
    if (!made || (*made)->ranks() != 1) return 2;
    went_on.set();
    return !others_live || ended.wait() ? kFailedAsExpected : 3;
  });
  const pid_t leader = fork_one(1, 0, [&](Communicator& ranks) {
    (void)ranks.run({.kind = Collective::barrier});
    if (!stopped.wait()) return 4;
    return ::kill(::getpid(), SIGKILL);
  });
  const pid_t successor = fork_one(1, 1, [&](Communicator& ranks) {
    (void)ranks.run({.kind = Collective::barrier});
    stopped.set();
    (void)::kill(::getpid(), SIGSTOP);
    run_until_failure(ranks);
    const auto made = ranks.shrink(stop);
    if (made) return 5;
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    const bool is_right = others_live ? made.error().code == Errc::deadline &&
                                            contains(made.error().message, "go on without rank 2")
                                      : made.error().code == Errc::unreachable &&
                                            contains(made.error().message, "no other host answers");
    return is_right ? kFailedAsExpected : 6;
  });
  EXPECT_EQ(exit_of(leader), 128 + SIGKILL);
  EXPECT_TRUE(went_on.wait());
  if (!others_live) {
    EXPECT_EQ(exit_of(first), kFailedAsExpected);
  }
  (void)::kill(successor, SIGCONT);
  EXPECT_EQ(exit_of(successor), kFailedAsExpected);
  ended.set();
  if (others_live) {
    EXPECT_EQ(exit_of(first), kFailedAsExpected);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, LateSuccessorTest, testing::Bool(), [](const auto& one) {
  return one.param ? "HostsThatLive" : "HostsThatHaveEnded";
});

TEST(SuccessorTest, OneOfALeaderThatHasLeft) {
  SystemClock clock;
  const StopToken stop(clock);
  with_nodes({.ranks = {3, 2}}, [&stop](Communicator& ranks) {
    const uint32_t self = ranks.rank();
    (void)ranks.run({.kind = Collective::barrier});
    if (self == 0) return;
    run_until_failure(ranks);
    const auto made = ranks.shrink(stop);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(who_goes_on(**made, self), (std::vector<uint32_t>{1, 2, 3, 4}));
  });
}

TEST(SuccessorTest, WithoutAnyLeaderNobodyGoesOn) {
  SystemClock clock;
  const StopToken stop(clock);
  const CommunicatorOptions options{.operation_ns = 4 * kSecond};
  with_nodes({.ranks = {3, 2}, .options = options}, [&stop](Communicator& ranks) {
    const uint32_t self = ranks.rank();
    (void)ranks.run({.kind = Collective::barrier});
    if (self == 0 || self == 3) return;
    run_until_failure(ranks);
    const auto made = ranks.shrink(stop);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Errc::unreachable) << made.error().message;
    EXPECT_TRUE(contains(made.error().message, "no other host answers")) << made.error().message;
  });
}

// A process that connects to a leader as a successor would.
class FalseSuccessor {
 public:
  explicit FalseSuccessor(std::optional<auth::Key> key) : transport_(options_of(key)) {}

  // What the leader answers to the hello.
  Result<void> greet(const net::Address& leader, const std::string& hello) {
    return run_task(loop_, with_deadline(loop_, loop_.now_ns() + 30 * kSecond, "the leader",
                                         exchange(leader, hello)));
  }
  void report(const SuccessorReport& report) {
    link_->send(
        {.kind = net::FrameKind::call, .method = static_cast<uint32_t>(SuccessorMethod::report)},
        encode_report(report));
    run_task(loop_, flush());
  }

 private:
  static net::TransportOptions options_of(const std::optional<auth::Key>& key) {
    net::TransportOptions options{.mode = net::NetMode::tcp};
    if (key) options.keyring = auth::Keyring::from_root(*key, {auth::Role::rank, "3"});
    return options;
  }
  Task<Result<void>> exchange(net::Address leader, std::string hello) {
    const auth::Service service{auth::Role::rank, {}};
    FF_CO_TRY(link_, co_await transport_.connect(loop_, leader, service));
    send_step(*link_, HandshakeStep::successor, hello);
    auto answer = co_await receive_step(*link_, HandshakeStep::successor);
    if (!answer) co_return std::move(answer).error();
    co_return Result<void>();
  }
  Task<void> flush() { (void)co_await link_->wait_flushed(); }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  net::SystemTransport transport_;
  std::unique_ptr<net::Connection> link_;
};

// Tries what a stranger, and a confused process with the key, can try.
void attack(const Nodes& nodes, const World& world, uint32_t node, FalseSuccessor& with_key) {
  net::Address leader = world.nodes[node].address;
  leader.host = nodes.host;
  const SuccessorHello hello{.world = world.mark(), .node = 1 - node, .rank = node == 0 ? 3U : 1U};
  for (const auto& key : {std::optional<auth::Key>(), std::optional(key_of(9))}) {
    FalseSuccessor stranger(key);
    const auto answer = stranger.greet(leader, encode_hello(hello));
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Errc::refused) << answer.error().message;
  }
  const auto refused = [&](SuccessorHello one, Errc code) {
    FalseSuccessor confused(nodes.key);
    const auto answer = confused.greet(leader, encode_hello(one));
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, code) << answer.error().message;
  };
  refused({.world = hello.world + 1, .node = hello.node, .rank = hello.rank}, Errc::stale);
  refused({.world = hello.world, .node = node, .rank = node * 2 + 1}, Errc::usage);
  refused({.world = hello.world, .node = 2, .rank = hello.rank}, Errc::usage);
  refused({.world = hello.world, .node = hello.node, .rank = 4}, Errc::usage);
  FalseSuccessor malformed(nodes.key);
  const auto answer = malformed.greet(leader, "hello");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Errc::corrupt) << answer.error().message;
  // The leader of that node lives: what this one says does not count.
  const auto admitted = with_key.greet(leader, encode_hello(hello));
  ASSERT_TRUE(admitted.ok()) << admitted.error().message;
  with_key.report({.ballot = 0, .vote = NodeMembers{.ranks = 2, .port = 1}});
}

TEST(SuccessorTest, StrangersAndFalseOnesChangeNothing) {
  SystemClock clock;
  const StopToken stop(clock);
  const Nodes nodes{.ranks = {2, 2}, .key = key_of(7)};
  with_nodes(nodes, [&](Communicator& ranks) {
    const uint32_t self = ranks.rank();
    FalseSuccessor of_other(nodes.key);
    if (self % 2 == 0) attack(nodes, *ranks.world(), self / 2, of_other);
    (void)ranks.run({.kind = Collective::barrier});
    const auto made = ranks.shrink(stop);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(who_goes_on(**made, self), (std::vector<uint32_t>{0, 1, 2, 3}));
  });
}

TEST(SuccessorMessagesTest, AreReadAsTheyWereWritten) {
  const auto hello = parse_hello(as_bytes(encode_hello({.world = 1, .node = 2, .rank = 3})));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(std::tuple(hello->world, hello->node, hello->rank), std::tuple(1U, 2U, 3U));
  const NodeMembers vote{.ranks = 6, .port = 40000};
  for (const auto& one : {std::optional(vote), std::optional<NodeMembers>()}) {
    const auto report =
        parse_report(as_bytes(encode_report({.ballot = 2, .mark = 99, .vote = one})));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(std::tuple(report->ballot, report->mark), std::tuple(2U, 99U));
    EXPECT_EQ(report->vote.has_value(), one.has_value());
    if (report->vote) {
      EXPECT_EQ(report->vote->ranks, 6U);
      EXPECT_EQ(report->vote->port, 40000U);
    }
  }
  const std::string even = encode_decision({.ballot = 4, .nodes = {vote, {}}});
  const auto decision = parse_decision(as_bytes(even), 2);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->nodes[0].ranks, 6U);
  EXPECT_EQ(decision->nodes[1].ranks, 0U);
  const auto odd = parse_decision(as_bytes(encode_decision({.ballot = 5, .all_joined = true})), 2);
  ASSERT_TRUE(odd.ok());
  EXPECT_TRUE(odd->all_joined);
  EXPECT_EQ(parse_decision(as_bytes(even), 3).error().code, Errc::corrupt);
  for (const std::string& bad : {std::string(), std::string(3, 'x'), std::string(40, '\xff')}) {
    EXPECT_EQ(parse_hello(as_bytes(bad)).error().code, Errc::corrupt);
    EXPECT_EQ(parse_report(as_bytes(bad)).error().code, Errc::corrupt);
    EXPECT_EQ(parse_decision(as_bytes(bad), 2).error().code, Errc::corrupt);
  }
}

}  // namespace
}  // namespace ff::collective
