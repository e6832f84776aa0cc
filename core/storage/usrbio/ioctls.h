// The ioctls of a mount, as programs made for 3FS know them: type 'h', told apart by their number
// and by how many bytes they carry.
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
  path_offset = 1,   // out: u32, where a path below the mount point begins
  magic = 2,         // out: u32
  version = 3,       // out: u32
  remove_tree = 10,  // the directory that is open, with all that is in it
  sync = 11,         // as fsync(2); how long the file is, too
  link = 12,         // LinkOrder
  punch = 13,        // PunchOrder
  move = 14,         // MoveOrder
  remove = 15,       // RemoveOrder
};

constexpr size_t kNameBytes = 256;
constexpr size_t kMountNameBytes = 32;
constexpr int kPunchMax = 1000;

// In the directory that is open: another name of an inode.
struct LinkOrder {
  uint64_t inode;
  char name[kNameBytes];
};
static_assert(sizeof(LinkOrder) == 264);

struct PunchOrder {
  int n;
  size_t flags;
  size_t start[kPunchMax];
  size_t end[kPunchMax];
};
static_assert(sizeof(PunchOrder) == 16016);

// Directories by their inodes.
struct MoveOrder {
  uint64_t from_dir;
  char from[kNameBytes];
  uint64_t to_dir;
  char to[kNameBytes];
  bool to_trash;
};
static_assert(sizeof(MoveOrder) == 536);

struct RemoveOrder {
  uint64_t dir;
  char name[kNameBytes];
  bool recursive;
};
static_assert(sizeof(RemoveOrder) == 272);

constexpr unsigned long kGetMagic = _IOR(kIoctlType, 2, uint32_t);
constexpr unsigned long kPunch = _IOW(kIoctlType, 13, PunchOrder);

}  // namespace ff::usrbio
