// meta_service.cc: who calls, what they may, and how answers come about. The calls themselves stand
// in meta_calls.cc.
#include "storage/meta/meta_service.h"

#include <array>
#include <cerrno>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/chain/capability.h"
#include "storage/meta/meta_service_caller.h"

namespace ff::meta {

namespace {

constexpr size_t kProofBytes = 16;
constexpr uint32_t kNobodyUser = 65534;

std::string tagged(std::string_view tag, uint64_t first, uint64_t second) {
  std::string text(tag);
  append_le(text, first);
  append_le(text, second);
  return text;
}

}  // namespace

template <class Asked, auto function>
Task<Result<wire::InodeReply>> MetaService::change(rpc::ServerCall& call, Asked request) {
  auto doing = (this->*function)(call, request);
  auto done = co_await std::move(doing);
  if (!done && !may_pass(done.error()) && request.request().again()) {
    auto giving_up = give_up(call, request.request(), done.error());
    FF_CO_TRY(const bool given_up, co_await std::move(giving_up));
    if (given_up) co_return done;
    // Meanwhile an earlier try has done it: its answer is there.
    auto asking = (this->*function)(call, std::move(request));
    done = co_await std::move(asking);
  }
  if (done) mark(*done);
  co_return done;
}

// Of what was committed for it, or a little later.
void MetaService::mark(wire::InodeReply& reply) const {
  const kv::Mark mark = engine_.mark();
  if (mark.generation == 0) return;
  reply.mutable_mark()->set_generation(mark.generation);
  reply.mutable_mark()->set_position(mark.position);
}

Task<Result<bool>> MetaService::give_up(rpc::ServerCall& call, wire::Request request, Error error) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto giving_up = names_.give_up(request_of(as, request), std::move(error));
  co_return co_await std::move(giving_up);
}

MetaService::MetaService(kv::Engine& engine, rpc::ClientContext& context, rpc::Router& router,
                         Options options)
    : engine_(engine),
      loop_(context.loop),
      options_(std::move(options)),
      tables_(std::make_shared<Tables>()),
      room_(std::make_shared<Room>()),
      routing_(engine, context.loop, [this] { routing_changed(); }),
      storage_(context, routing_.routing(), [this] { routing_.refresh(); }),
      chunks_(storage_, routing_.routing(), context.loop),
      ids_(engine, context.loop),
      names_(engine, context.loop.clock(),
             {.ids = ids_,
              .rng = context.rng,
              .tables = [this] { return tables_; },
              .room = [this] { return room_; }}),
      users_(engine, context.loop.clock()),
      collector_(engine, names_, chunks_, context.loop, context.metrics,
                 {.delay_ns = options_.collect_after_ns, .active = options_.primary}),
      fsck_(engine, storage_, chunks_, routing_.routing(), ids_, context.loop),
      not_ready_(fail(Errc::unreachable, "the metadata service has just started")),
      gate_(context.loop) {
  const auto add = [&](auto method, auto function) {
    rpc::add_method(router, method, *this, function, rpc::Access::users);
  };
  add(kStat, &MetaService::stat);
  add(kLookup, &MetaService::lookup);
  add(kWalk, &MetaService::walk);
  add(kList, &MetaService::list);
  add(kMake, &MetaService::change<wire::MakeRequest, &MetaService::make>);
  add(kOpen, &MetaService::open);
  add(kRenew, &MetaService::renew);
  add(kLink, &MetaService::change<wire::LinkRequest, &MetaService::link>);
  add(kUnlink, &MetaService::change<wire::RemoveRequest, &MetaService::unlink>);
  add(kRmdir, &MetaService::change<wire::RemoveRequest, &MetaService::rmdir>);
  add(kRemoveTree, &MetaService::change<wire::RemoveRequest, &MetaService::remove_tree>);
  add(kRename, &MetaService::change<wire::RenameRequest, &MetaService::rename>);
  add(kSetAttributes,
      &MetaService::change<wire::SetAttributesRequest, &MetaService::set_attributes>);
  add(kSetLayout, &MetaService::change<wire::SetLayoutRequest, &MetaService::set_layout>);
  add(kGetXattr, &MetaService::get_xattr);
  add(kListXattrs, &MetaService::list_xattrs);
  add(kSetXattr, &MetaService::change<wire::SetXattrRequest, &MetaService::set_xattr>);
  add(kTruncate, &MetaService::change<wire::TruncateRequest, &MetaService::truncate>);
  add(kWrote, &MetaService::wrote);
  add(kAppend, &MetaService::change<wire::AppendRequest, &MetaService::append>);
  add(kAlive, &MetaService::alive);
  add(kEnd, &MetaService::end);
  add(kLock, &MetaService::lock);
  add(kSync, &MetaService::sync);
  rpc::add_method(router, kSetUser, *this, &MetaService::set_user);
  rpc::add_method(router, kToken, *this, &MetaService::token);
  rpc::add_method(router, kListUsers, *this, &MetaService::list_users);
  rpc::add_method(router, kFsck, *this, &MetaService::fsck);
}

MetaService::~MetaService() = default;

void MetaService::start() {
  gate_.spawn(routing_.run());
  gate_.spawn(prepare());
  gate_.spawn(collector_.run());
}

Task<void> MetaService::close() {
  Error reason = fail(Errc::interrupted, "the metadata service goes down");
  co_await gate_.close(std::move(reason));
  auto closing = storage_.close();
  co_await std::move(closing);
}

void MetaService::routing_changed() {
  auto tables = std::make_shared<Tables>();
  for (const auto& [key, table] : routing_.routing().tables) (*tables)[key.first] = key.second;
  tables_ = std::move(tables);
  room_ = std::make_shared<Room>(room_of(routing_.routing(), routing_.fill()));
  storage_.look();
}

// The file system begins with its cluster: before, it may be that a backup is to be restored.
Task<void> MetaService::prepare() {
  constexpr int64_t kAgainNs = 100 * kMillisecond;
  for (;;) {
    if (routing_.routing().version > 0) {
      auto making = names_.make_root();
      auto made = co_await std::move(making);
      if (made) break;
      not_ready_ = std::move(made).error();
    } else {
      not_ready_ = fail(Errc::unreachable, "there is no cluster here yet");
      not_ready_->hint = "Form one: ff admin init";
    }
    const auto waited = co_await after(loop_, kAgainNs);
    if (!waited) co_return;
  }
  not_ready_.reset();
}

Result<void> MetaService::ready() const {
  if (not_ready_) return *not_ready_;
  return {};
}

Task<Result<MetaService::Acting>> MetaService::acting(rpc::ServerCall& call, wire::Who who) {
  FF_CO_TRY(ready());
  Acting acting{.token = {}, .caller = {}};
  if (!call.peer().trusted()) {
    if (!call.peer().user) co_return fail(Errc::refused, "{} is nobody", call.peer().text());
    acting.token = call.peer().user;
    auto asking = users_.caller(*call.peer().user);
    FF_CO_TRY(acting.caller, co_await std::move(asking));
  } else {
    if (who.groups_size() > static_cast<int>(kGroupsMax)) {
      co_return fail(Errc::usage, "a caller in {} groups", who.groups_size());
    }
    acting.caller.uid = who.uid();
    acting.caller.gid = who.gid();
    acting.caller.groups.assign(who.groups().begin(), who.groups().end());
  }
  if (options_.root_squash && acting.caller.root())
    acting.caller = {.uid = kNobodyUser, .gid = kNobodyUser};
  co_return acting;
}

std::string MetaService::proof(const Acting& acting, InodeId inode) const {
  if (!acting.token) return {};
  const std::string said = tagged("ff inode|", acting.token->uid, inode);
  const auth::Key mac = auth::hmac(*options_.key, as_bytes(said));
  return std::string(as_text(ByteView(mac).first(kProofBytes)));
}

Result<void> MetaService::check_proof(const Acting& acting, const wire::Ref& ref) const {
  if (!ref.way().empty()) return fail(Errc::usage, "an inode by its path, in a call of nobody's");
  if (!acting.token || ref.inode() == kRoot) return {};
  const std::string wanted = proof(acting, ref.inode());
  if (auth::equal_secrets(as_bytes(wanted), as_bytes(ref.proof()))) return {};
  return errno_error(EACCES, fmt::format("inode {} without a proof of the way there", ref.inode()));
}

// The inode that a caller names; a path is walked with his rights.
Task<Result<InodeId>> MetaService::meant(const Acting& acting, wire::Ref ref) {
  const std::string way = std::exchange(*ref.mutable_way(), {});
  FF_CO_TRY(check_proof(acting, ref));
  if (way.empty()) co_return ref.inode();
  auto walking = names_.walk(acting.caller, ref.inode(), way, true);
  FF_CO_TRY(const auto walked, co_await std::move(walking));
  if (!walked.inode) co_return errno_error(ENOENT, printable(walked.name));
  acting.walked.push_back(walked.inode->id);
  co_return walked.inode->id;
}

std::string MetaService::capability(InodeId inode, uint32_t rights) const {
  uint32_t bits = 0;
  if ((rights & (kMayRead | kMaySearch)) != 0) bits |= chain::kRightRead;
  if ((rights & kMayWrite) != 0) bits |= chain::kRightRead | chain::kRightWrite;
  return chain::sign(
      *options_.key,
      {.inode = inode, .rights = bits, .expires_ns = loop_.clock().wall_ns() + kCapabilityNs});
}

Result<void> MetaService::check_right(rpc::ServerCall& call, const std::string& capability,
                                      InodeId inode, uint32_t right) const {
  if (call.peer().trusted()) return {};
  return chain::check(*options_.key, capability, inode, right, loop_.clock().wall_ns());
}

// A token's holder can name no client, and so no session and no slot, of another user's.
uint64_t MetaService::client_of(const Acting& acting, uint64_t client) const {
  if (!acting.token) return client;
  const std::string said = tagged("ff client|", acting.token->uid, client);
  return load_le<uint64_t>(auth::hmac(*options_.key, as_bytes(said)).data());
}

Request MetaService::request_of(const Acting& acting, const wire::Request& request) const {
  return {.client = client_of(acting, request.client()),
          .slot = request.slot(),
          .sequence = request.sequence()};
}

std::optional<SessionId> MetaService::session_of(const Acting& acting, bool there,
                                                 const wire::Session& session) const {
  if (!there) return std::nullopt;
  return SessionId{.client = client_of(acting, session.client()), .number = session.number()};
}

// Nobody sees a truncated file whose storage may still hold what was cut off: what he then writes
// there would go with it.
Task<Result<Inode>> MetaService::settled(Inode inode) {
  if (!inode.cutting) co_return inode;
  auto finishing = names_.finish_cut(inode.id, chunks_);
  co_return co_await std::move(finishing);
}

// The operator has made it, and this server may not have heard of it yet: what it has read since it
// was asked counts. Errc::unreachable: it could read nothing.
Task<Result<void>> MetaService::know_table(cluster::TableId table) {
  constexpr int64_t kLookNs = 20 * kMillisecond;
  const int64_t asked_ns = loop_.now_ns();
  while (!tables_->contains(table) && routing_.looked_ns() <= asked_ns) {
    if (loop_.now_ns() - asked_ns > 2 * kSecond) {
      co_return fail(
          Errc::unreachable,
          "the metadata service cannot read from its store which chain tables there are");
    }
    routing_.refresh();
    const auto waited = co_await after(loop_, kLookNs);
    FF_CO_TRY(waited);
  }
  co_return Result<void>();
}

Task<Result<wire::InodeReply>> MetaService::answer(Acting acting, Task<Result<Inode>> doing) {
  FF_CO_TRY(auto done, co_await std::move(doing));
  auto settling = settled(std::move(done));
  FF_CO_TRY(const Inode inode, co_await std::move(settling));
  wire::InodeReply reply;
  to_wire(inode, *reply.mutable_inode());
  reply.set_proof(proof(acting, inode.id));
  for (const InodeId walked : acting.walked) reply.add_walked(walked);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::answer_opened(Acting acting, Task<Result<Inode>> doing,
                                                          uint32_t rights) {
  auto answering = answer(acting, std::move(doing));
  FF_CO_TRY(wire::InodeReply reply, co_await std::move(answering));
  if (acting.token) reply.set_capability(capability(reply.inode().id(), rights));
  co_return reply;
}

}  // namespace ff::meta
