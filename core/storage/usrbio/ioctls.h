// The ioctls of a mount, compatible with 3FS: type 'h', distinguished by number and size.
#pragma once

#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>

namespace ff::usrbio {

constexpr unsigned kIoctlType = 'h';
constexpr uint32_t kMagic = 0x8f3f5fff;
constexpr uint32_t kInterfaceVersion = 1;

enum class Ioctl : uint8_t {
  mount_name = 0,    // out: char[32]
  path_offset = 1,   // out: u32, length of the mount point in a path
  magic = 2,         // out: u32
  version = 3,       // out: u32
  remove_tree = 10,  // removes the open directory recursively
  sync = 11,         // fsync(2), including the length
  link = 12,         // LinkArgs
  punch = 13,        // PunchHoleArgs
  move = 14,         // MoveArgs
  remove = 15,       // RemoveArgs
};

constexpr size_t kNameBytes = 256;
constexpr size_t kMountNameBytes = 32;
constexpr int kPunchHoleMax = 1000;

// Adds a name for an inode in the open directory.
struct LinkArgs {
  uint64_t inode;
  char name[kNameBytes];
};
static_assert(sizeof(LinkArgs) == 264);

struct PunchHoleArgs {
  int n;
  size_t flags;
  size_t start[kPunchHoleMax];
  size_t end[kPunchHoleMax];
};
static_assert(sizeof(PunchHoleArgs) == 16016);

// Directories are given by inode number.
struct MoveArgs {
  uint64_t from_dir;
  char from[kNameBytes];
  uint64_t to_dir;
  char to[kNameBytes];
  bool to_trash;
};
static_assert(sizeof(MoveArgs) == 536);

struct RemoveArgs {
  uint64_t dir;
  char name[kNameBytes];
  bool recursive;
};
static_assert(sizeof(RemoveArgs) == 272);

constexpr unsigned long kGetMagic = _IOR(kIoctlType, 2, uint32_t);
constexpr unsigned long kPunchHole = _IOW(kIoctlType, 13, PunchHoleArgs);

}  // namespace ff::usrbio
