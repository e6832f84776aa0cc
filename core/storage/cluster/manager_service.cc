// manager_service.cc: the lease, the one writer, and the calls of nodes and clients.
#include "storage/cluster/manager_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "storage/cluster/manager_service_term.h"
#include "storage/cluster/timing.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// How often a manager that stands by looks at the lease.
constexpr int64_t kManagerPollNs = kSecond / 2;
constexpr int64_t kFillNoteNs = 5 * kSecond;  // between two notes of how full disks are

}  // namespace

ManagerService::ManagerService(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router)
    : store_(engine), loop_(loop), rng_(rng), token_(rng.next()), gate_(loop) {
  rpc::add_method(router, kHeartbeat, *this, &ManagerService::heartbeat);
  rpc::add_method(router, kRouting, *this, &ManagerService::routing, rpc::Access::users);
  rpc::add_method(router, kOffer, *this, &ManagerService::offer);
  rpc::add_method(router, kAdopt, *this, &ManagerService::adopt);
  rpc::add_method(router, kInit, *this, &ManagerService::init);
  rpc::add_method(router, kStatus, *this, &ManagerService::status);
  rpc::add_method(router, kSpace, *this, &ManagerService::space, rpc::Access::users);
  rpc::add_method(router, kCreateChains, *this, &ManagerService::create_chains);
  rpc::add_method(router, kSetTable, *this, &ManagerService::set_table);
  rpc::add_method(router, kDrain, *this, &ManagerService::drain);
  rpc::add_method(router, kAcceptLoss, *this, &ManagerService::accept_loss);
  rpc::add_method(router, kReplaceTarget, *this, &ManagerService::replace_target);
  rpc::add_method(router, kDropTarget, *this, &ManagerService::drop_target);
}

ManagerService::~ManagerService() = default;

void ManagerService::start(Options options) {
  options_ = std::move(options);
  gate_.spawn(run());
}

bool ManagerService::acts(const ReignRef& reign) const {
  return reign != nullptr && !reign->over && loop_.now_ns() < reign->until_ns;
}

bool ManagerService::is_primary() const { return acts(reign_); }

uint64_t ManagerService::epoch() const { return acts(reign_) ? reign_->lease.epoch : 0; }

std::optional<Error> ManagerService::halted() const {
  return acts(reign_) && reign_->manager ? reign_->manager->halted() : std::nullopt;
}

wire::Elsewhere ManagerService::elsewhere() const {
  wire::Elsewhere elsewhere;
  if (seen_.token != token_) elsewhere.set_primary(seen_.holder);
  elsewhere.set_trouble(store_trouble_);
  return elsewhere;
}

template <class Answer>
void ManagerService::store_answered(const Result<Answer>& answer) {
  if (answer) {
    store_trouble_.clear();
  } else if (answer.error().code != Errc::exists && answer.error().code != Errc::interrupted) {
    store_trouble_ = answer.error().message.substr(0, kTextMax);
  }
}

Task<void> ManagerService::close() {
  const ReignRef reign = std::exchange(reign_, nullptr);
  if (reign != nullptr) reign->end();
  Error reason = fail(Errc::interrupted, "the manager goes down");
  co_await gate_.close(std::move(reason));
  if (reign == nullptr) co_return;
  // Not before what a caller has under way: it would fail, and the caller would not know.
  auto taking = reign->writing.take(1);
  (void)co_await std::move(taking).shielded();
  auto giving = store_.give_up(reign->lease, loop_.now_ns() + kPrimaryNs);
  (void)co_await std::move(giving);
}

Task<void> ManagerService::run() {
  for (;;) {
    auto standing_by = stand_by();
    auto begun = co_await std::move(standing_by);
    if (!begun) co_return;  // goes down
    reign_ = std::move(*begun);
    const ReignRef reign = reign_;
    log_info("is primary", {{"epoch", reign->lease.epoch}});
    gate_.spawn(act(reign));
    auto keeping = keep_lease(reign);
    co_await std::move(keeping);
    if (store_trouble_.empty()) {
      log_info("is no longer primary", {{"epoch", reign->lease.epoch}});
    } else {
      log_warning("is no longer primary: the metadata store does not keep its lease",
                  {{"epoch", reign->lease.epoch}, {"cause", store_trouble_}});
    }
    reign->end();
    reign_.reset();
  }
}

// Until the lease is held; an error only when this is cancelled.
Task<Result<ManagerService::ReignRef>> ManagerService::stand_by() {
  int64_t since_ns = loop_.now_ns();  // that it is as in seen_
  bool looked = false;
  std::string told;
  for (;;) {
    auto looking = store_.lease(loop_.now_ns() + kPrimaryNs);
    const auto lease = co_await std::move(looking);
    if (!lease) store_answered(lease);
    const int64_t now_ns = loop_.now_ns();
    if (lease && (!looked || *lease != seen_)) {
      if (looked) store_trouble_.clear();  // somebody keeps it
      seen_ = *lease;
      since_ns = now_ns;
      looked = true;
    }
    const bool free =
        looked && (seen_.holder.empty() || options_.alone || now_ns - since_ns >= kTakeOverNs);
    if (lease && free) {
      auto beginning = begin(seen_);
      auto reign = co_await std::move(beginning);
      store_answered(reign);
      if (reign) co_return reign;
      if (reign.error().code == Errc::refused || reign.error().code == Errc::corrupt) {
        if (told != reign.error().message) {
          log_error("cannot be primary", {{"cause", reign.error().message}});
        }
        told = reign.error().message;
      }
      looked = false;  // whatever it is now, it is looked at for as long again
    }
    // Managers that look at the same time would take at the same time.
    FF_CO_TRY(
        co_await after(loop_, kManagerPollNs + static_cast<int64_t>(rng_.below(kManagerPollNs))));
  }
}

Task<Result<ManagerService::ReignRef>> ManagerService::begin(Lease seen) {
  const int64_t sent_ns = loop_.now_ns();
  const int64_t until_ns = sent_ns + kPrimaryNs;
  auto taking = store_.take(std::move(seen), options_.address, token_, until_ns);
  FF_CO_TRY(Lease lease, co_await std::move(taking));
  auto loading = store_.load(until_ns);
  FF_CO_TRY(Stored stored, co_await std::move(loading));
  seen_ = lease;
  auto reign = std::make_shared<Reign>(loop_, std::move(lease), until_ns);
  reign->losses = std::move(stored.losses);
  if (stored.routing) reign->manager.emplace(std::move(*stored.routing), loop_.now_ns());
  co_return reign;
}

Task<void> ManagerService::keep_lease(ReignRef reign) {
  while (acts(reign)) {
    const int64_t pause_until_ns = std::min(loop_.now_ns() + kRenewNs, reign->until_ns);
    (void)co_await reign->ended.wait(pause_until_ns);
    if (!acts(reign) || gate_.cancel().requested()) co_return;
    const int64_t sent_ns = loop_.now_ns();
    auto renewing = store_.renew(reign->lease, reign->until_ns);
    // Not cancelled: close() must know which renewal it gives up.
    auto renewed = co_await std::move(renewing).shielded();
    if (renewed) {
      store_answered(renewed);
      reign->lease = std::move(*renewed);
      // A lease that ran out meanwhile stays so: nodes that it did not answer have not been heard.
      if (acts(reign)) reign->until_ns = sent_ns + kPrimaryNs;
    } else if (renewed.error().code == Errc::refused) {
      log_warning("deposed", {{"cause", renewed.error().message}});
      co_return;
    } else {
      store_answered(renewed);
    }
  }
}

// The writer: one change after the other, when something was heard, and as time passes.
Task<void> ManagerService::act(ReignRef reign) {
  while (acts(reign)) {
    reign->news.reset();
    bool more = false;
    {
      auto taking = reign->writing.take(1);
      const auto hold = co_await std::move(taking);
      if (!hold) co_return;
      if (reign->manager && acts(reign)) {
        reign->manager->keep_lost(options_.keep_lost_ns, loop_.clock().wall_ns());
        Proposal proposal = reign->manager->propose(loop_.now_ns());
        more = !proposal.empty();
        if (more) {
          auto publishing = publish(reign, std::move(proposal));
          if (!co_await std::move(publishing)) co_return;
        }
      }
    }
    if (more) continue;
    auto filling = keep_fill(reign);
    co_await std::move(filling);
    const auto waited = co_await reign->news.wait(loop_.now_ns() + kHeartbeatNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// Now and then, and only what is another: full disks stay full, and the store has other things to
// do.
Task<void> ManagerService::keep_fill(ReignRef reign) {
  const int64_t now_ns = loop_.now_ns();
  const bool due = reign->fill_ns == INT64_MIN || now_ns - reign->fill_ns >= kFillNoteNs;
  if (!due || !reign->manager || !acts(reign)) co_return;
  reign->fill_ns = now_ns;
  Fill fill = fill_of(*reign->manager);
  if (fill == reign->fill) co_return;
  auto keeping = store_.keep_fill(reign->lease, fill, reign->until_ns);
  const auto kept = co_await std::move(keeping);
  if (kept) reign->fill = std::move(fill);
}

// Stores the manager's pending change, then lets it be known; when that fails this primary's time
// is over, for it cannot know what is stored. The writing semaphore is held.
Task<Result<void>> ManagerService::publish(ReignRef reign, Proposal proposal) {
  const std::optional<Loss> loss = proposal.loss;
  auto writing = store_.write(reign->lease, std::move(proposal), reign->until_ns);
  auto written = co_await std::move(writing).shielded();
  if (written && !acts(reign)) {
    written = fail(Errc::unreachable, "the lease ran out while a change was written");
  }
  if (!written) {
    log_warning("a change could not be written", {{"cause", written.error().message}});
    reign->end();
    co_return written;
  }
  reign->manager->applied();
  if (loss) reign->losses.push_back(*loss);
  reign->published.set();
  reign->published.reset();
  co_return written;
}

Task<Result<wire::HeartbeatReply>> ManagerService::heartbeat(rpc::ServerCall&,
                                                             wire::HeartbeatRequest request) {
  wire::HeartbeatReply reply;
  const ReignRef reign = reign_;
  FF_CO_TRY(Heartbeat beat, from_wire(request));
  while (acts(reign) && reign->manager && reign->manager->must_wait(beat.node.id)) {
    FF_CO_TRY(co_await reign->published.wait());
  }
  if (!acts(reign)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!reign->manager) co_return no_cluster();
  const NodeId node = beat.node.id;
  const uint64_t holds = beat.routing_version;
  auto answer = reign->manager->heartbeat(std::move(beat), loop_.now_ns());
  if (!answer && reign->manager->halted() && !reign->adoption.has(node, holds)) {
    reply.set_offer_wanted(true);
    co_return reply;
  }
  if (!answer) co_return std::move(answer).error();
  if (reign->manager->take_news()) reign->news.set();
  co_return to_wire(*answer);
}

Task<Result<wire::OfferReply>> ManagerService::offer(rpc::ServerCall&, wire::OfferRequest request) {
  wire::OfferReply reply;
  if (!acts(reign_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!reign_->manager || !reign_->manager->halted()) {
    co_return fail(Errc::refused, "no offers are wanted: the manager has not stopped");
  }
  FF_CO_TRY(const Changes page, from_wire(request.changes()));
  FF_CO_TRY(reign_->adoption.offer(request.node(), page));
  co_return reply;
}

// Writes the newest routing that was offered, and begins anew with it.
Task<Result<wire::CommandReply>> ManagerService::adopt(rpc::ServerCall&,
                                                       wire::AdoptRequest request) {
  wire::CommandReply reply;
  const ReignRef reign = reign_;
  if (!acts(reign)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  auto taking = reign->writing.take(1);
  FF_CO_TRY(const auto hold, co_await std::move(taking));
  if (!reign->manager || !reign->manager->halted()) {
    co_return fail(Errc::refused, "the manager has not stopped: there is nothing to adopt");
  }
  const Routing& own = reign->manager->routing();
  FF_CO_TRY(const Routing newest, reign->adoption.newest(own, request.without_absent()));
  for (Changes& step : steps_between(own, newest)) {
    Proposal proposal{.changes = std::move(step), .loss = {}};
    auto writing = store_.write(reign->lease, std::move(proposal), reign->until_ns);
    auto written = co_await std::move(writing).shielded();
    if (!written) reign->end();
    FF_CO_TRY(std::move(written));
  }
  log_info("adopted what nodes hold", {{"version", newest.version}});
  reply.mutable_changes()->set_cluster(newest.cluster);
  reply.mutable_changes()->set_since(own.version);
  reply.mutable_changes()->set_to(newest.version);
  reign->end();
  co_return reply;
}

Task<Result<wire::RoutingReply>> ManagerService::routing(rpc::ServerCall&,
                                                         wire::RoutingRequest request) {
  wire::RoutingReply reply;
  if (!acts(reign_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!reign_->manager) co_return no_cluster();
  if (reign_->manager->halted()) co_return *reign_->manager->halted();
  *reply.mutable_changes() =
      to_wire(reign_->manager->routing().since(request.since(), kAnswerBytes));
  co_return reply;
}

// One of the operator's commands: decided, written, published.
template <class Decide>
Task<Result<wire::CommandReply>> ManagerService::command(Decide decide) {
  wire::CommandReply reply;
  const ReignRef reign = reign_;
  if (acts(reign)) {
    auto taking = reign->writing.take(1);
    FF_CO_TRY(const auto hold, co_await std::move(taking));
    if (acts(reign)) {
      if (!reign->manager) co_return no_cluster();
      FF_CO_TRY(Proposal proposal, decide(*reign->manager));
      *reply.mutable_changes() = to_wire(proposal.changes);
      auto publishing = publish(reign, std::move(proposal));
      FF_CO_TRY(co_await std::move(publishing));
      reign->news.set();
      co_return reply;
    }
  }
  *reply.mutable_elsewhere() = elsewhere();
  co_return reply;
}

Task<Result<wire::CommandReply>> ManagerService::init(rpc::ServerCall&, wire::InitRequest) {
  wire::CommandReply reply;
  const ReignRef reign = reign_;
  if (!acts(reign)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  auto taking = reign->writing.take(1);
  FF_CO_TRY(const auto hold, co_await std::move(taking));
  auto making = store_.init(reign->lease, rng_.hex_id(), reign->until_ns);
  FF_CO_TRY(co_await std::move(making).shielded());
  auto loading = store_.load(reign->until_ns);
  FF_CO_TRY(Stored stored, co_await std::move(loading).shielded());
  Routing routing = std::move(stored.routing).value();
  reply.mutable_changes()->set_cluster(routing.cluster);
  reply.mutable_changes()->set_to(routing.version);
  reign->manager.emplace(std::move(routing), loop_.now_ns());
  co_return reply;
}

Task<Result<wire::CommandReply>> ManagerService::create_chains(rpc::ServerCall&,
                                                               wire::CreateChainsRequest request) {
  std::vector<std::vector<Place>> chains;
  for (const wire::Places& places : request.chains()) {
    auto& chain = chains.emplace_back();
    for (const wire::Place& place : places.targets()) chain.push_back({place.node(), place.disk()});
  }
  auto task = command([&](Manager& manager) { return manager.create_chains(chains); });
  co_return co_await std::move(task);
}

Task<Result<wire::CommandReply>> ManagerService::set_table(rpc::ServerCall&,
                                                           wire::SetTableRequest request) {
  const std::vector<ChainId> chains(request.chains().begin(), request.chains().end());
  auto task = command([&](Manager& manager) { return manager.set_table(request.table(), chains); });
  co_return co_await std::move(task);
}

Task<Result<wire::CommandReply>> ManagerService::drain(rpc::ServerCall&,
                                                       wire::DrainRequest request) {
  if ((request.node() == 0) == (request.target() == 0)) {
    co_return fail(Errc::usage, "name a node or a target to drain");
  }
  auto task = command([&](Manager& manager) {
    return request.node() != 0 ? manager.drain_node(request.node(), request.drain())
                               : manager.drain_target(request.target(), request.drain());
  });
  co_return co_await std::move(task);
}

Task<Result<wire::CommandReply>> ManagerService::accept_loss(rpc::ServerCall&,
                                                             wire::AcceptLossRequest request) {
  const LossOrder order{.chain = request.chain(),
                        .promote = request.promote(),
                        .by = request.by(),
                        .wall_ns = loop_.clock().wall_ns(),
                        .expect = request.expect(),
                        .incomplete = request.incomplete()};
  if (request.preview()) {
    wire::CommandReply reply;
    if (!acts(reign_)) {
      *reply.mutable_elsewhere() = elsewhere();
      co_return reply;
    }
    if (!reign_->manager) co_return no_cluster();
    FF_CO_TRY(const LossPlan plan, reign_->manager->plan_loss(order, loop_.now_ns()));
    *reply.mutable_plan() = to_wire(plan);
    co_return reply;
  }
  std::optional<LossPlan> plan;
  auto task = command([&](Manager& manager) -> Result<Proposal> {
    FF_TRY(plan, manager.plan_loss(order, loop_.now_ns()));
    return manager.accept_loss(order, loop_.now_ns());
  });
  FF_CO_TRY(wire::CommandReply reply, co_await std::move(task));
  if (plan && !reply.has_elsewhere()) *reply.mutable_plan() = to_wire(*plan);
  co_return reply;
}

Task<Result<wire::CommandReply>> ManagerService::drop_target(rpc::ServerCall&,
                                                             wire::DropTargetRequest request) {
  auto task = command([&](Manager& manager) { return manager.drop_target(request.target()); });
  co_return co_await std::move(task);
}

Task<Result<wire::CommandReply>> ManagerService::replace_target(
    rpc::ServerCall&, wire::ReplaceTargetRequest request) {
  const Place place{request.place().node(), request.place().disk()};
  auto task =
      command([&](Manager& manager) { return manager.replace_target(request.target(), place); });
  co_return co_await std::move(task);
}

Task<Result<wire::StatusReply>> ManagerService::status(rpc::ServerCall&, wire::StatusRequest) {
  wire::StatusReply reply;
  if (!acts(reign_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  reply = reign_->status(loop_.now_ns());
  reply.set_keep_lost_ms(static_cast<uint64_t>(options_.keep_lost_ns / kMillisecond));
  co_return reply;
}

Task<Result<wire::SpaceReply>> ManagerService::space(rpc::ServerCall&, wire::SpaceRequest) {
  wire::SpaceReply reply;
  if (acts(reign_)) co_return reign_->space();
  *reply.mutable_elsewhere() = elsewhere();
  co_return reply;
}

}  // namespace ff::cluster
