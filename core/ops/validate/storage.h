// Checks of disks and file systems: errors recorded by file systems, mounts that became read-only,
// disk states, and a scratch file that is written, read back and verified, then read at random
// offsets.
#pragma once

#include <string>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/system_tree.h"

namespace ff::validate {

// A hardware disk: no loop device, RAM disk or device mapper.
struct DiskFacts {
  std::string name;         // "nvme0n1"
  std::string model = {};   // "SAMSUNG MZQL23T8HCLS"; "disk" if unknown
  std::string serial = {};  // or its world-wide name; empty: none
  std::string state = {};   // "live", "running", "offline"; empty: unknown
};
std::vector<DiskFacts> disks(const SystemTree& tree);

// A file system on a local disk, once per device.
struct MountedDisk {
  std::string device, dir, kind;  // "/dev/sda1", "/", "ext4"
  std::string options;            // "rw,relatime"
};
std::vector<MountedDisk> mounted_disks(const SystemTree& tree);

void check_storage_fs(const CheckContext& context);
void check_storage_disks(const CheckContext& context);
// Uses a scratch file in CheckContext::scratch, removed at the end.
void check_storage_speed(const CheckContext& context);

}  // namespace ff::validate
