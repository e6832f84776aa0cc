// The metadata service: it runs the operations of namespace.h for RPC clients, with the rights of
// the caller. It is stateless: any number of servers share one KV store. Owned by one loop.
//
// A server with several loops has one of them in each, with an engine of its own. They serve their
// clients independently, like several servers. The first one alone collects garbage, runs fsck,
// keeps the accounts of users and recalls delegations: a client that holds one waits for recalls in
// one place. The others ask it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/gate.h"
#include "storage/chain/chain_client.h"
#include "storage/cluster/stored_routing.h"
#include "storage/meta/delegation_recalls.h"
#include "storage/meta/file_chunks.h"
#include "storage/meta/fsck.h"
#include "storage/meta/garbage_collector.h"
#include "storage/meta/inode_id_allocator.h"
#include "storage/meta/namespace.h"
#include "storage/meta/service.h"
#include "storage/meta/user_store.h"

namespace ff::meta {

class MetaService {
 public:
  struct Options {
    std::optional<auth::Key> key = {};  // the root key
    std::function<bool()> primary;      // whether this server collects garbage
    int64_t collect_after_ns = 300 * kSecond;
    bool root_squash = false;      // map uid 0 to nobody (65534), even with the cluster key
    MetaService* first = nullptr;  // of the server's loops; null: this one
  };
  // All outlive it. `context`: for calls to storage nodes.
  MetaService(kv::Engine& engine, rpc::ClientContext& context, rpc::Router& router,
              Options options);
  // Call after close(), or once the loop has ended.
  ~MetaService();

  void start();
  // The first one last.
  Task<void> close();

 private:
  MetaService& first() { return options_.first == nullptr ? *this : *options_.first; }
  void add_methods(rpc::Router& router);
  struct EffectiveCaller;
  Task<Result<EffectiveCaller>> effective_caller(rpc::ServerCall& call, wire::Who who);
  static Result<void> check_may_change(const rpc::ServerCall& call);
  static std::string tagged(std::string_view tag, const EffectiveCaller& as, uint64_t number);
  Task<Result<InodeId>> top_of(auth::Entity holder);
  void enter_top(const EffectiveCaller& as, wire::Ref& from, std::string& path) const;
  Result<void> check_proof(const EffectiveCaller& as, const wire::Ref& ref) const;
  Task<Result<InodeId>> resolve(const EffectiveCaller& as, wire::Ref ref);
  Result<void> check_right(const EffectiveCaller& as, const std::string& capability, InodeId inode,
                           uint32_t right) const;
  Result<void> ready() const;
  std::string proof(const EffectiveCaller& as, InodeId inode) const;
  std::string capability(const EffectiveCaller& as, InodeId inode, uint32_t rights,
                         std::optional<SessionId> session) const;
  uint64_t client_of(const EffectiveCaller& as, uint64_t client) const;
  RequestId request_of(const EffectiveCaller& as, const wire::Request& request) const;
  std::optional<SessionId> session_of(const EffectiveCaller& as, bool there,
                                      const wire::Session& session) const;
  Task<Result<wire::InodeReply>> reply_for(EffectiveCaller as, Task<Result<Inode>> doing);
  Task<Result<wire::InodeReply>> reply_for_open(EffectiveCaller as, Task<Result<Inode>> doing,
                                                uint32_t rights, std::optional<SessionId> session);
  // Runs `function`, which changes something, and makes its refusal final.
  // Repeats `function` while another client holds the delegation of a directory that it needs.
  template <class Asked, class Reply, auto function>
  Task<Result<Reply>> undelegated(rpc::ServerCall& call, Asked request);
  // Runs `function` of the first service, in its loop.
  template <class Asked, class Reply, auto function>
  Task<Result<Reply>> at_first(rpc::ServerCall& call, Asked request);
  void on_progress(uint64_t lease);
  template <class Asked, auto function>
  Task<Result<wire::InodeReply>> change(rpc::ServerCall& call, Asked request);
  Task<Result<bool>> record_refusal(rpc::ServerCall& call, wire::Request request, Error error);
  void mark(wire::InodeReply& reply) const;
  Task<Result<Inode>> finish_truncation(Inode inode);
  Task<Result<void>> wait_for_table(cluster::TableId table);

  Task<Result<wire::InodeReply>> stat(rpc::ServerCall& call, wire::StatRequest request);
  Task<Result<wire::InodeReply>> lookup(rpc::ServerCall& call, wire::LookupRequest request);
  Task<Result<wire::WalkReply>> walk(rpc::ServerCall& call, wire::WalkRequest request);
  Task<Result<wire::ListReply>> list(rpc::ServerCall& call, wire::ListRequest request);
  Task<Result<wire::InodeReply>> create(rpc::ServerCall& call, wire::MakeRequest request);
  Task<Result<wire::InodeReply>> open(rpc::ServerCall& call, wire::OpenRequest request);
  Task<Result<wire::RenewReply>> renew(rpc::ServerCall& call, wire::RenewRequest request);
  Task<Result<wire::InodeReply>> link(rpc::ServerCall& call, wire::LinkRequest request);
  Task<Result<wire::InodeReply>> unlink(rpc::ServerCall& call, wire::RemoveRequest request);
  Task<Result<wire::InodeReply>> rmdir(rpc::ServerCall& call, wire::RemoveRequest request);
  Task<Result<wire::InodeReply>> remove_tree(rpc::ServerCall& call, wire::RemoveRequest request);
  Task<Result<wire::InodeReply>> rename(rpc::ServerCall& call, wire::RenameRequest request);
  Task<Result<wire::InodeReply>> set_attributes(rpc::ServerCall& call,
                                                wire::SetAttributesRequest request);
  Task<Result<wire::InodeReply>> set_layout(rpc::ServerCall& call, wire::SetLayoutRequest request);
  Task<Result<wire::GetXattrReply>> get_xattr(rpc::ServerCall& call, wire::GetXattrRequest request);
  Task<Result<wire::ListXattrsReply>> list_xattrs(rpc::ServerCall& call,
                                                  wire::ListXattrsRequest request);
  Task<Result<wire::InodeReply>> set_xattr(rpc::ServerCall& call, wire::SetXattrRequest request);
  Task<Result<wire::InodeReply>> truncate(rpc::ServerCall& call, wire::TruncateRequest request);
  Task<Result<wire::InodeReply>> report_length(rpc::ServerCall& call, wire::WroteRequest request);
  Task<Result<wire::InodeReply>> append(rpc::ServerCall& call, wire::AppendRequest request);
  Task<Result<wire::AliveReply>> renew_client(rpc::ServerCall& call, wire::AliveRequest request);
  Task<Result<wire::EndReply>> end_sessions(rpc::ServerCall& call, wire::EndRequest request);
  Task<Result<wire::SyncReply>> sync(rpc::ServerCall& call, wire::SyncRequest request);
  Task<Result<wire::LockReply>> lock(rpc::ServerCall& call, wire::LockRequest request);
  Result<void> check_may_delegate(const EffectiveCaller& as) const;
  Task<Result<wire::LeaseReply>> renew_lease(rpc::ServerCall& call, wire::LeaseRequest request);
  Task<Result<wire::DelegateReply>> delegate(rpc::ServerCall& call, wire::DelegateRequest request);
  Task<Result<wire::InodeReply>> apply_batch(rpc::ServerCall& call, wire::BatchRequest request);
  Task<Result<wire::RecallsReply>> recalls(rpc::ServerCall& call, wire::RecallsRequest request);
  Task<Result<wire::UserReply>> set_user(rpc::ServerCall& call, wire::AddUserRequest request);
  Task<Result<wire::UserReply>> token(rpc::ServerCall& call, wire::TokenRequest request);
  Task<Result<wire::ListUsersReply>> list_users(rpc::ServerCall& call,
                                                wire::ListUsersRequest request);
  Task<Result<wire::FsckReply>> fsck(rpc::ServerCall& call, wire::FsckRequest request);
  Task<void> prepare();
  void routing_changed();

  kv::Engine& engine_;
  Loop& loop_;
  const auth::Keyring* const keyring_;  // null: no key
  const Options options_;
  std::shared_ptr<const TableVersions> tables_;
  std::shared_ptr<const ChainUsage> chain_usage_;
  cluster::StoredRouting routing_;
  chain::ChainClient storage_;
  FileChunks chunks_;
  InodeIdAllocator ids_;
  Namespace namespace_;
  DelegationRecalls recalls_;
  UserStore users_;
  GarbageCollector collector_;
  Fsck fsck_;
  std::optional<Error> not_ready_;  // set until the root directory exists
  Gate gate_;
  Gate calls_;  // of the other services
};

}  // namespace ff::meta
