// fault_injector.cc: the random faults and how each of them ends.
#include "lab/scenario/fault_injector.h"

#include <cerrno>
#include <cmath>

#include "platform/base/clock.h"

namespace ff::scenario::chain_parts {

namespace {

constexpr double kShortestNs = 50 * kMillisecond;
constexpr double kLongestNs = 20 * kSecond;  // twice the timeout of a silent node

}  // namespace

// Log-uniform: 50 to 100 ms is as likely as 10 to 20 s.
int64_t FaultInjector::random_duration_ns() {
  return static_cast<int64_t>(kShortestNs *
                              std::pow(kLongestNs / kShortestNs, simulation_.rng.uniform01()));
}

void FaultInjector::end_after(int64_t for_ns, std::function<void()> end) {
  ends_.emplace(simulation_.world.now_ns() + for_ns, std::move(end));
}

void FaultInjector::isolate(const Program& program, int64_t for_ns) {
  simulation_.faults++;
  for (const auto& node : nodes_) {
    block(program.name(), node->name(), for_ns);
    block(node->name(), program.name(), for_ns);
  }
}

void FaultInjector::partition_two(int64_t for_ns) {
  Rng& rng = simulation_.rng;
  simulation_.faults++;
  const size_t one = rng.below(nodes_.size());
  const size_t other = (one + 1 + rng.below(nodes_.size() - 1)) % nodes_.size();
  block(nodes_[one]->name(), nodes_[other]->name(), for_ns);
  if (rng.below(2) == 0) block(nodes_[other]->name(), nodes_[one]->name(), for_ns);
}

void FaultInjector::end_expired() { end_due(simulation_.world.now_ns()); }

void FaultInjector::end_due(int64_t now_ns) {
  while (!ends_.empty() && ends_.begin()->first <= now_ns) {
    const auto end = std::move(ends_.begin()->second);
    ends_.erase(ends_.begin());
    end();
  }
}

void FaultInjector::heal() {
  end_all();
  for (const auto& node : nodes_) {
    if (node->running()) node->kill();
    start(*node);
  }
}

void FaultInjector::inject() {
  Rng& rng = simulation_.rng;
  simulation_.faults++;
  switch (rng.below(12)) {
    case 0:
    case 1: inject_manager_fault(*managers_[rng.below(managers_.size())]); break;
    case 2: inject_link_fault(); break;
    case 3:
    case 4: partition(); break;
    case 5: slow_links(); break;
    case 6: {
      Program& program = *programs_[rng.below(programs_.size())];
      program.pause(true);
      end_after(random_duration_ns(), [&program] { program.pause(false); });
      break;
    }
    case 7:
      if (rng.below(4) == 0) power_loss_everywhere();
      break;
    default: inject_node_fault(*nodes_[rng.below(nodes_.size())]);
  }
}

void FaultInjector::inject_manager_fault(ManagerProcess& manager) {
  switch (simulation_.rng.below(3)) {
    case 0:
      if (manager.running()) manager.kill();
      end_after(random_duration_ns(), [&manager] {
        if (!manager.running()) manager.start();
      });
      break;
    case 1:
      manager.pause(true);
      end_after(random_duration_ns(), [&manager] { manager.pause(false); });
      break;
    default:  // partition from the store
      manager.partition_store(true);
      end_after(random_duration_ns(), [&manager] { manager.partition_store(false); });
  }
}

void FaultInjector::start(StorageProcess& node) {
  if (node.running()) return;
  node.disk().set_fault(sim::SimOp::write, 0, 0);
  node.start();
}

// Sometimes the disk has lost files.
void FaultInjector::restart(StorageProcess& node) {
  if (routing_ && simulation_.rng.below(3) == 0) node.lose_files(routing_());
  start(node);
}

void FaultInjector::inject_node_fault(StorageProcess& node) {
  switch (simulation_.rng.below(8)) {
    case 0:
    case 1:
      node.pause(true);
      end_after(random_duration_ns(), [&node] { node.pause(false); });
      break;
    case 2:  // restart at once, as a supervisor does
      if (node.running()) node.kill();
      start(node);
      break;
    case 3:
      if (node.running()) node.power_loss();
      end_after(random_duration_ns(), [this, &node] { restart(node); });
      break;
    case 4:  // write faults; not while a disk is being opened, which would fail
      if (!node.disks_open()) break;
      node.disk().set_fault(sim::SimOp::write, 0.05, EIO);
      end_after(random_duration_ns(), [this, &node] {
        // Without a restart the node opens the disk again.
        node.disk().set_fault(sim::SimOp::write, 0, 0);
        if (simulation_.rng.below(2) == 0) return;
        if (node.running()) node.kill();
        start(node);
      });
      break;
    case 6:  // the disk is removed and mounted again
      if (node.running()) node.device_loss();
      start(node);
      break;
    case 5:
      node.disk().set_slow(random_duration_ns() / 8);
      end_after(random_duration_ns(), [&node] { node.disk().set_slow(0); });
      break;
    default:
      if (node.running()) node.kill();
      end_after(random_duration_ns(), [this, &node] { restart(node); });
  }
}

// Power loss of a whole rack.
void FaultInjector::power_loss_everywhere() {
  for (const auto& node : nodes_) {
    if (node->running()) node->power_loss();
  }
  for (const auto& node : nodes_) start(*node);
}

std::vector<std::string> FaultInjector::names() const {
  std::vector<std::string> all;
  for (const auto& node : nodes_) all.push_back(node->name());
  for (const auto& manager : managers_) all.push_back(manager->name());
  for (const auto& program : programs_) all.push_back(program->name());
  return all;
}

// Processes of one machine have no network link between them.
bool FaultInjector::same_machine(const std::string& a, const std::string& b) {
  return (a == kSharing && b == kShared) || (a == kShared && b == kSharing);
}

void FaultInjector::block(const std::string& from, const std::string& to, int64_t for_ns) {
  if (from == to || same_machine(from, to)) return;
  const Direction link{from, to};
  if (blocked_[link]++ == 0) simulation_.net.block(from, to);
  end_after(for_ns, [this, link] { unblock(link); });
}

void FaultInjector::unblock(const Direction& link) {
  if (--blocked_[link] == 0) simulation_.net.unblock(link.first, link.second);
}

void FaultInjector::inject_link_fault() {
  Rng& rng = simulation_.rng;
  if (rng.below(3) == 0) return simulation_.net.break_connections(rng.uniform01());
  const std::vector<std::string> all = names();
  const std::string& a = all[rng.below(all.size())];
  const std::string& b = all[rng.below(nodes_.size())];
  const int64_t for_ns = random_duration_ns();
  if (a != b && !same_machine(a, b) && rng.below(3) == 0) {
    // Simulates packet loss in this direction: retransmissions are late, and later bytes wait.
    simulation_.net.set_link(a, b,
                             {.delay_min_ns = kMillisecond,
                              .delay_max_ns = kMillisecond + simulation_.some_ns(4 * kSecond),
                              .bytes_per_second = 1'000'000});
    return end_after(for_ns, [this] { simulation_.net.reset_links(); });
  }
  block(a, b, for_ns);
  if (rng.below(2) == 0) block(b, a, for_ns);
}

// A network partition into two sides, in one or both directions. The managers' store is on one
// side.
void FaultInjector::partition() {
  Rng& rng = simulation_.rng;
  const int64_t for_ns = random_duration_ns();
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
    manager->partition_store(true);
    end_after(for_ns, [&manager = *manager] { manager.partition_store(false); });
  }
}

// Each link gets its own random delay, or none.
void FaultInjector::slow_links() {
  Rng& rng = simulation_.rng;
  const std::vector<std::string> all = names();
  for (const std::string& from : all) {
    for (const std::string& to : all) {
      if (rng.below(2) == 0 || same_machine(from, to)) continue;
      const int64_t slowest = simulation_.some_ns(kSecond) + 2;
      simulation_.net.set_link(from, to, {.delay_min_ns = slowest / 2, .delay_max_ns = slowest});
    }
  }
  end_after(random_duration_ns(), [this] { simulation_.net.reset_links(); });
}

}  // namespace ff::scenario::chain_parts
