// store_owners.cc: heartbeats, and which partitions this process claims, and gives to others.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/wait.h"
#include "platform/io/files.h"
#include "storage/kvstore/shares.h"
#include "storage/kvstore/store_impl.h"

namespace ff::kvstore {

namespace {

// The claims of partitions of others are read again from time to time: so many with each heartbeat.
constexpr uint64_t kLooksLeast = 4;
constexpr uint64_t kLooksShare = 8;  // or this part of all
// Partitions that this process is to get, looked at with each heartbeat.
constexpr uint64_t kAwaitedMax = 16;
// Partitions that have been given away, and that nobody has claimed yet.
constexpr uint64_t kGivenMax = 8;
// In heartbeats:
constexpr int64_t kMovingFraction = 4;  // looks in one, while partitions change their owners
constexpr int64_t kGraceBeats = 3;      // for the process that is to own a free partition
constexpr int64_t kRetryBeats = 30;     // before a partition is claimed again that cannot be opened
constexpr int64_t kBackBeats = 60;      // before others get partitions, when one has come back

}  // namespace

Task<Result<void>> StoreImpl::start() {
  FF_CO_TRY(io::make_dirs(context_.disk, members_dir(folder_), 0700));
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    FF_CO_TRY(io::make_dirs(context_.disk, dir_of(i), 0700));
  }
  const int64_t began_ns = context_.loop.now_ns();
  FF_CO_TRY(co_await heartbeats_.beat());
  last_beat_ns_ = began_ns;
  loops_.spawn(beat_loop());
  if (context_.options.claim) co_await update_shares();
  if (context_.options.claim) loops_.spawn(claim_loop());
  if (context_.options.claim && context_.options.share) loops_.spawn(give_loop());
  loops_.spawn(maintain_loop());
  update_gauges();
  co_return {};
}

Task<void> StoreImpl::close() {
  const Error closing = fail(Errc::interrupted, "the store is being closed");
  co_await loops_.close(closing);
  for (Place& place : places_) {
    if (place.own == nullptr) continue;
    co_await place.own->stop();
    if (!place.own->lost()) co_await place.own->seal_all();
    const auto released = co_await place.own->claims().release();
    if (!released) log_warning("not released", {{"error", released.error().message}});
  }
  co_await writers_.close(closing);
  (void)heartbeats_.remove_own();
}

// The marks are read after the heartbeat is written: whoever takes this process for dead has either
// not set them, and then sees the heartbeat before it serves, or has, and they are seen here.
Task<void> StoreImpl::beat() {
  const int64_t began_ns = context_.loop.now_ns();
  const auto written = co_await heartbeats_.beat();
  if (!written) {
    log_warning("no heartbeat", {{"error", written.error().message}});
    co_return;
  }
  last_beat_ns_ = began_ns;
  const int64_t until_ns = lease_end();
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    const auto own = places_[i].own;
    if (own == nullptr) continue;
    const auto checked = co_await own->claims().check();
    if (checked) own->set_lease(until_ns);
    if (checked || places_[i].own != own) continue;  // given to another process meanwhile
    const auto newest = co_await own->claims().newest();
    const bool others = newest && newest->epoch != own->claims().epoch();
    const bool lost = others || checked.error().code == Errc::stale;
    if (lost && places_[i].own == own) own->lose();
  }
  drop_lost();
  update_gauges();
}

void StoreImpl::drop_lost() {
  for (Place& place : places_) {
    if (place.own == nullptr || !place.own->lost()) continue;
    place.own = nullptr;
    ++losses_;
  }
}

Task<void> StoreImpl::beat_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, context_.options.heartbeat_ns);
    if (!slept) co_return;
    co_await beat();
  }
}

// A heartbeat, or less while partitions are about to change their owners here.
int64_t StoreImpl::pause_ns() const {
  const auto moves = [this](const Place& place) {
    const bool is_target = place.target == heartbeats_.id();
    return (place.own != nullptr) != is_target || place.free_ns;
  };
  const int64_t beat_ns = context_.options.heartbeat_ns;
  return std::any_of(places_.begin(), places_.end(), moves) ? beat_ns / kMovingFraction : beat_ns;
}

Task<void> StoreImpl::claim_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, pause_ns());
    if (!slept) co_return;
    co_await update_shares();
  }
}

// Apart from claims, which need not wait until compaction lets a partition go.
Task<void> StoreImpl::give_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, pause_ns());
    if (!slept) co_return;
    co_await give_excess();
  }
}

Task<void> StoreImpl::maintain_loop() {
  for (;;) {
    const auto slept = co_await sleep_for(context_.loop, context_.options.heartbeat_ns);
    if (!slept) co_return;
    for (uint32_t i = 0; i < context_.partitions; ++i) {
      const auto own = places_[i].own;
      if (own != nullptr) co_await own->maintain();
    }
  }
}

Task<void> StoreImpl::update_shares() {
  const auto observed = co_await heartbeats_.observe_all();
  const std::string error = observed ? std::string() : observed.error().message;
  if (!error.empty() && error != observe_error_) {
    log_warning("the heartbeats of others are not read", {{"error", error}});
  }
  observe_error_ = error;
  if (!observed) co_return;
  co_await look_at_others();
  plan();
  co_await claim_free();
  forget_dead();
  update_gauges();
}

// Whether the claim of a partition of others must be read: nobody owns it, or its owner is dead, or
// this process waits for it, or it is its turn.
bool StoreImpl::is_due(uint32_t partition) const {
  const Place& place = places_[partition];
  const auto peer = heartbeats_.peers().find(place.owner_id);
  if (place.owner.empty() || peer == heartbeats_.peers().end()) return true;
  if (!heartbeats_.is_live(peer->second)) return true;
  const uint64_t at_once = std::max(kLooksLeast, context_.partitions / kLooksShare);
  const uint64_t turns = (context_.partitions + at_once - 1) / at_once;
  return partition % turns == looks_ % turns;
}

Task<void> StoreImpl::look_at_others() {
  uint64_t awaited = 0;
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    if (places_[i].own != nullptr) continue;
    const bool awaits = places_[i].target == heartbeats_.id() && awaited++ < kAwaitedMax;
    if (!awaits && looks_ != 0 && !is_due(i)) continue;
    const auto looked = co_await look_at(i);
    if (!looked && looked.error().code == Errc::interrupted) co_return;
    const std::string error = looked ? std::string() : looked.error().message;
    // Each error once: this is tried with each heartbeat.
    if (!error.empty() && error != places_[i].last_error) {
      log_warning("partition not read", {{"partition", i}, {"error", error}});
    }
    places_[i].last_error = error;
    YieldWait yield(context_.loop);
    if (!co_await yield) co_return;
  }
  ++looks_;
  // A former process with the address of this one is dead.
  is_shared_ = std::any_of(places_.begin(), places_.end(), [this](const Place& place) {
    const bool others = place.own == nullptr && !place.owner.empty();
    return others && place.owner != context_.options.address;
  });
}

// Whether nobody owns the partition: its owner has released it, has ended, or its heartbeat has not
// changed for the time of a lease.
bool StoreImpl::is_free(const Claim& newest, const StoreHeartbeats::Peer* peer) const {
  if (newest.epoch == 0 || newest.mark == ClaimMark::released) return true;
  if (newest.member == heartbeats_.id()) return true;  // an attempt that has failed
  return peer == nullptr || !heartbeats_.is_live(*peer);
}

Task<Result<void>> StoreImpl::look_at(uint32_t partition) {
  Place& place = places_[partition];
  ClaimFolder claims(context_.disk, queue_, dir_of(partition));
  FF_CO_TRY(const Claim newest, co_await claims.newest());
  auto found = heartbeats_.peers().find(newest.member);
  if (found != heartbeats_.peers().end() && !heartbeats_.is_live(found->second)) {
    // Or this process has not looked at it for so long.
    FF_CO_TRY(co_await heartbeats_.observe(newest.member));
    found = heartbeats_.peers().find(newest.member);
  }
  const auto* const peer = found == heartbeats_.peers().end() ? nullptr : &found->second;
  const bool free = is_free(newest, peer);
  place.owner_id = newest.member;
  place.owner = free ? std::string() : peer->address;
  if (!free) {
    place.free_ns.reset();
  } else if (!place.free_ns) {
    place.free_ns = context_.loop.now_ns();
  }
  co_return {};
}

// This process, those that own some partitions now, and those that have lived for some heartbeats.
std::vector<std::string> StoreImpl::members_to_share(const std::vector<std::string>& owners) {
  std::vector<ShareMember> members{{.id = heartbeats_.id(), .host = context_.options.host}};
  for (const auto& [id, peer] : heartbeats_.peers()) {
    if (!heartbeats_.is_live(peer)) continue;
    const bool owns_some = std::find(owners.begin(), owners.end(), id) != owners.end();
    if (owns_some || heartbeats_.is_settled(peer)) members.push_back({.id = id, .host = peer.host});
  }
  auto sharing = sharing_members(owners, members);
  const bool stands_by =
      std::find(sharing.begin(), sharing.end(), heartbeats_.id()) == sharing.end();
  if (stands_by && !stands_by_) {
    log_info("stands by: other clients reach the processes that own the partitions",
             {{"address", context_.options.address}});
  }
  stands_by_ = stands_by;
  return sharing;
}

void StoreImpl::plan() {
  std::vector<std::string> owners;
  for (const Place& place : places_) {
    const bool others = place.own == nullptr && !place.free_ns;
    owners.push_back(place.own != nullptr ? heartbeats_.id()
                                          : (others ? place.owner_id : std::string()));
  }
  std::vector<std::string> targets;
  if (context_.options.share) {
    targets = plan_shares(owners, members_to_share(owners));
  } else {  // free partitions are for anybody
    targets = owners;
    std::replace(targets.begin(), targets.end(), std::string(), heartbeats_.id());
  }
  for (size_t i = 0; i < places_.size(); ++i) places_[i].target = targets[i];
}

// The process that is to own a free partition claims it first; after a while, any other one may.
bool StoreImpl::may_claim(uint32_t partition) const {
  const Place& place = places_[partition];
  if (place.own != nullptr || !place.free_ns) return false;
  const int64_t now_ns = context_.loop.now_ns();
  if (now_ns < place.retry_ns) return false;
  const bool is_target = place.target == heartbeats_.id();
  return is_target || now_ns - *place.free_ns >= kGraceBeats * context_.options.heartbeat_ns;
}

Task<void> StoreImpl::claim_free() {
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    if (!may_claim(i)) continue;
    const auto claimed = co_await claim_if_free(i);
    if (!claimed && claimed.error().code == Errc::interrupted) co_return;
    const std::string error = claimed ? std::string() : claimed.error().message;
    if (!error.empty() && error != places_[i].last_error) {
      log_warning("partition not claimed", {{"partition", i}, {"error", error}});
    }
    places_[i].last_error = error;
  }
}

Task<Result<void>> StoreImpl::claim_if_free(uint32_t partition) {
  ClaimFolder claims(context_.disk, queue_, dir_of(partition));
  FF_CO_TRY(const Claim newest, co_await claims.newest());
  std::optional<StoreHeartbeats::Peer> peer;
  const bool others = newest.epoch != 0 && newest.member != heartbeats_.id();
  if (others) {
    FF_CO_TRY(peer, co_await heartbeats_.observe(newest.member));
  }
  if (is_free(newest, peer ? &*peer : nullptr)) {
    std::optional<uint64_t> heartbeat;
    if (peer) heartbeat = peer->counter;
    co_return co_await take(partition, newest, heartbeat);
  }
  places_[partition].owner_id = newest.member;
  places_[partition].owner = peer->address;
  places_[partition].free_ns.reset();
  co_return {};
}

// A former owner serves reads until it sees the mark or its lease ends. If its heartbeat stood
// still until after the mark was set, its lease has ended; otherwise wait for that.
Task<Result<void>> StoreImpl::outlast(const Claim& former, std::optional<uint64_t> heartbeat) {
  if (former.epoch == 0 || former.mark == ClaimMark::released) co_return {};
  if (heartbeat) {  // not after an attempt of this process
    FF_CO_TRY(const auto peer, co_await heartbeats_.observe(former.member));
    if (peer && peer->counter == *heartbeat) co_return {};
  }
  co_return co_await sleep_for(context_.loop, context_.options.lease_ns);
}

Task<Result<void>> StoreImpl::take(uint32_t partition, const Claim& newest,
                                   std::optional<uint64_t> heartbeat) {
  auto claims = std::make_shared<ClaimFolder>(context_.disk, queue_, dir_of(partition));
  FF_CO_TRY(co_await claims->claim(newest, heartbeats_.id(), context_.rng.hex_id()));
  auto opened = co_await Partition::open(context_, partition, claims);
  if (!opened) {
    co_await leave_to_others(partition, *claims, newest, heartbeat);
    co_return opened.error();
  }
  FF_CO_TRY(co_await outlast(newest, heartbeat));
  const auto own = std::move(*opened);
  const int64_t until_ns = lease_end();
  FF_CO_TRY(co_await own->claims().check());
  own->set_lease(until_ns);
  writers_.spawn(Partition::run(own));
  places_[partition].own = own;
  note_claim(partition);
  co_return {};
}

// This process cannot open the partition, and another one may be able to.
Task<void> StoreImpl::leave_to_others(uint32_t partition, ClaimFolder& claims, const Claim& former,
                                      std::optional<uint64_t> heartbeat) {
  const bool alone = std::ranges::none_of(
      heartbeats_.peers(), [&](const auto& peer) { return heartbeats_.is_live(peer.second); });
  if (alone) co_return;
  const int64_t now_ns = context_.loop.now_ns();
  places_[partition].retry_ns = now_ns + kRetryBeats * context_.options.heartbeat_ns;
  // Whoever finds the claim released does not wait for the former owner.
  const auto outlasted = co_await outlast(former, heartbeat);
  if (outlasted) (void)co_await claims.release();
}

void StoreImpl::note_claim(uint32_t partition) {
  Place& place = places_[partition];
  place.owner.clear();
  place.owner_id = heartbeats_.id();
  place.free_ns.reset();
  context_.metrics.claims.add();
  log_info("partition claimed", {{"partition", partition},
                                 {"epoch", place.own->claims().epoch()},
                                 {"keys", place.own->counts().keys}});
  // It has come back at once: the other process could not serve it, or has ended.
  const int64_t back_ns = kBackBeats * context_.options.heartbeat_ns;
  const int64_t now_ns = context_.loop.now_ns();
  if (place.given_ns && now_ns - *place.given_ns < back_ns) give_after_ns_ = now_ns + back_ns;
}

// Partitions that others are to own, some at a time: the next ones when these are claimed.
Task<void> StoreImpl::give_excess() {
  if (context_.loop.now_ns() < give_after_ns_) co_return;
  std::vector<uint32_t> excess;
  uint64_t given = 0;
  for (uint32_t i = 0; i < context_.partitions; ++i) {
    const Place& place = places_[i];
    const auto next = heartbeats_.peers().find(place.target);
    const bool wanted = next != heartbeats_.peers().end() && heartbeats_.is_live(next->second);
    if (place.own != nullptr && wanted) excess.push_back(i);
    if (place.own == nullptr && place.given_ns && place.free_ns) ++given;
  }
  const uint64_t most = std::min<uint64_t>(kGivenMax, 1 + excess.size() / kGivenMax);
  for (const uint32_t i : excess) {
    if (given++ >= most) co_return;
    co_await give(i).shielded();
  }
}

// Until the end, reads are served; then nothing is, before the mark says so. Changes that have come
// are written and acknowledged first; others get Errc::stale.
Task<void> StoreImpl::give(uint32_t partition) {
  Place& place = places_[partition];
  const auto own = place.own;
  co_await own->seal_ahead();
  if (place.own != own || !own->serving()) co_return;
  co_await own->stop();
  co_await own->seal_all();
  if (place.own != own || own->lost()) co_return;
  place.own = nullptr;
  place.owner.clear();
  place.given_ns = place.free_ns = context_.loop.now_ns();
  ++losses_;
  const auto released = co_await own->claims().release();
  if (!released) {
    log_warning("not released", {{"partition", partition}, {"error", released.error().message}});
    co_return;
  }
  context_.metrics.given.add();
  log_info("partition given to another process",
           {{"partition", partition}, {"epoch", own->claims().epoch()}});
}

// Whoever takes over from a dead process looks at its heartbeat: so that stays for some leases.
void StoreImpl::forget_dead() {
  const int64_t until_ns = context_.loop.now_ns() - 4 * context_.options.lease_ns;
  std::vector<std::string> dead;
  for (const auto& [id, peer] : heartbeats_.peers()) {
    const auto owns = [&id = id](const Place& place) {
      return place.own == nullptr && place.owner_id == id;
    };
    const bool owns_some = std::any_of(places_.begin(), places_.end(), owns);
    if (peer.changed_ns <= until_ns && !owns_some) dead.push_back(id);
  }
  for (const std::string& id : dead) heartbeats_.forget(id);
}

void StoreImpl::update_gauges() {
  const Counts all = Store::counts();
  StoreMetrics& metrics = context_.metrics;
  metrics.partitions.set(std::count_if(places_.begin(), places_.end(),
                                       [](const Place& place) { return place.own != nullptr; }));
  metrics.keys.set(static_cast<int64_t>(all.keys));
  metrics.live_bytes.set(static_cast<int64_t>(all.live_bytes));
  metrics.file_bytes.set(static_cast<int64_t>(all.file_bytes));
  metrics.index_bytes.set(static_cast<int64_t>(all.index_bytes));
}

}  // namespace ff::kvstore
