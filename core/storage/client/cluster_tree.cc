// cluster_tree.cc: resolves names to inodes; reads and writes files in whole chunks.
#include "storage/client/cluster_tree.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "storage/client/url.h"
#include "storage/client/walk.h"

namespace ff::client {

namespace {

constexpr const char* kResumePointXattr = "user.ff.part";
constexpr uint32_t kTreeListPage = 1024;
constexpr size_t kDirsMax = 4096;
constexpr uint64_t kUnitMin = kMiB;  // several small chunks per request

FileStat stat_of_inode(const meta::InodeView& view) {
  const meta::Inode& inode = view.inode;
  return {.kind = inode.kind,
          .id = inode.id,
          .size = inode.length,
          .mode = inode.mode,
          .uid = inode.uid,
          .gid = inode.gid,
          .mtime_ns = inode.mtime_ns,
          .target = inode.target,
          .ref = view.ref()};
}

class TreeFile final : public OpenFile {
 public:
  explicit TreeFile(std::shared_ptr<File> file) : file_(std::move(file)) {}

  Result<uint64_t> id() const override { return file_->inode().id; }
  uint64_t unit() const override { return std::max(kUnitMin, file_->chunk_size()); }
  Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into) override {
    return file_->read(offset, into);
  }
  // Behind the stored length there are only zeros.
  Task<Result<io::DataRange>> next_data(uint64_t offset) override {
    const uint64_t length = file_->inode().length;
    if (!stored_) {
      FF_CO_TRY(stored_, co_await file_->stored_length());
    }
    const uint64_t end = std::min(length, *stored_);
    co_return offset < end ? io::DataRange{offset, end} : io::DataRange{length, length};
  }
  Task<Result<void>> write(uint64_t offset, ByteSpan buffer, uint64_t size) override {
    return file_->write(offset, buffer.first(size));
  }
  Task<Result<void>> preallocate(uint64_t, bool) override { co_return Result<void>(); }
  bool supports_holes() const override { return true; }
  Task<Result<void>> sync() override { return file_->sync(); }
  Task<Result<void>> finish(uint64_t length) override {
    if (file_->inode().length != length) {
      FF_CO_TRY(co_await file_->truncate(length));
    }
    co_return co_await file_->sync();
  }
  Task<Result<void>> close() override { return file_->close(); }

 private:
  std::shared_ptr<File> file_;
  std::optional<uint64_t> stored_;
};

}  // namespace

std::string ClusterTree::display_path(std::string_view path) const {
  return fmt::format("ff://{}", path);
}

Task<Result<meta::InodeRef>> ClusterTree::dir_of(std::string path) {
  const std::string dir = io::parent(path);
  if (dir == "/") co_return meta::root();
  if (const auto known = dirs_.find(dir); known != dirs_.end()) co_return known->second;
  FF_CO_TRY(const auto view, co_await resolve_path(files_.metadata(), caller_, dir, true));
  if (!view.inode.is(meta::InodeType::directory)) co_return errno_error(ENOTDIR, printable(dir));
  if (dirs_.size() >= kDirsMax) dirs_.clear();
  dirs_[dir] = view.ref();
  co_return view.ref();
}

Task<Result<void>> ClusterTree::stay_below(std::string dir) {
  FF_CO_TRY(below_, co_await BelowDirectory::open(files_, caller_, std::move(dir)));
  co_return Result<void>();
}

Task<Result<meta::InodeRef>> ClusterTree::target_dir_of(std::string path) {
  if (below_ == nullptr) co_return co_await dir_of(std::move(path));
  co_return co_await below_->parent_of(std::move(path));
}

Task<Result<meta::InodeView>> ClusterTree::entry(std::string path) {
  if (below_ != nullptr) co_return co_await below_->lookup(std::move(path));
  FF_CO_TRY(auto dir, co_await dir_of(path));
  co_return co_await files_.metadata().lookup(caller_, std::move(dir), last_component(path));
}

Task<Result<std::optional<FileStat>>> ClusterTree::stat(std::string path, bool follow) {
  auto walked = co_await files_.metadata().walk(caller_, meta::root(), path, follow);
  if (!walked && walked.error().sys == ENOENT) co_return std::optional<FileStat>();
  if (!walked) co_return with_path(path, std::move(walked).error());
  if (!walked->found) co_return std::optional<FileStat>();
  co_return std::optional(stat_of_inode(*walked->found));
}

Task<Result<std::vector<FileTree::Entry>>> ClusterTree::list(std::string dir, std::string after) {
  FF_CO_TRY(const auto ref, co_await dir_of(join_path(dir, "x")));
  FF_CO_TRY(auto page, co_await files_.metadata().list(caller_, ref, after, kTreeListPage, true));
  std::vector<Entry> entries;
  for (auto& one : page.entries) {
    entries.push_back(
        {std::move(one.name), one.view ? std::optional(stat_of_inode(*one.view)) : std::nullopt});
  }
  co_return entries;
}

Task<Result<std::unique_ptr<OpenFile>>> ClusterTree::open(std::string, FileStat stat) {
  FF_CO_TRY(auto file, co_await files_.open(caller_, stat.ref, meta::kMayRead));
  co_return std::make_unique<TreeFile>(std::move(file));
}

Task<Result<std::unique_ptr<OpenFile>>> ClusterTree::create(std::string path, uint32_t mode,
                                                            bool keep) {
  FF_CO_TRY(const auto dir, co_await target_dir_of(path));
  if (!keep) {
    const auto removed = co_await remove(path);
    if (!removed && removed.error().sys != ENOENT) co_return removed.error();
  }
  meta::Namespace::CreateOptions make{.mode = mode, .exclusive = !keep, .rights = meta::kMayRead};
  FF_CO_TRY(auto file, co_await files_.create(caller_, dir, last_component(path), std::move(make)));
  co_return std::make_unique<TreeFile>(std::move(file));
}

Task<Result<void>> ClusterTree::make_dir(std::string path, uint32_t mode) {
  FF_CO_TRY(auto dir, co_await target_dir_of(path));
  meta::Namespace::CreateOptions make{.kind = meta::InodeType::directory, .mode = mode};
  FF_CO_TRY(co_await files_.metadata().create(caller_, std::move(dir), last_component(path),
                                              std::move(make)));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::make_symlink(std::string target, std::string path) {
  FF_CO_TRY(auto dir, co_await target_dir_of(path));
  meta::Namespace::CreateOptions make{
      .kind = meta::InodeType::symlink, .mode = 0777, .target = std::move(target)};
  FF_CO_TRY(co_await files_.metadata().create(caller_, std::move(dir), last_component(path),
                                              std::move(make)));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::remove(std::string path) {
  FF_CO_TRY(auto dir, co_await target_dir_of(path));
  FF_CO_TRY(co_await files_.metadata().unlink(caller_, std::move(dir), last_component(path),
                                              std::nullopt));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::rename(std::string from, std::string to) {
  FF_CO_TRY(auto from_dir, co_await target_dir_of(from));
  FF_CO_TRY(auto to_dir, co_await target_dir_of(to));
  meta::MetaClient::Rename rename{.from_dir = std::move(from_dir),
                                  .from = last_component(from),
                                  .to_dir = std::move(to_dir),
                                  .to = last_component(to)};
  FF_CO_TRY(co_await files_.metadata().rename(caller_, std::move(rename)));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::set(std::string path, Attributes attributes) {
  FF_CO_TRY(const auto view, co_await entry(path));
  meta::Namespace::Attributes to{.mode = attributes.mode,
                                 .uid = attributes.uid,
                                 .gid = attributes.gid,
                                 .mtime_ns = attributes.mtime_ns};
  // Times are set together, as the kernel does.
  if (to.mtime_ns) to.atime_ns = view.inode.atime_ns;
  FF_CO_TRY(co_await files_.metadata().set_attributes(caller_, view.ref(), to));
  co_return Result<void>();
}

Task<Result<std::string>> ClusterTree::resume_point(std::string path) {
  auto view = co_await entry(path);
  if (!view && view.error().sys == ENOENT) co_return std::string();
  if (!view) co_return std::move(view).error();
  FF_CO_TRY(const auto words,
            co_await files_.metadata().get_xattr(caller_, view->ref(), kResumePointXattr));
  co_return words.value_or("");
}

Task<Result<void>> ClusterTree::set_resume_point(std::string path, std::string words) {
  auto view = co_await entry(path);
  if (!view && words.empty() && view.error().sys == ENOENT) co_return Result<void>();
  if (!view) co_return std::move(view).error();
  std::optional<std::string> value;
  if (!words.empty()) value = std::move(words);
  const bool gone = !value;
  auto set = co_await files_.metadata().set_xattr(
      caller_, view->ref(), kResumePointXattr, std::move(value), meta::Namespace::XattrMode::any);
  if (!set && !(gone && set.error().sys == ENODATA)) co_return std::move(set).error();
  co_return Result<void>();
}

}  // namespace ff::client
