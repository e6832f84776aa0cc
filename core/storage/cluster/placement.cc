// placement.cc: assignment of nodes, improvement by swaps, choice of heads, choice of disks.
#include "storage/cluster/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "platform/base/rng.h"

namespace ff::cluster {

namespace {

// Swap attempts per target: after some hundred, further ones rarely help.
constexpr size_t kSwapsPerTarget = 600;

using Members = std::vector<size_t>;  // indices of nodes

class Placer {
 public:
  explicit Placer(const PlacementRequest& request)
      : request_(request),
        rng_(request.seed),
        count_(request.nodes.size()),
        shared_(count_ * count_),
        left_(count_),
        taken_(count_),
        domain_(count_) {
    std::map<std::string, size_t> domains;
    std::map<NodeId, size_t> index;
    for (size_t i = 0; i < count_; i++) {
      const FreeNode& node = request.nodes[i];
      for (const FreeDisk& disk : node.disks) left_[i] += disk.slots;
      const std::string name = node.domain.empty() ? fmt::format("\n{}", node.id) : node.domain;
      domain_[i] = domains.emplace(name, domains.size()).first->second;
      index[node.id] = i;
    }
    for (const auto& chain : request.existing) {
      Members members;
      for (const NodeId id : chain) {
        if (index.contains(id)) members.push_back(index.at(id));
      }
      for (const size_t node : members) taken_[node]++;
      for (size_t a = 0; a < members.size(); a++) {
        for (size_t b = 0; b < a; b++) share(members[a], members[b], 1);
      }
    }
  }

  Result<PlacementPlan> run() {
    FF_TRY(check_room());
    while (chains_.size() < request_.chains_max && deal()) {
    }
    repair();
    choose_heads();
    return plan();
  }

 private:
  int& shared(size_t a, size_t b) { return shared_[a * count_ + b]; }
  // Adds to the number of shared chains of a pair; returns the change of the sum of squares.
  int share(size_t a, size_t b, int change) {
    const int before = shared(a, b);
    shared(a, b) = shared(b, a) = before + change;
    return change * (2 * before + change);
  }
  Result<void> check_room() const;
  bool deal();
  void repair();
  int exchange(Members& a, size_t at_a, Members& b, size_t at_b);
  bool fits(const Members& chain, size_t at, size_t node) const;
  size_t targets_most() const;
  size_t ideal() const;
  size_t most_shared() const;
  void choose_heads();
  PlacementPlan plan();

  const PlacementRequest& request_;
  SeededRng rng_;
  const size_t count_;
  std::vector<int> shared_;     // shared chains of each pair of nodes
  std::vector<size_t> left_;    // free slots of each node
  std::vector<size_t> taken_;   // assigned targets of each node
  std::vector<size_t> domain_;  // of each node
  std::vector<Members> chains_;
};

Result<void> Placer::check_room() const {
  if (request_.replicas == 0 || request_.replicas > kReplicasMax) {
    return fail(Errc::usage, "{} targets per chain: must be 1 to {}", request_.replicas,
                kReplicasMax);
  }
  std::set<size_t> domains;
  for (size_t i = 0; i < count_; i++) {
    if (left_[i] > 0) domains.insert(domain_[i]);
  }
  if (domains.size() >= request_.replicas) return {};
  Error error =
      fail(Errc::usage,
           "chains of {} targets need {} failure domains (nodes, racks) with space for new "
           "targets; {}",
           request_.replicas, request_.replicas,
           domains.size() == 1 ? "1 has some" : fmt::format("{} have some", domains.size()));
  error.hint = fmt::format("Add at least {} nodes at once, or allow more targets per disk.",
                           request_.replicas);
  return error;
}

// Adds a chain: prefers nodes with the most free slots, and among them those that share the fewest
// chains.
bool Placer::deal() {
  Members order(count_);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<uint64_t> luck(count_);
  for (uint64_t& draw : luck) draw = rng_.next();
  Members chain;
  while (chain.size() < request_.replicas) {
    const auto key = [&](size_t node) {
      int with_chosen = 0;
      for (const size_t other : chain) with_chosen += shared(node, other);
      return std::tuple(-static_cast<ptrdiff_t>(left_[node]), with_chosen, luck[node]);
    };
    size_t best = count_;
    for (const size_t node : order) {
      if (left_[node] == 0 || !fits(chain, chain.size(), node)) continue;
      if (best == count_ || key(node) < key(best)) best = node;
    }
    if (best == count_) return false;
    chain.push_back(best);
  }
  for (size_t a = 0; a < chain.size(); a++) {
    for (size_t b = 0; b < a; b++) share(chain[a], chain[b], 1);
    left_[chain[a]]--;
    taken_[chain[a]]++;
  }
  chains_.push_back(std::move(chain));
  return true;
}

// Whether `node` may replace the current node at position `at` of the chain.
bool Placer::fits(const Members& chain, size_t at, size_t node) const {
  for (size_t i = 0; i < chain.size(); i++) {
    if (i != at && domain_[chain[i]] == domain_[node]) return false;
  }
  return true;
}

// Returns the change of the sum of squares.
int Placer::exchange(Members& a, size_t at_a, Members& b, size_t at_b) {
  int change = 0;
  const auto move = [&](const Members& chain, size_t at, int sign) {
    for (size_t i = 0; i < chain.size(); i++) {
      if (i != at) change += share(chain[i], chain[at], sign);
    }
  };
  move(a, at_a, -1);
  move(b, at_b, -1);
  std::swap(a[at_a], b[at_b]);
  move(a, at_a, 1);
  move(b, at_b, 1);
  return change;
}

void Placer::repair() {
  if (chains_.size() < 2 || request_.replicas < 2) return;
  const size_t tries = chains_.size() * request_.replicas * kSwapsPerTarget;
  for (size_t i = 0; i < tries; i++) {
    // Searching costs much more than one swap.
    if (i % (chains_.size() * 8) == 0 && most_shared() <= ideal()) return;
    Members& a = chains_[rng_.below(chains_.size())];
    Members& b = chains_[rng_.below(chains_.size())];
    const size_t at_a = rng_.below(a.size());
    const size_t at_b = rng_.below(b.size());
    if (&a == &b || a[at_a] == b[at_b]) continue;
    if (!fits(a, at_a, b[at_b]) || !fits(b, at_b, a[at_a])) continue;
    if (exchange(a, at_a, b, at_b) > 0) exchange(a, at_a, b, at_b);
  }
}

size_t Placer::targets_most() const {
  return taken_.empty() ? 0 : *std::ranges::max_element(taken_);
}

size_t Placer::ideal() const {
  if (count_ < 2) return 0;
  const size_t others = targets_most() * (request_.replicas - 1);
  return (others + count_ - 2) / (count_ - 1);
}

size_t Placer::most_shared() const {
  return shared_.empty() ? 0 : static_cast<size_t>(*std::ranges::max_element(shared_));
}

// Balances heads, which receive all writes: moves the head of one chain at a time.
void Placer::choose_heads() {
  std::vector<size_t> heads(count_);
  for (const Members& chain : chains_) heads[chain[0]]++;
  for (bool moved = true; moved;) {
    moved = false;
    for (Members& chain : chains_) {
      const auto least =
          std::ranges::min_element(chain, {}, [&](size_t node) { return heads[node]; });
      if (heads[*least] + 1 >= heads[chain[0]]) continue;
      heads[*least]++;
      heads[chain[0]]--;
      std::iter_swap(chain.begin(), least);
      moved = true;
    }
  }
}

PlacementPlan Placer::plan() {
  PlacementPlan plan{.shared_max = most_shared(), .shared_ideal = ideal()};
  plan.unused = std::accumulate(left_.begin(), left_.end(), size_t{0});
  std::vector<FreeNode> nodes = request_.nodes;
  for (const Members& chain : chains_) {
    std::vector<DiskLocation>& locations = plan.chains.emplace_back();
    for (const size_t member : chain) {
      auto& disks = nodes[member].disks;
      const auto emptiest = std::ranges::max_element(disks, {}, &FreeDisk::slots);
      emptiest->slots--;
      locations.push_back({nodes[member].id, emptiest->id});
    }
  }
  return plan;
}

}  // namespace

Result<PlacementPlan> plan_placement(const PlacementRequest& request) {
  return Placer(request).run();
}

PlacementRequest placement_request(const Routing& routing, size_t targets_per_disk,
                                   size_t replicas) {
  PlacementRequest request{.replicas = replicas};
  std::map<DiskLocation, size_t> used;
  for (const auto& [id, chain] : routing.chains) {
    auto& nodes = request.existing.emplace_back();
    for (const Target& target : chain.targets) {
      nodes.push_back(target.node);
      used[{target.node, target.disk}]++;
    }
  }
  for (const auto& [id, node] : routing.nodes) {
    FreeNode free{.id = id, .domain = node.domain};
    for (const DiskInfo& disk : node.disks) {
      const size_t taken = used[{id, disk.id}];
      const size_t slots = targets_per_disk - std::min(taken, targets_per_disk);
      free.disks.push_back({disk.id, node.draining ? 0 : slots});
    }
    request.nodes.push_back(std::move(free));
  }
  return request;
}

}  // namespace ff::cluster
