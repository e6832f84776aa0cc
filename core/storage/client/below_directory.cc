// below_directory.cc: goes up a path to a directory that is known, and down again name by name.
#include "storage/client/below_directory.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "storage/client/url.h"
#include "storage/client/walk.h"

namespace ff::client {

namespace {

constexpr size_t kBelowDirsMax = 4096;  // that are remembered

std::string trim_final_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool is_dots(const std::string& name) { return name == "." || name == ".."; }

}  // namespace

BelowDirectory::BelowDirectory(FileSystem& files, meta::Caller caller, std::string root,
                               meta::InodeRef ref)
    : files_(files),
      caller_(std::move(caller)),
      root_(std::move(root)),
      root_ref_(std::move(ref)),
      dirs_{{root_, root_ref_}} {}

Task<Result<std::shared_ptr<BelowDirectory>>> BelowDirectory::open(FileSystem& files,
                                                                   meta::Caller caller,
                                                                   std::string dir) {
  dir = trim_final_slashes(std::move(dir));
  meta::InodeRef ref = meta::root();
  if (dir != "/") {
    FF_CO_TRY(const auto view, co_await resolve_path(files.metadata(), caller, dir, true));
    if (!view.inode.is(meta::InodeType::directory)) co_return errno_error(ENOTDIR, printable(dir));
    ref = view.ref();
  }
  co_return std::shared_ptr<BelowDirectory>(
      new BelowDirectory(files, std::move(caller), std::move(dir), std::move(ref)));
}

Task<Result<std::shared_ptr<BelowDirectory>>> BelowDirectory::beneath(std::string dir) {
  dir = trim_final_slashes(std::move(dir));
  FF_CO_TRY(const auto view, co_await lookup(dir));
  if (view.inode.is(meta::InodeType::symlink)) co_return errno_error(ELOOP, printable(dir));
  if (!view.inode.is(meta::InodeType::directory)) co_return errno_error(ENOTDIR, printable(dir));
  co_return std::shared_ptr<BelowDirectory>(
      new BelowDirectory(files_, caller_, std::move(dir), view.ref()));
}

Task<Result<meta::InodeRef>> BelowDirectory::parent_of(std::string path) {
  std::vector<std::string> missing;
  std::string at = io::parent(path);
  if (is_dots(last_component(path))) co_return errno_error(EXDEV, printable(path));
  for (; !dirs_.contains(at); at = io::parent(at)) {
    if (at == "/" || at == "." || is_dots(last_component(at))) {
      co_return errno_error(EXDEV, printable(path));
    }
    missing.push_back(at);
  }
  meta::InodeRef ref = dirs_.at(at);
  for (; !missing.empty(); missing.pop_back()) {
    const std::string& dir = missing.back();
    FF_CO_TRY(const auto view,
              co_await files_.metadata().lookup(caller_, std::move(ref), last_component(dir)));
    if (view.inode.is(meta::InodeType::symlink)) co_return errno_error(ELOOP, printable(dir));
    if (!view.inode.is(meta::InodeType::directory)) co_return errno_error(ENOTDIR, printable(dir));
    ref = view.ref();
    if (dirs_.size() < kBelowDirsMax) dirs_[dir] = ref;
  }
  co_return ref;
}

Task<Result<meta::InodeView>> BelowDirectory::lookup(std::string path) {
  path = trim_final_slashes(std::move(path));
  if (path == root_) co_return co_await files_.metadata().stat(root_ref_, false);
  FF_CO_TRY(auto dir, co_await parent_of(path));
  co_return co_await files_.metadata().lookup(caller_, std::move(dir), last_component(path));
}

}  // namespace ff::client
