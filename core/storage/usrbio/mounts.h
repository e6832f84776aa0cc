// Mounts as the library sees them: which one a path is below, and the directory of one where
// memory is made known to it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace ff::usrbio {

// A mount that this process has memory at. The open directory is how the mount notices that the
// process has gone.
struct Mount {
  ~Mount();
  int iovs = -1;     // of 3fs-virt/iovs
  dev_t device = 0;  // of its files
};

// The one that is mounted at `point`, once a process. Null: `error` says why.
std::shared_ptr<const Mount> mount_at(const char* point, int& error);

// What the link leads to. Empty: errno says why.
std::string read_link(int dir, const std::string& name);

}  // namespace ff::usrbio
