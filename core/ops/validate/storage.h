// Disks and file systems: errors that file systems remember, mounts that went read-only, health
// that NVMe disks tell of themselves, and a file that is written, read back whole and checked, then
// read at random places.
#pragma once

#include <string>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/tree.h"

namespace ff::validate {

// A disk of hardware: no loop device, RAM disk or device mapper.
struct DiskFacts {
  std::string name;         // "nvme0n1"
  std::string model = {};   // "SAMSUNG MZQL23T8HCLS"; "disk" where it has none
  std::string serial = {};  // or its world-wide name; empty: it has none
  std::string state = {};   // "live", "running", "offline"; empty: it tells none
};
std::vector<DiskFacts> disks(const Tree& tree);

// A file system that keeps data on this machine's disks, once for each device.
struct Mounted {
  std::string device, dir, kind;  // "/dev/sda1", "/", "ext4"
  std::string options;            // "rw,relatime"
};
std::vector<Mounted> mounted_disks(const Tree& tree);

void check_storage_fs(const Context& context);
void check_storage_disks(const Context& context);
// A scratch file in Context::scratch, removed at the end.
void check_storage_speed(const Context& context);

}  // namespace ff::validate
