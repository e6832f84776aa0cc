// Small files that this client has made under a delegation and whose bytes are not stored yet when
// close(2) returns. Nobody else can see them: the length report of the close waits among the
// changes of the client (client/delegations.h), and DelegatingMetaClient has the bytes stored
// before it sends that report, those of all files of a batch at once. So whatever waits for the
// changes also waits for the bytes: a recall, fsync(2) of the directory, a call that a server
// answers. The bytes of a file that is removed before that are dropped.
//
// The bytes lie in write-behind, with records for a successor of this process. What may fail is
// decided before the answer: a file is not deferred when space or memory is short, when earlier
// bytes of it could not be written, or without a recovery table.
//
// Owned by one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/meta/inode.h"

namespace ff::client {

class File;
class FileSystem;

class DeferredCloses {
 public:
  static constexpr uint64_t kFileMax = 64 * kKiB;
  static constexpr size_t kFilesMax = 1024;

  explicit DeferredCloses(FileSystem& of) : of_(of) {}

  // False: its bytes must be stored before close(2) returns.
  bool add(std::shared_ptr<File> file);
  // Returns when the bytes of these files are stored, or storage has refused them for good, which
  // fsync(2) reports. Errc::interrupted: not all are.
  Task<Result<void>> store(std::vector<meta::InodeId> inodes);
  // The file is removed and nobody has it open.
  void drop(meta::InodeId inode);
  // The lease has ended, so the length reports of the files are lost: stores the bytes and reports
  // the lengths of the files that have reached the servers.
  Task<void> rescue();
  // Drops what could not be stored.
  Task<void> close();
  bool empty() const { return files_.empty(); }
  // Whether files were deferred since the last call; then the free space must be known.
  bool used() { return std::exchange(used_, false); }

 private:
  Task<Result<void>> store_file(std::shared_ptr<File> file);

  FileSystem& of_;
  std::unordered_map<meta::InodeId, std::shared_ptr<File>> files_;
  bool used_ = false;
};

}  // namespace ff::client
