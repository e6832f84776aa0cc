// service.cc: calls, the store, and the turn of the book.
#include "ops/scheduler/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "platform/base/bytes.h"
#include "platform/base/log.h"
#include "platform/base/text.h"

namespace ff::scheduler {

namespace {

constexpr std::string_view kIdKey = "sched/id";
constexpr std::string_view kHolder = "sched/holder";  // the run of a scheduler that has the store
constexpr std::string_view kTasks = "sched/task/";
constexpr std::string_view kNodes_ = "sched/node/";
constexpr std::string_view kQuotas = "sched/quota/";
constexpr std::string_view kUse = "sched/use";
constexpr int64_t kUseNs = 60 * kSecond;    // a crash loses no more of it
constexpr size_t kPage = 1000;              // records read at once
constexpr int64_t kStoreNs = 60 * kSecond;  // for a write; beyond, the store is given up
constexpr uint32_t kListMax = 1000;
// Between two passes: what comes meanwhile is decided on together.
constexpr int64_t kPassNs = 20 * kMillisecond;
constexpr size_t kListBytesMax = 512 * 1024;  // of a page; a message has room for twice as much
constexpr int kWithoutNodes = 0, kWithNodes = 1;

// Ids in the order of their numbers.
std::string task_key(uint64_t id) { return fmt::format("{}{:016x}", kTasks, id); }

}  // namespace

Service::Service(kv::Engine& engine, Loop& loop, Rng& rng, rpc::Router& router, Options options)
    : engine_(engine),
      loop_(loop),
      rng_(rng),
      options_(std::move(options)),
      run_(rng.hex_id()),
      overview_(options_.metrics),
      to_keep_(loop),
      kept_more_(loop),
      to_tick_(loop),
      gate_(loop) {
  rpc::add_method(router, kSync, *this, &Service::sync);
  rpc::add_method(router, kHolds, *this, &Service::holds);
  rpc::add_method(router, kSubmit, *this, &Service::submit, rpc::Access::users);
  rpc::add_method(router, kList, *this, &Service::list, rpc::Access::users);
  rpc::add_method(router, kControl, *this, &Service::control, rpc::Access::users);
  rpc::add_method(router, kNodes, *this, &Service::nodes, rpc::Access::users);
  rpc::add_method(router, kDrain, *this, &Service::drain);
  rpc::add_method(router, kQuota, *this, &Service::quota);
  rpc::add_method(router, kVerdict, *this, &Service::verdict);
}

Service::~Service() = default;

void Service::start() { gate_.spawn(run()); }

Task<void> Service::close() {
  Error reason = fail(Errc::interrupted, "the scheduler goes down");
  co_await gate_.close(std::move(reason));
}

Book::Now Service::now() const {
  return {.steady_ns = loop_.now_ns(), .wall_ns = loop_.clock().wall_ns()};
}

Result<void> Service::ready() const {
  if (halted_) return *halted_;
  if (!book_) return fail(Errc::unreachable, "the scheduler is starting");
  return {};
}

Task<Result<void>> Service::check_token(auth::User token) {
  if (!options_.holds) co_return Result<void>();
  auto asking = options_.holds(token);
  co_return co_await std::move(asking);
}

Task<Result<void>> Service::admit(const rpc::Peer& peer) {
  if (peer.user) {
    auto checking = check_token(*peer.user);
    FF_CO_TRY(co_await std::move(checking));
  }
  co_return ready();
}

void Service::halt(Error error) {
  log_error("the scheduler stops", {{"cause", error.message}});
  halted_ = std::move(error);
  kept_more_.set();
}

Task<Result<void>> Service::load() {
  std::string id, used;
  const std::string fresh = rng_.hex_id();
  auto naming = engine_.run(
      [this, &id, &used, &fresh](kv::Txn& txn) -> Task<Result<void>> {
        FF_CO_TRY(const auto found, co_await txn.get(std::string(kIdKey)));
        id = found.value_or(fresh);
        if (!found) txn.put(std::string(kIdKey), fresh);
        txn.put(std::string(kHolder), run_);
        FF_CO_TRY(auto use, co_await txn.get(std::string(kUse)));
        used = std::move(use).value_or("");
        co_return Result<void>();
      },
      loop_.now_ns() + kStoreNs);
  FF_CO_TRY(co_await std::move(naming));
  Book book(id, options_.timing, options_.health);
  const auto take = [&book](const kv::Entry& entry) -> Result<void> {
    if (entry.key.starts_with(kTasks)) {
      FF_TRY(auto task, rpc::parse_message<wire::Task>(entry.value));
      book.load(std::move(task));
    } else if (entry.key.starts_with(kNodes_)) {
      FF_TRY(auto node, rpc::parse_message<wire::Node>(entry.value));
      book.load(std::move(node));
    } else if (entry.key.starts_with(kQuotas)) {
      FF_TRY(auto quota, rpc::parse_message<wire::Quota>(entry.value));
      book.load(std::move(quota));
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
            kv::Range range{.begin = begin, .end = end, .limit = kPage};
            auto ranging = txn.range(std::move(range), {});
            FF_CO_TRY(entries, co_await std::move(ranging));
            co_return Result<void>();
          },
          loop_.now_ns() + kStoreNs);
      FF_CO_TRY(co_await std::move(reading));
      for (const kv::Entry& entry : entries) {
        if (auto taken = take(entry); !taken) {
          co_return std::move(taken).error().within(entry.key + ": ");
        }
      }
      if (entries.size() < kPage) break;
      begin = entries.back().key + '\0';
    }
  }
  FF_CO_TRY(const auto use, rpc::parse_message<wire::Use>(used));
  book.begin(now());
  overview_.begin(use, now());
  book_.emplace(std::move(book));
  co_return Result<void>();
}

// Time passes; what is new is decided on.
Task<void> Service::run() {
  auto loading = load();
  if (auto loaded = co_await std::move(loading); !loaded) {
    halt(std::move(loaded).error());
    co_return;
  }
  gate_.spawn(keep());
  gate_.spawn(watch());
  while (!halted_) {
    to_tick_.reset();
    const int64_t next_ns = book_->tick(now());
    book_changed();
    const int64_t again_ns = loop_.now_ns() + kPassNs;
    const auto waited = co_await to_tick_.wait(next_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return;
    if (!co_await until(loop_, again_ns)) co_return;
  }
}

// What has changed goes to the store, and is decided on; whoever waits for orders looks.
void Service::book_changed() {
  log_notices();
  if (book_->undecided()) to_tick_.set();
  const Book::Changed changed = book_->take_changed();
  overview_.changed(changed);
  for (const uint64_t id : changed.tasks) {
    const wire::Task& task = *book_->task(id);
    const bool has_nodes = book_->has_nodes(task);
    writes_.erase({kWithoutNodes, task_key(id)});
    writes_.erase({kWithNodes, task_key(id)});
    writes_[{has_nodes ? kWithNodes : kWithoutNodes, task_key(id)}] = task.SerializeAsString();
  }
  for (const auto& [finished, id] : changed.dropped) {
    writes_.erase({kWithNodes, task_key(id)});
    writes_[{kWithoutNodes, task_key(id)}] = std::nullopt;
  }
  for (const std::string& name : changed.nodes) {
    writes_[{kWithoutNodes, std::string(kNodes_) + name}] = book_->node(name)->SerializeAsString();
  }
  for (const std::string& key : changed.quotas) {
    const auto found = book_->quotas().find(key);
    auto& write = writes_[{kWithoutNodes, std::string(kQuotas) + key}];
    write = found == book_->quotas().end() ? std::nullopt
                                           : std::optional(found->second.SerializeAsString());
  }
  for (const std::string& name : book_->take_ordered()) {
    Agent& agent = agents_[name];
    agent.version++;
    if (agent.newer != nullptr) agent.newer->set();
  }
  if (changed.empty()) return;
  changed_++;
  to_keep_.set();
}

// How the nodes are used, also while nothing changes.
Task<void> Service::watch() {
  int64_t stored_ns = loop_.now_ns();
  for (;;) {
    const auto slept = co_await until(loop_, loop_.now_ns() + Overview::kSampleNs);
    if (!slept) co_return;
    overview_.sample(*book_, now());
    auto looking =
        engine_.view([this](kv::Txn& txn) { return check_holder(txn); }, loop_.now_ns() + kStoreNs);
    auto looked = co_await std::move(looking);
    if (!looked && looked.error().code == Errc::refused) halt(std::move(looked).error());
    if (halted_ || loop_.now_ns() - stored_ns < kUseNs) continue;
    stored_ns = loop_.now_ns();
    writes_[{kWithoutNodes, std::string(kUse)}] = overview_.use().SerializeAsString();
    changed_++;
    to_keep_.set();
  }
}

void Service::log_notices() {
  for (const Book::Notice& notice : book_->take_notices()) {
    const auto tell = notice.is_warning ? &log_warning : &log_info;
    tell("a node " + notice.text, {{"node", notice.node}});
  }
}

// One batch after the other; while one is written the next gathers.
Task<void> Service::keep() {
  for (;;) {
    to_keep_.reset();
    while (!writes_.empty()) {
      const uint64_t upto = changed_;
      auto storing = store(std::exchange(writes_, {}));
      auto stored = co_await std::move(storing).shielded();
      if (!stored) {
        halt(std::move(stored).error());
        co_return;
      }
      kept_ = upto;
      kept_more_.set();
    }
    const auto waited = co_await to_keep_.wait();
    if (!waited) co_return;
  }
}

// A scheduler that was started later on the same store has taken it over.
Task<Result<void>> Service::check_holder(kv::Txn& txn) {
  FF_CO_TRY(const auto holder, co_await txn.get(std::string(kHolder)));
  if (holder == run_) co_return Result<void>();
  Error error = fail(Errc::refused, "another scheduler has taken over the store of this one");
  error.hint = "Run one of them only, or give each a store of its own.";
  co_return error;
}

Task<Result<void>> Service::store(Writes writes) {
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
          auto checking = check_holder(txn);
          FF_CO_TRY(co_await std::move(checking));
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

// All that has changed so far is in the store.
Task<Result<void>> Service::kept() {
  const uint64_t upto = changed_;
  while (kept_ < upto) {
    if (halted_) co_return *halted_;
    kept_more_.reset();
    FF_CO_TRY(co_await kept_more_.wait());
  }
  co_return Result<void>();
}

Task<Result<wire::SyncReply>> Service::sync(rpc::ServerCall&, wire::SyncRequest request) {
  FF_CO_TRY(ready());
  const std::string name = request.node().name();
  FF_CO_TRY(book_->report(request, now()));
  book_changed();
  Agent& agent = agents_[name];
  // No version of another scheduler's run is one of this one's.
  if (agent.version == 1) agent.version = static_cast<uint64_t>(loop_.clock().wall_ns());
  if (agent.newer == nullptr) agent.newer = std::make_unique<Event>(loop_);
  const int64_t until_ns = loop_.now_ns() + kSyncNs;
  while (agent.version == request.seen() && loop_.now_ns() < until_ns) {
    agent.newer->reset();
    const auto waited = co_await agent.newer->wait(until_ns);
    if (!waited && waited.error().code != Errc::deadline) co_return waited.error();
  }
  wire::SyncReply reply;
  reply.set_scheduler(book_->id());
  reply.set_version(agent.version);
  reply.set_lease(options_.timing.lease_ns);
  for (wire::Order& order : book_->orders(name)) *reply.add_orders() = std::move(order);
  reply.set_checks(book_->checks(name));
  FF_CO_TRY(co_await kept());
  co_return reply;
}

Task<Result<wire::HoldsReply>> Service::holds(rpc::ServerCall&, wire::HoldsRequest request) {
  auto checking = check_token({.uid = request.uid(), .serial = request.serial()});
  FF_CO_TRY(co_await std::move(checking));
  co_return wire::HoldsReply();
}

Task<Result<wire::SubmitReply>> Service::submit(rpc::ServerCall& call,
                                                wire::SubmitRequest request) {
  auto admitting = admit(call.peer());
  FF_CO_TRY(co_await std::move(admitting));
  if (const auto& user = call.peer().user) {
    wire::Owner& owner = *request.mutable_owner();
    owner.Clear();
    owner.set_uid(user->uid);
    owner.set_name(options_.name_of(user->uid));
  }
  if (request.owner().uid() == 0) {
    Error error = fail(Errc::refused, "root has no tasks");
    error.hint = "Submit it as the user whose files it needs.";
    co_return error;
  }
  if (request.owner().name().empty()) co_return fail(Errc::usage, "a task has an owner");
  FF_CO_TRY(const uint64_t id, book_->submit(std::move(request), now()));
  book_changed();
  FF_CO_TRY(co_await kept());
  wire::SubmitReply reply;
  reply.set_task(id);
  co_return reply;
}

Task<Result<wire::ListReply>> Service::list(rpc::ServerCall& call, wire::ListRequest request) {
  auto admitting = admit(call.peer());
  FF_CO_TRY(co_await std::move(admitting));
  wire::ListReply reply;
  const auto add = [&](const wire::Task& task) {
    wire::ListedTask& listed = *reply.add_tasks();
    *listed.mutable_task() = task;
    // People keep secrets there.
    if (!may_control(call.peer(), task.id())) listed.mutable_task()->mutable_spec()->clear_env();
    if (auto waiting = book_->waiting(task.id())) *listed.mutable_waiting() = *waiting;
  };
  if (request.task() != 0) {
    const wire::Task* const task = book_->task(request.task());
    if (task == nullptr) co_return fail(Errc::not_found, "there is no task {}", request.task());
    add(*task);
    co_return reply;
  }
  const uint32_t limit = std::clamp(request.limit(), 1u, kListMax);
  const auto& tasks = book_->tasks();
  auto next = request.before() == 0 ? tasks.end() : tasks.lower_bound(request.before());
  size_t bytes = 0;
  while (next != tasks.begin()) {
    --next;
    if (phase_of(next->second) == TaskPhase::finished && !request.finished()) continue;
    bytes += next->second.ByteSizeLong();
    const bool is_full = reply.tasks_size() > 0 && bytes > kListBytesMax;
    if (is_full || reply.tasks_size() == static_cast<int>(limit)) {
      reply.set_more(true);
      break;
    }
    add(next->second);
  }
  co_return reply;
}

Result<void> Service::may_control(const rpc::Peer& peer, uint64_t id) const {
  const wire::Task* const task = book_->task(id);
  if (task == nullptr || peer.trusted()) return {};
  if (peer.user && peer.user->uid == task->owner().uid()) return {};
  return fail(Errc::refused, "task {} is another user's", id);
}

Task<Result<wire::ControlReply>> Service::control(rpc::ServerCall& call,
                                                  wire::ControlRequest request) {
  auto admitting = admit(call.peer());
  FF_CO_TRY(co_await std::move(admitting));
  if (request.what() > static_cast<uint32_t>(Control::resume)) {
    co_return fail(Errc::usage, "a control that there is none of");
  }
  FF_CO_TRY(may_control(call.peer(), request.task()));
  FF_CO_TRY(book_->control(request.task(), static_cast<Control>(request.what()), now()));
  book_changed();
  FF_CO_TRY(co_await kept());
  co_return wire::ControlReply();
}

Task<Result<wire::NodesReply>> Service::nodes(rpc::ServerCall& call, wire::NodesRequest) {
  auto admitting = admit(call.peer());
  FF_CO_TRY(co_await std::move(admitting));
  wire::NodesReply reply;
  for (wire::ListedNode& one : book_->listed_nodes(now())) *reply.add_nodes() = std::move(one);
  co_return reply;
}

Task<Result<wire::DrainReply>> Service::drain(rpc::ServerCall&, wire::DrainRequest request) {
  FF_CO_TRY(ready());
  FF_CO_TRY(book_->drain(request.node(), request.drain(), request.why(), now()));
  book_changed();
  FF_CO_TRY(co_await kept());
  co_return wire::DrainReply();
}

Task<Result<wire::QuotaReply>> Service::quota(rpc::ServerCall&, wire::QuotaRequest request) {
  FF_CO_TRY(ready());
  for (const wire::Quota& one : request.set()) {
    FF_CO_TRY(book_->set_quota(one));
  }
  for (const wire::Quota& one : request.drop()) book_->drop_quota(one);
  book_changed();
  FF_CO_TRY(co_await kept());
  wire::QuotaReply reply;
  for (const auto& [key, quota] : book_->quotas()) *reply.add_quotas() = quota;
  co_return reply;
}

Task<Result<wire::VerdictReply>> Service::verdict(rpc::ServerCall&, wire::VerdictRequest request) {
  FF_CO_TRY(ready());
  FF_CO_TRY(auto reply, book_->judge(request.node(), request.verdict(), now()));
  book_changed();
  FF_CO_TRY(co_await kept());
  co_return reply;
}

std::string Service::status() const {
  nlohmann::ordered_json json = {{"role", "schedule"}};
  json["halted"] = halted_ ? nlohmann::ordered_json(halted_->message) : nullptr;
  std::map<std::string_view, uint64_t> phases;
  for (size_t i = 0; i <= static_cast<size_t>(TaskPhase::finished); i++) {
    phases[phase_name(static_cast<TaskPhase>(i))] = 0;
  }
  uint64_t usable = 0, all = 0, validating = 0, drained = 0, by_verdict = 0, spared = 0;
  if (book_) {
    for (const auto& [id, task] : book_->tasks()) {
      phases[phase_name(phase_of(task))]++;
    }
    for (const wire::ListedNode& one : book_->listed_nodes(now())) {
      all++;
      usable += one.usable() ? 1 : 0;
      validating += one.validating() ? 1 : 0;
      drained += one.node().drained() ? 1 : 0;
      by_verdict += one.node().drained_by_verdict() ? 1 : 0;
      spared += in_spite_of_verdict(one.node()) ? 1 : 0;
    }
  }
  json["tasks"] = phases;
  json["nodes"] = {{"all", all},
                   {"usable", usable},
                   {"validating", validating},
                   {"drained", drained},
                   {"drained_by_verdict", by_verdict},
                   {"in_spite_of_verdict", spared}};
  return json.dump();
}

std::string Service::overview(std::string_view query) {
  if (book_ && !halted_) return overview_.json(*book_, now(), query);
  const nlohmann::json state = {{"halted", halted_ ? printable(halted_->message) : ""}};
  return state.dump();
}

std::string Service::node_map() { return book_ ? overview_.map_json(*book_, now()) : "{}"; }

}  // namespace ff::scheduler
