// `ff mount` as mount(8) calls it for lines of /etc/fstab: a helper named mount.TYPE, with a line
// and exit codes that are mount(8)'s (mount.8, "EXTERNAL HELPERS" and "EXIT STATUS").
//
//   mount.ff SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTION[,OPTION...]]
#pragma once

#include <string>
#include <vector>

#include "cmd/cli/cli.h"

namespace ff::cmd {

// The words of `mount`, which is `ff mount`, for what the helper was given. Errc::usage: an option
// that neither has.
Result<std::vector<std::string>> fstab_words(const Command& mount, std::vector<std::string> given);

int fstab_exit(Errc code);

}  // namespace ff::cmd
