// acting_user.cc: reads user, groups and umask of the process.
#include "cmd/options/acting_user.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace ff::cmd {

meta::Caller process_caller() {
  meta::Caller caller{.uid = ::geteuid(), .gid = ::getegid(), .groups = {}};
  std::vector<gid_t> groups(static_cast<size_t>(std::max(::getgroups(0, nullptr), 0)));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  if (count > 0) caller.groups.assign(groups.begin(), groups.begin() + count);
  if (caller.groups.size() > meta::kGroupsMax) caller.groups.resize(meta::kGroupsMax);
  return caller;
}

uint32_t process_umask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

}  // namespace ff::cmd
