// For whom the kernel asks: a process with its user and groups. The kernel tells user and group;
// the others stand in /proc, and are looked up again after a moment.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "platform/base/clock.h"
#include "platform/io/disk.h"
#include "storage/meta/access.h"

namespace ff::mount {

class Callers {
 public:
  // Both outlive it.
  Callers(io::Disk& disk, Clock& clock) : disk_(disk), clock_(clock) {}

  // `pid` 0: of a process that cannot be seen from here; it has no other groups.
  meta::Caller caller(uint32_t uid, uint32_t gid, uint32_t pid);
  // The process that a thread is of; 0: it cannot be seen from here.
  uint32_t process_of(uint32_t thread);

 private:
  std::vector<uint32_t> groups_of(uint32_t pid);

  struct Key {
    uint32_t pid = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Known {
    std::vector<uint32_t> groups;
    int64_t seen_ns = 0;
  };
  io::Disk& disk_;
  Clock& clock_;
  std::map<Key, Known> known_;
};

}  // namespace ff::mount
