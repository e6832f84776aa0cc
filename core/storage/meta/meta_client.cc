// meta_client.cc: which server is asked, and how answers become what callers use.
#include "storage/meta/meta_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::meta {

namespace {

constexpr int64_t kAgainFirstNs = 20 * kMillisecond;
constexpr int64_t kAgainLastNs = kSecond;

void put(const Caller& caller, wire::Who& out) {
  out.set_uid(caller.uid);
  out.set_gid(caller.gid);
  for (const uint32_t group : caller.groups) out.add_groups(group);
}
void put(const Ref& ref, wire::Ref& out) {
  out.set_inode(ref.id);
  out.set_proof(ref.proof);
  out.set_way(ref.way);
}
void put(const Ref& dir, const std::string& name, wire::Place& out) {
  put(dir, *out.mutable_dir());
  out.set_name(name);
}
void put(SessionId session, wire::Session& out) {
  out.set_client(session.client);
  out.set_number(session.number);
}

Result<Seen> seen_of(const wire::InodeReply& reply) {
  FF_TRY(auto inode, from_wire(reply.inode()));
  return Seen{std::move(inode), reply.proof(), reply.capability()};
}
kv::Mark mark_of(const wire::InodeReply& reply) {
  return {reply.mark().generation(), reply.mark().position()};
}

std::string text(const Pending::Action& action) {
  std::string all = action.verb;
  if (action.bytes) all += fmt::format(" of {} bytes", *action.bytes);
  if (!action.name.empty()) all += fmt::format(" of \"{}\"", printable(action.name));
  if (!action.to.empty()) all += fmt::format(" to \"{}\"", printable(action.to));
  return all;
}

}  // namespace

// One of the client's slots, given back when it goes.
class MetaClient::Slot {
 public:
  Slot(MetaClient& of, Semaphore::Hold hold)
      : client_(of), hold_(std::move(hold)), number_(of.free_.back()) {
    client_.free_.pop_back();
  }
  ~Slot() { client_.free_.push_back(number_); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  void put(wire::Request& out) {
    out.set_client(client_.client_);
    out.set_slot(number_);
    out.set_sequence(++client_.sequences_[number_]);
  }

 private:
  MetaClient& client_;
  Semaphore::Hold hold_;
  const uint32_t number_;
};

struct MetaClient::Attempt {
  Backoff backoff;
  int64_t until_ns = 0;
  size_t failures = 0;
  size_t refusals = 0;  // in a row
};

MetaClient::MetaClient(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                       Lost lost)
    : context_(context),
      loop_(context.loop),
      at_(context.rng.below(std::max<size_t>(servers.size(), 1))),
      client_(context.rng.next()),
      introducing_(context.loop, 1),
      slots_(context.loop, kSlots),
      lost_(std::move(lost)),
      telling_(context.loop, 1),
      sequences_(kSlots),
      gate_(context.loop) {
  FF_CHECK(!servers.empty());
  for (const net::Address& address : servers) {
    servers_.push_back(std::make_unique<rpc::Client>(context, address));
  }
  for (uint32_t i = kSlots; i > 0; i--) free_.push_back(i - 1);
}

Task<void> MetaClient::close() {
  Error reason = fail(Errc::interrupted, "the client ends");
  co_await gate_.close(std::move(reason));
  for (const auto& server : servers_) {
    auto closing = server->close();
    co_await std::move(closing);
  }
}

// After a failure at one server: the next, and a pause after all of them. The error when it is
// final, or there is no time.
Task<Result<void>> MetaClient::failed(Error error, size_t server, Attempt& attempt) {
  const Cancel* const cancel = co_await current_cancel();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  if (at_ == server) at_ = (at_ + 1) % servers_.size();
  attempt.refusals = error.code == Errc::refused ? attempt.refusals + 1 : 0;
  if (attempt.refusals == servers_.size()) co_return error;
  if (loop_.now_ns() >= attempt.until_ns) co_return error;
  if (++attempt.failures % servers_.size() != 0) co_return Result<void>();
  const int64_t again_ns = loop_.now_ns() + attempt.backoff.pause_ns();
  if (again_ns >= attempt.until_ns) co_return error;
  co_return co_await until(loop_, again_ns);
}

template <class Asked, class Reply>
Task<Result<Reply>> MetaClient::call(rpc::Method<Asked, Reply> method, Asked request,
                                     int64_t patience_ns, int64_t try_ns) {
  Attempt attempt{.backoff = {context_.rng, kAgainFirstNs, kAgainLastNs},
                  .until_ns = loop_.now_ns() + patience_ns};
  for (;;) {
    const size_t server = at_;
    rpc::Client& client = *servers_[server];
    const int64_t until_ns = std::min(loop_.now_ns() + try_ns, attempt.until_ns);
    auto connecting = client.channel(until_ns);
    const auto channel = co_await std::move(connecting);
    Error error;
    if (channel) {
      auto calling = rpc::call_method(client, method, request, until_ns);
      auto reply = co_await std::move(calling);
      if (reply || !may_pass(reply.error())) co_return reply;
      error = std::move(reply).error();
      if constexpr (requires { request.mutable_request(); }) {
        request.mutable_request()->set_again(true);
      }
    } else {
      error = channel.error();
    }
    auto advancing = failed(std::move(error), server, attempt);
    FF_CO_TRY(co_await std::move(advancing));
  }
}

// Before the first change: what this client has done and has open is kept while it lives.
Task<Result<void>> MetaClient::introduce() {
  if (introduced_) co_return Result<void>();
  auto taking = introducing_.take(1);
  FF_CO_TRY(const auto hold, co_await std::move(taking));
  if (introduced_) co_return Result<void>();
  wire::AliveRequest request;
  request.set_client(client_);
  auto calling = call(kAlive, std::move(request));
  FF_CO_TRY(co_await std::move(calling));
  introduced_ = true;
  gate_.spawn(stay_alive());
  co_return Result<void>();
}

Task<void> MetaClient::stay_alive() {
  for (;;) {
    const auto waited = co_await after(loop_, kAliveNs);
    if (!waited) co_return;
    wire::AliveRequest request;
    request.set_client(client_);
    auto calling = call(kAlive, std::move(request));
    (void)co_await std::move(calling);
  }
}

template <class Asked>
Task<Result<Seen>> MetaClient::change(rpc::Method<Asked, wire::InodeReply> method, Asked request,
                                      Pending::Action action, std::vector<Ref> refs,
                                      int64_t patience_ns, int64_t try_ns) {
  auto introducing = introduce();
  FF_CO_TRY(co_await std::move(introducing));
  auto taking = slots_.take(1);
  FF_CO_TRY(auto hold, co_await std::move(taking));
  Slot slot(*this, std::move(hold));
  slot.put(*request.mutable_request());
  auto calling = call(method, std::move(request), patience_ns, try_ns);
  FF_CO_TRY(const wire::InodeReply reply, co_await std::move(calling));
  Pending::Change change{.mark = mark_of(reply), .action = std::move(action)};
  change.inodes.assign(reply.walked().begin(), reply.walked().end());
  change.inodes.push_back(reply.inode().id());
  for (const Ref& ref : refs) {
    const bool known = std::ranges::find(change.inodes, ref.id) != change.inodes.end();
    if (ref.way.empty() && !known) change.inodes.push_back(ref.id);
  }
  pending_.add(std::move(change));
  co_return seen_of(reply);
}

template <class Asked>
Task<Result<Seen>> MetaClient::look(rpc::Method<Asked, wire::InodeReply> method, Asked request) {
  auto calling = call(method, std::move(request));
  FF_CO_TRY(const wire::InodeReply reply, co_await std::move(calling));
  co_return seen_of(reply);
}

// The store that answers is the one that was asked for what was answered before, or a later one:
// what it does not know any more is lost.
Task<Result<void>> MetaClient::sync() {
  for (;;) {
    const uint64_t count = pending_.count();
    wire::SyncRequest request;
    for (const uint64_t generation : pending_.generations()) request.add_generations(generation);
    auto calling = call(kSync, std::move(request));
    FF_CO_TRY(const wire::SyncReply reply, co_await std::move(calling));
    std::map<uint64_t, uint64_t> durable;
    for (const wire::Mark& mark : reply.durable()) durable[mark.generation()] = mark.position();
    std::vector<Pending::Change> lost;
    for (Pending::Change& change : pending_.settle(count, durable)) {
      if (change.told == nullptr) {
        lost.push_back(std::move(change));
      } else {
        lost_lengths_.push_back(std::move(change));
      }
    }
    tell_lost(lost, "a metadata server has lost it before it was durable");
    if (lost_lengths_.empty()) co_return Result<void>();
    auto telling = tell_again();
    FF_CO_TRY(co_await std::move(telling));
  }
}

// Whoever syncs meanwhile waits for it, and syncs again.
Task<Result<void>> MetaClient::tell_again() {
  auto taking = telling_.take(1);
  FF_CO_TRY(const auto hold, co_await std::move(taking));
  while (!lost_lengths_.empty()) {
    auto telling = tell(*lost_lengths_.front().told);
    auto told = co_await std::move(telling);
    if (!told && may_pass(told.error())) co_return std::move(told).error();
    std::vector<Pending::Change> done;
    done.push_back(std::move(lost_lengths_.front()));
    lost_lengths_.pop_front();
    if (!told) tell_lost(done, told.error().message);
  }
  co_return Result<void>();
}

void MetaClient::tell_lost(const std::vector<Pending::Change>& changes, const std::string& why) {
  struct Sum {
    std::string first;
    size_t count = 0;
  };
  std::map<InodeId, Sum> inodes;
  for (const Pending::Change& change : changes) {
    for (const InodeId inode : change.inodes) {
      Sum& sum = inodes[inode];
      if (sum.count++ == 0) sum.first = text(change.action);
    }
  }
  for (const auto& [inode, sum] : inodes) {
    const std::string more = sum.count > 1 ? fmt::format(", and {} more", sum.count - 1) : "";
    Error error = fail(Errc::failed, "inode {}: {}{}: {}", inode, sum.first, more, why);
    error.hint = std::string("Look at what is there, and do again what is missing.");
    error.sys = EIO;
    lost_(inode, std::move(error));
  }
}

Task<Result<Seen>> MetaClient::stat(Ref inode, bool exact) {
  wire::StatRequest request;
  put(inode, *request.mutable_inode());
  request.set_exact(exact);
  return look(kStat, std::move(request));
}

Task<Result<Seen>> MetaClient::lookup(Caller caller, Ref dir, std::string name) {
  wire::LookupRequest request;
  put(caller, *request.mutable_who());
  put(dir, name, *request.mutable_place());
  return look(kLookup, std::move(request));
}

Task<Result<MetaClient::Walked>> MetaClient::walk(Caller caller, Ref from, std::string path,
                                                  bool follow) {
  wire::WalkRequest request;
  put(caller, *request.mutable_who());
  put(from, *request.mutable_from());
  request.set_path(path);
  request.set_follow(follow);
  auto calling = call(kWalk, std::move(request));
  FF_CO_TRY(const wire::WalkReply reply, co_await std::move(calling));
  Walked walked{.dir = {}, .name = reply.name(), .found = std::nullopt};
  FF_CO_TRY(walked.dir.inode, from_wire(reply.dir()));
  walked.dir.proof = reply.dir_proof();
  if (!reply.has_inode()) co_return walked;
  FF_CO_TRY(auto inode, from_wire(reply.inode()));
  walked.found = Seen{std::move(inode), reply.proof(), {}};
  co_return walked;
}

Task<Result<MetaClient::Page>> MetaClient::list(Caller caller, Ref dir, std::string after,
                                                uint32_t limit, bool with_inodes) {
  wire::ListRequest request;
  put(caller, *request.mutable_who());
  put(dir, *request.mutable_dir());
  request.set_after(after);
  request.set_limit(limit);
  request.set_with_inodes(with_inodes);
  auto calling = call(kList, std::move(request));
  FF_CO_TRY(const wire::ListReply reply, co_await std::move(calling));
  Page page{.entries = {}, .end = reply.end()};
  for (const wire::Listed& from : reply.entries()) {
    if (from.kind() < 1 || from.kind() > static_cast<uint32_t>(Kind::block)) {
      co_return fail(Errc::corrupt, "a server lists an entry of kind {}", from.kind());
    }
    Listed entry{.name = from.name(),
                 .id = from.id(),
                 .kind = static_cast<Kind>(from.kind()),
                 .seen = std::nullopt};
    if (from.has_inode()) {
      FF_CO_TRY(auto inode, from_wire(from.inode()));
      entry.seen = Seen{std::move(inode), from.proof(), {}};
    }
    page.entries.push_back(std::move(entry));
  }
  co_return page;
}

Task<Result<Seen>> MetaClient::make(Caller caller, Ref dir, std::string name, Names::Make make) {
  wire::MakeRequest request;
  put(caller, *request.mutable_who());
  put(dir, name, *request.mutable_place());
  request.set_kind(static_cast<uint32_t>(make.kind));
  request.set_mode(make.mode);
  request.set_target(make.target);
  request.set_device(make.device);
  if (make.layout) to_wire(*make.layout, *request.mutable_layout());
  request.set_exclusive(make.exclusive);
  if (make.session) put(*make.session, *request.mutable_session());
  request.set_rights(make.rights);
  request.set_chunk_size(make.chunk_size);
  return change(kMake, std::move(request), {"creation", name}, {std::move(dir)});
}

Task<Result<Seen>> MetaClient::open(Caller caller, Ref inode, uint32_t rights,
                                    std::optional<SessionId> session) {
  if (session) {
    auto introducing = introduce();
    FF_CO_TRY(co_await std::move(introducing));
  }
  wire::OpenRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_rights(rights);
  if (session) put(*session, *request.mutable_session());
  auto opening = look(kOpen, std::move(request));
  co_return co_await std::move(opening);
}

Task<Result<std::string>> MetaClient::renew(InodeId inode, std::string capability) {
  wire::RenewRequest request;
  request.set_inode(inode);
  request.set_capability(capability);
  auto calling = call(kRenew, std::move(request));
  FF_CO_TRY(const wire::RenewReply reply, co_await std::move(calling));
  co_return reply.capability();
}

Task<Result<Seen>> MetaClient::link(Caller caller, Ref inode, Ref dir, std::string name) {
  wire::LinkRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  put(dir, name, *request.mutable_place());
  return change(kLink, std::move(request), {"link", name}, {std::move(dir), std::move(inode)});
}

namespace {

wire::RemoveRequest removal(const Caller& caller, const Ref& dir, const std::string& name) {
  wire::RemoveRequest request;
  put(caller, *request.mutable_who());
  put(dir, name, *request.mutable_place());
  return request;
}

}  // namespace

Task<Result<Seen>> MetaClient::unlink(Caller caller, Ref dir, std::string name,
                                      std::optional<SessionId> holder) {
  wire::RemoveRequest request = removal(caller, dir, name);
  if (holder) put(*holder, *request.mutable_holder());
  return change(kUnlink, std::move(request), {"removal", name}, {std::move(dir)});
}

Task<Result<Seen>> MetaClient::rmdir(Caller caller, Ref dir, std::string name) {
  wire::RemoveRequest request = removal(caller, dir, name);
  return change(kRmdir, std::move(request), {"removal", name}, {std::move(dir)});
}

Task<Result<Seen>> MetaClient::remove_tree(Caller caller, Ref dir, std::string name) {
  wire::RemoveRequest request = removal(caller, dir, name);
  return change(kRemoveTree, std::move(request), {"removal", name}, {std::move(dir)}, kPatienceNs,
                kPatienceNs);
}

Task<Result<Seen>> MetaClient::rename(Caller caller, Rename rename) {
  wire::RenameRequest request;
  put(caller, *request.mutable_who());
  put(rename.from_dir, rename.from, *request.mutable_from());
  put(rename.to_dir, rename.to, *request.mutable_to());
  request.set_no_replace(rename.no_replace);
  request.set_exchange(rename.exchange);
  if (rename.holder) put(*rename.holder, *request.mutable_holder());
  return change(kRename, std::move(request),
                {"rename", std::move(rename.from), std::move(rename.to)},
                {std::move(rename.from_dir), std::move(rename.to_dir)});
}

Task<Result<Seen>> MetaClient::set_attributes(Caller caller, Ref inode, Names::Attributes to) {
  wire::SetAttributesRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  if (to.mode) request.set_mode(*to.mode);
  if (to.uid) request.set_uid(*to.uid);
  if (to.gid) request.set_gid(*to.gid);
  if (to.atime_ns) request.set_atime_ns(*to.atime_ns);
  if (to.mtime_ns) request.set_mtime_ns(*to.mtime_ns);
  request.set_times_now(to.times_now);
  const bool times_only = !to.mode && !to.uid && !to.gid;
  return change(kSetAttributes, std::move(request),
                {times_only ? "change of times" : "change of mode or owner"}, {});
}

Task<Result<Seen>> MetaClient::set_layout(Caller caller, Ref dir, Layout layout) {
  wire::SetLayoutRequest request;
  put(caller, *request.mutable_who());
  put(dir, *request.mutable_dir());
  to_wire(layout, *request.mutable_layout());
  return change(kSetLayout, std::move(request), {"change of layout"}, {});
}

Task<Result<std::optional<std::string>>> MetaClient::get_xattr(Caller caller, Ref inode,
                                                               std::string name) {
  wire::GetXattrRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_name(name);
  auto calling = call(kGetXattr, std::move(request));
  FF_CO_TRY(const wire::GetXattrReply reply, co_await std::move(calling));
  if (!reply.has_value()) co_return std::optional<std::string>();
  co_return std::optional(reply.value());
}

Task<Result<std::vector<std::string>>> MetaClient::list_xattrs(Ref inode) {
  wire::ListXattrsRequest request;
  put(inode, *request.mutable_inode());
  auto calling = call(kListXattrs, std::move(request));
  FF_CO_TRY(const wire::ListXattrsReply reply, co_await std::move(calling));
  co_return std::vector<std::string>(reply.names().begin(), reply.names().end());
}

Task<Result<Seen>> MetaClient::set_xattr(Caller caller, Ref inode, std::string name,
                                         std::optional<std::string> value, Names::XattrMode mode) {
  wire::SetXattrRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_name(name);
  if (value) request.set_value(*value);
  request.set_mode(static_cast<uint32_t>(mode));
  return change(kSetXattr, std::move(request), {"change of attribute", name}, {});
}

Task<Result<Seen>> MetaClient::truncate(Caller caller, Ref inode, uint64_t length,
                                        std::optional<std::string> capability) {
  wire::TruncateRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_length(length);
  request.set_opened(capability.has_value());
  if (capability) request.set_capability(*capability);
  return change(kTruncate, std::move(request), {.verb = "truncation", .bytes = length}, {}, kCutNs,
                kPatienceNs);
}

Task<Result<Seen>> MetaClient::wrote(InodeId inode, SessionId session, Names::Written written,
                                     std::string capability) {
  return tell({inode, session, written, std::move(capability)});
}

Task<Result<Seen>> MetaClient::tell(Pending::Told told) {
  wire::WroteRequest request;
  request.set_inode(told.inode);
  put(told.session, *request.mutable_session());
  request.set_end(told.written.end);
  request.set_truncations(told.written.truncations);
  request.set_mtime_ns(told.written.mtime_ns);
  request.set_closed(told.written.closed);
  request.set_capability(told.capability);
  auto calling = call(kWrote, std::move(request));
  FF_CO_TRY(const wire::InodeReply reply, co_await std::move(calling));
  Pending::Change change{.mark = mark_of(reply),
                         .action = {.verb = "length", .bytes = told.written.end},
                         .inodes = {told.inode}};
  change.told = std::make_unique<const Pending::Told>(std::move(told));
  pending_.add(std::move(change));
  co_return seen_of(reply);
}

Task<Result<Seen>> MetaClient::append(InodeId inode, uint64_t size, std::string capability) {
  wire::AppendRequest request;
  request.set_inode(inode);
  request.set_size(size);
  request.set_capability(capability);
  return change(kAppend, std::move(request), {.verb = "append", .bytes = size}, {});
}

Task<Result<void>> MetaClient::end(std::vector<Names::Ended> ended) {
  wire::EndRequest request;
  request.set_client(client_);
  for (const Names::Ended& one : ended) {
    auto& to = *request.add_ended();
    to.set_inode(one.inode);
    to.set_session(one.session.number);
  }
  auto calling = call(kEnd, std::move(request));
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

Task<Result<bool>> MetaClient::lock(Caller caller, Ref inode, SessionId owner) {
  wire::LockRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  put(owner, *request.mutable_owner());
  auto calling = call(kLock, std::move(request));
  FF_CO_TRY(const wire::LockReply reply, co_await std::move(calling));
  co_return reply.held();
}

Task<Result<void>> MetaClient::unlock(Ref inode, SessionId owner) {
  wire::LockRequest request;
  put(inode, *request.mutable_inode());
  put(owner, *request.mutable_owner());
  request.set_release(true);
  auto calling = call(kLock, std::move(request));
  FF_CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

Task<Result<wire::UserReply>> MetaClient::set_user(wire::User user) {
  wire::AddUserRequest request;
  *request.mutable_user() = user;
  return call(kSetUser, std::move(request));
}

// A token that was made and not told is one too many, and nothing worse.
Task<Result<wire::UserReply>> MetaClient::token(uint32_t uid, bool revoke) {
  wire::TokenRequest request;
  request.set_uid(uid);
  request.set_revoke(revoke);
  return call(kToken, std::move(request));
}

Task<Result<std::vector<wire::User>>> MetaClient::users() {
  auto calling = call(kListUsers, wire::ListUsersRequest());
  FF_CO_TRY(const wire::ListUsersReply reply, co_await std::move(calling));
  co_return std::vector<wire::User>(reply.users().begin(), reply.users().end());
}

Task<Result<wire::FsckReply>> MetaClient::fsck(bool repair, int64_t orphans_after_ns) {
  wire::FsckRequest request;
  request.set_repair(repair);
  request.set_orphans_after_ns(orphans_after_ns);
  return call(kFsck, std::move(request), kFsckNs, kFsckNs);
}

}  // namespace ff::meta
