// meta_client.cc: chooses servers, retries, and converts messages.
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
// What a batch does was acknowledged: it is sent until a server applies or refuses it.
constexpr int64_t kBatchTimeoutNs = 24 * 3600 * kSecond;

void put(const Caller& caller, wire::Who& out) {
  out.set_uid(caller.uid);
  out.set_gid(caller.gid);
  for (const uint32_t group : caller.groups) out.add_groups(group);
}
void put(const InodeRef& ref, wire::Ref& out) {
  out.set_inode(ref.id);
  out.set_proof(ref.proof);
  out.set_way(ref.path);
}
void put(const InodeRef& dir, const std::string& name, wire::Place& out) {
  put(dir, *out.mutable_dir());
  out.set_name(name);
}
void put(SessionId session, wire::Session& out) {
  out.set_client(session.client);
  out.set_number(session.number);
}

Result<InodeView> view_of(const wire::InodeReply& reply) {
  FF_TRY(auto inode, from_wire(reply.inode()));
  return InodeView{std::move(inode), reply.proof(), reply.capability()};
}
kv::CommitPosition mark_of(const wire::InodeReply& reply) {
  return {reply.mark().generation(), reply.mark().position()};
}

std::string text(const UncommittedChanges::Action& action) {
  std::string all = action.verb;
  if (action.bytes) all += fmt::format(" of {} bytes", *action.bytes);
  if (!action.name.empty()) all += fmt::format(" of \"{}\"", printable(action.name));
  if (!action.to.empty()) all += fmt::format(" to \"{}\"", printable(action.to));
  return all;
}

}  // namespace

// One slot of the client. The destructor returns it, or keeps it for its origin.
class MetaClient::Slot {
 public:
  Slot(MetaClient& of, HeldSlot held, uint64_t origin)
      : client_(of), held_(std::move(held)), origin_(origin) {}
  ~Slot() {
    MetaClientState::Slot& state = client_.state_.slots[held_.number];
    const auto kept = client_.held_.find(origin_);
    if (origin_ != 0 && kept != client_.held_.end() && kept->second.number == held_.number) {
      kept->second.hold = std::move(held_.hold);
      kept->second.busy = false;
      return;
    }
    state.origin.store(0);
    client_.free_.push_back(held_.number);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  void put(wire::Request& out, uint32_t method, Origin origin) {
    MetaClientState::Slot& state = client_.state_.slots[held_.number];
    const bool repeats = held_.restored && state.method.load() == method;
    if (!repeats) {
      state.origin.store(0);
      state.method.store(method);
      state.session.store(origin.session);
      state.sequence.store(state.sequence.load() + 1);
      state.origin.store(origin_);
    }
    out.set_client(client_.client_);
    out.set_slot(held_.number);
    out.set_sequence(state.sequence.load());
    out.set_again(repeats);
  }

 private:
  MetaClient& client_;
  HeldSlot held_;
  const uint64_t origin_;
};

struct MetaClient::Attempt {
  Backoff backoff;
  int64_t until_ns = 0;
  size_t failures = 0;
  size_t refusals = 0;  // consecutive
};

MetaClient::MetaClient(rpc::ClientContext& context, const std::vector<net::Address>& servers,
                       OnLost on_lost, MetaClientState* state)
    : context_(context),
      loop_(context.loop),
      preferred_server_(context.rng.below(std::max<size_t>(servers.size(), 1))),
      own_state_(state == nullptr ? std::make_unique<MetaClientState>() : nullptr),
      state_(state == nullptr ? *own_state_ : *state),
      client_(state_.client.load() != 0 ? state_.client.load() : context.rng.next()),
      registering_(context.loop, 1),
      slots_(context.loop, kSlots),
      on_lost_(std::move(on_lost)),
      resending_(context.loop, 1),
      gate_(context.loop) {
  FF_CHECK(!servers.empty());
  for (const net::Address& address : servers) {
    servers_.push_back(
        std::make_unique<rpc::Client>(context, address, auth::Service{auth::Role::meta, {}}));
    servers_.back()->use_any_shard();
  }
  state_.client.store(client_);
  for (uint32_t i = kSlots; i > 0; i--) {
    const uint64_t origin = state_.slots[i - 1].origin.load();
    if (origin == 0 || held_.contains(origin)) {
      free_.push_back(i - 1);
      continue;
    }
    held_[origin] = {.number = i - 1, .hold = *slots_.try_acquire(1), .restored = true};
  }
}

SessionId MetaClient::new_session(uint64_t origin) {
  const auto held = origin == 0 ? held_.end() : held_.find(origin);
  if (held != held_.end() && held->second.restored) {
    const uint64_t number = state_.slots[held->second.number].session.load();
    if (number != 0) return session(number);
  }
  const uint64_t number = state_.sessions.load() + 1;
  state_.sessions.store(number);
  return session(number);
}

bool MetaClient::awaits(SessionId session) const {
  return std::ranges::any_of(held_, [&](const auto& one) {
    return one.second.restored && state_.slots[one.second.number].session.load() == session.number;
  });
}

void MetaClient::end_origin(uint64_t origin) {
  const auto held = held_.find(origin);
  if (held == held_.end()) return;
  const bool busy = held->second.busy;  // then ~Slot() returns it
  const uint32_t number = held->second.number;
  held_.erase(held);
  if (busy) return;
  state_.slots[number].origin.store(0);
  free_.push_back(number);
}

void MetaClient::end_restored_origins() {
  std::vector<uint64_t> restored;
  for (const auto& [origin, held] : held_) {
    if (held.restored && !held.busy) restored.push_back(origin);
  }
  for (const uint64_t origin : restored) end_origin(origin);
}

// The slot that the origin has already, or a free one.
Task<Result<MetaClient::HeldSlot>> MetaClient::acquire_slot(uint64_t origin) {
  const auto kept = origin == 0 ? held_.end() : held_.find(origin);
  if (kept != held_.end() && !kept->second.busy) {
    HeldSlot slot{.number = kept->second.number,
                  .hold = std::move(kept->second.hold),
                  .restored = std::exchange(kept->second.restored, false)};
    kept->second.busy = true;
    co_return slot;
  }
  FF_CO_TRY(auto hold, co_await slots_.acquire(1));
  HeldSlot slot{.number = free_.back(), .hold = std::move(hold)};
  free_.pop_back();
  if (origin != 0 && !held_.contains(origin)) {
    held_[origin] = {.number = slot.number, .hold = {}, .busy = true};
  }
  co_return slot;
}

Task<void> MetaClient::close() {
  Error reason = fail(Errc::interrupted, "the client is shutting down");
  co_await gate_.close(std::move(reason));
  for (const auto& server : servers_) {
    co_await server->close();
  }
}

// Switches to the next server after a failure, and pauses after each round over all servers.
// Returns the error if it is final or the timeout has expired.
Task<Result<void>> MetaClient::on_failure(Error error, size_t server, Attempt& attempt) {
  const CancellationToken* const cancel = co_await current_cancellation();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  if (preferred_server_ == server) preferred_server_ = (preferred_server_ + 1) % servers_.size();
  attempt.refusals = error.code == Errc::refused ? attempt.refusals + 1 : 0;
  if (attempt.refusals == servers_.size()) co_return error;
  if (loop_.now_ns() >= attempt.until_ns) co_return error;
  if (++attempt.failures % servers_.size() != 0) co_return Result<void>();
  const int64_t again_ns = loop_.now_ns() + attempt.backoff.next_delay_ns();
  if (again_ns >= attempt.until_ns) co_return error;
  co_return co_await sleep_until(loop_, again_ns);
}

template <class Asked, class Reply>
Task<Result<Reply>> MetaClient::call(rpc::Method<Asked, Reply> method, Asked request,
                                     int64_t timeout_ns, int64_t attempt_ns) {
  Attempt attempt{.backoff = {context_.rng, kAgainFirstNs, kAgainLastNs},
                  .until_ns = loop_.now_ns() + timeout_ns};
  if constexpr (requires { request.mutable_who(); }) {
    if (lease_ != 0) request.mutable_who()->set_lease(lease_);
  }
  for (;;) {
    const size_t server = preferred_server_;
    rpc::Client& client = *servers_[server];
    const int64_t until_ns = std::min(loop_.now_ns() + attempt_ns, attempt.until_ns);
    const auto channel = co_await client.channel(until_ns);
    Error error;
    if (channel) {
      auto reply = co_await rpc::call_method(client, method, request, until_ns);
      if (reply || !is_retryable(reply.error())) co_return reply;
      error = std::move(reply).error();
      if constexpr (requires { request.mutable_request(); }) {
        if (request.has_request()) request.mutable_request()->set_again(true);
      }
    } else {
      error = channel.error();
    }
    FF_CO_TRY(co_await on_failure(std::move(error), server, attempt));
  }
}

// Registers the client before its first change: servers keep its replies and sessions while it
// renews itself.
Task<Result<void>> MetaClient::register_client() {
  if (registered_) co_return Result<void>();
  FF_CO_TRY(const auto hold, co_await registering_.acquire(1));
  if (registered_) co_return Result<void>();
  wire::AliveRequest request;
  request.set_client(client_);
  FF_CO_TRY(co_await call(kRenewClient, std::move(request)));
  registered_ = true;
  gate_.spawn(keep_registered());
  co_return Result<void>();
}

Task<void> MetaClient::keep_registered() {
  for (;;) {
    const auto waited = co_await sleep_for(loop_, kClientRenewNs);
    if (!waited) co_return;
    wire::AliveRequest request;
    request.set_client(client_);
    (void)co_await call(kRenewClient, std::move(request));
  }
}

template <class Asked>
Task<Result<InodeView>> MetaClient::change(rpc::Method<Asked, wire::InodeReply> method,
                                           Asked request, Origin origin,
                                           UncommittedChanges::Action action,
                                           std::vector<InodeRef> refs, int64_t timeout_ns,
                                           int64_t attempt_ns) {
  FF_CO_TRY(co_await register_client());
  FF_CO_TRY(auto held, co_await acquire_slot(origin.request));
  Slot slot(*this, std::move(held), origin.request);
  slot.put(*request.mutable_request(), method.number, origin);
  FF_CO_TRY(const wire::InodeReply reply,
            co_await call(method, std::move(request), timeout_ns, attempt_ns));
  UncommittedChanges::Change change{.mark = mark_of(reply), .action = std::move(action)};
  change.inodes.assign(reply.walked().begin(), reply.walked().end());
  change.inodes.push_back(reply.inode().id());
  for (const InodeRef& ref : refs) {
    const bool known = std::ranges::find(change.inodes, ref.id) != change.inodes.end();
    if (ref.path.empty() && !known) change.inodes.push_back(ref.id);
  }
  uncommitted_.add(std::move(change));
  co_return view_of(reply);
}

template <class Asked>
Task<Result<InodeView>> MetaClient::query(rpc::Method<Asked, wire::InodeReply> method,
                                          Asked request) {
  FF_CO_TRY(const wire::InodeReply reply, co_await call(method, std::move(request)));
  co_return view_of(reply);
}

// The answering store has the history of the store that acknowledged the changes: changes that it
// does not know are lost.
Task<Result<void>> MetaClient::sync() {
  for (;;) {
    const uint64_t count = uncommitted_.count();
    wire::SyncRequest request;
    for (const uint64_t generation : uncommitted_.generations())
      request.add_generations(generation);
    FF_CO_TRY(const wire::SyncReply reply, co_await call(kSync, std::move(request)));
    std::map<uint64_t, uint64_t> durable;
    for (const wire::Mark& mark : reply.durable()) durable[mark.generation()] = mark.position();
    std::vector<UncommittedChanges::Change> lost;
    for (UncommittedChanges::Change& change : uncommitted_.commit(count, durable)) {
      if (change.sent == nullptr) {
        lost.push_back(std::move(change));
      } else {
        lost_lengths_.push_back(std::move(change));
      }
    }
    report_lost(lost, "a metadata server lost it before it was durable");
    if (lost_lengths_.empty()) co_return Result<void>();
    FF_CO_TRY(co_await resend_lengths());
  }
}

// Concurrent callers of sync() wait for it and then sync again.
Task<Result<void>> MetaClient::resend_lengths() {
  FF_CO_TRY(const auto hold, co_await resending_.acquire(1));
  while (!lost_lengths_.empty()) {
    auto told = co_await send_length(*lost_lengths_.front().sent);
    if (!told && is_retryable(told.error())) co_return std::move(told).error();
    std::vector<UncommittedChanges::Change> done;
    done.push_back(std::move(lost_lengths_.front()));
    lost_lengths_.pop_front();
    if (!told) report_lost(done, told.error().message);
  }
  co_return Result<void>();
}

void MetaClient::report_lost(const std::vector<UncommittedChanges::Change>& changes,
                             const std::string& why) {
  struct Sum {
    std::string first;
    size_t count = 0;
  };
  std::map<InodeId, Sum> inodes;
  for (const UncommittedChanges::Change& change : changes) {
    for (const InodeId inode : change.inodes) {
      Sum& sum = inodes[inode];
      if (sum.count++ == 0) sum.first = text(change.action);
    }
  }
  for (const auto& [inode, sum] : inodes) {
    const std::string more = sum.count > 1 ? fmt::format(", and {} more", sum.count - 1) : "";
    Error error = fail(Errc::failed, "inode {}: {}{}: {}", inode, sum.first, more, why);
    error.hint = std::string("Check which changes are missing and repeat them.");
    error.sys = EIO;
    on_lost_(inode, std::move(error));
  }
}

Task<Result<InodeView>> MetaClient::stat(InodeRef inode, bool exact) {
  wire::StatRequest request;
  put(inode, *request.mutable_inode());
  request.set_exact(exact);
  return query(kStat, std::move(request));
}

Task<Result<InodeView>> MetaClient::lookup(Caller caller, InodeRef dir, std::string name) {
  wire::LookupRequest request;
  put(caller, *request.mutable_who());
  put(dir, name, *request.mutable_place());
  return query(kLookup, std::move(request));
}

Task<Result<MetaClient::WalkResult>> MetaClient::walk(Caller caller, InodeRef from,
                                                      std::string path, bool follow) {
  wire::WalkRequest request;
  put(caller, *request.mutable_who());
  put(from, *request.mutable_from());
  request.set_path(path);
  request.set_follow(follow);
  FF_CO_TRY(const wire::WalkReply reply, co_await call(kWalk, std::move(request)));
  WalkResult walked{.dir = {}, .name = reply.name(), .found = std::nullopt};
  FF_CO_TRY(walked.dir.inode, from_wire(reply.dir()));
  walked.dir.proof = reply.dir_proof();
  if (!reply.has_inode()) co_return walked;
  FF_CO_TRY(auto inode, from_wire(reply.inode()));
  walked.found = InodeView{std::move(inode), reply.proof(), {}};
  co_return walked;
}

Task<Result<MetaClient::DirPage>> MetaClient::list(Caller caller, InodeRef dir, std::string after,
                                                   uint32_t limit, bool with_inodes) {
  wire::ListRequest request;
  put(caller, *request.mutable_who());
  put(dir, *request.mutable_dir());
  request.set_after(after);
  request.set_limit(limit);
  request.set_with_inodes(with_inodes);
  FF_CO_TRY(const wire::ListReply reply, co_await call(kList, std::move(request)));
  DirPage page{.entries = {}, .end = reply.end()};
  for (const wire::Listed& from : reply.entries()) {
    if (from.kind() < 1 || from.kind() > static_cast<uint32_t>(InodeType::block)) {
      co_return fail(Errc::corrupt, "a server returned a directory entry of kind {}", from.kind());
    }
    DirEntry entry{.name = from.name(),
                   .id = from.id(),
                   .kind = static_cast<InodeType>(from.kind()),
                   .view = std::nullopt};
    if (from.has_inode()) {
      FF_CO_TRY(auto inode, from_wire(from.inode()));
      entry.view = InodeView{std::move(inode), from.proof(), {}};
    }
    page.entries.push_back(std::move(entry));
  }
  co_return page;
}

Task<Result<InodeView>> MetaClient::create(Caller caller, InodeRef dir, std::string name,
                                           Namespace::CreateOptions create) {
  wire::MakeRequest request;
  put(caller, *request.mutable_who());
  put(dir, name, *request.mutable_place());
  request.set_kind(static_cast<uint32_t>(create.kind));
  request.set_mode(create.mode);
  request.set_target(create.target);
  request.set_device(create.device);
  if (create.layout) to_wire(*create.layout, *request.mutable_layout());
  request.set_exclusive(create.exclusive);
  if (create.session) put(*create.session, *request.mutable_session());
  request.set_rights(create.rights);
  request.set_chunk_size(create.chunk_size);
  const Origin origin{caller.origin, create.session ? create.session->number : 0};
  return change(kCreate, std::move(request), origin, {"creation", name}, {std::move(dir)});
}

Task<Result<InodeView>> MetaClient::open(Caller caller, InodeRef inode, uint32_t rights,
                                         std::optional<SessionId> session) {
  if (session) {
    FF_CO_TRY(co_await register_client());
  }
  wire::OpenRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_rights(rights);
  if (session) put(*session, *request.mutable_session());
  co_return co_await query(kOpen, std::move(request));
}

Task<Result<std::string>> MetaClient::renew(Caller caller, InodeId inode, std::string capability) {
  wire::RenewRequest request;
  put(caller, *request.mutable_who());
  request.set_inode(inode);
  request.set_capability(capability);
  FF_CO_TRY(const wire::RenewReply reply, co_await call(kRenew, std::move(request)));
  co_return reply.capability();
}

Task<Result<InodeView>> MetaClient::link(Caller caller, InodeRef inode, InodeRef dir,
                                         std::string name) {
  wire::LinkRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  put(dir, name, *request.mutable_place());
  return change(kLink, std::move(request), {caller.origin}, {"link", name},
                {std::move(dir), std::move(inode)});
}

namespace {

wire::RemoveRequest removal(const Caller& caller, const InodeRef& dir, const std::string& name) {
  wire::RemoveRequest request;
  put(caller, *request.mutable_who());
  put(dir, name, *request.mutable_place());
  return request;
}

}  // namespace

Task<Result<InodeView>> MetaClient::unlink(Caller caller, InodeRef dir, std::string name,
                                           std::optional<SessionId> holder) {
  wire::RemoveRequest request = removal(caller, dir, name);
  if (holder) put(*holder, *request.mutable_holder());
  const Origin origin{caller.origin, holder ? holder->number : 0};
  return change(kUnlink, std::move(request), origin, {"removal", name}, {std::move(dir)});
}

Task<Result<InodeView>> MetaClient::rmdir(Caller caller, InodeRef dir, std::string name) {
  wire::RemoveRequest request = removal(caller, dir, name);
  return change(kRmdir, std::move(request), {caller.origin}, {"removal", name}, {std::move(dir)});
}

Task<Result<InodeView>> MetaClient::remove_tree(Caller caller, InodeRef dir, std::string name) {
  wire::RemoveRequest request = removal(caller, dir, name);
  return change(kRemoveTree, std::move(request), {caller.origin}, {"removal", name},
                {std::move(dir)}, kTimeoutNs, kTimeoutNs);
}

Task<Result<InodeView>> MetaClient::rename(Caller caller, Rename rename) {
  wire::RenameRequest request;
  put(caller, *request.mutable_who());
  put(rename.from_dir, rename.from, *request.mutable_from());
  put(rename.to_dir, rename.to, *request.mutable_to());
  request.set_no_replace(rename.no_replace);
  request.set_exchange(rename.exchange);
  if (rename.holder) put(*rename.holder, *request.mutable_holder());
  const Origin origin{caller.origin, rename.holder ? rename.holder->number : 0};
  return change(kRename, std::move(request), origin,
                {"rename", std::move(rename.from), std::move(rename.to)},
                {std::move(rename.from_dir), std::move(rename.to_dir)});
}

Task<Result<InodeView>> MetaClient::set_attributes(Caller caller, InodeRef inode,
                                                   Namespace::Attributes to) {
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
  return change(kSetAttributes, std::move(request), {caller.origin},
                {times_only ? "change of times" : "change of mode or owner"}, {});
}

Task<Result<InodeView>> MetaClient::set_layout(Caller caller, InodeRef dir, Layout layout) {
  wire::SetLayoutRequest request;
  put(caller, *request.mutable_who());
  put(dir, *request.mutable_dir());
  to_wire(layout, *request.mutable_layout());
  return change(kSetLayout, std::move(request), {caller.origin}, {"change of layout"}, {});
}

Task<Result<std::optional<std::string>>> MetaClient::get_xattr(Caller caller, InodeRef inode,
                                                               std::string name) {
  wire::GetXattrRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_name(name);
  FF_CO_TRY(const wire::GetXattrReply reply, co_await call(kGetXattr, std::move(request)));
  if (!reply.has_value()) co_return std::optional<std::string>();
  co_return std::optional(reply.value());
}

Task<Result<std::vector<std::string>>> MetaClient::list_xattrs(InodeRef inode) {
  wire::ListXattrsRequest request;
  put(inode, *request.mutable_inode());
  FF_CO_TRY(const wire::ListXattrsReply reply, co_await call(kListXattrs, std::move(request)));
  co_return std::vector<std::string>(reply.names().begin(), reply.names().end());
}

Task<Result<InodeView>> MetaClient::set_xattr(Caller caller, InodeRef inode, std::string name,
                                              std::optional<std::string> value,
                                              Namespace::XattrMode mode) {
  wire::SetXattrRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_name(name);
  if (value) request.set_value(*value);
  request.set_mode(static_cast<uint32_t>(mode));
  return change(kSetXattr, std::move(request), {caller.origin}, {"change of attribute", name}, {});
}

Task<Result<InodeView>> MetaClient::truncate(Caller caller, InodeRef inode, uint64_t length,
                                             std::optional<std::string> capability) {
  wire::TruncateRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  request.set_length(length);
  request.set_opened(capability.has_value());
  if (capability) request.set_capability(*capability);
  return change(kTruncate, std::move(request), {caller.origin},
                {.verb = "truncation", .bytes = length}, {}, kTruncateTimeoutNs, kTimeoutNs);
}

Task<Result<InodeView>> MetaClient::report_length(InodeId inode, SessionId session,
                                                  Namespace::LengthReport report,
                                                  std::string capability) {
  return send_length({inode, session, report, std::move(capability)});
}

Task<Result<InodeView>> MetaClient::send_length(UncommittedChanges::SentLength sent) {
  wire::WroteRequest request;
  request.set_inode(sent.inode);
  put(sent.session, *request.mutable_session());
  request.set_end(sent.report.min_length);
  request.set_truncations(sent.report.truncate_seq);
  request.set_mtime_ns(sent.report.mtime_ns);
  request.set_closed(sent.report.closed);
  request.set_unstored(sent.report.unstored);
  request.set_capability(sent.capability);
  FF_CO_TRY(const wire::InodeReply reply, co_await call(kReportLength, std::move(request)));
  UncommittedChanges::Change change{.mark = mark_of(reply),
                                    .action = {.verb = "length", .bytes = sent.report.min_length},
                                    .inodes = {sent.inode}};
  change.sent = std::make_unique<const UncommittedChanges::SentLength>(std::move(sent));
  uncommitted_.add(std::move(change));
  co_return view_of(reply);
}

Task<Result<InodeView>> MetaClient::append(InodeId inode, uint64_t size, std::string capability,
                                           uint64_t origin) {
  wire::AppendRequest request;
  request.set_inode(inode);
  request.set_size(size);
  request.set_capability(capability);
  return change(kAppend, std::move(request), {origin}, {.verb = "append", .bytes = size}, {});
}

Task<Result<void>> MetaClient::end_sessions(std::vector<Namespace::EndedSession> ended) {
  wire::EndRequest request;
  request.set_client(client_);
  for (const Namespace::EndedSession& one : ended) {
    auto& to = *request.add_ended();
    to.set_inode(one.inode);
    to.set_session(one.session.number);
  }
  FF_CO_TRY(co_await call(kEndSessions, std::move(request)));
  co_return Result<void>();
}

Task<Result<bool>> MetaClient::lock(Caller caller, InodeRef inode, SessionId owner) {
  wire::LockRequest request;
  put(caller, *request.mutable_who());
  put(inode, *request.mutable_inode());
  put(owner, *request.mutable_owner());
  FF_CO_TRY(const wire::LockReply reply, co_await call(kLock, std::move(request)));
  co_return reply.held();
}

Task<Result<void>> MetaClient::unlock(InodeRef inode, SessionId owner) {
  wire::LockRequest request;
  put(inode, *request.mutable_inode());
  put(owner, *request.mutable_owner());
  request.set_release(true);
  FF_CO_TRY(co_await call(kLock, std::move(request)));
  co_return Result<void>();
}

Task<Result<wire::LeaseReply>> MetaClient::renew_lease(wire::LeaseRequest request) {
  FF_CO_TRY(co_await register_client());
  request.set_client(client_);
  if (!request.fresh()) {
    co_return co_await call(kRenewLease, std::move(request), kAttemptTimeoutNs);
  }
  FF_CO_TRY(auto held, co_await acquire_slot(0));
  Slot slot(*this, std::move(held), 0);
  slot.put(*request.mutable_request(), kRenewLease.number, Origin());
  co_return co_await call(kRenewLease, std::move(request), kAttemptTimeoutNs);
}

Task<Result<wire::DelegateReply>> MetaClient::delegate(InodeId dir) {
  wire::DelegateRequest request;
  request.set_lease(lease_);
  request.set_dir(dir);
  co_return co_await call(kDelegate, std::move(request), kAttemptTimeoutNs);
}

Task<Result<std::vector<InodeId>>> MetaClient::apply_batch(
    wire::BatchRequest batch, std::vector<UncommittedChanges::Change> changes, uint64_t number) {
  FF_CO_TRY(co_await register_client());
  const Origin origin{.request = kBatchOrigin | number};
  FF_CO_TRY(auto held, co_await acquire_slot(origin.request));
  Slot slot(*this, std::move(held), origin.request);
  slot.put(*batch.mutable_request(), kApplyBatch.number, origin);
  FF_CO_TRY(const wire::InodeReply reply,
            co_await call(kApplyBatch, std::move(batch), kBatchTimeoutNs));
  for (UncommittedChanges::Change& change : changes) {
    change.mark = mark_of(reply);
    uncommitted_.add(std::move(change));
  }
  co_return std::vector<InodeId>(reply.recalled().begin(), reply.recalled().end());
}

std::optional<uint64_t> MetaClient::restored_batch() const {
  std::optional<uint64_t> last;
  for (const auto& [origin, slot] : held_) {
    const bool sent = slot.restored && (origin & kBatchOrigin) != 0;
    if (sent) last = std::max(last.value_or(0), origin & ~kBatchOrigin);
  }
  return last;
}

Task<Result<std::vector<InodeId>>> MetaClient::recalls(size_t server) {
  wire::RecallsRequest request;
  request.set_lease(lease_);
  FF_CO_TRY(const wire::RecallsReply reply,
            co_await rpc::call_method(*servers_[server], kRecalls, request,
                                      loop_.now_ns() + 2 * kRecallsWaitNs));
  co_return std::vector<InodeId>(reply.recalled().begin(), reply.recalled().end());
}

Task<Result<wire::UserReply>> MetaClient::set_user(wire::User user) {
  wire::AddUserRequest request;
  *request.mutable_user() = user;
  return call(kSetUser, std::move(request));
}

// If the reply is lost, an unused token stays valid, which does no harm.
Task<Result<wire::UserReply>> MetaClient::token(uint32_t uid, bool revoke) {
  wire::TokenRequest request;
  request.set_uid(uid);
  request.set_revoke(revoke);
  return call(kToken, std::move(request));
}

Task<Result<std::vector<wire::User>>> MetaClient::users() {
  FF_CO_TRY(const wire::ListUsersReply reply, co_await call(kListUsers, wire::ListUsersRequest()));
  co_return std::vector<wire::User>(reply.users().begin(), reply.users().end());
}

Task<Result<wire::FsckReply>> MetaClient::fsck(bool repair, int64_t orphans_after_ns) {
  wire::FsckRequest request;
  request.set_repair(repair);
  request.set_orphans_after_ns(orphans_after_ns);
  return call(kFsck, std::move(request), kFsckTimeoutNs, kFsckTimeoutNs);
}

}  // namespace ff::meta
