// A metadata client that holds directory delegations: it answers calls from client/delegations.h
// where it can, and sends its changes in batches, at most kSendNs after it has answered them. All
// other calls first wait until the changes that they depend on are sent.
//
// If a server refuses a change of a batch, or the lease ends before changes are sent, these changes
// are lost: OnLost gets the error of each inode, as for changes that a server has lost
// (meta/uncommitted_changes.h), and the next fsync(2) reports it.
//
// With a recovery table, a successor of the process sends what was answered (restore()), and gives
// the delegations back. Owned by one loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "storage/client/delegations.h"
#include "storage/meta/meta_client.h"

namespace ff::client {

class DelegatingMetaClient final : public meta::MetaClient {
 public:
  // How long an answered change may wait for others.
  static constexpr int64_t kSendNs = 5 * kMillisecond;

  // `recovery`: may be null. `enabled`: asks for delegations; otherwise it is an ordinary client.
  DelegatingMetaClient(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                       OnLost on_lost, RecoveryTable* recovery, bool enabled);

  // Sends what the predecessor has answered; its lease continues until end_lease(). Call it before
  // any other call.
  Task<Result<void>> restore();
  // Gives all delegations back, if all changes are applied and a server answers soon.
  Task<void> end_lease();

  // Sends all changes and gives all delegations back, if servers answer soon.
  Task<void> close() override;

  size_t delegations() const { return delegations_.held(); }
  // Changes that were answered but not applied by a server yet.
  size_t pending_changes() const { return delegations_.last_change() - delegations_.applied(); }
  // Whether it would answer a length report of this file by itself: no other client can see it.
  bool owns(meta::InodeId inode) const { return delegations_.owns(inode); }
  // `store` stores the bytes of the files whose lengths are about to be sent. It returns those for
  // which storage has no room: their lengths are not sent.
  using Store = std::function<Task<Result<std::vector<meta::InodeId>>>(std::vector<meta::InodeId>)>;
  // `prepare` is awaited before each delegation, `lost` is called when the lease has ended.
  void on_bytes(std::function<Task<void>()> prepare, Store store, std::function<void()> lost) {
    prepare_ = std::move(prepare);
    store_ = std::move(store);
    lost_ = std::move(lost);
  }
  // Ends a session of a file that a batch opens. False: a server must end it.
  bool end_session(const meta::Namespace::EndedSession& ended);

  meta::SessionId new_session(uint64_t origin = 0) override;
  bool awaits(meta::SessionId session) const override;
  void end_origin(uint64_t origin) override;
  void end_restored_origins() override;

  Task<Result<meta::InodeView>> stat(meta::InodeRef inode, bool exact) override;
  Task<Result<meta::InodeView>> lookup(meta::Caller caller, meta::InodeRef dir,
                                       std::string name) override;
  Task<Result<WalkResult>> walk(meta::Caller caller, meta::InodeRef from, std::string path,
                                bool follow) override;
  Task<Result<DirPage>> list(meta::Caller caller, meta::InodeRef dir, std::string after,
                             uint32_t limit, bool with_inodes) override;
  Task<Result<meta::InodeView>> create(meta::Caller caller, meta::InodeRef dir, std::string name,
                                       meta::Namespace::CreateOptions create) override;
  Task<Result<meta::InodeView>> open(meta::Caller caller, meta::InodeRef inode, uint32_t rights,
                                     std::optional<meta::SessionId> session) override;
  Task<Result<meta::InodeView>> link(meta::Caller caller, meta::InodeRef inode, meta::InodeRef dir,
                                     std::string name) override;
  Task<Result<meta::InodeView>> unlink(meta::Caller caller, meta::InodeRef dir, std::string name,
                                       std::optional<meta::SessionId> holder) override;
  Task<Result<meta::InodeView>> rmdir(meta::Caller caller, meta::InodeRef dir,
                                      std::string name) override;
  Task<Result<meta::InodeView>> remove_tree(meta::Caller caller, meta::InodeRef dir,
                                            std::string name) override;
  Task<Result<meta::InodeView>> rename(meta::Caller caller, Rename rename) override;
  Task<Result<meta::InodeView>> set_attributes(meta::Caller caller, meta::InodeRef inode,
                                               meta::Namespace::Attributes to) override;
  Task<Result<meta::InodeView>> set_layout(meta::Caller caller, meta::InodeRef dir,
                                           meta::Layout layout) override;
  Task<Result<std::optional<std::string>>> get_xattr(meta::Caller caller, meta::InodeRef inode,
                                                     std::string name) override;
  Task<Result<std::vector<std::string>>> list_xattrs(meta::InodeRef inode) override;
  Task<Result<meta::InodeView>> set_xattr(meta::Caller caller, meta::InodeRef inode,
                                          std::string name, std::optional<std::string> value,
                                          meta::Namespace::XattrMode mode) override;
  Task<Result<meta::InodeView>> truncate(meta::Caller caller, meta::InodeRef inode, uint64_t length,
                                         std::optional<std::string> capability) override;
  Task<Result<meta::InodeView>> report_length(meta::InodeId inode, meta::SessionId session,
                                              meta::Namespace::LengthReport report,
                                              std::string capability) override;
  Task<Result<meta::InodeView>> append(meta::InodeId inode, uint64_t size, std::string capability,
                                       uint64_t origin) override;
  Task<Result<void>> sync() override;
  Task<Result<void>> end_sessions(std::vector<meta::Namespace::EndedSession> ended) override;
  Task<Result<bool>> lock(meta::Caller caller, meta::InodeRef inode,
                          meta::SessionId owner) override;

 private:
  using Names = std::vector<Delegations::Name>;
  // Decides what the names of a change refer to after it, from the inode that it returned.
  using Outcome = std::vector<meta::Dentry> (*)(const meta::Inode& inode);

  Task<Result<void>> settle(std::vector<meta::InodeId> inodes);
  Task<Result<void>> settle_one(meta::InodeId inode) { return settle({inode}); }
  Task<Result<void>> settle_all() { return wait_applied(delegations_.last_change()); }
  Task<Result<void>> wait_applied(uint64_t number);
  template <class Reply>
  Task<Result<Reply>> settled(std::vector<meta::InodeId> inodes, bool all,
                              Task<Result<Reply>> calling);
  Task<Result<meta::InodeView>> inode_change(meta::InodeRef inode,
                                             Task<Result<meta::InodeView>> calling);
  Task<Result<meta::InodeView>> name_change(Names names, Outcome outcome,
                                            Task<Result<meta::InodeView>> calling);
  Task<Result<meta::InodeView>> fetch(meta::InodeRef inode, bool exact);
  Task<Result<meta::InodeView>> resolve(meta::Caller caller, meta::InodeRef dir, std::string name);
  void give_all_back();
  Task<Result<meta::InodeView>> answered(Result<meta::InodeView> answer);
  // What the predecessor has answered to this request, which the kernel repeats.
  using Operation = ChangeJournal::Operation;
  std::optional<ChangeJournal::Answered> before(uint64_t origin, Operation::WhatCase what) const {
    return delegations_.journal().answered(origin, what);
  }
  Task<Result<meta::InodeView>> repeated(ChangeJournal::Answered answer);
  bool answers(const meta::InodeRef& ref) const { return enabled_ && ref.path.empty(); }

  void wake_sender();
  Task<void> send_changes();
  Task<void> send_batch();
  Task<Result<void>> store_bytes(Delegations::Batch& batch);
  Task<Result<void>> send(Delegations::Batch& batch);
  Task<void> send_singly(Delegations::Batch batch);
  void lose();

  Task<void> ask_for(meta::InodeId dir);
  Task<Result<void>> start_lease();
  Task<Result<void>> renew_own_lease(bool fresh, std::optional<meta::Layout> ids_of);
  Task<void> keep_lease(uint64_t lease);
  Task<void> watch_recalls(uint64_t lease, size_t server);
  Task<void> fetch_ids();

  bool enabled_;
  Delegations delegations_;
  Semaphore starting_;
  Event changed_;  // there is something to send
  Event urgent_;   // somebody waits for it
  Event applied_;
  bool fetching_ids_ = false;
  std::function<Task<void>()> prepare_;
  Store store_;
  std::function<void()> lost_;
  bool restoring_ = false;  // nothing is given back before the bytes of the predecessor are stored
  Gate gate_;
};

}  // namespace ff::client
