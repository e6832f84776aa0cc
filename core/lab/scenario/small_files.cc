// small_files.cc: the expected contents, and when a reader may find something else.
#include "lab/scenario/small_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/rng.h"

namespace ff::scenario {

namespace {

// How long after a server has ended its lease a paused or separated program may learn it.
constexpr int64_t kLearnedNs = 60 * kSecond;

}  // namespace

std::string SmallFiles::content(meta::InodeId inode, uint64_t size) {
  SeededRng rng(inode);
  std::string bytes;
  while (bytes.size() < size) append_le(bytes, rng.next() | 1);
  bytes.resize(size);
  return bytes;
}

void SmallFiles::on_close(meta::InodeId inode, size_t program, uint64_t size, int64_t created_ns,
                          int64_t now_ns) {
  const auto lost = lost_ns_.find(program);
  const int64_t last_ns = std::max(lost_all_ns_, lost == lost_ns_.end() ? INT64_MIN : lost->second);
  files_[inode] = {.program = program,
                   .size = size,
                   .closed_ns = now_ns,
                   .unsure = last_ns >= created_ns,
                   .may_have_holes = lost_all_ns_ >= created_ns};
}

void SmallFiles::on_sync(meta::InodeId inode, size_t program) {
  const auto found = files_.find(inode);
  if (found == files_.end() || found->second.program != program) return;
  found->second.synced = !found->second.unsure;
}

void SmallFiles::lose_where(const std::function<bool(const File&)>& lost, int64_t now_ns) {
  for (auto& [inode, file] : files_) {
    if (file.synced || !lost(file)) continue;
    if (!file.wrong.empty() && !file.unsure && now_ns - file.wrong_ns > kLearnedNs) {
      proven_ = file.wrong;
    }
    file.unsure = true;
  }
}

void SmallFiles::lose(size_t program, int64_t now_ns) {
  lost_ns_[program] = now_ns;
  lose_where([program](const File& file) { return file.program == program; }, now_ns);
}

void SmallFiles::lose_file(meta::InodeId inode) {
  const auto found = files_.find(inode);
  if (found == files_.end() || found->second.synced) return;
  found->second.unsure = found->second.may_have_holes = true;
}

void SmallFiles::lose_all(int64_t now_ns) {
  lost_all_ns_ = now_ns;
  lose_where([](const File&) { return true; }, now_ns);
  for (auto& [inode, file] : files_) file.may_have_holes |= !file.synced;
}

std::optional<uint64_t> SmallFiles::expected_size(meta::InodeId inode, int64_t began_ns) const {
  const auto found = files_.find(inode);
  const bool known = found != files_.end() && !found->second.unsure;
  if (!known || found->second.closed_ns > began_ns) return std::nullopt;
  return found->second.size;
}

void SmallFiles::on_read(meta::InodeId inode, const std::string& found, const std::string& reader,
                         int64_t now_ns) {
  reads_++;
  File& file = files_.at(inode);
  const std::string right = content(inode, file.size);
  if (found == right || file.unsure || file.has_holes || !counts_) return;
  const auto differ = std::ranges::mismatch(found, right).in1 - found.begin();
  const bool has_holes = static_cast<size_t>(differ) < found.size();
  if (!file.wrong.empty() && !has_holes) return;
  file.has_holes = has_holes;
  file.wrong_ns = now_ns;
  file.wrong = fmt::format(
      "{} reads {} bytes of inode {} at {:.6f} s; program{} had written {} bytes and closed it at "
      "{:.6f} s{}; they differ from byte {} on",
      reader, found.size(), inode, static_cast<double>(now_ns) / kSecond, file.program, file.size,
      static_cast<double>(file.closed_ns) / kSecond, file.synced ? ", and synced it" : "", differ);
}

std::string SmallFiles::contradiction() const {
  if (!proven_.empty()) return proven_;
  for (const auto& [inode, file] : files_) {
    if (!file.wrong.empty() && !file.unsure) return file.wrong;
    if (file.has_holes && !file.may_have_holes) return file.wrong;
  }
  return {};
}

}  // namespace ff::scenario
