// node_reconciler.cc: orders, the lease file, and loading attempts at the start.
#include "ops/scheduler/node_reconciler.h"

#include <algorithm>
#include <utility>

#include "ops/scheduler/scheduler_state.h"
#include "ops/scheduler/untrusted_dir.h"
#include "ops/shim/process_table.h"
#include "ops/shim/rank_lease.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kKillWaitNs = 5 * kSecond;  // until killed ranks are gone
constexpr int64_t kStopPollNs = 20 * kMillisecond;
constexpr int64_t kLockWaitNs = 3 * kSecond;
constexpr int64_t kLockPollNs = 20 * kMillisecond;
constexpr int64_t kPruneLogsNs = 600 * kSecond;

// Null: another process keeps the lock. A child that a killed agent has just forked holds it until
// it executes its program or exits.
Result<std::unique_ptr<io::File>> wait_for_lock(io::Disk& disk, Clock& clock,
                                                const std::string& path) {
  const int64_t end_ns = clock.steady_ns() + kLockWaitNs;
  for (;;) {
    FF_TRY(auto lock, io::lock_file(disk, path));
    if (lock != nullptr || clock.steady_ns() >= end_ns) return lock;
    clock.sleep_ns(kLockPollNs);
  }
}

std::string change_key_of(const NodeReconciler::Report& report) {
  std::string key = report.scheduler;
  for (wire::Held held : report.held) {
    // These fields change all the time, and the scheduler does not wait for them.
    if (!held.acked()) held.clear_saved_step();
    for (wire::Rank& rank : *held.mutable_ranks()) {
      rank.clear_silent();
      rank.clear_step();
    }
    key += held.SerializeAsString();
    key += '\n';
  }
  return key;
}

}  // namespace

Result<std::unique_ptr<NodeReconciler>> NodeReconciler::open(io::Disk& disk, Clock& clock,
                                                             Options options) {
  FF_TRY(io::make_dirs(disk, options.dir, 0711));
  FF_TRY(auto lock, wait_for_lock(disk, clock, io::join(options.dir, "lock")));
  if (lock == nullptr) {
    Error error = fail(Errc::refused, "{}: another agent uses this folder", options.dir);
    error.hint = "Give each agent on a machine its own folder with --dir.";
    return error;
  }
  for (const char* const name : {"attempts", "ended"}) {
    FF_TRY(io::make_dirs(disk, io::join(options.dir, name), 0700));
  }
  // Users pass through it to their own folders.
  FF_TRY(io::make_dirs(disk, options.tasks, 0711));
  FF_TRY(disk.set_mode(options.tasks, 0711));
  FF_TRY(std::string boot, shim::boot_id(disk));
  std::unique_ptr<NodeReconciler> reconciler(
      new NodeReconciler(disk, clock, std::move(options), std::move(boot), std::move(lock)));
  FF_TRY(reconciler->lease_file_,
         disk.open(reconciler->context_.lease,
                   {.access = io::AccessMode::write, .create = true, .mode = 0600}));
  FF_TRY(reconciler->load());
  return reconciler;
}

NodeReconciler::NodeReconciler(io::Disk& disk, Clock& clock, Options options, std::string boot,
                               std::unique_ptr<io::File> lock)
    : disk_(disk),
      clock_(clock),
      options_(std::move(options)),
      lock_(std::move(lock)),
      context_{.disk = disk,
               .clock = clock,
               .rng = rng_,
               .attempts = io::join(options_.dir, "attempts"),
               .ended = io::join(options_.dir, "ended"),
               .tasks = options_.tasks,
               .shim = options_.shim,
               .cgroup = options_.cgroup,
               .lease = io::join(options_.dir, "lease"),
               .boot = std::move(boot),
               .zone = options_.zone,
               .uid = options_.uid,
               .log_bytes = options_.logs.attempt_bytes(),
               .live_ranks = live_ranks_,
               .lease_until_ns = lease_until_ns_},
      logs_(disk, context_.attempts, context_.ended),
      ended_logs_(disk, clock, context_.ended, options_.logs) {}

NodeReconciler::~NodeReconciler() = default;

Result<void> NodeReconciler::load() {
  FF_TRY(const auto entries, disk_.list(context_.attempts));
  for (const io::DirEntry& entry : entries) {
    const auto name = parse_attempt_name(entry.name);
    if (!name) continue;
    FF_TRY(auto attempt, LocalAttempt::load(context_, *name));
    if (attempt != nullptr) attempts_[*name] = std::move(attempt);
  }
  read_lease();
  return {};
}

// The lease. --------------------------------------------------------------------------------------

void NodeReconciler::set_lease(int64_t sent_ns, int64_t lease_ns) {
  success_ns_ = sent_ns;
  lease_ns_ = lease_ns;
  lease_until_ns_ = sent_ns + lease_ns;
}

void NodeReconciler::read_lease() {
  const auto lease = shim::read_lease(disk_, context_.lease, context_.boot);
  const int64_t now_ns = clock_.steady_ns();
  if (!lease || lease->renewed_ns > now_ns || lease->until_ns() <= now_ns) return;
  set_lease(lease->renewed_ns, lease->lease_ns);
  lease_written_ns_ = success_ns_;
}

void NodeReconciler::write_lease() {
  const shim::RankLease lease{
      .boot = context_.boot, .renewed_ns = success_ns_, .lease_ns = lease_ns_};
  if (lease.renewed_ns == lease_written_ns_) return;
  const auto written = lease_file_->write_at(as_bytes(shim::lease_text(lease)), 0);
  if (written) {
    lease_written_ns_ = lease.renewed_ns;
    last_warning_.clear();
  } else if (std::exchange(last_warning_, written.error().message) != written.error().message) {
    log_warning("cannot write the lease file", {{"cause", written.error().message}});
  }
}

void NodeReconciler::kill_all_ranks() {
  for (const std::string& dir : live_ranks_.all()) {
    abandon_rank(disk_, clock_, dir, shim::ShimOrder::kill);
  }
}

bool NodeReconciler::stop_all_ranks(int64_t patience_ns) {
  const int64_t kill_ns = clock_.steady_ns() + patience_ns;
  for (const auto& [name, attempt] : attempts_) attempt->abandon(shim::ShimOrder::terminate);
  bool killed = false;
  while (live_ranks() > 0) {
    const int64_t now_ns = clock_.steady_ns();
    if (now_ns >= kill_ns + kKillWaitNs) return false;
    if (now_ns >= kill_ns && !std::exchange(killed, true)) kill_all_ranks();
    clock_.sleep_ns(kStopPollNs);
    for (const auto& [name, attempt] : attempts_) attempt->refresh();
  }
  return true;
}

// Orders. -----------------------------------------------------------------------------------------

NodeReconciler::Report NodeReconciler::reconcile(std::optional<wire::SyncReply> orders) {
  write_lease();
  if (orders) apply(*orders);
  Report report;
  for (const auto& [name, attempt] : attempts_) {
    attempt->refresh();
    report.held.push_back(attempt->held());
    report.scheduler = attempt->record().scheduler;
  }
  for (const auto& [name, why] : failed_prepares_) {
    wire::Held& one = report.held.emplace_back();
    one.set_task(name.task);
    one.set_attempt(name.attempt);
    one.set_text(why);
  }
  report.change_key = change_key_of(report);
  prune_logs();
  return report;
}

void NodeReconciler::apply(const wire::SyncReply& reply) {
  std::map<AttemptName, std::string> failed_prepares;
  for (const wire::Order& order : reply.orders()) {
    const AttemptName name{.task = order.task(), .attempt = order.attempt()};
    if (order.action() > static_cast<uint32_t>(OrderAction::clean_up)) continue;
    const auto found = attempts_.find(name);
    if (found != attempts_.end()) {
      if (!execute(*found->second, order)) attempts_.erase(found);
      continue;
    }
    if (static_cast<OrderAction>(order.action()) != OrderAction::prepare) continue;
    const auto known = failed_prepares_.find(name);
    if (known != failed_prepares_.end()) {
      failed_prepares[name] = known->second;
    } else if (auto prepared = prepare(reply.scheduler(), name, order); !prepared) {
      failed_prepares[name] = prepared.error().message;
    }
  }
  // Attempts without an order are forgotten.
  failed_prepares_ = std::move(failed_prepares);
}

Result<void> NodeReconciler::prepare(const std::string& scheduler, AttemptName name,
                                     const wire::Order& order) {
  std::set<uint32_t> ports;
  for (const auto& [other, attempt] : attempts_) ports.insert(attempt->record().port);
  auto created = LocalAttempt::prepare(context_, scheduler, order, ports);
  if (created) {
    log_info("prepared an attempt", {{"attempt", text_of(name)}, {"uid", order.owner().uid()}});
    attempts_[name] = *std::move(created);
    return {};
  }
  log_warning("cannot prepare an attempt",
              {{"attempt", text_of(name)}, {"cause", created.error().message}});
  return std::move(created).error();
}

bool NodeReconciler::execute(LocalAttempt& attempt, const wire::Order& order) {
  const auto action = static_cast<OrderAction>(order.action());
  if (action == OrderAction::prepare) return true;
  if (action == OrderAction::run) {
    attempt.run(order);
    return true;
  }
  // No rank was started, and now none will be.
  if (!attempt.may_have_ranks()) {
    attempt.discard();
    return false;
  }
  switch (action) {
    case OrderAction::prepare:
    case OrderAction::run: break;
    case OrderAction::request_stop: attempt.request_stop(order); break;
    case OrderAction::terminate: attempt.send_order(shim::ShimOrder::terminate); break;
    case OrderAction::kill: attempt.send_order(shim::ShimOrder::kill); break;
    case OrderAction::clean_up: {
      attempt.refresh();
      if (!attempt.has_ended()) {
        attempt.send_order(shim::ShimOrder::kill);
        break;
      }
      const auto cleaned = attempt.clean_up();
      if (cleaned) {
        ended_logs_.add(attempt.record().name());
        ended_logs_.prune();
        return false;
      }
      log_warning("cannot clean up an attempt", {{"cause", cleaned.error().message}});
      break;
    }
  }
  return true;
}

void NodeReconciler::prune_logs() {
  const int64_t now_ns = clock_.steady_ns();
  if (logs_scanned_ns_ != 0 && now_ns - logs_scanned_ns_ < kPruneLogsNs) return;
  logs_scanned_ns_ = now_ns;
  ended_logs_.scan();
  ended_logs_.prune();
}

}  // namespace ff::scheduler
