// A client whose memory outlives it, as the keeper of a mount holds it, and what a test needs to
// cut the client off at some moment.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "storage/client/file_system_world.h"

namespace ff::client {

struct Memory {
  explicit Memory(uint64_t size) : buffer(size) { std::ranges::fill(buffer.span(), std::byte{0}); }
  Memory(const Memory& other) : buffer(other.buffer.span().size()) {
    std::ranges::copy(other.buffer.span(), buffer.span().begin());
  }
  ByteSpan span() const { return buffer.span(); }
  chunk::AlignedBuffer buffer;
};

inline std::unique_ptr<RecoveryTable> table_on(const Memory& memory) {
  auto table = RecoveryTable::open(memory.span());
  EXPECT_TRUE(io::ok(table));
  return std::move(*table);
}

// A client whose memory outlives it.
struct Survivor {
  Survivor(scenario::cluster_parts::ClusterSimulation& simulation, const std::string& name,
           Memory table_memory, Memory data_memory, bool delegations = false)
      : records(std::move(table_memory)),
        data(std::move(data_memory)),
        table(table_on(records)),
        transport(simulation.net.transport(name)),
        context{simulation.world.loop(), *transport,     grants,
                simulation.metrics,      simulation.rng, simulation.identity(name)},
        files(context, scenario::cluster_parts::manager_addresses(),
              {.arena = data.span(),
               .write_behind = data.span().size(),
               .delegations = delegations,
               .recovery = table.get(),
               .data = data.span(),
               .snapshots = &snapshots}) {}
  Memory records, data;
  std::unique_ptr<RecoveryTable> table;
  rpc::GrantScheduler grants;
  std::unique_ptr<net::Transport> transport;
  rpc::ClientContext context;
  ReadSnapshots snapshots;
  FileSystem files;
};

// Nothing of this client reaches a server any more.
inline void cut_off(scenario::StorageCluster& cluster, const std::string& name) {
  sim::SimNet& net = cluster.simulation().net;
  for (const auto& node : cluster.nodes()) net.block(name, node->name());
  for (const auto& manager : cluster.managers()) net.block(name, manager->name());
}

}  // namespace ff::client
