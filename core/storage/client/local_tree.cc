// local_tree.cc: FileTree on top of a Disk.
#include "storage/client/local_tree.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/owner.h"

namespace ff::client {

namespace {

constexpr uint64_t kResumePointMax = 4096;
constexpr int kLinksFollowed = 40;

FileStat stat_of_file(const io::FileInfo& info) {
  FileStat stat{.id = info.inode,
                .size = info.size,
                .mode = info.mode,
                .uid = info.uid,
                .gid = info.gid,
                .mtime_ns = info.mtime_ns};
  switch (info.kind) {
    case io::FileKind::regular: stat.kind = meta::InodeType::file; break;
    case io::FileKind::directory: stat.kind = meta::InodeType::directory; break;
    case io::FileKind::symlink: stat.kind = meta::InodeType::symlink; break;
    case io::FileKind::other: stat.kind = meta::InodeType::fifo; break;
  }
  return stat;
}

class LocalFile final : public OpenFile {
 public:
  LocalFile(std::unique_ptr<io::File> file, io::AsyncQueue& queue, uint64_t unit)
      : file_(std::move(file)), queue_(queue), unit_(unit) {}

  Result<uint64_t> id() const override {
    FF_TRY(const auto info, file_->info());
    return info.inode;
  }
  uint64_t unit() const override { return unit_; }

  Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into) override {
    // Cached data is the fastest. After a miss, the next reads skip the cache lookup.
    if (uncached_ == 0) {
      FF_CO_TRY(const bool there, file_->read_cached(into, offset));
      if (there) co_return uint64_t{into.size()};
      uncached_ = kUncached;
    }
    uncached_--;
    FF_CO_TRY(const size_t got, co_await queue_.read(*file_, into, offset));
    co_return uint64_t{got};
  }

  Task<Result<io::DataRange>> next_data(uint64_t offset) override {
    co_return file_->next_data(offset);
  }

  Task<Result<void>> write(uint64_t offset, ByteSpan buffer, uint64_t size) override {
    uncached_ = UINT64_MAX;  // verification must read the disk
    uint64_t padded = size;
    if (file_->direct()) {
      padded = align_up(size, io::kDirectAlign);
      std::ranges::fill(buffer.subspan(size, padded - size), std::byte{0});
    }
    co_return co_await queue_.write(*file_, buffer.first(padded), offset);
  }

  // The file system serializes writes that extend a file or allocate space.
  Task<Result<void>> preallocate(uint64_t size, bool all) override {
    if (all) FF_CO_TRY(file_->reserve(0, size));
    co_return file_->truncate(size);
  }
  bool supports_holes() const override { return true; }
  Task<Result<void>> sync() override { co_return co_await queue_.sync(*file_); }
  Task<Result<void>> finish(uint64_t length) override {
    // The last write was padded to whole pages.
    FF_CO_TRY(file_->truncate(length));
    co_return co_await queue_.sync(*file_);
  }
  Task<Result<void>> close() override { co_return Result<void>(); }

 private:
  static constexpr uint64_t kUncached = 64;

  std::unique_ptr<io::File> file_;
  io::AsyncQueue& queue_;
  const uint64_t unit_;
  uint64_t uncached_ = 0;  // reads that skip the cache lookup
};

std::string resume_point_path(const std::string& path) { return path + ".note"; }

}  // namespace

Task<Result<std::optional<FileStat>>> LocalTree::stat(std::string path, bool follow) {
  for (int links = 0; links <= kLinksFollowed; links++) {
    auto info = disk_.info(path);
    if (!info && info.error().sys == ENOENT) co_return std::optional<FileStat>();
    if (!info) co_return std::move(info).error();
    FileStat stat = stat_of_file(*info);
    if (!stat.is(meta::InodeType::symlink)) co_return std::optional(std::move(stat));
    FF_CO_TRY(stat.target, disk_.read_symlink(path));
    if (!follow) co_return std::optional(std::move(stat));
    path = stat.target.starts_with('/') ? stat.target : io::join(io::parent(path), stat.target);
  }
  co_return errno_error(ELOOP, printable(path));
}

Task<Result<std::vector<FileTree::Entry>>> LocalTree::list(std::string dir, std::string after) {
  std::vector<Entry> entries;
  if (!after.empty()) co_return entries;
  FF_CO_TRY(auto listed, disk_.list(dir));
  for (io::DirEntry& one : listed) entries.push_back({std::move(one.name), std::nullopt});
  co_return entries;
}

Task<Result<void>> LocalTree::stay_below(std::string dir) {
  FF_CO_TRY(below_, io::BeneathDisk::open(std::move(dir)));
  co_return Result<void>();
}

Task<Result<std::unique_ptr<OpenFile>>> LocalTree::open(std::string path, FileStat) {
  FF_CO_TRY(auto file, disk_.open(path, {.access = io::AccessMode::read, .direct = true}));
  co_return std::make_unique<LocalFile>(std::move(file), queue_, unit_);
}

Task<Result<std::unique_ptr<OpenFile>>> LocalTree::create(std::string path, uint32_t mode,
                                                          bool keep) {
  if (!keep) {
    // Never follow a symbolic link at this name.
    const auto removed = target().remove(path);
    if (!removed && removed.error().sys != ENOENT) co_return removed.error();
  }
  FF_CO_TRY(auto file, target().open(path, {.access = io::AccessMode::read_write,
                                            .create = true,
                                            .exclusive = !keep,
                                            .direct = true,
                                            .no_follow = true,
                                            .mode = mode}));
  co_return std::make_unique<LocalFile>(std::move(file), queue_, unit_);
}

Task<Result<void>> LocalTree::make_dir(std::string path, uint32_t mode) {
  FF_CO_TRY(target().make_dir(path, mode));
  unsynced_dirs_.insert(io::parent(path));
  co_return Result<void>();
}

Task<Result<void>> LocalTree::make_symlink(std::string target, std::string path) {
  FF_CO_TRY(this->target().make_symlink(target, path));
  unsynced_dirs_.insert(io::parent(path));
  co_return Result<void>();
}

Task<Result<void>> LocalTree::remove(std::string path) { co_return target().remove(path); }

Task<Result<void>> LocalTree::rename(std::string from, std::string to) {
  FF_CO_TRY(target().rename(from, to));
  unsynced_dirs_.insert(io::parent(to));
  co_return Result<void>();
}

Task<Result<void>> LocalTree::sync_names() {
  for (const std::string& dir : std::exchange(unsynced_dirs_, {})) {
    FF_CO_TRY(target().sync_dir(dir));
  }
  co_return Result<void>();
}

Task<Result<void>> LocalTree::set(std::string path, Attributes attributes) {
  if (attributes.uid || attributes.gid) {
    FF_CO_TRY(below_ != nullptr ? below_->set_owner(path, attributes.uid, attributes.gid)
                                : io::set_owner(path, attributes.uid, attributes.gid));
  }
  if (attributes.mode) FF_CO_TRY(target().set_mode(path, *attributes.mode));
  if (attributes.mtime_ns) FF_CO_TRY(target().set_mtime(path, *attributes.mtime_ns));
  co_return Result<void>();
}

Task<Result<std::string>> LocalTree::resume_point(std::string path) {
  auto words = io::read_file(target(), resume_point_path(path), kResumePointMax);
  if (!words && words.error().sys == ENOENT) co_return std::string();
  co_return words;
}

Task<Result<void>> LocalTree::set_resume_point(std::string path, std::string words) {
  if (!words.empty()) co_return io::replace_file(target(), resume_point_path(path), words, "ff");
  const auto removed = target().remove(resume_point_path(path));
  if (!removed && removed.error().sys != ENOENT) co_return removed.error();
  co_return Result<void>();
}

}  // namespace ff::client
