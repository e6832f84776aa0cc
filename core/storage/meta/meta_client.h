// The file system's names from afar: the operations of names.h as calls to any of the servers. A
// call is tried at one server after the other until it is answered or its time is over; a change is
// done once all the same (names.h). Owned by one loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/backoff.h"
#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/rpc/client.h"
#include "storage/meta/names.h"
#include "storage/meta/pending.h"
#include "storage/meta/service.h"

namespace ff::meta {

// An inode as a caller may name it: with the proof that the servers gave (service.h).
struct Ref {
  InodeId id = 0;
  std::string proof = {};
  // Not empty: a path from there, over symbolic links, to what is meant; the server walks it. For
  // calls that say who asks.
  std::string way = {};
};
inline Ref root() { return {.id = kRoot}; }

struct Seen {
  Inode inode;
  std::string proof = {};
  std::string capability = {};  // of a user who has opened it
  Ref ref() const { return {inode.id, proof}; }
};

class MetaClient {
 public:
  // Told of what servers have answered and lost, for each inode whose fsync(2) would have made it
  // durable.
  using Lost = std::function<void(InodeId, Error)>;
  // At least one server; `context` outlives it.
  MetaClient(
      rpc::ClientContext& context, const std::vector<net::Address>& servers,
      Lost lost = [](InodeId, Error) {});

  // Ends all calls and says goodbye.
  Task<void> close();

  // In all, for a call; a truncation has longer, as it may have much to remove.
  static constexpr int64_t kPatienceNs = 60 * kSecond;
  static constexpr int64_t kCutNs = 900 * kSecond;
  static constexpr int64_t kFsckNs = 3600 * kSecond;

  struct Walked {
    Seen dir;
    std::string name;
    std::optional<Seen> found;
  };
  struct Listed {
    std::string name;
    InodeId id = 0;
    Kind kind = Kind::file;
    std::optional<Seen> seen;
  };
  struct Page {
    std::vector<Listed> entries;
    bool end = false;
  };
  // A new session of this client.
  SessionId new_session() { return {client_, ++sessions_}; }

  // As their namesakes in names.h.
  Task<Result<Seen>> stat(Ref inode, bool exact);
  Task<Result<Seen>> lookup(Caller caller, Ref dir, std::string name);
  Task<Result<Walked>> walk(Caller caller, Ref from, std::string path, bool follow);
  Task<Result<Page>> list(Caller caller, Ref dir, std::string after, uint32_t limit,
                          bool with_inodes);
  Task<Result<Seen>> make(Caller caller, Ref dir, std::string name, Names::Make make);
  Task<Result<Seen>> open(Caller caller, Ref inode, uint32_t rights,
                          std::optional<SessionId> session);
  Task<Result<std::string>> renew(InodeId inode, std::string capability);
  Task<Result<Seen>> link(Caller caller, Ref inode, Ref dir, std::string name);
  Task<Result<Seen>> unlink(Caller caller, Ref dir, std::string name,
                            std::optional<SessionId> holder);
  Task<Result<Seen>> rmdir(Caller caller, Ref dir, std::string name);
  Task<Result<Seen>> remove_tree(Caller caller, Ref dir, std::string name);
  struct Rename {
    Ref from_dir;
    std::string from;
    Ref to_dir;
    std::string to;
    bool no_replace = false;
    bool exchange = false;
    std::optional<SessionId> holder = {};
  };
  Task<Result<Seen>> rename(Caller caller, Rename rename);
  Task<Result<Seen>> set_attributes(Caller caller, Ref inode, Names::Attributes to);
  Task<Result<Seen>> set_layout(Caller caller, Ref dir, Layout layout);
  Task<Result<std::optional<std::string>>> get_xattr(Caller caller, Ref inode, std::string name);
  Task<Result<std::vector<std::string>>> list_xattrs(Ref inode);
  Task<Result<Seen>> set_xattr(Caller caller, Ref inode, std::string name,
                               std::optional<std::string> value, Names::XattrMode mode);
  // `capability`: of a file that is open for writing; nothing: it is not open, the mode decides.
  Task<Result<Seen>> truncate(Caller caller, Ref inode, uint64_t length,
                              std::optional<std::string> capability);
  Task<Result<Seen>> wrote(InodeId inode, SessionId session, Names::Written written,
                           std::string capability);
  Task<Result<Seen>> append(InodeId inode, uint64_t size, std::string capability);
  // What was changed before is durable. What servers have lost (pending.h) is told before this
  // returns, which is no error of its own; lengths are told to them again.
  Task<Result<void>> sync();
  // Whether something may not be durable.
  bool unsynced() const { return !pending_.empty() || !lost_lengths_.empty(); }
  // At most kEndMax.
  Task<Result<void>> end(std::vector<Names::Ended> ended);
  // Names::lock(), unlock(): `owner` is a new session.
  Task<Result<bool>> lock(Caller caller, Ref inode, SessionId owner);
  Task<Result<void>> unlock(Ref inode, SessionId owner);

  // The operator's.
  Task<Result<wire::UserReply>> set_user(wire::User user);
  Task<Result<wire::UserReply>> token(uint32_t uid, bool revoke);
  Task<Result<std::vector<wire::User>>> users();
  // fsck.h. Repairs are the same when they are asked for twice.
  Task<Result<wire::FsckReply>> fsck(bool repair, int64_t orphans_after_ns);

 private:
  class Slot;
  struct Attempt;
  template <class Asked, class Reply>
  Task<Result<Reply>> call(rpc::Method<Asked, Reply> method, Asked request,
                           int64_t patience_ns = kPatienceNs, int64_t try_ns = kTryNs);
  // The same with a request of its own. `refs`: what it changes.
  template <class Asked>
  Task<Result<Seen>> change(rpc::Method<Asked, wire::InodeReply> method, Asked request,
                            Pending::Action action, std::vector<Ref> refs,
                            int64_t patience_ns = kPatienceNs, int64_t try_ns = kTryNs);
  Task<Result<Seen>> tell(Pending::Told told);
  Task<Result<void>> tell_again();
  void tell_lost(const std::vector<Pending::Change>& changes, const std::string& why);
  template <class Asked>
  Task<Result<Seen>> look(rpc::Method<Asked, wire::InodeReply> method, Asked request);
  Task<Result<void>> failed(Error error, size_t server, Attempt& attempt);
  Task<Result<void>> introduce();
  Task<void> stay_alive();

  static constexpr int64_t kTryNs = 8 * kSecond;

  rpc::ClientContext& context_;
  Loop& loop_;
  std::vector<std::unique_ptr<rpc::Client>> servers_;
  size_t at_;  // the server that answered last
  const uint64_t client_;
  uint64_t sessions_ = 0;
  bool introduced_ = false;
  Semaphore introducing_;
  Semaphore slots_;
  Pending pending_;
  const Lost lost_;
  std::deque<Pending::Change> lost_lengths_;  // until they are told again
  Semaphore telling_;
  std::vector<uint64_t> sequences_;  // of the slots' last requests
  std::vector<uint32_t> free_;       // slots
  Gate gate_;
};

}  // namespace ff::meta
