// Copies of files and trees between two ends (tree.h), as cp(1) means it, many files at once.
//
// A file is written under another name beside the real one, `.NAME.ff-part`, and given its name
// when it is whole and durable. Of large files is noted how far they are (Tree::note), so that a
// later run may go on there. Two copies to one name at a time: the later one takes the part over,
// and the earlier one fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/progress.h"
#include "storage/client/transfer.h"
#include "storage/client/tree.h"

namespace ff::client {

struct CopyOptions {
  bool recursive = false;
  bool preserve = false;  // modes with all bits, and times
  bool owners = false;    // with preserve: owners too
  bool verify = false;
  // Goes on with parts, leaves out files that are there with the same size and time, and keeps
  // times for that.
  bool resume = false;
  uint32_t umask = 0;
};

struct CopyReport {
  uint64_t files = 0;
  uint64_t directories = 0;
  uint64_t links = 0;
  uint64_t skipped = 0;  // were there already
  uint64_t resumed = 0;  // parts that were gone on with
  uint64_t bytes = 0;    // of the files
};

// "a/b" -> "a/.b.ff-part". The name is cut where it would be too long.
std::string part_path(std::string_view path);
// The part gets the name, if it still is the file `id`: another copy to that name may have put its
// own there. (Where that happens between the look and the rename, the other's part gets the name.)
Task<Result<void>> publish(Tree& tree, std::string part, uint64_t id, std::string path);

class Copy {
 public:
  // All outlive it. `failed` is told of what cannot be copied; false: the copy shall end.
  Copy(Tree& from, Tree& to, TransferMemory& memory, CopyOptions options, Progress& progress,
       std::function<bool(Error)> failed);

  // Of one source the name `to`, or in it when that is a directory; several need a directory. An
  // error: there was no point in going on.
  Task<Result<void>> run(std::vector<std::string> sources, std::string to);
  const CopyReport& report() const { return report_; }

 private:
  struct Job {
    std::string from;
    Node node;
    std::string to;
  };
  struct Dir {
    std::string path;
    Tree::Attributes attributes;
  };
  Task<Result<void>> copy_source(std::string from, std::string to, bool into);
  Task<Result<void>> copy_entry(Job job);
  Task<Result<void>> copy_dir(Job job);
  Task<Result<void>> copy_entries(const Job& job);
  Task<Result<void>> check_not_below(const Node& node, std::string to);
  Task<void> copy_file(Job job, Semaphore::Hold waiting);
  Task<Result<void>> try_file(Job job);
  std::string both(const Job& job) const;
  Task<Result<bool>> is_there(const Job& job);
  Task<Result<uint64_t>> noted(const Job& job, const std::string& part);
  Task<Result<uint64_t>> fill(const Job& job, const std::string& part, uint64_t begin);
  Task<void> clean_up(std::string part, Error reason);
  Task<Result<void>> copy_link(Job job);
  Task<Result<void>> finish_dirs();
  Tree::Attributes attributes_of(const Node& node) const;
  // False: the copy ends.
  bool tell(const std::string& path, Error error);

  Tree& from_;
  Tree& to_;
  TransferMemory& memory_;
  const CopyOptions options_;
  Progress& progress_;
  const std::function<bool(Error)> failed_;
  CopyReport report_;
  Semaphore queued_;       // files found, not done
  Semaphore files_;        // files under way
  std::vector<Dir> dirs_;  // whose attributes are set when all in them is there
  Cancel* cancel_ = nullptr;
  bool over_ = false;
  Gate gate_;
};

}  // namespace ff::client
