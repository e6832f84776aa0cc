// Splitting a communicator into groups, as MPI_Comm_split and ncclCommSplit do: which ranks belong
// to a group, in which order, and how they reach each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "training/collective/host_group.h"
#include "training/collective/peers.h"
#include "training/collective/world.h"

namespace ff::collective {

constexpr uint32_t kNoColor = UINT32_MAX;  // of a rank that belongs to no group

// What each rank tells all others.
struct SplitChoice {
  uint32_t color = 0;  // the same for all ranks of a group
  uint32_t key = 0;    // orders the ranks of a group; equal ones by their rank
  uint32_t port = 0;   // free on its host, for rank 0 of the group
};

struct SplitParent {
  HostRank self = {};
  std::optional<Network> network = {};  // of a job on several hosts
  const World* world = nullptr;         // the same; null: all ranks are on this host
  uint64_t splits = 0;                  // of this communicator so far
};

struct SplitGroup {
  HostRank self = {};
  std::optional<Network> network = {};
};
// The group of `rank`, whose color is not kNoColor. `choices` has that of each rank of the parent.
// Ranks of a host that do not follow one another in the group form hosts of their own.
SplitGroup plan_split(const SplitParent& parent, std::span<const SplitChoice> choices,
                      uint32_t rank);

}  // namespace ff::collective
