// Nodes that agree while others fail between any two messages: all that act on a ballot act on the
// same decision, and those that live go on.
#include "training/collective/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <set>

#include "platform/base/rng.h"

namespace ff::collective {
namespace {

using Decision = std::vector<std::pair<RankSet, uint32_t>>;  // ranks and port of each node

// Nodes with queues between them, whose events happen in a random order.
class FailingNodes {
 public:
  FailingNodes(uint64_t seed, uint32_t count) : rng_(seed), queues_(count * count), nodes_(count) {
    for (uint32_t self = 0; self < count; self++) {
      nodes_[self].agreement = std::make_unique<Agreement>(
          count, self, [this, self](uint32_t to, const std::string& message) {
            if (self == dying_ && rng_.below(2) == 0) unsent_.insert(to);
            if (self != dying_ || !unsent_.contains(to)) queue(self, to).push_back(message);
          });
    }
  }

  Agreement& agreement(uint32_t node) { return *nodes_[node].agreement; }
  const std::vector<Decision>& decisions() const { return decisions_; }
  bool is_dead(uint32_t node) const { return nodes_[node].is_dead; }

  // One of the events that can happen; false: there is none.
  bool step() {
    std::vector<std::function<void()>> events;
    for (uint32_t to = 0; to < nodes_.size(); to++) {
      if (nodes_[to].is_dead) continue;
      if (may_vote(to)) events.emplace_back([this, to] { vote(to); });
      for (uint32_t from = 0; from < nodes_.size(); from++) {
        if (from == to) continue;
        if (!queue(from, to).empty()) {
          events.emplace_back([this, from, to] { deliver(from, to); });
        } else if (nodes_[from].is_dead && !nodes_[to].lost.contains(from)) {
          events.emplace_back([this, from, to] { lose(from, to); });
        }
      }
    }
    if (events.empty()) return false;
    // The event may be the last of its node, which then sends only some of its messages.
    const auto living = std::ranges::count_if(nodes_, [](auto& one) { return !one.is_dead; });
    dying_ = living > 1 && rng_.below(40) == 0 ? static_cast<uint32_t>(rng_.below(nodes_.size()))
                                               : UINT32_MAX;
    unsent_.clear();
    events[rng_.below(events.size())]();
    if (dying_ != UINT32_MAX) nodes_[dying_].is_dead = true;
    for (uint32_t node = 0; node < nodes_.size(); node++) act(node);
    return true;
  }

 private:
  struct Node {
    std::unique_ptr<Agreement> agreement;
    bool is_dead = false;
    std::set<uint32_t> lost = {};
    uint32_t acted = 0;  // decisions
    bool joined = false;
  };

  std::deque<std::string>& queue(uint32_t from, uint32_t to) {
    return queues_[from * nodes_.size() + to];
  }
  bool may_vote(uint32_t node) {
    const Agreement& one = agreement(node);
    return !nodes_[node].joined && !one.has_voted() && !one.is_excluded();
  }
  void vote(uint32_t node) {
    const bool joins = agreement(node).ballot() % 2 == 1;
    const bool refuses = joins && rng_.below(5) == 0;
    agreement(node).vote({.ranks = refuses ? 0U : 1U, .port = joins ? 0 : 100 + node});
  }
  void deliver(uint32_t from, uint32_t to) {
    const std::string message = queue(from, to).front();
    queue(from, to).pop_front();
    EXPECT_TRUE(agreement(to).handle(from, as_bytes(message)).ok());
  }
  void lose(uint32_t from, uint32_t to) {
    nodes_[to].lost.insert(from);
    agreement(to).lose(from);
  }
  // A node acts on its decisions once it has sent them.
  void act(uint32_t node) {
    Node& one = nodes_[node];
    while (!one.is_dead && one.acted < one.agreement->ballot()) {
      Decision decision;
      for (const auto& vote : one.agreement->decision(one.acted)) {
        decision.emplace_back(vote.ranks, vote.port);
      }
      if (decisions_.size() == one.acted) decisions_.push_back(decision);
      EXPECT_EQ(decisions_[one.acted], decision) << "ballot " << one.acted << " of node " << node;
      one.joined = one.acted % 2 == 1 && one.agreement->all_joined(one.acted);
      one.acted++;
    }
  }

  SeededRng rng_;
  std::vector<std::deque<std::string>> queues_;
  std::vector<Node> nodes_;
  std::vector<Decision> decisions_;
  uint32_t dying_ = UINT32_MAX;
  std::set<uint32_t> unsent_;  // nodes to which the dying one sends no more
};

TEST(AgreementTest, AllThatActDoTheSameWhoeverFails) {
  uint64_t rounds = 0, deaths = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto count = static_cast<uint32_t>(2 + seed % 4);
    FailingNodes nodes(seed, count);
    while (nodes.step()) {
    }
    ASSERT_FALSE(nodes.decisions().empty());
    for (uint32_t node = 0; node < count; node++) {
      deaths += nodes.is_dead(node) ? 1 : 0;
      if (nodes.is_dead(node)) continue;
      const Agreement& one = nodes.agreement(node);
      EXPECT_FALSE(one.is_excluded()) << "node " << node << " lives";
      ASSERT_EQ(one.ballot() % 2, 0u) << "node " << node << " waits for the joining";
      EXPECT_TRUE(one.ballot() > 0 && one.all_joined(one.ballot() - 1));
      rounds += one.ballot() / 2;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(rounds, 4000u);
  EXPECT_GT(deaths, 1000u);
}

// Three nodes whose messages the test delivers.
class ThreeNodesTest : public testing::Test {
 protected:
  ThreeNodesTest() {
    for (uint32_t self = 0; self < 3; self++) {
      nodes_.push_back(std::make_unique<Agreement>(
          3, self, [this, self](uint32_t to, const std::string& message) {
            sent_.push_back({self, to, message});
          }));
    }
  }
  void deliver_to(const std::set<uint32_t>& receivers) {
    for (size_t i = 0; i < sent_.size(); i++) {
      const Sent one = sent_[i];
      if (receivers.contains(one.to)) {
        EXPECT_TRUE(nodes_[one.to]->handle(one.from, as_bytes(one.message)).ok());
      } else {
        kept_.push_back(one);
      }
    }
    sent_.clear();
  }

  struct Sent {
    uint32_t from = 0, to = 0;
    std::string message;
  };
  std::vector<std::unique_ptr<Agreement>> nodes_;
  std::vector<Sent> sent_, kept_;
};

TEST_F(ThreeNodesTest, AtTheDeadlineTheOthersGoOnAndItLearnsThat) {
  for (const uint32_t node : {0U, 1U}) nodes_[node]->vote({.ranks = 3, .port = 7});
  deliver_to({0, 1});
  EXPECT_EQ(nodes_[0]->ballot(), 0u);
  nodes_[0]->expire();
  deliver_to({0, 1});
  for (const uint32_t node : {0U, 1U}) {
    ASSERT_EQ(nodes_[node]->ballot(), 1u);
    EXPECT_EQ(nodes_[node]->decision(0)[1].ranks, 3u);
    EXPECT_EQ(nodes_[node]->decision(0)[2].ranks, 0u);
  }
  nodes_[2]->vote({.ranks = 1, .port = 7});  // it wakes
  sent_.insert(sent_.end(), kept_.begin(), kept_.end());
  deliver_to({0, 1, 2});
  EXPECT_TRUE(nodes_[2]->is_excluded());
}

TEST_F(ThreeNodesTest, AnotherNodeReplacesASilentCoordinator) {
  for (const uint32_t node : {1U, 2U}) nodes_[node]->vote({.ranks = 1, .port = 7});
  deliver_to({1, 2});
  for (const uint32_t node : {1U, 2U}) nodes_[node]->lose(0);
  deliver_to({1, 2});
  for (const uint32_t node : {1U, 2U}) {
    ASSERT_EQ(nodes_[node]->ballot(), 1u);
    EXPECT_EQ(nodes_[node]->decision(0)[0].ranks, 0u);
    EXPECT_EQ(nodes_[node]->coordinator(), 1u);
  }
}

TEST_F(ThreeNodesTest, OneThatHasNotJoinedEndsTheJoiningAtOnce) {
  for (const auto& node : nodes_) node->vote({.ranks = 1, .port = 7});
  deliver_to({0, 1, 2});
  nodes_[1]->vote({.ranks = 0});
  deliver_to({0, 1, 2});
  for (const auto& node : nodes_) {
    ASSERT_EQ(node->ballot(), 2u);
    EXPECT_FALSE(node->all_joined(1));
  }
}

TEST_F(ThreeNodesTest, MalformedVotesAreRefused) {
  for (const std::string& bad : {std::string(), std::string(3, 'x'), std::string(20, '\xff')}) {
    EXPECT_EQ(nodes_[0]->handle(1, as_bytes(bad)).error().code, Errc::corrupt);
  }
}

}  // namespace
}  // namespace ff::collective
