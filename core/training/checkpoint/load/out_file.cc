// out_file.cc: restored files, written in any order.
#include "training/checkpoint/load/out_file.h"

#include <algorithm>
#include <cstring>

#include "platform/io/buffers.h"

namespace ff::checkpoint {
namespace {

constexpr uint64_t kBlock = io::kDirectAlign;
constexpr uint32_t kSetIdBits = 06000;
constexpr uint64_t kBounceBytes = kMiB;  // of aligned memory for bytes at unaligned addresses

}  // namespace

OutFile::OutFile(io::Disk* disk, Spec spec, std::unique_ptr<io::File> file)
    : disk_(disk), spec_(std::move(spec)), file_(std::move(file)), direct_(file_->direct()) {}

Result<std::shared_ptr<OutFile>> OutFile::create(io::Disk& disk, Spec spec) {
  FF_TRY(auto file, disk.open(spec.path, {.access = io::AccessMode::write,
                                          .create = true,
                                          .exclusive = true,
                                          .direct = spec.size >= kBlock && !spec.scattered,
                                          .no_follow = true,
                                          .mode = 0600}));
  if (spec.size > 0) {
    if (!spec.sparse) FF_TRY(file->reserve(0, spec.size));
    FF_TRY(file->truncate(spec.size));
  }
  return std::shared_ptr<OutFile>(new OutFile(&disk, std::move(spec), std::move(file)));
}

std::shared_ptr<OutFile> OutFile::wrap(std::unique_ptr<io::File> file) {
  Spec spec{.path = file->path(), .mtime_ns = {}};
  std::shared_ptr<OutFile> out(new OutFile(nullptr, std::move(spec), std::move(file)));
  FF_CHECK(!out->direct_);
  return out;
}

Result<void> OutFile::remove_writer() {
  if (users_.fetch_sub(1) != 1) return {};
  return complete();
}

Result<void> OutFile::complete() {
  if (disk_ == nullptr) {
    file_.reset();
    return {};
  }
  for (auto& [offset, edge] : edges_) FF_TRY(file_->write_at(edge.block->bytes, offset));
  edges_.clear();
  FF_TRY(file_->truncate(spec_.size));  // direct I/O wrote the whole last block
  FF_TRY(file_->sync());
  FF_TRY(disk_->set_mode(spec_.path, spec_.mode & ~kSetIdBits));
  if (spec_.mtime_ns) FF_TRY(disk_->set_mtime(spec_.path, *spec_.mtime_ns));
  file_.reset();
  return {};
}

// Adds bytes (or `zeros` zero bytes) to their block.
void OutFile::add_edge(uint64_t offset, ByteView bytes, uint64_t zeros,
                       std::vector<FullEdge>& full) {
  const uint64_t block = align_down(offset, kBlock);
  const std::lock_guard lock(mutex_);
  auto it = edges_.find(block);
  if (it == edges_.end()) it = edges_.emplace(block, Edge{std::make_unique<Block>(), 0}).first;
  Edge& edge = it->second;
  std::copy(bytes.begin(), bytes.end(), edge.block->bytes.begin() + (offset - block));
  edge.filled += bytes.size() + zeros;
  if (edge.filled < std::min(kBlock, spec_.size - block)) return;
  full.push_back({block, std::move(edge.block)});
  edges_.erase(it);
}

Result<void> OutFile::write_edges(const std::vector<FullEdge>& full) {
  for (const auto& edge : full) FF_TRY(file_->write_at(edge.block->bytes, edge.offset));
  return {};
}

ByteView OutFile::split_edges(uint64_t offset, ByteView bytes, std::vector<FullEdge>& full) {
  if (!direct_) return bytes;
  const uint64_t end = offset + bytes.size();
  const uint64_t body_begin = std::min(align_up(offset, kBlock), end);
  if (offset < body_begin) add_edge(offset, bytes.first(body_begin - offset), 0, full);
  const uint64_t body_end = std::max(align_down(end, kBlock), body_begin);
  if (body_end < end) add_edge(body_end, bytes.subspan(body_end - offset), 0, full);
  return bytes.subspan(body_begin - offset, body_end - body_begin);
}

Result<void> OutFile::add_zeros(uint64_t offset, uint64_t length) {
  if (disk_ == nullptr) return file_->punch_hole(offset, length);
  if (!direct_) return {};
  std::vector<FullEdge> full;
  const uint64_t end = offset + length;
  const uint64_t body_begin = std::min(align_up(offset, kBlock), end);
  if (offset < body_begin) add_edge(offset, {}, body_begin - offset, full);
  const uint64_t body_end = std::max(align_down(end, kBlock), body_begin);
  if (body_end < end) add_edge(body_end, {}, end - body_end, full);
  return write_edges(full);
}

Result<void> OutFile::write(uint64_t offset, ByteView bytes) {
  std::vector<FullEdge> full;
  const ByteView body = split_edges(offset, bytes, full);
  FF_TRY(write_edges(full));
  if (body.empty()) return {};
  uint64_t at = body_offset(offset);
  if (!direct_) return file_->write_at(body, at);
  FF_TRY(auto bounce, io::Buffers::make(1, std::min(kBounceBytes, align_up(body.size(), kBlock))));
  for (size_t done = 0; done < body.size();) {
    const size_t part = std::min(body.size() - done, bounce.all().size());
    std::memcpy(bounce.all().data(), body.data() + done, part);
    FF_TRY(file_->write_at(bounce.all().first(part), at + done));
    done += part;
  }
  return {};
}

}  // namespace ff::checkpoint
