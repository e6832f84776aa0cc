// local_attempt.cc: preparing, starting and stopping ranks, and cleaning up.
#include "ops/scheduler/local_attempt.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "ops/scheduler/node_user.h"
#include "ops/scheduler/rank_environment.h"
#include "ops/scheduler/scheduler_state.h"
#include "ops/scheduler/untrusted_dir.h"
#include "platform/base/audit.h"
#include "platform/base/check.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/owner.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kShimRestartNs =
    10 * kSecond;  // a shim without any trace by then is started again
constexpr int64_t kReapRetryNs = kSecond;
constexpr uint32_t kKeyMode = 0600;
constexpr const char* kKeyFile = "key";
constexpr int32_t kNotStarted = 127 << 8;  // wait status of a shell that finds no program

// All ranks of an attempt share its limit.
uint64_t log_file_bytes(uint64_t attempt_bytes, uint32_t processes, const shim::LogLimits& usual) {
  const uint64_t share = attempt_bytes / processes / usual.files;
  return std::clamp(share, shim::kLogFileBytesLeast, usual.file_bytes);
}

std::vector<std::string> texts(const google::protobuf::RepeatedPtrField<std::string>& from) {
  return {from.begin(), from.end()};
}

}  // namespace

LocalAttempt::LocalAttempt(const NodeContext& context, AttemptRecord record)
    : context_(context), record_(std::move(record)) {
  ranks_.resize(record_.processes);
  for (uint32_t local = 0; local < record_.processes; local++) {
    ranks_[local].dir = fmt::format("{}/rank.{}", folder(), local);
  }
}

std::string LocalAttempt::folder() const { return io::join(context_.attempts, record_.name()); }
std::string LocalAttempt::task_dir() const { return io::join(context_.tasks, record_.name()); }

task::AgentTaskDir LocalAttempt::agent_task_dir() const {
  std::optional<task::FileOwner> owner;
  if (record_.user) owner = {.uid = record_.user->uid, .gid = record_.user->gid};
  return {context_.disk, context_.rng, task_dir(), owner};
}

// Preparing. --------------------------------------------------------------------------------------

Result<void> LocalAttempt::set_user(const NodeContext& context, AttemptRecord& record) {
  if (record.uid == 0) return fail(Errc::refused, "root cannot own tasks");
  if (context.uid == 0) {
    FF_TRY(NodeUser user, find_user(record.uid, context.clock));
    record.user = std::move(user.ids);
    record.login = std::move(user.login);
    return {};
  }
  if (record.uid != context.uid) {
    return fail(Errc::refused, "the agent is not root, so it runs tasks of user {} only",
                context.uid);
  }
  // A container may have no entry for the user of its processes; its tasks run all the same.
  if (auto login = find_login(record.uid, context.clock)) record.login = *std::move(login);
  return {};
}

Result<std::unique_ptr<LocalAttempt>> LocalAttempt::prepare(const NodeContext& context,
                                                            const std::string& scheduler,
                                                            const wire::Order& order,
                                                            const std::set<uint32_t>& ports_taken) {
  const uint32_t processes = order.spec().processes();
  if (processes == 0 || processes > task::kNodeRanksMax) {
    return fail(Errc::usage, "{} processes per node are not possible", processes);
  }
  AttemptRecord record{.scheduler = scheduler,
                       .task = order.task(),
                       .attempt = order.attempt(),
                       .node_rank = order.node_rank(),
                       .processes = processes,
                       .uid = order.owner().uid(),
                       .boot = context.boot};
  FF_TRY(set_user(context, record));
  FF_TRY(
      check_dir_access(record.user ? &*record.user : nullptr, order.spec().cwd(), context.clock));
  PortReservation port;
  if (record.node_rank == 0) {
    FF_TRY(port, PortReservation::reserve(ports_taken, context.rng));
    record.port = port.port();
  }
  std::unique_ptr<LocalAttempt> created(new LocalAttempt(context, std::move(record)));
  created->port_ = std::move(port);
  if (auto done = created->create_dirs(); !done) {
    created->discard();
    return std::move(done).error();
  }
  return created;
}

Result<void> LocalAttempt::create_dirs() {
  io::Disk& disk = context_.disk;
  const std::string dir = folder();
  // Without attempt.json no rank was ever started.
  FF_TRY(remove_untrusted_dir(dir));
  FF_TRY(remove_untrusted_dir(task_dir()));
  FF_TRY(disk.make_dir(dir, 0700));
  for (const Rank& rank : ranks_) FF_TRY(disk.make_dir(rank.dir, 0700));
  FF_TRY(disk.sync_dir(dir));
  FF_TRY(agent_task_dir().create());
  // The parent folders may be inaccessible to this user.
  FF_TRY(check_dir_access(record_.user ? &*record_.user : nullptr, task_dir(), context_.clock));
  FF_TRY(io::replace_file(disk, io::join(dir, kAttemptFile), to_json(record_), "new"));
  return disk.sync_dir(context_.attempts);
}

Result<std::unique_ptr<LocalAttempt>> LocalAttempt::load(const NodeContext& context,
                                                         AttemptName name) {
  io::Disk& disk = context.disk;
  const std::string dir = io::join(context.attempts, text_of(name));
  const auto text = io::read_file(disk, io::join(dir, kAttemptFile), kAttemptRecordBytesMax);
  if (!text && text.error().code == Errc::not_found) {
    FF_TRY(remove_untrusted_dir(dir));
    FF_TRY(remove_untrusted_dir(io::join(context.tasks, text_of(name))));
    return std::unique_ptr<LocalAttempt>();
  }
  if (!text) return text.error();
  auto record = parse_attempt(*text);
  if (!record || record->task != name.task || record->attempt != name.attempt) {
    Error error = record ? fail(Errc::corrupt, "it belongs to {}", record->name()) : record.error();
    error.hint = "If no process of this attempt is running, remove its folder.";
    return std::move(error).with_context(dir + ": ");
  }
  std::unique_ptr<LocalAttempt> found(new LocalAttempt(context, *std::move(record)));
  for (const Rank& rank : found->ranks_) {
    FF_TRY(const bool launched, io::exists(disk, io::join(rank.dir, shim::kLaunchFile)));
    found->may_have_ranks_ = found->may_have_ranks_ || launched;
  }
  const bool same_boot = found->record_.boot == context.boot;
  if (!found->may_have_ranks_ && !same_boot) {
    found->discard();
    return std::unique_ptr<LocalAttempt>();
  }
  if (found->may_have_ranks_) {
    for (const Rank& rank : found->ranks_) {
      context.live_ranks.add(rank.dir);
      if (!same_boot) {
        (void)cancel_unstarted(disk, context.clock, rank.dir,
                               {.why = "the machine was rebooted", .abandoned = true});
      }
    }
  } else if (found->record_.port != 0) {
    found->port_ = PortReservation::restore(found->record_.port);
  }
  found->refresh();
  return found;
}

// Running. ----------------------------------------------------------------------------------------

void LocalAttempt::run(const wire::Order& order) {
  if (!launch_error_.empty()) return;
  if (context_.clock.steady_ns() >= context_.lease_until_ns.load()) return;
  if (auto written = write_launches(order); !written) {
    // An earlier agent may have started some.
    const bool any = std::ranges::any_of(ranks_, [](const Rank& rank) {
      return rank.started_ns != 0 || rank.state.phase != shim::ShimPhase::not_started;
    });
    warn_once("cannot start the ranks", written.error());
    if (!any) launch_error_ = written.error().message;
    return;
  }
  port_.release();
  for (Rank& rank : ranks_) start(rank);
}

// All launch files are written before any rank starts: a task never runs in part.
Result<void> LocalAttempt::write_launches(const wire::Order& order) {
  std::vector<uint32_t> missing;
  for (uint32_t local = 0; local < record_.processes; local++) {
    const std::string path = io::join(ranks_[local].dir, shim::kLaunchFile);
    FF_TRY(const bool launched, io::exists(context_.disk, path));
    if (!launched) missing.push_back(local);
  }
  if (missing.empty()) return {};
  FF_TRY(const auto key, write_key(order));
  if (!may_have_ranks_ && order.life_state() != 0)
    FF_TRY(agent_task_dir().set_life_state(order.life_state()));
  may_have_ranks_ = true;
  audit("task started", order.owner().name(),
        {{"task", record_.task}, {"attempt", record_.attempt}, {"uid", order.owner().uid()}});
  for (const uint32_t local : missing) FF_TRY(write_launch(order, local, key));
  return {};
}

// The path of the attempt key; nothing: several nodes of a scheduler without keys have none.
Result<std::optional<std::string>> LocalAttempt::write_key(const wire::Order& order) {
  const std::string path = io::join(task_dir(), kKeyFile);
  const auto given = auth::key_of_bytes(order.job_key());
  if (!given && order.spec().nodes() > 1) return std::optional<std::string>();
  FF_TRY(const bool there, io::exists(context_.disk, path));
  if (there) return std::optional(path);
  auth::Key key;
  if (given) {
    key = *given;
  } else {
    auth::fill_random(key, context_.rng);
  }
  // Created outside the task folder, which the user may change (task/agent_task_dir.h).
  const std::string unfinished = task::temporary_name(context_.rng, context_.tasks, kKeyFile);
  const io::OpenOptions options{.access = io::AccessMode::write,
                                .create = true,
                                .exclusive = true,
                                .no_follow = true,
                                .mode = kKeyMode};
  FF_TRY(const auto file, context_.disk.open(unfinished, options));
  const std::string text = hex(key) + "\n";
  auto done = file->write_at(as_bytes(text), 0);
  if (done && record_.user) {
    done = io::set_owner(unfinished, record_.user->uid, record_.user->gid);
  }
  if (done) done = context_.disk.rename(unfinished, path);
  if (!done) {
    (void)context_.disk.remove(unfinished);
    return std::move(done).error();
  }
  return std::optional(path);
}

Result<void> LocalAttempt::write_launch(const wire::Order& order, uint32_t local,
                                        std::optional<std::string> key) {
  const wire::Spec& spec = order.spec();
  const RankInfo at{.scheduler = record_.scheduler,
                    .task = record_.task,
                    .attempt = record_.attempt,
                    .nodes = spec.nodes(),
                    .node_rank = record_.node_rank,
                    .processes = record_.processes,
                    .local_rank = local,
                    .first_address = order.first_address(),
                    .port = order.port(),
                    .zone = context_.zone,
                    .task_dir = task_dir(),
                    .key_file = std::move(key),
                    .login = record_.login};
  shim::LaunchSpec launch{.argv = texts(spec.argv()),
                          .env = rank_environment(texts(spec.env()), at),
                          .cwd = spec.cwd(),
                          .user = record_.user,
                          .memory_limit = std::min<uint64_t>(spec.memory(), INT64_MAX),
                          .cgroup = context_.cgroup,
                          .stop_signal = static_cast<int>(spec.signal()),
                          .marker = rank_marker(at),
                          .lease = context_.lease};
  launch.log.path = fmt::format("{}/{}.log", folder(), local);
  launch.log.file_bytes = log_file_bytes(context_.log_bytes, record_.processes, launch.log);
  const std::string path = io::join(ranks_[local].dir, shim::kLaunchFile);
  return io::replace_file(context_.disk, path, to_json(launch), "new");
}

void LocalAttempt::start(Rank& rank) {
  if (rank.state.phase != shim::ShimPhase::not_started) return;
  const int64_t now_ns = context_.clock.steady_ns();
  if (rank.started_ns != 0 && now_ns - rank.started_ns < kShimRestartNs) return;
  if (now_ns >= context_.lease_until_ns.load()) return;
  rank.started_ns = now_ns;
  context_.live_ranks.add(rank.dir);
  const auto started = shim::start_shim(context_.shim, rank.dir);
  if (started) return;
  warn_once("cannot start a shim", started.error());
  (void)cancel_unstarted(context_.disk, context_.clock, rank.dir, {.why = started.error().message});
}

void LocalAttempt::request_stop(const wire::Order& order) {
  const task::StopRequest request{.reason = order.stop_why(),
                                  .deadline_s = std::max<int64_t>(0, order.stop_by() / kSecond)};
  if (task_snapshot_.stop != request) {
    if (auto asked = agent_task_dir().request_stop(request); !asked) {
      warn_once("cannot ask a task to stop", asked.error());
    }
  }
  if (order.spec().signal() == 0) return;
  // A shim that is just starting finds the order.
  for (const Rank& rank : ranks_) {
    const shim::ShimPhase phase = rank.state.phase;
    if (phase == shim::ShimPhase::exited || phase == shim::ShimPhase::lost) continue;
    send_rank_order(context_.disk, rank.dir, shim::ShimOrder::notify);
  }
}

void LocalAttempt::send_order(shim::ShimOrder order) {
  for (const Rank& rank : ranks_) {
    if (rank.state.phase == shim::ShimPhase::running)
      send_rank_order(context_.disk, rank.dir, order);
    if (rank.state.phase != shim::ShimPhase::not_started) continue;
    send_rank_order(context_.disk, rank.dir, order);
    (void)cancel_unstarted(context_.disk, context_.clock, rank.dir,
                           {.why = "it was stopped before it started"});
  }
}

void LocalAttempt::abandon(shim::ShimOrder how) {
  if (!may_have_ranks_) return;
  for (const Rank& rank : ranks_) {
    if (rank.state.phase == shim::ShimPhase::exited) continue;
    abandon_rank(context_.disk, context_.clock, rank.dir, how);
  }
}

// The end. ----------------------------------------------------------------------------------------

bool LocalAttempt::has_ended() const {
  return may_have_ranks() && std::ranges::all_of(ranks_, [](const Rank& rank) {
           return rank.state.phase == shim::ShimPhase::exited;
         });
}

void LocalAttempt::discard() {
  for (const Rank& rank : ranks_) context_.live_ranks.remove(rank.dir);
  // attempt.json goes first: a partly removed attempt counts as not prepared.
  const std::string path = io::join(folder(), kAttemptFile);
  auto removed = context_.disk.remove(path);
  if (!removed && removed.error().code != Errc::not_found) warn_once(path, removed.error());
  for (const std::string& dir : {folder(), task_dir()}) {
    if (auto gone = remove_untrusted_dir(dir); !gone) warn_once(dir, gone.error());
  }
}

Result<void> LocalAttempt::clean_up() {
  const std::string kept = io::join(context_.ended, record_.name());
  FF_TRY(remove_untrusted_dir(task_dir()));
  FF_TRY(remove_untrusted_dir(kept));  // left by another scheduler with the same task id
  FF_TRY(context_.disk.rename(folder(), kept));
  FF_TRY(context_.disk.sync_dir(context_.attempts));
  for (const Rank& rank : ranks_) {
    context_.live_ranks.remove(rank.dir);
    (void)remove_untrusted_dir(io::join(kept, io::base_name(rank.dir)));
  }
  return {};
}

void LocalAttempt::warn_once(std::string_view what, const Error& error) {
  if (last_warning_ == error.message) return;
  last_warning_ = error.message;
  log_warning(what, {{"attempt", record_.name()}, {"cause", error.message}});
}

// State. ------------------------------------------------------------------------------------------

void LocalAttempt::refresh() {
  if (!may_have_ranks_ || has_ended()) return;
  const task::RankRange own{.first = record_.node_rank * record_.processes,
                            .count = record_.processes};
  // Ranks first: then the last files of an exited rank are complete.
  for (Rank& rank : ranks_) refresh_rank(rank);
  auto snapshot = agent_task_dir().read(own);
  if (!snapshot) return warn_once("cannot read the files of a task", snapshot.error());
  if (snapshot->saved) saved_ = std::max(saved_.value_or(0), *snapshot->saved);
  snapshot->acked = snapshot->acked || task_snapshot_.acked;
  if (!snapshot->life_state) snapshot->life_state = task_snapshot_.life_state;
  task_snapshot_ = *std::move(snapshot);
}

void LocalAttempt::refresh_rank(Rank& rank) {
  if (rank.state.phase == shim::ShimPhase::exited) return;
  auto state = shim::read_state(context_.disk, rank.dir);
  if (!state) return warn_once("cannot read the state of a rank", state.error());
  rank.state = *std::move(state);
  if (rank.state.phase == shim::ShimPhase::lost) reap(rank);
  if (rank.state.phase == shim::ShimPhase::exited) context_.live_ranks.remove(rank.dir);
}

// Kills the remaining processes of a rank whose shim is lost; on a thread, since it may take long.
void LocalAttempt::reap(Rank& rank) {
  if (!rank.reaping.valid()) {
    const int64_t now_ns = context_.clock.steady_ns();
    if (rank.reap_started_ns != 0 && now_ns - rank.reap_started_ns < kReapRetryNs) return;
    rank.reap_started_ns = now_ns;
    rank.reaping = std::async(std::launch::async,
                              [&disk = context_.disk, &clock = context_.clock, dir = rank.dir] {
                                return shim::kill_lost_rank(disk, clock, dir);
                              });
    return;
  }
  if (rank.reaping.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  auto exit = rank.reaping.get();
  // The rank is killed; only the exit record could not be written.
  if (!exit && exit.error().code == Errc::disk_full) {
    exit = shim::ExitRecord{.kind = shim::ExitKind::lost, .why = "its shim was killed"};
  }
  if (!exit) return warn_once("cannot kill a lost rank", exit.error());
  log_warning("the shim of a rank was lost", {{"dir", rank.dir}, {"killed", exit->killed}});
  rank.state.phase = shim::ShimPhase::exited;
  rank.state.exit = *std::move(exit);
}

wire::Held LocalAttempt::held() const {
  wire::Held held;
  held.set_task(record_.task);
  held.set_attempt(record_.attempt);
  held.set_port(record_.port);
  held.set_prepared(true);
  held.set_acked(task_snapshot_.acked);
  if (saved_) held.set_saved_step(*saved_);
  if (task_snapshot_.life_state) held.set_life_state(*task_snapshot_.life_state);
  for (uint32_t local = 0; local < record_.processes; local++) {
    *held.add_ranks() = rank_report(local);
  }
  return held;
}

wire::Rank LocalAttempt::rank_report(uint32_t local) const {
  const shim::ShimState& state = ranks_[local].state;
  wire::Rank report;
  report.set_local(local);
  const auto set_state = [&report](RankState is) { report.set_state(static_cast<uint32_t>(is)); };
  const uint32_t number = record_.node_rank * record_.processes + local;
  for (const task::RankHeartbeat& beat : task_snapshot_.heartbeats) {
    if (beat.rank == number) report.set_step(beat.step);
  }
  if (!launch_error_.empty()) {
    set_state(RankState::exited);
    report.set_status(kNotStarted);
    report.set_text(launch_error_);
    return report;
  }
  switch (state.phase) {
    case shim::ShimPhase::not_started: set_state(RankState::waiting); break;
    // A lost rank may be running until it is reaped.
    case shim::ShimPhase::running:
    case shim::ShimPhase::lost:
      set_state(RankState::running);
      report.set_silent(silent_ns(local));
      break;
    case shim::ShimPhase::exited: {
      const shim::ExitRecord& exit = *state.exit;
      const bool is_lost = exit.kind == shim::ExitKind::lost || exit.abandoned;
      set_state(is_lost ? RankState::lost : RankState::exited);
      report.set_status(exit.kind == shim::ExitKind::not_started ? kNotStarted : exit.status);
      if (!exit.why.empty()) report.set_text(exit.why);
      break;
    }
  }
  return report;
}

// Time since its last output or heartbeat, by mtime of the files.
int64_t LocalAttempt::silent_ns(uint32_t local) const {
  const Rank& rank = ranks_[local];
  int64_t last_ns = rank.state.running ? rank.state.running->began_ns : 0;
  const auto log = context_.disk.info(fmt::format("{}/{}.log", folder(), local));
  if (log) last_ns = std::max(last_ns, log->mtime_ns);
  const uint32_t number = record_.node_rank * record_.processes + local;
  for (const task::RankHeartbeat& beat : task_snapshot_.heartbeats) {
    if (beat.rank == number) last_ns = std::max(last_ns, beat.mtime_ns);
  }
  return std::max<int64_t>(0, context_.clock.wall_ns() - last_ns);
}

}  // namespace ff::scheduler
