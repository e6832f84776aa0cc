// The RPC client of the metadata service: the operations of namespace.h as calls to any server. It
// tries one server after the other until one answers or the timeout expires; a change is still
// applied exactly once (namespace.h). Owned by one loop.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/base/backoff.h"
#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/rpc/client.h"
#include "storage/meta/namespace.h"
#include "storage/meta/service.h"
#include "storage/meta/uncommitted_changes.h"

namespace ff::meta {

// How a caller names an inode: by number, with the proof that a server issued for it (service.h).
struct InodeRef {
  InodeId id = 0;
  std::string proof = {};
  // If not empty, the server resolves this path from the inode, following symbolic links. Only for
  // calls that have a caller.
  std::string path = {};
};
inline InodeRef root() { return {.id = kRoot}; }

struct InodeView {
  Inode inode;
  std::string proof = {};
  std::string capability = {};  // only for a user who opened it with a token
  InodeRef ref() const { return {inode.id, proof}; }
};

// What a successor needs to continue as the same client: its ids, and for each slot the last
// request. It may lie in memory that outlives the process (client/recovery_table.h); zero: a new
// client. Each word is valid by itself.
struct MetaClientState {
  struct Slot {
    std::atomic<uint64_t> sequence;
    // While the caller may still repeat the request: what it belongs to (Caller::origin), the
    // number of its method, and the number of its session. Origin is written last.
    std::atomic<uint64_t> origin;
    std::atomic<uint64_t> method;
    std::atomic<uint64_t> session;
  };
  std::atomic<uint64_t> client;
  std::atomic<uint64_t> sessions;
  std::array<Slot, kSlots> slots;
};

class MetaClient {
 public:
  // Called when a server lost an acknowledged change, for each inode whose fsync(2) covers it.
  using OnLost = std::function<void(InodeId, Error)>;
  // At least one server; `context` outlives it, and so does `state`, if there is one. Virtual
  // calls: a client that holds delegations answers some of them by itself
  // (client/delegating_meta_client.h).
  MetaClient(
      rpc::ClientContext& context, const std::vector<net::Address>& servers,
      OnLost on_lost = [](InodeId, Error) {}, MetaClientState* state = nullptr);
  virtual ~MetaClient() = default;

  // Cancels all calls and closes the connections.
  virtual Task<void> close();

  // Total timeout of a call; a truncation has more, since it may have many chunks to remove.
  static constexpr int64_t kTimeoutNs = 60 * kSecond;
  static constexpr int64_t kTruncateTimeoutNs = 900 * kSecond;
  static constexpr int64_t kFsckTimeoutNs = 3600 * kSecond;

  struct WalkResult {
    InodeView dir;
    std::string name;
    std::optional<InodeView> found;
  };
  struct DirEntry {
    std::string name;
    InodeId id = 0;
    InodeType kind = InodeType::file;
    std::optional<InodeView> view;
  };
  struct DirPage {
    std::vector<DirEntry> entries;
    bool end = false;
  };
  // A new session id of this client. If the predecessor died during a request of the same origin
  // (Caller::origin), that of its request.
  virtual SessionId new_session(uint64_t origin = 0);
  SessionId session(uint64_t number) const { return {client_, number}; }
  // Whether a request of the predecessor that may be repeated opens or keeps this session.
  virtual bool awaits(SessionId session) const;
  // The request of this origin was answered and cannot come again.
  virtual void end_origin(uint64_t origin);
  // No more requests of the predecessor will be repeated.
  virtual void end_restored_origins();

  // See the operations of the same name in namespace.h.
  virtual Task<Result<InodeView>> stat(InodeRef inode, bool exact);
  virtual Task<Result<InodeView>> lookup(Caller caller, InodeRef dir, std::string name);
  virtual Task<Result<WalkResult>> walk(Caller caller, InodeRef from, std::string path,
                                        bool follow);
  virtual Task<Result<DirPage>> list(Caller caller, InodeRef dir, std::string after, uint32_t limit,
                                     bool with_inodes);
  virtual Task<Result<InodeView>> create(Caller caller, InodeRef dir, std::string name,
                                         Namespace::CreateOptions create);
  virtual Task<Result<InodeView>> open(Caller caller, InodeRef inode, uint32_t rights,
                                       std::optional<SessionId> session);
  // `caller`: for whom the file was opened.
  Task<Result<std::string>> renew(Caller caller, InodeId inode, std::string capability);
  virtual Task<Result<InodeView>> link(Caller caller, InodeRef inode, InodeRef dir,
                                       std::string name);
  virtual Task<Result<InodeView>> unlink(Caller caller, InodeRef dir, std::string name,
                                         std::optional<SessionId> holder);
  virtual Task<Result<InodeView>> rmdir(Caller caller, InodeRef dir, std::string name);
  virtual Task<Result<InodeView>> remove_tree(Caller caller, InodeRef dir, std::string name);
  struct Rename {
    InodeRef from_dir;
    std::string from;
    InodeRef to_dir;
    std::string to;
    bool no_replace = false;
    bool exchange = false;
    std::optional<SessionId> holder = {};
  };
  virtual Task<Result<InodeView>> rename(Caller caller, Rename rename);
  virtual Task<Result<InodeView>> set_attributes(Caller caller, InodeRef inode,
                                                 Namespace::Attributes to);
  virtual Task<Result<InodeView>> set_layout(Caller caller, InodeRef dir, Layout layout);
  virtual Task<Result<std::optional<std::string>>> get_xattr(Caller caller, InodeRef inode,
                                                             std::string name);
  virtual Task<Result<std::vector<std::string>>> list_xattrs(InodeRef inode);
  virtual Task<Result<InodeView>> set_xattr(Caller caller, InodeRef inode, std::string name,
                                            std::optional<std::string> value,
                                            Namespace::XattrMode mode);
  // `capability`: of a file open for writing. Without one, the mode of the file decides.
  virtual Task<Result<InodeView>> truncate(Caller caller, InodeRef inode, uint64_t length,
                                           std::optional<std::string> capability);
  virtual Task<Result<InodeView>> report_length(InodeId inode, SessionId session,
                                                Namespace::LengthReport report,
                                                std::string capability);
  virtual Task<Result<InodeView>> append(InodeId inode, uint64_t size, std::string capability,
                                         uint64_t origin = 0);
  // Makes earlier changes durable. Changes that servers lost (uncommitted_changes.h) are reported
  // to OnLost before this returns and are no error here; lost length reports are sent again.
  virtual Task<Result<void>> sync();
  // Whether some change may not be durable yet.
  bool unsynced() const { return !uncommitted_.empty() || !lost_lengths_.empty(); }
  // At most kEndedSessionsMax sessions.
  virtual Task<Result<void>> end_sessions(std::vector<Namespace::EndedSession> ended);
  // As Namespace::lock() and unlock(). `owner` is a new session.
  virtual Task<Result<bool>> lock(Caller caller, InodeRef inode, SessionId owner);
  Task<Result<void>> unlock(InodeRef inode, SessionId owner);

  // Delegations (delegation_recalls.h). From now on all calls name this lease; 0: none.
  void set_lease(uint64_t lease) { lease_ = lease; }
  uint64_t lease() const { return lease_; }
  Task<Result<wire::LeaseReply>> renew_lease(wire::LeaseRequest request);
  Task<Result<wire::DelegateReply>> delegate(InodeId dir);
  // Sends a batch until it is applied or refused. `changes`: what it does, for uncommitted changes.
  // `number` tells batches apart: until end_batch(), a successor that sends the batch of this
  // number continues this call. Returns the directories to give back.
  Task<Result<std::vector<InodeId>>> apply_batch(wire::BatchRequest batch,
                                                 std::vector<UncommittedChanges::Change> changes,
                                                 uint64_t number);
  void end_batch(uint64_t number) { MetaClient::end_origin(kBatchOrigin | number); }
  // The number of the batch that the predecessor was sending.
  std::optional<uint64_t> restored_batch() const;
  size_t servers() const { return servers_.size(); }
  // Waits until this server recalls a delegation.
  Task<Result<std::vector<InodeId>>> recalls(size_t server);

  // For operators.
  Task<Result<wire::UserReply>> set_user(wire::User user);
  Task<Result<wire::UserReply>> token(uint32_t uid, bool revoke);
  Task<Result<std::vector<wire::User>>> users();
  // Runs fsck (fsck.h). Repairs are idempotent.
  Task<Result<wire::FsckReply>> fsck(bool repair, int64_t orphans_after_ns);

 protected:
  Loop& loop() { return loop_; }
  Rng& rng() { return context_.rng; }
  uint64_t client() const { return client_; }
  // Calls OnLost for each inode of the changes.
  void report_lost(const std::vector<UncommittedChanges::Change>& changes, const std::string& why);

 private:
  class Slot;
  struct HeldSlot {
    uint32_t number = 0;
    Semaphore::Permit hold = {};
    bool restored = false;  // the predecessor sent its last request
    bool busy = false;
  };
  // Which request a change belongs to, and the session that it opens or keeps.
  struct Origin {
    uint64_t request = 0;
    uint64_t session = 0;
  };
  struct Attempt;
  template <class Asked, class Reply>
  Task<Result<Reply>> call(rpc::Method<Asked, Reply> method, Asked request,
                           int64_t timeout_ns = kTimeoutNs, int64_t attempt_ns = kAttemptTimeoutNs);
  Task<Result<HeldSlot>> acquire_slot(uint64_t origin);
  // call() with a slot and a sequence number. `refs`: the inodes that the request changes.
  template <class Asked>
  Task<Result<InodeView>> change(rpc::Method<Asked, wire::InodeReply> method, Asked request,
                                 Origin origin, UncommittedChanges::Action action,
                                 std::vector<InodeRef> refs, int64_t timeout_ns = kTimeoutNs,
                                 int64_t attempt_ns = kAttemptTimeoutNs);
  Task<Result<InodeView>> send_length(UncommittedChanges::SentLength sent);
  Task<Result<void>> resend_lengths();
  template <class Asked>
  Task<Result<InodeView>> query(rpc::Method<Asked, wire::InodeReply> method, Asked request);
  Task<Result<void>> on_failure(Error error, size_t server, Attempt& attempt);
  Task<Result<void>> register_client();
  Task<void> keep_registered();

  static constexpr int64_t kAttemptTimeoutNs = 8 * kSecond;
  static constexpr uint64_t kBatchOrigin = uint64_t{1} << 63;  // no request of the kernel has it

  rpc::ClientContext& context_;
  Loop& loop_;
  std::vector<std::unique_ptr<rpc::Client>> servers_;
  size_t preferred_server_;                     // index of the server that answered last
  std::unique_ptr<MetaClientState> own_state_;  // if the caller has none
  MetaClientState& state_;
  const uint64_t client_;
  uint64_t lease_ = 0;
  bool registered_ = false;
  Semaphore registering_;
  Semaphore slots_;
  UncommittedChanges uncommitted_;
  const OnLost on_lost_;
  std::deque<UncommittedChanges::Change> lost_lengths_;  // waiting to be sent again
  Semaphore resending_;
  std::vector<uint32_t> free_;  // free slots
  // Slots whose request was not answered yet, by origin: the server keeps their replies.
  std::unordered_map<uint64_t, HeldSlot> held_;
  Gate gate_;
};

}  // namespace ff::meta
