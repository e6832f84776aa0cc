// delegations_load.cc: the random calls, and what their answers say of the names.
#include "lab/scenario/delegations_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/base/clock.h"
#include "storage/meta/service.h"

namespace ff::scenario::delegation_parts {

namespace {

constexpr int64_t kLongPauseNs = 300 * kMillisecond;
// How long a call without an answer may still have an effect.
constexpr int64_t kUnansweredNs = 90 * kSecond;
// Room for so few records that the table is full when servers are out of reach.
constexpr size_t kTableBytes = 96 * kKiB;
constexpr uint64_t kTravelNs = 8 * kMillisecond;
constexpr const char* kContestedNames[] = {"a", "b", "c", "d"};

using meta::InodeType;
using meta::Namespace;
using History = NameHistory;

}  // namespace

DelegationsLoad::DelegationsLoad(rpc::ClientContext& context,
                                 const std::vector<net::Address>& servers, size_t program,
                                 DelegationsOracle& oracle)
    : context_(context), servers_(servers), rng_(context.rng), program_(program), oracle_(oracle) {
  memory_ = std::make_unique<chunk::AlignedBuffer>(kTableBytes);
  std::ranges::fill(memory_->span(), std::byte{0});
  start();
}

void DelegationsLoad::start() {
  auto table = client::RecoveryTable::open(memory_->span());
  if (!table) return oracle_.report_violation(table.error().message);
  table_ = std::move(*table);
  names_ = std::make_unique<client::DelegatingMetaClient>(
      context_, servers_, [this](meta::InodeId, const Error& error) { on_lost(error); },
      table_.get(), true);
  gate_ = std::make_unique<Gate>(context_.loop);
  gate_->spawn(work());
}

void DelegationsLoad::kill(bool keeper) {
  if (ended_) return;
  // What the process does from here on, its successor does not see.
  auto left = std::make_unique<chunk::AlignedBuffer>(kTableBytes);
  std::ranges::fill(left->span(), std::byte{0});
  if (keeper) std::memcpy(left->span().data(), memory_->span().data(), kTableBytes);
  gate_.reset();
  names_.reset();
  table_.reset();
  memory_ = std::move(left);
  if (!keeper) {
    for (const Name& name : under_way_) {
      oracle_.names[name].add_uncertainty(begin_ns_, now_ns() + kUnansweredNs);
    }
    under_way_.clear();
    request_.reset();
    lose_unsynced();
    kinds_.clear();
  }
  start();
}

meta::Caller DelegationsLoad::caller() const {
  meta::Caller caller;
  caller.origin = origin_;
  return caller;
}

// Continues what the predecessor has left, and repeats the request that it has not answered.
Task<bool> DelegationsLoad::restore() {
  const auto restored = co_await names_->restore();
  if (!restored) co_return false;
  co_await names_->end_lease();
  if (request_) co_await call(*request_);
  names_->end_restored_origins();
  co_return true;
}

// Only a lease that has ended may cost what was answered.
void DelegationsLoad::on_lost(const Error& error) {
  oracle_.losses++;
  lose_unsynced();
  if (error.message.find("lease") != std::string::npos) return;
  oracle_.report_violation(fmt::format(
      "program {}: a server refused what a holder had answered: {}", program_, error.message));
}

void DelegationsLoad::lose_unsynced() {
  for (const auto& [name, since_ns] : unsynced_) {
    // A batch under way may still be applied.
    oracle_.names[name].add_uncertainty(since_ns, now_ns() + kUnansweredNs);
  }
  unsynced_.clear();
}

DelegationsLoad::Name DelegationsLoad::some_name() {
  const meta::InodeId dir = oracle_.dirs[rng_.below(oracle_.dirs.size())];
  return {dir, kContestedNames[rng_.below(std::size(kContestedNames))]};
}

void DelegationsLoad::begin(Name name) {
  if (under_way_.empty()) begin_ns_ = now_ns();
  under_way_.push_back(std::move(name));
}

void DelegationsLoad::end(const Name& name, NameHistory::Call call) {
  call.begin_ns = begin_ns_;
  call.end_ns = now_ns();
  oracle_.names[name].add(program_, call);
  if (call.after != History::kSame) note_change(name);
}

void DelegationsLoad::note_change(const Name& name) { unsynced_.emplace(name, begin_ns_); }

void DelegationsLoad::end_failed(const std::vector<Name>& names, const Error& error,
                                 NameHistory::Call call) {
  const bool present = error.sys == EEXIST || error.sys == EISDIR || error.sys == ENOTDIR;
  if (error.sys == ENOENT || present) {
    call.before = present ? History::kPresent : History::kAbsent;
    return end(names.front(), call);
  }
  for (const Name& name : names) {
    oracle_.names[name].add_uncertainty(begin_ns_, now_ns() + kUnansweredNs);
  }
}

Task<void> DelegationsLoad::create(Name name, bool dir) {
  begin(name);
  Namespace::CreateOptions make{.kind = dir ? InodeType::directory : InodeType::file, .mode = 0755};
  auto making = names_->create(caller(), {.id = name.first}, name.second, std::move(make));
  const Answer made = co_await std::move(making);
  co_await travel();
  if (!made) co_return end_failed({name}, made.error(), {.what = "create"});
  kinds_[name] = made->inode.kind;
  end(name, {.before = History::kAbsent, .after = made->inode.id, .what = "create"});
}

Task<void> DelegationsLoad::remove(Name name) {
  begin(name);
  const bool dir = kinds_[name] == InodeType::directory;
  auto removing = dir ? names_->rmdir(caller(), {.id = name.first}, name.second)
                      : names_->unlink(caller(), {.id = name.first}, name.second, std::nullopt);
  const Answer removed = co_await std::move(removing);
  co_await travel();
  if (!removed && (removed.error().sys == EISDIR || removed.error().sys == ENOTDIR)) {
    kinds_[name] = dir ? InodeType::file : InodeType::directory;
  }
  if (!removed) co_return end_failed({name}, removed.error(), {.what = "remove"});
  end(name, {.before = removed->inode.id, .after = History::kAbsent, .what = "remove"});
}

Task<void> DelegationsLoad::rename(Name from, Name to) {
  if (from == to) co_return;
  begin(from);
  begin(to);
  meta::MetaClient::Rename how{.from_dir = {.id = from.first},
                               .from = from.second,
                               .to_dir = {.id = to.first},
                               .to = to.second};
  const Answer moved = co_await names_->rename(caller(), std::move(how));
  co_await travel();
  if (!moved && (moved.error().sys == EISDIR || moved.error().sys == ENOTDIR)) co_return;
  if (!moved) co_return end_failed({from, to}, moved.error(), {.what = "rename from"});
  kinds_[to] = moved->inode.kind;
  end(from, {.before = moved->inode.id, .after = History::kAbsent, .what = "rename from"});
  end(to, {.after = moved->inode.id, .what = "rename to"});
}

Task<void> DelegationsLoad::lookup(Name name) {
  begin(name);
  auto looking = names_->lookup(caller(), {.id = name.first}, name.second);
  const Answer found = co_await std::move(looking);
  if (!found && found.error().sys != ENOENT) co_return;
  if (found) kinds_[name] = found->inode.kind;
  end(name, {.before = found ? found->inode.id : History::kAbsent, .what = "lookup"});
}

// What was answered before it began is kept, unless a loss is reported until it ends.
Task<bool> DelegationsLoad::sync() {
  const auto before = unsynced_;
  const uint64_t losses = oracle_.losses;
  const auto synced = co_await names_->sync();
  if (!synced) co_return false;
  if (losses == oracle_.losses) {
    for (const auto& [name, since_ns] : before) unsynced_.erase(name);
  }
  co_return true;
}

// The answer is on the way to the program; the process may be killed meanwhile.
Task<void> DelegationsLoad::travel() {
  if (rng_.below(4) != 0) co_return;
  const auto travel_ns = static_cast<int64_t>(rng_.below(kTravelNs));
  (void)co_await sleep_for(context_.loop, travel_ns);
}

DelegationsLoad::Request DelegationsLoad::some_request() {
  constexpr Kind kKinds[] = {Kind::create, Kind::create,     Kind::create, Kind::create,
                             Kind::remove, Kind::create_dir, Kind::remove, Kind::rename,
                             Kind::rename, Kind::lookup,     Kind::lookup, Kind::lookup};
  Request request{.kind = kKinds[rng_.below(std::size(kKinds))]};
  request.name = some_name();
  if (request.kind == Kind::rename) request.to = some_name();
  return request;
}

Task<void> DelegationsLoad::call(Request request) {
  oracle_.calls++;
  if (names_->delegations() > 0) oracle_.held++;
  switch (request.kind) {
    case Kind::create: co_await create(request.name, false); break;
    case Kind::create_dir: co_await create(request.name, true); break;
    case Kind::remove: co_await remove(request.name); break;
    case Kind::rename: co_await rename(request.name, request.to); break;
    case Kind::lookup: co_await lookup(request.name);
  }
  request_.reset();
  under_way_.clear();
  names_->end_origin(origin_);
}

Task<void> DelegationsLoad::work() {
  if (table_->continues()) {
    const bool restored = co_await restore();
    if (!restored) co_return;
  }
  while (!ended_) {
    if (!working_ || rng_.below(40) == 0) {
      const bool synced = co_await sync();
      ended_ = !working_ && synced;
    } else {
      origin_++;
      request_ = some_request();
      co_await call(*request_);
    }
    // Bursts, so that a program is alone in a directory for a while.
    const bool rests = rng_.below(12) == 0;
    const auto pause_ns =
        static_cast<int64_t>(rng_.below(rests ? 20 * kLongPauseNs : kMillisecond));
    const auto waited = co_await sleep_for(context_.loop, pause_ns);
    if (!waited) co_return;
  }
}

}  // namespace ff::scenario::delegation_parts
