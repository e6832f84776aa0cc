// cluster_disk.cc: metadata operations, one call each where the server can resolve the path
// (meta_client.h: InodeRef::path).
#include "storage/client/cluster_disk.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/io/files.h"
#include "storage/client/cluster_file.h"
#include "storage/client/cluster_queue.h"
#include "storage/client/url.h"

namespace ff::client {

namespace {

constexpr uint32_t kDiskListPage = 1000;  // names per call
constexpr uint32_t kModeOfLinks = 0777;

std::string rename_text(const std::string& from, const std::string& to) {
  return from + " -> " + to;
}

uint32_t rights_of(io::AccessMode access) {
  switch (access) {
    case io::AccessMode::read: return meta::kMayRead;
    case io::AccessMode::write: return meta::kMayWrite;
    case io::AccessMode::read_write: return meta::kMayRead | meta::kMayWrite;
  }
  return 0;
}

// Refuses a change after a lock was lost.
template <class T>
Task<Result<T>> guarded(FileSystem& files, const std::function<Task<Result<T>>()>& make) {
  if (auto lost = files.lost_lock()) co_return std::move(*lost);
  co_return co_await make();
}

}  // namespace

ClusterDisk::ClusterDisk(io::Disk& local, FileSystem& files, Options options)
    : local_(local), files_(files), options_(std::move(options)), calls_(files.loop()) {}

ClusterDisk::NamedEntry ClusterDisk::entry_at(const std::string& path) {
  return {ref_of(io::parent(path)), io::base_name(path)};
}

Result<std::optional<std::string>> ClusterDisk::cluster_path(const std::string& path) const {
  if (!is_url(path)) return std::optional<std::string>();
  const std::string& cluster = options_.cluster;
  if (path == cluster) return std::optional<std::string>("/");
  if (path.starts_with(cluster) && path[cluster.size()] == '/') {
    return std::optional(path.substr(cluster.size()));
  }
  return fail(Errc::usage, "{}: not in the cluster {}", path, cluster);
}

Result<std::optional<std::pair<std::string, std::string>>> ClusterDisk::cluster_path(
    const std::string& from, const std::string& to) const {
  FF_TRY(auto first, cluster_path(from));
  FF_TRY(auto second, cluster_path(to));
  if (first.has_value() != second.has_value()) return errno_error(EXDEV, rename_text(from, to));
  if (!first) return std::optional<std::pair<std::string, std::string>>();
  return std::optional(std::pair(std::move(*first), std::move(*second)));
}

template <class T>
Result<T> ClusterDisk::call(const std::string& path, const std::function<Task<Result<T>>()>& make) {
  auto result = calls_.call<T>(make);
  if (!result) return error_with_path(path, std::move(result).error());
  return result;
}

template <class T>
Result<void> ClusterDisk::change(const std::string& path,
                                 const std::function<Task<Result<T>>()>& make) {
  FF_TRY(call<T>(path, [&] { return guarded<T>(files_, make); }));
  return {};
}

Task<Result<meta::InodeView>> ClusterDisk::lookup_path(std::string path, bool follow) {
  FF_CO_TRY(auto walked, co_await files_.metadata().walk(options_.caller, meta::root(),
                                                         std::move(path), follow));
  if (!walked.found) co_return errno_error(ENOENT, walked.name);
  co_return std::move(*walked.found);
}

Task<Result<std::shared_ptr<File>>> ClusterDisk::create_in_cluster(std::string path,
                                                                   io::OpenOptions options) {
  NamedEntry place = entry_at(path);
  if (!options.exclusive && !options.no_follow) {
    // A symbolic link may lead to a name that does not exist yet.
    FF_CO_TRY(const auto walked,
              co_await files_.metadata().walk(options_.caller, meta::root(), path, true));
    place = {walked.dir.ref(), walked.name};
  }
  meta::Namespace::CreateOptions make{.mode = options.mode & ~options_.umask,
                                      .exclusive = options.exclusive,
                                      .rights = rights_of(options.access),
                                      .chunk_size = options_.chunk_size};
  co_return co_await files_.create(options_.caller, std::move(place.dir), std::move(place.name),
                                   std::move(make));
}

Task<Result<std::shared_ptr<File>>> ClusterDisk::open_in_cluster(std::string path,
                                                                 io::OpenOptions options) {
  meta::InodeRef ref = ref_of(path);
  if (options.no_follow) {
    const auto view = co_await lookup_path(path, false);
    if (view && view->inode.is(meta::InodeType::symlink)) co_return errno_error(ELOOP, path);
    if (view) ref = view->ref();
  }
  auto file = co_await files_.open(options_.caller, std::move(ref), rights_of(options.access));
  if (!file && file.error().code == Errc::not_found && options.create) {
    file = co_await create_in_cluster(std::move(path), options);
  }
  if (!file || !options.truncate || (*file)->inode().length == 0) co_return file;
  FF_CO_TRY(co_await (*file)->truncate(0));
  co_return file;
}

Result<std::unique_ptr<io::File>> ClusterDisk::open(const std::string& path,
                                                    io::OpenOptions options) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.open(path, options);
  using Opened = std::shared_ptr<File>;
  const bool exclusive = options.create && options.exclusive;
  FF_TRY(auto file, call<Opened>(path, [&] {
           return exclusive ? create_in_cluster(*there, options) : open_in_cluster(*there, options);
         }));
  return std::unique_ptr<io::File>(std::make_unique<ClusterFile>(
      calls_, std::move(file), path, options.access, options.direct, options_.caller));
}

std::unique_ptr<io::IoQueue> ClusterDisk::make_queue(io::QueueOptions options) {
  return std::make_unique<ClusterQueue>(calls_, local_, options);
}

Result<io::Buffers> ClusterDisk::make_buffers(size_t count, size_t slot_bytes) {
  if (!options_.memory) return io::Buffers::make(count, slot_bytes);
  const size_t size = count * slot_bytes;
  const std::lock_guard lock(mutex_);
  ByteSpan memory;
  if (const auto found = free_memory_.lower_bound(size); found != free_memory_.end()) {
    memory = found->second;
    free_memory_.erase(found);
  } else {
    FF_TRY(memory, options_.memory(size));
  }
  return io::Buffers::from_memory(memory, count, slot_bytes, [this](ByteSpan back) {
    const std::lock_guard giving(mutex_);
    free_memory_.emplace(back.size(), back);
  });
}

Result<io::FileInfo> ClusterDisk::info(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.info(path);
  FF_TRY(const auto view, call<meta::InodeView>(path, [&] { return lookup_path(*there, false); }));
  return file_info(view.inode);
}

Task<Result<std::vector<io::DirEntry>>> ClusterDisk::list_in_cluster(std::string dir) {
  std::vector<io::DirEntry> entries;
  for (;;) {
    std::string after = entries.empty() ? std::string() : entries.back().name;
    FF_CO_TRY(const auto page,
              co_await files_.metadata().list(options_.caller, ref_of(dir), std::move(after),
                                              kDiskListPage, false));
    for (const auto& entry : page.entries) entries.push_back({entry.name, kind_of(entry.kind)});
    if (page.end || page.entries.empty()) co_return entries;
  }
}

Result<std::vector<io::DirEntry>> ClusterDisk::list(const std::string& dir) {
  FF_TRY(const auto there, cluster_path(dir));
  if (!there) return local_.list(dir);
  return call<std::vector<io::DirEntry>>(dir, [&] { return list_in_cluster(*there); });
}

Result<void> ClusterDisk::make_dir(const std::string& path, uint32_t mode) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.make_dir(path, mode);
  return change<meta::InodeView>(path, [&] {
    NamedEntry place = entry_at(*there);
    return files_.metadata().create(
        options_.caller, std::move(place.dir), std::move(place.name),
        {.kind = meta::InodeType::directory, .mode = mode & ~options_.umask});
  });
}

Result<void> ClusterDisk::remove(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.remove(path);
  return change<meta::InodeView>(path, [&] {
    NamedEntry place = entry_at(*there);
    return files_.metadata().unlink(options_.caller, std::move(place.dir), std::move(place.name),
                                    std::nullopt);
  });
}

Result<void> ClusterDisk::remove_dir(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.remove_dir(path);
  return change<meta::InodeView>(path, [&] {
    NamedEntry place = entry_at(*there);
    return files_.metadata().rmdir(options_.caller, std::move(place.dir), std::move(place.name));
  });
}

Result<void> ClusterDisk::rename(const std::string& from, const std::string& to) {
  FF_TRY(const auto there, cluster_path(from, to));
  if (!there) return local_.rename(from, to);
  return change<meta::InodeView>(rename_text(from, to), [&] {
    NamedEntry first = entry_at(there->first);
    NamedEntry second = entry_at(there->second);
    return files_.metadata().rename(options_.caller, {.from_dir = std::move(first.dir),
                                                      .from = std::move(first.name),
                                                      .to_dir = std::move(second.dir),
                                                      .to = std::move(second.name)});
  });
}

Task<Result<meta::InodeView>> ClusterDisk::link_in_cluster(std::string from, std::string to) {
  FF_CO_TRY(const auto view, co_await lookup_path(std::move(from), false));
  NamedEntry place = entry_at(to);
  co_return co_await files_.metadata().link(options_.caller, view.ref(), std::move(place.dir),
                                            std::move(place.name));
}

Result<void> ClusterDisk::link(const std::string& from, const std::string& to) {
  FF_TRY(const auto there, cluster_path(from, to));
  if (!there) return local_.link(from, to);
  return change<meta::InodeView>(rename_text(from, to),
                                 [&] { return link_in_cluster(there->first, there->second); });
}

Result<void> ClusterDisk::make_symlink(const std::string& target, const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.make_symlink(target, path);
  return change<meta::InodeView>(path, [&] {
    NamedEntry place = entry_at(*there);
    return files_.metadata().create(
        options_.caller, std::move(place.dir), std::move(place.name),
        {.kind = meta::InodeType::symlink, .mode = kModeOfLinks, .target = target});
  });
}

Result<std::string> ClusterDisk::read_symlink(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.read_symlink(path);
  FF_TRY(auto view, call<meta::InodeView>(path, [&] { return lookup_path(*there, false); }));
  if (!view.inode.is(meta::InodeType::symlink)) return errno_error(EINVAL, path);
  return std::move(view.inode.target);
}

Result<void> ClusterDisk::set_mode(const std::string& path, uint32_t mode) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.set_mode(path, mode);
  return change<meta::InodeView>(path, [&] {
    return files_.metadata().set_attributes(options_.caller, ref_of(*there), {.mode = mode});
  });
}

Task<Result<meta::InodeView>> ClusterDisk::set_mtime_in_cluster(std::string path,
                                                                int64_t mtime_ns) {
  FF_CO_TRY(const auto view, co_await lookup_path(std::move(path), false));
  meta::Namespace::Attributes to;
  to.times_now = mtime_ns < 0;
  if (mtime_ns >= 0) to.mtime_ns = mtime_ns;
  co_return co_await files_.metadata().set_attributes(options_.caller, view.ref(), to);
}

Result<void> ClusterDisk::set_mtime(const std::string& path, int64_t mtime_ns) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.set_mtime(path, mtime_ns);
  return change<meta::InodeView>(path, [&] { return set_mtime_in_cluster(*there, mtime_ns); });
}

Task<Result<void>> ClusterDisk::sync_in_cluster(std::string dir) {
  FF_CO_TRY(const meta::InodeView view, co_await lookup_path(std::move(dir), true));
  const auto state = files_.state_of(view.inode.id);
  auto told = state->errors.sample();
  FF_CO_TRY(co_await files_.metadata().sync());
  co_return state->errors.check_and_advance(told);
}

Result<void> ClusterDisk::sync_dir(const std::string& dir) {
  FF_TRY(const auto there, cluster_path(dir));
  if (!there) return local_.sync_dir(dir);
  return call<void>(dir, [&] { return sync_in_cluster(*there); });
}

Result<io::Space> ClusterDisk::space(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.space(path);
  FF_TRY(call<meta::InodeView>(path, [&] { return lookup_path(*there, true); }));
  FF_TRY(const auto space, call<FileSystem::Space>(path, [&] { return files_.space(); }));
  return io::Space{.total = space.total, .free = space.free};
}

}  // namespace ff::client
