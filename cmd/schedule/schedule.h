// The functions that declare the subcommands of `ff schedule`.
#pragma once

#include "cmd/cli/cli.h"

namespace ff::cmd {

// Each declares one subcommand; those with parameter `schedule` several.
void declare_schedule_serve(Command& serve);
void declare_schedule_submit(Command& submit);
void declare_schedule_run(Command& run);
void declare_schedule_list(Command& list);
void declare_schedule_show(Command& show);
void declare_schedule_explain(Command& explain);
void declare_schedule_logs(Command& logs);
void declare_schedule_control(Command& schedule);
void declare_schedule_nodes(Command& schedule);
void declare_schedule_quota(Command& schedule);
void declare_schedule_history(Command& history);
void declare_schedule_agent(Command& agent);
void declare_schedule_shim(Command& shim);
void declare_schedule_simulate(Command& simulate);

}  // namespace ff::cmd
