// A file being restored: its bytes come in any order from several workers, at offsets that are
// seldom aligned (a safetensors header shifts everything behind it).
//
// Where the disk offers direct I/O, whole blocks are written from the workers' memory and the
// ragged ends of neighbouring pieces meet in small edge blocks, written when full. Elsewhere
// (tmpfs) every piece is a plain write. Zeros are never written: the file starts as one hole.
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
#include "training/checkpoint/format/context.h"

namespace ff::checkpoint {

class OutFile {
 public:
  struct Spec {
    std::string path;
    uint64_t size = 0;
    uint32_t mode = 0644;
    std::optional<int64_t> mtime_ns;
    bool sparse = false;  // has zeros: do not reserve space for all of it
  };
  // Creates the file exclusively, never through a symbolic link.
  static Result<std::shared_ptr<OutFile>> create(Context& context, Spec spec);

  // The same over a file that is open already, nowhere on a disk (io/memory_file.h): it is neither
  // synced nor given modes, and zeros are written.
  static std::shared_ptr<OutFile> over(Context& context, std::unique_ptr<io::File> file);

  // Jobs that still write to it, plus one while the planner may add some. The last one to leave
  // completes the file: sync, mode, time.
  void enter() { users_++; }
  Result<void> leave();

  // The offset, within a block, that memory must have so that body() can be written from it.
  uint64_t phase(uint64_t offset) const { return direct() ? offset % io::kDirectAlign : 0; }
  // A block that pieces met in, to be written to file() at `offset`.
  struct alignas(io::kDirectAlign) Block {
    std::array<std::byte, io::kDirectAlign> bytes{};
  };
  struct FullEdge {
    uint64_t offset = 0;
    std::unique_ptr<Block> block;
  };
  // Takes the ragged ends of `bytes` and returns the whole blocks between them, for the caller to
  // write to file() at body_offset(offset), and in `full` the edge blocks that this completed.
  ByteView take_edges(uint64_t offset, ByteView bytes, std::vector<FullEdge>& full);
  uint64_t body_offset(uint64_t offset) const {
    return direct() ? align_up(offset, io::kDirectAlign) : offset;
  }
  // Notes that [offset, offset + length) is zero.
  Result<void> add_zeros(uint64_t offset, uint64_t length);
  // Writes bytes from anywhere; waits for them.
  Result<void> write(uint64_t offset, ByteView bytes);

  io::File& file() { return *file_; }
  bool direct() const { return direct_; }
  const std::string& path() const { return spec_.path; }

 private:
  struct Edge {
    std::unique_ptr<Block> block;
    uint64_t filled = 0;  // bytes given so far
  };

  OutFile(Context& context, Spec spec, std::unique_ptr<io::File> file);
  void add_edge(uint64_t offset, ByteView bytes, uint64_t zeros, std::vector<FullEdge>& full);
  Result<void> write_edges(const std::vector<FullEdge>& full);
  Result<void> complete();

  Context& context_;
  Spec spec_;
  std::unique_ptr<io::File> file_;
  bool direct_;
  bool on_disk_ = true;
  std::atomic<uint64_t> users_{0};
  std::mutex mutex_;
  std::map<uint64_t, Edge> edges_;  // by offset of their block
};

}  // namespace ff::checkpoint
