// The file system as a program uses it: names are asked of the metadata service, bytes go to and
// come from storage nodes directly. Owned by one loop; the same in simulation.
//
// Close-to-open consistency: whoever opens a file after its writer has closed it sees what was
// written; while both have it open, the reader sees it when it reads there anew.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/gate.h"
#include "storage/chain/client.h"
#include "storage/client/file.h"
#include "storage/client/inode_state.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_copy.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

class FileSystem {
 public:
  struct Options {
    // Memory that storage nodes of this host reach themselves (net/system_transport.h); may be
    // empty. Buffers of write-behind lie in it.
    ByteSpan arena = {};
    uint64_t write_behind = 256 * kMiB;  // bytes that wait to be written, of all files
  };
  // `servers`: the cluster's serve-metas. `context` outlives it.
  FileSystem(rpc::ClientContext& context, const std::vector<net::Address>& servers,
             Options options);
  // After close().
  ~FileSystem();

  // Returns once the cluster's chains are known. Errc::not_found: it is not formed yet, and may be
  // asked again.
  Task<Result<void>> start(int64_t deadline_ns);
  // Asks the managers anew.
  void refresh() { routing_.refresh(); }
  // Whether there are chains; files cannot be made without them.
  bool has_chains() const { return !routing_.routing().tables.empty(); }
  // Bytes that wait to be written, of all files, in whole chunks.
  uint64_t waiting_bytes() const { return (behind_.all - behind_.free.free()) * kMiB; }
  // Why the managers do not answer; nothing while they do.
  const std::optional<Error>& trouble() const { return routing_.trouble(); }
  // Files that are still open are closed, with what they have; nobody learns of their errors.
  Task<void> close();

  // Why what this client does under a lock may no longer be done: it could not keep the lock of a
  // file that is still open, and another may have it by now.
  std::optional<Error> lost_lock();

  meta::MetaClient& names() { return names_; }
  Loop& loop() { return context_.loop; }

  // `rights`: meta::kMayRead, kMayWrite. What is open for writing is to be closed.
  Task<Result<std::shared_ptr<File>>> open(meta::Caller caller, meta::Ref inode, uint32_t rights);
  // The same file for reading alone, also when `file` is closed.
  std::shared_ptr<File> reader(const File& file);
  // Makes the file, or opens the one that is there (unless `make.exclusive`).
  Task<Result<std::shared_ptr<File>>> create(meta::Caller caller, meta::Ref dir, std::string name,
                                             meta::Names::Make make);
  // The inode as it is for everybody, with what was written here.
  Task<Result<meta::Seen>> look(meta::Ref inode);
  // What was written here counts for whoever reads here, before others are told.
  void add_written(meta::Inode& inode) const;
  // The session has nothing to tell any more: the servers hear of that with the next ones.
  void end_session(meta::Names::Ended ended);
  // Something that was acknowledged is lost: who has the inode open learns of it from the next
  // fsync(2), or who opens it next (client/error_seq.h). It is logged.
  void report(meta::InodeId inode, Error error);
  // All that was changed by names is durable; or the newest error of any inode that the cursor was
  // not told of (syncfs(2)).
  Task<Result<void>> sync_names(ErrorSeq::Cursor& told);
  ErrorSeq::Cursor cursor() const { return errors_.open(); }
  // What all that have the inode open share; lives as long as anybody holds it, or it has to tell.
  std::shared_ptr<InodeState> state_of(meta::InodeId inode);
  // How much room files have in all, and how much of it is left; some seconds old.
  struct Space {
    uint64_t total = 0;  // bytes
    uint64_t free = 0;
  };
  Task<Result<Space>> space();
  // Those of a file's stripe, in order. Waits for a table that is not known yet.
  Task<Result<std::vector<cluster::ChainId>>> chains_of(const meta::Layout& layout);

 private:
  friend class File;
  Task<Result<std::shared_ptr<File>>> opened(meta::Seen seen,
                                             std::optional<meta::SessionId> session);
  Task<void> keep_telling();
  Task<void> keep_syncing();
  Task<void> keep_locks();
  Task<void> tell_ended();
  std::vector<std::shared_ptr<File>> writers() const;
  void drop_states();

  rpc::ClientContext& context_;
  cluster::RoutingCopy routing_;
  chain::Client storage_;
  meta::MetaClient names_;
  cluster::ManagerClient managers_;
  Space space_;
  std::optional<int64_t> space_ns_;  // when it was told
  WriteBehind::Shared behind_;
  bool started_ = false;
  // By inode and session.
  std::map<std::pair<meta::InodeId, uint64_t>, std::weak_ptr<File>> writers_;
  std::map<uint64_t, std::weak_ptr<File>> locked_;  // by the lock's owner
  std::unordered_map<meta::InodeId, std::shared_ptr<InodeState>> states_;
  ErrorSeq errors_;                        // of all inodes
  std::vector<meta::Names::Ended> ended_;  // sessions that nobody was told of
  Gate gate_;
};

}  // namespace ff::client
