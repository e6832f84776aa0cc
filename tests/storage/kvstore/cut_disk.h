// A disk that a process reaches over a network, which can be cut: then names cannot be reached, and
// reads and writes of open files stand still; they go on when the network is whole again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/io/disk.h"

namespace ff::kvstore {

class CutDisk final : public io::Disk {
 public:
  explicit CutDisk(io::Disk& below) : below_(below) {}

  void cut() { cut_ = true; }
  void heal() {
    cut_ = false;
    for (Queue* const queue : queues_) queue->go_on();
  }
  // Opening these files fails, as where the rights of the process do not suffice.
  std::string refused_prefix = {};

  Result<std::unique_ptr<io::File>> open(const std::string& path,
                                         io::OpenOptions options) override {
    FF_TRY(reach(path));
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!refused_prefix.empty() && name.starts_with(refused_prefix)) {
      return fail(Errc::refused, "{}: permission denied", path);
    }
    return below_.open(path, options);
  }
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override {
    return std::make_unique<Queue>(*this, below_.make_queue(options));
  }
  Result<io::FileInfo> info(const std::string& path) override {
    FF_TRY(reach(path));
    return below_.info(path);
  }
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override {
    FF_TRY(reach(dir));
    return below_.list(dir);
  }
  Result<void> make_dir(const std::string& path, uint32_t mode) override {
    FF_TRY(reach(path));
    return below_.make_dir(path, mode);
  }
  Result<void> remove(const std::string& path) override {
    FF_TRY(reach(path));
    return below_.remove(path);
  }
  Result<void> remove_dir(const std::string& path) override {
    FF_TRY(reach(path));
    return below_.remove_dir(path);
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    FF_TRY(reach(from));
    return below_.rename(from, to);
  }
  Result<void> link(const std::string& from, const std::string& to) override {
    FF_TRY(reach(from));
    return below_.link(from, to);
  }
  Result<void> make_symlink(const std::string& target, const std::string& path) override {
    FF_TRY(reach(path));
    return below_.make_symlink(target, path);
  }
  Result<std::string> read_symlink(const std::string& path) override {
    FF_TRY(reach(path));
    return below_.read_symlink(path);
  }
  Result<void> set_mode(const std::string& path, uint32_t mode) override {
    FF_TRY(reach(path));
    return below_.set_mode(path, mode);
  }
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override {
    FF_TRY(reach(path));
    return below_.set_mtime(path, mtime_ns);
  }
  Result<void> sync_dir(const std::string& dir) override {
    FF_TRY(reach(dir));
    return below_.sync_dir(dir);
  }
  Result<io::Space> space(const std::string& path) override {
    FF_TRY(reach(path));
    return below_.space(path);
  }
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override {
    FF_TRY(reach(dir));
    return below_.beneath(dir);
  }

 private:
  class Queue final : public io::IoQueue {
   public:
    Queue(CutDisk& disk, std::unique_ptr<io::IoQueue> below)
        : disk_(disk), below_(std::move(below)) {
      disk_.queues_.push_back(this);
    }
    ~Queue() override { std::erase(disk_.queues_, this); }

    void read(io::File& file, ByteSpan into, uint64_t offset, Done done) override {
      submit(std::move(done), [this, &file, into, offset](Done last) {
        below_->read(file, into, offset, std::move(last));
      });
    }
    void write(io::File& file, ByteView from, uint64_t offset, Done done) override {
      submit(std::move(done), [this, &file, from, offset](Done last) {
        below_->write(file, from, offset, std::move(last));
      });
    }
    void sync(io::File& file, Done done) override {
      submit(std::move(done), [this, &file](Done last) { below_->sync(file, std::move(last)); });
    }
    // Whoever waits here, waits for an operation of a process that is killed.
    void run() override {
      if (held_.empty()) return below_->run();
      for (Held& held : std::exchange(held_, {})) held.done(fail(Errc::unreachable, "cut off"));
    }
    void poll() override { below_->poll(); }
    size_t in_flight() const override { return below_->in_flight() + held_.size(); }
    size_t depth() const override { return below_->depth(); }
    void register_buffers(std::span<const ByteSpan> spans) override {
      below_->register_buffers(spans);
    }
    void go_on() {
      for (Held& held : std::exchange(held_, {})) held.start(std::move(held.done));
    }

   private:
    struct Held {
      Done done;
      std::function<void(Done)> start;
    };
    void submit(Done done, std::function<void(Done)> start) {
      if (!disk_.cut_) return start(std::move(done));
      held_.push_back({.done = std::move(done), .start = std::move(start)});
    }

    CutDisk& disk_;
    std::unique_ptr<io::IoQueue> below_;
    std::vector<Held> held_;
  };

  Result<void> reach(const std::string& path) const {
    if (!cut_) return {};
    return fail(Errc::unreachable, "{}: cut off", path);
  }

  io::Disk& below_;
  bool cut_ = false;
  std::vector<Queue*> queues_;
};

}  // namespace ff::kvstore
