// Where ff keeps local state: $FF_STATE, else /var/lib/ff for root and ~/.local/state/ff for
// others.
//
// SQLite's log needs shared memory and locks that network file systems do not give. On one of them
// (many homes are) the state of a user's commands goes to /var/tmp/ff-UID instead; a daemon is
// refused, because it must find its state again.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "platform/base/result.h"

namespace ff {

enum class StateUse : uint8_t { user, daemon };

struct StateDir {
  std::string path;        // exists, a local directory; made with mode 0700
  std::string instead_of;  // the directory on a network file system that `path` replaces, or empty
};

// What decides; the tests give their own.
struct StateSources {
  std::string ff_state;  // "" when not set
  std::string home;
  uid_t uid = 0;
  std::string root_default = "/var/lib/ff";
  std::string local_root = "/var/tmp";
  // Whether an existing directory is on a network (or FUSE) file system.
  std::function<Result<bool>(const std::string& dir)> on_network;
};
StateSources process_state_sources();

// Finds and makes the directory. Errors: usage (FF_STATE is not absolute, no HOME), refused
// (network file system for a daemon, or a fallback directory that somebody else controls), or the
// disk's.
Result<StateDir> state_dir(StateUse use, const StateSources& from);

// Whether the file system type of statfs(2) is a network or FUSE one.
bool network_file_system(uint32_t magic);

}  // namespace ff
