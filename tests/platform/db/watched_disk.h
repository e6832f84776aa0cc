// WatchedDisk: wraps a Disk and records its operations. On request its syncs have no effect, or it
// acts like the disk of a dead process (renames and removals have no effect).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/io/disk.h"
#include "platform/simd/crc32c.h"

namespace ff::db {

class WatchedDisk : public io::Disk {
 public:
  explicit WatchedDisk(io::Disk& below) : below_(below) {}

  bool lies = false;
  bool gone = false;
  // One line for each operation that changes or syncs something, with a checksum of the bytes.
  std::vector<std::string> trace;
  bool last_was_sync() const { return !trace.empty() && trace.back().starts_with("sync"); }

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenOptions how) override {
    note("open {} {}", path, how.create);
    FF_TRY(auto file, below_.open(path, how));
    return std::unique_ptr<io::File>(std::make_unique<WatchedFile>(*this, std::move(file)));
  }
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions how) override {
    return below_.make_queue(how);
  }
  Result<io::FileInfo> info(const std::string& path) override { return below_.info(path); }
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override {
    return below_.list(dir);
  }
  Result<void> make_dir(const std::string& path, uint32_t mode) override {
    return below_.make_dir(path, mode);
  }
  Result<void> remove(const std::string& path) override {
    if (gone) return fail(Errc::failed, "{}: nobody is there to remove it", path);
    note("remove {}", path);
    return below_.remove(path);
  }
  Result<void> remove_dir(const std::string& path) override { return below_.remove_dir(path); }
  Result<void> rename(const std::string& from, const std::string& to) override {
    note("rename {} {}", from, to);
    return below_.rename(from, to);
  }
  Result<void> link(const std::string& from, const std::string& to) override {
    return below_.link(from, to);
  }
  Result<void> make_symlink(const std::string& target, const std::string& path) override {
    return below_.make_symlink(target, path);
  }
  Result<std::string> read_symlink(const std::string& path) override {
    return below_.read_symlink(path);
  }
  Result<void> set_mode(const std::string& path, uint32_t mode) override {
    return below_.set_mode(path, mode);
  }
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override {
    return below_.set_mtime(path, mtime_ns);
  }
  Result<void> sync_dir(const std::string& dir) override {
    note("sync_dir {}", dir);
    return lies ? Result<void>() : below_.sync_dir(dir);
  }
  Result<io::Space> space(const std::string& path) override { return below_.space(path); }
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override {
    return below_.beneath(dir);
  }

 private:
  class WatchedFile final : public io::File {
   public:
    WatchedFile(WatchedDisk& disk, std::unique_ptr<io::File> below)
        : File(below->path()), disk_(disk), below_(std::move(below)) {}
    Result<size_t> read_at(ByteSpan into, uint64_t offset) override {
      return below_->read_at(into, offset);
    }
    Result<void> write_at(ByteView from, uint64_t offset) override {
      disk_.note("write {} {}+{} {:08x}", path(), offset, from.size(), simd::crc32c(from));
      return below_->write_at(from, offset);
    }
    Result<bool> read_cached(ByteSpan into, uint64_t offset) override {
      return below_->read_cached(into, offset);
    }
    Result<void> sync() override {
      disk_.note("sync {}", path());
      return disk_.lies ? Result<void>() : below_->sync();
    }
    Result<void> truncate(uint64_t size) override {
      disk_.note("truncate {} {}", path(), size);
      return below_->truncate(size);
    }
    Result<void> reserve(uint64_t offset, uint64_t length) override {
      return below_->reserve(offset, length);
    }
    Result<void> punch_hole(uint64_t offset, uint64_t length) override {
      return below_->punch_hole(offset, length);
    }
    Result<io::DataRange> next_data(uint64_t offset) override { return below_->next_data(offset); }
    Result<io::FileInfo> info() override { return below_->info(); }
    Result<bool> try_lock() override { return below_->try_lock(); }
    bool direct() const override { return below_->direct(); }

   private:
    WatchedDisk& disk_;
    const std::unique_ptr<io::File> below_;
  };

  template <class... A>
  void note(fmt::format_string<A...> format, A&&... args) {
    trace.push_back(fmt::format(format, std::forward<A>(args)...));
  }

  io::Disk& below_;
};

}  // namespace ff::db
