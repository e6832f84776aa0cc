// manager_service.cc: the lease, the single writer, and the RPCs of nodes, clients and operators.
#include "storage/cluster/manager_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "platform/base/log.h"
#include "storage/cluster/key_service.h"
#include "storage/cluster/manager_service_leader_term.h"
#include "storage/cluster/tickets.h"
#include "storage/cluster/timing.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

// Poll interval of the lease while standing by.
constexpr int64_t kLeasePollNs = kSecond / 2;
constexpr int64_t kUsageReportNs = 2 * kSecond;

constexpr auth::Roles kNodeDaemons = {auth::Role::storage, auth::Role::admin};
constexpr auth::Roles kClients = {auth::Role::admin,   auth::Role::meta, auth::Role::mount,
                                  auth::Role::storage, auth::Role::user, auth::Role::scheduler};

// The daemon of a node keeps its name: a node with another key cannot take it over.
Result<void> check_identity(const NodeInfo& known, const auth::Entity& daemon) {
  const auto before = entity_of(known);
  if (!before || before->name == daemon.name) return {};
  Error error = fail(Errc::refused, "node {} belongs to {}, and this daemon is {}", known.id,
                     before->full_name(), daemon.full_name());
  error.hint = fmt::format("Give it the key of {}: ff admin key create {}.", before->full_name(),
                           before->full_name());
  return error;
}

}  // namespace

ManagerService::ManagerService(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router)
    : store_(engine), loop_(loop), rng_(rng), token_(rng.next()), gate_(loop) {
  rpc::add_method(router, kHeartbeat, *this, &ManagerService::heartbeat, kNodeDaemons);
  rpc::add_method(router, kRouting, *this, &ManagerService::routing, kClients);
  rpc::add_method(router, kTickets, *this, &ManagerService::tickets, kClients);
  rpc::add_method(router, kOffer, *this, &ManagerService::offer, kNodeDaemons);
  rpc::add_method(router, kAdopt, *this, &ManagerService::adopt);
  rpc::add_method(router, kInit, *this, &ManagerService::init);
  rpc::add_method(router, kStatus, *this, &ManagerService::status);
  rpc::add_method(router, kSpace, *this, &ManagerService::space, kClients);
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
  if (options_.metrics != nullptr) metrics_.emplace(*options_.metrics);
  gate_.spawn(run());
}

bool ManagerService::is_active(const LeaderTermRef& term) const {
  return term != nullptr && !term->over && loop_.now_ns() < term->lease_until_ns;
}

bool ManagerService::is_primary() const { return is_active(term_); }

uint64_t ManagerService::epoch() const { return is_active(term_) ? term_->lease.epoch : 0; }

std::optional<Error> ManagerService::halted() const {
  return is_active(term_) && term_->manager ? term_->manager->halted() : std::nullopt;
}

wire::Elsewhere ManagerService::elsewhere() const {
  wire::Elsewhere elsewhere;
  if (last_lease_.token != token_) elsewhere.set_primary(last_lease_.holder);
  elsewhere.set_trouble(store_error_);
  return elsewhere;
}

template <class Answer>
void ManagerService::record_store_result(const Result<Answer>& answer) {
  if (answer) {
    store_error_.clear();
  } else if (answer.error().code != Errc::exists && answer.error().code != Errc::interrupted) {
    store_error_ = answer.error().message.substr(0, kTextMax);
  }
}

Task<void> ManagerService::close() {
  const LeaderTermRef term = std::exchange(term_, nullptr);
  if (term != nullptr) term->end();
  Error reason = fail(Errc::interrupted, "the manager is shutting down");
  co_await gate_.close(std::move(reason));
  if (term == nullptr) co_return;
  // Waits for a running command, which would otherwise fail with an open outcome.
  (void)co_await term->write_lock.acquire(1).shielded();
  (void)co_await store_.release_lease(term->lease, loop_.now_ns() + kPrimaryLeaseNs);
}

Task<void> ManagerService::run() {
  for (;;) {
    auto begun = co_await stand_by();
    if (!begun) co_return;  // shutting down
    term_ = std::move(*begun);
    const LeaderTermRef term = term_;
    log_info("became the primary manager", {{"epoch", term->lease.epoch}});
    gate_.spawn(run_term(term));
    co_await keep_lease(term);
    if (store_error_.empty()) {
      log_info("is no longer primary", {{"epoch", term->lease.epoch}});
    } else {
      log_warning("is no longer primary: the metadata store does not renew its lease",
                  {{"epoch", term->lease.epoch}, {"cause", store_error_}});
    }
    term->end();
    term_.reset();
    if (metrics_) metrics_->clear();
  }
}

// Waits until the lease is acquired; fails only when cancelled.
Task<Result<ManagerService::LeaderTermRef>> ManagerService::stand_by() {
  int64_t since_ns = loop_.now_ns();  // since when the lease equals last_lease_
  bool looked = false;
  std::string logged;
  for (;;) {
    const auto lease = co_await store_.read_lease(loop_.now_ns() + kPrimaryLeaseNs);
    if (!lease) record_store_result(lease);
    const int64_t now_ns = loop_.now_ns();
    if (lease && (!looked || *lease != last_lease_)) {
      if (looked) store_error_.clear();  // another manager renews it
      last_lease_ = *lease;
      since_ns = now_ns;
      looked = true;
    }
    const bool free = looked && (last_lease_.holder.empty() || options_.sole_manager ||
                                 now_ns - since_ns >= kLeaseTakeoverNs);
    if (lease && free) {
      auto term = co_await begin_term(last_lease_);
      record_store_result(term);
      if (term) co_return term;
      if (term.error().code == Errc::refused || term.error().code == Errc::corrupt) {
        if (logged != term.error().message) {
          log_error("cannot become primary", {{"cause", term.error().message}});
        }
        logged = term.error().message;
      }
      looked = false;  // restarts the wait with the current lease
    }
    // Randomized, so that managers do not try to acquire it at the same time.
    FF_CO_TRY(
        co_await sleep_for(loop_, kLeasePollNs + static_cast<int64_t>(rng_.below(kLeasePollNs))));
  }
}

Task<Result<ManagerService::LeaderTermRef>> ManagerService::begin_term(LeaderLease seen) {
  const int64_t sent_ns = loop_.now_ns();
  const int64_t until_ns = sent_ns + kPrimaryLeaseNs;
  FF_CO_TRY(LeaderLease lease,
            co_await store_.acquire_lease(std::move(seen), options_.address, token_, until_ns));
  FF_CO_TRY(StoredCluster stored, co_await store_.load(until_ns));
  last_lease_ = lease;
  auto term = std::make_shared<LeaderTerm>(loop_, std::move(lease), until_ns);
  term->losses = std::move(stored.losses);
  if (stored.routing) term->manager.emplace(std::move(*stored.routing), loop_.now_ns());
  co_return term;
}

Task<void> ManagerService::keep_lease(LeaderTermRef term) {
  while (is_active(term)) {
    const int64_t pause_until_ns = std::min(loop_.now_ns() + kLeaseRenewNs, term->lease_until_ns);
    (void)co_await term->ended.wait(pause_until_ns);
    if (!is_active(term) || gate_.cancellation().requested()) co_return;
    const int64_t sent_ns = loop_.now_ns();
    // Shielded: close() must know which renewal it releases.
    auto renewed = co_await store_.renew_lease(term->lease, term->lease_until_ns).shielded();
    if (renewed) {
      record_store_result(renewed);
      term->lease = std::move(*renewed);
      // An expired lease is not extended: heartbeats of nodes without a response were not counted.
      if (is_active(term)) term->lease_until_ns = sent_ns + kPrimaryLeaseNs;
    } else if (renewed.error().code == Errc::refused) {
      log_warning("deposed", {{"cause", renewed.error().message}});
      co_return;
    } else {
      record_store_result(renewed);
    }
  }
}

// The writer: stores one change after the other, when reports arrive and as time passes.
Task<void> ManagerService::run_term(LeaderTermRef term) {
  while (is_active(term)) {
    term->changed.reset();
    bool more = false;
    {
      const auto hold = co_await term->write_lock.acquire(1);
      if (!hold) co_return;
      if (term->manager && is_active(term)) {
        term->manager->set_lost_retention(options_.lost_retention_ns, loop_.clock().wall_ns());
        Proposal proposal = term->manager->propose(loop_.now_ns());
        more = !proposal.empty();
        if (more) {
          auto publishing = publish(term, std::move(proposal));
          if (!co_await std::move(publishing)) co_return;
        }
      }
    }
    if (more) continue;
    co_await report_usage(term);
    const auto waited = co_await term->changed.wait(loop_.now_ns() + kHeartbeatIntervalNs);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// Periodically: sets the metrics, and saves the disk utilization if it has changed.
Task<void> ManagerService::report_usage(LeaderTermRef term) {
  const int64_t now_ns = loop_.now_ns();
  const bool due =
      term->utilization_ns == INT64_MIN || now_ns - term->utilization_ns >= kUsageReportNs;
  if (!due || !term->manager || !is_active(term)) co_return;
  term->utilization_ns = now_ns;
  if (metrics_) metrics_->update(*term->manager, now_ns);
  DiskUtilization utilization = disk_utilization(*term->manager);
  if (utilization == term->utilization) co_return;
  const auto kept =
      co_await store_.write_utilization(term->lease, utilization, term->lease_until_ns);
  if (kept) term->utilization = std::move(utilization);
}

// Stores the pending change of the manager, then publishes it. A failure ends the term, because the
// stored state is unknown. The caller holds write_lock.
Task<Result<void>> ManagerService::publish(LeaderTermRef term, Proposal proposal) {
  const std::optional<DataLoss> loss = proposal.loss;
  auto written =
      co_await store_.write(term->lease, std::move(proposal), term->lease_until_ns).shielded();
  if (written && !is_active(term)) {
    written = fail(Errc::unreachable, "the lease expired while a change was being stored");
  }
  if (!written) {
    log_warning("cannot store a change", {{"cause", written.error().message}});
    term->end();
    co_return written;
  }
  term->manager->applied();
  if (loss) term->losses.push_back(*loss);
  term->published.set();
  term->published.reset();
  co_return written;
}

Task<Result<wire::HeartbeatReply>> ManagerService::heartbeat(rpc::ServerCall& call,
                                                             wire::HeartbeatRequest request) {
  wire::HeartbeatReply reply;
  const LeaderTermRef term = term_;
  FF_CO_TRY(Heartbeat beat, from_wire(request));
  while (is_active(term) && term->manager && term->manager->must_wait(beat.node.id)) {
    FF_CO_TRY(co_await term->published.wait());
  }
  if (!is_active(term)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!term->manager) co_return no_cluster();
  const NodeId node = beat.node.id;
  beat.node.identity.clear();
  if (const auto& daemon = call.peer().entity; daemon && daemon->role == auth::Role::storage) {
    const NodeInfo* const known = term->manager->routing().node(node);
    if (known != nullptr) {
      FF_CO_TRY(check_identity(*known, *daemon));
    }
    beat.node.identity = auth::format_identity(*daemon);
  }
  const uint64_t holds = beat.routing_version;
  auto answer = term->manager->heartbeat(std::move(beat), loop_.now_ns());
  if (!answer && term->manager->halted() && !term->adoption.has_offer(node, holds)) {
    reply.set_offer_wanted(true);
    co_return reply;
  }
  if (!answer) co_return std::move(answer).error();
  held_back_[node] = request.held_back().substr(0, auth::kIdentityMax);
  if (term->manager->take_changed()) term->changed.set();
  reply = to_wire(*answer);
  // Version 0: this process has not read the list yet, and must not take the node's from it.
  const uint64_t known = options_.keyring ? options_.keyring->revocations_version() : 0;
  if (known != 0 && known != request.revocations_version()) {
    *reply.mutable_server_keys() = server_keys(*options_.keyring);
  }
  co_return reply;
}

Task<Result<wire::TicketsReply>> ManagerService::tickets(rpc::ServerCall& call,
                                                         wire::TicketsRequest request) {
  wire::TicketsReply reply;
  const auto& client = call.peer().entity;
  if (!is_active(term_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!term_->manager) co_return no_cluster();
  if (!client || options_.keyring == nullptr) co_return reply;
  const int64_t expires_s = loop_.clock().wall_ns() / kSecond + auth::kTicketSeconds;
  reply.set_expires_s(expires_s);
  for (const NodeId id : request.nodes()) {
    const NodeInfo* const node = term_->manager->routing().node(id);
    const auto daemon = node != nullptr ? entity_of(*node) : std::nullopt;
    if (!daemon) continue;
    const auto made = auth::make_ticket(*options_.keyring->root(), *daemon, *client, expires_s);
    wire::Ticket& ticket = *reply.add_tickets();
    ticket.set_node(id);
    ticket.set_key(std::string(as_text(made.key)));
    reply.set_identity(made.identity);
  }
  co_return reply;
}

Task<Result<wire::OfferReply>> ManagerService::offer(rpc::ServerCall&, wire::OfferRequest request) {
  wire::OfferReply reply;
  if (!is_active(term_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!term_->manager || !term_->manager->halted()) {
    co_return fail(Errc::refused, "the manager has not halted and accepts no routing offers");
  }
  FF_CO_TRY(const RoutingDelta page, from_wire(request.changes()));
  FF_CO_TRY(term_->adoption.offer(request.node(), page));
  co_return reply;
}

// Stores the newest offered routing, then ends the term, so that the next one starts with it.
Task<Result<wire::CommandReply>> ManagerService::adopt(rpc::ServerCall&,
                                                       wire::AdoptRequest request) {
  wire::CommandReply reply;
  const LeaderTermRef term = term_;
  if (!is_active(term)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  FF_CO_TRY(const auto hold, co_await term->write_lock.acquire(1));
  if (!term->manager || !term->manager->halted()) {
    co_return fail(Errc::refused, "the manager has not halted: nothing to adopt");
  }
  const Routing& own = term->manager->routing();
  FF_CO_TRY(const Routing newest, term->adoption.newest(own, request.without_absent()));
  for (RoutingDelta& step : routing_changes_between(own, newest)) {
    Proposal proposal{.changes = std::move(step), .loss = {}};
    auto written =
        co_await store_.write(term->lease, std::move(proposal), term->lease_until_ns).shielded();
    if (!written) term->end();
    FF_CO_TRY(std::move(written));
  }
  log_info("adopted the routing of the nodes", {{"version", newest.version}});
  reply.mutable_changes()->set_cluster(newest.cluster);
  reply.mutable_changes()->set_since(own.version);
  reply.mutable_changes()->set_to(newest.version);
  term->end();
  co_return reply;
}

Task<Result<wire::RoutingReply>> ManagerService::routing(rpc::ServerCall&,
                                                         wire::RoutingRequest request) {
  wire::RoutingReply reply;
  if (!is_active(term_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  if (!term_->manager) co_return no_cluster();
  if (term_->manager->halted()) co_return *term_->manager->halted();
  *reply.mutable_changes() =
      to_wire(term_->manager->routing().delta_since(request.since(), kAnswerBytes));
  co_return reply;
}

// Executes a command of the operator: decide, store, publish.
template <class Decide>
Task<Result<wire::CommandReply>> ManagerService::command(Decide decide) {
  wire::CommandReply reply;
  const LeaderTermRef term = term_;
  if (is_active(term)) {
    FF_CO_TRY(const auto hold, co_await term->write_lock.acquire(1));
    if (is_active(term)) {
      if (!term->manager) co_return no_cluster();
      FF_CO_TRY(Proposal proposal, decide(*term->manager));
      *reply.mutable_changes() = to_wire(proposal.changes);
      FF_CO_TRY(co_await publish(term, std::move(proposal)));
      term->changed.set();
      co_return reply;
    }
  }
  *reply.mutable_elsewhere() = elsewhere();
  co_return reply;
}

Task<Result<wire::CommandReply>> ManagerService::init(rpc::ServerCall&, wire::InitRequest) {
  wire::CommandReply reply;
  const LeaderTermRef term = term_;
  if (!is_active(term)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  FF_CO_TRY(const auto hold, co_await term->write_lock.acquire(1));
  FF_CO_TRY(co_await store_.init(term->lease, rng_.hex_id(), term->lease_until_ns).shielded());
  FF_CO_TRY(StoredCluster stored, co_await store_.load(term->lease_until_ns).shielded());
  Routing routing = std::move(stored.routing).value();
  reply.mutable_changes()->set_cluster(routing.cluster);
  reply.mutable_changes()->set_to(routing.version);
  term->manager.emplace(std::move(routing), loop_.now_ns());
  co_return reply;
}

Task<Result<wire::CommandReply>> ManagerService::create_chains(rpc::ServerCall&,
                                                               wire::CreateChainsRequest request) {
  std::vector<std::vector<DiskLocation>> chains;
  for (const wire::Places& locations : request.chains()) {
    auto& chain = chains.emplace_back();
    for (const wire::Place& location : locations.targets())
      chain.push_back({location.node(), location.disk()});
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
    co_return fail(Errc::usage, "specify either a node or a target to drain");
  }
  auto task = command([&](Manager& manager) {
    return request.node() != 0 ? manager.drain_node(request.node(), request.drain())
                               : manager.drain_target(request.target(), request.drain());
  });
  co_return co_await std::move(task);
}

Task<Result<wire::CommandReply>> ManagerService::accept_loss(rpc::ServerCall&,
                                                             wire::AcceptLossRequest request) {
  const AcceptLossOptions options{.chain = request.chain(),
                                  .promote = request.promote(),
                                  .requested_by = request.by(),
                                  .wall_ns = loop_.clock().wall_ns(),
                                  .expect = request.expect(),
                                  .incomplete = request.incomplete()};
  if (request.preview()) {
    wire::CommandReply reply;
    if (!is_active(term_)) {
      *reply.mutable_elsewhere() = elsewhere();
      co_return reply;
    }
    if (!term_->manager) co_return no_cluster();
    FF_CO_TRY(const DataLossPlan plan, term_->manager->plan_loss(options, loop_.now_ns()));
    *reply.mutable_plan() = to_wire(plan);
    co_return reply;
  }
  std::optional<DataLossPlan> plan;
  auto task = command([&](Manager& manager) -> Result<Proposal> {
    FF_TRY(plan, manager.plan_loss(options, loop_.now_ns()));
    return manager.accept_loss(options, loop_.now_ns());
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
  const DiskLocation location{request.place().node(), request.place().disk()};
  auto task =
      command([&](Manager& manager) { return manager.replace_target(request.target(), location); });
  co_return co_await std::move(task);
}

Task<Result<wire::StatusReply>> ManagerService::status(rpc::ServerCall&, wire::StatusRequest) {
  wire::StatusReply reply;
  if (!is_active(term_)) {
    *reply.mutable_elsewhere() = elsewhere();
    co_return reply;
  }
  reply = term_->status(loop_.now_ns());
  for (wire::NodeStatus& node : *reply.mutable_nodes()) {
    const auto found = held_back_.find(node.id());
    if (node.alive() && found != held_back_.end()) node.set_held_back(found->second);
  }
  reply.set_keep_lost_ms(static_cast<uint64_t>(options_.lost_retention_ns / kMillisecond));
  co_return reply;
}

Task<Result<wire::SpaceReply>> ManagerService::space(rpc::ServerCall&, wire::SpaceRequest) {
  wire::SpaceReply reply;
  if (is_active(term_)) co_return term_->space();
  *reply.mutable_elsewhere() = elsewhere();
  co_return reply;
}

}  // namespace ff::cluster
