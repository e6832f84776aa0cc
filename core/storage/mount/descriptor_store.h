// Where a process leaves descriptors for its successor (compare the file descriptor store of
// systemd). The keeper of a mount offers one (keeper.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::mount {

class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;
  // Keeps a duplicate under this name, also for later successors, until it is released. When it
  // returns, the store has the descriptor even if this process dies.
  virtual Result<void> store(const std::string& name, int fd) = 0;
  virtual void release(const std::string& name) = 0;
  // Those of predecessors whose names begin with `prefix`, by name; each is returned once.
  virtual std::map<std::string, Fd> take_stored(std::string_view prefix) = 0;
};

}  // namespace ff::mount
