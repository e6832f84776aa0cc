// agent.cc: calls to the scheduler, the reconcile loop, the lease.
#include "ops/scheduler/agent.h"

#include <nlohmann/json.hpp>

#include "ops/scheduler/token_checker.h"
#include "platform/base/backoff.h"
#include "platform/base/log.h"
#include "platform/rpc/error_wire.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kReconcileNs = 200 * kMillisecond;  // while attempts are held
constexpr int64_t kIdleReconcileNs = kSecond;         // while none is held
constexpr int64_t kCallNs = kSyncNs + 30 * kSecond;   // the scheduler may be waiting for its store
constexpr int64_t kRetryFirstNs = 100 * kMillisecond;
constexpr int64_t kRetryMaxNs = 5 * kSecond;
constexpr int64_t kKillRetryNs = kSecond;
constexpr int64_t kLogNs = 30 * kSecond;
constexpr int64_t kTokenCheckNs = 10 * kSecond;
// The answer of the scheduler may have this age already: a removed token is refused after the sum.
constexpr int64_t kTokenCacheNs = TokenChecker::kCacheNs - kSecond;

struct Done {};

constexpr auth::Roles kLogReaders = {auth::Role::admin, auth::Role::scheduler, auth::Role::user};

}  // namespace

Agent::Agent(rpc::ClientContext& context, rpc::Router& router, NodeReconciler& reconciler,
             Options options)
    : context_(context),
      loop_(context.loop),
      reconciler_(reconciler),
      options_(std::move(options)),
      scheduler_(context, options_.scheduler, auth::Service{auth::Role::scheduler, {}}),
      checks_(loop_, options_.checks, [this] { resync(); }),
      reconcile_wanted_(loop_),
      first_report_ready_(loop_),
      lease_changed_(loop_),
      ranks_gauge_(
          context.metrics.gauge("ff_agent_ranks", "Ranks of this node that may be running")),
      attempts_gauge_(context.metrics.gauge("ff_agent_attempts", "Attempts that this node holds")),
      lease_ends_(context.metrics.counter(
          "ff_agent_lease_ends_total", "Times that ranks were killed for the scheduler's silence")),
      gate_(loop_) {
  rpc::add_method(router, kLog, *this, &Agent::log, kLogReaders);
}

void Agent::start(const std::string& answers_at, const std::string& address) {
  options_.node.set_agent(answers_at);
  options_.node.set_address(address);
  gate_.spawn(enforce_lease());
  gate_.spawn(run_reconciler());
  gate_.spawn(checks_.run());
  gate_.spawn(run_sync());
}

Task<void> Agent::close() {
  Error reason = fail(Errc::interrupted, "the agent is shutting down");
  co_await gate_.close(std::move(reason));
  co_await scheduler_.close();
}

// Reconciling. ------------------------------------------------------------------------------------

Task<void> Agent::run_reconciler() {
  for (;;) {
    reconcile_wanted_.reset();
    auto orders = std::exchange(orders_, std::nullopt);
    std::function<Result<NodeReconciler::Report>()> work = [this, orders = std::move(orders)] {
      return Result<NodeReconciler::Report>(reconciler_.reconcile(orders));
    };
    auto report = co_await reconcile_thread_.run<NodeReconciler::Report>(loop_, std::move(work));
    if (!report) co_return;
    report_ = *std::move(report);
    ranks_gauge_.set(static_cast<int64_t>(reconciler_.live_ranks()));
    attempts_gauge_.set(static_cast<int64_t>(report_.held.size()));
    if (!reconciled_once_ || report_.change_key != sent_change_key_) {
      reconciled_once_ = true;
      first_report_ready_.set();
      resync();
    }
    const int64_t next_ns =
        loop_.now_ns() + (report_.held.empty() ? kIdleReconcileNs : kReconcileNs);
    const auto waited = co_await reconcile_wanted_.wait(next_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// The scheduler. ----------------------------------------------------------------------------------

// The call in flight does not contain the change.
void Agent::resync() {
  if (sync_cancel_ == nullptr) return;
  resync_wanted_ = true;
  Error changed = fail(Errc::interrupted, "the agent has a change to report");
  sync_cancel_->request(std::move(changed));
}

Task<void> Agent::run_sync() {
  if (!co_await first_report_ready_.wait()) co_return;
  Backoff backoff(context_.rng, kRetryFirstNs, kRetryMaxNs);
  for (;;) {
    const int64_t sent_ns = loop_.now_ns();
    sent_change_key_ = report_.change_key;
    resync_wanted_ = false;
    auto reply = co_await send_sync();
    if (gate_.cancellation().requested()) co_return;
    Result<void> taken =
        reply ? accept_reply(*std::move(reply), sent_ns) : Result<void>(reply.error());
    if (taken) {
      if (sync_error_)
        log_info("the scheduler answers", {{"scheduler", options_.scheduler.text()}});
      sync_error_.reset();
      backoff.reset();
      continue;
    }
    if (resync_wanted_) continue;
    if (!sync_error_ || sync_error_->message != taken.error().message) {
      log_warning("the scheduler does not answer",
                  {{"scheduler", options_.scheduler.text()}, {"cause", taken.error().message}});
    }
    sync_error_ = std::move(taken).error();
    if (!co_await sleep_for(loop_, backoff.next_delay_ns())) co_return;
  }
}

// One call; resync() cancels it.
Task<Result<wire::SyncReply>> Agent::send_sync() {
  wire::SyncRequest request;
  *request.mutable_node() = options_.node;
  request.set_boot(reconciler_.boot());
  request.set_scheduler(report_.scheduler);
  for (const wire::Held& held : report_.held) *request.add_held() = held;
  request.set_seen(orders_version_);
  if (const auto* keyring = context_.transport.keyring()) {
    request.set_revocations(keyring->revocations_version());
  }
  if (checks_.report().run() != 0) *request.mutable_checks() = checks_.report();
  CancellationToken* const parent = co_await current_cancellation();
  CancelScope scope(loop_, parent, INT64_MAX, "");
  sync_cancel_ = &scope.cancellation();
  auto reply =
      co_await rpc::call_method(scheduler_, kSync, std::move(request), loop_.now_ns() + kCallNs)
          .with_cancellation(scope.cancellation());
  sync_cancel_ = nullptr;
  co_return reply;
}

Result<void> Agent::accept_reply(wire::SyncReply reply, int64_t sent_ns) {
  if (!report_.scheduler.empty() && report_.scheduler != reply.scheduler()) {
    return fail(Errc::refused, "this node has tasks of another scheduler");
  }
  reconciler_.set_lease(sent_ns, std::max<int64_t>(0, reply.lease()));
  orders_version_ = reply.version();
  if (auto* keyring = context_.transport.keyring(); keyring && reply.has_revocations()) {
    keyring->set_revocations(rpc::from_wire(reply.revocations()));
  }
  checks_.set_wanted_run(reply.checks());
  orders_ = std::move(reply);
  lease_changed_.set();
  reconcile_wanted_.set();
  return {};
}

// The lease. --------------------------------------------------------------------------------------

Task<void> Agent::enforce_lease() {
  bool over = false;
  for (;;) {
    lease_changed_.reset();
    const int64_t until_ns = reconciler_.lease_until_ns();
    int64_t next_ns = until_ns;
    if (loop_.now_ns() >= until_ns) {
      next_ns = loop_.now_ns() + kKillRetryNs;
      if (const size_t living = reconciler_.live_ranks(); living > 0) {
        if (!std::exchange(over, true)) {
          lease_ends_.add();
          log_error("the lease has expired: killing all ranks", {{"ranks", living}});
        }
        std::function<Result<Done>()> work = [this] {
          reconciler_.kill_all_ranks();
          return Result<Done>(Done());
        };
        auto killing = kill_thread_.run<Done>(loop_, std::move(work));
        if (!co_await std::move(killing)) co_return;
        reconcile_wanted_.set();
      }
    } else {
      over = false;
    }
    const auto waited = co_await lease_changed_.wait(next_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// Logs. -------------------------------------------------------------------------------------------

// Asks the scheduler; a positive answer is cached. Nobody reads logs with a token while the
// scheduler does not answer.
Task<Result<void>> Agent::check_token(auth::TokenId token) {
  const auto found = valid_tokens_.find({token.uid, token.serial});
  if (found != valid_tokens_.end() && loop_.now_ns() < found->second) co_return Result<void>();
  wire::HoldsRequest request;
  request.set_uid(token.uid);
  request.set_serial(token.serial);
  const int64_t asked_ns = loop_.now_ns();
  auto answer =
      co_await rpc::call_method(scheduler_, kHolds, std::move(request), asked_ns + kTokenCheckNs);
  if (!answer) {
    if (answer.error().code == Errc::refused) co_return std::move(answer).error();
    co_return std::move(answer).error().with_context("the agent cannot check the token: ");
  }
  std::erase_if(valid_tokens_, [this](const auto& one) { return one.second <= loop_.now_ns(); });
  valid_tokens_[{token.uid, token.serial}] = asked_ns + kTokenCacheNs;
  co_return Result<void>();
}

Task<Result<wire::LogReply>> Agent::log(rpc::ServerCall& call, wire::LogRequest request) {
  std::optional<uint32_t> reader;
  if (!call.peer().trusted()) {
    if (!call.peer().user()) co_return fail(Errc::refused, "only the owner may read logs");
    reader = call.peer().user()->uid;
    FF_CO_TRY(co_await check_token(*call.peer().user()));
  }
  std::function<Result<wire::LogReply>()> work = [this, request = std::move(request), reader] {
    return reconciler_.logs().read(request, reader);
  };
  auto reading = log_thread_.run<wire::LogReply>(loop_, std::move(work));
  co_return co_await with_deadline(loop_, loop_.now_ns() + kLogNs, "the disk with the logs hangs",
                                   std::move(reading));
}

std::string Agent::status() const {
  nlohmann::ordered_json json = {{"role", "schedule-agent"},
                                 {"node", options_.node.name()},
                                 {"address", options_.node.agent()},
                                 {"scheduler", options_.scheduler.text()}};
  json["trouble"] = sync_error_ ? nlohmann::ordered_json(sync_error_->message) : nullptr;
  json["lease_s"] = static_cast<double>(reconciler_.lease_until_ns() - loop_.now_ns()) / kSecond;
  json["validating"] = checks_.report().runs();
  json["attempts"] = nlohmann::ordered_json::array();
  for (const wire::Held& held : report_.held) {
    size_t running = 0;
    for (const wire::Rank& rank : held.ranks()) {
      running += rank.state() == static_cast<uint32_t>(RankState::running) ? 1 : 0;
    }
    json["attempts"].push_back({{"task", held.task()},
                                {"attempt", held.attempt()},
                                {"ranks", held.ranks_size()},
                                {"running", running}});
  }
  return json.dump();
}

}  // namespace ff::scheduler
