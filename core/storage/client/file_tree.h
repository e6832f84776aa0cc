// One side of a copy: a tree of files on this machine (local_tree.h) or in a cluster
// (cluster_tree.h). Owned by one loop; paths are bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/task.h"
#include "platform/io/disk.h"
#include "storage/meta/inode.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

// The attributes of a file, as of stat(2).
struct FileStat {
  meta::InodeType kind = meta::InodeType::file;
  uint64_t id = 0;
  uint64_t size = 0;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_ns = 0;
  std::string target = {};  // of a symbolic link
  meta::InodeRef ref = {};  // only in a cluster

  bool is(meta::InodeType other) const { return kind == other; }
};

// An open file. Any number of reads and writes may run at once.
class OpenFile {
 public:
  virtual ~OpenFile() = default;

  // The id of its FileStat.
  virtual Result<uint64_t> id() const = 0;
  // Reads and writes start at multiples of this and have this size, except at the end of the file.
  virtual uint64_t unit() const = 0;
  // Reads at `offset`; returns fewer bytes at the end of the file. `into` is page-aligned, a
  // multiple of a page, and must stay valid until this returns.
  virtual Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into) = 0;
  // The first data range that ends behind `offset`; begin == end: there is none.
  virtual Task<Result<io::DataRange>> next_data(uint64_t offset) = 0;
  // Writes the first `size` bytes of `buffer`, which is aligned as for read(). Bytes behind them
  // may be changed.
  virtual Task<Result<void>> write(uint64_t offset, ByteSpan buffer, uint64_t size) = 0;
  // Call before the first write: `size` is the final size, `all` says that no hole is left.
  virtual Task<Result<void>> preallocate(uint64_t size, bool all) = 0;
  // Whether unwritten ranges read as zeros and take no space.
  virtual bool supports_holes() const = 0;
  // Makes the writes durable.
  virtual Task<Result<void>> sync() = 0;
  // Sets the length and makes the file durable.
  virtual Task<Result<void>> finish(uint64_t length) = 0;
  // Call once, even after an error.
  virtual Task<Result<void>> close() = 0;
};

class FileTree {
 public:
  virtual ~FileTree() = default;

  // None: the name, or a directory above it, does not exist.
  virtual Task<Result<std::optional<FileStat>>> stat(std::string path, bool follow) = 0;
  struct Entry {
    std::string name;
    std::optional<FileStat> stat;  // if listing returns it anyway
  };
  // The entries after `after` (empty: from the start). An empty result is the end.
  virtual Task<Result<std::vector<Entry>>> list(std::string dir, std::string after) = 0;

  // From now on, whatever creates, changes or removes something stays below this directory: it
  // follows no symbolic link there and refuses paths with one (ELOOP). Others may write there, too,
  // and must not lead the copy to other files.
  virtual Task<Result<void>> stay_below(std::string dir) = 0;

  virtual Task<Result<std::unique_ptr<OpenFile>>> open(std::string path, FileStat stat) = 0;
  // Opens for reading and writing. An existing file is opened if `keep`, else replaced.
  virtual Task<Result<std::unique_ptr<OpenFile>>> create(std::string path, uint32_t mode,
                                                         bool keep) = 0;
  virtual Task<Result<void>> make_dir(std::string path, uint32_t mode) = 0;
  virtual Task<Result<void>> make_symlink(std::string target, std::string path) = 0;
  // Not for directories.
  virtual Task<Result<void>> remove(std::string path) = 0;
  // Replaces an existing file.
  virtual Task<Result<void>> rename(std::string from, std::string to) = 0;
  struct Attributes {
    std::optional<uint32_t> mode = {};
    std::optional<uint32_t> uid = {};
    std::optional<uint32_t> gid = {};
    std::optional<int64_t> mtime_ns = {};
    bool any() const { return mode || uid || gid || mtime_ns; }
  };
  virtual Task<Result<void>> set(std::string path, Attributes attributes) = 0;

  // Makes new names durable.
  virtual Task<Result<void>> sync_names() = 0;

  // How far the copy of this file is, as saved with the partial file; empty: none.
  virtual Task<Result<std::string>> resume_point(std::string path) = 0;
  virtual Task<Result<void>> set_resume_point(std::string path, std::string text) = 0;

  // The path as a user would write it.
  virtual std::string display_path(std::string_view path) const = 0;
};

}  // namespace ff::client
