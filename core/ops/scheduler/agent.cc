// agent.cc: the calls, the turns of the hands, the watch over the lease.
#include "ops/scheduler/agent.h"

#include <nlohmann/json.hpp>

#include "platform/base/backoff.h"
#include "platform/base/log.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kAgentPollNs = 200 * kMillisecond;  // at what is held
constexpr int64_t kIdleNs = kSecond;                  // when nothing is
constexpr int64_t kCallNs = kSyncNs + 30 * kSecond;   // the scheduler may be storing
constexpr int64_t kPauseFirstNs = 100 * kMillisecond;
constexpr int64_t kPauseLastNs = 5 * kSecond;
constexpr int64_t kKillAgainNs = kSecond;
constexpr int64_t kLogNs = 30 * kSecond;
constexpr int64_t kHoldsNs = 10 * kSecond;

struct Done {};

}  // namespace

Agent::Agent(rpc::ClientContext& context, rpc::Router& router, Holdings& holdings, Options options)
    : context_(context),
      loop_(context.loop),
      holdings_(holdings),
      options_(std::move(options)),
      scheduler_(context, options_.scheduler),
      checks_(loop_, options_.checks, [this] { tell_news(); }),
      to_tend_(loop_),
      to_sync_(loop_),
      lease_changed_(loop_),
      living_(context.metrics.gauge("ff_agent_ranks", "Ranks of this node that may be running")),
      attempts_(context.metrics.gauge("ff_agent_attempts", "Attempts that this node holds")),
      lease_ends_(context.metrics.counter(
          "ff_agent_lease_ends_total", "Times that ranks were killed for the scheduler's silence")),
      gate_(loop_) {
  rpc::add_method(router, kLog, *this, &Agent::log, rpc::Access::users);
}

void Agent::start(const std::string& answers_at, const std::string& address) {
  options_.node.set_agent(answers_at);
  options_.node.set_address(address);
  gate_.spawn(enforce());
  gate_.spawn(tend());
  gate_.spawn(checks_.tend());
  gate_.spawn(sync());
}

Task<void> Agent::close() {
  Error reason = fail(Errc::interrupted, "the agent goes down");
  co_await gate_.close(std::move(reason));
  co_await scheduler_.close();
}

// What is held. -----------------------------------------------------------------------------------

Task<void> Agent::tend() {
  for (;;) {
    to_tend_.reset();
    auto orders = std::exchange(orders_, std::nullopt);
    std::function<Result<Holdings::Report>()> work = [this, orders = std::move(orders)] {
      return Result<Holdings::Report>(holdings_.turn(orders));
    };
    auto turning = hands_.run<Holdings::Report>(loop_, std::move(work));
    auto report = co_await std::move(turning);
    if (!report) co_return;
    report_ = *std::move(report);
    living_.set(static_cast<int64_t>(holdings_.living()));
    attempts_.set(static_cast<int64_t>(report_.held.size()));
    if (!looked_ || report_.news != told_news_) {
      looked_ = true;
      to_sync_.set();
      tell_news();
    }
    const int64_t next_ns = loop_.now_ns() + (report_.held.empty() ? kIdleNs : kAgentPollNs);
    const auto waited = co_await to_tend_.wait(next_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// The scheduler. ----------------------------------------------------------------------------------

// The call under way knows nothing of them.
void Agent::tell_news() {
  if (calling_ == nullptr) return;
  has_news_ = true;
  Error news = fail(Errc::interrupted, "there is something to tell");
  calling_->request(std::move(news));
}

Task<void> Agent::sync() {
  if (!co_await to_sync_.wait()) co_return;
  Backoff backoff(context_.rng, kPauseFirstNs, kPauseLastNs);
  for (;;) {
    const int64_t sent_ns = loop_.now_ns();
    told_news_ = report_.news;
    has_news_ = false;
    auto calling = call();
    auto reply = co_await std::move(calling);
    if (gate_.cancel().requested()) co_return;
    Result<void> taken = reply ? take(*std::move(reply), sent_ns) : Result<void>(reply.error());
    if (taken) {
      if (trouble_) log_info("the scheduler answers", {{"scheduler", options_.scheduler.text()}});
      trouble_.reset();
      backoff.reset();
      continue;
    }
    if (has_news_) continue;
    if (!trouble_ || trouble_->message != taken.error().message) {
      log_warning("the scheduler does not answer",
                  {{"scheduler", options_.scheduler.text()}, {"cause", taken.error().message}});
    }
    trouble_ = std::move(taken).error();
    if (!co_await after(loop_, backoff.pause_ns())) co_return;
  }
}

// One call, which tend() gives up when there are news.
Task<Result<wire::SyncReply>> Agent::call() {
  wire::SyncRequest request;
  *request.mutable_node() = options_.node;
  request.set_boot(holdings_.boot());
  request.set_scheduler(report_.scheduler);
  for (const wire::Held& held : report_.held) *request.add_held() = held;
  request.set_seen(seen_);
  if (checks_.told().run() != 0) *request.mutable_checks() = checks_.told();
  Cancel* const parent = co_await current_cancel();
  CancelScope scope(loop_, parent, INT64_MAX, "");
  calling_ = &scope.cancel();
  auto calling = rpc::call_method(scheduler_, kSync, std::move(request), loop_.now_ns() + kCallNs);
  auto reply = co_await std::move(calling).under(scope.cancel());
  calling_ = nullptr;
  co_return reply;
}

Result<void> Agent::take(wire::SyncReply reply, int64_t sent_ns) {
  if (!report_.scheduler.empty() && report_.scheduler != reply.scheduler()) {
    return fail(Errc::refused, "it is another scheduler than the one whose tasks this node has");
  }
  holdings_.set_lease(sent_ns, std::max<int64_t>(0, reply.lease()));
  seen_ = reply.version();
  checks_.want(reply.checks());
  orders_ = std::move(reply);
  lease_changed_.set();
  to_tend_.set();
  return {};
}

// The lease. --------------------------------------------------------------------------------------

Task<void> Agent::enforce() {
  bool over = false;
  for (;;) {
    lease_changed_.reset();
    const int64_t until_ns = holdings_.lease_until_ns();
    int64_t next_ns = until_ns;
    if (loop_.now_ns() >= until_ns) {
      next_ns = loop_.now_ns() + kKillAgainNs;
      if (const size_t living = holdings_.living(); living > 0) {
        if (!std::exchange(over, true)) {
          lease_ends_.add();
          log_error("the lease is over: all ranks are killed", {{"ranks", living}});
        }
        std::function<Result<Done>()> work = [this] {
          holdings_.kill_living();
          return Result<Done>(Done());
        };
        auto killing = killer_.run<Done>(loop_, std::move(work));
        if (!co_await std::move(killing)) co_return;
        to_tend_.set();
      }
    } else {
      over = false;
    }
    const auto waited = co_await lease_changed_.wait(next_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
  }
}

// Logs. -------------------------------------------------------------------------------------------

// The scheduler knows; what it has said stays true for a while.
Task<Result<void>> Agent::check_token(auth::User token) {
  const auto found = held_tokens_.find({token.uid, token.serial});
  if (found != held_tokens_.end() && loop_.now_ns() < found->second) co_return Result<void>();
  wire::HoldsRequest request;
  request.set_uid(token.uid);
  request.set_serial(token.serial);
  auto asking = rpc::call_method(scheduler_, kHolds, std::move(request), loop_.now_ns() + kHoldsNs);
  FF_CO_TRY(co_await std::move(asking));
  std::erase_if(held_tokens_, [this](const auto& one) { return one.second <= loop_.now_ns(); });
  held_tokens_[{token.uid, token.serial}] = loop_.now_ns() + kHoldsNs;
  co_return Result<void>();
}

Task<Result<wire::LogReply>> Agent::log(rpc::ServerCall& call, wire::LogRequest request) {
  std::optional<uint32_t> reader;
  if (!call.peer().trusted()) {
    if (!call.peer().user) co_return fail(Errc::refused, "logs are their owner's");
    reader = call.peer().user->uid;
    auto checking = check_token(*call.peer().user);
    FF_CO_TRY(co_await std::move(checking));
  }
  std::function<Result<wire::LogReply>()> work = [this, request = std::move(request), reader] {
    return holdings_.logs().read(request, reader);
  };
  auto reading = reader_.run<wire::LogReply>(loop_, std::move(work));
  auto bounded = with_deadline(loop_, loop_.now_ns() + kLogNs, "the disk with the logs hangs",
                               std::move(reading));
  co_return co_await std::move(bounded);
}

std::string Agent::status() const {
  nlohmann::ordered_json json = {{"role", "schedule-agent"},
                                 {"node", options_.node.name()},
                                 {"address", options_.node.agent()},
                                 {"scheduler", options_.scheduler.text()}};
  json["trouble"] = trouble_ ? nlohmann::ordered_json(trouble_->message) : nullptr;
  json["lease_s"] = static_cast<double>(holdings_.lease_until_ns() - loop_.now_ns()) / kSecond;
  json["validating"] = checks_.told().runs();
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
