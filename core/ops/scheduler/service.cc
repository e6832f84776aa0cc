// service.cc: RPC methods, the store, and the loop of scheduling passes.
#include "ops/scheduler/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ops/scheduler/rank_environment.h"
#include "platform/base/audit.h"
#include "platform/base/bytes.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/rpc/error_wire.h"

namespace ff::scheduler {

namespace {

constexpr std::string_view kIdKey = "sched/id";
constexpr std::string_view kOwnerKey =
    "sched/holder";  // id of the scheduler process that owns the store
constexpr std::string_view kTasks = "sched/task/";
constexpr std::string_view kNodes_ = "sched/node/";
constexpr std::string_view kQuotas = "sched/quota/";
constexpr std::string_view kUseKey = "sched/use";
constexpr int64_t kStoreUseNs =
    60 * kSecond;                           // a crash loses at most this much of the use statistics
constexpr size_t kReadPage = 1000;          // records per read
constexpr int64_t kStoreNs = 60 * kSecond;  // timeout of a write; then the service halts
constexpr uint32_t kListMax = 1000;
// Minimum time between two passes: changes meanwhile are decided together.
constexpr int64_t kPassNs = 20 * kMillisecond;
constexpr size_t kListBytesMax = 512 * 1024;  // of a page; the message limit is twice as much
constexpr int kWithoutNodes = 0, kWithNodes = 1;

// Hexadecimal, so that keys sort by id.
std::string task_key(uint64_t id) { return fmt::format("{}{:016x}", kTasks, id); }

constexpr auth::Roles kAgents = {auth::Role::agent, auth::Role::admin, auth::Role::scheduler};
// Mounts may not start tasks: they act for users of their machine only.
constexpr auth::Roles kTaskOwners = {auth::Role::admin, auth::Role::scheduler, auth::Role::user};

}  // namespace

SchedulerService::SchedulerService(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router,
                                   Options options)
    : engine_(engine),
      loop_(loop),
      rng_(rng),
      options_(std::move(options)),
      run_(rng.hex_id()),
      overview_(options_.metrics),
      persist_wanted_(loop),
      persisted_event_(loop),
      pass_wanted_(loop),
      gate_(loop) {
  rpc::add_method(router, kSync, *this, &SchedulerService::sync, kAgents);
  rpc::add_method(router, kHolds, *this, &SchedulerService::holds, kAgents);
  rpc::add_method(router, kSubmit, *this, &SchedulerService::submit, kTaskOwners);
  rpc::add_method(router, kList, *this, &SchedulerService::list, kTaskOwners);
  rpc::add_method(router, kControl, *this, &SchedulerService::control, kTaskOwners);
  rpc::add_method(router, kNodes, *this, &SchedulerService::nodes, kTaskOwners);
  rpc::add_method(router, kDrain, *this, &SchedulerService::drain);
  rpc::add_method(router, kQuota, *this, &SchedulerService::quota);
  rpc::add_method(router, kVerdict, *this, &SchedulerService::verdict, kAgents);
}

SchedulerService::~SchedulerService() = default;

void SchedulerService::start() { gate_.spawn(run()); }

Task<void> SchedulerService::close() {
  Error reason = fail(Errc::interrupted, "the scheduler is shutting down");
  co_await gate_.close(std::move(reason));
}

SchedulerState::Now SchedulerService::now() const {
  return {.steady_ns = loop_.now_ns(), .wall_ns = loop_.clock().wall_ns()};
}

Result<void> SchedulerService::ready() const {
  if (halted_) return *halted_;
  if (!state_) return fail(Errc::unreachable, "the scheduler is starting");
  return {};
}

Task<Result<void>> SchedulerService::check_token(auth::TokenId token) {
  if (!options_.check_token) {
    Error error =
        fail(Errc::refused,
             "this scheduler accepts no tokens: it cannot check whether they are revoked");
    error.hint =
        "The operator can give 'ff schedule serve' the option --meta, or --revoked-tokens where "
        "there are no metadata servers.";
    co_return error;
  }
  co_return co_await options_.check_token(token);
}

Task<Result<void>> SchedulerService::admit(const rpc::Peer& peer) {
  if (peer.user()) {
    FF_CO_TRY(co_await check_token(*peer.user()));
  }
  co_return ready();
}

void SchedulerService::halt(Error error) {
  log_error("the scheduler stops", {{"cause", error.message}});
  halted_ = std::move(error);
  persisted_event_.set();
}

Task<Result<void>> SchedulerService::load() {
  std::string id, used;
  const std::string fresh = rng_.hex_id();
  auto naming = engine_.run(
      [this, &id, &used, &fresh](kv::Txn& txn) -> Task<Result<void>> {
        FF_CO_TRY(const auto found, co_await txn.get(std::string(kIdKey)));
        id = found.value_or(fresh);
        if (!found) txn.put(std::string(kIdKey), fresh);
        txn.put(std::string(kOwnerKey), run_);
        FF_CO_TRY(auto use, co_await txn.get(std::string(kUseKey)));
        used = std::move(use).value_or("");
        co_return Result<void>();
      },
      loop_.now_ns() + kStoreNs);
  FF_CO_TRY(co_await std::move(naming));
  SchedulerState scheduler(id, options_.timeouts, options_.health, options_.limits);
  const auto take = [&scheduler](const kv::Entry& entry) -> Result<void> {
    if (entry.key.starts_with(kTasks)) {
      FF_TRY(auto task, rpc::parse_message<wire::Task>(entry.value));
      scheduler.load(std::move(task));
    } else if (entry.key.starts_with(kNodes_)) {
      FF_TRY(auto node, rpc::parse_message<wire::Node>(entry.value));
      scheduler.load(std::move(node));
    } else if (entry.key.starts_with(kQuotas)) {
      FF_TRY(auto quota, rpc::parse_message<wire::Quota>(entry.value));
      scheduler.load(std::move(quota));
    }
    return {};
  };
  for (const std::string_view prefix : {kNodes_, kQuotas, kTasks}) {
    std::string begin(prefix);
    const std::string end = kv::end_of_prefix(begin);
    for (;;) {
      std::vector<kv::Entry> entries;
      auto reading = engine_.view(
          [&entries, &begin, &end](kv::Txn& txn) -> Task<Result<void>> {
            kv::Range range{.begin = begin, .end = end, .limit = kReadPage};
            auto ranging = txn.range(std::move(range), {});
            FF_CO_TRY(entries, co_await std::move(ranging));
            co_return Result<void>();
          },
          loop_.now_ns() + kStoreNs);
      FF_CO_TRY(co_await std::move(reading));
      for (const kv::Entry& entry : entries) {
        if (auto taken = take(entry); !taken) {
          co_return std::move(taken).error().with_context(entry.key + ": ");
        }
      }
      if (entries.size() < kReadPage) break;
      begin = entries.back().key + '\0';
    }
  }
  FF_CO_TRY(const auto use, rpc::parse_message<wire::Use>(used));
  scheduler.begin(now());
  overview_.load(use, now());
  state_.emplace(std::move(scheduler));
  co_return Result<void>();
}

// Advances the time and runs scheduling passes.
Task<void> SchedulerService::run() {
  auto loading = load();
  if (auto loaded = co_await std::move(loading); !loaded) {
    // A scheduler that close() stops while it starts has not failed.
    if (loaded.error().code != Errc::interrupted) halt(std::move(loaded).error());
    co_return;
  }
  gate_.spawn(persist());
  gate_.spawn(sample());
  while (!halted_) {
    pass_wanted_.reset();
    const int64_t next_ns = state_->tick(now());
    publish_changes();
    const int64_t again_ns = loop_.now_ns() + kPassNs;
    const auto waited = co_await pass_wanted_.wait(next_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
    if (!co_await sleep_until(loop_, again_ns)) co_return;
  }
}

// Queues changed records for the store, schedules a pass, and wakes agents with new orders.
void SchedulerService::publish_changes() {
  log_notices();
  if (state_->needs_pass()) pass_wanted_.set();
  const SchedulerState::Changes changed = state_->take_changes();
  overview_.changed(changed);
  for (const uint64_t id : changed.tasks) {
    const wire::Task& task = *state_->task(id);
    const bool has_nodes = state_->has_nodes(task);
    writes_.erase({kWithoutNodes, task_key(id)});
    writes_.erase({kWithNodes, task_key(id)});
    writes_[{has_nodes ? kWithNodes : kWithoutNodes, task_key(id)}] = task.SerializeAsString();
  }
  for (const auto& [finished, id] : changed.dropped) {
    writes_.erase({kWithNodes, task_key(id)});
    writes_[{kWithoutNodes, task_key(id)}] = std::nullopt;
  }
  for (const std::string& name : changed.nodes) {
    writes_[{kWithoutNodes, std::string(kNodes_) + name}] = state_->node(name)->SerializeAsString();
  }
  for (const std::string& key : changed.quotas) {
    const auto found = state_->quotas().find(key);
    auto& write = writes_[{kWithoutNodes, std::string(kQuotas) + key}];
    write = found == state_->quotas().end() ? std::nullopt
                                            : std::optional(found->second.SerializeAsString());
  }
  for (const std::string& name : state_->take_nodes_with_new_orders()) {
    Agent& agent = agents_[name];
    agent.version++;
    if (agent.newer != nullptr) agent.newer->set();
  }
  if (changed.empty()) return;
  changes_++;
  persist_wanted_.set();
}

// Samples the use of the nodes, also while nothing changes.
Task<void> SchedulerService::sample() {
  int64_t stored_ns = loop_.now_ns();
  for (;;) {
    const auto slept = co_await sleep_until(loop_, loop_.now_ns() + Overview::kSampleNs);
    if (!slept) co_return;
    overview_.sample(*state_, now());
    auto checking = engine_.view([this](kv::Txn& txn) { return check_ownership(txn); },
                                 loop_.now_ns() + kStoreNs);
    auto checked = co_await std::move(checking);
    if (!checked && checked.error().code == Errc::refused) halt(std::move(checked).error());
    if (halted_ || loop_.now_ns() - stored_ns < kStoreUseNs) continue;
    stored_ns = loop_.now_ns();
    writes_[{kWithoutNodes, std::string(kUseKey)}] = overview_.use().SerializeAsString();
    changes_++;
    persist_wanted_.set();
  }
}

void SchedulerService::log_notices() {
  for (const SchedulerState::Notice& notice : state_->take_notices()) {
    const auto tell = notice.is_warning ? &log_warning : &log_info;
    tell("a node " + notice.text, {{"node", notice.node}});
  }
}

// Writes one batch at a time; changes meanwhile form the next batch.
Task<void> SchedulerService::persist() {
  for (;;) {
    persist_wanted_.reset();
    while (!writes_.empty()) {
      const uint64_t upto = changes_;
      auto storing = store(std::exchange(writes_, {}));
      auto stored = co_await std::move(storing).shielded();
      if (!stored) {
        halt(std::move(stored).error());
        co_return;
      }
      persisted_ = upto;
      persisted_event_.set();
    }
    const auto waited = co_await persist_wanted_.wait();
    if (!waited) co_return;
  }
}

// Another scheduler process that was started later on the same store owns it now.
Task<Result<void>> SchedulerService::check_ownership(kv::Txn& txn) {
  FF_CO_TRY(const auto holder, co_await txn.get(std::string(kOwnerKey)));
  if (holder == run_) co_return Result<void>();
  Error error = fail(Errc::refused, "another scheduler has taken over this store");
  error.hint = "Run only one of them, or give each its own store.";
  co_return error;
}

Task<Result<void>> SchedulerService::store(Writes writes) {
  auto next = writes.begin();
  while (next != writes.end()) {
    std::vector<std::pair<std::string, std::optional<std::string>>> part;
    size_t bytes = 0;
    for (; next != writes.end() && part.size() < kv::kWritesMax; ++next) {
      bytes += next->first.second.size() + (next->second ? next->second->size() : 0);
      if (!part.empty() && bytes > kv::kBytesMax) break;
      part.emplace_back(next->first.second, next->second);
    }
    auto writing = engine_.run(
        [this, &part](kv::Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(co_await check_ownership(txn));
          for (const auto& [key, value] : part) {
            value ? txn.put(key, *value) : txn.erase(key);
          }
          co_return Result<void>();
        },
        loop_.now_ns() + kStoreNs);
    FF_CO_TRY(co_await std::move(writing));
  }
  co_return Result<void>();
}

// Waits until all changes so far are stored.
Task<Result<void>> SchedulerService::wait_persisted() {
  const uint64_t upto = changes_;
  while (persisted_ < upto) {
    if (halted_) co_return *halted_;
    persisted_event_.reset();
    FF_CO_TRY(co_await persisted_event_.wait());
  }
  co_return Result<void>();
}

// All nodes of an attempt get the same key, and no other attempt has it.
void SchedulerService::add_job_key(wire::Order& order) const {
  if (options_.keyring == nullptr || !options_.keyring->root()) return;
  const AttemptIdentity job{
      .scheduler = state_->id(), .task = order.task(), .attempt = order.attempt()};
  const auth::Key key = attempt_key(*options_.keyring->root(), job);
  order.set_job_key(std::string(as_text(key)));
}

// An agent speaks for the node of its own name only.
Result<void> SchedulerService::check_agent(const rpc::Peer& peer, const std::string& node) {
  if (!peer.entity || peer.entity->role != auth::Role::agent || peer.entity->name == node) {
    return {};
  }
  Error error = fail(Errc::refused, "{} cannot report for the node {}", peer.entity->full_name(),
                     printable(node));
  error.hint = fmt::format("Give its agent a key of its own: ff admin key create agent/{}.",
                           printable(node));
  return error;
}

Task<Result<wire::SyncReply>> SchedulerService::sync(rpc::ServerCall& call,
                                                     wire::SyncRequest request) {
  FF_CO_TRY(ready());
  const std::string name = request.node().name();
  FF_CO_TRY(check_agent(call.peer(), name));
  FF_CO_TRY(state_->apply_report(request, now()));
  publish_changes();
  Agent& agent = agents_[name];
  agent.entity = call.peer().entity;
  // Start at a value that differs from the versions of earlier scheduler processes.
  if (agent.version == 1) agent.version = static_cast<uint64_t>(loop_.clock().wall_ns());
  if (agent.newer == nullptr) agent.newer = std::make_unique<Event>(loop_);
  const int64_t until_ns = loop_.now_ns() + kSyncNs;
  while (agent.version == request.seen() && loop_.now_ns() < until_ns) {
    agent.newer->reset();
    const auto waited = co_await agent.newer->wait(until_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return waited.error();
  }
  wire::SyncReply reply;
  reply.set_scheduler(state_->id());
  reply.set_version(agent.version);
  reply.set_lease(options_.timeouts.lease_ns);
  for (wire::Order& order : state_->orders(name)) {
    add_job_key(order);
    *reply.add_orders() = std::move(order);
  }
  reply.set_checks(state_->validation_run(name));
  if (options_.keyring != nullptr &&
      options_.keyring->revocations_version() != request.revocations()) {
    rpc::to_wire(*options_.keyring->revocations(), *reply.mutable_revocations());
  }
  FF_CO_TRY(co_await wait_persisted());
  co_return reply;
}

Task<Result<wire::HoldsReply>> SchedulerService::holds(rpc::ServerCall&,
                                                       wire::HoldsRequest request) {
  auto checking = check_token({.uid = request.uid(), .serial = request.serial()});
  FF_CO_TRY(co_await std::move(checking));
  co_return wire::HoldsReply();
}

Task<Result<wire::SubmitReply>> SchedulerService::submit(rpc::ServerCall& call,
                                                         wire::SubmitRequest request) {
  FF_CO_TRY(co_await admit(call.peer()));
  if (const auto user = call.peer().user()) {
    wire::Owner& owner = *request.mutable_owner();
    owner.Clear();
    owner.set_uid(user->uid);
    owner.set_name(options_.name_of(user->uid));
  }
  if (request.owner().uid() == 0) {
    Error error = fail(Errc::refused, "root cannot own tasks");
    error.hint = "Submit it as the user who owns the files it needs.";
    co_return error;
  }
  if (request.owner().name().empty()) co_return fail(Errc::usage, "a task needs an owner");
  const auto by = call.peer().trusted() ? SubmittedBy::admin : SubmittedBy::user;
  const uint32_t uid = request.owner().uid();
  FF_CO_TRY(const uint64_t id, state_->submit(std::move(request), by, now()));
  const auto& peer = call.peer().entity;
  audit("task submitted", peer ? peer->full_name() : call.peer().address,
        {{"task", id}, {"uid", uid}});
  publish_changes();
  FF_CO_TRY(co_await wait_persisted());
  wire::SubmitReply reply;
  reply.set_task(id);
  co_return reply;
}

Task<Result<wire::ListReply>> SchedulerService::list(rpc::ServerCall& call,
                                                     wire::ListRequest request) {
  FF_CO_TRY(co_await admit(call.peer()));
  wire::ListReply reply;
  const auto add = [&](const wire::Task& task) {
    wire::ListedTask& listed = *reply.add_tasks();
    *listed.mutable_task() = task;
    // Environments may contain secrets, and are most of a list.
    if (request.task() == 0 || !may_control(call.peer(), task.id())) {
      listed.mutable_task()->mutable_spec()->clear_env();
    }
    if (auto waiting = state_->waiting(task.id())) *listed.mutable_waiting() = *waiting;
  };
  if (request.task() != 0) {
    const wire::Task* const task = state_->task(request.task());
    if (task == nullptr) co_return fail(Errc::not_found, "there is no task {}", request.task());
    add(*task);
    co_return reply;
  }
  const uint32_t limit = std::clamp(request.limit(), 1u, kListMax);
  const auto& tasks = state_->tasks();
  auto next = request.before() == 0 ? tasks.end() : tasks.lower_bound(request.before());
  size_t bytes = 0;
  while (next != tasks.begin()) {
    --next;
    if (phase_of(next->second) == TaskPhase::finished && !request.finished()) continue;
    if (bytes > kListBytesMax || reply.tasks_size() == static_cast<int>(limit)) {
      reply.set_more(true);
      break;
    }
    add(next->second);
    bytes += reply.tasks().rbegin()->ByteSizeLong();
  }
  co_return reply;
}

Result<void> SchedulerService::may_control(const rpc::Peer& peer, uint64_t id) const {
  const wire::Task* const task = state_->task(id);
  if (task == nullptr || peer.trusted()) return {};
  if (peer.user() && peer.user()->uid == task->owner().uid()) return {};
  return fail(Errc::refused, "task {} is another user's", id);
}

Task<Result<wire::ControlReply>> SchedulerService::control(rpc::ServerCall& call,
                                                           wire::ControlRequest request) {
  FF_CO_TRY(co_await admit(call.peer()));
  if (request.what() > static_cast<uint32_t>(TaskControl::resume)) {
    co_return fail(Errc::usage, "unknown control action");
  }
  FF_CO_TRY(may_control(call.peer(), request.task()));
  FF_CO_TRY(state_->control(request.task(), static_cast<TaskControl>(request.what()), now()));
  publish_changes();
  FF_CO_TRY(co_await wait_persisted());
  co_return wire::ControlReply();
}

Task<Result<wire::NodesReply>> SchedulerService::nodes(rpc::ServerCall& call, wire::NodesRequest) {
  FF_CO_TRY(co_await admit(call.peer()));
  wire::NodesReply reply;
  const int64_t expires_s = loop_.clock().wall_ns() / kSecond + auth::kTicketSeconds;
  reply.set_tickets_end(expires_s);
  for (wire::ListedNode& one : state_->listed_nodes(now())) {
    add_ticket(call.peer(), expires_s, one);
    *reply.add_nodes() = std::move(one);
  }
  co_return reply;
}

void SchedulerService::add_ticket(const rpc::Peer& peer, int64_t expires_s,
                                  wire::ListedNode& node) {
  const auto found = agents_.find(node.node().name());
  if (found == agents_.end() || !found->second.entity || !peer.entity) return;
  if (options_.keyring == nullptr || !options_.keyring->root()) return;
  const auth::Entity& agent = *found->second.entity;
  const auto made = auth::make_ticket(*options_.keyring->root(), agent, *peer.entity, expires_s);
  node.set_agent_identity(auth::format_identity(agent));
  node.set_ticket_identity(made.identity);
  node.set_ticket_key(std::string(as_text(made.key)));
}

Task<Result<wire::DrainReply>> SchedulerService::drain(rpc::ServerCall&,
                                                       wire::DrainRequest request) {
  FF_CO_TRY(ready());
  FF_CO_TRY(state_->drain(request.node(), request.drain(), request.why(), now()));
  publish_changes();
  FF_CO_TRY(co_await wait_persisted());
  co_return wire::DrainReply();
}

Task<Result<wire::QuotaReply>> SchedulerService::quota(rpc::ServerCall&,
                                                       wire::QuotaRequest request) {
  FF_CO_TRY(ready());
  for (const wire::Quota& one : request.set()) {
    FF_CO_TRY(state_->set_quota(one));
  }
  for (const wire::Quota& one : request.drop()) state_->remove_quota(one);
  publish_changes();
  FF_CO_TRY(co_await wait_persisted());
  wire::QuotaReply reply;
  for (const auto& [key, quota] : state_->quotas()) *reply.add_quotas() = quota;
  co_return reply;
}

Task<Result<wire::VerdictReply>> SchedulerService::verdict(rpc::ServerCall& call,
                                                           wire::VerdictRequest request) {
  FF_CO_TRY(ready());
  FF_CO_TRY(check_agent(call.peer(), request.node()));
  FF_CO_TRY(auto reply, state_->record_verdict(request.node(), request.verdict(), now()));
  publish_changes();
  FF_CO_TRY(co_await wait_persisted());
  co_return reply;
}

std::string SchedulerService::status() const {
  nlohmann::ordered_json json = {{"role", "schedule"}};
  json["halted"] = halted_ ? nlohmann::ordered_json(halted_->message) : nullptr;
  std::map<std::string_view, uint64_t> phases;
  for (size_t i = 0; i <= static_cast<size_t>(TaskPhase::finished); i++) {
    phases[task_phase_name(static_cast<TaskPhase>(i))] = 0;
  }
  uint64_t usable = 0, all = 0, validating = 0, drained = 0, by_verdict = 0, despite_verdict = 0;
  if (state_) {
    for (const auto& [id, task] : state_->tasks()) {
      phases[task_phase_name(phase_of(task))]++;
    }
    for (const wire::ListedNode& one : state_->listed_nodes(now())) {
      all++;
      usable += one.usable() ? 1 : 0;
      validating += one.validating() ? 1 : 0;
      drained += one.node().drained() ? 1 : 0;
      by_verdict += one.node().drained_by_verdict() ? 1 : 0;
      despite_verdict += is_used_despite_verdict(one.node()) ? 1 : 0;
    }
  }
  json["tasks"] = phases;
  json["nodes"] = {{"all", all},
                   {"usable", usable},
                   {"validating", validating},
                   {"drained", drained},
                   {"drained_by_verdict", by_verdict},
                   {"in_spite_of_verdict", despite_verdict}};
  return json.dump();
}

std::string SchedulerService::overview(std::string_view query) {
  if (state_ && !halted_) return overview_.json(*state_, now(), query);
  const nlohmann::json state = {{"halted", halted_ ? printable(halted_->message) : ""}};
  return state.dump();
}

std::string SchedulerService::node_map() {
  return state_ ? overview_.map_json(*state_, now()) : "{}";
}

}  // namespace ff::scheduler
