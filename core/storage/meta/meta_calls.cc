// meta_calls.cc: the RPC handlers of the metadata service.
#include <cerrno>
#include <utility>

#include "platform/auth/keyring.h"
#include "platform/base/audit.h"
#include "storage/chain/capability.h"
#include "storage/meta/meta_service_effective_caller.h"
#include "storage/meta/namespace_steps.h"

namespace ff::meta {

namespace {

constexpr uint32_t kListMax = 4096;
// A capability that expired earlier cannot be renewed: the file must be opened again.
constexpr int64_t kRenewableNs = 3600 * kSecond;

std::optional<Layout> layout_of(const wire::MakeRequest& request) {
  if (!request.has_layout()) return std::nullopt;
  return from_wire(request.layout());
}

Error invalid_argument(std::string_view what, uint64_t value) {
  Error error = fail(Errc::usage, "{} {}", what, value);
  error.sys = EINVAL;
  return error;
}

}  // namespace

Task<Result<wire::InodeReply>> MetaService::stat(rpc::ServerCall& call, wire::StatRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(check_proof(as, request.inode()));
  const InodeId id = request.inode().inode();
  auto answering = reply_for(as, request.exact() ? namespace_.refresh_length(id, chunks_)
                                                 : namespace_.stat(id, as.caller));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::lookup(rpc::ServerCall& call,
                                                   wire::LookupRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.place().dir()));
  co_return co_await reply_for(as, namespace_.lookup(as.caller, dir, request.place().name()));
}

Task<Result<wire::WalkReply>> MetaService::walk(rpc::ServerCall& call, wire::WalkRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  wire::Ref from = request.from();
  std::string path = request.path();
  enter_top(as, from, path);
  FF_CO_TRY(check_proof(as, from));
  FF_CO_TRY(auto walked,
            co_await namespace_.walk(as.caller, from.inode(), std::move(path), request.follow()));
  wire::WalkReply reply;
  to_wire(walked.dir, *reply.mutable_dir());
  reply.set_dir_proof(proof(as, walked.dir.id));
  reply.set_name(walked.name);
  if (!walked.inode) co_return reply;
  FF_CO_TRY(const Inode inode, co_await finish_truncation(std::move(*walked.inode)));
  to_wire(inode, *reply.mutable_inode());
  reply.set_proof(proof(as, inode.id));
  co_return reply;
}

Task<Result<wire::ListReply>> MetaService::list(rpc::ServerCall& call, wire::ListRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.dir()));
  const uint32_t limit = std::min(request.limit(), kListMax);
  FF_CO_TRY(auto page, co_await namespace_.list(as.caller, dir, request.after(), limit,
                                                request.with_inodes()));
  wire::ListReply reply;
  for (Namespace::DirEntry& entry : page.entries) {
    wire::Listed& to = *reply.add_entries();
    to.set_name(entry.name);
    to.set_id(entry.id);
    to.set_kind(static_cast<uint32_t>(entry.kind));
    if (!entry.inode) continue;
    const auto inode = co_await finish_truncation(std::move(*entry.inode));
    if (!inode && inode.error().code == Errc::stale) continue;
    FF_CO_TRY(Result<void>(inode ? Result<void>() : inode.error()));
    to_wire(*inode, *to.mutable_inode());
    to.set_proof(proof(as, entry.id));
  }
  reply.set_end(page.end);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::create(rpc::ServerCall& call,
                                                   wire::MakeRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.place().dir()));
  if (request.kind() < 1 || request.kind() > static_cast<uint32_t>(InodeType::block)) {
    co_return invalid_argument("invalid inode kind", request.kind());
  }
  if (request.kind() == static_cast<uint32_t>(InodeType::file)) {
    const uint64_t table = request.layout().table();
    auto knowing = wait_for_table(table == 0 ? kDefaultTable : table);
    FF_CO_TRY(co_await std::move(knowing));
  }
  Namespace::CreateOptions create{
      .kind = static_cast<InodeType>(request.kind()),
      .mode = request.mode(),
      .target = request.target(),
      .device = request.device(),
      .layout = layout_of(request),
      .exclusive = request.exclusive(),
      .session = session_of(as, request.has_session(), request.session()),
      .rights = request.rights(),
      .chunk_size = request.chunk_size()};
  auto making = namespace_.create(as.caller, request_of(as, request.request()), dir,
                                  request.place().name(), std::move(create));
  const auto session = session_of(as, request.has_session(), request.session());
  co_return co_await reply_for_open(as, std::move(making), request.rights(), session);
}

Task<Result<wire::InodeReply>> MetaService::open(rpc::ServerCall& call, wire::OpenRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  if ((request.rights() & kMayWrite) != 0) {
    FF_CO_TRY(check_may_change(call));
  }
  FF_CO_TRY(const InodeId inode, co_await resolve(as, request.inode()));
  const auto session = session_of(as, request.has_session(), request.session());
  auto opening =
      namespace_.open(as.caller, inode, request.rights(), session, as.holder.has_value());
  co_return co_await reply_for_open(as, std::move(opening), request.rights(), session);
}

// The file stays open for what its mode still grants, and for writing as long as its session is
// live: a changed mode and a removed user take effect when the capability ends.
Task<Result<wire::RenewReply>> MetaService::renew(rpc::ServerCall& call,
                                                  wire::RenewRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  wire::RenewReply reply;
  if (!as.holder) co_return reply;
  const int64_t then_ns = loop_.clock().wall_ns() - kRenewableNs;
  FF_CO_TRY(chain::check_capability(*keyring_, request.capability(), *as.holder, request.inode(),
                                    chain::kRightRead, then_ns));
  FF_CO_TRY(const chain::Capability held,
            chain::verify_capability(*keyring_, request.capability()));
  if (held.uid != as.caller.uid) {
    co_return fail(Errc::refused, "user {} opened file {}, not user {}", held.uid, request.inode(),
                   as.caller.uid);
  }
  const SessionId session{.client = held.client, .number = held.session};
  if ((held.rights & chain::kRightWrite) != 0 && held.session != 0) {
    const auto writes =
        co_await namespace_.check_open_file(as.caller, request.inode(), kMayWrite, session);
    if (writes) {
      reply.set_capability(capability(as, request.inode(), kMayWrite, session));
      co_return reply;
    }
    if (writes.error().sys == 0) co_return writes.error();
  }
  std::optional<SessionId> none;
  FF_CO_TRY(co_await namespace_.check_open_file(as.caller, request.inode(), kMayRead, none));
  reply.set_capability(capability(as, request.inode(), kMayRead, std::nullopt));
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::link(rpc::ServerCall& call, wire::LinkRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId inode, co_await resolve(as, request.inode()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.place().dir()));
  co_return co_await reply_for(as, namespace_.link(as.caller, request_of(as, request.request()),
                                                   inode, dir, request.place().name()));
}

Task<Result<wire::InodeReply>> MetaService::unlink(rpc::ServerCall& call,
                                                   wire::RemoveRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.place().dir()));
  co_return co_await reply_for(
      as,
      namespace_.unlink(as.caller, request_of(as, request.request()), dir, request.place().name(),
                        session_of(as, request.has_holder(), request.holder())));
}

Task<Result<wire::InodeReply>> MetaService::rmdir(rpc::ServerCall& call,
                                                  wire::RemoveRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.place().dir()));
  co_return co_await reply_for(as, namespace_.rmdir(as.caller, request_of(as, request.request()),
                                                    dir, request.place().name()));
}

Task<Result<wire::InodeReply>> MetaService::remove_tree(rpc::ServerCall& call,
                                                        wire::RemoveRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.place().dir()));
  co_return co_await reply_for(
      as, namespace_.remove_tree(as.caller, request_of(as, request.request()), dir,
                                 request.place().name()));
}

Task<Result<wire::InodeReply>> MetaService::rename(rpc::ServerCall& call,
                                                   wire::RenameRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId from, co_await resolve(as, request.from().dir()));
  FF_CO_TRY(const InodeId to, co_await resolve(as, request.to().dir()));
  Namespace::Rename rename{.from_dir = from,
                           .from = request.from().name(),
                           .to_dir = to,
                           .to = request.to().name(),
                           .no_replace = request.no_replace(),
                           .exchange = request.exchange(),
                           .holder = session_of(as, request.has_holder(), request.holder())};
  co_return co_await reply_for(
      as, namespace_.rename(as.caller, request_of(as, request.request()), std::move(rename)));
}

Task<Result<wire::InodeReply>> MetaService::set_attributes(rpc::ServerCall& call,
                                                           wire::SetAttributesRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId inode, co_await resolve(as, request.inode()));
  const Namespace::Attributes to = attributes_of(request);
  co_return co_await reply_for(
      as, namespace_.set_attributes(as.caller, request_of(as, request.request()), inode, to));
}

Task<Result<wire::InodeReply>> MetaService::set_layout(rpc::ServerCall& call,
                                                       wire::SetLayoutRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId dir, co_await resolve(as, request.dir()));
  if (request.layout().table() != 0) {
    FF_CO_TRY(co_await wait_for_table(request.layout().table()));
  }
  co_return co_await reply_for(
      as, namespace_.set_layout(as.caller, request_of(as, request.request()), dir,
                                from_wire(request.layout())));
}

Task<Result<wire::GetXattrReply>> MetaService::get_xattr(rpc::ServerCall& call,
                                                         wire::GetXattrRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId inode, co_await resolve(as, request.inode()));
  FF_CO_TRY(auto value, co_await namespace_.get_xattr(as.caller, inode, request.name()));
  wire::GetXattrReply reply;
  if (value) reply.set_value(std::move(*value));
  co_return reply;
}

Task<Result<wire::ListXattrsReply>> MetaService::list_xattrs(rpc::ServerCall& call,
                                                             wire::ListXattrsRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(check_proof(as, request.inode()));
  FF_CO_TRY(const auto names, co_await namespace_.list_xattrs(request.inode().inode()));
  wire::ListXattrsReply reply;
  for (const std::string& name : names) reply.add_names(name);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::set_xattr(rpc::ServerCall& call,
                                                      wire::SetXattrRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(const InodeId inode, co_await resolve(as, request.inode()));
  if (request.mode() > static_cast<uint32_t>(Namespace::XattrMode::replace)) {
    co_return invalid_argument("invalid mode of setting attributes:", request.mode());
  }
  std::optional<std::string> value;
  if (request.has_value()) value = request.value();
  co_return co_await reply_for(
      as,
      namespace_.set_xattr(as.caller, request_of(as, request.request()), inode, request.name(),
                           std::move(value), static_cast<Namespace::XattrMode>(request.mode())));
}

Task<Result<wire::InodeReply>> MetaService::truncate(rpc::ServerCall& call,
                                                     wire::TruncateRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  InodeId id = request.inode().inode();
  if (request.opened()) {
    FF_CO_TRY(check_right(as, request.capability(), id, chain::kRightWrite));
  } else {
    FF_CO_TRY(id, co_await resolve(as, request.inode()));
  }
  co_return co_await reply_for(as, namespace_.truncate(as.caller, request_of(as, request.request()),
                                                       id, request.length(), request.opened()));
}

Task<Result<wire::InodeReply>> MetaService::report_length(rpc::ServerCall& call,
                                                          wire::WroteRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(check_right(as, request.capability(), request.inode(), chain::kRightWrite));
  const auto session = session_of(as, true, request.session());
  auto writing = namespace_.report_length(request.inode(), *session,
                                          {.min_length = request.end(),
                                           .truncate_seq = request.truncations(),
                                           .mtime_ns = request.mtime_ns(),
                                           .closed = request.closed(),
                                           .unstored = request.unstored()});
  FF_CO_TRY(const Inode inode, co_await std::move(writing));
  // The bytes may still exist: the truncation may have come before or after them.
  const bool counts = inode.truncate_seq == request.truncations();
  auto answering = reply_for(
      as, counts ? finish_truncation(inode) : namespace_.refresh_length(inode.id, chunks_));
  FF_CO_TRY(auto reply, co_await std::move(answering));
  mark(reply);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::append(rpc::ServerCall& call,
                                                   wire::AppendRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(check_right(as, request.capability(), request.inode(), chain::kRightWrite));
  for (;;) {
    auto answered = co_await reply_for(
        as, namespace_.append(request_of(as, request.request()), request.inode(), request.size()));
    if (answered || answered.error().code != Errc::busy) co_return answered;
    FF_CO_TRY(co_await namespace_.finish_truncation(request.inode(), chunks_));
  }
}

Task<Result<wire::AliveReply>> MetaService::renew_client(rpc::ServerCall& call,
                                                         wire::AliveRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(co_await namespace_.renew_client(client_of(as, request.client())));
  co_return wire::AliveReply();
}

Task<Result<wire::SyncReply>> MetaService::sync(rpc::ServerCall&, wire::SyncRequest request) {
  if (static_cast<size_t>(request.generations_size()) > kv::kGenerationsMax) {
    co_return invalid_argument("too many generations:",
                               static_cast<uint64_t>(request.generations_size()));
  }
  FF_CO_TRY(co_await namespace_.sync());
  wire::SyncReply reply;
  for (const uint64_t generation : request.generations()) {
    const auto position = engine_.durable_position(generation);
    if (!position) continue;
    wire::Mark& durable = *reply.add_durable();
    durable.set_generation(generation);
    durable.set_position(*position);
  }
  co_return reply;
}

Task<Result<wire::EndReply>> MetaService::end_sessions(rpc::ServerCall& call,
                                                       wire::EndRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  if (static_cast<size_t>(request.ended_size()) > kEndedSessionsMax) {
    co_return invalid_argument("too many sessions:", static_cast<uint64_t>(request.ended_size()));
  }
  std::vector<Namespace::EndedSession> ended;
  const uint64_t client = client_of(as, request.client());
  for (const auto& one : request.ended()) {
    ended.push_back({.inode = one.inode(), .session = {client, one.session()}});
  }
  FF_CO_TRY(co_await namespace_.end_sessions(std::move(ended)));
  co_return wire::EndReply();
}

// A client decides by itself only what it can check as this server would: whose users are whom, and
// the rights that the mode of an inode gives them.
Result<void> MetaService::check_may_delegate(const EffectiveCaller& as) const {
  if (!as.holder && !options_.root_squash) return {};
  return fail(Errc::unsupported, "this server delegates no directory to a client {}",
              as.holder ? "with a restricted key" : "whose root user it maps to nobody");
}

Task<Result<wire::LeaseReply>> MetaService::renew_lease(rpc::ServerCall& call,
                                                        wire::LeaseRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(check_may_delegate(as));
  const uint32_t ids = std::min(request.inodes(), kGrantedInodesMax);
  wire::LeaseReply reply;
  Layout wanted = from_wire(request.layout());
  if (ids > 0) {
    FF_CO_TRY(co_await wait_for_table(wanted.table == 0 ? kDefaultTable : wanted.table));
  }
  for (uint32_t i = 0; i < ids; i++) {
    FF_CO_TRY(const Layout layout, namespace_.new_file_layout(wanted));
    to_wire(layout, *reply.add_layouts());
  }
  std::optional<RequestId> creation;
  if (request.fresh() && request.has_request()) creation = request_of(as, request.request());
  const Namespace::LeaseRenewal renewal{.client = request.client(),
                                        .lease = request.lease(),
                                        .fresh = request.fresh(),
                                        .end = request.end(),
                                        .ids = ids,
                                        .grant = request.grant(),
                                        .request = creation};
  FF_CO_TRY(const auto state, co_await namespace_.renew_lease(renewal));
  if (request.end()) on_progress(request.lease());
  reply.set_live(state.live);
  reply.set_now_ns(loop_.clock().wall_ns());
  for (const InodeId dir : state.recalled) reply.add_recalled(dir);
  reply.set_first(state.first);
  if (state.first == 0) reply.clear_layouts();
  co_return reply;
}

Task<Result<wire::DelegateReply>> MetaService::delegate(rpc::ServerCall& call,
                                                        wire::DelegateRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(check_may_delegate(as));
  wire::DelegateReply reply;
  if (recalls_.contended(request.dir())) co_return reply;
  auto asked = co_await namespace_.delegate(request.lease(), request.dir());
  if (!asked && delegation_conflict(asked.error())) co_return reply;  // another client has it
  FF_CO_TRY(const auto made, std::move(asked));
  if (!made.granted) co_return reply;
  reply.set_granted(true);
  to_wire(made.dir, *reply.mutable_dir());
  for (const Namespace::DirEntry& entry : made.entries) {
    wire::Listed& to = *reply.add_entries();
    to.set_name(entry.name);
    to.set_id(entry.id);
    to.set_kind(static_cast<uint32_t>(entry.kind));
  }
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::apply_batch(rpc::ServerCall& call,
                                                        wire::BatchRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(check_may_delegate(as));
  const uint64_t lease = request.lease();
  const RequestId id = request_of(as, request.request());
  FF_CO_TRY(const auto recalled, co_await namespace_.apply_batch(id, std::move(request)));
  on_progress(lease);
  wire::InodeReply reply;
  for (const InodeId dir : recalled) reply.add_recalled(dir);
  co_return reply;
}

Task<Result<wire::RecallsReply>> MetaService::recalls(rpc::ServerCall& call,
                                                      wire::RecallsRequest request) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  FF_CO_TRY(check_may_delegate(as));
  FF_CO_TRY(const auto recalled, co_await recalls_.wait(request.lease()));
  wire::RecallsReply reply;
  for (const InodeId dir : recalled) reply.add_recalled(dir);
  co_return reply;
}

Task<Result<wire::LockReply>> MetaService::lock(rpc::ServerCall& call, wire::LockRequest request) {
  FF_CO_TRY(const EffectiveCaller as, co_await effective_caller(call, request.who()));
  FF_CO_TRY(check_proof(as, request.inode()));
  const SessionId owner = *session_of(as, true, request.owner());
  wire::LockReply reply;
  if (request.release()) {
    FF_CO_TRY(co_await namespace_.unlock(request.inode().inode(), owner));
    co_return reply;
  }
  FF_CO_TRY(const bool held, co_await namespace_.lock(as.caller, request.inode().inode(), owner));
  reply.set_held(held);
  co_return reply;
}

namespace {

void to_wire(const UserAccount& user, wire::User& out) {
  out.set_uid(user.uid);
  out.set_name(user.name);
  out.set_gid(user.gid);
  for (const uint32_t group : user.groups) out.add_groups(group);
  for (const uint64_t serial : user.serials) out.add_serials(serial);
}

}  // namespace

Task<Result<wire::UserReply>> MetaService::set_user(rpc::ServerCall&,
                                                    wire::AddUserRequest request) {
  FF_CO_TRY(ready());
  UserAccount user{.uid = request.user().uid(),
                   .name = request.user().name(),
                   .gid = request.user().gid(),
                   .groups = {request.user().groups().begin(), request.user().groups().end()}};
  FF_CO_TRY(const UserAccount set, co_await users_.set(std::move(user)));
  wire::UserReply reply;
  to_wire(set, *reply.mutable_user());
  co_return reply;
}

Task<Result<wire::UserReply>> MetaService::token(rpc::ServerCall& call,
                                                 wire::TokenRequest request) {
  const auto& peer = call.peer().entity;
  const std::string by = peer ? peer->full_name() : call.peer().address;
  FF_CO_TRY(ready());
  wire::UserReply reply;
  if (request.revoke()) {
    FF_CO_TRY(co_await users_.remove(request.uid()));
    audit("user removed", by, {{"uid", request.uid()}});
    co_return reply;
  }
  if (!options_.key) {
    Error error = fail(Errc::refused, "this cluster has no key, so it cannot issue tokens");
    error.hint = std::string("Start serve-meta and serve-storage with --key.");
    co_return error;
  }
  FF_CO_TRY(const UserAccount user, co_await users_.add_token(request.uid()));
  audit("token created", by, {{"uid", user.uid}, {"serial", user.serials.back()}});
  to_wire(user, *reply.mutable_user());
  auth::Entity entity{.role = auth::Role::user,
                      .name = entity_name(user),
                      .serial = user.serials.back(),
                      .generation = keyring_->revocations()->generation,
                      .uids = {{user.uid, user.uid}}};
  std::string text = auth::make_key_text(*options_.key, entity);
  text.pop_back();  // whoever prints it adds the newline
  reply.set_token(std::move(text));
  co_return reply;
}

Task<Result<wire::ListUsersReply>> MetaService::list_users(rpc::ServerCall&,
                                                           wire::ListUsersRequest) {
  FF_CO_TRY(ready());
  FF_CO_TRY(const auto users, co_await users_.list());
  wire::ListUsersReply reply;
  for (const UserAccount& user : users) to_wire(user, *reply.add_users());
  co_return reply;
}

Task<Result<wire::FsckReply>> MetaService::fsck(rpc::ServerCall&, wire::FsckRequest request) {
  FF_CO_TRY(ready());
  auto running =
      fsck_.run({.repair = request.repair(), .orphans_after_ns = request.orphans_after_ns()});
  FF_CO_TRY(const FsckReport report, co_await std::move(running));
  wire::FsckReply reply;
  reply.set_inodes(report.inodes);
  reply.set_directories(report.directories);
  reply.set_names(report.names);
  reply.set_garbage(report.garbage);
  reply.set_sessions(report.sessions);
  reply.set_stored(report.stored_files);
  reply.set_problems(report.problems);
  for (const FsckProblem& problem : report.reported) {
    wire::Problem& to = *reply.add_told();
    to.set_kind(std::string(name_of(problem.kind)));
    to.set_inode(problem.inode);
    to.set_text(problem.text);
    to.set_repaired(problem.repaired);
  }
  co_return reply;
}

}  // namespace ff::meta
