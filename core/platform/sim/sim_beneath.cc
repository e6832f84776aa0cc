// sim_beneath.cc: checks a path component by component, then leaves the operation to the disk.
#include "platform/sim/sim_beneath.h"

#include <cerrno>

#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::sim {

Result<std::unique_ptr<io::Disk>> SimBeneath::open(io::Disk& disk, std::string dir) {
  while (dir.size() > 1 && dir.ends_with('/')) dir.pop_back();
  FF_TRY(const auto info, disk.info(io::join(dir, ".")));
  if (info.kind != io::FileKind::directory) return errno_error(ENOTDIR, dir);
  return std::unique_ptr<io::Disk>(new SimBeneath(disk, std::move(dir)));
}

Result<void> SimBeneath::check(const std::string& path, bool whole) const {
  const bool here = root_ == ".";
  const bool below = here ? !path.starts_with('/')
                          : path.starts_with(root_) &&
                                (root_ == "/" || path == root_ || path[root_.size()] == '/');
  if (!below) return fail(Errc::usage, "'{}' is not below {}", printable(path), printable(root_));
  std::string at = root_;
  const std::string rest = here ? path : path.substr(root_.size());
  for (size_t begin = 0; begin < rest.size();) {
    const size_t end = std::min(rest.find('/', begin), rest.size());
    const std::string part = rest.substr(begin, end - begin);
    begin = end + 1;
    if (part == "..") return errno_error(EXDEV, path);
    if (part.empty() || part == ".") continue;
    at = io::join(at, part);
    const bool last = begin >= rest.size();
    if (last && !whole) return {};
    const auto info = disk_.info(at);
    if (!info) return info.error();
    if (info->kind == io::FileKind::symlink) return errno_error(ELOOP, path);
  }
  return {};
}

Result<std::unique_ptr<io::File>> SimBeneath::open(const std::string& path,
                                                   io::OpenOptions options) {
  FF_TRY(check(path));
  options.no_follow = true;
  return disk_.open(path, options);
}

std::unique_ptr<io::IoQueue> SimBeneath::make_queue(io::QueueOptions options) {
  return disk_.make_queue(options);
}

Result<io::FileInfo> SimBeneath::info(const std::string& path) {
  FF_TRY(check(path));
  return disk_.info(path);
}

Result<std::vector<io::DirEntry>> SimBeneath::list(const std::string& dir) {
  FF_TRY(check(dir, true));
  return disk_.list(dir);
}

Result<void> SimBeneath::make_dir(const std::string& path, uint32_t mode) {
  FF_TRY(check(path));
  return disk_.make_dir(path, mode);
}

Result<void> SimBeneath::remove(const std::string& path) {
  FF_TRY(check(path));
  return disk_.remove(path);
}

Result<void> SimBeneath::remove_dir(const std::string& path) {
  FF_TRY(check(path));
  return disk_.remove_dir(path);
}

Result<void> SimBeneath::rename(const std::string& from, const std::string& to) {
  FF_TRY(check(from));
  FF_TRY(check(to));
  return disk_.rename(from, to);
}

Result<void> SimBeneath::link(const std::string& from, const std::string& to) {
  FF_TRY(check(from));
  FF_TRY(check(to));
  return disk_.link(from, to);
}

Result<void> SimBeneath::make_symlink(const std::string& target, const std::string& path) {
  FF_TRY(check(path));
  return disk_.make_symlink(target, path);
}

Result<std::string> SimBeneath::read_symlink(const std::string& path) {
  FF_TRY(check(path));
  return disk_.read_symlink(path);
}

Result<void> SimBeneath::set_mode(const std::string& path, uint32_t mode) {
  FF_TRY(check(path, true));
  return disk_.set_mode(path, mode);
}

Result<void> SimBeneath::set_mtime(const std::string& path, int64_t mtime_ns) {
  FF_TRY(check(path));
  return disk_.set_mtime(path, mtime_ns);
}

Result<void> SimBeneath::sync_dir(const std::string& dir) {
  FF_TRY(check(dir, true));
  return disk_.sync_dir(dir);
}

Result<io::Space> SimBeneath::space(const std::string& path) {
  FF_TRY(check(path, true));
  return disk_.space(path);
}

Result<std::unique_ptr<io::Disk>> SimBeneath::beneath(const std::string& dir) {
  FF_TRY(check(dir, true));
  return open(disk_, dir);
}

}  // namespace ff::sim
