// meta_calls.cc: each call of the metadata service, from its message to the operation and back.
#include <cerrno>
#include <utility>

#include "platform/auth/token.h"
#include "storage/chain/capability.h"
#include "storage/meta/meta_service_caller.h"

namespace ff::meta {

namespace {

constexpr uint32_t kListMax = 4096;
// A capability that has expired for longer is not renewed: what it was given for must be opened
// again.
constexpr int64_t kRenewableNs = 3600 * kSecond;

std::optional<Layout> layout_of(const wire::MakeRequest& request) {
  if (!request.has_layout()) return std::nullopt;
  return from_wire(request.layout());
}

Error odd(std::string_view what, uint64_t value) {
  Error error = fail(Errc::usage, "{} {}", what, value);
  error.sys = EINVAL;
  return error;
}

}  // namespace

Task<Result<wire::InodeReply>> MetaService::stat(rpc::ServerCall& call, wire::StatRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  FF_CO_TRY(check_proof(as, request.inode()));
  const InodeId id = request.inode().inode();
  auto answering = answer(as, request.exact() ? names_.measure(id, chunks_) : names_.stat(id));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::lookup(rpc::ServerCall& call,
                                                   wire::LookupRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.place().dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  auto answering = answer(as, names_.lookup(as.caller, dir, request.place().name()));
  co_return co_await std::move(answering);
}

Task<Result<wire::WalkReply>> MetaService::walk(rpc::ServerCall& call, wire::WalkRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  FF_CO_TRY(check_proof(as, request.from()));
  auto walking = names_.walk(as.caller, request.from().inode(), request.path(), request.follow());
  FF_CO_TRY(auto walked, co_await std::move(walking));
  wire::WalkReply reply;
  to_wire(walked.dir, *reply.mutable_dir());
  reply.set_dir_proof(proof(as, walked.dir.id));
  reply.set_name(walked.name);
  if (!walked.inode) co_return reply;
  auto settling = settled(std::move(*walked.inode));
  FF_CO_TRY(const Inode inode, co_await std::move(settling));
  to_wire(inode, *reply.mutable_inode());
  reply.set_proof(proof(as, inode.id));
  co_return reply;
}

Task<Result<wire::ListReply>> MetaService::list(rpc::ServerCall& call, wire::ListRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  const uint32_t limit = std::min(request.limit(), kListMax);
  auto listing = names_.list(as.caller, dir, request.after(), limit, request.with_inodes());
  FF_CO_TRY(auto page, co_await std::move(listing));
  wire::ListReply reply;
  for (Names::Listed& entry : page.entries) {
    wire::Listed& to = *reply.add_entries();
    to.set_name(entry.name);
    to.set_id(entry.id);
    to.set_kind(static_cast<uint32_t>(entry.kind));
    if (!entry.inode) continue;
    auto settling = settled(std::move(*entry.inode));
    const auto inode = co_await std::move(settling);
    if (!inode && inode.error().code == Errc::stale) continue;
    FF_CO_TRY(Result<void>(inode ? Result<void>() : inode.error()));
    to_wire(*inode, *to.mutable_inode());
    to.set_proof(proof(as, entry.id));
  }
  reply.set_end(page.end);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::make(rpc::ServerCall& call, wire::MakeRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.place().dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  if (request.kind() < 1 || request.kind() > static_cast<uint32_t>(Kind::block)) {
    co_return odd("an inode of kind", request.kind());
  }
  if (request.kind() == static_cast<uint32_t>(Kind::file)) {
    const uint64_t table = request.layout().table();
    auto knowing = know_table(table == 0 ? kDefaultTable : table);
    FF_CO_TRY(co_await std::move(knowing));
  }
  Names::Make make{.kind = static_cast<Kind>(request.kind()),
                   .mode = request.mode(),
                   .target = request.target(),
                   .device = request.device(),
                   .layout = layout_of(request),
                   .exclusive = request.exclusive(),
                   .session = session_of(as, request.has_session(), request.session()),
                   .rights = request.rights(),
                   .chunk_size = request.chunk_size()};
  auto making = names_.make(as.caller, request_of(as, request.request()), dir,
                            request.place().name(), std::move(make));
  auto answering = answer_opened(as, std::move(making), request.rights());
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::open(rpc::ServerCall& call, wire::OpenRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.inode());
  FF_CO_TRY(const InodeId inode, co_await std::move(finding));
  auto opening = names_.open(as.caller, inode, request.rights(),
                             session_of(as, request.has_session(), request.session()));
  auto answering = answer_opened(as, std::move(opening), request.rights());
  co_return co_await std::move(answering);
}

// Whoever had a file open goes on having it, as with any file descriptor.
Task<Result<wire::RenewReply>> MetaService::renew(rpc::ServerCall& call,
                                                  wire::RenewRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  wire::RenewReply reply;
  if (!as.token) co_return reply;
  const int64_t then_ns = loop_.clock().wall_ns() - kRenewableNs;
  uint32_t rights = kMayRead;
  FF_CO_TRY(chain::check(*options_.key, request.capability(), request.inode(), chain::kRightRead,
                         then_ns));
  if (chain::check(*options_.key, request.capability(), request.inode(), chain::kRightWrite,
                   then_ns)) {
    rights |= kMayWrite;
  }
  auto looking = names_.stat(request.inode());
  FF_CO_TRY(co_await std::move(looking));
  reply.set_capability(capability(request.inode(), rights));
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::link(rpc::ServerCall& call, wire::LinkRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.inode());
  FF_CO_TRY(const InodeId inode, co_await std::move(finding));
  auto entering = meant(as, request.place().dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(entering));
  auto answering = answer(as, names_.link(as.caller, request_of(as, request.request()), inode, dir,
                                          request.place().name()));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::unlink(rpc::ServerCall& call,
                                                   wire::RemoveRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.place().dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  auto answering = answer(
      as, names_.unlink(as.caller, request_of(as, request.request()), dir, request.place().name(),
                        session_of(as, request.has_holder(), request.holder())));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::rmdir(rpc::ServerCall& call,
                                                  wire::RemoveRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.place().dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  auto answering = answer(
      as, names_.rmdir(as.caller, request_of(as, request.request()), dir, request.place().name()));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::remove_tree(rpc::ServerCall& call,
                                                        wire::RemoveRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.place().dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  auto answering = answer(as, names_.remove_tree(as.caller, request_of(as, request.request()), dir,
                                                 request.place().name()));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::rename(rpc::ServerCall& call,
                                                   wire::RenameRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto leaving = meant(as, request.from().dir());
  FF_CO_TRY(const InodeId from, co_await std::move(leaving));
  auto entering = meant(as, request.to().dir());
  FF_CO_TRY(const InodeId to, co_await std::move(entering));
  Names::Rename rename{.from_dir = from,
                       .from = request.from().name(),
                       .to_dir = to,
                       .to = request.to().name(),
                       .no_replace = request.no_replace(),
                       .exchange = request.exchange(),
                       .holder = session_of(as, request.has_holder(), request.holder())};
  auto answering =
      answer(as, names_.rename(as.caller, request_of(as, request.request()), std::move(rename)));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::set_attributes(rpc::ServerCall& call,
                                                           wire::SetAttributesRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.inode());
  FF_CO_TRY(const InodeId inode, co_await std::move(finding));
  Names::Attributes to;
  if (request.has_mode()) to.mode = request.mode();
  if (request.has_uid()) to.uid = request.uid();
  if (request.has_gid()) to.gid = request.gid();
  if (request.has_atime_ns()) to.atime_ns = request.atime_ns();
  if (request.has_mtime_ns()) to.mtime_ns = request.mtime_ns();
  to.times_now = request.times_now();
  auto answering =
      answer(as, names_.set_attributes(as.caller, request_of(as, request.request()), inode, to));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::set_layout(rpc::ServerCall& call,
                                                       wire::SetLayoutRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.dir());
  FF_CO_TRY(const InodeId dir, co_await std::move(finding));
  if (request.layout().table() != 0) {
    auto knowing = know_table(request.layout().table());
    FF_CO_TRY(co_await std::move(knowing));
  }
  auto answering = answer(as, names_.set_layout(as.caller, request_of(as, request.request()), dir,
                                                from_wire(request.layout())));
  co_return co_await std::move(answering);
}

Task<Result<wire::GetXattrReply>> MetaService::get_xattr(rpc::ServerCall& call,
                                                         wire::GetXattrRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.inode());
  FF_CO_TRY(const InodeId inode, co_await std::move(finding));
  auto getting = names_.get_xattr(as.caller, inode, request.name());
  FF_CO_TRY(auto value, co_await std::move(getting));
  wire::GetXattrReply reply;
  if (value) reply.set_value(std::move(*value));
  co_return reply;
}

Task<Result<wire::ListXattrsReply>> MetaService::list_xattrs(rpc::ServerCall& call,
                                                             wire::ListXattrsRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  FF_CO_TRY(check_proof(as, request.inode()));
  auto listing = names_.list_xattrs(request.inode().inode());
  FF_CO_TRY(const auto names, co_await std::move(listing));
  wire::ListXattrsReply reply;
  for (const std::string& name : names) reply.add_names(name);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::set_xattr(rpc::ServerCall& call,
                                                      wire::SetXattrRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto finding = meant(as, request.inode());
  FF_CO_TRY(const InodeId inode, co_await std::move(finding));
  if (request.mode() > static_cast<uint32_t>(Names::XattrMode::replace)) {
    co_return odd("attributes set in mode", request.mode());
  }
  std::optional<std::string> value;
  if (request.has_value()) value = request.value();
  auto answering = answer(
      as, names_.set_xattr(as.caller, request_of(as, request.request()), inode, request.name(),
                           std::move(value), static_cast<Names::XattrMode>(request.mode())));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::truncate(rpc::ServerCall& call,
                                                     wire::TruncateRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  InodeId id = request.inode().inode();
  if (request.opened()) {
    FF_CO_TRY(check_right(call, request.capability(), id, chain::kRightWrite));
  } else {
    auto finding = meant(as, request.inode());
    FF_CO_TRY(id, co_await std::move(finding));
  }
  auto answering = answer(as, names_.truncate(as.caller, request_of(as, request.request()), id,
                                              request.length(), request.opened()));
  co_return co_await std::move(answering);
}

Task<Result<wire::InodeReply>> MetaService::wrote(rpc::ServerCall& call,
                                                  wire::WroteRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  FF_CO_TRY(check_right(call, request.capability(), request.inode(), chain::kRightWrite));
  const auto session = session_of(as, true, request.session());
  auto writing = names_.wrote(request.inode(), *session,
                              {.end = request.end(),
                               .truncations = request.truncations(),
                               .mtime_ns = request.mtime_ns(),
                               .closed = request.closed()});
  FF_CO_TRY(const Inode inode, co_await std::move(writing));
  // What it wrote may be there all the same: who truncated did so before, or after.
  const bool counts = inode.truncations == request.truncations();
  auto answering = answer(as, counts ? settled(inode) : names_.measure(inode.id, chunks_));
  FF_CO_TRY(auto reply, co_await std::move(answering));
  mark(reply);
  co_return reply;
}

Task<Result<wire::InodeReply>> MetaService::append(rpc::ServerCall& call,
                                                   wire::AppendRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  FF_CO_TRY(check_right(call, request.capability(), request.inode(), chain::kRightWrite));
  for (;;) {
    auto answering = answer(
        as, names_.append(request_of(as, request.request()), request.inode(), request.size()));
    auto answered = co_await std::move(answering);
    if (answered || answered.error().code != Errc::busy) co_return answered;
    auto finishing = names_.finish_cut(request.inode(), chunks_);
    FF_CO_TRY(co_await std::move(finishing));
  }
}

Task<Result<wire::AliveReply>> MetaService::alive(rpc::ServerCall& call,
                                                  wire::AliveRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  auto saying = names_.alive(client_of(as, request.client()));
  FF_CO_TRY(co_await std::move(saying));
  co_return wire::AliveReply();
}

Task<Result<wire::SyncReply>> MetaService::sync(rpc::ServerCall&, wire::SyncRequest request) {
  if (static_cast<size_t>(request.generations_size()) > kv::kGenerationsMax) {
    co_return odd("generations to look up:", static_cast<uint64_t>(request.generations_size()));
  }
  auto syncing = names_.sync();
  FF_CO_TRY(co_await std::move(syncing));
  wire::SyncReply reply;
  for (const uint64_t generation : request.generations()) {
    const auto position = engine_.durable(generation);
    if (!position) continue;
    wire::Mark& durable = *reply.add_durable();
    durable.set_generation(generation);
    durable.set_position(*position);
  }
  co_return reply;
}

Task<Result<wire::EndReply>> MetaService::end(rpc::ServerCall& call, wire::EndRequest request) {
  auto who = acting(call, {});
  FF_CO_TRY(const Acting as, co_await std::move(who));
  if (static_cast<size_t>(request.ended_size()) > kEndMax) {
    co_return odd("sessions to end:", static_cast<uint64_t>(request.ended_size()));
  }
  std::vector<Names::Ended> ended;
  const uint64_t client = client_of(as, request.client());
  for (const auto& one : request.ended()) {
    ended.push_back({.inode = one.inode(), .session = {client, one.session()}});
  }
  auto ending = names_.end(std::move(ended));
  FF_CO_TRY(co_await std::move(ending));
  co_return wire::EndReply();
}

Task<Result<wire::LockReply>> MetaService::lock(rpc::ServerCall& call, wire::LockRequest request) {
  auto who = acting(call, request.who());
  FF_CO_TRY(const Acting as, co_await std::move(who));
  FF_CO_TRY(check_proof(as, request.inode()));
  const SessionId owner = *session_of(as, true, request.owner());
  wire::LockReply reply;
  if (request.release()) {
    auto unlocking = names_.unlock(request.inode().inode(), owner);
    FF_CO_TRY(co_await std::move(unlocking));
    co_return reply;
  }
  auto locking = names_.lock(as.caller, request.inode().inode(), owner);
  FF_CO_TRY(const bool held, co_await std::move(locking));
  reply.set_held(held);
  co_return reply;
}

namespace {

void to_wire(const User& user, wire::User& out) {
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
  User user{.uid = request.user().uid(),
            .name = request.user().name(),
            .gid = request.user().gid(),
            .groups = {request.user().groups().begin(), request.user().groups().end()}};
  auto setting = users_.set(std::move(user));
  FF_CO_TRY(const User set, co_await std::move(setting));
  wire::UserReply reply;
  to_wire(set, *reply.mutable_user());
  co_return reply;
}

Task<Result<wire::UserReply>> MetaService::token(rpc::ServerCall&, wire::TokenRequest request) {
  FF_CO_TRY(ready());
  wire::UserReply reply;
  if (request.revoke()) {
    auto removing = users_.remove(request.uid());
    FF_CO_TRY(co_await std::move(removing));
    co_return reply;
  }
  if (!options_.key) {
    Error error = fail(Errc::refused, "there are no tokens without a cluster key");
    error.hint = std::string("Start serve-meta and serve-storage with --key.");
    co_return error;
  }
  auto adding = users_.add_token(request.uid());
  FF_CO_TRY(const User user, co_await std::move(adding));
  to_wire(user, *reply.mutable_user());
  reply.set_token(auth::token_text(
      auth::make_token(*options_.key, {.uid = user.uid, .serial = user.serials.back()})));
  co_return reply;
}

Task<Result<wire::ListUsersReply>> MetaService::list_users(rpc::ServerCall&,
                                                           wire::ListUsersRequest) {
  FF_CO_TRY(ready());
  auto listing = users_.list();
  FF_CO_TRY(const auto users, co_await std::move(listing));
  wire::ListUsersReply reply;
  for (const User& user : users) to_wire(user, *reply.add_users());
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
  reply.set_stored(report.stored);
  reply.set_problems(report.problems);
  for (const Problem& problem : report.told) {
    wire::Problem& to = *reply.add_told();
    to.set_kind(std::string(name_of(problem.kind)));
    to.set_inode(problem.inode);
    to.set_text(problem.text);
    to.set_repaired(problem.repaired);
  }
  co_return reply;
}

}  // namespace ff::meta
