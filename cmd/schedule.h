// What the subcommands of `ff schedule` share.
#pragma once

#include "cmd/cli.h"

namespace ff::cmd {

void declare_schedule_agent(Command& agent);
void declare_schedule_shim(Command& shim);
void declare_schedule_simulate(Command& simulate);

}  // namespace ff::cmd
