// The small files that the programs of a scenario write, each once and to its end, and what readers
// may find in them: when close(2) has returned, all that was written, for every reader that opens
// the file later; unless the writer was killed without a successor, has lost its lease, or a disk
// has lost its power, before an fsync(2) of the file. While disks are full, and some time after
// that, readers may find less. Other bytes than those that were written they find only after a disk
// has lost its power: a length is never seen before the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "storage/meta/inode.h"

namespace ff::scenario {

class SmallFiles {
 public:
  // What a program writes into this file.
  static std::string content(meta::InodeId inode, uint64_t size);

  // close(2) of a file has returned that `program` had created since `created_ns`.
  void on_close(meta::InodeId inode, size_t program, uint64_t size, int64_t created_ns,
                int64_t now_ns);
  // An fsync(2) of this program succeeded, for a file that was closed before it began.
  void on_sync(meta::InodeId inode, size_t program);
  // What was not synced may be lost: of one program; or of one file; or of all, in a power loss.
  void lose(size_t program, int64_t now_ns);
  void lose_file(meta::InodeId inode);
  void lose_all(int64_t now_ns);
  // From now on what readers find counts, or not.
  void count(bool counts) { counts_ = counts; }

  // The size that a reader has to find that opens the file from `began_ns` on; nothing: any.
  std::optional<uint64_t> expected_size(meta::InodeId inode, int64_t began_ns) const;
  // What such a reader has found. A contradiction counts unless the writer learns soon that it has
  // lost the file.
  void on_read(meta::InodeId inode, const std::string& found, const std::string& reader,
               int64_t now_ns);
  // The first contradiction that counts; empty: none.
  std::string contradiction() const;
  uint64_t reads() const { return reads_; }

 private:
  struct File {
    size_t program = 0;
    uint64_t size = 0;
    int64_t closed_ns = 0;
    bool synced = false;
    bool unsure = false;
    bool may_have_holes = false;  // a disk may have lost its bytes
    std::string wrong = {};
    int64_t wrong_ns = 0;
    bool has_holes = false;  // `wrong` tells of other bytes
  };
  void lose_where(const std::function<bool(const File&)>& lost, int64_t now_ns);

  std::map<meta::InodeId, File> files_;
  std::map<size_t, int64_t> lost_ns_;  // the last time, by program
  int64_t lost_all_ns_ = INT64_MIN;
  uint64_t reads_ = 0;
  bool counts_ = true;
  std::string proven_;  // a contradiction that nothing can explain any more
};

}  // namespace ff::scenario
