// Copies files and trees between two FileTrees (file_tree.h) with the semantics of cp(1), many
// files at once.
//
// A file is written under a temporary name beside the target, `.NAME.ff-part`, and renamed when it
// is complete and durable. For large files the resume point is saved (FileTree::resume_point()), so
// that a later run can continue. If two copies write to the same name, the later one takes over the
// part and the earlier one fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/progress.h"
#include "storage/client/file_tree.h"
#include "storage/client/transfer.h"

namespace ff::client {

struct CopyOptions {
  bool recursive = false;
  bool preserve = false;  // full mode and times
  bool owners = false;    // with `preserve`: owners, too
  bool verify = false;
  // Continues parts, skips files with the same size and time, and preserves times for that.
  bool resume = false;
  uint32_t umask = 0;
};

struct CopyReport {
  uint64_t files = 0;
  uint64_t directories = 0;
  uint64_t links = 0;
  uint64_t skipped = 0;  // up to date already
  uint64_t resumed = 0;  // continued parts
  uint64_t bytes = 0;    // of copied files
};

// "a/b" -> "a/.b.ff-part". Shortens a name that would be too long.
std::string part_path(std::string_view path);
// Renames the part to `path` if it still is the file `id`: another copy may have replaced it. (If
// that happens between the check and the rename, the other part gets the name.)
Task<Result<void>> rename_part(FileTree& tree, std::string part, uint64_t id, std::string path);

class TreeCopier {
 public:
  // All outlive it. `failed` gets each error; if it returns false, the copy stops.
  TreeCopier(FileTree& from, FileTree& to, TransferMemory& memory, CopyOptions options,
             Progress& progress, std::function<bool(Error)> failed);

  // Copies one source to the name `to`, or into it if it is a directory. Several sources need a
  // directory. Returns an error if it could not continue.
  Task<Result<void>> run(std::vector<std::string> sources, std::string to);
  const CopyReport& report() const { return report_; }

 private:
  struct CopyItem {
    std::string from;
    FileStat stat;
    std::string to;
  };
  struct PendingDir {
    std::string path;
    FileTree::Attributes attributes;
  };
  Task<Result<void>> copy_source(std::string from, std::string to, bool into);
  Task<Result<void>> copy_entry(CopyItem item);
  Task<Result<void>> copy_dir(CopyItem item);
  Task<Result<void>> copy_entries(const CopyItem& item);
  Task<Result<void>> check_not_below(const FileStat& stat, std::string to);
  Task<void> copy_file(CopyItem item, Semaphore::Permit waiting);
  Task<Result<void>> copy_file_data(CopyItem item);
  std::string describe(const CopyItem& item) const;
  Task<Result<bool>> is_up_to_date(const CopyItem& item);
  Task<Result<uint64_t>> saved_resume_point(const CopyItem& item, const std::string& part);
  Task<Result<uint64_t>> copy_data(const CopyItem& item, const std::string& part, uint64_t begin);
  Task<void> clean_up(std::string part, Error reason);
  Task<Result<void>> copy_link(CopyItem item);
  Task<Result<void>> finish_dirs();
  FileTree::Attributes attributes_of(const FileStat& stat) const;
  // Returns false if the copy must stop.
  bool report_error(const std::string& path, Error error);

  FileTree& from_;
  FileTree& to_;
  TransferMemory& memory_;
  const CopyOptions options_;
  Progress& progress_;
  const std::function<bool(Error)> failed_;
  CopyReport report_;
  Semaphore queued_;              // files found but not finished
  Semaphore files_;               // files being copied
  std::vector<PendingDir> dirs_;  // attributes are set after the contents are complete
  CancellationToken* cancel_ = nullptr;
  bool stopped_ = false;
  std::string top_;  // the destination as given, if it is a directory
  Gate gate_;
};

}  // namespace ff::client
