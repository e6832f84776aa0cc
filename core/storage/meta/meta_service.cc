// meta_service.cc: identifies callers, checks their rights and builds replies. The handlers are in
// meta_calls.cc.
#include "storage/meta/meta_service.h"

#include <array>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/run_on.h"
#include "platform/base/text.h"
#include "storage/chain/capability.h"
#include "storage/meta/meta_service_effective_caller.h"

namespace ff::meta {

namespace {

constexpr size_t kProofBytes = 16;
constexpr uint32_t kNobodyUser = 65534;

}  // namespace

// A key that may only read changes nothing.
Result<void> MetaService::check_may_change(const rpc::ServerCall& call) {
  const auto& entity = call.peer().entity;
  if (!entity || !entity->read_only) return {};
  return errno_error(EROFS, fmt::format("the key of {} is read-only", entity->full_name()));
}

template <class Asked, auto function>
Task<Result<wire::InodeReply>> MetaService::change(rpc::ServerCall& call, Asked request) {
  FF_CO_TRY(check_may_change(call));
  auto done = co_await (this->*function)(call, request);
  if (!done && !is_retryable(done.error()) && request.request().again()) {
    FF_CO_TRY(const bool recorded, co_await record_refusal(call, request.request(), done.error()));
    if (recorded) co_return done;
    // An earlier attempt has applied it meanwhile: return the stored reply.
    done = co_await (this->*function)(call, std::move(request));
  }
  if (done) mark(*done);
  co_return done;
}

template <class Asked, class Reply, auto function>
Task<Result<Reply>> MetaService::undelegated(rpc::ServerCall& call, Asked request) {
  for (;;) {
    auto done = co_await (this->*function)(call, request);
    if (done) co_return done;
    const auto conflict = delegation_conflict(done.error());
    if (!conflict) co_return done;
    auto recalling = first().recalls_.recall(*conflict);
    FF_CO_TRY(co_await run_on(loop_, first().calls_, std::move(recalling)));
  }
}

template <class Asked, class Reply, auto function>
Task<Result<Reply>> MetaService::at_first(rpc::ServerCall& call, Asked request) {
  if (options_.first == nullptr) co_return co_await (this->*function)(call, std::move(request));
  auto handling = (first().*function)(call, std::move(request));
  co_return co_await call.hand_over(first().calls_, std::move(handling));
}

void MetaService::on_progress(uint64_t lease) {
  MetaService& of = first();
  if (&of == this) return recalls_.on_progress(lease);
  of.loop_.post([&of, lease] { of.recalls_.on_progress(lease); });
}

// The commit position of the change, or a slightly later one.
void MetaService::mark(wire::InodeReply& reply) const {
  const kv::CommitPosition position = engine_.last_commit();
  if (position.generation == 0) return;
  reply.mutable_mark()->set_generation(position.generation);
  reply.mutable_mark()->set_position(position.position);
}

Task<Result<bool>> MetaService::record_refusal(rpc::ServerCall& call, wire::Request request,
                                               Error error) {
  auto who = effective_caller(call, {});
  FF_CO_TRY(const EffectiveCaller as, co_await std::move(who));
  co_return co_await namespace_.record_refusal(request_of(as, request), std::move(error));
}

MetaService::MetaService(kv::Engine& engine, rpc::ClientContext& context, rpc::Router& router,
                         Options options)
    : engine_(engine),
      loop_(context.loop),
      keyring_(context.transport.keyring()),
      options_(std::move(options)),
      tables_(std::make_shared<TableVersions>()),
      chain_usage_(std::make_shared<ChainUsage>()),
      routing_(engine, context.loop, [this] { routing_changed(); }),
      storage_(context, routing_.routing(), [this] { routing_.refresh(); }),
      chunks_(storage_, routing_.routing(), context.loop),
      ids_(engine, context.loop),
      namespace_(engine, context.loop.clock(),
                 {.ids = ids_,
                  .rng = context.rng,
                  .tables = [this] { return tables_; },
                  .usage = [this] { return chain_usage_; }}),
      recalls_(namespace_, context.loop, context.metrics),
      users_(engine, context.loop.clock(),
             options_.first == nullptr ? std::make_shared<UserCache>()
                                       : options_.first->users_.cache()),
      collector_(engine, namespace_, chunks_, context.loop, context.metrics,
                 {.delay_ns = options_.collect_after_ns,
                  .needs_space = [this] { return any_nearly_full(*chain_usage_); },
                  .active = options_.primary}),
      fsck_(engine, storage_, chunks_, routing_.routing(), ids_, context.loop),
      not_ready_(fail(Errc::unreachable, "the metadata service is starting")),
      gate_(context.loop),
      calls_(context.loop) {
  add_methods(router);
}

void MetaService::add_methods(rpc::Router& router) {
  const auto add = [&](auto method, auto function) {
    rpc::add_method(router, method, *this, function, auth::kFileClients);
  };
  const auto add_change = [&]<class Asked, auto function>(auto method) {
    add(method,
        &MetaService::undelegated<Asked, wire::InodeReply, &MetaService::change<Asked, function>>);
  };
  add(kStat, &MetaService::undelegated<wire::StatRequest, wire::InodeReply, &MetaService::stat>);
  add(kLookup,
      &MetaService::undelegated<wire::LookupRequest, wire::InodeReply, &MetaService::lookup>);
  add(kWalk, &MetaService::undelegated<wire::WalkRequest, wire::WalkReply, &MetaService::walk>);
  add(kList, &MetaService::undelegated<wire::ListRequest, wire::ListReply, &MetaService::list>);
  add_change.template operator()<wire::MakeRequest, &MetaService::create>(kCreate);
  add(kOpen, &MetaService::undelegated<wire::OpenRequest, wire::InodeReply, &MetaService::open>);
  add(kRenew, &MetaService::renew);
  add_change.template operator()<wire::LinkRequest, &MetaService::link>(kLink);
  add_change.template operator()<wire::RemoveRequest, &MetaService::unlink>(kUnlink);
  add_change.template operator()<wire::RemoveRequest, &MetaService::rmdir>(kRmdir);
  add_change.template operator()<wire::RemoveRequest, &MetaService::remove_tree>(kRemoveTree);
  add_change.template operator()<wire::RenameRequest, &MetaService::rename>(kRename);
  add_change.template operator()<wire::SetAttributesRequest, &MetaService::set_attributes>(
      kSetAttributes);
  add_change.template operator()<wire::SetLayoutRequest, &MetaService::set_layout>(kSetLayout);
  add(kGetXattr, &MetaService::undelegated<wire::GetXattrRequest, wire::GetXattrReply,
                                           &MetaService::get_xattr>);
  add(kListXattrs, &MetaService::undelegated<wire::ListXattrsRequest, wire::ListXattrsReply,
                                             &MetaService::list_xattrs>);
  add_change.template operator()<wire::SetXattrRequest, &MetaService::set_xattr>(kSetXattr);
  add_change.template operator()<wire::TruncateRequest, &MetaService::truncate>(kTruncate);
  add(kReportLength, &MetaService::report_length);
  add(kAppend, &MetaService::change<wire::AppendRequest, &MetaService::append>);
  add(kRenewClient, &MetaService::renew_client);
  add(kEndSessions, &MetaService::end_sessions);
  add(kLock, &MetaService::lock);
  add(kSync, &MetaService::sync);
  add(kRenewLease, &MetaService::renew_lease);
  add(kDelegate,
      &MetaService::at_first<wire::DelegateRequest, wire::DelegateReply, &MetaService::delegate>);
  add(kApplyBatch, &MetaService::change<wire::BatchRequest, &MetaService::apply_batch>);
  add(kRecalls,
      &MetaService::at_first<wire::RecallsRequest, wire::RecallsReply, &MetaService::recalls>);
  rpc::add_method(
      router, kSetUser, *this,
      &MetaService::at_first<wire::AddUserRequest, wire::UserReply, &MetaService::set_user>);
  rpc::add_method(router, kToken, *this,
                  &MetaService::at_first<wire::TokenRequest, wire::UserReply, &MetaService::token>);
  rpc::add_method(router, kListUsers, *this,
                  &MetaService::at_first<wire::ListUsersRequest, wire::ListUsersReply,
                                         &MetaService::list_users>);
  rpc::add_method(
      router, kFsck, *this,
      &MetaService::at_first<
          wire::FsckRequest, wire::FsckReply,
          &MetaService::undelegated<wire::FsckRequest, wire::FsckReply, &MetaService::fsck>>);
}

MetaService::~MetaService() = default;

void MetaService::start() {
  gate_.spawn(routing_.run());
  gate_.spawn(prepare());
  if (options_.first == nullptr) gate_.spawn(collector_.run());
}

Task<void> MetaService::close() {
  Error reason = fail(Errc::interrupted, "the metadata service is shutting down");
  Error same = reason;
  co_await gate_.close(std::move(reason));
  co_await calls_.close(std::move(same));
  co_await storage_.close();
}

void MetaService::routing_changed() {
  auto tables = std::make_shared<TableVersions>();
  for (const auto& [key, table] : routing_.routing().tables) (*tables)[key.first] = key.second;
  tables_ = std::move(tables);
  chain_usage_ =
      std::make_shared<ChainUsage>(chain_usage_of(routing_.routing(), routing_.utilization()));
  storage_.on_routing_change();
}

// Creates the root once the cluster is initialized: before that, an operator may restore a backup.
Task<void> MetaService::prepare() {
  constexpr int64_t kAgainNs = 100 * kMillisecond;
  for (;;) {
    if (routing_.routing().version > 0) {
      auto made = co_await namespace_.create_root();
      if (made) break;
      not_ready_ = std::move(made).error();
    } else {
      not_ready_ = fail(Errc::unreachable, "the cluster is not initialized");
      not_ready_->hint = "Initialize it: ff admin init";
    }
    const auto waited = co_await sleep_for(loop_, kAgainNs);
    if (!waited) co_return;
  }
  not_ready_.reset();
}

Result<void> MetaService::ready() const {
  if (not_ready_) return *not_ready_;
  return {};
}

Task<Result<MetaService::EffectiveCaller>> MetaService::effective_caller(rpc::ServerCall& call,
                                                                         wire::Who who) {
  FF_CO_TRY(ready());
  EffectiveCaller as{.holder = {}, .caller = {}};
  if (!call.peer().trusted()) as.holder = call.peer().entity;
  if (const auto user = call.peer().user()) {
    FF_CO_TRY(as.caller, co_await users_.caller_of(*user));
  } else {
    if (who.groups_size() > static_cast<int>(kGroupsMax)) {
      co_return fail(Errc::usage, "the caller has too many groups: {}", who.groups_size());
    }
    as.caller.uid = who.uid();
    as.caller.gid = who.gid();
    as.caller.groups.assign(who.groups().begin(), who.groups().end());
    if (!as.holder) as.caller.lease = who.lease();
  }
  if (as.holder && !as.holder->may_act_for(as.caller.uid)) {
    as.caller = {.uid = kNobodyUser, .gid = kNobodyUser};
  }
  if (as.holder && !as.holder->path.empty()) {
    FF_CO_TRY(as.caller.top, co_await top_of(*as.holder));
  }
  if (options_.root_squash && as.caller.is_root()) {
    as.caller = {.uid = kNobodyUser, .gid = kNobodyUser, .groups = {}, .top = as.caller.top};
  }
  co_return as;
}

// The directory below which the key may act; found with the rights of root.
Task<Result<InodeId>> MetaService::top_of(auth::Entity holder) {
  const Caller root;
  auto found = co_await namespace_.walk(root, kRoot, holder.path, true);
  if (found && found->inode && found->inode->is(InodeType::directory)) co_return found->inode->id;
  if (!found && found.error().sys == 0) co_return std::move(found).error();
  Error error = errno_error(EACCES, fmt::format("{}: it reaches only what is below {}, which is no "
                                                "directory",
                                                holder.full_name(), printable(holder.path)));
  co_return error;
}

// What binds proofs and sessions to the key of the caller.
std::string MetaService::tagged(std::string_view tag, const EffectiveCaller& as, uint64_t number) {
  std::string text(tag);
  append_le(text, number);
  text += auth::format_identity(*as.holder);
  return text;
}

std::string MetaService::proof(const EffectiveCaller& as, InodeId inode) const {
  if (!as.holder) return {};
  const std::string said = tagged("ff inode|", as, inode);
  const auth::Key mac = auth::hmac_sha256(*options_.key, as_bytes(said));
  return std::string(as_text(ByteView(mac).first(kProofBytes)));
}

Result<void> MetaService::check_proof(const EffectiveCaller& as, const wire::Ref& ref) const {
  if (!ref.way().empty()) return fail(Errc::usage, "this call takes no path: it has no caller");
  if (!as.holder || ref.inode() == as.caller.top) return {};
  const std::string wanted = proof(as, ref.inode());
  if (auth::constant_time_equal(as_bytes(wanted), as_bytes(ref.proof()))) return {};
  if (!as.holder->path.empty() && ref.inode() == kRoot) {
    return errno_error(EACCES, fmt::format("{}: it reaches only what is below {}",
                                           as.holder->full_name(), printable(as.holder->path)));
  }
  return errno_error(EACCES,
                     fmt::format("inode {}: no proof that the user may reach it", ref.inode()));
}

// A path from the root whose first components are the directory of the key is one below that
// directory.
void MetaService::enter_top(const EffectiveCaller& as, wire::Ref& from, std::string& path) const {
  if (as.caller.top == kRoot || (from.inode() != kRoot && !path.starts_with('/'))) return;
  const std::string_view top = std::string_view(as.holder->path).substr(1);
  std::string_view rest = path;
  while (rest.starts_with('/')) rest.remove_prefix(1);
  if (!rest.starts_with(top) || (rest.size() > top.size() && rest[top.size()] != '/')) {
    from.set_inode(kRoot);  // refused, whatever its proof
    from.clear_proof();
    return;
  }
  rest.remove_prefix(top.size());
  while (rest.starts_with('/')) rest.remove_prefix(1);
  from.set_inode(as.caller.top);
  path = rest.empty() ? "." : std::string(rest);
}

// Resolves the inode that the caller names; a path with the rights of the caller.
Task<Result<InodeId>> MetaService::resolve(const EffectiveCaller& as, wire::Ref ref) {
  std::string path = std::exchange(*ref.mutable_way(), {});
  if (!path.empty()) enter_top(as, ref, path);
  FF_CO_TRY(check_proof(as, ref));
  if (path.empty()) co_return ref.inode();
  FF_CO_TRY(const auto walked,
            co_await namespace_.walk(as.caller, ref.inode(), std::move(path), true));
  if (!walked.inode) co_return errno_error(ENOENT, printable(walked.name));
  as.walked.push_back(walked.inode->id);
  co_return walked.inode->id;
}

// Signed with the key of the older generation that servers accept: every storage node has it.
std::string MetaService::capability(const EffectiveCaller& as, InodeId inode, uint32_t rights,
                                    std::optional<SessionId> session) const {
  uint32_t bits = 0;
  if ((rights & (kMayRead | kMaySearch)) != 0) bits |= chain::kRightRead;
  if ((rights & kMayWrite) != 0) bits |= chain::kRightRead | chain::kRightWrite;
  const uint32_t newest = keyring_->revocations()->generation;
  const uint32_t generation = newest > 1 ? newest - 1 : 1;
  return chain::sign_capability(*keyring_->capability_key(generation),
                                {.inode = inode,
                                 .rights = bits,
                                 .expires_ns = loop_.clock().wall_ns() + kCapabilityLifetimeNs,
                                 .entity = as.holder->full_name(),
                                 .serial = as.holder->serial,
                                 .uid = as.caller.uid,
                                 .client = session ? session->client : 0,
                                 .session = session ? session->number : 0,
                                 .generation = generation});
}

Result<void> MetaService::check_right(const EffectiveCaller& as, const std::string& capability,
                                      InodeId inode, uint32_t right) const {
  if (!as.holder) return {};
  return chain::check_capability(*keyring_, capability, *as.holder, inode, right,
                                 loop_.clock().wall_ns());
}

// The client id of a restricted key is derived from the key, so that it cannot name sessions or
// slots of others.
uint64_t MetaService::client_of(const EffectiveCaller& as, uint64_t client) const {
  if (!as.holder) return client;
  const std::string said = tagged("ff client|", as, client);
  return load_le<uint64_t>(auth::hmac_sha256(*options_.key, as_bytes(said)).data());
}

RequestId MetaService::request_of(const EffectiveCaller& as, const wire::Request& request) const {
  return {.client = client_of(as, request.client()),
          .slot = request.slot(),
          .sequence = request.sequence()};
}

std::optional<SessionId> MetaService::session_of(const EffectiveCaller& as, bool there,
                                                 const wire::Session& session) const {
  if (!there) return std::nullopt;
  return SessionId{.client = client_of(as, session.client()), .number = session.number()};
}

// No client may see a truncated file while storage still has the removed bytes: new writes there
// could be removed with them.
Task<Result<Inode>> MetaService::finish_truncation(Inode inode) {
  if (!inode.truncating) co_return inode;
  co_return co_await namespace_.finish_truncation(inode.id, chunks_);
}

// The table may be newer than the routing of this server: refreshes it. Errc::unreachable: the
// routing could not be read.
Task<Result<void>> MetaService::wait_for_table(cluster::TableId table) {
  constexpr int64_t kScanTimeoutNs = 20 * kMillisecond;
  const int64_t asked_ns = loop_.now_ns();
  while (!tables_->contains(table) && routing_.refreshed_ns() <= asked_ns) {
    if (loop_.now_ns() - asked_ns > 2 * kSecond) {
      co_return fail(Errc::unreachable,
                     "the metadata service cannot read the chain tables from its store");
    }
    routing_.refresh();
    const auto waited = co_await sleep_for(loop_, kScanTimeoutNs);
    FF_CO_TRY(waited);
  }
  co_return Result<void>();
}

Task<Result<wire::InodeReply>> MetaService::reply_for(EffectiveCaller as,
                                                      Task<Result<Inode>> doing) {
  FF_CO_TRY(auto done, co_await std::move(doing));
  FF_CO_TRY(const Inode inode, co_await finish_truncation(std::move(done)));
  wire::InodeReply reply;
  to_wire(inode, *reply.mutable_inode());
  reply.set_proof(proof(as, inode.id));
  for (const InodeId walked : as.walked) reply.add_walked(walked);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::reply_for_open(EffectiveCaller as,
                                                           Task<Result<Inode>> doing,
                                                           uint32_t rights,
                                                           std::optional<SessionId> session) {
  FF_CO_TRY(wire::InodeReply reply, co_await reply_for(as, std::move(doing)));
  if (as.holder) reply.set_capability(capability(as, reply.inode().id(), rights, session));
  co_return reply;
}

}  // namespace ff::meta
