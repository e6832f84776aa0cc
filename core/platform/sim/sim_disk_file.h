// Inodes, open files and queues of the simulated disk; sim_disk.h describes their faults.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/loop.h"
#include "platform/io/disk.h"
#include "platform/sim/sim_disk.h"

namespace ff::sim {

// An error for which is_crash() is true.
Error crash_error(const std::string& path);

// A file, directory or symbolic link.
struct SimInode {
  uint64_t inode = 0;
  io::FileKind kind = io::FileKind::regular;
  uint32_t mode = 0;
  int64_t mtime_ns = 0;
  uint64_t links = 0;  // live entries
  uint64_t opens = 0;  // live handles

  // Regular files.
  SimContent content;
  PageSet reserved;              // preallocated pages
  uint64_t blocks = 0;           // allocated pages: reserved or stored
  const void* locked = nullptr;  // the handle that holds the lock

  // Directories: current and durable entries.
  std::map<std::string, std::shared_ptr<SimInode>> entries;
  std::map<std::string, std::shared_ptr<SimInode>> durable_entries;

  std::string target;  // symbolic links
};

class SimFile final : public io::File {
 public:
  SimFile(SimDisk& disk, std::shared_ptr<SimInode> node, std::string path,
          const io::OpenOptions& options);
  ~SimFile() override;
  SimFile(const SimFile&) = delete;
  SimFile& operator=(const SimFile&) = delete;

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override;
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t offset, uint64_t length) override;
  Result<void> punch_hole(uint64_t offset, uint64_t length) override;
  Result<io::DataRange> next_data(uint64_t offset) override;
  Result<io::FileInfo> info() override;
  Result<bool> try_lock() override;
  bool direct() const override { return direct_; }

 private:
  friend class SimDisk;
  friend class SimQueue;
  bool alive() const;
  // The fault of an operation, if any, or `err` if the handle's access mode does not allow it.
  Result<void> inject_fault(SimOp kind, bool mutates, bool allowed, int err) const;
  void shrink(uint64_t size);
  void release_pages();
  // Writes until the disk is full; returns the number of bytes written.
  size_t store(ByteView from, uint64_t offset);

  SimDisk& disk_;
  const std::shared_ptr<SimInode> node_;
  const io::AccessMode access_;
  const bool direct_;
  const uint64_t handle_epoch_;
};

class SimQueue final : public io::IoQueue {
 public:
  SimQueue(SimDisk& disk, const io::QueueOptions& options);
  ~SimQueue() override;

  void read(io::File& file, ByteSpan into, uint64_t offset, Done done) override;
  void write(io::File& file, ByteView from, uint64_t offset, Done done) override;
  void sync(io::File& file, Done done) override;
  void run() override;
  void poll() override;
  size_t in_flight() const override { return pending_.size(); }
  size_t depth() const override { return depth_; }
  void register_buffers(std::span<const ByteSpan> spans) override;

  // Crash: each write in flight is applied (unsynced) or dropped at random.
  void apply_in_flight();

 private:
  struct Op {
    SimOp kind = SimOp::read;
    SimFile* file = nullptr;
    ByteSpan into = {};  // reads
    ByteView from = {};  // writes
    uint64_t offset = 0;
    Done done = {};
  };
  // An operation in flight. On a loop it is executed when its timer fires, and completes in the
  // loop's next turn: pausing the process does not delay its execution.
  struct InflightOp final : Runnable {
    InflightOp(SimQueue& owner, Op operation) : queue(owner), op(std::move(operation)) {}
    void on_wake() override;
    SimQueue& queue;
    Op op;
    std::optional<Timer> timer;
    std::optional<Result<size_t>> result;
  };
  void start(io::File& file, Op op);
  int64_t delay_ns();
  void finish_some(size_t count);
  void finish(InflightOp& flight);
  static Result<size_t> perform(const Op& op);

  SimDisk& disk_;
  const size_t depth_;
  Loop* const loop_;  // may be null
  bool registered_ = false;
  std::vector<std::unique_ptr<InflightOp>> pending_;
};

}  // namespace ff::sim
