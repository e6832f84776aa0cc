// The directory for local state: $FF_STATE, else /var/lib/ff for root and ~/.local/state/ff for
// other users.
//
// SQLite's WAL mode needs shared memory and locks that network file systems do not provide. If the
// directory is on a network file system (as many home directories are), user commands use
// /var/tmp/ff-UID instead; daemons fail, because their state must survive.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "platform/base/result.h"

namespace ff {

enum class StateUse : uint8_t { user, daemon };

struct StateDir {
  std::string path;          // an existing local directory; created with mode 0700
  std::string network_path;  // the network directory that `path` replaces; usually empty
};

// The inputs of the decision; tests inject their own.
struct StateDirEnvironment {
  std::string ff_state;  // $FF_STATE; "" when not set
  std::string home;
  uid_t uid = 0;
  std::string root_default = "/var/lib/ff";
  std::string fallback_root = "/var/tmp";
  // Whether an existing directory is on a network (or FUSE) file system.
  std::function<Result<bool>(const std::string& dir)> is_network;
};
StateDirEnvironment process_state_environment();

// Chooses the directory and creates it. Errors: usage (FF_STATE is not absolute, or no HOME),
// refused (a daemon on a network file system, or a fallback directory that another user controls),
// or an I/O error.
Result<StateDir> state_dir(StateUse use, const StateDirEnvironment& from);

// Whether the file system type of statfs(2) is a network or FUSE one.
bool is_network_file_system(uint32_t magic);

}  // namespace ff
