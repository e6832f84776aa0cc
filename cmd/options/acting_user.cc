// acting_user.cc: reads user, groups and umask of the process.
#include "cmd/options/acting_user.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"

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
  // umask(2) must set the mask to read it, and other threads may create files meanwhile.
  constexpr uint64_t kStatusMax = 64 * kKiB;
  constexpr std::string_view kName = "\nUmask:\t";
  io::SystemDisk disk;
  const auto status = io::read_file(disk, "/proc/self/status", kStatusMax);
  const size_t found = status ? status->find(kName) : std::string::npos;
  if (found != std::string::npos) {
    const char* const digits = status->data() + found + kName.size();
    uint32_t mask = 0;
    if (std::from_chars(digits, status->data() + status->size(), mask, 8).ec == std::errc()) {
      return mask;
    }
  }
  constexpr uint32_t kUsual = 022;  // without /proc
  return kUsual;
}

}  // namespace ff::cmd
