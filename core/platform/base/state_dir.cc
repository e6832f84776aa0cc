// state_dir.cc: choosing and creating the state directory of state_dir.h.
//
// The parent of the fallback directory is world-writable. So the fallback is opened without
// following symbolic links, and it must belong to this user with no access for others: otherwise
// another user could create it first and plant files in it.
#include "platform/base/state_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace ff {
namespace {

constexpr mode_t kPrivate = 0700;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<bool> statfs_on_network(const std::string& dir) {
  struct statfs info {};
  if (::statfs(dir.c_str(), &info) != 0) return errno_error(errno, dir);
  return is_network_file_system(static_cast<uint32_t>(info.f_type));
}

Result<std::string> wanted_dir(const StateDirEnvironment& from) {
  if (!from.ff_state.empty()) {
    if (from.ff_state.front() != '/') {
      return Error{Errc::usage, fmt::format("FF_STATE is '{}'", from.ff_state),
                   "Set it to an absolute path."};
    }
    return from.ff_state;
  }
  if (from.uid == 0) return from.root_default;
  if (from.home.empty() || from.home.front() != '/') {
    return Error{Errc::usage, "HOME is not an absolute path, so ff has no directory for its state",
                 "Set FF_STATE to a directory on a local disk."};
  }
  return from.home + "/.local/state/ff";
}

// The path itself, or its nearest existing parent.
std::filesystem::path nearest_existing(std::filesystem::path path) {
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path;
}

Result<void> make_dirs(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), kPrivate) == 0) return {};
  if (errno == ENOENT && path.has_relative_path()) {
    FF_TRY(make_dirs(path.parent_path()));
    if (::mkdir(path.c_str(), kPrivate) == 0) return {};
  }
  if (errno != EEXIST) return errno_error(errno, path.string());
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, path.string());
  if (!S_ISDIR(info.st_mode)) return errno_error(ENOTDIR, path.string());
  return {};
}

Result<void> make_private_dir(const std::string& path, uid_t uid) {
  if (::mkdir(path.c_str(), kPrivate) != 0 && errno != EEXIST) return errno_error(errno, path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info {};
  const bool ours =
      fd >= 0 && ::fstat(fd, &info) == 0 && info.st_uid == uid && (info.st_mode & 077) == 0;
  if (fd >= 0) ::close(fd);
  if (ours) return {};
  return Error{Errc::refused, fmt::format("{}: not a private directory of user {}", path, uid),
               "Remove it or have it removed, or set FF_STATE to a directory on a local disk."};
}

}  // namespace

bool is_network_file_system(uint32_t magic) {
  constexpr std::array<uint32_t, 17> kNetwork = {
      0x00006969,  // NFS
      0x0000517b,  // SMB
      0xfe534d42,  // SMB 2 and 3
      0xff534d42,  // CIFS
      0x01021997,  // 9p
      0x0bd00bd0,  // Lustre
      0x65735546,  // FUSE: sshfs, gluster, ff itself; virtiofs too
      0x00c36400,  // Ceph
      0x5346414f,  // AFS (OpenAFS)
      0x6b414653,  // AFS (kernel)
      0x73757245,  // Coda
      0x0000564c,  // NCP
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x20030528,  // OrangeFS
      0x7461636f,  // OCFS2: shared between machines
      0x01161970,  // GFS2: shared between machines
  };
  return std::find(kNetwork.begin(), kNetwork.end(), magic) != kNetwork.end();
}

StateDirEnvironment process_state_environment() {
  StateDirEnvironment from;
  from.ff_state = environment("FF_STATE");
  from.home = environment("HOME");
  from.uid = ::geteuid();
  from.is_network = statfs_on_network;
  return from;
}

Result<StateDir> state_dir(StateUse use, const StateDirEnvironment& from) {
  FF_TRY(const std::string wanted, wanted_dir(from));
  FF_TRY(const bool network, from.is_network(nearest_existing(wanted).string()));
  if (!network) {
    FF_TRY(make_dirs(wanted));
    return StateDir{wanted, {}};
  }
  if (use == StateUse::daemon) {
    return Error{Errc::refused, fmt::format("{}: state cannot be on a network file system", wanted),
                 "Set FF_STATE to a directory on a local disk."};
  }
  FF_TRY(const bool local_is_network, from.is_network(from.fallback_root));
  if (local_is_network) {
    return Error{
        Errc::refused,
        fmt::format("{} and {} are both on network file systems", wanted, from.fallback_root),
        "Set FF_STATE to a directory on a local disk."};
  }
  const std::string fallback = fmt::format("{}/ff-{}", from.fallback_root, from.uid);
  FF_TRY(make_private_dir(fallback, from.uid));
  return StateDir{fallback, wanted};
}

}  // namespace ff
