// A disk that records which files were read, and can refuse some: a test learns the input of a
// check, and then refuses it, as a machine does to an unprivileged user.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "platform/io/disk.h"

namespace ff::validate {

class WatchedDisk final : public io::Disk {
 public:
  explicit WatchedDisk(io::Disk& below) : below_(below) {}

  // Existing files that were opened and folders that were listed.
  std::set<std::string> files_read = {}, folders_read = {};
  // Paths that return `refused` from now on.
  std::set<std::string> refused = {};

  Result<std::unique_ptr<io::File>> open(const std::string& path,
                                         io::OpenOptions options) override {
    FF_TRY(admit(path));
    auto file = below_.open(path, options);
    if (file) files_read.insert(path);
    return file;
  }
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override {
    FF_TRY(admit(dir));
    auto entries = below_.list(dir);
    if (entries) folders_read.insert(dir);
    return entries;
  }
  Result<std::string> read_symlink(const std::string& path) override {
    FF_TRY(admit(path));
    return below_.read_symlink(path);
  }
  Result<io::FileInfo> info(const std::string& path) override { return below_.info(path); }

  // Readers need no other operation.
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override {
    return below_.make_queue(options);
  }
  Result<void> make_dir(const std::string& path, uint32_t) override { return refuse(path); }
  Result<void> remove(const std::string& path) override { return refuse(path); }
  Result<void> remove_dir(const std::string& path) override { return refuse(path); }
  Result<void> rename(const std::string& from, const std::string&) override { return refuse(from); }
  Result<void> link(const std::string& from, const std::string&) override { return refuse(from); }
  Result<void> make_symlink(const std::string&, const std::string& path) override {
    return refuse(path);
  }
  Result<void> set_mode(const std::string& path, uint32_t) override { return refuse(path); }
  Result<void> set_mtime(const std::string& path, int64_t) override { return refuse(path); }
  Result<void> sync_dir(const std::string& dir) override { return refuse(dir); }
  Result<io::Space> space(const std::string& path) override { return below_.space(path); }
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override { return refuse(dir); }

 private:
  static Error refuse(const std::string& path) {
    return fail(Errc::refused, "{}: permission denied", path);
  }
  Result<void> admit(const std::string& path) const {
    if (refused.contains(path)) return refuse(path);
    return {};
  }

  io::Disk& below_;
};

}  // namespace ff::validate
