// The metadata service in a daemon: calls become operations on names (names.h) for the user that
// the caller is, or may act for. It keeps nothing itself: any number of them serve one store. Owned
// by one loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/gate.h"
#include "storage/chain/client.h"
#include "storage/cluster/stored_routing.h"
#include "storage/meta/chunks.h"
#include "storage/meta/collector.h"
#include "storage/meta/fsck.h"
#include "storage/meta/inode_ids.h"
#include "storage/meta/names.h"
#include "storage/meta/service.h"
#include "storage/meta/users.h"

namespace ff::meta {

class MetaService {
 public:
  struct Options {
    std::optional<auth::Key> key = {};  // the cluster's
    std::function<bool()> primary;      // whether this server does the cleaning up
    int64_t collect_after_ns = 300 * kSecond;
    bool root_squash = false;  // uid 0 of callers is nobody (65534), also of those with the key
  };
  // All outlive it. `context`: to storage nodes.
  MetaService(kv::Engine& engine, rpc::ClientContext& context, rpc::Router& router,
              Options options);
  // After close(), or with the loop at an end.
  ~MetaService();

  void start();
  Task<void> close();

 private:
  struct Acting;
  Task<Result<Acting>> acting(rpc::ServerCall& call, wire::Who who);
  Result<void> check_proof(const Acting& acting, const wire::Ref& ref) const;
  Task<Result<InodeId>> meant(const Acting& acting, wire::Ref ref);
  Result<void> check_right(rpc::ServerCall& call, const std::string& capability, InodeId inode,
                           uint32_t right) const;
  Result<void> ready() const;
  std::string proof(const Acting& acting, InodeId inode) const;
  std::string capability(InodeId inode, uint32_t rights) const;
  uint64_t client_of(const Acting& acting, uint64_t client) const;
  Request request_of(const Acting& acting, const wire::Request& request) const;
  std::optional<SessionId> session_of(const Acting& acting, bool there,
                                      const wire::Session& session) const;
  Task<Result<wire::InodeReply>> answer(Acting acting, Task<Result<Inode>> doing);
  Task<Result<wire::InodeReply>> answer_opened(Acting acting, Task<Result<Inode>> doing,
                                               uint32_t rights);
  // `function`, a change, whose refusal is final.
  template <class Asked, auto function>
  Task<Result<wire::InodeReply>> change(rpc::ServerCall& call, Asked request);
  Task<Result<bool>> give_up(rpc::ServerCall& call, wire::Request request, Error error);
  void mark(wire::InodeReply& reply) const;
  Task<Result<Inode>> settled(Inode inode);
  Task<Result<void>> know_table(cluster::TableId table);

  Task<Result<wire::InodeReply>> stat(rpc::ServerCall& call, wire::StatRequest request);
  Task<Result<wire::InodeReply>> lookup(rpc::ServerCall& call, wire::LookupRequest request);
  Task<Result<wire::WalkReply>> walk(rpc::ServerCall& call, wire::WalkRequest request);
  Task<Result<wire::ListReply>> list(rpc::ServerCall& call, wire::ListRequest request);
  Task<Result<wire::InodeReply>> make(rpc::ServerCall& call, wire::MakeRequest request);
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
  Task<Result<wire::InodeReply>> wrote(rpc::ServerCall& call, wire::WroteRequest request);
  Task<Result<wire::InodeReply>> append(rpc::ServerCall& call, wire::AppendRequest request);
  Task<Result<wire::AliveReply>> alive(rpc::ServerCall& call, wire::AliveRequest request);
  Task<Result<wire::EndReply>> end(rpc::ServerCall& call, wire::EndRequest request);
  Task<Result<wire::SyncReply>> sync(rpc::ServerCall& call, wire::SyncRequest request);
  Task<Result<wire::LockReply>> lock(rpc::ServerCall& call, wire::LockRequest request);
  Task<Result<wire::UserReply>> set_user(rpc::ServerCall& call, wire::AddUserRequest request);
  Task<Result<wire::UserReply>> token(rpc::ServerCall& call, wire::TokenRequest request);
  Task<Result<wire::ListUsersReply>> list_users(rpc::ServerCall& call,
                                                wire::ListUsersRequest request);
  Task<Result<wire::FsckReply>> fsck(rpc::ServerCall& call, wire::FsckRequest request);
  Task<void> prepare();
  void routing_changed();

  kv::Engine& engine_;
  Loop& loop_;
  const Options options_;
  std::shared_ptr<const Tables> tables_;
  std::shared_ptr<const Room> room_;
  cluster::StoredRouting routing_;
  chain::Client storage_;
  Chunks chunks_;
  InodeIds ids_;
  Names names_;
  Users users_;
  Collector collector_;
  Fsck fsck_;
  std::optional<Error> not_ready_;  // the root is not known to be there
  Gate gate_;
};

}  // namespace ff::meta
