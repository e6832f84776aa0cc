// cluster_disk.cc: names through the metadata service, one call each where the service walks the
// path itself (meta_client.h: Ref::way).
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

constexpr uint32_t kDiskListPage = 1000;  // names of a directory a call
constexpr uint32_t kModeOfLinks = 0777;

std::string both(const std::string& from, const std::string& to) { return from + " -> " + to; }

uint32_t rights_of(io::Access access) {
  switch (access) {
    case io::Access::read: return meta::kMayRead;
    case io::Access::write: return meta::kMayWrite;
    case io::Access::read_write: return meta::kMayRead | meta::kMayWrite;
  }
  return 0;
}

// A change is refused once a lock under which it may be done is lost.
template <class T>
Task<Result<T>> guarded(FileSystem& files, const std::function<Task<Result<T>>()>& make) {
  if (auto lost = files.lost_lock()) co_return std::move(*lost);
  auto doing = make();
  co_return co_await std::move(doing);
}

}  // namespace

ClusterDisk::ClusterDisk(io::Disk& local, FileSystem& files, Options options)
    : local_(local), files_(files), options_(std::move(options)), calls_(files.loop()) {}

ClusterDisk::Place ClusterDisk::place_of(const std::string& path) {
  return {ref_of(io::parent(path)), io::base_name(path)};
}

Result<std::optional<std::string>> ClusterDisk::inside(const std::string& path) const {
  if (!is_url(path)) return std::optional<std::string>();
  const std::string& cluster = options_.cluster;
  if (path == cluster) return std::optional<std::string>("/");
  if (path.starts_with(cluster) && path[cluster.size()] == '/') {
    return std::optional(path.substr(cluster.size()));
  }
  return fail(Errc::usage, "{}: in another cluster than {}", path, cluster);
}

Result<std::optional<std::pair<std::string, std::string>>> ClusterDisk::inside(
    const std::string& from, const std::string& to) const {
  FF_TRY(auto first, inside(from));
  FF_TRY(auto second, inside(to));
  if (first.has_value() != second.has_value()) return errno_error(EXDEV, both(from, to));
  if (!first) return std::optional<std::pair<std::string, std::string>>();
  return std::optional(std::pair(std::move(*first), std::move(*second)));
}

template <class T>
Result<T> ClusterDisk::call(const std::string& path, const std::function<Task<Result<T>>()>& make) {
  auto result = calls_.call<T>(make);
  if (!result) return error_at(path, std::move(result).error());
  return result;
}

template <class T>
Result<void> ClusterDisk::change(const std::string& path,
                                 const std::function<Task<Result<T>>()>& make) {
  FF_TRY(call<T>(path, [&] { return guarded<T>(files_, make); }));
  return {};
}

Task<Result<meta::Seen>> ClusterDisk::look(std::string path, bool follow) {
  auto walking = files_.names().walk(options_.caller, meta::root(), std::move(path), follow);
  FF_CO_TRY(auto walked, co_await std::move(walking));
  if (!walked.found) co_return errno_error(ENOENT, walked.name);
  co_return std::move(*walked.found);
}

Task<Result<std::shared_ptr<File>>> ClusterDisk::make_there(std::string path,
                                                            io::OpenOptions options) {
  Place place = place_of(path);
  if (!options.exclusive && !options.no_follow) {
    // A symbolic link to what is not there yet leads on.
    auto walking = files_.names().walk(options_.caller, meta::root(), path, true);
    FF_CO_TRY(const auto walked, co_await std::move(walking));
    place = {walked.dir.ref(), walked.name};
  }
  meta::Names::Make make{.mode = options.mode & ~options_.umask,
                         .exclusive = options.exclusive,
                         .rights = rights_of(options.access),
                         .chunk_size = options_.chunk_size};
  auto making =
      files_.create(options_.caller, std::move(place.dir), std::move(place.name), std::move(make));
  co_return co_await std::move(making);
}

Task<Result<std::shared_ptr<File>>> ClusterDisk::open_there(std::string path,
                                                            io::OpenOptions options) {
  meta::Ref ref = ref_of(path);
  if (options.no_follow) {
    auto looking = look(path, false);
    const auto seen = co_await std::move(looking);
    if (seen && seen->inode.is(meta::Kind::symlink)) co_return errno_error(ELOOP, path);
    if (seen) ref = seen->ref();
  }
  auto opening = files_.open(options_.caller, std::move(ref), rights_of(options.access));
  auto file = co_await std::move(opening);
  if (!file && file.error().code == Errc::not_found && options.create) {
    auto making = make_there(std::move(path), options);
    file = co_await std::move(making);
  }
  if (!file || !options.truncate || (*file)->inode().length == 0) co_return file;
  auto cutting = (*file)->truncate(0);
  FF_CO_TRY(co_await std::move(cutting));
  co_return file;
}

Result<std::unique_ptr<io::File>> ClusterDisk::open(const std::string& path,
                                                    io::OpenOptions options) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.open(path, options);
  using Opened = std::shared_ptr<File>;
  const bool exclusive = options.create && options.exclusive;
  FF_TRY(auto file, call<Opened>(path, [&] {
           return exclusive ? make_there(*there, options) : open_there(*there, options);
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
  return io::Buffers::of(memory, count, slot_bytes, [this](ByteSpan back) {
    const std::lock_guard giving(mutex_);
    free_memory_.emplace(back.size(), back);
  });
}

Result<io::FileInfo> ClusterDisk::info(const std::string& path) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.info(path);
  FF_TRY(const auto seen, call<meta::Seen>(path, [&] { return look(*there, false); }));
  return file_info(seen.inode);
}

Task<Result<std::vector<io::DirEntry>>> ClusterDisk::list_there(std::string dir) {
  std::vector<io::DirEntry> entries;
  for (;;) {
    std::string after = entries.empty() ? std::string() : entries.back().name;
    auto listing =
        files_.names().list(options_.caller, ref_of(dir), std::move(after), kDiskListPage, false);
    FF_CO_TRY(const auto page, co_await std::move(listing));
    for (const auto& entry : page.entries) entries.push_back({entry.name, kind_of(entry.kind)});
    if (page.end || page.entries.empty()) co_return entries;
  }
}

Result<std::vector<io::DirEntry>> ClusterDisk::list(const std::string& dir) {
  FF_TRY(const auto there, inside(dir));
  if (!there) return local_.list(dir);
  return call<std::vector<io::DirEntry>>(dir, [&] { return list_there(*there); });
}

Result<void> ClusterDisk::make_dir(const std::string& path, uint32_t mode) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.make_dir(path, mode);
  return change<meta::Seen>(path, [&] {
    Place place = place_of(*there);
    return files_.names().make(options_.caller, std::move(place.dir), std::move(place.name),
                               {.kind = meta::Kind::directory, .mode = mode & ~options_.umask});
  });
}

Result<void> ClusterDisk::remove(const std::string& path) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.remove(path);
  return change<meta::Seen>(path, [&] {
    Place place = place_of(*there);
    return files_.names().unlink(options_.caller, std::move(place.dir), std::move(place.name),
                                 std::nullopt);
  });
}

Result<void> ClusterDisk::remove_dir(const std::string& path) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.remove_dir(path);
  return change<meta::Seen>(path, [&] {
    Place place = place_of(*there);
    return files_.names().rmdir(options_.caller, std::move(place.dir), std::move(place.name));
  });
}

Result<void> ClusterDisk::rename(const std::string& from, const std::string& to) {
  FF_TRY(const auto there, inside(from, to));
  if (!there) return local_.rename(from, to);
  return change<meta::Seen>(both(from, to), [&] {
    Place first = place_of(there->first);
    Place second = place_of(there->second);
    return files_.names().rename(options_.caller, {.from_dir = std::move(first.dir),
                                                   .from = std::move(first.name),
                                                   .to_dir = std::move(second.dir),
                                                   .to = std::move(second.name)});
  });
}

Task<Result<meta::Seen>> ClusterDisk::link_there(std::string from, std::string to) {
  auto looking = look(std::move(from), false);
  FF_CO_TRY(const auto seen, co_await std::move(looking));
  Place place = place_of(to);
  auto linking =
      files_.names().link(options_.caller, seen.ref(), std::move(place.dir), std::move(place.name));
  co_return co_await std::move(linking);
}

Result<void> ClusterDisk::link(const std::string& from, const std::string& to) {
  FF_TRY(const auto there, inside(from, to));
  if (!there) return local_.link(from, to);
  return change<meta::Seen>(both(from, to),
                            [&] { return link_there(there->first, there->second); });
}

Result<void> ClusterDisk::make_symlink(const std::string& target, const std::string& path) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.make_symlink(target, path);
  return change<meta::Seen>(path, [&] {
    Place place = place_of(*there);
    return files_.names().make(
        options_.caller, std::move(place.dir), std::move(place.name),
        {.kind = meta::Kind::symlink, .mode = kModeOfLinks, .target = target});
  });
}

Result<std::string> ClusterDisk::read_symlink(const std::string& path) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.read_symlink(path);
  FF_TRY(auto seen, call<meta::Seen>(path, [&] { return look(*there, false); }));
  if (!seen.inode.is(meta::Kind::symlink)) return errno_error(EINVAL, path);
  return std::move(seen.inode.target);
}

Result<void> ClusterDisk::set_mode(const std::string& path, uint32_t mode) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.set_mode(path, mode);
  return change<meta::Seen>(path, [&] {
    return files_.names().set_attributes(options_.caller, ref_of(*there), {.mode = mode});
  });
}

Task<Result<meta::Seen>> ClusterDisk::set_mtime_there(std::string path, int64_t mtime_ns) {
  auto looking = look(std::move(path), false);
  FF_CO_TRY(const auto seen, co_await std::move(looking));
  meta::Names::Attributes to;
  to.times_now = mtime_ns < 0;
  if (mtime_ns >= 0) to.mtime_ns = mtime_ns;
  auto setting = files_.names().set_attributes(options_.caller, seen.ref(), to);
  co_return co_await std::move(setting);
}

Result<void> ClusterDisk::set_mtime(const std::string& path, int64_t mtime_ns) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.set_mtime(path, mtime_ns);
  return change<meta::Seen>(path, [&] { return set_mtime_there(*there, mtime_ns); });
}

Task<Result<void>> ClusterDisk::sync_there(std::string dir) {
  auto looking = look(std::move(dir), true);
  FF_CO_TRY(const meta::Seen seen, co_await std::move(looking));
  const auto state = files_.state_of(seen.inode.id);
  auto told = state->errors.open();
  auto syncing = files_.names().sync();
  FF_CO_TRY(co_await std::move(syncing));
  co_return state->errors.tell(told);
}

Result<void> ClusterDisk::sync_dir(const std::string& dir) {
  FF_TRY(const auto there, inside(dir));
  if (!there) return local_.sync_dir(dir);
  return call<void>(dir, [&] { return sync_there(*there); });
}

Result<io::Space> ClusterDisk::space(const std::string& path) {
  FF_TRY(const auto there, inside(path));
  if (!there) return local_.space(path);
  FF_TRY(call<meta::Seen>(path, [&] { return look(*there, true); }));
  FF_TRY(const auto space, call<FileSystem::Space>(path, [&] { return files_.space(); }));
  return io::Space{.total = space.total, .free = space.free};
}

}  // namespace ff::client
