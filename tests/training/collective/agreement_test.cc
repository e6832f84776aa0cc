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

constexpr RankSet kLeader = 1, kOther = 2;  // the ranks of a node

// Nodes with queues between them, whose events happen in a random order. Nodes with an odd number
// have a second rank: when the leader dies, it is the successor, which connects to any leader that
// lives, and may die as well.
class FailingNodes {
 public:
  FailingNodes(uint64_t seed, uint32_t count) : rng_(seed), queues_(count * count), nodes_(count) {
    std::vector<RankSet> ranks;
    for (uint32_t self = 0; self < count; self++) {
      ranks.push_back(self % 2 == 1 ? kLeader | kOther : kLeader);
    }
    for (uint32_t self = 0; self < count; self++) {
      nodes_[self].has_successor = self % 2 == 1;
      nodes_[self].agreement = std::make_unique<Agreement>(
          ranks, self, [this, self](uint32_t to, const std::string& message) {
            if (self == dying_ && rng_.below(2) == 0) unsent_.insert(to);
            if (self != dying_ || !unsent_.contains(to)) queue(self, to).push_back(message);
          });
    }
  }

  Agreement& agreement(uint32_t node) { return *nodes_[node].agreement; }
  const std::vector<Decision>& decisions() const { return decisions_; }
  bool is_dead(uint32_t node) const { return nodes_[node].is_dead; }
  // A successor that lives while its leader does not.
  bool succeeds(uint32_t node) const { return is_dead(node) && nodes_[node].has_successor; }
  // Its host goes on with the others.
  bool has_joined(uint32_t node) const { return nodes_[node].joined; }
  bool is_left_behind(uint32_t node) const {
    return !decisions_.empty() && nodes_[node].acted > 0 && !nodes_[node].is_member;
  }
  uint64_t given_up() const { return given_up_; }

  // One of the events that can happen; false: there is none.
  bool step() {
    std::vector<std::function<void()>> events;
    for (uint32_t to = 0; to < nodes_.size(); to++) {
      if (nodes_[to].is_dead) {
        add_events_of_successor(to, events);
        continue;
      }
      if (may_vote(to)) events.emplace_back([this, to] { vote(to); });
      for (uint32_t from = 0; from < nodes_.size(); from++) {
        if (from == to) continue;
        if (!queue(from, to).empty()) {
          events.emplace_back([this, from, to] { deliver(from, to); });
        } else if (nodes_[from].is_dead && !nodes_[to].lost.contains(from)) {
          events.emplace_back([this, from, to] { lose(from, to); });
        }
        if (may_give_up(to, from)) events.emplace_back([this, from, to] { give_up(to, from); });
      }
    }
    if (events.empty()) return false;
    // The event may be the last of its node, which then sends only some of its messages.
    const auto living = std::ranges::count_if(nodes_, [](auto& one) { return !one.is_dead; });
    dying_ = living > 1 && rng_.below(40) == 0 ? static_cast<uint32_t>(rng_.below(nodes_.size()))
                                               : UINT32_MAX;
    unsent_.clear();
    events[rng_.below(events.size())]();
    if (dying_ != UINT32_MAX) die(dying_);
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
    bool is_member = true;
    bool has_successor = false;
    std::optional<uint32_t> via = {};  // whom the successor reports to
    bool has_reported = false;         // its vote in the ballot
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
    const RankSet ranks = nodes_[node].has_successor ? kLeader | kOther : kLeader;
    agreement(node).vote(
        {.ranks = joins ? (refuses ? 0 : 1) : ranks, .port = joins ? 0 : 100 + node});
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
  // Of those that do not come any more always; of others now and then.
  bool may_give_up(uint32_t node, uint32_t of) {
    if (!agreement(node).misses_successor(of)) return false;
    return !succeeds(of) || rng_.below(200) == 0;
  }
  void give_up(uint32_t node, uint32_t of) {
    given_up_ += succeeds(of) ? 1 : 0;
    agreement(node).give_up(of);
  }

  void die(uint32_t node) {
    Node& one = nodes_[node];
    if (one.is_dead || rng_.below(4) == 0) {  // the successor, alone or with its leader
      one.has_successor = false;
      one.via.reset();
    }
    one.is_dead = true;
    for (uint32_t host = 0; host < nodes_.size(); host++) {
      if (nodes_[host].via == node) nodes_[host].via.reset();
      if (host == node || is_dead(host) || one.has_successor) continue;
      // Leaders see the end of its connection.
      agreement(host).remove_successor(node);
    }
  }

  void add_events_of_successor(uint32_t node, std::vector<std::function<void()>>& events) {
    Node& one = nodes_[node];
    if (!one.has_successor || !one.is_member || one.joined) return;
    for (uint32_t leader = 0; leader < nodes_.size() && !one.via; leader++) {
      if (is_dead(leader) || !nodes_[leader].is_member) continue;
      events.emplace_back([this, node, leader] {
        nodes_[node].via = leader;
        nodes_[node].has_reported = false;
        agreement(leader).report_successor(node, nodes_[node].acted, std::nullopt);
      });
    }
    if (!one.via) return;
    const uint32_t leader = *one.via;
    if (!nodes_[leader].is_member) {  // it refuses successors now
      events.emplace_back([this, node, leader] {
        nodes_[node].via.reset();
        agreement(leader).remove_successor(node);
      });
    } else if (one.acted < nodes_[leader].acted) {
      events.emplace_back([this, node] { act_on_next(node, *nodes_[node].via); });
    } else if (!one.has_reported) {
      events.emplace_back([this, node] { report(node); });
    }
  }
  // The vote of its host: of a joining with its lost leader, that it has failed.
  void report(uint32_t node) {
    Node& one = nodes_[node];
    one.has_reported = true;
    const bool joins = one.acted % 2 == 1;
    const bool with_leader = joins && (decisions_[one.acted - 1][node].first & kLeader) != 0;
    const bool refuses = with_leader || rng_.below(5) == 0;
    agreement(*one.via).report_successor(
        node, one.acted,
        Agreement::Vote{.ranks = joins ? (refuses ? 0U : 1U) : kOther,
                        .port = joins ? 0 : 200 + node});
  }

  // A node acts on its decisions once it has sent them.
  void act(uint32_t node) {
    while (!is_dead(node) && nodes_[node].acted < agreement(node).ballot()) {
      act_on_next(node, node);
    }
  }
  // As the leader of `from` knows it.
  void act_on_next(uint32_t node, uint32_t from) {
    Node& one = nodes_[node];
    const Agreement& known = agreement(from);
    Decision decision;
    for (const auto& vote : known.decision(one.acted)) {
      decision.emplace_back(vote.ranks, vote.port);
    }
    if (decisions_.size() == one.acted) decisions_.push_back(decision);
    EXPECT_EQ(decisions_[one.acted], decision) << "ballot " << one.acted << " of node " << node;
    if (one.acted % 2 == 0) one.is_member = decision[node].first != 0;
    one.joined = one.acted % 2 == 1 && known.all_joined(one.acted);
    one.acted++;
    one.has_reported = false;
    if (node == from || !one.is_member || one.joined) return;
    agreement(from).report_successor(node, one.acted, std::nullopt);
  }

  SeededRng rng_;
  std::vector<std::deque<std::string>> queues_;
  std::vector<Node> nodes_;
  std::vector<Decision> decisions_;
  uint32_t dying_ = UINT32_MAX;
  std::set<uint32_t> unsent_;  // nodes to which the dying one sends no more
  uint64_t given_up_ = 0;      // successors that live
};

TEST(AgreementTest, AllThatActDoTheSameWhoeverFails) {
  uint64_t rounds = 0, deaths = 0, succeeded = 0, left_behind = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto count = static_cast<uint32_t>(2 + seed % 4);
    FailingNodes nodes(seed, count);
    while (nodes.step()) {
    }
    ASSERT_FALSE(nodes.decisions().empty());
    for (uint32_t node = 0; node < count; node++) {
      deaths += nodes.is_dead(node) ? 1 : 0;
      if (nodes.succeeds(node)) {
        EXPECT_NE(nodes.has_joined(node), nodes.is_left_behind(node)) << "node " << node;
        EXPECT_TRUE(nodes.has_joined(node) || nodes.given_up() > 0) << "node " << node;
        succeeded += nodes.has_joined(node) ? 1 : 0;
        left_behind += nodes.is_left_behind(node) ? 1 : 0;
      }
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
  EXPECT_GT(succeeded, 200u);
  EXPECT_GT(left_behind, 0u);
}

// Three nodes whose messages the test delivers.
class ThreeNodesTest : public testing::Test {
 protected:
  ThreeNodesTest() {
    for (uint32_t self = 0; self < 3; self++) {
      nodes_.push_back(
          std::make_unique<Agreement>(std::vector<RankSet>(3, kLeader | kOther), self,
                                      [this, self](uint32_t to, const std::string& message) {
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
  EXPECT_TRUE(nodes_[1]->misses_successor(0));
  EXPECT_FALSE(nodes_[2]->misses_successor(0));  // that is for the coordinator
  nodes_[1]->give_up(0);
  deliver_to({1, 2});
  for (const uint32_t node : {1U, 2U}) {
    ASSERT_EQ(nodes_[node]->ballot(), 1u);
    EXPECT_EQ(nodes_[node]->decision(0)[0].ranks, 0u);
    EXPECT_EQ(nodes_[node]->coordinator(), 1u);
  }
}

TEST_F(ThreeNodesTest, ASuccessorIsWaitedForAndVotesThroughAnyNode) {
  for (const uint32_t node : {0U, 1U}) nodes_[node]->vote({.ranks = 3, .port = 7});
  for (const uint32_t node : {0U, 1U}) nodes_[node]->lose(2);
  deliver_to({0, 1});
  EXPECT_EQ(nodes_[0]->ballot(), 0u);
  nodes_[1]->report_successor(2, 0, std::nullopt);
  deliver_to({0, 1});
  EXPECT_FALSE(nodes_[0]->misses_successor(2));
  nodes_[1]->report_successor(2, 0, Agreement::Vote{.ranks = 2, .port = 8});
  deliver_to({0, 1});
  for (const uint32_t node : {0U, 1U}) {
    ASSERT_EQ(nodes_[node]->ballot(), 1u);
    EXPECT_EQ(nodes_[node]->decision(0)[2].ranks, 2u);
    EXPECT_EQ(nodes_[node]->decision(0)[2].port, 8u);
    nodes_[node]->vote({.ranks = 1});
  }
  // It is gone, and comes back to another node.
  nodes_[1]->report_successor(2, 1, std::nullopt);
  deliver_to({0, 1});
  EXPECT_FALSE(nodes_[0]->misses_successor(2));
  nodes_[1]->remove_successor(2);
  deliver_to({0, 1});
  EXPECT_TRUE(nodes_[0]->misses_successor(2));
  nodes_[0]->report_successor(2, 1, Agreement::Vote{.ranks = 1});
  deliver_to({0, 1});
  for (const uint32_t node : {0U, 1U}) {
    ASSERT_EQ(nodes_[node]->ballot(), 2u);
    EXPECT_TRUE(nodes_[node]->all_joined(1));
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
