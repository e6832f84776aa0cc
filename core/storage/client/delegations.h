// What a client holds by directory delegations (meta/delegation_recalls.h), and the calls that it
// answers with them. While a directory is delegated to it, no other client reads or changes the
// names in it, so this client knows all of them: it answers lookups (also of names that do not
// exist), creates, links, renames and removals there by itself, and calls on the inodes that it
// created there itself. It keeps the changes in order in a log, from which DelegatingMetaClient
// sends batches.
//
// Nothing is answered that a server might decide otherwise: an answer of nothing means that the
// caller must wait until the log is sent as far as last_change() says, and then ask a server.
//
// record() writes the log into the journal, from which a successor of the process continues.
//
// No function waits or calls back. Owned by one loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "storage/client/change_journal.h"
#include "storage/meta/meta_client.h"
#include "storage/meta/records.h"

namespace ff::client {

class Delegations {
 public:
  using Change = meta::UncommittedChanges::Change;
  using Answer = std::optional<Result<meta::InodeView>>;
  // Directories held at most; beyond, the one that was not used for longest is given back.
  static constexpr size_t kHeldMax = 1024;
  // Changes in a row after which a delegation is worth asking for.
  static constexpr uint32_t kChangesInARow = 3;
  // WroteRequest::truncations of a change that only ends a session.
  static constexpr uint64_t kEndsSession = UINT64_MAX;

  // `table`: for a successor of this process; may be null.
  explicit Delegations(Loop& loop, RecoveryTable* table = nullptr) : loop_(loop), journal_(table) {}

  // The lease. 0: none. A renewal counts from when it began; `wall_ns` is the server's clock.
  uint64_t lease() const { return lease_; }
  // False: the journal is full.
  bool start_lease(uint64_t lease);
  void renewed(int64_t began_ns) { renewed_ns_ = std::max(renewed_ns_, began_ns); }
  void set_clock(int64_t wall_ns) { clock_offset_ns_ = wall_ns - loop_.now_ns(); }
  bool valid() const;
  // The lease has ended. Returns the changes that were not sent: they are lost. They stay in the
  // journal until end_lease().
  std::vector<Change> lose();
  void end_lease() { journal_.end_lease(); }

  // Granted inode numbers, each with the layout of a file, for directories with this layout. The
  // server takes the numbers of the last meta::kIdGrantsMax grants only, so no more are asked for
  // while numbers of an earlier grant are left, or in changes that no server has applied.
  std::optional<uint64_t> next_id_grant();  // its number; nothing: none may be asked for now
  void add_ids(meta::InodeId first, std::vector<meta::Layout> layouts, meta::Layout of);
  bool has_ids_for(const meta::Layout& layout) const;
  // Set: more numbers are needed, for files with this layout.
  std::optional<meta::Layout> wants_ids() const { return wants_ids_; }

  // A delegation is asked for: from here to end_grant() all names that calls may change are noted.
  // False: it is held or asked for already.
  bool begin_grant(meta::InodeId dir);
  struct Grant {
    meta::Inode dir;
    std::vector<std::pair<std::string, meta::Dentry>> names;
  };
  void end_grant(meta::InodeId dir, std::optional<Grant> grant);
  // Gives the directory back behind all earlier changes.
  void give_back(meta::InodeId dir);
  // Servers ask for these directories.
  void recall(const std::vector<meta::InodeId>& dirs);
  bool owns(meta::InodeId inode) const { return valid() && own_.contains(inode); }
  bool holds(meta::InodeId dir) const { return held_.contains(dir); }
  size_t held() const { return held_.size(); }

  // Calls; as the operations of the same names in meta/meta_client.h.
  Answer lookup(const meta::Caller& caller, meta::InodeId dir, const std::string& name);
  Answer stat(meta::InodeId inode) const;
  Answer open(const meta::Caller& caller, meta::InodeId inode, uint32_t rights,
              std::optional<meta::SessionId> session);
  Answer create(const meta::Caller& caller, meta::InodeId dir, const std::string& name,
                const meta::Namespace::CreateOptions& make);
  Answer link(const meta::Caller& caller, meta::InodeId inode, meta::InodeId dir,
              const std::string& name);
  Answer unlink(const meta::Caller& caller, meta::InodeId dir, const std::string& name,
                std::optional<meta::SessionId> holder);
  Answer rmdir(const meta::Caller& caller, meta::InodeId dir, const std::string& name);
  Answer rename(const meta::Caller& caller, const meta::MetaClient::Rename& rename);
  Answer set_attributes(const meta::Caller& caller, meta::InodeId inode,
                        const meta::Namespace::Attributes& to);
  Answer report_length(meta::InodeId inode, meta::SessionId session,
                       const meta::Namespace::LengthReport& report);
  // False: a server must end the session.
  bool end_session(const meta::Namespace::EndedSession& ended);

  // Calls that a server answers. Around a call that changes names: nobody knows them meanwhile.
  using Name = std::pair<meta::InodeId, std::string>;  // directory and name
  struct ServerChange {
    std::vector<Name> names;
    uint64_t grants = 0;  // number of grants when it began
  };
  ServerChange begin_change(std::vector<Name> names);
  // `now`: what each name refers to, if the call succeeded (inode 0: it does not exist).
  void end_change(const ServerChange& change, const std::vector<meta::Dentry>& now);
  // From now on servers answer calls on this inode.
  void expose(meta::InodeId inode) { own_.erase(inode); }
  // A server returned these attributes of a directory; `asked`: changes() before the call.
  void refresh_dir(const meta::Inode& dir, uint64_t asked);
  uint64_t changes() const { return changes_; }
  // Counts a change of a directory that is not held; true: a delegation is worth asking for.
  bool count_change(meta::InodeId dir);
  // The directories in `dir` that are held; a change of their names there must wait for them.
  std::vector<meta::InodeId> held_below(meta::InodeId dir) const;
  std::vector<meta::InodeId> all_held() const;

  // Continues the lease of the predecessor, with its changes; answers nothing under it. `batch`:
  // the last change of the batch that was under way, if there was one. Returns the lease.
  uint64_t restore(std::optional<uint64_t> batch);
  // Answers of the predecessor.
  ChangeJournal& journal() { return journal_; }
  const ChangeJournal& journal() const { return journal_; }
  // Writes new changes into the journal; to be called before their answers are given.
  void record();

  // The log. Changes are numbered from 1.
  struct Batch {
    meta::wire::BatchRequest request;  // without a request id
    std::vector<Change> changes;
    std::vector<meta::InodeId> inodes;
    uint64_t last = 0;
  };
  bool empty() const { return log_.empty(); }
  size_t pending() const { return log_.size(); }
  uint64_t last_change() const { return last_; }
  // The number of the last change of one of these inodes that was not applied yet; 0: none.
  uint64_t last_change(const std::vector<meta::InodeId>& inodes) const;
  // Whether the log is worth sending at once.
  bool batch_is_full() const { return log_.size() >= kBatchFull; }
  // Removes as many changes as one transaction can apply; `most` at most. While it continues the
  // changes of a predecessor, a file and its length are in different batches: its bytes can be
  // stored when servers know the file.
  Batch take_batch(size_t most);
  // The changes up to this number were applied or refused.
  void applied(const Batch& batch);
  uint64_t applied() const { return applied_; }

 private:
  static constexpr size_t kBatchFull = 24;

  enum class NameState : uint8_t { own, other, unknown };
  struct Entry {
    NameState state = NameState::unknown;
    meta::InodeId id = 0;
    meta::InodeType kind = meta::InodeType::file;
  };
  struct HeldDir {
    meta::Inode inode = {};
    bool attributes_known = true;
    uint64_t used = 0;
    uint64_t grant = 0;  // the number of the grant
    std::unordered_map<std::string, Entry> names = {};
  };
  struct Granting {
    bool recalled = false;
    std::set<std::string> unsure = {};
  };

  HeldDir* usable(meta::InodeId dir);
  HeldDir& hold(meta::Inode dir);
  void evict();
  const Entry* find(const HeldDir& dir, const std::string& name) const;
  meta::Inode* own_inode(const Entry& entry);
  int64_t now_ns();
  void touch(HeldDir& dir, int64_t now_ns, int subdirs);
  std::optional<std::pair<meta::InodeId, meta::Layout>> take_id(std::optional<meta::Layout> of);
  meta::wire::BatchOperation& log(std::vector<meta::InodeId> inodes, uint64_t origin,
                                  int64_t now_ns);
  Answer replace(const meta::Caller& caller, const meta::MetaClient::Rename& rename, HeldDir& from,
                 HeldDir& to, meta::Inode& source);
  static meta::InodeView view(const meta::Inode& inode) { return {.inode = inode}; }

  Loop& loop_;
  uint64_t lease_ = 0;
  int64_t renewed_ns_ = 0;
  int64_t clock_offset_ns_ = 0;
  int64_t last_ns_ = 0;  // the last time that was given to a change
  std::unordered_map<meta::InodeId, HeldDir> held_;
  std::unordered_map<meta::InodeId, meta::Inode> own_;  // created here, known to nobody else
  std::map<meta::InodeId, Granting> granting_;
  std::map<Name, size_t> changing_;  // names that calls under way may change
  std::set<meta::InodeId> returning_;
  uint64_t uses_ = 0;
  uint64_t grants_ = 0;
  uint64_t changes_ = 0;  // of directories, here or by calls

  struct Id {
    meta::InodeId id = 0;
    meta::Layout layout = {};
  };
  std::deque<Id> ids_;
  meta::Layout ids_of_ = {};
  struct IdGrant {
    uint64_t number = 0;
    size_t left = 0;           // of its numbers
    uint64_t last_change = 0;  // with one of them
  };
  std::deque<IdGrant> id_grants_;  // that are in use
  uint64_t id_grants_got_ = 0;     // in this lease
  std::optional<meta::Layout> wants_ids_;

  ChangeJournal journal_;
  std::deque<ChangeJournal::Change> log_;
  uint64_t recorded_ = 0;              // the last change that is in the journal
  std::optional<uint64_t> batch_end_;  // where the next batch ends
  uint64_t restored_ = 0;              // the last change of the predecessor
  uint64_t last_ = 0;
  uint64_t applied_ = 0;
  std::unordered_map<meta::InodeId, uint64_t> touched_;  // last change that was not applied yet
  std::unordered_map<meta::InodeId, uint32_t> in_a_row_;
};

}  // namespace ff::client
