// delegating_meta_client.cc: the calls. Leases and batches are in delegation_sender.cc.
#include "storage/client/delegating_meta_client.h"

#include <cerrno>
#include <utility>

#include "storage/meta/service.h"

namespace ff::client {

using meta::Caller;
using meta::Dentry;
using meta::Inode;
using meta::InodeId;
using meta::InodeRef;
using meta::InodeView;

namespace {

std::vector<Dentry> refers_to(const Inode& inode) { return {{inode.id, inode.kind}}; }
std::vector<Dentry> refers_to_nothing(const Inode&) { return {{}}; }
std::vector<Dentry> moved(const Inode& inode) { return {{}, {inode.id, inode.kind}}; }
// Who knows what an exchange has left where.
std::vector<Dentry> unknown(const Inode&) { return {}; }

}  // namespace

DelegatingMetaClient::DelegatingMetaClient(rpc::ClientContext& context,
                                           const std::vector<net::Address>& servers, OnLost on_lost,
                                           RecoveryTable* recovery, bool enabled)
    : MetaClient(context, servers, std::move(on_lost),
                 recovery == nullptr ? nullptr : &recovery->metadata()),
      enabled_(enabled),
      delegations_(context.loop, recovery),
      starting_(context.loop, 1),
      changed_(context.loop),
      urgent_(context.loop),
      applied_(context.loop),
      gate_(context.loop) {
  if (enabled_ || (recovery != nullptr && recovery->continues())) gate_.spawn(send_changes());
}

Task<Result<InodeView>> DelegatingMetaClient::answered(Result<InodeView> answer) {
  delegations_.record();
  wake_sender();
  co_return answer;
}

// It may have no name any more.
Task<Result<InodeView>> DelegatingMetaClient::repeated(ChangeJournal::Answered answer) {
  InodeRef ref{.id = answer.inode};
  auto now = co_await MetaClient::stat(std::move(ref), false);
  if (now || now.error().code != Errc::stale) co_return now;
  InodeView removed;
  removed.inode.id = answer.inode;
  removed.inode.ctime_ns = answer.now_ns;
  removed.inode.links = 0;
  co_return removed;
}

meta::SessionId DelegatingMetaClient::new_session(uint64_t origin) {
  const uint64_t number = origin == 0 ? 0 : delegations_.journal().session_of(origin);
  return number != 0 ? session(number) : MetaClient::new_session(origin);
}

bool DelegatingMetaClient::awaits(meta::SessionId session) const {
  return delegations_.journal().awaits(session.number) || MetaClient::awaits(session);
}

void DelegatingMetaClient::end_origin(uint64_t origin) {
  delegations_.journal().end_origin(origin);
  MetaClient::end_origin(origin);
}

void DelegatingMetaClient::end_restored_origins() {
  delegations_.journal().end_restored_origins();
  MetaClient::end_restored_origins();
}

Task<Result<void>> DelegatingMetaClient::wait_applied(uint64_t number) {
  const int64_t until_ns = loop().now_ns() + kTimeoutNs;
  while (delegations_.applied() < number) {
    urgent_.set();
    changed_.set();
    const auto waited = co_await applied_.wait(until_ns);
    if (waited) continue;
    if (waited.error().code != Errc::deadline) co_return waited;
    co_return fail(Errc::deadline, "no metadata server has taken earlier changes in time");
  }
  co_return Result<void>();
}

Task<Result<void>> DelegatingMetaClient::settle(std::vector<InodeId> inodes) {
  co_return co_await wait_applied(delegations_.last_change(inodes));
}

// Calls a server after the changes of these inodes, or all, are applied.
template <class Reply>
Task<Result<Reply>> DelegatingMetaClient::settled(std::vector<InodeId> inodes, bool all,
                                                  Task<Result<Reply>> calling) {
  if (all) {
    FF_CO_TRY(co_await settle_all());
  } else {
    FF_CO_TRY(co_await settle(std::move(inodes)));
  }
  co_return co_await std::move(calling);
}

// A server changes an inode, and answers all calls on it from then on.
Task<Result<InodeView>> DelegatingMetaClient::inode_change(InodeRef inode,
                                                           Task<Result<InodeView>> calling) {
  if (!inode.path.empty()) {
    give_all_back();  // the path may lead anywhere
    FF_CO_TRY(co_await settle_all());
    co_return co_await std::move(calling);
  }
  delegations_.expose(inode.id);
  if (delegations_.holds(inode.id)) delegations_.give_back(inode.id);
  FF_CO_TRY(co_await settle_one(inode.id));
  co_return co_await std::move(calling);
}

void DelegatingMetaClient::give_all_back() {
  const auto all = delegations_.all_held();
  for (const InodeId held : all) delegations_.give_back(held);
}

Task<Result<InodeView>> DelegatingMetaClient::name_change(Names names, Outcome outcome,
                                                          Task<Result<InodeView>> calling) {
  const auto change = delegations_.begin_change(std::move(names));
  const auto ready = co_await settle_all();  // also lengths of files that get another name
  Result<InodeView> done = ready ? Result<InodeView>(Error()) : Result<InodeView>(ready.error());
  if (ready) done = co_await std::move(calling);
  delegations_.end_change(change, done ? outcome(done->inode) : std::vector<Dentry>());
  if (!done) co_return done;
  for (const auto& [dir, name] : change.names) {
    if (delegations_.count_change(dir)) gate_.spawn(ask_for(dir));
  }
  co_return done;
}

Task<Result<InodeView>> DelegatingMetaClient::fetch(InodeRef inode, bool exact) {
  const uint64_t asked = delegations_.changes();
  FF_CO_TRY(co_await settle_one(inode.id));
  auto got = co_await MetaClient::stat(std::move(inode), exact);
  if (got && got->inode.is(meta::InodeType::directory)) delegations_.refresh_dir(got->inode, asked);
  co_return got;
}

// The inode that a server returns may have changes that are not sent yet.
Task<Result<InodeView>> DelegatingMetaClient::resolve(Caller caller, InodeRef dir,
                                                      std::string name) {
  for (;;) {
    auto settling = dir.path.empty() ? settle_one(dir.id) : settle_all();
    FF_CO_TRY(co_await std::move(settling));
    FF_CO_TRY(auto found, co_await MetaClient::lookup(caller, dir, name));
    if (auto answer = delegations_.stat(found.inode.id)) co_return std::move(*answer);
    const uint64_t last = delegations_.last_change({found.inode.id});
    if (last <= delegations_.applied()) co_return found;
    FF_CO_TRY(co_await wait_applied(last));
  }
}

Task<Result<InodeView>> DelegatingMetaClient::stat(InodeRef inode, bool exact) {
  if (!answers(inode)) return MetaClient::stat(std::move(inode), exact);
  if (!exact) {
    if (auto answer = delegations_.stat(inode.id)) return answered(std::move(*answer));
  }
  return fetch(std::move(inode), exact);
}

Task<Result<InodeView>> DelegatingMetaClient::lookup(Caller caller, InodeRef dir,
                                                     std::string name) {
  if (!enabled_) return MetaClient::lookup(std::move(caller), std::move(dir), std::move(name));
  if (answers(dir)) {
    if (auto answer = delegations_.lookup(caller, dir.id, name)) {
      return answered(std::move(*answer));
    }
  }
  return resolve(std::move(caller), std::move(dir), std::move(name));
}

Task<Result<meta::MetaClient::WalkResult>> DelegatingMetaClient::walk(Caller caller, InodeRef from,
                                                                      std::string path,
                                                                      bool follow) {
  auto calling = MetaClient::walk(std::move(caller), std::move(from), std::move(path), follow);
  if (!enabled_) return calling;
  return settled({}, true, std::move(calling));
}

Task<Result<meta::MetaClient::DirPage>> DelegatingMetaClient::list(Caller caller, InodeRef dir,
                                                                   std::string after,
                                                                   uint32_t limit,
                                                                   bool with_inodes) {
  auto calling =
      MetaClient::list(std::move(caller), std::move(dir), std::move(after), limit, with_inodes);
  if (!enabled_) return calling;
  return settled({}, true, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::create(Caller caller, InodeRef dir, std::string name,
                                                     meta::Namespace::CreateOptions create) {
  if (const auto done = before(caller.origin, Operation::kMake)) return repeated(*done);
  if (!answers(dir)) {
    auto calling = MetaClient::create(std::move(caller), dir, std::move(name), std::move(create));
    return enabled_ ? inode_change(std::move(dir), std::move(calling)) : std::move(calling);
  }
  auto answer = delegations_.create(caller, dir.id, name, create);
  if (delegations_.wants_ids() && !std::exchange(fetching_ids_, true)) gate_.spawn(fetch_ids());
  if (answer) return answered(std::move(*answer));
  const InodeId id = dir.id;
  auto calling = MetaClient::create(std::move(caller), std::move(dir), name, std::move(create));
  return name_change({{id, std::move(name)}}, refers_to, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::open(Caller caller, InodeRef inode, uint32_t rights,
                                                   std::optional<meta::SessionId> session) {
  if (answers(inode)) {
    if (auto answer = delegations_.open(caller, inode.id, rights, session)) {
      return answered(std::move(*answer));
    }
  }
  const bool all = !answers(inode);
  const InodeId id = inode.id;
  auto calling = MetaClient::open(std::move(caller), std::move(inode), rights, session);
  if (!enabled_) return calling;
  return settled({id}, all, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::link(Caller caller, InodeRef inode, InodeRef dir,
                                                   std::string name) {
  if (const auto done = before(caller.origin, Operation::kLink)) return repeated(*done);
  if (!enabled_) return MetaClient::link(std::move(caller), inode, dir, std::move(name));
  if (answers(dir) && answers(inode)) {
    if (auto answer = delegations_.link(caller, inode.id, dir.id, name)) {
      return answered(std::move(*answer));
    }
  }
  delegations_.expose(inode.id);
  const InodeId id = dir.id;
  const bool all = !dir.path.empty() || !inode.path.empty();
  auto calling = MetaClient::link(std::move(caller), std::move(inode), std::move(dir), name);
  if (all) return inode_change({.id = id, .path = "."}, std::move(calling));
  return name_change({{id, std::move(name)}}, refers_to, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::unlink(Caller caller, InodeRef dir, std::string name,
                                                     std::optional<meta::SessionId> holder) {
  if (const auto done = before(caller.origin, Operation::kUnlink)) return repeated(*done);
  if (!answers(dir)) {
    auto calling = MetaClient::unlink(std::move(caller), dir, std::move(name), holder);
    return enabled_ ? inode_change(std::move(dir), std::move(calling)) : std::move(calling);
  }
  if (auto answer = delegations_.unlink(caller, dir.id, name, holder)) {
    return answered(std::move(*answer));
  }
  const InodeId id = dir.id;
  auto calling = MetaClient::unlink(std::move(caller), std::move(dir), name, holder);
  return name_change({{id, std::move(name)}}, refers_to_nothing, std::move(calling));
}

// A server removes the directory: nobody must still change it here.
Task<Result<InodeView>> DelegatingMetaClient::rmdir(Caller caller, InodeRef dir, std::string name) {
  if (const auto done = before(caller.origin, Operation::kRmdir)) return repeated(*done);
  if (!answers(dir)) {
    auto calling = MetaClient::rmdir(std::move(caller), dir, std::move(name));
    return enabled_ ? inode_change(std::move(dir), std::move(calling)) : std::move(calling);
  }
  if (auto answer = delegations_.rmdir(caller, dir.id, name)) return answered(std::move(*answer));
  std::vector<InodeId> below = delegations_.held_below(dir.id);
  for (const InodeId held : below) delegations_.give_back(held);
  const InodeId id = dir.id;
  auto calling = MetaClient::rmdir(std::move(caller), std::move(dir), name);
  return name_change({{id, std::move(name)}}, refers_to_nothing, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::remove_tree(Caller caller, InodeRef dir,
                                                          std::string name) {
  give_all_back();
  auto calling = MetaClient::remove_tree(std::move(caller), std::move(dir), std::move(name));
  if (!enabled_) return calling;
  return settled({}, true, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::rename(Caller caller, Rename rename) {
  if (const auto done = before(caller.origin, Operation::kRename)) return repeated(*done);
  if (!enabled_) return MetaClient::rename(std::move(caller), std::move(rename));
  const bool here = rename.from_dir.path.empty() && rename.to_dir.path.empty();
  if (here) {
    if (auto answer = delegations_.rename(caller, rename)) return answered(std::move(*answer));
  }
  // It may replace or move a directory that is held.
  std::vector<InodeId> below = delegations_.held_below(rename.to_dir.id);
  for (const InodeId held : delegations_.held_below(rename.from_dir.id)) below.push_back(held);
  for (const InodeId held : below) delegations_.give_back(held);
  Names names = {{rename.from_dir.id, rename.from}, {rename.to_dir.id, rename.to}};
  const bool exchange = rename.exchange;
  auto calling = MetaClient::rename(std::move(caller), std::move(rename));
  if (!here) {
    give_all_back();
    return settled({}, true, std::move(calling));
  }
  return name_change(std::move(names), exchange ? unknown : moved, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::set_attributes(Caller caller, InodeRef inode,
                                                             meta::Namespace::Attributes to) {
  if (const auto done = before(caller.origin, Operation::kSetAttributes)) return repeated(*done);
  if (answers(inode)) {
    if (auto answer = delegations_.set_attributes(caller, inode.id, to)) {
      return answered(std::move(*answer));
    }
  }
  auto calling = MetaClient::set_attributes(std::move(caller), inode, to);
  return enabled_ ? inode_change(std::move(inode), std::move(calling)) : std::move(calling);
}

Task<Result<InodeView>> DelegatingMetaClient::set_layout(Caller caller, InodeRef dir,
                                                         meta::Layout layout) {
  auto calling = MetaClient::set_layout(std::move(caller), dir, layout);
  return enabled_ ? inode_change(std::move(dir), std::move(calling)) : std::move(calling);
}

Task<Result<std::optional<std::string>>> DelegatingMetaClient::get_xattr(Caller caller,
                                                                         InodeRef inode,
                                                                         std::string name) {
  const bool all = !inode.path.empty();
  const InodeId id = inode.id;
  auto calling = MetaClient::get_xattr(std::move(caller), std::move(inode), std::move(name));
  if (!enabled_) return calling;
  return settled({id}, all, std::move(calling));
}

Task<Result<std::vector<std::string>>> DelegatingMetaClient::list_xattrs(InodeRef inode) {
  const bool all = !inode.path.empty();
  const InodeId id = inode.id;
  auto calling = MetaClient::list_xattrs(std::move(inode));
  if (!enabled_) return calling;
  return settled({id}, all, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::set_xattr(Caller caller, InodeRef inode,
                                                        std::string name,
                                                        std::optional<std::string> value,
                                                        meta::Namespace::XattrMode mode) {
  auto calling =
      MetaClient::set_xattr(std::move(caller), inode, std::move(name), std::move(value), mode);
  return enabled_ ? inode_change(std::move(inode), std::move(calling)) : std::move(calling);
}

Task<Result<InodeView>> DelegatingMetaClient::truncate(Caller caller, InodeRef inode,
                                                       uint64_t length,
                                                       std::optional<std::string> capability) {
  auto calling = MetaClient::truncate(std::move(caller), inode, length, std::move(capability));
  return enabled_ ? inode_change(std::move(inode), std::move(calling)) : std::move(calling);
}

Task<Result<InodeView>> DelegatingMetaClient::report_length(InodeId inode, meta::SessionId session,
                                                            meta::Namespace::LengthReport report,
                                                            std::string capability) {
  // Of bytes that wait for room, servers must learn before others can write.
  if (!report.unstored) {
    if (auto answer = delegations_.report_length(inode, session, report)) {
      return answered(std::move(*answer));
    }
  }
  auto calling = MetaClient::report_length(inode, session, report, std::move(capability));
  if (!enabled_) return calling;
  delegations_.expose(inode);
  return settled({inode}, false, std::move(calling));
}

Task<Result<InodeView>> DelegatingMetaClient::append(InodeId inode, uint64_t size,
                                                     std::string capability, uint64_t origin) {
  auto calling = MetaClient::append(inode, size, std::move(capability), origin);
  return enabled_ ? inode_change(InodeRef{.id = inode}, std::move(calling)) : std::move(calling);
}

Task<Result<void>> DelegatingMetaClient::sync() {
  FF_CO_TRY(co_await settle_all());
  co_return co_await MetaClient::sync();
}

Task<Result<void>> DelegatingMetaClient::end_sessions(
    std::vector<meta::Namespace::EndedSession> ended) {
  std::vector<InodeId> inodes;
  for (const auto& one : ended) inodes.push_back(one.inode);
  FF_CO_TRY(co_await settle(std::move(inodes)));
  co_return co_await MetaClient::end_sessions(std::move(ended));
}

Task<Result<bool>> DelegatingMetaClient::lock(Caller caller, InodeRef inode,
                                              meta::SessionId owner) {
  const bool all = !inode.path.empty();
  const InodeId id = inode.id;
  auto calling = MetaClient::lock(std::move(caller), std::move(inode), owner);
  if (!enabled_) return calling;
  return settled({id}, all, std::move(calling));
}

}  // namespace ff::client
