// fuse_device.cc: mounts with libfuse and explains failures.
#define FUSE_USE_VERSION 314
#include "storage/mount/fuse_device.h"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/base/text.h"

namespace ff::mount {

namespace {

constexpr const char* kType = "fuse.hf3fs";
constexpr const char* kDevice = "/dev/fuse";
constexpr unsigned kDeviceMajor = 10;
constexpr unsigned kDeviceMinor = 229;
constexpr unsigned kMayMount = 21;  // CAP_SYS_ADMIN of linux/capability.h

// libfuse accepts more flags, which have no meaning for FUSE.
constexpr auto kFlags =
    std::to_array<std::string_view>({"async", "atime", "dev", "dirsync", "exec", "noatime", "nodev",
                                     "nodiratime", "noexec", "nosuid", "suid", "sync"});

// libfuse reports errors as lines to one function of the process.
std::mutex messages_mutex;
std::string told;

void keep(std::string_view line) {
  const std::lock_guard lock(messages_mutex);
  if (!told.empty()) told += "; ";
  told += line;
  while (told.ends_with('\n')) told.pop_back();
}
void keep_line(fuse_log_level, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  keep(line);
}

// Captures standard error while it exists: fusermount3 writes its errors there.
class StderrCapture {
 public:
  StderrCapture() : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    if (said_.get() >= 0 && before_.get() >= 0) ::dup2(said_.get(), STDERR_FILENO);
  }
  ~StderrCapture() {
    if (said_.get() < 0 || before_.get() < 0) return;
    ::dup2(before_.get(), STDERR_FILENO);
    char text[512];
    const ssize_t size = ::pread(said_.get(), text, sizeof text, 0);
    if (size > 0) keep({text, static_cast<size_t>(size)});
  }
  StderrCapture(const StderrCapture&) = delete;
  StderrCapture& operator=(const StderrCapture&) = delete;

 private:
  const Fd said_{::memfd_create("ff-said", MFD_CLOEXEC)};
  const Fd before_;
};

// Escapes commas, which would end an option.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == ',' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

// mountinfo escapes spaces and other characters as \040.
std::string unescaped(std::string_view field) {
  std::string text;
  for (size_t i = 0; i < field.size(); i++) {
    if (field[i] == '\\' && i + 3 < field.size()) {
      text +=
          static_cast<char>(std::strtoul(std::string(field.substr(i + 1, 3)).c_str(), nullptr, 8));
      i += 3;
    } else {
      text += field[i];
    }
  }
  return text;
}

// The entry of a directory in the mount table.
struct MountLine {
  std::string device;  // "0:54"
  std::string type;
};
std::optional<MountLine> find_mount(const std::string& dir) {
  std::optional<MountLine> found;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const auto fields = split(line, ' ');
    if (fields.size() < 10 || unescaped(fields[4]) != dir) continue;
    const auto dash = std::ranges::find(fields, std::string_view("-"));
    if (dash == fields.end() || dash + 1 == fields.end()) continue;
    found = {std::string(fields[2]), std::string(dash[1])};  // a later mount covers earlier ones
  }
  return found;
}

Error advised(Error error, std::string hint) {
  error.hint = std::move(hint);
  return error;
}

// The real path of the directory, if nothing is mounted on it.
Result<std::string> real_dir(const std::string& dir) {
  struct statx info = {};
  // The kernel may still have the attributes of a mount whose daemon has died.
  const auto look = [&] {
    constexpr int kAsk = AT_STATX_FORCE_SYNC;
    return ::statx(AT_FDCWD, dir.c_str(), kAsk, STATX_TYPE, &info) == 0 ? 0 : errno;
  };
  int err = look();
  // The daemon of the old mount has died: unmount it. ECANCELED: of io_uring, for a moment.
  if (err == ENOTCONN || err == ECONNABORTED || err == ECANCELED) {
    if (::umount2(dir.c_str(), MNT_DETACH) != 0) {
      return advised(errno_error(errno, dir + ": stale mount, its daemon has died"),
                     "Unmount it first: fusermount3 -u " + dir);
    }
    err = look();
  }
  if (err == ENOENT) return advised(errno_error(err, dir), "Create it: mkdir -p " + dir);
  if (err != 0) return errno_error(err, dir);
  if (!S_ISDIR(info.stx_mode)) return errno_error(ENOTDIR, dir);
  char* const name = ::realpath(dir.c_str(), nullptr);
  if (name == nullptr) return errno_error(errno, dir);
  std::string real = name;
  std::free(name);
  const auto there = find_mount(real);
  // systemd mounts an autofs there, which the new mount covers.
  if (!there || there->type == "autofs") return real;
  if (there->type == kType) {
    return advised(fail(Errc::exists, "{}: an ff file system is already mounted there", dir),
                   "Unmount it first: umount " + dir);
  }
  return advised(fail(Errc::exists, "{}: a file system of type {} is already mounted there", dir,
                      printable(there->type)),
                 "Choose another directory, or unmount it first: umount " + dir);
}

std::string kind_of(const struct stat& info) {
  if (S_ISCHR(info.st_mode)) {
    return fmt::format("character device {}:{}", major(info.st_rdev), minor(info.st_rdev));
  }
  return S_ISREG(info.st_mode) ? "regular file" : S_ISDIR(info.st_mode) ? "directory" : "file";
}

Result<void> check_fuse() {
  constexpr const char* kNone =
      "This machine has no FUSE: modprobe fuse; a container needs --device /dev/fuse and "
      "--cap-add SYS_ADMIN.";
  struct stat info = {};
  if (::stat(kDevice, &info) != 0) return advised(errno_error(errno, kDevice), kNone);
  if (!S_ISCHR(info.st_mode) || info.st_rdev != makedev(kDeviceMajor, kDeviceMinor)) {
    return advised(
        fail(Errc::failed, "{}: a {} instead of the FUSE device", kDevice, kind_of(info)),
        "As root: rm /dev/fuse; mknod -m 666 /dev/fuse c 10 229. A container gets it "
        "with --device /dev/fuse.");
  }
  const Fd device(::open(kDevice, O_RDWR | O_CLOEXEC));
  if (device.get() >= 0) return {};
  const int err = errno;
  Error error = errno_error(err, kDevice);
  if (err == ENODEV || err == ENXIO) return advised(std::move(error), kNone);
  if (err == EPERM || ::geteuid() == 0) {
    return advised(std::move(error),
                   "A container may use it when it is started with --device "
                   "/dev/fuse.");
  }
  return advised(std::move(error), "Mount as root, or give users access: chmod 666 /dev/fuse.");
}

// Whether this process may mount without a helper.
bool may_mount() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kEffective = "CapEff:";
    if (!line.starts_with(kEffective)) continue;
    const uint64_t all = std::strtoull(line.c_str() + kEffective.size(), nullptr, 16);
    return (all >> kMayMount & 1) != 0;
  }
  return ::geteuid() == 0;
}

bool has_fusermount() {
  const char* const path = ::getenv("PATH");
  for (const std::string_view dir : split(path == nullptr ? "" : path, ':')) {
    if (::access((std::string(dir) + "/fusermount3").c_str(), X_OK) == 0) return true;
  }
  return ::access("/usr/bin/fusermount3", X_OK) == 0;
}

// Checked here, since libfuse only writes its own text to standard error.
Result<void> check_permitted(const std::string& dir) {
  if (may_mount()) return {};
  if (::geteuid() == 0) {
    return advised(
        fail(Errc::refused, "{}: mounting is not permitted: CAP_SYS_ADMIN is missing", dir),
        "A container gets it with --cap-add SYS_ADMIN.");
  }
  if (has_fusermount()) return {};
  return advised(fail(Errc::refused,
                      "{}: users other than root need fusermount3, which is not installed", dir),
                 "Install it (Debian's package fuse3), or mount as root.");
}

Error not_mounted(const std::string& dir) {
  std::string why;
  {
    const std::lock_guard lock(messages_mutex);
    why = std::exchange(told, {});
  }
  Error error = fail(Errc::failed, "{}: mounting failed: {}", dir,
                     why.empty() ? "the kernel refused" : printable(why));
  if (::geteuid() != 0) {
    error.hint =
        "Users other than root can mount only on a directory that they own; --allow-other needs "
        "user_allow_other in /etc/fuse.conf.";
  } else {
    error.hint = "Does the container forbid it (seccomp, AppArmor)? See 'dmesg'.";
  }
  if (why.find("not permitted") != why.npos || why.find("denied") != why.npos) {
    error.code = Errc::refused;
  }
  return error;
}

}  // namespace

Result<void> check_mountable(const std::string& dir) {
  FF_TRY(check_fuse());
  FF_TRY(const std::string real, real_dir(dir));
  return check_permitted(real);
}

std::span<const std::string_view> mount_flags() { return kFlags; }

Result<void> check_flags(const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    if (std::ranges::find(kFlags, flag) != kFlags.end()) continue;
    return fail(Errc::usage, "'{}' is not a mount flag; the flags are {}", printable(flag),
                fmt::join(kFlags, ", "));
  }
  return {};
}

bool is_mounted(const std::string& dir) {
  const auto found = find_mount(dir);
  return found && found->type == kType;
}

struct FuseDevice::Fuse {
  fuse_session* session = nullptr;
  ~Fuse() {
    if (session == nullptr) return;
    fuse_session_unmount(session);
    fuse_session_destroy(session);
  }
};

FuseDevice::FuseDevice(std::string dir, std::unique_ptr<Fuse> fuse)
    : dir_(std::move(dir)), fuse_(std::move(fuse)) {}

FuseDevice::~FuseDevice() = default;

void FuseDevice::unmount() {
  if (fuse_ == nullptr) unmount_lazily(dir_);
  fuse_.reset();
}

Result<std::unique_ptr<FuseDevice>> FuseDevice::adopt(Fd fd, std::string dir) {
  std::unique_ptr<FuseDevice> device(new FuseDevice(std::move(dir), nullptr));
  device->fd_ = std::move(fd);
  return device;
}

void unmount_lazily(const std::string& dir) {
  if (::umount2(dir.c_str(), MNT_DETACH) == 0 || ::geteuid() == 0) return;
  std::vector<std::string> words{"fusermount3", "-u", "-q", "-z", "--", dir};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) return;
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::string mounted_device(const std::string& dir) {
  const auto found = find_mount(dir);
  return found && found->type == kType ? found->device : "";
}

Result<std::unique_ptr<FuseDevice>> FuseDevice::mount(const FuseDeviceOptions& options) {
  FF_TRY(check_fuse());
  FF_TRY(const std::string dir, real_dir(options.dir));
  FF_TRY(check_permitted(dir));
  FF_TRY(check_flags(options.flags));
  fuse_set_log_func(keep_line);
  // The kernel checks modes before it sends requests; the servers check them again.
  std::string words = "subtype=hf3fs,default_permissions,fsname=" + escaped(options.source);
  if (options.allow_other) words += ",allow_other";
  if (options.read_only) words += ",ro";
  for (const std::string& flag : options.flags) words += "," + flag;
  std::vector<std::string> given{"ff", "-o", words};
  std::vector<char*> pointers;
  for (std::string& one : given) pointers.push_back(one.data());
  fuse_args arguments = FUSE_ARGS_INIT(static_cast<int>(pointers.size()), pointers.data());
  const fuse_lowlevel_ops none = {};
  auto fuse = std::make_unique<Fuse>();
  fuse->session = fuse_session_new(&arguments, &none, sizeof none, nullptr);
  fuse_opt_free_args(&arguments);
  if (fuse->session == nullptr) return not_mounted(dir);
  bool mounted = false;
  {
    const StderrCapture captured;
    mounted = fuse_session_mount(fuse->session, dir.c_str()) == 0;
  }
  if (!mounted) return not_mounted(dir);
  std::unique_ptr<FuseDevice> device(new FuseDevice(dir, std::move(fuse)));
  device->fd_ = Fd(::fcntl(fuse_session_fd(device->fuse_->session), F_DUPFD_CLOEXEC, 0));
  const int flags = ::fcntl(device->fd(), F_GETFL);
  if (flags < 0 || ::fcntl(device->fd(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error(errno, "/dev/fuse");
  }
  return device;
}

Result<Fd> FuseDevice::clone() const {
  Fd cloned(::open(kDevice, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  auto of = static_cast<uint32_t>(fd());
  if (cloned.get() < 0 || ::ioctl(cloned.get(), FUSE_DEV_IOC_CLONE, &of) != 0) {
    return errno_error(errno, kDevice);
  }
  return cloned;
}

// The kernel sets its default after the reply to FUSE_INIT, so call this later.
void FuseDevice::set_readahead(uint64_t bytes) const {
  const auto found = find_mount(dir_);
  if (!found) return;
  std::ofstream out("/sys/class/bdi/" + found->device + "/read_ahead_kb");
  out << bytes / kKiB << '\n';
}

}  // namespace ff::mount
