// cluster_tree.cc: names to inodes, and files to reads and writes of whole chunks.
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

constexpr const char* kNote = "user.ff.part";
constexpr uint32_t kTreeListPage = 1024;
constexpr size_t kDirsMax = 4096;
constexpr uint64_t kUnitMin = kMiB;  // small chunks go several at once

Node node_of_inode(const meta::Seen& seen) {
  const meta::Inode& inode = seen.inode;
  return {.kind = inode.kind,
          .id = inode.id,
          .size = inode.length,
          .mode = inode.mode,
          .uid = inode.uid,
          .gid = inode.gid,
          .mtime_ns = inode.mtime_ns,
          .target = inode.target,
          .ref = seen.ref()};
}

class TreeFile final : public OpenFile {
 public:
  explicit TreeFile(std::shared_ptr<File> file) : file_(std::move(file)) {}

  Result<uint64_t> id() const override { return file_->inode().id; }
  uint64_t unit() const override { return std::max(kUnitMin, file_->chunk_size()); }
  Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into) override {
    return file_->read(offset, into);
  }
  // Where storage ends: there is nothing but zeros behind it.
  Task<Result<io::DataRange>> next_data(uint64_t offset) override {
    const uint64_t length = file_->inode().length;
    if (!stored_) {
      auto asking = file_->stored_end();
      FF_CO_TRY(stored_, co_await std::move(asking));
    }
    const uint64_t end = std::min(length, *stored_);
    co_return offset < end ? io::DataRange{offset, end} : io::DataRange{length, length};
  }
  Task<Result<void>> write(uint64_t offset, ByteSpan buffer, uint64_t size) override {
    return file_->write(offset, buffer.first(size));
  }
  Task<Result<void>> prepare(uint64_t, bool) override { co_return Result<void>(); }
  bool keeps_holes() const override { return true; }
  Task<Result<void>> sync() override { return file_->sync(); }
  Task<Result<void>> finish(uint64_t length) override {
    if (file_->inode().length != length) {
      auto cutting = file_->truncate(length);
      FF_CO_TRY(co_await std::move(cutting));
    }
    auto syncing = file_->sync();
    co_return co_await std::move(syncing);
  }
  Task<Result<void>> close() override { return file_->close(); }

 private:
  std::shared_ptr<File> file_;
  std::optional<uint64_t> stored_;
};

}  // namespace

std::string ClusterTree::shown(std::string_view path) const { return fmt::format("ff://{}", path); }

Task<Result<meta::Ref>> ClusterTree::dir_of(std::string path) {
  const std::string dir = io::parent(path);
  if (dir == "/") co_return meta::root();
  if (const auto known = dirs_.find(dir); known != dirs_.end()) co_return known->second;
  auto finding = find(files_.names(), caller_, dir, true);
  FF_CO_TRY(const auto seen, co_await std::move(finding));
  if (!seen.inode.is(meta::Kind::directory)) co_return errno_error(ENOTDIR, printable(dir));
  if (dirs_.size() >= kDirsMax) dirs_.clear();
  dirs_[dir] = seen.ref();
  co_return seen.ref();
}

Task<Result<meta::Seen>> ClusterTree::entry(std::string path) {
  auto finding = dir_of(path);
  FF_CO_TRY(auto dir, co_await std::move(finding));
  auto looking = files_.names().lookup(caller_, std::move(dir), last_name(path));
  co_return co_await std::move(looking);
}

Task<Result<std::optional<Node>>> ClusterTree::look(std::string path, bool follow) {
  auto walking = files_.names().walk(caller_, meta::root(), path, follow);
  auto walked = co_await std::move(walking);
  if (!walked && walked.error().sys == ENOENT) co_return std::optional<Node>();
  if (!walked) co_return at_path(path, std::move(walked).error());
  if (!walked->found) co_return std::optional<Node>();
  co_return std::optional(node_of_inode(*walked->found));
}

Task<Result<std::vector<Tree::Entry>>> ClusterTree::list(std::string dir, std::string after) {
  auto finding = dir_of(below(dir, "x"));
  FF_CO_TRY(const auto ref, co_await std::move(finding));
  auto listing = files_.names().list(caller_, ref, after, kTreeListPage, true);
  FF_CO_TRY(auto page, co_await std::move(listing));
  std::vector<Entry> entries;
  for (auto& one : page.entries) {
    entries.push_back(
        {std::move(one.name), one.seen ? std::optional(node_of_inode(*one.seen)) : std::nullopt});
  }
  co_return entries;
}

Task<Result<std::unique_ptr<OpenFile>>> ClusterTree::open(std::string, Node node) {
  auto opening = files_.open(caller_, node.ref, meta::kMayRead);
  FF_CO_TRY(auto file, co_await std::move(opening));
  co_return std::make_unique<TreeFile>(std::move(file));
}

Task<Result<std::unique_ptr<OpenFile>>> ClusterTree::create(std::string path, uint32_t mode,
                                                            bool keep) {
  auto finding = dir_of(path);
  FF_CO_TRY(const auto dir, co_await std::move(finding));
  if (!keep) {
    auto removing = remove(path);
    const auto removed = co_await std::move(removing);
    if (!removed && removed.error().sys != ENOENT) co_return removed.error();
  }
  meta::Names::Make make{.mode = mode, .exclusive = !keep, .rights = meta::kMayRead};
  auto making = files_.create(caller_, dir, last_name(path), std::move(make));
  FF_CO_TRY(auto file, co_await std::move(making));
  co_return std::make_unique<TreeFile>(std::move(file));
}

Task<Result<void>> ClusterTree::make_dir(std::string path, uint32_t mode) {
  auto finding = dir_of(path);
  FF_CO_TRY(auto dir, co_await std::move(finding));
  meta::Names::Make make{.kind = meta::Kind::directory, .mode = mode};
  auto making = files_.names().make(caller_, std::move(dir), last_name(path), std::move(make));
  FF_CO_TRY(co_await std::move(making));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::make_link(std::string target, std::string path) {
  auto finding = dir_of(path);
  FF_CO_TRY(auto dir, co_await std::move(finding));
  meta::Names::Make make{.kind = meta::Kind::symlink, .mode = 0777, .target = std::move(target)};
  auto making = files_.names().make(caller_, std::move(dir), last_name(path), std::move(make));
  FF_CO_TRY(co_await std::move(making));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::remove(std::string path) {
  auto finding = dir_of(path);
  FF_CO_TRY(auto dir, co_await std::move(finding));
  auto removing = files_.names().unlink(caller_, std::move(dir), last_name(path), std::nullopt);
  FF_CO_TRY(co_await std::move(removing));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::rename(std::string from, std::string to) {
  auto finding = dir_of(from);
  FF_CO_TRY(auto from_dir, co_await std::move(finding));
  auto finding_to = dir_of(to);
  FF_CO_TRY(auto to_dir, co_await std::move(finding_to));
  meta::MetaClient::Rename rename{.from_dir = std::move(from_dir),
                                  .from = last_name(from),
                                  .to_dir = std::move(to_dir),
                                  .to = last_name(to)};
  auto renaming = files_.names().rename(caller_, std::move(rename));
  FF_CO_TRY(co_await std::move(renaming));
  co_return Result<void>();
}

Task<Result<void>> ClusterTree::set(std::string path, Attributes attributes) {
  auto finding = entry(path);
  FF_CO_TRY(const auto seen, co_await std::move(finding));
  meta::Names::Attributes to{.mode = attributes.mode,
                             .uid = attributes.uid,
                             .gid = attributes.gid,
                             .mtime_ns = attributes.mtime_ns};
  // Times are set together, as the kernel does.
  if (to.mtime_ns) to.atime_ns = seen.inode.atime_ns;
  auto setting = files_.names().set_attributes(caller_, seen.ref(), to);
  FF_CO_TRY(co_await std::move(setting));
  co_return Result<void>();
}

Task<Result<std::string>> ClusterTree::note(std::string path) {
  auto finding = entry(path);
  auto seen = co_await std::move(finding);
  if (!seen && seen.error().sys == ENOENT) co_return std::string();
  if (!seen) co_return std::move(seen).error();
  auto getting = files_.names().get_xattr(caller_, seen->ref(), kNote);
  FF_CO_TRY(const auto words, co_await std::move(getting));
  co_return words.value_or("");
}

Task<Result<void>> ClusterTree::set_note(std::string path, std::string words) {
  auto finding = entry(path);
  auto seen = co_await std::move(finding);
  if (!seen && words.empty() && seen.error().sys == ENOENT) co_return Result<void>();
  if (!seen) co_return std::move(seen).error();
  std::optional<std::string> value;
  if (!words.empty()) value = std::move(words);
  const bool gone = !value;
  auto setting = files_.names().set_xattr(caller_, seen->ref(), kNote, std::move(value),
                                          meta::Names::XattrMode::any);
  auto set = co_await std::move(setting);
  if (!set && !(gone && set.error().sys == ENODATA)) co_return std::move(set).error();
  co_return Result<void>();
}

}  // namespace ff::client
