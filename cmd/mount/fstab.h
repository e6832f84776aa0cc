// mount.ff, the helper that mount(8) calls for lines of /etc/fstab, with the command line and exit
// codes of mount.8, "EXTERNAL HELPERS" and "EXIT STATUS".
//
//   mount.ff SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTION[,OPTION...]]
#pragma once

#include <string>
#include <vector>

#include "cmd/cli/cli.h"

namespace ff::cmd {

// Converts the arguments of the helper to those of `mount` (`ff mount`). Errc::usage: an unknown
// option.
Result<std::vector<std::string>> fstab_arguments(const Command& mount,
                                                 std::vector<std::string> given);

// The exit code of mount.8 for an error.
int fstab_exit_code(Errc code);

}  // namespace ff::cmd
