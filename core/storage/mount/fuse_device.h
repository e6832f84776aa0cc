// A mount point and its /dev/fuse descriptor. libfuse does the mounting, for ordinary users through
// its helper fusermount3. The protocol on the descriptor (linux/fuse.h) is implemented in
// fuse_session.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::mount {

struct FuseDeviceOptions {
  std::string dir;
  std::string source;  // shown in mount tables; the type is fuse.hf3fs
  bool read_only = false;
  bool allow_other = true;              // users other than the mounting one may access it
  std::vector<std::string> flags = {};  // see check_flags(); empty: nosuid and nodev
};

// Checks flags of mount(8) that are passed to the kernel: noexec, suid, ... Errc::usage names an
// unknown flag.
Result<void> check_flags(const std::vector<std::string>& flags);
// All accepted flags.
std::span<const std::string_view> mount_flags();

class FuseDevice {
 public:
  // Mounts. First removes a stale mount whose daemon has died. Errors name the obstacle: no FUSE,
  // no permission, no such directory, a directory in use.
  static Result<std::unique_ptr<FuseDevice>> mount(const FuseDeviceOptions& options);
  // Continues to serve a mounted directory (as realpath(3) returns it) by the descriptor of a
  // predecessor.
  static Result<std::unique_ptr<FuseDevice>> adopt(Fd device, std::string dir);
  // Call after unmount(), or when nobody answers requests any more: programs that still use the
  // mount get errors.
  ~FuseDevice();
  // Unmounts. Programs keep their open files while the device is served. Do not call it on the
  // thread that serves the device: the kernel may send it requests first.
  void unmount();
  FuseDevice(const FuseDevice&) = delete;
  FuseDevice& operator=(const FuseDevice&) = delete;

  // Another descriptor of the same mount, non-blocking: requests that were read from it are
  // answered through it.
  Result<Fd> clone() const;
  // Non-blocking. ENODEV on it: the file system was unmounted.
  int fd() const { return fd_.get(); }
  // As realpath(3) returns it.
  const std::string& dir() const { return dir_; }

  // Sets the read-ahead of the kernel. Has an effect only for root.
  void set_readahead(uint64_t bytes) const;

 private:
  struct Fuse;
  FuseDevice(std::string dir, std::unique_ptr<Fuse> fuse);

  const std::string dir_;
  std::unique_ptr<Fuse> fuse_;
  Fd fd_;  // a duplicate: libfuse closes its own to unmount
};

// The checks of mount() alone, for commands that mount later: FUSE works, the directory exists,
// nothing of ff is mounted on it. Removes a stale mount whose daemon has died.
Result<void> check_mountable(const std::string& dir);

// Unmounts a directory, as realpath(3) returns it, at once and without a request to the process
// that serves it; users other than root need fusermount3.
void unmount_lazily(const std::string& dir);

// The device number ("0:54") of the file system of type fuse.hf3fs mounted on `dir`, which must be
// as realpath(3) returns it; empty: there is none.
std::string mounted_device(const std::string& dir);

// Whether a file system of type fuse.hf3fs is mounted on `dir`, which must be as realpath(3)
// returns it.
bool is_mounted(const std::string& dir);

}  // namespace ff::mount
