// delegation_recalls.cc: waits for holders of delegations, and ends leases of silent ones.
#include "storage/meta/delegation_recalls.h"

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "storage/meta/service.h"

namespace ff::meta {

namespace {

// Another server may receive what the holder sends.
constexpr int64_t kLookFirstNs = 2 * kMillisecond;
constexpr int64_t kLookLastNs = 100 * kMillisecond;
constexpr size_t kContendedMax = 4096;

}  // namespace

// Keeps the entry of a lease.
class DelegationRecalls::Use {
 public:
  Use(DelegationRecalls& of, uint64_t number) : of_(of), number_(number) {
    auto& entry = of_.leases_[number];
    if (entry == nullptr) entry = std::make_unique<Lease>(of_.loop_);
    lease_ = entry.get();
    lease_->users++;
  }
  ~Use() {
    // An observed beat outlives the call: the client repeats the call, and the observation goes on.
    if (--lease_->users == 0 && lease_->since_ns == 0 && lease_->recalled.empty()) {
      of_.leases_.erase(number_);
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Lease& lease() { return *lease_; }

 private:
  DelegationRecalls& of_;
  const uint64_t number_;
  Lease* lease_;
};

DelegationRecalls::DelegationRecalls(Namespace& name_space, Loop& loop, Metrics& metrics)
    : namespace_(name_space),
      loop_(loop),
      recalls_(metrics.counter("ff_meta_delegation_recalls_total",
                               "Directory delegations that were recalled for another client")),
      ended_(metrics.counter("ff_meta_ended_leases_total",
                             "Leases of clients that did not give a delegation back")) {}

Task<Result<void>> DelegationRecalls::press(DelegationConflict conflict,
                                            Namespace::HolderState state, Lease& lease,
                                            int64_t asked_ns) {
  const int64_t now_ns = loop_.now_ns();
  if (lease.since_ns == 0 || lease.beat != state.beat) {
    lease.beat = state.beat;
    lease.since_ns = now_ns;
  }
  if (now_ns - lease.since_ns >= kDelegationLeaseNs) {
    FF_CO_TRY(co_await namespace_.end_lease(conflict.lease, state.beat));
    log_warning("a client has lost its directory delegations: it did not give one back",
                {{"directory", conflict.dir}});
    ended_.add();
    co_return Result<void>();
  }
  if (!state.ending && now_ns - asked_ns >= kRecallNs) {
    FF_CO_TRY(co_await namespace_.refuse_renewals(conflict.lease));
  }
  co_return Result<void>();
}

void DelegationRecalls::drop_old() {
  const int64_t old_ns = loop_.now_ns() - 10 * kDelegationLeaseNs;
  std::erase_if(leases_, [&](const auto& one) {
    return one.second->users == 0 && one.second->since_ns < old_ns;
  });
  std::erase_if(asked_, [&](const auto& one) { return one.second.since_ns < old_ns; });
  if (contended_.size() > kContendedMax) contended_.clear();
}

Task<Result<void>> DelegationRecalls::recall(DelegationConflict conflict) {
  drop_old();
  Use use(*this, conflict.lease);
  Lease& lease = use.lease();
  const int64_t began_ns = loop_.now_ns();
  contended_[conflict.dir] = began_ns;
  FF_CO_TRY(const uint64_t number, co_await namespace_.mark_recalled(conflict));
  const std::pair what(conflict.lease, conflict.dir);
  const Asked now{.number = number, .since_ns = began_ns};
  const auto [asked, first] = asked_.emplace(what, now);
  const bool again = asked->second.number != number;
  if (again) asked->second = now;
  const int64_t asked_ns = asked->second.since_ns;
  if (first || again) recalls_.add();
  lease.recalled.insert(conflict.dir);
  lease.recalled_event.set();
  for (int64_t look_ns = kLookFirstNs;; look_ns = std::min(2 * look_ns, kLookLastNs)) {
    FF_CO_TRY(const auto state, co_await namespace_.holder_state(conflict));
    if (!state.holds) break;
    FF_CO_TRY(co_await press(conflict, state, lease, asked_ns));
    if (loop_.now_ns() - began_ns >= kCallWaitNs) {
      Error error = fail(Errc::busy,
                         "inode {}: another client has the directory and does not give it back yet",
                         conflict.dir);
      co_return error;
    }
    lease.progress.reset();
    const int64_t until_ns = loop_.now_ns() + look_ns;
    const auto waited = co_await lease.progress.wait(until_ns);
    // An earlier deadline is that of the call, which every further wait would report at once.
    const bool looks = waited || loop_.now_ns() >= until_ns;
    if (!looks) co_return waited;
  }
  lease.recalled.erase(conflict.dir);
  if (lease.recalled.empty()) lease.since_ns = 0;
  asked_.erase(what);
  co_return Result<void>();
}

Task<Result<std::vector<InodeId>>> DelegationRecalls::wait(uint64_t number) {
  Use use(*this, number);
  Lease& lease = use.lease();
  const auto waited = co_await lease.recalled_event.wait(loop_.now_ns() + kRecallsWaitNs);
  if (!waited && waited.error().code != Errc::deadline) co_return waited.error();
  lease.recalled_event.reset();
  co_return std::vector<InodeId>(lease.recalled.begin(), lease.recalled.end());
}

void DelegationRecalls::on_progress(uint64_t number) {
  const auto found = leases_.find(number);
  if (found != leases_.end()) found->second->progress.set();
}

bool DelegationRecalls::contended(InodeId dir) {
  const auto found = contended_.find(dir);
  if (found == contended_.end()) return false;
  if (loop_.now_ns() - found->second < kContendedNs) return true;
  contended_.erase(found);
  return false;
}

}  // namespace ff::meta
