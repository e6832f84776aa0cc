// The machine as seen through its kernel: /proc, /sys and log files below a root directory. That is
// "/" on a machine and a recorded tree in tests; checks read files only through this class.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::validate {

// Limit of one file; device attributes and /proc tables are smaller.
constexpr uint64_t kTextMax = 16 * kMiB;

class SystemTree {
 public:
  // `root` "" or "/": this machine. The disk must outlive it.
  SystemTree(io::Disk& disk, std::string root);

  // Whether this is the running machine: only then system calls agree with the files.
  bool is_machine() const { return root_.empty(); }
  // The content of a file; paths are absolute. Errors: not_found, refused, those of the device
  // (some attributes return EIO or EINVAL), failed beyond kTextMax.
  Result<std::string> bytes(const std::string& path) const;
  // The content without the last newline.
  Result<std::string> text(const std::string& path) const;
  // The first number of the content, which may be followed by a unit ("16.0 GT/s PCIe", "1000000").
  // Errc::failed: no number.
  Result<double> number(const std::string& path) const;
  // The same, if the cause of an error does not matter.
  std::optional<std::string> maybe_text(const std::string& path) const;
  std::optional<double> maybe_number(const std::string& path) const;

  bool exists(const std::string& path) const;
  // Names in a directory, sorted; empty if there is no directory.
  std::vector<std::string> list(const std::string& dir) const;
  // Names in a directory that begin with `prefix`; names with a number after it in numeric order.
  std::vector<std::string> list(const std::string& dir, std::string_view prefix) const;
  // The target of a symlink; empty: not a symlink, or unreadable.
  std::string link_text(const std::string& path) const;
  // The target of a symlink as a path of the tree, with all symlinks resolved: "/sys/devices/…".
  // Empty: not a symlink, or dangling.
  std::string follow(const std::string& path) const;

  io::Disk& disk() const { return disk_; }
  std::string on_disk(const std::string& path) const { return root_ + path; }

 private:
  io::Disk& disk_;
  std::string root_;
};

}  // namespace ff::validate
