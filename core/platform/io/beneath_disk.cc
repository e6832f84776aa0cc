// beneath_disk.cc: resolves each path to an open directory and a name, then uses the calls that
// take both.
#include "platform/io/beneath_disk.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/system_directory.h"
#include "platform/io/system_file.h"
#include "platform/io/thread_queue.h"

namespace ff::io {

namespace {

int open_beneath(int dir, const std::string& path, uint64_t flags) {
  open_how how = {};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  do {
    fd = ::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof how);
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));  // EAGAIN: a rename meanwhile
  return static_cast<int>(fd);
}

}  // namespace

Result<std::unique_ptr<BeneathDisk>> BeneathDisk::open(std::string root) {
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  Fd fd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return errno_error(errno, root);
  return std::unique_ptr<BeneathDisk>(new BeneathDisk(std::move(root), std::move(fd)));
}

Result<BeneathDisk::Place> BeneathDisk::place(const std::string& path) const {
  std::string_view rest = path;
  const bool below =
      root_ == "." ? !path.starts_with('/')
                   : rest.starts_with(root_) &&
                         (root_ == "/" || rest.size() == root_.size() || rest[root_.size()] == '/');
  if (!below || path.empty()) {
    return fail(Errc::usage, "'{}' is not below {}", printable(path), printable(root_));
  }
  if (root_ != ".") rest.remove_prefix(root_.size());
  while (rest.starts_with('/')) rest.remove_prefix(1);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t slash = rest.rfind('/');
  const bool nested = slash != std::string_view::npos;
  const std::string dir(nested ? rest.substr(0, slash) : ".");
  std::string name(nested ? rest.substr(slash + 1) : rest.empty() ? "." : rest);
  if (name == "..") {
    return fail(Errc::usage, "'{}' may lead out of {}", printable(path), printable(root_));
  }
  Fd fd(open_beneath(fd_.get(), dir, O_PATH | O_DIRECTORY));
  if (fd.get() < 0) return errno_error(errno, path);
  return Place{std::move(fd), std::move(name)};
}

Result<Fd> BeneathDisk::open_dir(const std::string& path) const {
  FF_TRY(const Place at, place(path));
  Fd fd(open_beneath(at.dir.get(), at.name, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) return errno_error(errno, path);
  return fd;
}

Result<std::unique_ptr<File>> BeneathDisk::open(const std::string& path, OpenOptions options) {
  FF_TRY(const Place at, place(path));
  options.no_follow = true;
  return SystemFile::open_at(at.dir.get(), at.name, path, options);
}

std::unique_ptr<IoQueue> BeneathDisk::make_queue(QueueOptions options) {
  return make_system_queue(options);
}

Result<FileInfo> BeneathDisk::info(const std::string& path) {
  FF_TRY(const Place at, place(path));
  return info_at(at.dir.get(), at.name, path);
}

Result<std::vector<DirEntry>> BeneathDisk::list(const std::string& dir) {
  FF_TRY(Fd fd, open_dir(dir));
  return list_open_dir(std::move(fd), dir);
}

Result<void> BeneathDisk::make_dir(const std::string& path, uint32_t mode) {
  FF_TRY(const Place at, place(path));
  return outcome(::mkdirat(at.dir.get(), at.name.c_str(), mode), path);
}

Result<void> BeneathDisk::remove(const std::string& path) {
  FF_TRY(const Place at, place(path));
  return outcome(::unlinkat(at.dir.get(), at.name.c_str(), 0), path);
}

Result<void> BeneathDisk::remove_dir(const std::string& path) {
  FF_TRY(const Place at, place(path));
  return outcome(::unlinkat(at.dir.get(), at.name.c_str(), AT_REMOVEDIR), path);
}

Result<void> BeneathDisk::rename(const std::string& from, const std::string& to) {
  FF_TRY(const Place old, place(from));
  FF_TRY(const Place now, place(to));
  return outcome(::renameat(old.dir.get(), old.name.c_str(), now.dir.get(), now.name.c_str()),
                 both(from, to));
}

Result<void> BeneathDisk::link(const std::string& from, const std::string& to) {
  FF_TRY(const Place old, place(from));
  FF_TRY(const Place now, place(to));
  return link_at({old.dir.get(), old.name}, {now.dir.get(), now.name}, both(from, to));
}

Result<void> BeneathDisk::make_symlink(const std::string& target, const std::string& path) {
  FF_TRY(const Place at, place(path));
  return outcome(::symlinkat(target.c_str(), at.dir.get(), at.name.c_str()), path);
}

Result<std::string> BeneathDisk::read_symlink(const std::string& path) {
  FF_TRY(const Place at, place(path));
  return read_symlink_at(at.dir.get(), at.name, path);
}

Result<void> BeneathDisk::set_mode(const std::string& path, uint32_t mode) {
  FF_TRY(const Place at, place(path));
  return outcome(::fchmodat(at.dir.get(), at.name.c_str(), mode, AT_SYMLINK_NOFOLLOW), path);
}

Result<void> BeneathDisk::set_mtime(const std::string& path, int64_t mtime_ns) {
  FF_TRY(const Place at, place(path));
  return set_mtime_at(at.dir.get(), at.name, mtime_ns, path);
}

Result<void> BeneathDisk::set_owner(const std::string& path, std::optional<uint32_t> uid,
                                    std::optional<uint32_t> gid) {
  constexpr uint32_t kSame = UINT32_MAX;
  FF_TRY(const Place at, place(path));
  return outcome(::fchownat(at.dir.get(), at.name.c_str(), uid.value_or(kSame), gid.value_or(kSame),
                            AT_SYMLINK_NOFOLLOW),
                 path);
}

Result<void> BeneathDisk::sync_dir(const std::string& dir) {
  FF_TRY(const Fd fd, open_dir(dir));
  return sync_open_dir(fd.get(), dir);
}

Result<Space> BeneathDisk::space(const std::string& path) {
  FF_TRY(const Place at, place(path));
  const Fd node(open_beneath(at.dir.get(), at.name, O_PATH));
  struct statvfs status;
  if (node.get() < 0 || ::fstatvfs(node.get(), &status) != 0) return errno_error(errno, path);
  return Space{.total = uint64_t{status.f_blocks} * status.f_frsize,
               .free = uint64_t{status.f_bavail} * status.f_frsize};
}

Result<std::unique_ptr<Disk>> BeneathDisk::beneath(const std::string& dir) {
  FF_TRY(const Place at, place(dir));
  Fd fd(open_beneath(at.dir.get(), at.name, O_PATH | O_DIRECTORY));
  if (fd.get() < 0) return errno_error(errno, dir);
  std::string root = dir;
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  return std::unique_ptr<Disk>(new BeneathDisk(std::move(root), std::move(fd)));
}

}  // namespace ff::io
