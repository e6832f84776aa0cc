// The table of all commands that the gateway has. COMMAND and the manual page are made from it.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/result.h"
#include "storage/gateway/command.h"

namespace ff::gateway {

// All commands, sorted by group and name.
std::span<const CommandRow> command_table();
// Null: there is no such command. Case does not matter; "client|id" is a subcommand.
const CommandRow* find_command(std::string_view name);
// The row of a request. The error is the reply: there is no such command or subcommand, or the
// number of words is wrong.
Result<const CommandRow*> row_of(const RespRequest& words);

}  // namespace ff::gateway
