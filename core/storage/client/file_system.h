// The client of the file system: it resolves names at the metadata service and exchanges bytes with
// storage nodes directly. Owned by one loop; runs in simulation, too.
//
// Close-to-open consistency: a program that opens a file after its writer has closed it sees what
// was written. While both have it open, the reader sees writes when it reads again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "storage/chain/chain_client.h"
#include "storage/client/deferred_closes.h"
#include "storage/client/delegating_meta_client.h"
#include "storage/client/file.h"
#include "storage/client/inode_state.h"
#include "storage/client/read_snapshot.h"
#include "storage/client/recovery_table.h"
#include "storage/cluster/manager_client.h"
#include "storage/cluster/routing_cache.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

// Acknowledged bytes are durable after this time, unless all replicas lost power.
constexpr int64_t kDurableNs = 10 * kSecond;

class FileSystem {
 public:
  struct Options {
    // Memory that storage nodes of this host can access directly (net/system_transport.h), for the
    // buffers of write-behind. May be empty.
    ByteSpan arena = {};
    uint64_t write_behind = 256 * kMiB;  // dirty bytes of all files
    bool delegations = false;            // ask for directory delegations (client/delegations.h)
    // Null: what is acknowledged and not stored is lost with the process.
    RecoveryTable* recovery = nullptr;
    ByteSpan data = {};  // memory that outlives the process like `recovery`, and contains `arena`
    // Where open files let other threads read them; null: there are none. Outlives it.
    ReadSnapshots* snapshots = nullptr;
    // Called after each change of the routing.
    std::function<void(const cluster::Routing&)> on_routing = [](const cluster::Routing&) {};
    // Called for each loss that an fsync(2) will report.
    std::function<void(meta::InodeId, const Error&)> on_lost = [](meta::InodeId, const Error&) {};
  };
  // `servers`: the serve-meta daemons. `context` outlives it.
  FileSystem(rpc::ClientContext& context, const std::vector<net::Address>& servers,
             Options options);
  // Call after close().
  ~FileSystem();

  // Waits for the routing. Errc::not_found: the cluster is not initialized; the call can be
  // repeated.
  Task<Result<void>> start(int64_t deadline_ns);
  // Continues what the predecessor left in Options::recovery: its errors, sessions and
  // write-behind. Returns after storage has all its bytes, or has no room for them: then they are
  // kept as those of deferred closes. Call it once, after start() and before any other call.
  struct HeldSession {
    meta::Namespace::EndedSession session = {};
    RecoveryTable::Record record = {};
  };
  struct Restored {
    std::vector<std::shared_ptr<File>> writers = {};  // open for writing, each to be closed
    std::vector<HeldSession> holders = {};            // of files without a name
  };
  Task<Result<Restored>> restore();
  // A file that the predecessor had open for reading.
  Task<Result<std::shared_ptr<File>>> restore_reader(meta::InodeRef inode);
  RecoveryTable* recovery() const { return recovery_; }
  // Whether the recovery table can take the records of one more request.
  bool has_recovery_room() const {
    return recovery_ == nullptr || recovery_->used() + 8 < recovery_->capacity();
  }
  // Fetches the routing again.
  void refresh() { routing_.refresh(); }
  const cluster::Routing& routing() const { return routing_.routing(); }
  // Whether the cluster has chains. Without chains, files cannot be created.
  bool has_chains() const { return !routing_.routing().tables.empty(); }
  // Dirty bytes of all files, in whole chunks.
  uint64_t dirty_bytes() const {
    return (behind_.capacity_mib - behind_.free_mib.available()) * kMiB;
  }
  // The last error of the managers; none while they answer.
  const std::optional<Error>& manager_error() const { return routing_.last_error(); }
  // Before close(): waits until servers have all changes and storage has the bytes of all files
  // that programs have closed, but not longer than kUnmountNs; then gives the delegations back. The
  // error says what is lost; the log names each file.
  static constexpr int64_t kUnmountNs = 30 * kSecond;
  Task<Result<void>> finish_closes();
  // Closes all open files and drops their errors.
  Task<void> close();

  // Set if a lock of an open file was lost: this client could not renew it in time, and another
  // owner may hold it. Work under that lock must stop.
  std::optional<Error> lost_lock();

  meta::MetaClient& metadata() { return metadata_; }
  // Directories delegated to this client, and changes that no server has applied yet.
  size_t delegations() const { return metadata_.delegations(); }
  size_t pending_changes() const { return metadata_.pending_changes(); }
  // Closed files whose bytes wait for room in storage.
  size_t waiting_files() const { return deferred_.waiting(); }
  Loop& loop() { return context_.loop; }

  // `rights`: meta::kMayRead, kMayWrite. A file opened for writing must be closed.
  Task<Result<std::shared_ptr<File>>> open(meta::Caller caller, meta::InodeRef inode,
                                           uint32_t rights);
  // A read-only view of the same file; usable even after `file` is closed.
  std::shared_ptr<File> reader(const File& file);
  // Creates the file, or opens the existing one (unless `make.exclusive`).
  Task<Result<std::shared_ptr<File>>> create(meta::Caller caller, meta::InodeRef dir,
                                             std::string name, meta::Namespace::CreateOptions make);
  // The current attributes, including what was written here.
  Task<Result<meta::InodeView>> stat(meta::InodeRef inode);
  // Adds unreported local writes to the attributes, so that readers here see them.
  void apply_local_writes(meta::Inode& inode) const;
  // The file is removed and nobody has it open here: bytes that are not stored yet need not be.
  void drop_unstored(meta::InodeId inode) { deferred_.drop(inode); }
  // Ends a session that has no length to report; sent with the next batch.
  void end_session(meta::Namespace::EndedSession ended, RecoveryTable::Record record = {});
  // Records that acknowledged data or metadata of the inode was lost, and logs it. The next
  // fsync(2) of each opener reports it (client/error_seq.h).
  void report_lost(meta::InodeId inode, Error error);
  // Makes all metadata changes durable. Returns the newest error of any inode that the cursor has
  // not seen, as syncfs(2) does.
  Task<Result<void>> sync_metadata(ErrorSeq::Cursor& cursor);
  ErrorSeq::Cursor cursor() const { return errors_.sample(); }
  // State shared by all openers of the inode. It lives while somebody holds it or it has something
  // to report.
  std::shared_ptr<InodeState> state_of(meta::InodeId inode);
  // Total and free space for files; may be some seconds old.
  struct Space {
    uint64_t total = 0;  // bytes
    uint64_t free = 0;
    std::set<std::pair<cluster::NodeId, cluster::DiskId>> nearly_full = {};
  };
  Task<Result<Space>> space();
  // The chains of a stripe, in order. Waits for a chain table that is not known yet.
  Task<Result<std::vector<cluster::ChainId>>> chains_of(const meta::Layout& layout);

 private:
  friend class File;
  friend class DeferredCloses;
  bool has_plenty_of_space(const std::vector<cluster::ChainId>& chains) const;
  Task<Result<std::shared_ptr<File>>> make_file(meta::Caller caller, meta::InodeView view,
                                                std::optional<meta::SessionId> session,
                                                RecoveryTable::Record record = {});
  Task<Result<meta::InodeView>> restored_view(meta::InodeRef inode, uint32_t rights,
                                              std::optional<meta::SessionId> session);
  void restore_errors();
  // A file that the predecessor had open for writing, and its bytes that were not stored.
  struct LeftSession {
    RecoveryTable::Record record = {};
    std::vector<RecoveryTable::Record> buffers = {};
  };
  Task<std::vector<std::string>> unstored_names();
  void take_sessions();
  Task<Result<std::shared_ptr<File>>> reopen(RecoveryTable::Record& record);
  Task<Result<void>> restore_writer(LeftSession session, bool last);
  Task<Result<void>> restore_writers(std::vector<meta::InodeId> inodes, bool last);
  Task<Result<void>> replay(std::shared_ptr<File> file, std::vector<RecoveryTable::Record> buffers);
  bool keep_left(const std::shared_ptr<File>& file, std::vector<RecoveryTable::Record>& buffers,
                 const Error& why);
  Task<Result<std::vector<meta::InodeId>>> store_files(std::vector<meta::InodeId> inodes);
  RecoveryTable::Record record_session(const meta::InodeRef& inode, meta::SessionId session,
                                       meta::InodeId dir) const;
  void record_errors(meta::InodeId inode, const ErrorSeq& errors);
  void mark_unsynced(InodeState& state, const std::vector<cluster::ChainId>& chains) const;
  Task<void> run_length_reports();
  Task<void> run_metadata_syncs();
  Task<void> run_lock_renewals();
  Task<void> run_space_requests();
  Task<void> learn_space();
  Task<void> report_ended_sessions();
  std::vector<std::shared_ptr<File>> writers() const;
  void drop_states();

  rpc::ClientContext& context_;
  const std::function<void(const cluster::Routing&)> on_routing_;
  cluster::RoutingCache routing_;
  chain::ChainClient storage_;
  cluster::ManagerClient managers_;
  Space space_;
  std::optional<int64_t> space_ns_;  // when `space_` was fetched
  std::optional<int64_t> full_ns_;   // when storage last had no room for a deferred file
  const std::function<void(meta::InodeId, const Error&)> on_lost_;
  WriteBehind::Shared behind_;
  RecoveryTable* const recovery_;
  ReadSnapshots* const snapshots_;
  std::optional<int64_t> restored_ns_;  // when restore() was called, if there was a predecessor
  std::multimap<meta::InodeId, LeftSession> left_sessions_;
  Restored restored_;
  Semaphore restoring_;
  std::unordered_map<meta::InodeId, RecoveryTable::Record> error_records_;
  bool started_ = false;
  // By inode and session.
  std::map<std::pair<meta::InodeId, uint64_t>, std::weak_ptr<File>> writers_;
  std::map<uint64_t, std::weak_ptr<File>> locked_;  // by the owner of the lock
  std::unordered_map<meta::InodeId, std::shared_ptr<InodeState>> states_;
  ErrorSeq errors_;                 // of all inodes
  std::vector<HeldSession> ended_;  // ended sessions that were not reported yet
  DeferredCloses deferred_{*this};
  DelegatingMetaClient metadata_;  // its tasks hold files
  Gate gate_;
};

}  // namespace ff::client
