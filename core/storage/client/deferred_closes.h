// Small files that this client has made under a delegation and whose bytes are not stored yet when
// close(2) returns. Nobody else can see them: the length report of the close waits among the
// changes of the client (client/delegations.h), and DelegatingMetaClient has the bytes stored
// before it sends that report, those of all files of a batch at once. So whatever waits for the
// changes also waits for the bytes: a recall, fsync(2) of the directory, a call that a server
// answers. The bytes of a file that is removed before that are dropped.
//
// The bytes lie in write-behind, with records for a successor of this process. What may fail is
// decided before the answer: a file is not deferred when space or memory is short, when a disk of
// its chains is nearly full, when earlier bytes of it could not be written, or without a recovery
// table.
//
// If a disk has no room nevertheless, the bytes are kept and stored when there is room, and the
// changes of the client do not wait for that: others see the file without its bytes, as that of a
// writer that has not closed it. Until then this client cannot open the file, and others cannot
// write to it (ENOSPC): these bytes would undo later ones
// (meta::Namespace::LengthReport::unstored).
//
// Owned by one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/meta/inode.h"
#include "storage/meta/meta_client.h"
#include "storage/meta/namespace.h"

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
  // fsync(2) reports; or has no room for them: then it returns these files, whose lengths must not
  // be sent. Errc::interrupted: not all are stored.
  Task<Result<std::vector<meta::InodeId>>> store(std::vector<meta::InodeId> inodes);
  // A file whose bytes a predecessor of this process has left, and for which storage has no room:
  // write-behind has them. No other file of the inode may be deferred.
  void keep(std::shared_ptr<File> file);
  bool contains(meta::InodeId inode) const { return files_.contains(inode); }
  // Whether the bytes of the file wait for room.
  bool waits(meta::InodeId inode) const { return waiting_.contains(inode); }
  size_t waiting() const { return waiting_.size(); }
  // The file is removed and nobody has it open. Of a file that waits for room, retry() finds out.
  void drop(meta::InodeId inode);
  // The lease has ended, so the length reports of the files are lost: stores the bytes and reports
  // the lengths of the files that have reached the servers.
  void rescue();
  // Files whose bytes are not stored yet.
  std::vector<std::shared_ptr<File>> unstored() const;
  // Drops the files that wait for room. Returns their sessions.
  Task<std::vector<meta::Namespace::EndedSession>> drop_waiting();
  // Drops what could not be stored.
  Task<void> close();
  bool empty() const { return files_.empty(); }
  // Whether all is stored, and all lengths are reported.
  bool idle() const { return files_.empty() && retried_.empty(); }

 private:
  Task<Result<void>> try_to_store(std::shared_ptr<File> file);
  Task<Result<void>> store_file(std::shared_ptr<File> file, int64_t room_until_ns);
  Task<void> retry(std::shared_ptr<File> file, bool announced);
  Task<Result<meta::InodeView>> report_unstored(std::shared_ptr<File> file);
  Task<Result<void>> announce(std::shared_ptr<File> file);
  Task<void> report(std::shared_ptr<File> file);
  void wait_for_room(std::shared_ptr<File> file, bool announced);
  void forget(const File& file);

  FileSystem& of_;
  std::unordered_map<meta::InodeId, std::shared_ptr<File>> files_;
  std::set<meta::InodeId> waiting_;  // of files_: for room
  std::set<meta::InodeId> retried_;  // in the background
};

}  // namespace ff::client
