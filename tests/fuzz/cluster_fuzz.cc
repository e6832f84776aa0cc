// Heartbeats and routing that say anything, to the cluster manager and to a member: they are
// refused, or taken and lead to changes that keep every invariant. No crash.
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/member.h"
#include "storage/cluster/timing.h"
#include "storage/cluster/wire.h"

namespace {

using namespace ff;
using namespace ff::cluster;

Routing small_routing() {
  Routing routing{.cluster = "c1", .version = 3};
  for (NodeId id = 1; id <= 2; id++) {
    routing.nodes[id] = {.id = id, .generation = 1, .disks = {{.id = 1}}};
  }
  Chain chain{.id = 1, .version = 2};
  chain.targets.push_back({.id = 1, .node = 1, .disk = 1, .state = TargetState::serving});
  chain.targets.push_back({.id = 2, .node = 2, .disk = 1, .state = TargetState::syncing});
  routing.chains[1] = chain;
  return routing;
}

Heartbeat sane_heartbeat() {
  Heartbeat beat{.cluster = "c1", .node = small_routing().nodes.at(2), .sequence = 1};
  beat.routing_version = 3;
  beat.targets.push_back(
      {.target = 2, .chain = 1, .local = LocalTargetState::uptodate, .chain_version = 2});
  beat.disks.push_back({.disk = 1, .used = 5, .error = "no"});
  return beat;
}

void feed_manager(const std::string& input) {
  wire::HeartbeatRequest request;
  if (!request.ParseFromString(input)) return;
  const auto beat = from_wire(request);
  if (!beat) return;
  Manager manager(small_routing(), 0);
  (void)manager.heartbeat(*beat, 1);
  for (const int64_t now_ns : {int64_t{2}, 2 * kNodeFailureNs, 4 * kNodeFailureNs}) {
    if (!manager.propose(now_ns).empty()) manager.applied();
  }
}

void feed_member(const std::string& input) {
  wire::HeartbeatReply reply;
  if (!reply.ParseFromString(input)) return;
  const auto answer = from_wire(reply);
  if (!answer) return;
  Member member({.id = 2, .generation = 1}, {});
  (void)member.on_response(member.next_heartbeat(), 0, *answer);
  for (const TargetId id : member.targets_to_create()) member.set_usable(id, true);
  for (TargetId id = 0; id < 4; id++) {
    (void)member.may_read(id, 1);
    member.set_copied(id, 2);
    member.set_usable(id, false);
  }
  (void)member.next_heartbeat();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  feed_manager(input);
  feed_member(input);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  HeartbeatResponse answer;
  answer.changes = small_routing().delta_since(0, SIZE_MAX);
  for (Chain& chain : answer.changes.chains) chain.changed = 3;
  answer.changes.chains.push_back(small_routing().chains.at(1));
  answer.predecessors.push_back({.target = 2, .confirmed_version = 2});
  return {to_wire(sane_heartbeat()).SerializeAsString(), to_wire(answer).SerializeAsString()};
}
