// The disk seam: files and directories as ff uses them. `SystemDisk` (system_disk.h) is the
// machine's file systems; `SimDisk` (sim/sim_disk.h) loses what was not flushed, tears writes,
// fails and fills up from a seed. Nothing above floor 1 opens a file except through a Disk.
//
// Namespace operations block. Bulk data goes through an IoQueue: many operations in flight, one
// owner thread, completions delivered inside run() or by the owner's loop (async.h: co_await).
//
// Durability, as POSIX gives it: file data and size are safe after File::sync or IoQueue::sync;
// a name (created, renamed, linked, removed) is safe after sync_dir of its directory.
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

// Offset, length and memory of direct I/O are multiples of this (every common device accepts it).
constexpr uint64_t kDirectAlign = 4096;

enum class FileKind : uint8_t { regular, directory, symlink, other };
enum class Access : uint8_t { read, write, read_write };

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
  uint64_t free = 0;   // bytes this user may still write
};

struct OpenOptions {
  Access access = Access::read;
  bool create = false;
  bool exclusive = false;  // with create: Errc::exists when the name is taken
  bool truncate = false;
  bool direct = false;     // ask for O_DIRECT; File::direct() tells whether it was granted
  bool no_follow = false;  // refuse a symbolic link as the last component
  uint32_t mode = 0666;    // of a created file, less the umask
};

// A stretch of a file that is stored, [begin, end); what lies between stretches reads as zeros.
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
  // Fills `into` from memory the kernel already holds, without waiting for a device. False when
  // any byte of it is not there (the content of `into` is then unspecified).
  virtual Result<bool> read_cached(ByteSpan into, uint64_t offset) = 0;
  virtual Result<void> sync() = 0;
  virtual Result<void> truncate(uint64_t size) = 0;
  // Sets space aside for [offset, offset + length) without changing the size; Errc::disk_full when
  // there is none. File systems that cannot do this accept it silently.
  virtual Result<void> reserve(uint64_t offset, uint64_t length) = 0;
  // Gives the space of [offset, offset + length) back: it reads as zeros, and the size stays.
  // Errc::unsupported where the file system cannot. Durable after a sync, like a write.
  virtual Result<void> punch(uint64_t offset, uint64_t length) = 0;
  // The first stored stretch that ends after `offset`; begin == end == size past the last one.
  virtual Result<DataRange> next_data(uint64_t offset) = 0;
  virtual Result<FileInfo> info() = 0;
  // Takes the exclusive advisory lock (flock), held until the file is closed. False when another
  // holds it.
  virtual Result<bool> try_lock() = 0;

  virtual bool direct() const = 0;
  const std::string& path() const { return path_; }  // as given to open, for messages

 protected:
  explicit File(std::string path) : path_(std::move(path)) {}

 private:
  std::string path_;
};

struct QueueOptions {
  unsigned depth = 64;  // operations in flight at most
  // With a loop, which outlives the queue, callbacks run in its thread by themselves, and what one
  // turn of the loop starts goes to the kernel in one call. Without, only run() and poll() work.
  Loop* loop = nullptr;
};

// Operations in flight of one thread. Lives on the thread that made it; never shared. The file and
// the memory of an operation stay alive until its callback has run. The destructor waits for what
// is in flight and drops the callbacks; it does not run inside one.
class IoQueue {
 public:
  // Bytes done: all that was asked for, or fewer where a read met the end of the file.
  using Done = std::function<void(Result<size_t>)>;

  virtual ~IoQueue() = default;

  // FF_CHECKs in_flight() < depth, and kDirectAlign on a direct file. `done` never runs
  // inside these calls.
  virtual void read(File& file, ByteSpan into, uint64_t offset, Done done) = 0;
  virtual void write(File& file, ByteView from, uint64_t offset, Done done) = 0;
  virtual void sync(File& file, Done done) = 0;

  // Runs the callbacks of finished operations, waiting until at least one has finished (at once
  // when none is in flight). A signal may end the wait early. Callbacks may start operations. With
  // a loop only needed by those who cannot wait for it: destructors.
  virtual void run() = 0;
  // The same without waiting.
  virtual void poll() = 0;

  virtual size_t in_flight() const = 0;
  virtual size_t depth() const = 0;

  // Pins memory for repeated I/O (IORING_REGISTER_BUFFERS); at most once per queue. Operations in
  // these spans are then cheaper. Queues without such a thing ignore it.
  virtual void register_buffers(std::span<const ByteSpan> spans) = 0;
};

class Disk {
 public:
  virtual ~Disk() = default;

  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) = 0;
  virtual std::unique_ptr<IoQueue> make_queue(QueueOptions options) = 0;
  // Memory that this disk moves bulk data to and from most cheaply (buffers.h).
  virtual Result<Buffers> make_buffers(size_t count, size_t slot_bytes);

  virtual Result<FileInfo> info(const std::string& path) = 0;  // does not follow a symbolic link
  // Sorted; without "." and "..".
  virtual Result<std::vector<DirEntry>> list(const std::string& dir) = 0;
  virtual Result<void> make_dir(const std::string& path, uint32_t mode) = 0;
  virtual Result<void> remove(const std::string& path) = 0;      // a file or symbolic link
  virtual Result<void> remove_dir(const std::string& path) = 0;  // an empty directory
  // Atomic; replaces a file at `to`, or an empty directory when `from` is a directory.
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  // A second name for a file; Errc::exists when `to` is taken (atomic exclusive publication).
  virtual Result<void> link(const std::string& from, const std::string& to) = 0;
  virtual Result<void> make_symlink(const std::string& target, const std::string& path) = 0;
  virtual Result<std::string> read_symlink(const std::string& path) = 0;
  virtual Result<void> set_mode(const std::string& path, uint32_t mode) = 0;
  // Sets the modification time; does not follow a symbolic link. Negative: the file system's now.
  virtual Result<void> set_mtime(const std::string& path, int64_t mtime_ns) = 0;
  virtual Result<void> sync_dir(const std::string& dir) = 0;
  virtual Result<Space> space(const std::string& path) = 0;
};

}  // namespace ff::io
