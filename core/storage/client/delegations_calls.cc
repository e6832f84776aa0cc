// delegations_calls.cc: the calls. Each checks in the order of the steps of meta/namespace_steps.h,
// computes attributes by the same rules (meta/namespace_rules.cc), and logs what a server is to do.
#include <algorithm>
#include <cerrno>

#include "platform/base/text.h"
#include "storage/client/delegations.h"
#include "storage/meta/namespace_steps.h"

namespace ff::client {

namespace {

using meta::Caller;
using meta::Inode;
using meta::InodeId;
using meta::InodeType;

void put(const Caller& caller, meta::wire::Who& out) {
  out.set_uid(caller.uid);
  out.set_gid(caller.gid);
  for (const uint32_t group : caller.groups) out.add_groups(group);
}
void put(InodeId dir, const std::string& name, meta::wire::Place& out) {
  out.mutable_dir()->set_inode(dir);
  out.set_name(name);
}
void put(meta::SessionId session, meta::wire::Session& out) {
  out.set_client(session.client);
  out.set_number(session.number);
}

}  // namespace

Delegations::HeldDir* Delegations::usable(InodeId dir) {
  if (!valid()) return nullptr;
  const auto found = held_.find(dir);
  if (found == held_.end()) return nullptr;
  found->second.used = ++uses_;
  return &found->second;
}

const Delegations::Entry* Delegations::find(const HeldDir& dir, const std::string& name) const {
  const auto found = dir.names.find(name);
  return found == dir.names.end() ? nullptr : &found->second;
}

// The inode of a name that was created here, or a directory that is held. Null: a server knows
// more.
Inode* Delegations::own_inode(const Entry& entry) {
  if (entry.state == NameState::unknown) return nullptr;
  if (entry.kind == InodeType::directory) {
    const auto held = held_.find(entry.id);
    if (held == held_.end() || !held->second.attributes_known) return nullptr;
    return &held->second.inode;
  }
  if (entry.state != NameState::own) return nullptr;
  const auto found = own_.find(entry.id);
  return found == own_.end() ? nullptr : &found->second;
}

void Delegations::touch(HeldDir& dir, int64_t now_ns, int subdirs) {
  changes_++;
  dir.inode.mtime_ns = dir.inode.ctime_ns = now_ns;
  dir.inode.links += static_cast<uint32_t>(subdirs);
}

Delegations::Answer Delegations::lookup(const Caller& caller, InodeId dir,
                                        const std::string& name) {
  const HeldDir* const held = usable(dir);
  if (held == nullptr || !meta::check_name(name)) return std::nullopt;
  const std::string what = printable(name);
  auto may = meta::check_access(caller, held->inode, meta::kMaySearch, what);
  if (!may) return may.error();
  const Entry* const entry = find(*held, name);
  if (entry == nullptr) return errno_error(ENOENT, what);
  const Inode* const inode = own_inode(*entry);
  if (inode == nullptr) return std::nullopt;
  return view(*inode);
}

Delegations::Answer Delegations::stat(InodeId inode) const {
  if (!valid()) return std::nullopt;
  const auto own = own_.find(inode);
  if (own != own_.end()) return view(own->second);
  const auto held = held_.find(inode);
  if (held == held_.end() || !held->second.attributes_known) return std::nullopt;
  return view(held->second.inode);
}

Delegations::Answer Delegations::open(const Caller& caller, InodeId inode, uint32_t rights,
                                      std::optional<meta::SessionId> session) {
  const Answer there = stat(inode);
  if (!there) return std::nullopt;
  const Inode& opened = (*there)->inode;
  auto may = meta::check_open(caller, opened, rights, fmt::format("inode {}", inode));
  if (!may) return may.error();
  if (session && opened.is(InodeType::file)) {
    auto& open = *log({inode}, caller.origin, now_ns()).mutable_open();
    put(caller, *open.mutable_who());
    open.mutable_inode()->set_inode(inode);
    open.set_rights(rights);
    put(*session, *open.mutable_session());
  }
  return there;
}

Delegations::Answer Delegations::create(const Caller& caller, InodeId dir, const std::string& name,
                                        const meta::Namespace::CreateOptions& make) {
  HeldDir* const held = usable(dir);
  if (held == nullptr || make.layout) return std::nullopt;
  if (!meta::check_create(caller, name, make)) return std::nullopt;
  const std::string what = printable(name);
  auto may = meta::check_access(caller, held->inode, meta::kMaySearch, what);
  if (!may) return may.error();
  const Entry* const there = find(*held, name);
  if (there != nullptr && there->state == NameState::unknown) return std::nullopt;
  if (there != nullptr && (make.kind != InodeType::file || make.exclusive)) {
    return errno_error(EEXIST, what);
  }
  if (there != nullptr) return std::nullopt;  // it is opened
  may = meta::check_access(caller, held->inode, meta::kMayWrite, what);
  if (!may) return may.error();
  const bool subdir = make.kind == InodeType::directory;
  if (subdir && held->inode.links >= meta::kHardLinksMax) return std::nullopt;
  std::optional<meta::Layout> wanted;
  if (make.kind == InodeType::file) {
    wanted = meta::with_defaults(meta::wanted_layout(held->inode, make));
  }
  const auto id = take_id(wanted);
  if (!id) return std::nullopt;
  const int64_t time_ns = now_ns();
  Inode inode = meta::new_inode(caller, held->inode, make, id->first, time_ns);
  if (wanted) inode.layout = id->second;
  auto& made = *log({dir, inode.id}, caller.origin, time_ns).mutable_make();
  put(caller, *made.mutable_who());
  put(dir, name, *made.mutable_place());
  made.set_kind(static_cast<uint32_t>(make.kind));
  made.set_mode(make.mode);
  made.set_target(make.target);
  made.set_device(make.device);
  made.set_inode(inode.id);
  if (wanted) to_wire(inode.layout, *made.mutable_layout());
  if (wanted && make.session) put(*make.session, *made.mutable_session());
  held->names[name] = {NameState::own, inode.id, inode.kind};
  touch(*held, time_ns, subdir ? 1 : 0);
  if (!subdir) {
    own_[inode.id] = inode;
    return view(inode);
  }
  inode.delegate = lease_;
  hold(inode);
  evict();
  return view(inode);
}

Delegations::Answer Delegations::link(const Caller& caller, InodeId id, InodeId dir,
                                      const std::string& name) {
  HeldDir* const held = usable(dir);
  const auto found = own_.find(id);
  if (held == nullptr || found == own_.end() || !meta::check_name(name)) return std::nullopt;
  Inode& inode = found->second;
  const std::string what = printable(name);
  auto may = meta::check_access(caller, held->inode, meta::kMaySearch, what);
  if (!may) return may.error();
  const Entry* const there = find(*held, name);
  if (there != nullptr && there->state == NameState::unknown) return std::nullopt;
  if (there != nullptr) return errno_error(EEXIST, what);
  may = meta::check_access(caller, held->inode, meta::kMayWrite, what);
  if (!may) return may.error();
  if (inode.links == 0 || inode.links >= meta::kHardLinksMax) return std::nullopt;
  const int64_t time_ns = now_ns();
  inode.links++;
  inode.ctime_ns = time_ns;
  held->names[name] = {NameState::own, id, inode.kind};
  touch(*held, time_ns, 0);
  auto& link = *log({dir, id}, caller.origin, time_ns).mutable_link();
  put(caller, *link.mutable_who());
  link.mutable_inode()->set_inode(id);
  put(dir, name, *link.mutable_place());
  return view(inode);
}

Delegations::Answer Delegations::unlink(const Caller& caller, InodeId dir, const std::string& name,
                                        std::optional<meta::SessionId> holder) {
  HeldDir* const held = usable(dir);
  if (held == nullptr || !meta::check_name(name)) return std::nullopt;
  const std::string what = printable(name);
  auto may = meta::check_access(caller, held->inode, meta::kMaySearch, what);
  if (!may) return may.error();
  const Entry* const there = find(*held, name);
  if (there == nullptr) return errno_error(ENOENT, what);
  Inode* const found = own_inode(*there);
  if (found == nullptr) return std::nullopt;
  may = meta::check_removal(caller, held->inode, *found, what);
  if (!may) return may.error();
  if (found->is(InodeType::directory)) return errno_error(EISDIR, what);
  const int64_t time_ns = now_ns();
  found->links--;
  found->ctime_ns = time_ns;
  const Inode inode = *found;
  if (inode.links == 0) own_.erase(inode.id);
  held->names.erase(name);
  touch(*held, time_ns, 0);
  auto& removal = *log({dir, inode.id}, caller.origin, time_ns).mutable_unlink();
  put(caller, *removal.mutable_who());
  put(dir, name, *removal.mutable_place());
  if (holder) put(*holder, *removal.mutable_holder());
  return view(inode);
}

Delegations::Answer Delegations::rmdir(const Caller& caller, InodeId dir, const std::string& name) {
  HeldDir* const held = usable(dir);
  if (held == nullptr || !meta::check_name(name)) return std::nullopt;
  const std::string what = printable(name);
  auto may = meta::check_access(caller, held->inode, meta::kMaySearch, what);
  if (!may) return may.error();
  const Entry* const there = find(*held, name);
  if (there == nullptr) return errno_error(ENOENT, what);
  const Inode* const found = own_inode(*there);
  if (found == nullptr) return std::nullopt;
  may = meta::check_removal(caller, held->inode, *found, what);
  if (!may) return may.error();
  if (!found->is(InodeType::directory)) return errno_error(ENOTDIR, what);
  const HeldDir& removed = held_.at(found->id);
  const bool knows_all = std::ranges::none_of(
      removed.names, [](const auto& one) { return one.second.state == NameState::unknown; });
  if (!knows_all) return std::nullopt;
  if (!removed.names.empty()) return errno_error(ENOTEMPTY, what);
  const int64_t time_ns = now_ns();
  Inode inode = *found;
  inode.links = 0;
  inode.ctime_ns = time_ns;
  held_.erase(inode.id);
  held->names.erase(name);
  touch(*held, time_ns, -1);
  auto& removal = *log({dir, inode.id}, caller.origin, time_ns).mutable_rmdir();
  put(caller, *removal.mutable_who());
  put(dir, name, *removal.mutable_place());
  return view(inode);
}

Delegations::Answer Delegations::rename(const Caller& caller,
                                        const meta::MetaClient::Rename& rename) {
  HeldDir* const from = usable(rename.from_dir.id);
  HeldDir* const to = usable(rename.to_dir.id);
  const bool named = meta::check_name(rename.from) && meta::check_name(rename.to);
  if (from == nullptr || to == nullptr || rename.exchange || !named) return std::nullopt;
  auto may = meta::check_access(caller, from->inode, meta::kMaySearch, printable(rename.from));
  if (!may) return may.error();
  const Entry* const source = find(*from, rename.from);
  if (source == nullptr) return errno_error(ENOENT, printable(rename.from));
  Inode* const moved = own_inode(*source);
  if (moved == nullptr) return std::nullopt;
  // A directory that moves gets another parent; others may look from below.
  if (moved->is(InodeType::directory)) return std::nullopt;
  return replace(caller, rename, *from, *to, *moved);
}

Delegations::Answer Delegations::replace(const Caller& caller,
                                         const meta::MetaClient::Rename& rename, HeldDir& from,
                                         HeldDir& to, Inode& source) {
  const std::string what = printable(rename.from);
  const std::string what_to = printable(rename.to);
  auto may = meta::check_access(caller, to.inode, meta::kMaySearch, what_to);
  if (!may) return may.error();
  const Entry* const there = find(to, rename.to);
  Inode* const replaced = there == nullptr ? nullptr : own_inode(*there);
  if (there != nullptr && replaced == nullptr) return std::nullopt;
  if (replaced != nullptr && rename.no_replace) return errno_error(EEXIST, what_to);
  may = meta::check_removal(caller, from.inode, source, what);
  if (!may) return may.error();
  may = replaced != nullptr
            ? meta::check_removal(caller, to.inode, *replaced, what_to)
            : meta::check_access(caller, to.inode, meta::kMayWrite | meta::kMaySearch, what_to);
  if (!may) return may.error();
  if (replaced != nullptr && replaced->is(InodeType::directory)) {
    return errno_error(EISDIR, what_to);
  }
  if (replaced != nullptr && replaced->id == source.id) return view(source);
  const int64_t time_ns = now_ns();
  std::vector<InodeId> inodes = {rename.from_dir.id, rename.to_dir.id, source.id};
  if (replaced != nullptr) {
    inodes.push_back(replaced->id);
    replaced->ctime_ns = time_ns;
    if (--replaced->links == 0) own_.erase(replaced->id);
  }
  source.ctime_ns = time_ns;
  from.names.erase(rename.from);
  to.names[rename.to] = {NameState::own, source.id, source.kind};
  touch(from, time_ns, 0);
  touch(to, time_ns, 0);
  auto& logged = *log(std::move(inodes), caller.origin, time_ns).mutable_rename();
  put(caller, *logged.mutable_who());
  put(rename.from_dir.id, rename.from, *logged.mutable_from());
  put(rename.to_dir.id, rename.to, *logged.mutable_to());
  logged.set_no_replace(rename.no_replace);
  if (rename.holder) put(*rename.holder, *logged.mutable_holder());
  return view(source);
}

Delegations::Answer Delegations::set_attributes(const Caller& caller, InodeId id,
                                                const meta::Namespace::Attributes& to) {
  if (!valid()) return std::nullopt;
  const auto own = own_.find(id);
  const auto held = held_.find(id);
  const bool is_dir = held != held_.end() && held->second.attributes_known;
  if (own == own_.end() && !is_dir) return std::nullopt;
  Inode& inode = own != own_.end() ? own->second : held->second.inode;
  const int64_t time_ns = now_ns();
  Inode changed = inode;
  auto may = meta::change_attributes(caller, changed, to, time_ns);
  if (!may) return may.error();
  inode = changed;
  changes_++;
  auto& set = *log({id}, caller.origin, time_ns).mutable_set_attributes();
  put(caller, *set.mutable_who());
  set.mutable_inode()->set_inode(id);
  if (to.mode) set.set_mode(*to.mode);
  if (to.uid) set.set_uid(*to.uid);
  if (to.gid) set.set_gid(*to.gid);
  if (to.atime_ns) set.set_atime_ns(*to.atime_ns);
  if (to.mtime_ns) set.set_mtime_ns(*to.mtime_ns);
  set.set_times_now(to.times_now);
  return view(inode);
}

Delegations::Answer Delegations::report_length(InodeId id, meta::SessionId session,
                                               const meta::Namespace::LengthReport& report) {
  const auto own = own_.find(id);
  if (!valid() || own == own_.end() || report.min_length > meta::kLengthMax) return std::nullopt;
  const int64_t time_ns = now_ns();
  meta::take_length(own->second, report, time_ns);
  auto& wrote = *log({id}, 0, time_ns).mutable_wrote();
  wrote.set_inode(id);
  put(session, *wrote.mutable_session());
  wrote.set_end(report.min_length);
  wrote.set_truncations(report.truncate_seq);
  wrote.set_mtime_ns(report.mtime_ns);
  wrote.set_closed(report.closed);
  wrote.set_unstored(report.unstored);
  return view(own->second);
}

bool Delegations::end_session(const meta::Namespace::EndedSession& ended) {
  // Not before the change that begins it.
  if (!touched_.contains(ended.inode) || lease_ == 0) return false;
  auto& wrote = *log({ended.inode}, 0, now_ns()).mutable_wrote();
  wrote.set_inode(ended.inode);
  put(ended.session, *wrote.mutable_session());
  wrote.set_truncations(kEndsSession);
  wrote.set_closed(true);
  return true;
}

}  // namespace ff::client
