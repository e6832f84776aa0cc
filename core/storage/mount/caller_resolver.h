// What the kernel does not tell about a process that makes a file system request, from /proc:
// supplementary groups, which are cached for a moment, the process of a thread, and its CPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "platform/base/clock.h"
#include "platform/io/disk.h"
#include "storage/meta/access.h"

namespace ff::mount {

class CallerResolver {
 public:
  // Both outlive it.
  CallerResolver(io::Disk& disk, Clock& clock) : disk_(disk), clock_(clock) {}

  // `pid` 0: the process is in another PID namespace; it gets no supplementary groups.
  meta::Caller caller(uint32_t uid, uint32_t gid, uint32_t pid);
  // The process of a thread; 0: it is in another PID namespace.
  uint32_t process_of(uint32_t thread);
  // The CPU on which a thread has run last; none: unknown.
  std::optional<size_t> cpu_of(uint32_t thread);

 private:
  std::vector<uint32_t> groups_of(uint32_t pid);

  struct Key {
    uint32_t pid = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct CachedGroups {
    std::vector<uint32_t> groups;
    int64_t read_ns = 0;
  };
  io::Disk& disk_;
  Clock& clock_;
  std::map<Key, CachedGroups> cached_;
};

}  // namespace ff::mount
