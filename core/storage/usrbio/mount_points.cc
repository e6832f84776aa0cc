// mount_points.cc: reads /proc/self/mountinfo and caches open mounts.
#include "storage/usrbio/mount_points.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/ioctls.h"
#include "storage/usrbio/iov_link_name.h"

namespace ff::usrbio {

namespace {

constexpr std::string_view kType = "fuse.hf3fs";
// If set to "yes", mounts of any type with a 3fs-virt count.
constexpr const char* kAnyType = "HF3FS_USRBIO_DONT_CHECKFS_FOR_MP";

// mountinfo escapes spaces and other characters as \040.
std::string unescaped(const std::string& field) {
  std::string text;
  for (size_t i = 0; i < field.size(); i++) {
    const bool escape = field[i] == '\\' && i + 3 < field.size();
    if (!escape) {
      text += field[i];
      continue;
    }
    text += static_cast<char>(std::strtol(field.substr(i + 1, 3).c_str(), nullptr, 8));
    i += 3;
  }
  return text;
}

// Resolves the path as far as it exists.
std::string resolved(const std::string& path) {
  std::string there = path;
  std::string rest;
  for (;;) {
    char* const real = ::realpath(there.empty() ? "." : there.c_str(), nullptr);
    if (real != nullptr) {
      std::string whole = real;
      std::free(real);
      return whole == "/" && !rest.empty() ? rest : whole + rest;
    }
    const size_t slash = there.rfind('/');
    if (there.empty() || there == "/") return path;
    rest = "/" + (slash == there.npos ? there : there.substr(slash + 1)) + rest;
    there = slash == there.npos ? "" : slash == 0 ? "/" : there.substr(0, slash);
  }
}

bool is_below(const std::string& path, const std::string& dir) {
  if (dir == "/") return true;
  return path.starts_with(dir) && (path.size() == dir.size() || path[dir.size()] == '/');
}

std::string deepest_mount(const std::string& path) {
  const char* const any = std::getenv(kAnyType);
  const bool any_type = any != nullptr && std::string_view(any) == "yes";
  const std::string alone = "/" + std::string(kVirtualDir);  // 3fs-virt mounted on its own
  std::string best;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word;
    std::string dir;
    for (int i = 0; i < 5 && words >> word; i++) dir = word;
    while (words >> word && word != "-") {
    }
    words >> word;  // the file system type
    dir = unescaped(dir);
    if (dir.ends_with(alone)) dir.resize(dir.size() - alone.size());
    if ((!any_type && word != kType) || dir.size() < best.size() || !is_below(path, dir)) continue;
    if (::access((dir + alone).c_str(), F_OK) == 0) best = dir;
  }
  return best;
}

}  // namespace

MountPoint::~MountPoint() {
  if (iovs >= 0) ::close(iovs);
}

std::shared_ptr<const MountPoint> open_mount_point(const char* point, int& error) {
  // A child process needs descriptors of its own to be recognized.
  static std::mutex mutex;
  static std::map<std::pair<pid_t, std::string>, std::shared_ptr<const MountPoint>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const MountPoint>& mount = known[{::getpid(), point}];
  struct stat now = {};
  // Another file system may be mounted there by now.
  if (mount != nullptr && ::fstat(mount->iovs, &now) == 0) return mount;
  auto made = std::make_shared<MountPoint>();
  const std::string dir = std::string(point) + "/" + std::string(kVirtualDir) + "/iovs";
  made->iovs = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat info = {};
  if (made->iovs < 0 || ::stat(point, &info) != 0) {
    error = errno;
    return nullptr;
  }
  made->device = info.st_dev;
  mount = made;
  return made;
}

std::string read_link(int dir, const std::string& name) {
  std::string text(4096, '\0');
  const ssize_t size = ::readlinkat(dir, name.c_str(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

}  // namespace ff::usrbio

using namespace ff::usrbio;

bool hf3fs_is_hf3fs(int fd) {
  uint32_t magic = 0;
  return ::ioctl(fd, kGetMagic, &magic) == 0 && magic == kMagic;
}

int hf3fs_extract_mount_point(char* mount_point, int size, const char* path) {
  if (path == nullptr) return -1;
  const std::string found = deepest_mount(resolved(path));
  if (found.empty()) return -1;
  const int bytes = static_cast<int>(found.size()) + 1;
  if (mount_point != nullptr && bytes <= size)
    std::memcpy(mount_point, found.c_str(), found.size() + 1);
  return bytes;
}
