// untrusted_dir.cc: openat(2) and unlinkat(2), relative to descriptors only.
#include "ops/scheduler/untrusted_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <vector>

#include "platform/base/fd.h"

namespace ff::scheduler {
namespace {

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

std::vector<std::string> names_in(Fd folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseDir> dir(::fdopendir(folder.get()));
  if (dir == nullptr) return names;
  (void)folder.release();  // the DIR owns it
  while (const dirent* const entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

// 0, or the errno.
int remove_at(int parent, const char* name, int deep) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return 0;
  if (errno != EISDIR && errno != EPERM) return errno;
  Fd folder(::openat(parent, name, kFolder));
  if (folder.get() < 0) return errno;
  if (deep == 0) return ELOOP;
  for (const std::string& one : names_in(Fd(::dup(folder.get())))) {
    if (const int err = remove_at(folder.get(), one.c_str(), deep - 1); err != 0) return err;
  }
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

}  // namespace

Result<void> remove_untrusted_dir(const std::string& path) {
  if (const int err = remove_at(AT_FDCWD, path.c_str(), kUntrustedDepthMax); err != 0) {
    return errno_error(err, path);
  }
  return {};
}

}  // namespace ff::scheduler
