// One end of a copy: a tree of names and files, on this machine (local_tree.h) or in a cluster
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

// What a name leads to.
struct Node {
  meta::Kind kind = meta::Kind::file;
  uint64_t id = 0;
  uint64_t size = 0;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_ns = 0;
  std::string target = {};  // of a symbolic link
  meta::Ref ref = {};       // in a cluster

  bool is(meta::Kind other) const { return kind == other; }
};

// An open file. Any number of reads and writes may be under way at once.
class OpenFile {
 public:
  virtual ~OpenFile() = default;

  // Of its Node.
  virtual Result<uint64_t> id() const = 0;
  // What reads and writes begin at multiples of, and are long except at the end of the file.
  virtual uint64_t unit() const = 0;
  // The bytes at `offset`; fewer at the end of the file. `into` is page-aligned, a multiple of a
  // page, and nobody's again when this ends.
  virtual Task<Result<uint64_t>> read(uint64_t offset, ByteSpan into) = 0;
  // The first stretch that holds data and ends behind `offset`; begin == end: there is none.
  virtual Task<Result<io::DataRange>> next_data(uint64_t offset) = 0;
  // The first `size` bytes of `buffer`, which is as that of read(); behind them it may be changed.
  virtual Task<Result<void>> write(uint64_t offset, ByteSpan buffer, uint64_t size) = 0;
  // Before the first write: how long it is going to be, and whether all of that is written.
  virtual Task<Result<void>> prepare(uint64_t size, bool all) = 0;
  // What has never been written reads as zeros, and takes no space.
  virtual bool keeps_holes() const = 0;
  // What was written is durable.
  virtual Task<Result<void>> sync() = 0;
  // It is so long, and durable.
  virtual Task<Result<void>> finish(uint64_t length) = 0;
  // Once, whatever happened.
  virtual Task<Result<void>> close() = 0;
};

class Tree {
 public:
  virtual ~Tree() = default;

  // Nothing: there is no such name. ENOENT further up is nothing, too.
  virtual Task<Result<std::optional<Node>>> look(std::string path, bool follow) = 0;
  struct Entry {
    std::string name;
    std::optional<Node> node;  // where it comes for nothing
  };
  // Those after `after` (empty: from the first); none: that was all.
  virtual Task<Result<std::vector<Entry>>> list(std::string dir, std::string after) = 0;

  virtual Task<Result<std::unique_ptr<OpenFile>>> open(std::string path, Node node) = 0;
  // To write and to read back. A file that is there is opened if `keep`, else replaced.
  virtual Task<Result<std::unique_ptr<OpenFile>>> create(std::string path, uint32_t mode,
                                                         bool keep) = 0;
  virtual Task<Result<void>> make_dir(std::string path, uint32_t mode) = 0;
  virtual Task<Result<void>> make_link(std::string target, std::string path) = 0;
  // No directory.
  virtual Task<Result<void>> remove(std::string path) = 0;
  // Replaces what is no directory.
  virtual Task<Result<void>> rename(std::string from, std::string to) = 0;
  struct Attributes {
    std::optional<uint32_t> mode = {};
    std::optional<uint32_t> uid = {};
    std::optional<uint32_t> gid = {};
    std::optional<int64_t> mtime_ns = {};
    bool any() const { return mode || uid || gid || mtime_ns; }
  };
  virtual Task<Result<void>> set(std::string path, Attributes attributes) = 0;

  // New names are durable.
  virtual Task<Result<void>> settle() = 0;

  // A few words kept with a file that is being copied; empty: none.
  virtual Task<Result<std::string>> note(std::string path) = 0;
  virtual Task<Result<void>> set_note(std::string path, std::string words) = 0;

  // As a user would write it.
  virtual std::string shown(std::string_view path) const = 0;
};

}  // namespace ff::client
