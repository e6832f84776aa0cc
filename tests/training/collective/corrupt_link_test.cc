// A link between two hosts that flips bits: every sum and message is right, or an error names the
// link.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <mutex>

#include "training/collective/checks.h"
#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

// Forwards the connections of a port to another one, and flips one bit in some of the large reads.
class FlippingProxy {
 public:
  FlippingProxy(uint16_t target, uint64_t seed, uint64_t every)
      : target_(target), every_(every), rng_(seed) {
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in at = address(port_);
    const int yes = 1;
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    accepting_ = std::thread([this] { accept(); });
  }
  ~FlippingProxy() {
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& one : forwarding_) one.join();
  }
  FlippingProxy(const FlippingProxy&) = delete;
  FlippingProxy& operator=(const FlippingProxy&) = delete;

  uint16_t port() const { return port_; }
  uint64_t flips() const { return flips_; }

 private:
  static constexpr size_t kLargeBytes = 32 * kKiB;

  static sockaddr_in address(uint16_t port) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    return at;
  }

  void accept() {
    while (!stopping_) {
      Fd from(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (from.get() < 0) continue;
      Fd to;
      const sockaddr_in at = address(target_);
      for (int failed = 1; failed != 0 && !stopping_;) {  // rank 0 may not listen yet
        to = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        failed = ::connect(to.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
        if (failed != 0) (void)::poll(nullptr, 0, 2);
      }
      auto both = std::make_shared<std::array<Fd, 2>>();
      (*both)[0] = std::move(from);
      (*both)[1] = std::move(to);
      for (const size_t side : {0, 1}) {
        forwarding_.emplace_back([this, both, side] { forward((*both)[side], (*both)[1 - side]); });
      }
    }
  }

  void forward(const Fd& from, const Fd& to) {
    std::vector<unsigned char> buffer(256 * kKiB);
    for (;;) {
      const ssize_t got = ::recv(from.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      const auto bytes = static_cast<size_t>(got);
      if (bytes >= kLargeBytes) flip_some(buffer.data(), bytes);
      size_t sent = 0;
      while (sent < bytes) {
        const ssize_t put = ::send(to.get(), &buffer[sent], bytes - sent, MSG_NOSIGNAL);
        if (put <= 0) break;
        sent += static_cast<size_t>(put);
      }
      if (sent < bytes) break;
    }
    ::shutdown(from.get(), SHUT_RD);
    ::shutdown(to.get(), SHUT_WR);
  }

  void flip_some(unsigned char* bytes, size_t size) {
    const std::lock_guard lock(mutex_);
    if (++large_ % every_ != 0) return;
    const uint64_t bit = rng_.below(size * 8);
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
    flips_++;
  }

  const uint16_t target_;
  const uint64_t every_;
  const uint16_t port_ = free_port();
  Fd listener_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> flips_ = 0;
  std::mutex mutex_;
  SeededRng rng_;       // guarded by mutex_
  uint64_t large_ = 0;  // the same
  std::thread accepting_;
  std::vector<std::thread> forwarding_;
};

constexpr uint64_t kCorruptCount = 300'000;
constexpr int kSumsMax = 100;

// Sums until one fails. Empty: all were right.
std::string sum_until_error(Communicator& ranks) {
  std::vector<int32_t> in(kCorruptCount), out(kCorruptCount);
  const auto all = static_cast<int32_t>(ranks.ranks());
  for (int32_t round = 0; round < kSumsMax; round++) {
    for (size_t i = 0; i < in.size(); i++) {
      in[i] = static_cast<int32_t>(i) * (round + 1) + static_cast<int32_t>(ranks.rank());
    }
    const auto run = ranks.run(
        {.type = DataType::i32, .count = kCorruptCount, .in = in.data(), .out = out.data()});
    if (!run) return fmt::format("{}: {}", errc_name(run.error().code), run.error().message);
    for (size_t i = 0; i < out.size(); i++) {
      const int32_t expected = static_cast<int32_t>(i) * (round + 1) * all + all * (all - 1) / 2;
      EXPECT_EQ(out[i], expected) << "a wrong sum without an error, round " << round;
      if (out[i] != expected) return "wrong";
    }
  }
  return {};
}

// The same with messages, from each rank to the next.
std::string send_until_error(Communicator& ranks) {
  const uint32_t rank = ranks.rank(), all = ranks.ranks();
  const uint32_t to = (rank + 1) % all, from = (rank + all - 1) % all;
  std::vector<uint32_t> in(kCorruptCount), out(kCorruptCount);
  for (uint32_t round = 0; round < kSumsMax; round++) {
    for (uint32_t i = 0; i < kCorruptCount; i++) in[i] = i * (round + 1) + rank;
    const auto sends = ranks.start_send({in.data(), kCorruptCount * 4}, to, 0);
    const auto receives = ranks.start_receive({out.data(), kCorruptCount * 4}, from, 0);
    for (const auto& number : {receives, sends}) {
      const auto waited = number ? ranks.wait(*number) : Result<void>(number.error());
      if (waited) continue;
      return fmt::format("{}: {}", errc_name(waited.error().code), waited.error().message);
    }
    for (uint32_t i = 0; i < kCorruptCount; i++) {
      EXPECT_EQ(out[i], i * (round + 1) + from) << "a wrong message without an error";
      if (out[i] != i * (round + 1) + from) return "wrong";
    }
  }
  return {};
}

// Only the link between rank 0 and rank 1 flips bits.
void check_link(const Nodes& nodes, uint64_t seed, uint64_t every,
                std::string (*body)(Communicator&) = sum_until_error) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", every " << every);
  FlippingProxy proxy(nodes.port, seed, every);
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::string> said(nodes.ranks.size());
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < said.size(); node++) {
    threads.emplace_back([&, node] {
      Network network = nodes.network(node);
      if (node == 1) network.at.port = proxy.port();
      auto joined = Communicator::join(nodes.rank(node, 0), stop, nodes.options, network);
      ASSERT_TRUE(joined.ok()) << joined.error().message;
      said[node] = body(**joined);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_GT(proxy.flips(), 0u);
  bool is_named = false;
  for (const std::string& one : said) {
    EXPECT_NE(one, "");
    is_named |= one.starts_with("corrupt") && contains(one, "the link from rank ") &&
                contains(one, "rank 0 (process") && contains(one, "rank 1 (process");
    EXPECT_FALSE(contains(one, "rank 2 (process") && contains(one, "the link")) << one;
  }
  EXPECT_TRUE(is_named) << fmt::format("{}", fmt::join(said, "; "));
}

TEST(CorruptLinkTest, EveryFlippedBitIsAnErrorOfTheLink) {
  const uint64_t seed = system_seed();
  for (uint64_t round = 0; round < 10; round++) {
    check_link({.ranks = {1, 1}}, seed + round, 1 + 4 * round);
  }
}

TEST(CorruptLinkTest, EveryFlippedBitOfAMessageIsAnErrorOfTheLink) {
  const uint64_t seed = system_seed();
  for (uint64_t round = 0; round < 6; round++) {
    check_link({.ranks = {1, 1}}, seed + round, 1 + 4 * round, send_until_error);
  }
}

// What a host forwards was checked before.
TEST(CorruptLinkTest, AHostForwardsNothingThatIsWrong) {
  const uint64_t seed = system_seed();
  for (uint64_t round = 0; round < 6; round++) {
    const auto algorithm = round % 2 == 0 ? Algorithm::ring : Algorithm::tree;
    check_link({.ranks = {1, 1, 1}, .pipeline = {.algorithm = algorithm}}, seed + round,
               1 + 5 * round);
  }
}

}  // namespace
}  // namespace ff::collective
