// A file that is being restored: several workers write its bytes in any order, mostly at unaligned
// offsets (a safetensors header shifts everything after it).
//
// With direct I/O, whole blocks are written from the workers' memory; the unaligned ends of
// adjacent pieces are collected in edge blocks, which are written when full. Without it (tmpfs)
// every piece is a plain write. Zeros are never written: the file starts as one hole.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "platform/io/disk.h"

namespace ff::checkpoint {

class OutFile {
 public:
  struct Spec {
    std::string path;
    uint64_t size = 0;
    uint32_t mode = 0644;
    std::optional<int64_t> mtime_ns;
    bool sparse = false;  // it has zeros: do not reserve space for all of it
    // Small pieces come in any order: no direct I/O, which would keep an edge block in memory for
    // each of them.
    bool scattered = false;
  };
  // Creates the file exclusively, never through a symbolic link. `disk` outlives it. A set-user-ID
  // or set-group-ID bit of the mode is not restored, as the owner is not.
  static Result<std::shared_ptr<OutFile>> create(io::Disk& disk, Spec spec);

  // The same for an open file that is on no disk (io/memory_file.h): it is not synced, gets no
  // mode, and zeros are written.
  static std::shared_ptr<OutFile> wrap(std::unique_ptr<io::File> file);

  // A reference for each job that still writes to it, and one while the planner may add jobs.
  // Releasing the last one completes the file: sync, mode, time.
  void add_writer() { users_++; }
  Result<void> remove_writer();

  // The offset within a block at which the data must be in memory for direct I/O.
  uint64_t alignment_offset(uint64_t offset) const {
    return direct() ? offset % io::kDirectAlign : 0;
  }
  // An edge block, to be written to file() at `offset`.
  struct alignas(io::kDirectAlign) Block {
    std::array<std::byte, io::kDirectAlign> bytes{};
  };
  struct FullEdge {
    uint64_t offset = 0;
    std::unique_ptr<Block> block;
  };
  // Copies the unaligned ends of `bytes` into edge blocks. Returns the whole blocks between them,
  // which the caller writes to file() at body_offset(offset), and in `full` the edge blocks that
  // are complete now.
  ByteView split_edges(uint64_t offset, ByteView bytes, std::vector<FullEdge>& full);
  uint64_t body_offset(uint64_t offset) const {
    return direct() ? align_up(offset, io::kDirectAlign) : offset;
  }
  // Records that [offset, offset + length) is zero.
  Result<void> add_zeros(uint64_t offset, uint64_t length);
  // Writes unaligned bytes synchronously.
  Result<void> write(uint64_t offset, ByteView bytes);

  io::File& file() { return *file_; }
  bool direct() const { return direct_; }
  const std::string& path() const { return spec_.path; }

 private:
  struct Edge {
    std::unique_ptr<Block> block;
    uint64_t filled = 0;  // bytes so far
  };

  OutFile(io::Disk* disk, Spec spec, std::unique_ptr<io::File> file);
  void add_edge(uint64_t offset, ByteView bytes, uint64_t zeros, std::vector<FullEdge>& full);
  Result<void> write_edges(const std::vector<FullEdge>& full);
  Result<void> complete();

  io::Disk* disk_;  // null: the file is on none
  Spec spec_;
  std::unique_ptr<io::File> file_;
  bool direct_;
  std::atomic<uint64_t> users_{0};
  std::mutex mutex_;
  std::map<uint64_t, Edge> edges_;  // by offset of their block
};

}  // namespace ff::checkpoint
