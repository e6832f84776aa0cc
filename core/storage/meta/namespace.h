// The operations on the namespace: names and inodes. Each is one transaction (kv/engine.h) and thus
// atomic on every engine. This layer knows neither connections nor storage nodes.
//
// Paths and names are bytes. Errors carry the errno of POSIX (Error::sys). As in Linux, checks run
// in this order: missing names, existing names, permissions, everything else.
//
// A retried change is applied exactly once, as in NFSv4.1 (RFC 8881, 2.10.6, sessions): its
// RequestId names a slot of the client and a sequence number there, and the transaction that
// applies the change stores the reply in the slot. A refused change stores no reply. If an earlier
// attempt may still be running, record_refusal() makes the refusal final.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/kv/engine.h"
#include "storage/meta/access.h"
#include "storage/meta/chain_usage.h"
#include "storage/meta/inode.h"
#include "storage/meta/inode_id_allocator.h"

namespace ff::meta {

constexpr size_t kSlots = 256;               // per client: concurrent changes
constexpr size_t kSymlinksFollowedMax = 40;  // symbolic links in one path, as in Linux
constexpr size_t kPathMax = 64 * kKiB;

struct RequestId {
  uint64_t client = 0;
  uint32_t slot = 0;      // below kSlots
  uint64_t sequence = 0;  // starts at 1
};

struct DelegationConflict;  // records.h

class FileChunks;

// The newest version of each chain table.
using TableVersions = std::map<cluster::TableId, uint64_t>;

class Namespace {
 public:
  struct Options {
    InodeIdAllocator& ids;
    Rng& rng;
    // The current ones.
    std::function<std::shared_ptr<const TableVersions>()> tables;
    std::function<std::shared_ptr<const ChainUsage>()> usage = {};  // not set: usage is unknown
    int64_t timeout_ns = 10 * kSecond;                              // per transaction
  };
  // All outlive it.
  Namespace(kv::Engine& engine, Clock& clock, Options options);

  // Makes all changes that have returned durable. With group commit (kv::Engine::run_async_commit),
  // a change becomes durable a moment after its reply, in the order of the changes.
  Task<Result<void>> sync();
  // Creates the root directory if it does not exist.
  Task<Result<void>> create_root();

  // Stores `error` as the reply of the request, so that no earlier attempt applies it any more.
  // False: the slot already has a reply to this request.
  Task<Result<bool>> record_refusal(RequestId request, Error error);

  Task<Result<Inode>> stat(InodeId id) { return stat(id, Caller()); }
  Task<Result<Inode>> stat(InodeId id, Caller caller);
  Task<Result<Inode>> lookup(Caller caller, InodeId dir, std::string name);

  struct WalkResult {
    Inode dir;                   // the directory that has the last name
    std::string name;            // the last name; empty if the path is the root or ends in ".."
    std::optional<Inode> inode;  // none: the name does not exist
  };
  // Resolves `path` from `from` (from the root if it starts with '/'). Follows symbolic links, the
  // last one only if `follow`. A missing name before the last one is ENOENT.
  Task<Result<WalkResult>> walk(Caller caller, InodeId from, std::string path, bool follow);

  struct DirEntry {
    std::string name;
    InodeId id = 0;
    InodeType kind = InodeType::file;
    std::optional<Inode> inode;  // if requested; none: it was just removed
  };
  struct DirPage {
    std::vector<DirEntry> entries;
    bool end = false;  // this is the last page
  };
  // Lists at most `limit` names behind `after` (empty: from the start), in byte order.
  Task<Result<DirPage>> list(Caller caller, InodeId dir, std::string after, size_t limit,
                             bool with_inodes);

  struct CreateOptions {
    InodeType kind = InodeType::file;
    uint32_t mode = 0;
    std::string target = {};                // symlink
    uint64_t device = 0;                    // character, block
    std::optional<Layout> layout = {};      // file or directory: overrides the layout of the parent
    bool exclusive = true;                  // file: EEXIST if it exists; false: opens it
    std::optional<SessionId> session = {};  // file: also opens it for writing
    uint32_t rights = 0;                    // rights that the caller needs on an existing file
    uint64_t chunk_size = 0;                // file: used if no layout has one
  };
  Task<Result<Inode>> create(Caller caller, RequestId request, InodeId dir, std::string name,
                             CreateOptions create);

  // Checks `rights`. With a session, the file is open for writing from now on. `drops_set_ids`: an
  // open for writing clears set-user-ID and set-group-ID, because the server does not see the
  // writes of this caller and cannot trust it to clear them.
  Task<Result<Inode>> open(Caller caller, InodeId id, uint32_t rights,
                           std::optional<SessionId> session, bool drops_set_ids = false);

  // Whether a file that was opened with `rights` may stay open: the mode still grants them, or the
  // caller owns the file; and the session, if there is one, is live. Errc::refused otherwise.
  Task<Result<void>> check_open_file(Caller caller, InodeId id, uint32_t rights,
                                     std::optional<SessionId> session);

  Task<Result<Inode>> link(Caller caller, RequestId request, InodeId id, InodeId dir,
                           std::string name);
  // Removes a name that is not a directory. `holder`: a session that has the file open and thus
  // keeps its chunks.
  Task<Result<Inode>> unlink(Caller caller, RequestId request, InodeId dir, std::string name,
                             std::optional<SessionId> holder);
  Task<Result<Inode>> rmdir(Caller caller, RequestId request, InodeId dir, std::string name);
  // Removes a directory with everything in it: the name at once, the contents in the background
  // (garbage_collector.h). The caller needs the right to empty every directory in it.
  Task<Result<Inode>> remove_tree(Caller caller, RequestId request, InodeId dir, std::string name);

  struct Rename {
    InodeId from_dir = 0;
    std::string from = {};
    InodeId to_dir = 0;
    std::string to = {};
    bool no_replace = false;
    bool exchange = false;
    std::optional<SessionId> holder = {};  // a session that has the replaced file open
  };
  Task<Result<Inode>> rename(Caller caller, RequestId request, Rename rename);

  struct Attributes {
    std::optional<uint32_t> mode = {};
    std::optional<uint32_t> uid = {};
    std::optional<uint32_t> gid = {};
    std::optional<int64_t> atime_ns = {};
    std::optional<int64_t> mtime_ns = {};
    bool times_now = false;  // set both times to now; needs write permission only
  };
  Task<Result<Inode>> set_attributes(Caller caller, RequestId request, InodeId id,
                                     Attributes attributes);
  // The layout of files created in this directory from now on. Table 0: inherited.
  Task<Result<Inode>> set_layout(Caller caller, RequestId request, InodeId id, Layout layout);

  Task<Result<std::optional<std::string>>> get_xattr(Caller caller, InodeId id, std::string name);
  Task<Result<std::vector<std::string>>> list_xattrs(InodeId id);
  enum class XattrMode : uint8_t { any, create, replace };
  // Removes the attribute if `value` is not set.
  Task<Result<Inode>> set_xattr(Caller caller, RequestId request, InodeId id, std::string name,
                                std::optional<std::string> value, XattrMode mode);

  // Lengths: namespace_lengths.cc.

  // Sets the length and `truncating`: the chunks are still to be removed (truncation_done()).
  // `opened`: the caller has the file open for writing, so its mode is not checked.
  Task<Result<Inode>> truncate(Caller caller, RequestId request, InodeId id, uint64_t length,
                               bool opened);
  // The chunks behind the length are removed, if this is still the truncation `truncate_seq`.
  Task<Result<void>> truncation_done(InodeId id, uint64_t truncate_seq);

  // Bytes are stored whose times were reported before, and may have been set to others since.
  static constexpr int64_t kSameTime = INT64_MIN;
  struct LengthReport {
    uint64_t min_length = 0;     // the writer wrote up to here
    uint64_t truncate_seq = 0;   // the last truncation that the writer knew
    int64_t mtime_ns = 0;        // 0: nothing was written; kSameTime: the time is known
    bool maybe_written = false;  // something may have been written at an unknown time
    bool closed = false;         // ends the session
    // The writer keeps bytes for which storage has no room, until a report that does not say so:
    // no other session may write to the file or truncate it (ENOSPC), or it would be undone.
    // Errc::refused: the session has ended, so that others may have written already.
    bool unstored = false;
  };
  // Reported by a writer. ESTALE: the file is removed. If `truncate_seq` of the returned inode
  // differs from the report, the length was ignored and storage must be asked for it.
  Task<Result<Inode>> report_length(InodeId id, SessionId session, LengthReport report);
  // Ends sessions without a length to report; at most kEndedSessionsMax (service.h).
  struct EndedSession {
    InodeId inode = 0;
    SessionId session = {};
  };
  Task<Result<void>> end_sessions(std::vector<EndedSession> ended);
  // Raises the length to `end`, as storage has it, if `truncate_seq` still matches.
  Task<Result<Inode>> extend_length(InodeId id, uint64_t end, uint64_t truncate_seq);
  // Finishes an unfinished truncation; returns the inode after it.
  Task<Result<Inode>> finish_truncation(InodeId id, FileChunks& chunks);
  // The same, then raises the length to what storage holds.
  Task<Result<Inode>> refresh_length(InodeId id, FileChunks& chunks);
  // Extends the file by `size` bytes and reserves them for this caller. Errc::busy: finish the
  // truncation first.
  Task<Result<Inode>> append(RequestId request, InodeId id, uint64_t size);

  // Locks: namespace_locks.cc.

  // Acquires or renews the advisory lock of the file for `owner`. LockReaper releases a lock that
  // its owner does not renew (lock_reaper.h). False: another owner holds it.
  Task<Result<bool>> lock(Caller caller, InodeId id, SessionId owner);
  Task<Result<void>> unlock(InodeId id, SessionId owner);

  // The client is alive: keeps its sessions and replies.
  Task<Result<void>> renew_client(uint64_t client);

  // Delegations: namespace_delegations.cc.

  // Creates (`fresh`), renews or ends a lease. `request`: creates it exactly once, so that a copy
  // of the request that arrives after the end of the lease does not revive its delegations. `ids`:
  // numbers for new inodes to be granted to it, by its grant number `grant`: a repeated one gets
  // the same numbers, an earlier one none. 0: the next grant. The last kIdGrantsMax grants are
  // valid.
  struct LeaseRenewal {
    uint64_t client = 0;
    uint64_t lease = 0;
    bool fresh = false;
    bool end = false;
    uint64_t ids = 0;
    uint64_t grant = 0;
    std::optional<RequestId> request = std::nullopt;
  };
  struct LeaseState {
    bool live = false;  // false: it has ended, and so have all its delegations
    std::vector<InodeId> recalled = {};
    InodeId first = 0;  // of the granted numbers; 0: none
  };
  Task<Result<LeaseState>> renew_lease(LeaseRenewal renewal);
  // The layout of a file that a client will create with a granted number.
  Result<Layout> new_file_layout(Layout wanted);
  // Delegates the directory to the lease; not if it has more than kDelegatedNamesMax names or the
  // lease has ended. Durable, since the client will rely on it without a further call.
  struct Delegation {
    bool granted = false;
    Inode dir = {};
    std::vector<DirEntry> entries = {};
  };
  Task<Result<Delegation>> delegate(uint64_t lease, InodeId dir);
  // Applies a batch exactly once: all of its operations, or none. is_lease_lost(): the lease has
  // ended. Refused: a directory is not delegated to the lease, or an inode number not granted to
  // it. Returns the directories that the client is to return.
  Task<Result<std::vector<InodeId>>> apply_batch(RequestId request, wire::BatchRequest batch);
  // For a server that recalls a delegation (delegation_recalls.h).
  struct HolderState {
    bool holds = false;  // the directory is still delegated to the lease
    bool ending = false;
    uint64_t beat = 0;
  };
  Task<Result<HolderState>> holder_state(DelegationConflict conflict);
  // Tells the holder with its next batch or renewal. Returns the number of the recall, which stays
  // the same until the directory is given back, whichever server asks.
  Task<Result<uint64_t>> mark_recalled(DelegationConflict conflict);
  Task<Result<void>> refuse_renewals(uint64_t lease);
  // Ends the lease if it has not been renewed since `beat`.
  Task<Result<void>> end_lease(uint64_t lease, uint64_t beat);

 private:
  using Body = std::function<Task<Result<Inode>>(kv::Txn&)>;
  Task<Result<void>> create_lease(LeaseRenewal renewal);
  // `reads`: keys that `body` reads in any case, for one round trip. `durable`: the change is
  // durable when this returns.
  Task<Result<Inode>> execute_once(RequestId request, std::vector<std::string> reads, Body body,
                                   bool durable = false);
  Task<Result<void>> change(kv::TxnFunction function);
  Task<Result<void>> view_inline(kv::TxnFunction function);
  Task<Result<bool>> truncation_pending(InodeId id, uint64_t truncate_seq);
  Task<Result<void>> view(kv::TxnFunction function);
  Task<Result<void>> check_tree_removal(Caller caller, InodeId root);
  struct DirectoryMoves;
  Task<Result<DirectoryMoves>> check_directory_moves(const Rename& rename);
  int64_t deadline() { return clock_.steady_ns() + options_.timeout_ns; }

  kv::Engine& engine_;
  Clock& clock_;
  const Options options_;
};

}  // namespace ff::meta
