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

// The server resolves the path.
meta::InodeRef path_ref(const std::string& path) { return {.id = meta::kRoot, .path = path}; }

// "a/./b/." -> "a/b".
std::string without_dots(std::string_view path) {
  std::string plain;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (!part.empty() && part != ".") (plain += '/') += part;
    begin = end + 1;
  }
  return plain.empty() ? "/" : plain;
}

// Refuses a change after a lock was lost.
template <class T>
Task<Result<T>> guarded(FileSystem& files, const std::function<Task<Result<T>>()>& make) {
  if (auto lost = files.lost_lock()) co_return std::move(*lost);
  co_return co_await make();
}

}  // namespace

ClusterDisk::ClusterDisk(io::Disk& local, FileSystem& files, Options options)
    : local_(local),
      files_(files),
      options_(std::move(options)),
      whole_(nullptr),
      own_calls_(std::in_place, files.loop()),
      calls_(*own_calls_) {}

ClusterDisk::ClusterDisk(ClusterDisk& whole, std::shared_ptr<BelowDirectory> below)
    : local_(whole.local_),
      files_(whole.files_),
      options_(whole.options_),
      whole_(&whole),
      below_(std::move(below)),
      calls_(whole.calls_) {}

Task<Result<ClusterDisk::NamedEntry>> ClusterDisk::entry_at(std::string path) {
  NamedEntry entry{path_ref(io::parent(path)), io::base_name(path)};
  if (below_ != nullptr) {
    FF_CO_TRY(entry.dir, co_await below_->parent_of(path));
  }
  co_return entry;
}

Task<Result<meta::InodeRef>> ClusterDisk::ref_of(std::string path) {
  if (below_ == nullptr) co_return path_ref(path);
  FF_CO_TRY(const auto view, co_await lookup_path(path, true));
  co_return view.ref();
}

Result<std::optional<std::string>> ClusterDisk::cluster_path(const std::string& path) const {
  if (!is_url(path)) {
    if (below_ != nullptr) return fail(Errc::usage, "{}: not in the cluster", path);
    return std::optional<std::string>();
  }
  const std::string& cluster = options_.cluster;
  if (path == cluster) return std::optional<std::string>("/");
  if (path.starts_with(cluster) && path[cluster.size()] == '/') {
    std::string inside = path.substr(cluster.size());
    if (below_ != nullptr) inside = without_dots(inside);
    return std::optional(std::move(inside));
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
  if (below_ != nullptr) {
    FF_CO_TRY(auto view, co_await below_->lookup(path));
    if (follow && view.inode.is(meta::InodeType::symlink)) co_return errno_error(ELOOP, path);
    co_return view;
  }
  FF_CO_TRY(auto walked, co_await files_.metadata().walk(options_.caller, meta::root(),
                                                         std::move(path), follow));
  if (!walked.found) co_return errno_error(ENOENT, walked.name);
  co_return std::move(*walked.found);
}

Task<Result<std::shared_ptr<File>>> ClusterDisk::create_in_cluster(std::string path,
                                                                   io::OpenOptions options) {
  FF_CO_TRY(NamedEntry place, co_await entry_at(path));
  if (!options.exclusive && !options.no_follow && below_ == nullptr) {
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
  meta::InodeRef ref = path_ref(path);
  Result<std::shared_ptr<File>> file = errno_error(ENOENT, path);
  bool found = true;
  if (options.no_follow || below_ != nullptr) {
    const auto view = co_await lookup_path(path, false);
    if (view && view->inode.is(meta::InodeType::symlink)) co_return errno_error(ELOOP, path);
    if (!view && below_ != nullptr && view.error().code != Errc::not_found) co_return view.error();
    if (view) ref = view->ref();
    found = view || below_ == nullptr;
  }
  if (found) {
    file = co_await files_.open(options_.caller, std::move(ref), rights_of(options.access));
  }
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
  if (whole_ != nullptr) return whole_->make_buffers(count, slot_bytes);
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
  FF_CO_TRY(const auto ref, co_await ref_of(std::move(dir)));
  std::vector<io::DirEntry> entries;
  for (;;) {
    std::string after = entries.empty() ? std::string() : entries.back().name;
    FF_CO_TRY(const auto page, co_await files_.metadata().list(
                                   options_.caller, ref, std::move(after), kDiskListPage, false));
    for (const auto& entry : page.entries) entries.push_back({entry.name, kind_of(entry.kind)});
    if (page.end || page.entries.empty()) co_return entries;
  }
}

Result<std::vector<io::DirEntry>> ClusterDisk::list(const std::string& dir) {
  FF_TRY(const auto there, cluster_path(dir));
  if (!there) return local_.list(dir);
  return call<std::vector<io::DirEntry>>(dir, [&] { return list_in_cluster(*there); });
}

Task<Result<meta::InodeView>> ClusterDisk::make_in_cluster(std::string path,
                                                           meta::Namespace::CreateOptions options) {
  FF_CO_TRY(NamedEntry place, co_await entry_at(std::move(path)));
  co_return co_await files_.metadata().create(options_.caller, std::move(place.dir),
                                              std::move(place.name), std::move(options));
}

Result<void> ClusterDisk::make_dir(const std::string& path, uint32_t mode) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.make_dir(path, mode);
  const meta::Namespace::CreateOptions options{.kind = meta::InodeType::directory,
                                               .mode = mode & ~options_.umask};
  return change<meta::InodeView>(path, [&] { return make_in_cluster(*there, options); });
}

Task<Result<meta::InodeView>> ClusterDisk::remove_in_cluster(std::string path, bool directory) {
  FF_CO_TRY(NamedEntry place, co_await entry_at(std::move(path)));
  if (directory) {
    co_return co_await files_.metadata().rmdir(options_.caller, std::move(place.dir),
                                               std::move(place.name));
  }
  co_return co_await files_.metadata().unlink(options_.caller, std::move(place.dir),
                                              std::move(place.name), std::nullopt);
}

Result<void> ClusterDisk::remove(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.remove(path);
  return change<meta::InodeView>(path, [&] { return remove_in_cluster(*there, false); });
}

Result<void> ClusterDisk::remove_dir(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.remove_dir(path);
  return change<meta::InodeView>(path, [&] { return remove_in_cluster(*there, true); });
}

Task<Result<meta::InodeView>> ClusterDisk::rename_in_cluster(std::string from, std::string to) {
  FF_CO_TRY(NamedEntry first, co_await entry_at(std::move(from)));
  FF_CO_TRY(NamedEntry second, co_await entry_at(std::move(to)));
  meta::MetaClient::Rename rename{.from_dir = std::move(first.dir),
                                  .from = std::move(first.name),
                                  .to_dir = std::move(second.dir),
                                  .to = std::move(second.name)};
  co_return co_await files_.metadata().rename(options_.caller, std::move(rename));
}

Result<void> ClusterDisk::rename(const std::string& from, const std::string& to) {
  FF_TRY(const auto there, cluster_path(from, to));
  if (!there) return local_.rename(from, to);
  return change<meta::InodeView>(rename_text(from, to),
                                 [&] { return rename_in_cluster(there->first, there->second); });
}

Task<Result<meta::InodeView>> ClusterDisk::link_in_cluster(std::string from, std::string to) {
  FF_CO_TRY(const auto view, co_await lookup_path(std::move(from), false));
  FF_CO_TRY(NamedEntry place, co_await entry_at(std::move(to)));
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
  const meta::Namespace::CreateOptions options{
      .kind = meta::InodeType::symlink, .mode = kModeOfLinks, .target = target};
  return change<meta::InodeView>(path, [&] { return make_in_cluster(*there, options); });
}

Result<std::string> ClusterDisk::read_symlink(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.read_symlink(path);
  FF_TRY(auto view, call<meta::InodeView>(path, [&] { return lookup_path(*there, false); }));
  if (!view.inode.is(meta::InodeType::symlink)) return errno_error(EINVAL, path);
  return std::move(view.inode.target);
}

Task<Result<meta::InodeView>> ClusterDisk::set_mode_in_cluster(std::string path, uint32_t mode) {
  FF_CO_TRY(auto ref, co_await ref_of(std::move(path)));
  const meta::Namespace::Attributes to{.mode = mode};
  co_return co_await files_.metadata().set_attributes(options_.caller, std::move(ref), to);
}

Result<void> ClusterDisk::set_mode(const std::string& path, uint32_t mode) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.set_mode(path, mode);
  return change<meta::InodeView>(path, [&] { return set_mode_in_cluster(*there, mode); });
}

Task<Result<meta::InodeView>> ClusterDisk::set_mtime_in_cluster(std::string path,
                                                                int64_t mtime_ns) {
  FF_CO_TRY(const auto view, co_await lookup_path(std::move(path), false));
  meta::Namespace::Attributes to;
  to.times_now = mtime_ns == -1;
  if (mtime_ns != -1) to.mtime_ns = mtime_ns;
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

Task<Result<std::shared_ptr<BelowDirectory>>> ClusterDisk::beneath_in_cluster(std::string dir) {
  if (below_ != nullptr) co_return co_await below_->beneath(std::move(dir));
  co_return co_await BelowDirectory::open(files_, options_.caller, std::move(dir));
}

Result<io::Space> ClusterDisk::space(const std::string& path) {
  FF_TRY(const auto there, cluster_path(path));
  if (!there) return local_.space(path);
  FF_TRY(call<meta::InodeView>(path, [&] { return lookup_path(*there, true); }));
  FF_TRY(const auto space, call<FileSystem::Space>(path, [&] { return files_.space(); }));
  return io::Space{.total = space.total, .free = space.free};
}

Result<std::unique_ptr<io::Disk>> ClusterDisk::beneath(const std::string& dir) {
  FF_TRY(const auto there, cluster_path(dir));
  if (!there) return local_.beneath(dir);
  using Below = std::shared_ptr<BelowDirectory>;
  FF_TRY(auto below, call<Below>(dir, [&] { return beneath_in_cluster(*there); }));
  ClusterDisk& whole = whole_ != nullptr ? *whole_ : *this;
  return std::unique_ptr<io::Disk>(new ClusterDisk(whole, std::move(below)));
}

}  // namespace ff::client
