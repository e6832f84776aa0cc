// scenarios.cc: the table of all scenarios.
#include "lab/scenario/scenarios.h"

#include <algorithm>

#include "lab/scenario/calls.h"
#include "lab/scenario/chain.h"
#include "lab/scenario/cluster.h"
#include "lab/scenario/delegations.h"
#include "lab/scenario/files.h"
#include "lab/scenario/names.h"

namespace ff::scenario {

namespace {

constexpr Scenario kScenarios[] = {
    {"calls", "clients call servers; links, processes and machines fail", run_calls},
    {"chain", "programs use chunks; storage nodes, disks, power and links fail", run_chain},
    {"cluster", "managers and nodes; they fail, pause and lose each other", run_cluster},
    {"delegations", "programs hold directories; servers, links and programs fail", run_delegations},
    {"files", "programs use one file system; services, nodes, power and links fail", run_files},
    {"names", "programs sync names; the metadata store loses its power", run_names},
};

}  // namespace

std::span<const Scenario> scenarios() { return kScenarios; }

const Scenario* find_scenario(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kScenarios), std::end(kScenarios),
                   [name](const Scenario& scenario) { return scenario.name == name; });
  return found == std::end(kScenarios) ? nullptr : &*found;
}

}  // namespace ff::scenario
