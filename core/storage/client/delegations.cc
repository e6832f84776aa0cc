// delegations.cc: the lease, the directories that are held, and the log of changes. The calls are
// in delegations_calls.cc.
#include "storage/client/delegations.h"

#include <algorithm>

#include "storage/meta/service.h"

namespace ff::client {

namespace {

using Operation = meta::wire::BatchOperation;

constexpr size_t kCountedDirs = 1024;
constexpr size_t kIdsLow = 256;

bool same_kind(const meta::Layout& a, const meta::Layout& b) {
  return a.table == b.table && a.chunk_size == b.chunk_size && a.stripe == b.stripe;
}

// The reads, writes and bytes of a transaction (kv/engine.h), or more.
class BatchBudget {
 public:
  // False: the operation does not fit any more.
  bool add(const meta::wire::BatchOperation& operation) {
    BatchBudget next = *this;
    next.count(operation);
    const bool fits = next.reads_ <= kv::kReadsMax - 8 && next.writes_ <= kv::kWritesMax - 8 &&
                      next.bytes_ <= kv::kBytesMax / 2;
    const bool taken = fits || operations_ == 0;
    if (taken) *this = std::move(next);
    return taken;
  }

 private:
  void inode(uint64_t id) {
    if (inodes_.insert(id).second) writes_++;
  }
  void dir(uint64_t id) {
    if (dirs_.insert(id).second) writes_++, reads_++;
  }
  void count(const meta::wire::BatchOperation& operation) {
    operations_++;
    bytes_ += operation.ByteSizeLong() + 512;
    switch (operation.what_case()) {
      case Operation::kMake: {
        const auto& make = operation.make();
        reads_ += 2;
        writes_ += 1 + (make.has_session() ? 1 : 0);
        inode(make.inode());
        dir(make.place().dir().inode());
        if (make.kind() != static_cast<uint32_t>(meta::InodeType::directory)) break;
        dir(make.inode());
        inode(make.place().dir().inode());
        break;
      }
      case Operation::kLink:
        reads_ += 3;
        writes_ += 1;
        inode(operation.link().inode().inode());
        dir(operation.link().place().dir().inode());
        break;
      case Operation::kUnlink:
        reads_ += 3;
        writes_ += 4;
        dir(operation.unlink().place().dir().inode());
        break;
      case Operation::kRmdir:
        reads_ += 4;
        writes_ += 5;
        dir(operation.rmdir().place().dir().inode());
        break;
      case Operation::kRename:
        reads_ += 6;
        writes_ += 7;
        dir(operation.rename().from().dir().inode());
        dir(operation.rename().to().dir().inode());
        break;
      case Operation::kSetAttributes:
        reads_ += 2;
        writes_ += 1;
        inode(operation.set_attributes().inode().inode());
        break;
      case Operation::kWrote:
        reads_ += 1;
        writes_ += inodes_.contains(operation.wrote().inode()) ? 0 : 2;
        inode(operation.wrote().inode());
        break;
      default: reads_ += 1; writes_ += 1;
    }
  }

  size_t operations_ = 0;
  size_t reads_ = 4;
  size_t writes_ = 3;
  size_t bytes_ = 0;
  std::set<uint64_t> inodes_;
  std::set<uint64_t> dirs_;
};

// For error messages.
meta::UncommittedChanges::Action action_of(const Operation& operation) {
  switch (operation.what_case()) {
    case Operation::kMake: return {.verb = "creation", .name = operation.make().place().name()};
    case Operation::kLink: return {.verb = "link", .name = operation.link().place().name()};
    case Operation::kUnlink: return {.verb = "removal", .name = operation.unlink().place().name()};
    case Operation::kRmdir: return {.verb = "removal", .name = operation.rmdir().place().name()};
    case Operation::kRename:
      return {.verb = "rename",
              .name = operation.rename().from().name(),
              .to = operation.rename().to().name()};
    case Operation::kSetAttributes: {
      const auto& set = operation.set_attributes();
      const bool times_only = !set.has_mode() && !set.has_uid() && !set.has_gid();
      return {.verb = times_only ? "change of times" : "change of mode or owner"};
    }
    case Operation::kWrote:
      if (operation.wrote().truncations() == Delegations::kEndsSession)
        return {.verb = "end of a session"};
      return {.verb = "length", .bytes = operation.wrote().end()};
    default: return {.verb = "open"};
  }
}

// Whether the batch creates the file whose length this operation reports.
bool makes_its_file(const meta::wire::BatchRequest& batch, const Operation& operation) {
  if (!operation.has_wrote()) return false;
  return std::ranges::any_of(batch.operations(), [&](const Operation& one) {
    return one.has_make() && one.make().inode() == operation.wrote().inode();
  });
}

bool is_change(const Operation& operation) { return operation.what_case() != Operation::kGiveBack; }

Delegations::Change change_of(const ChangeJournal::Change& logged) {
  return {.mark = {}, .action = action_of(logged.operation), .inodes = logged.inodes, .sent = {}};
}

}  // namespace

bool Delegations::start_lease(uint64_t lease) {
  if (!journal_.begin_lease(lease)) return false;
  lease_ = lease;
  renewed_ns_ = INT64_MIN / 2;
  return true;
}

// What cannot be recorded is not answered here either.
bool Delegations::valid() const {
  return lease_ != 0 && loop_.now_ns() - renewed_ns_ < meta::kDelegationHolderNs &&
         journal_.has_room();
}

std::vector<Delegations::Change> Delegations::lose() {
  std::vector<Change> lost;
  for (const ChangeJournal::Change& logged : log_) {
    if (is_change(logged.operation)) lost.push_back(change_of(logged));
  }
  log_.clear();
  batch_end_.reset();
  applied_ = recorded_ = last_;
  touched_.clear();
  held_.clear();
  own_.clear();
  returning_.clear();
  for (auto& [dir, granting] : granting_) granting.recalled = true;
  ids_.clear();
  id_grants_.clear();
  id_grants_got_ = 0;
  wants_ids_.reset();
  lease_ = 0;
  return lost;
}

std::optional<uint64_t> Delegations::next_id_grant() {
  const auto used_up = [this](const IdGrant& one) {
    return one.left == 0 && one.last_change <= applied_;
  };
  while (!id_grants_.empty() && used_up(id_grants_.front())) id_grants_.pop_front();
  const uint64_t next = id_grants_got_ + 1;
  const bool valid = id_grants_.empty() || next < id_grants_.front().number + meta::kIdGrantsMax;
  return valid ? std::optional(next) : std::nullopt;
}

void Delegations::add_ids(meta::InodeId first, std::vector<meta::Layout> layouts, meta::Layout of) {
  if (!same_kind(ids_of_, of)) {
    ids_.clear();
    for (IdGrant& grant : id_grants_) grant.left = 0;
  }
  id_grants_.push_back({.number = ++id_grants_got_, .left = layouts.size()});
  ids_of_ = of;
  for (const meta::Layout& layout : layouts) ids_.push_back({first++, layout});
  wants_ids_.reset();
}

bool Delegations::has_ids_for(const meta::Layout& layout) const {
  return !ids_.empty() && same_kind(ids_of_, layout);
}

std::optional<std::pair<meta::InodeId, meta::Layout>> Delegations::take_id(
    std::optional<meta::Layout> of) {
  const bool fits = !ids_.empty() && (!of || same_kind(ids_of_, *of));
  if (!fits || ids_.size() < kIdsLow) wants_ids_ = of ? *of : ids_of_;
  if (!fits) return std::nullopt;
  const Id id = ids_.front();
  ids_.pop_front();
  const auto grant = std::ranges::find_if(id_grants_, [](const auto& one) { return one.left > 0; });
  grant->left--;
  grant->last_change = last_ + 1;  // the change that creates the inode
  return std::pair(id.id, id.layout);
}

// The clock of the servers, as far as it is known here; never runs backward.
int64_t Delegations::now_ns() {
  last_ns_ = std::max(last_ns_ + 1, loop_.now_ns() + clock_offset_ns_);
  return last_ns_;
}

bool Delegations::begin_grant(meta::InodeId dir) {
  if (held_.contains(dir) || granting_.contains(dir) || returning_.contains(dir)) return false;
  Granting& granting = granting_[dir];
  for (auto at = changing_.lower_bound({dir, ""}); at != changing_.end(); ++at) {
    if (at->first.first != dir) break;
    granting.unsure.insert(at->first.second);
  }
  return true;
}

void Delegations::end_grant(meta::InodeId dir, std::optional<Grant> grant) {
  const auto found = granting_.find(dir);
  if (found == granting_.end()) return;
  const Granting granting = std::move(found->second);
  granting_.erase(found);
  if (!grant || lease_ == 0 || grant->dir.delegate != lease_) return;
  HeldDir& held = hold(std::move(grant->dir));
  // Calls that ran meanwhile may have changed them.
  held.attributes_known = granting.unsure.empty();
  for (auto& [name, dentry] : grant->names) {
    held.names[name] = {NameState::other, dentry.inode, dentry.kind};
  }
  for (const std::string& name : granting.unsure) held.names[name] = {};
  if (granting.recalled) give_back(dir);
  evict();
}

Delegations::HeldDir& Delegations::hold(meta::Inode dir) {
  HeldDir& held = held_[dir.id];
  held = {.inode = std::move(dir), .used = ++uses_, .grant = ++grants_};
  return held;
}

void Delegations::evict() {
  while (held_.size() > kHeldMax) {
    const auto oldest =
        std::ranges::min_element(held_, {}, [](const auto& one) { return one.second.used; });
    give_back(oldest->first);
  }
}

void Delegations::give_back(meta::InodeId dir) {
  if (lease_ == 0 || !returning_.insert(dir).second) return;
  const auto found = held_.find(dir);
  if (found != held_.end()) {
    for (const auto& [name, entry] : found->second.names) {
      if (entry.state == NameState::own) own_.erase(entry.id);
    }
    held_.erase(found);
  }
  log({dir}, 0, 0).set_give_back(dir);
}

void Delegations::recall(const std::vector<meta::InodeId>& dirs) {
  for (const meta::InodeId dir : dirs) {
    const auto granting = granting_.find(dir);
    if (granting != granting_.end()) {
      granting->second.recalled = true;
      continue;
    }
    give_back(dir);
    in_a_row_.erase(dir);
  }
}

Delegations::ServerChange Delegations::begin_change(std::vector<Name> names) {
  changes_++;
  for (const auto& [dir, name] : names) {
    changing_[{dir, name}]++;
    const auto granting = granting_.find(dir);
    if (granting != granting_.end()) granting->second.unsure.insert(name);
    const auto held = held_.find(dir);
    if (held == held_.end()) continue;
    held->second.attributes_known = false;
    Entry& entry = held->second.names[name];
    if (entry.state == NameState::own) own_.erase(entry.id);
    entry.state = NameState::unknown;
  }
  return {.names = std::move(names), .grants = grants_};
}

void Delegations::end_change(const ServerChange& change, const std::vector<meta::Dentry>& now) {
  changes_++;
  for (size_t i = 0; i < change.names.size(); i++) {
    const auto& [dir, name] = change.names[i];
    const auto changing = changing_.find(change.names[i]);
    const bool alone = --changing->second == 0;
    if (alone) changing_.erase(changing);
    const auto held = held_.find(dir);
    if (held == held_.end()) continue;
    held->second.attributes_known = false;
    if (!alone || now.empty() || held->second.grant > change.grants) continue;
    if (now[i].inode == 0) {
      held->second.names.erase(name);
    } else {
      held->second.names[name] = {NameState::other, now[i].inode, now[i].kind};
    }
  }
}

void Delegations::refresh_dir(const meta::Inode& dir, uint64_t asked) {
  const auto held = held_.find(dir.id);
  if (held == held_.end() || held->second.attributes_known || asked != changes_) return;
  if (dir.delegate != lease_ || touched_.contains(dir.id)) return;
  held->second.inode = dir;
  held->second.attributes_known = true;
}

bool Delegations::count_change(meta::InodeId dir) {
  if (held_.contains(dir) || granting_.contains(dir)) return false;
  if (in_a_row_.size() >= kCountedDirs) in_a_row_.clear();
  if (++in_a_row_[dir] < kChangesInARow) return false;
  in_a_row_.erase(dir);
  return true;
}

std::vector<meta::InodeId> Delegations::held_below(meta::InodeId dir) const {
  std::vector<meta::InodeId> below;
  for (const auto& [id, held] : held_) {
    if (held.inode.parent == dir && id != dir) below.push_back(id);
  }
  return below;
}

std::vector<meta::InodeId> Delegations::all_held() const {
  std::vector<meta::InodeId> all;
  for (const auto& [id, held] : held_) all.push_back(id);
  return all;
}

Operation& Delegations::log(std::vector<meta::InodeId> inodes, uint64_t origin, int64_t now_ns) {
  last_++;
  for (const meta::InodeId inode : inodes) touched_[inode] = last_;
  ChangeJournal::Change& logged = log_.emplace_back();
  logged.number = last_;
  logged.origin = origin;
  logged.inodes = std::move(inodes);
  logged.operation.set_now_ns(now_ns);
  return logged.operation;
}

void Delegations::record() {
  if (recorded_ == last_) return;
  const size_t fresh = std::min<size_t>(last_ - recorded_, log_.size());
  for (size_t i = log_.size() - fresh; i < log_.size(); i++) journal_.add(log_[i]);
  recorded_ = last_;
}

uint64_t Delegations::restore(std::optional<uint64_t> batch) {
  auto left = journal_.take();
  last_ = applied_ = left.applied;
  for (ChangeJournal::Change& change : left.changes) {
    last_ = change.number;
    // All is given back later, when the bytes of files are stored, too.
    const bool returns = !is_change(change.operation) && change.number > batch.value_or(0);
    if (returns) change.operation.set_give_back(0);
    for (const meta::InodeId inode : change.inodes) touched_[inode] = last_;
    log_.push_back(std::move(change));
  }
  recorded_ = restored_ = last_;
  if (batch && *batch > applied_) batch_end_ = batch;
  lease_ = left.lease;
  renewed_ns_ = INT64_MIN / 2;
  return lease_;
}

uint64_t Delegations::last_change(const std::vector<meta::InodeId>& inodes) const {
  uint64_t last = 0;
  for (const meta::InodeId inode : inodes) {
    const auto found = touched_.find(inode);
    if (found != touched_.end()) last = std::max(last, found->second);
  }
  return last;
}

Delegations::Batch Delegations::take_batch(size_t most) {
  record();
  Batch batch;
  BatchBudget budget;
  batch.request.set_lease(lease_);
  batch.last = log_.empty() ? last_ : log_.front().number - 1;
  const uint64_t end = batch_end_.value_or(UINT64_MAX);
  while (!log_.empty() && static_cast<size_t>(batch.request.operations_size()) < most) {
    ChangeJournal::Change& logged = log_.front();
    const bool restores = !batch_end_ && logged.number <= restored_;
    if (restores && makes_its_file(batch.request, logged.operation)) break;
    if (logged.number > end || !budget.add(logged.operation)) break;
    if (is_change(logged.operation)) batch.changes.push_back(change_of(logged));
    for (const meta::InodeId inode : logged.inodes) batch.inodes.push_back(inode);
    *batch.request.add_operations() = std::move(logged.operation);
    batch.last = logged.number;
    log_.pop_front();
  }
  batch_end_.reset();
  return batch;
}

void Delegations::applied(const Batch& batch) {
  applied_ = std::max(applied_, batch.last);
  journal_.applied(applied_);
  for (const meta::InodeId inode : batch.inodes) {
    const auto found = touched_.find(inode);
    if (found != touched_.end() && found->second <= applied_) touched_.erase(found);
  }
  for (const auto& operation : batch.request.operations()) {
    if (operation.what_case() == meta::wire::BatchOperation::kGiveBack) {
      returning_.erase(operation.give_back());
    }
  }
}

}  // namespace ff::client
