// holdings.cc: orders, the lease's file, what is found at the start.
#include "ops/scheduler/holdings.h"

#include <algorithm>
#include <utility>

#include "ops/scheduler/book.h"
#include "ops/scheduler/foreign_tree.h"
#include "ops/shim/lease.h"
#include "ops/shim/process_table.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kKilledNs = 5 * kSecond;  // until all that was killed is gone
constexpr int64_t kEndLookNs = 20 * kMillisecond;
constexpr int64_t kLogsLookNs = 600 * kSecond;
constexpr size_t kEndedMost = 2000;  // attempts whose logs are kept

std::string key_of(const Holdings::Report& report) {
  std::string key = report.scheduler;
  for (wire::Held held : report.held) {
    // These change all the time, and nobody waits for them.
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

Result<std::unique_ptr<Holdings>> Holdings::open(io::Disk& disk, Clock& clock, Options options) {
  FF_TRY(io::make_dirs(disk, options.dir, 0711));
  FF_TRY(auto lock, io::lock_file(disk, io::join(options.dir, "lock")));
  if (lock == nullptr) {
    Error error = fail(Errc::refused, "{}: another agent has this folder", options.dir);
    error.hint = "Give each agent of a machine a folder of its own with --dir.";
    return error;
  }
  for (const char* const name : {"attempts", "ended"}) {
    FF_TRY(io::make_dirs(disk, io::join(options.dir, name), 0700));
  }
  // Users go through it to their own.
  FF_TRY(io::make_dirs(disk, options.tasks, 0711));
  FF_TRY(disk.set_mode(options.tasks, 0711));
  FF_TRY(std::string boot, shim::boot_id(disk));
  std::unique_ptr<Holdings> holdings(
      new Holdings(disk, clock, std::move(options), std::move(boot), std::move(lock)));
  FF_TRY(holdings->lease_file_,
         disk.open(holdings->place_.lease,
                   {.access = io::Access::write, .create = true, .mode = 0600}));
  FF_TRY(holdings->load());
  return holdings;
}

Holdings::Holdings(io::Disk& disk, Clock& clock, Options options, std::string boot,
                   std::unique_ptr<io::File> lock)
    : disk_(disk),
      clock_(clock),
      options_(std::move(options)),
      lock_(std::move(lock)),
      place_{.disk = disk,
             .clock = clock,
             .rng = rng_,
             .attempts = io::join(options_.dir, "attempts"),
             .ended = io::join(options_.dir, "ended"),
             .tasks = options_.tasks,
             .shim = options_.shim,
             .cgroup = options_.cgroup,
             .lease = io::join(options_.dir, "lease"),
             .key = options_.key,
             .boot = std::move(boot),
             .uid = options_.uid,
             .living = living_,
             .lease_until_ns = lease_until_ns_},
      logs_(disk, {place_.attempts, place_.ended}) {}

Holdings::~Holdings() = default;

Result<void> Holdings::load() {
  FF_TRY(const auto entries, disk_.list(place_.attempts));
  for (const io::DirEntry& entry : entries) {
    const auto name = parse_attempt_name(entry.name);
    if (!name) continue;
    FF_TRY(auto attempt, LocalAttempt::load(place_, *name));
    if (attempt != nullptr) held_[*name] = std::move(attempt);
  }
  read_lease();
  return {};
}

// The lease. --------------------------------------------------------------------------------------

void Holdings::set_lease(int64_t sent_ns, int64_t lease_ns) {
  success_ns_ = sent_ns;
  lease_ns_ = lease_ns;
  lease_until_ns_ = sent_ns + lease_ns;
}

void Holdings::read_lease() {
  const auto lease = shim::read_lease(disk_, place_.lease, place_.boot);
  const int64_t now_ns = clock_.steady_ns();
  if (!lease || lease->success_ns > now_ns || lease->until_ns() <= now_ns) return;
  set_lease(lease->success_ns, lease->lease_ns);
  written_ns_ = success_ns_;
}

void Holdings::write_lease() {
  const shim::Lease lease{.boot = place_.boot, .success_ns = success_ns_, .lease_ns = lease_ns_};
  if (lease.success_ns == written_ns_) return;
  const auto written = lease_file_->write_at(as_bytes(shim::lease_text(lease)), 0);
  if (written) {
    written_ns_ = lease.success_ns;
    told_.clear();
  } else if (std::exchange(told_, written.error().message) != written.error().message) {
    log_warning("the lease cannot be written down", {{"cause", written.error().message}});
  }
}

void Holdings::kill_living() {
  for (const std::string& dir : living_.all()) {
    give_up_rank(disk_, clock_, dir, shim::Order::kill);
  }
}

bool Holdings::end_all(int64_t patience_ns) {
  const int64_t kill_ns = clock_.steady_ns() + patience_ns;
  for (const auto& [name, attempt] : held_) attempt->give_up(shim::Order::terminate);
  bool killed = false;
  while (living() > 0) {
    const int64_t now_ns = clock_.steady_ns();
    if (now_ns >= kill_ns + kKilledNs) return false;
    if (now_ns >= kill_ns && !std::exchange(killed, true)) kill_living();
    clock_.sleep_ns(kEndLookNs);
    for (const auto& [name, attempt] : held_) attempt->look();
  }
  return true;
}

// Orders. -----------------------------------------------------------------------------------------

Holdings::Report Holdings::turn(std::optional<wire::SyncReply> orders) {
  write_lease();
  if (orders) obey(*orders);
  Report report;
  for (const auto& [name, attempt] : held_) {
    attempt->look();
    report.held.push_back(attempt->held());
    report.scheduler = attempt->record().scheduler;
  }
  for (const auto& [name, why] : unprepared_) {
    wire::Held& one = report.held.emplace_back();
    one.set_task(name.task);
    one.set_attempt(name.attempt);
    one.set_text(why);
  }
  report.news = key_of(report);
  remove_old_logs();
  return report;
}

void Holdings::obey(const wire::SyncReply& reply) {
  std::map<AttemptName, std::string> unprepared;
  for (const wire::Order& order : reply.orders()) {
    const AttemptName name{.task = order.task(), .attempt = order.attempt()};
    if (order.action() > static_cast<uint32_t>(Action::forget)) continue;
    const auto found = held_.find(name);
    if (found != held_.end()) {
      if (!carry_out(*found->second, order)) held_.erase(found);
      continue;
    }
    if (static_cast<Action>(order.action()) != Action::prepare) continue;
    const auto known = unprepared_.find(name);
    if (known != unprepared_.end()) {
      unprepared[name] = known->second;
    } else if (auto prepared = prepare(reply.scheduler(), name, order); !prepared) {
      unprepared[name] = prepared.error().message;
    }
  }
  // What nobody wants any more is forgotten.
  unprepared_ = std::move(unprepared);
}

Result<void> Holdings::prepare(const std::string& scheduler, AttemptName name,
                               const wire::Order& order) {
  std::set<uint32_t> ports;
  for (const auto& [other, attempt] : held_) ports.insert(attempt->record().port);
  auto made = LocalAttempt::prepare(place_, scheduler, order, ports);
  if (made) {
    log_info("an attempt is prepared", {{"attempt", text_of(name)}, {"uid", order.owner().uid()}});
    held_[name] = *std::move(made);
    return {};
  }
  log_warning("an attempt cannot be prepared",
              {{"attempt", text_of(name)}, {"cause", made.error().message}});
  return std::move(made).error();
}

bool Holdings::carry_out(LocalAttempt& attempt, const wire::Order& order) {
  const auto action = static_cast<Action>(order.action());
  if (action == Action::prepare) return true;
  if (action == Action::run) {
    attempt.run(order);
    return true;
  }
  // Nothing of it runs, and now nothing will.
  if (!attempt.has_begun()) {
    attempt.remove();
    return false;
  }
  switch (action) {
    case Action::prepare:
    case Action::run: break;
    case Action::ask: attempt.ask(order); break;
    case Action::terminate: attempt.end(shim::Order::terminate); break;
    case Action::kill: attempt.end(shim::Order::kill); break;
    case Action::forget: {
      attempt.look();
      if (!attempt.has_ended()) {
        attempt.end(shim::Order::kill);
        break;
      }
      const auto forgotten = attempt.forget();
      if (forgotten) return false;
      log_warning("an attempt cannot be put away", {{"cause", forgotten.error().message}});
      break;
    }
  }
  return true;
}

void Holdings::remove_old_logs() {
  const int64_t now_ns = clock_.steady_ns();
  if (logs_looked_ns_ != 0 && now_ns - logs_looked_ns_ < kLogsLookNs) return;
  logs_looked_ns_ = now_ns;
  const auto entries = disk_.list(place_.ended);
  if (!entries) return;
  // By when they were put away; the oldest first.
  std::vector<std::pair<int64_t, std::string>> all;
  for (const io::DirEntry& entry : *entries) {
    const std::string dir = io::join(place_.ended, entry.name);
    if (const auto info = disk_.info(dir)) all.emplace_back(info->mtime_ns, dir);
  }
  std::ranges::sort(all);
  const int64_t oldest_ns = clock_.wall_ns() - options_.keep_logs_ns;
  for (size_t i = 0; i < all.size(); i++) {
    if (all[i].first >= oldest_ns && all.size() - i <= kEndedMost) break;
    (void)remove_foreign_tree(all[i].second);
  }
}

}  // namespace ff::scheduler
