// The machine as its kernel shows it: files of /proc, /sys and logs, below a root folder. That is
// "/" on a machine and a recorded tree in tests, so checks read here and nowhere else.
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

// No attribute of a device and no table of /proc that is read here is longer.
constexpr uint64_t kTextMax = 16 * kMiB;

class Tree {
 public:
  // `root` "" or "/": the machine's own. The disk outlives it.
  Tree(io::Disk& disk, std::string root);

  // Whether this is the machine itself: only then do system calls tell of the same.
  bool is_machine() const { return root_.empty(); }
  // Paths begin with a slash. The content. Errors: not_found, refused, those of the device (some
  // attributes answer with EIO or EINVAL), failed beyond kTextMax.
  Result<std::string> bytes(const std::string& path) const;
  // Without a last newline.
  Result<std::string> text(const std::string& path) const;
  // The first number of the content, which may be followed by a unit ("16.0 GT/s PCIe", "1000000").
  // Errc::failed where there is none.
  Result<double> number(const std::string& path) const;
  // Where nobody needs to know why there is none.
  std::optional<std::string> maybe_text(const std::string& path) const;
  std::optional<double> maybe_number(const std::string& path) const;

  bool exists(const std::string& path) const;
  // Names in a folder, sorted; none when it is not there.
  std::vector<std::string> list(const std::string& dir) const;
  // Names in a folder that begin with `prefix`, those with numbers behind it by number.
  std::vector<std::string> list(const std::string& dir, std::string_view prefix) const;
  // What a symbolic link says; empty: it is none, or may not be read.
  std::string link_text(const std::string& path) const;
  // Where a symbolic link leads, as a path of the tree without links: "/sys/devices/…". Empty: it
  // is none, or leads nowhere.
  std::string follow(const std::string& path) const;

  io::Disk& disk() const { return disk_; }
  std::string on_disk(const std::string& path) const { return root_ + path; }

 private:
  io::Disk& disk_;
  std::string root_;
};

}  // namespace ff::validate
