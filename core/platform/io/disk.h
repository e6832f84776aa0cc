// The seam for disks: files and directories. `SystemDisk` (system_disk.h) uses the file systems of
// the machine; `SimDisk` (sim/sim_disk.h) simulates lost unsynced data, torn writes, I/O errors and
// full disks from a seed. Code above floor 1 opens files only through a Disk.
//
// Namespace operations block. Bulk data goes through an IoQueue: many operations in flight, one
// owner thread, callbacks run inside run() or on the owner's loop (async.h offers co_await).
//
// Durability follows POSIX: file data and size are durable after File::sync or IoQueue::sync; a
// name change (create, rename, link, remove) is durable after sync_dir of its directory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff {

class Loop;

}  // namespace ff

namespace ff::io {

// Offset, length and memory address of direct I/O are multiples of this; common devices accept it.
constexpr uint64_t kDirectAlign = 4096;

enum class FileKind : uint8_t { regular, directory, symlink, other };
enum class AccessMode : uint8_t { read, write, read_write };

struct FileInfo {
  FileKind kind = FileKind::other;
  uint32_t mode = 0;  // permission bits only (07777)
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;       // bytes
  uint64_t allocated = 0;  // bytes on the device
  int64_t mtime_ns = 0;    // Unix epoch
  uint64_t device = 0;
  uint64_t inode = 0;
};

struct DirEntry {
  std::string name;
  FileKind kind = FileKind::other;
};

struct Space {
  uint64_t total = 0;  // bytes
  uint64_t free = 0;   // bytes available to this user (f_bavail)
};

struct OpenOptions {
  AccessMode access = AccessMode::read;
  bool create = false;
  bool exclusive = false;  // with create: Errc::exists if the file exists (O_EXCL)
  bool truncate = false;
  bool direct = false;     // request O_DIRECT; File::direct() returns whether it is in effect
  bool no_follow = false;  // fail if the last component is a symbolic link (O_NOFOLLOW)
  uint32_t mode = 0666;    // permissions of a created file, before the umask
};

// An extent of a sparse file that holds data, [begin, end); the holes between extents read as
// zeros.
struct DataRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

class Buffers;

// One open file. Positional operations may be called from several threads at once.
class File {
 public:
  virtual ~File() = default;

  // Reads until `into` is full or the file ends; returns the bytes read.
  virtual Result<size_t> read_at(ByteSpan into, uint64_t offset) = 0;
  // Writes all of `from`, extending the file as needed.
  virtual Result<void> write_at(ByteView from, uint64_t offset) = 0;
  // Fills `into` from the page cache without waiting for a device. False if a byte is not cached;
  // the content of `into` is unspecified then.
  virtual Result<bool> read_cached(ByteSpan into, uint64_t offset) = 0;
  virtual Result<void> sync() = 0;
  virtual Result<void> truncate(uint64_t size) = 0;
  // Preallocates space for [offset, offset + length) without changing the size (fallocate(2) with
  // FALLOC_FL_KEEP_SIZE). Errc::disk_full if there is none; no effect where it is unsupported.
  virtual Result<void> reserve(uint64_t offset, uint64_t length) = 0;
  // Deallocates [offset, offset + length): it reads as zeros, and the size stays (fallocate(2) with
  // FALLOC_FL_PUNCH_HOLE). Errc::unsupported on some file systems. Durable after a sync.
  virtual Result<void> punch_hole(uint64_t offset, uint64_t length) = 0;
  // The first data extent that ends after `offset`; begin == end == size after the last one.
  virtual Result<DataRange> next_data(uint64_t offset) = 0;
  virtual Result<FileInfo> info() = 0;
  // Takes the exclusive advisory lock (flock(2)) until the file is closed. False if another open
  // file holds it.
  virtual Result<bool> try_lock() = 0;

  virtual bool direct() const = 0;
  const std::string& path() const { return path_; }  // as given to open, for messages

 protected:
  explicit File(std::string path) : path_(std::move(path)) {}

 private:
  std::string path_;
};

struct QueueOptions {
  unsigned depth = 64;  // maximum number of operations in flight
  // With a loop (which must outlive the queue), callbacks run on its thread, and the queue submits
  // the operations of a turn together. Without a loop, callbacks run only in run() and poll().
  Loop* loop = nullptr;
};

// A queue of asynchronous operations, used by one thread only. The file and the memory of an
// operation must stay alive until its callback has run. The destructor waits for operations in
// flight and drops their callbacks; it must not be called inside one.
class IoQueue {
 public:
  // The completion callback; gets the bytes transferred. Fewer than requested: end of the file.
  using Done = std::function<void(Result<size_t>)>;

  virtual ~IoQueue() = default;

  // FF_CHECKs in_flight() < depth, and the alignment on a direct file. `done` never runs inside
  // these calls.
  virtual void read(File& file, ByteSpan into, uint64_t offset, Done done) = 0;
  virtual void write(File& file, ByteView from, uint64_t offset, Done done) = 0;
  virtual void sync(File& file, Done done) = 0;

  // Waits until at least one operation has completed, and runs the callbacks of completed ones;
  // returns at once if none is in flight. A signal may end the wait early. Callbacks may start
  // operations. With a loop, only code that cannot wait for the loop calls it: destructors.
  virtual void run() = 0;
  // Like run(), without waiting.
  virtual void poll() = 0;

  virtual size_t in_flight() const = 0;
  virtual size_t depth() const = 0;

  // Registers memory for repeated I/O (IORING_REGISTER_BUFFERS), at most once per queue; operations
  // in these spans are then cheaper. Other queues ignore it.
  virtual void register_buffers(std::span<const ByteSpan> spans) = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;

  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) = 0;
  virtual std::unique_ptr<IoQueue> make_queue(QueueOptions options) = 0;
  // Memory for bulk transfers that is best suited to this disk (buffers.h).
  virtual Result<Buffers> make_buffers(size_t count, size_t slot_bytes);

  virtual Result<FileInfo> info(const std::string& path) = 0;  // does not follow a symbolic link
  // Sorted; without "." and "..".
  virtual Result<std::vector<DirEntry>> list(const std::string& dir) = 0;
  virtual Result<void> make_dir(const std::string& path, uint32_t mode) = 0;
  virtual Result<void> remove(const std::string& path) = 0;      // a file or symbolic link
  virtual Result<void> remove_dir(const std::string& path) = 0;  // an empty directory
  // Atomic; replaces a file at `to`, or an empty directory when `from` is a directory.
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  // Creates a hard link; Errc::exists if `to` exists (publishes a file atomically, never replaces).
  virtual Result<void> link(const std::string& from, const std::string& to) = 0;
  virtual Result<void> make_symlink(const std::string& target, const std::string& path) = 0;
  virtual Result<std::string> read_symlink(const std::string& path) = 0;
  virtual Result<void> set_mode(const std::string& path, uint32_t mode) = 0;
  // Sets the modification time, which may be before 1970; follows no symbolic link. -1: now.
  virtual Result<void> set_mtime(const std::string& path, int64_t mtime_ns) = 0;
  virtual Result<void> sync_dir(const std::string& dir) = 0;
  virtual Result<Space> space(const std::string& path) = 0;

  // The part of this disk in directory `dir` (symbolic links in `dir` itself are followed). No
  // operation on it leaves the directory, whatever other programs do there meanwhile: it follows
  // no symbolic link below `dir`, refuses a path with one (ELOOP), and refuses paths elsewhere.
  // Paths stay those of this disk, which outlives it; its files work with queues of this disk.
  virtual Result<std::unique_ptr<Disk>> beneath(const std::string& dir) = 0;
};

}  // namespace ff::io
