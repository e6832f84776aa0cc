// A mount point and the kernel's end of it: /dev/fuse. libfuse does the mounting, which ordinary
// users may only do through its helper fusermount3; what is said over the descriptor is the
// protocol of linux/fuse.h, and stands in session.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/fd.h"
#include "platform/base/result.h"

namespace ff::mount {

struct DeviceOptions {
  std::string dir;
  std::string source;  // what mount tables show; the type is fuse.hf3fs
  bool read_only = false;
  bool others = true;                   // users other than the one who mounts may use it
  std::vector<std::string> flags = {};  // check_flags(); without any: nosuid and nodev
};

// Those of mount(8) that the kernel is told: noexec, suid, ... Errc::usage names what is none.
Result<void> check_flags(const std::vector<std::string>& flags);
// All of them.
std::span<const std::string_view> known_flags();

class Device {
 public:
  // What a mount whose daemon has died has left on the directory is taken away first. Errors name
  // what keeps it from being mounted: no FUSE, no permission, a directory that is none or is in
  // use.
  static Result<std::unique_ptr<Device>> mount(const DeviceOptions& options);
  // After unmount(), or with nobody left to answer: programs that still use it get errors.
  ~Device();
  // Takes the mount point away. Programs that have files open there go on with them while the
  // device is answered; not for the thread that does, whom the kernel may ask for something first.
  void unmount();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Non-blocking. ENODEV on it: somebody has unmounted.
  int fd() const { return fd_.get(); }
  // As realpath(3) has it.
  const std::string& dir() const { return dir_; }

  // How much the kernel reads ahead of programs that read in order. Only root may: else as it was.
  void set_readahead(uint64_t bytes) const;

 private:
  struct Fuse;
  Device(std::string dir, std::unique_ptr<Fuse> fuse);

  const std::string dir_;
  std::unique_ptr<Fuse> fuse_;
  Fd fd_;  // beside libfuse's, which it closes to unmount
};

// What mount() looks at first, for those who will mount later: FUSE is there, the directory is one
// and nothing of ff is on it. What a mount whose daemon has died has left there is taken away.
Result<void> check_mountable(const std::string& dir);

// Whether something of type fuse.hf3fs is mounted right there. `dir` as realpath(3) has it.
bool is_mounted(const std::string& dir);

}  // namespace ff::mount
