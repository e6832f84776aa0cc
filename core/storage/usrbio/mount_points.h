// Mount points for the USRBIO library: finding the one above a path, and its directory for
// registering memory.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace ff::usrbio {

// A mount where this process has memory. The mount detects the end of the process when the kernel
// closes this directory.
struct MountPoint {
  ~MountPoint();
  int iovs = -1;     // descriptor of 3fs-virt/iovs
  dev_t device = 0;  // st_dev of its files
};

// Opens the mount at `point`, once per process. Null: `error` has the errno.
std::shared_ptr<const MountPoint> open_mount_point(const char* point, int& error);

// The target of the link. Empty: errno has the reason.
std::string read_link(int dir, const std::string& name);

}  // namespace ff::usrbio
