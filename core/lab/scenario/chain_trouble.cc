// chain_trouble.cc: dice, and what they mean.
#include "lab/scenario/chain_trouble.h"

#include <cerrno>
#include <cmath>

#include "platform/base/clock.h"

namespace ff::scenario::chain_parts {

namespace {

constexpr double kShortestNs = 50 * kMillisecond;
constexpr double kLongestNs = 20 * kSecond;  // twice what a silent node is waited for

}  // namespace

// As often 50 to 100 ms as 10 to 20 s.
int64_t Trouble::some_time_ns() {
  return static_cast<int64_t>(kShortestNs * std::pow(kLongestNs / kShortestNs, stage_.rng.unit()));
}

void Trouble::until(int64_t for_ns, std::function<void()> end) {
  ends_.emplace(stage_.world.now_ns() + for_ns, std::move(end));
}

void Trouble::cut_off(const Program& program, int64_t for_ns) {
  stage_.faults++;
  for (const auto& node : nodes_) {
    block(program.name(), node->name(), for_ns);
    block(node->name(), program.name(), for_ns);
  }
}

void Trouble::cut_two(int64_t for_ns) {
  Rng& rng = stage_.rng;
  stage_.faults++;
  const size_t one = rng.below(nodes_.size());
  const size_t other = (one + 1 + rng.below(nodes_.size() - 1)) % nodes_.size();
  block(nodes_[one]->name(), nodes_[other]->name(), for_ns);
  if (rng.below(2) == 0) block(nodes_[other]->name(), nodes_[one]->name(), for_ns);
}

void Trouble::look() { end_those_of(stage_.world.now_ns()); }

void Trouble::end_those_of(int64_t now_ns) {
  while (!ends_.empty() && ends_.begin()->first <= now_ns) {
    const auto end = std::move(ends_.begin()->second);
    ends_.erase(ends_.begin());
    end();
  }
}

void Trouble::heal() {
  end_all();
  for (const auto& node : nodes_) {
    if (node->running()) node->kill();
    start(*node);
  }
}

void Trouble::begin() {
  Rng& rng = stage_.rng;
  stage_.faults++;
  switch (rng.below(12)) {
    case 0:
    case 1: trouble_manager(*managers_[rng.below(managers_.size())]); break;
    case 2: trouble_links(); break;
    case 3:
    case 4: split(); break;
    case 5: slow_links(); break;
    case 6: {
      Program& program = *programs_[rng.below(programs_.size())];
      program.pause(true);
      until(some_time_ns(), [&program] { program.pause(false); });
      break;
    }
    case 7:
      if (rng.below(4) == 0) lose_all_power();
      break;
    default: trouble_node(*nodes_[rng.below(nodes_.size())]);
  }
}

void Trouble::trouble_manager(ManagerProcess& manager) {
  switch (stage_.rng.below(3)) {
    case 0:
      if (manager.running()) manager.kill();
      until(some_time_ns(), [&manager] {
        if (!manager.running()) manager.start();
      });
      break;
    case 1:
      manager.pause(true);
      until(some_time_ns(), [&manager] { manager.pause(false); });
      break;
    default:  // from the store
      manager.cut(true);
      until(some_time_ns(), [&manager] { manager.cut(false); });
  }
}

void Trouble::start(StorageProcess& node) {
  if (node.running()) return;
  node.disk().set_fault(sim::SimOp::write, 0, 0);
  node.start();
}

// Now and then without all that its disk had.
void Trouble::start_again(StorageProcess& node) {
  if (routing_ && stage_.rng.below(3) == 0) node.lose_files(routing_());
  start(node);
}

void Trouble::trouble_node(StorageProcess& node) {
  switch (stage_.rng.below(7)) {
    case 0:
    case 1:
      node.pause(true);
      until(some_time_ns(), [&node] { node.pause(false); });
      break;
    case 2:  // at once, as a supervisor does
      if (node.running()) node.kill();
      start(node);
      break;
    case 3:
      if (node.running()) node.lose_power();
      until(some_time_ns(), [this, &node] { start_again(node); });
      break;
    case 4:  // which a disk that is being opened does not survive
      if (node.store() == nullptr) break;
      node.disk().set_fault(sim::SimOp::write, 0.05, EIO);
      until(some_time_ns(), [&node] {
        if (node.running()) node.kill();
        start(node);
      });
      break;
    case 5:
      node.disk().set_slow(some_time_ns() / 8);
      until(some_time_ns(), [&node] { node.disk().set_slow(0); });
      break;
    default:
      if (node.running()) node.kill();
      until(some_time_ns(), [this, &node] { start_again(node); });
  }
}

// A rack's.
void Trouble::lose_all_power() {
  for (const auto& node : nodes_) {
    if (node->running()) node->lose_power();
  }
  for (const auto& node : nodes_) start(*node);
}

std::vector<std::string> Trouble::names() const {
  std::vector<std::string> all;
  for (const auto& node : nodes_) all.push_back(node->name());
  for (const auto& manager : managers_) all.push_back(manager->name());
  for (const auto& program : programs_) all.push_back(program->name());
  return all;
}

// What is between them is no link.
bool Trouble::same_machine(const std::string& a, const std::string& b) {
  return (a == kSharing && b == kShared) || (a == kShared && b == kSharing);
}

void Trouble::block(const std::string& from, const std::string& to, int64_t for_ns) {
  if (from == to || same_machine(from, to)) return;
  const Link link{from, to};
  if (blocked_[link]++ == 0) stage_.net.block(from, to);
  until(for_ns, [this, link] { unblock(link); });
}

void Trouble::unblock(const Link& link) {
  if (--blocked_[link] == 0) stage_.net.unblock(link.first, link.second);
}

void Trouble::trouble_links() {
  Rng& rng = stage_.rng;
  if (rng.below(3) == 0) return stage_.net.break_connections(rng.unit());
  const std::vector<std::string> all = names();
  const std::string& a = all[rng.below(all.size())];
  const std::string& b = all[rng.below(nodes_.size())];
  const int64_t for_ns = some_time_ns();
  if (a != b && !same_machine(a, b) && rng.below(3) == 0) {
    // As if it lost a part of what is sent, in this direction: that comes late, after it was sent
    // again, and all behind it waits.
    stage_.net.set_link(a, b,
                        {.delay_min_ns = kMillisecond,
                         .delay_max_ns = kMillisecond + stage_.some_ns(4 * kSecond),
                         .bytes_per_second = 1'000'000});
    return until(for_ns, [this] { stage_.net.forget_links(); });
  }
  block(a, b, for_ns);
  if (rng.below(2) == 0) block(b, a, for_ns);
}

// Two sides, between which nothing passes in one or both directions. The managers' store is on one
// of them.
void Trouble::split() {
  Rng& rng = stage_.rng;
  const int64_t for_ns = some_time_ns();
  std::map<std::string, bool> right;
  for (const std::string& name : names()) right[name] = rng.below(2) == 0;
  right[kSharing] = right[kShared];
  const uint64_t ways = 1 + rng.below(3);  // to the right, to the left, both
  for (const auto& [from, from_right] : right) {
    for (const auto& [to, to_right] : right) {
      if (from_right == to_right) continue;
      if (((to_right ? 1U : 2U) & ways) != 0) block(from, to, for_ns);
    }
  }
  const bool store_right = rng.below(2) == 0;
  for (const auto& manager : managers_) {
    if (right[manager->name()] == store_right) continue;
    manager->cut(true);
    until(for_ns, [&manager = *manager] { manager.cut(false); });
  }
}

// Each link by a time of its own, or not at all.
void Trouble::slow_links() {
  Rng& rng = stage_.rng;
  const std::vector<std::string> all = names();
  for (const std::string& from : all) {
    for (const std::string& to : all) {
      if (rng.below(2) == 0 || same_machine(from, to)) continue;
      const int64_t slowest = stage_.some_ns(kSecond) + 2;
      stage_.net.set_link(from, to, {.delay_min_ns = slowest / 2, .delay_max_ns = slowest});
    }
  }
  until(some_time_ns(), [this] { stage_.net.forget_links(); });
}

}  // namespace ff::scenario::chain_parts
