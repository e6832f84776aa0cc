// host_group.cc: joining the ranks of a host, and regions of this rank.
#include "training/collective/host_group.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace ff::collective {

namespace {

constexpr int64_t kJoinPollNs = 5 * kMillisecond;
// A rank may have two regions for each operation in flight; smaller ones would waste most of a 2
// MiB page.
constexpr uint64_t kHugePagesFrom = kMiB;

}  // namespace

Result<std::unique_ptr<HostGroup>> HostGroup::join(HostRank self, const StopToken& stop,
                                                   int64_t within_ns, const JoinCheck& check) {
  if (self.ranks == 0 || self.ranks > kHostRanksMax || self.rank >= self.ranks) {
    return fail(Errc::usage, "rank {} of {}: a host has 1 to {} ranks, from 0", self.rank,
                self.ranks, kHostRanksMax);
  }
  Clock& clock = stop.clock();
  std::unique_ptr<HostGroup> group(new HostGroup(std::move(self), clock));
  HostState& state = group->state_;
  if (state.self.rank == 0) {
    FF_TRY(state.table_region,
           group->own_regions_.make(OperationTable::bytes(), net::SharedRegion::Kind::sealed));
    state.operations =
        OperationTable::make(state.table_region->memory(),
                             {.ranks = state.self.ranks, .has_peers = state.self.has_peers});
    state.wake_fd = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (state.wake_fd.get() < 0) return errno_error(errno, "eventfd");
  }
  state.pids[state.self.rank] = ::getpid();
  auto sockets = std::make_unique<RankSockets>(state);
  sockets->start(clock.steady_ns() + within_ns);
  group->sockets_ = std::move(sockets);
  for (;;) {
    if (const auto outcome = group->sockets_->outcome()) {
      if (!*outcome) return outcome->error();
      return group;
    }
    FF_TRY(stop.check());
    if (check) FF_TRY(check());
    clock.sleep_ns(kJoinPollNs);
  }
}

HostGroup::~HostGroup() {
  leave();
  if (sockets_ != nullptr) sockets_->stop();
}

void HostGroup::leave() {
  if (!state_.operations) return;
  state_.operations->set_departed(state_.self.rank);
  state_.wake_leader();
}

Result<std::shared_ptr<const net::SharedRegion>> HostGroup::make_region(uint64_t bytes) {
  using Kind = net::SharedRegion::Kind;
  FF_TRY(auto region, bytes < kHugePagesFrom ? own_regions_.make(bytes, Kind::sealed)
                                             : own_regions_.make(bytes));
  state_.add_region(state_.self.rank, region->id(), {region->memory(), region});
  sockets_->share_region(region);
  return region;
}

void HostGroup::remove_region(const std::shared_ptr<const net::SharedRegion>& region) {
  sockets_->withdraw_region(*region);
  state_.remove_region(state_.self.rank, region->id());
  own_regions_.remove(*region);
}

std::optional<SharedAddress> HostGroup::address_of(ByteView memory) const {
  const auto region = own_regions_.find(memory);
  if (region == nullptr) return std::nullopt;
  return SharedAddress{.offset = static_cast<uint64_t>(memory.data() - region->memory().data()),
                       .region = region->id()};
}

}  // namespace ff::collective
