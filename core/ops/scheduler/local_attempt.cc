// local_attempt.cc: making ready, starting, ending, and what becomes of the folders.
#include "ops/scheduler/local_attempt.h"

#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "ops/scheduler/book.h"
#include "ops/scheduler/foreign_tree.h"
#include "ops/scheduler/node_user.h"
#include "ops/scheduler/rank_environment.h"
#include "platform/base/check.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/owner.h"

namespace ff::scheduler {
namespace {

constexpr int64_t kStartAgainNs = 10 * kSecond;  // a shim that left no trace by then
constexpr int64_t kBuryAgainNs = kSecond;
constexpr uint32_t kKeyMode = 0600;
constexpr const char* kKeyFile = "key";
constexpr int32_t kNotStarted = 127 << 8;  // as waitpid(2) says it of a shell that finds no program

std::vector<std::string> texts(const google::protobuf::RepeatedPtrField<std::string>& from) {
  return {from.begin(), from.end()};
}

}  // namespace

LocalAttempt::LocalAttempt(const NodePlace& place, AttemptRecord record)
    : place_(place), record_(std::move(record)) {
  ranks_.resize(record_.processes);
  for (uint32_t local = 0; local < record_.processes; local++) {
    ranks_[local].dir = fmt::format("{}/rank.{}", folder(), local);
  }
}

std::string LocalAttempt::folder() const { return io::join(place_.attempts, record_.name()); }
std::string LocalAttempt::task_dir() const { return io::join(place_.tasks, record_.name()); }

task::AgentSide LocalAttempt::task_side() const {
  std::optional<task::Owner> owner;
  if (record_.user) owner = {.uid = record_.user->uid, .gid = record_.user->gid};
  return {place_.disk, place_.rng, task_dir(), owner};
}

// Making ready. -----------------------------------------------------------------------------------

Result<std::optional<shim::User>> LocalAttempt::user_of(const NodePlace& place,
                                                        const wire::Order& order) {
  const uint32_t uid = order.owner().uid();
  if (uid == 0) return fail(Errc::refused, "root has no tasks");
  if (place.uid == 0) {
    FF_TRY(auto user, find_user(uid, place.clock));
    return std::optional(std::move(user));
  }
  if (uid == place.uid) return std::optional<shim::User>();
  return fail(Errc::refused, "its agent is not root, and runs tasks of user {} alone", place.uid);
}

Result<std::unique_ptr<LocalAttempt>> LocalAttempt::prepare(const NodePlace& place,
                                                            const std::string& scheduler,
                                                            const wire::Order& order,
                                                            const std::set<uint32_t>& ports_taken) {
  const uint32_t processes = order.spec().processes();
  if (processes == 0 || processes > task::kRanksMost) {
    return fail(Errc::usage, "{} processes of a node", processes);
  }
  FF_TRY(auto user, user_of(place, order));
  const std::string& cwd = order.spec().cwd();
  FF_TRY(check_folder(user ? &*user : nullptr, cwd, place.clock));
  AttemptRecord record{.scheduler = scheduler,
                       .task = order.task(),
                       .attempt = order.attempt(),
                       .node_rank = order.node_rank(),
                       .processes = processes,
                       .uid = order.owner().uid(),
                       .user = std::move(user),
                       .boot = place.boot};
  PortHold port;
  if (record.node_rank == 0) {
    FF_TRY(port, PortHold::find(ports_taken, place.rng));
    record.port = port.port();
  }
  std::unique_ptr<LocalAttempt> made(new LocalAttempt(place, std::move(record)));
  made->port_ = std::move(port);
  if (auto done = made->make(); !done) {
    made->remove();
    return std::move(done).error();
  }
  return made;
}

Result<void> LocalAttempt::make() {
  io::Disk& disk = place_.disk;
  const std::string dir = folder();
  // Without attempt.json nothing of it has ever started.
  FF_TRY(remove_foreign_tree(dir));
  FF_TRY(remove_foreign_tree(task_dir()));
  FF_TRY(disk.make_dir(dir, 0700));
  for (const Rank& rank : ranks_) FF_TRY(disk.make_dir(rank.dir, 0700));
  FF_TRY(disk.sync_dir(dir));
  FF_TRY(task_side().make());
  // The folders above it may be closed to this user.
  FF_TRY(check_folder(record_.user ? &*record_.user : nullptr, task_dir(), place_.clock));
  FF_TRY(io::replace_file(disk, io::join(dir, kAttemptFile), to_json(record_), "new"));
  return disk.sync_dir(place_.attempts);
}

Result<std::unique_ptr<LocalAttempt>> LocalAttempt::load(const NodePlace& place, AttemptName name) {
  io::Disk& disk = place.disk;
  const std::string dir = io::join(place.attempts, text_of(name));
  const auto text = io::read_file(disk, io::join(dir, kAttemptFile), kAttemptRecordMost);
  if (!text && text.error().code == Errc::not_found) {
    FF_TRY(remove_foreign_tree(dir));
    FF_TRY(remove_foreign_tree(io::join(place.tasks, text_of(name))));
    return std::unique_ptr<LocalAttempt>();
  }
  if (!text) return text.error();
  auto record = parse_attempt(*text);
  if (!record || record->task != name.task || record->attempt != name.attempt) {
    Error error = record ? fail(Errc::corrupt, "it is of {}", record->name()) : record.error();
    error.hint = "When nothing of this attempt runs any more, remove its folder.";
    return std::move(error).within(dir + ": ");
  }
  std::unique_ptr<LocalAttempt> found(new LocalAttempt(place, *std::move(record)));
  for (const Rank& rank : found->ranks_) {
    FF_TRY(const bool launched, io::exists(disk, io::join(rank.dir, shim::kLaunchFile)));
    found->begun_ = found->begun_ || launched;
  }
  const bool same_boot = found->record_.boot == place.boot;
  if (!found->begun_ && !same_boot) {
    found->remove();
    return std::unique_ptr<LocalAttempt>();
  }
  if (found->begun_) {
    for (const Rank& rank : found->ranks_) {
      place.living.add(rank.dir);
      if (!same_boot) {
        (void)end_unstarted(disk, place.clock, rank.dir,
                            {.why = "the machine was started anew", .given_up = true});
      }
    }
  } else if (found->record_.port != 0) {
    found->port_ = PortHold::again(found->record_.port);
  }
  found->look();
  return found;
}

// Running. ----------------------------------------------------------------------------------------

void LocalAttempt::run(const wire::Order& order) {
  if (!failed_.empty()) return;
  if (place_.clock.steady_ns() >= place_.lease_until_ns.load()) return;
  if (auto written = write_launches(order); !written) {
    // Another agent may have started some.
    const bool any = std::ranges::any_of(ranks_, [](const Rank& rank) {
      return rank.started_ns != 0 || rank.state.phase != shim::Phase::not_started;
    });
    tell("the ranks cannot be started", written.error());
    if (!any) failed_ = written.error().message;
    return;
  }
  port_.let_go();
  for (Rank& rank : ranks_) start(rank);
}

// Before any of them starts: a task whose ranks fit only in part has none.
Result<void> LocalAttempt::write_launches(const wire::Order& order) {
  std::vector<uint32_t> missing;
  for (uint32_t local = 0; local < record_.processes; local++) {
    const std::string path = io::join(ranks_[local].dir, shim::kLaunchFile);
    FF_TRY(const bool launched, io::exists(place_.disk, path));
    if (!launched) missing.push_back(local);
  }
  if (missing.empty()) return {};
  FF_TRY(const auto key, write_key(order));
  if (!begun_ && order.life_state() != 0) FF_TRY(task_side().set_life_state(order.life_state()));
  begun_ = true;
  for (const uint32_t local : missing) FF_TRY(launch(order, local, key));
  return {};
}

// The path of the job's key; nothing: several nodes without a cluster key have none.
Result<std::optional<std::string>> LocalAttempt::write_key(const wire::Order& order) {
  const std::string path = io::join(task_dir(), kKeyFile);
  if (!place_.key && order.spec().nodes() > 1) return std::optional<std::string>();
  FF_TRY(const bool there, io::exists(place_.disk, path));
  if (there) return std::optional(path);
  auth::Key key;
  if (place_.key) {
    const JobName job{
        .scheduler = record_.scheduler, .task = record_.task, .attempt = record_.attempt};
    key = job_key(*place_.key, job);
  } else {
    auth::fill_random(key, place_.rng);
  }
  // Made beside the folder, which is the user's (task/agent_side.h).
  const std::string unfinished = task::unfinished_name(place_.rng, place_.tasks, kKeyFile);
  const io::OpenOptions options{.access = io::Access::write,
                                .create = true,
                                .exclusive = true,
                                .no_follow = true,
                                .mode = kKeyMode};
  FF_TRY(const auto file, place_.disk.open(unfinished, options));
  const std::string text = hex(key) + "\n";
  auto done = file->write_at(as_bytes(text), 0);
  if (done && record_.user) {
    done = io::set_owner(unfinished, record_.user->uid, record_.user->gid);
  }
  if (done) done = place_.disk.rename(unfinished, path);
  if (!done) {
    (void)place_.disk.remove(unfinished);
    return std::move(done).error();
  }
  return std::optional(path);
}

Result<void> LocalAttempt::launch(const wire::Order& order, uint32_t local,
                                  std::optional<std::string> key) {
  const wire::Spec& spec = order.spec();
  const RankPlace at{.scheduler = record_.scheduler,
                     .task = record_.task,
                     .attempt = record_.attempt,
                     .nodes = spec.nodes(),
                     .node_rank = record_.node_rank,
                     .processes = record_.processes,
                     .local = local,
                     .first_address = order.first_address(),
                     .port = order.port(),
                     .task_dir = task_dir(),
                     .key_file = std::move(key)};
  shim::Launch launch{.argv = texts(spec.argv()),
                      .env = rank_environment(texts(spec.env()), at),
                      .cwd = spec.cwd(),
                      .user = record_.user,
                      .memory_limit = std::min<uint64_t>(spec.memory(), INT64_MAX),
                      .cgroup = place_.cgroup,
                      .stop_signal = static_cast<int>(spec.signal()),
                      .marker = rank_marker(at),
                      .lease = place_.lease};
  launch.log.path = fmt::format("{}/{}.log", folder(), local);
  const std::string path = io::join(ranks_[local].dir, shim::kLaunchFile);
  return io::replace_file(place_.disk, path, to_json(launch), "new");
}

void LocalAttempt::start(Rank& rank) {
  if (rank.state.phase != shim::Phase::not_started) return;
  const int64_t now_ns = place_.clock.steady_ns();
  if (rank.started_ns != 0 && now_ns - rank.started_ns < kStartAgainNs) return;
  if (now_ns >= place_.lease_until_ns.load()) return;
  rank.started_ns = now_ns;
  place_.living.add(rank.dir);
  const auto started = shim::start_shim(place_.shim, rank.dir);
  if (started) return;
  tell("a shim cannot be started", started.error());
  (void)end_unstarted(place_.disk, place_.clock, rank.dir, {.why = started.error().message});
}

void LocalAttempt::ask(const wire::Order& order) {
  const task::StopRequest request{.reason = order.stop_why(),
                                  .deadline_s = std::max<int64_t>(0, order.stop_by() / kSecond)};
  if (said_.stop != request) {
    if (auto asked = task_side().request_stop(request); !asked) {
      tell("a task cannot be asked to stop", asked.error());
    }
  }
  if (order.spec().signal() == 0) return;
  // One that is just beginning finds it.
  for (const Rank& rank : ranks_) {
    const shim::Phase phase = rank.state.phase;
    if (phase == shim::Phase::exited || phase == shim::Phase::lost) continue;
    order_rank(place_.disk, rank.dir, shim::Order::notify);
  }
}

void LocalAttempt::end(shim::Order order) {
  for (const Rank& rank : ranks_) {
    if (rank.state.phase == shim::Phase::running) order_rank(place_.disk, rank.dir, order);
    if (rank.state.phase != shim::Phase::not_started) continue;
    order_rank(place_.disk, rank.dir, order);
    (void)end_unstarted(place_.disk, place_.clock, rank.dir,
                        {.why = "it was to end before it had begun"});
  }
}

void LocalAttempt::give_up(shim::Order how) {
  if (!begun_) return;
  for (const Rank& rank : ranks_) {
    if (rank.state.phase == shim::Phase::exited) continue;
    give_up_rank(place_.disk, place_.clock, rank.dir, how);
  }
}

// The end. ----------------------------------------------------------------------------------------

bool LocalAttempt::has_ended() const {
  return has_begun() && std::ranges::all_of(ranks_, [](const Rank& rank) {
           return rank.state.phase == shim::Phase::exited;
         });
}

void LocalAttempt::remove() {
  for (const Rank& rank : ranks_) place_.living.remove(rank.dir);
  // What is half gone was never ready.
  const std::string path = io::join(folder(), kAttemptFile);
  auto removed = place_.disk.remove(path);
  if (!removed && removed.error().code != Errc::not_found) tell(path, removed.error());
  for (const std::string& dir : {folder(), task_dir()}) {
    if (auto gone = remove_foreign_tree(dir); !gone) tell(dir, gone.error());
  }
}

Result<void> LocalAttempt::forget() {
  const std::string kept = io::join(place_.ended, record_.name());
  FF_TRY(remove_foreign_tree(task_dir()));
  FF_TRY(remove_foreign_tree(kept));  // of another scheduler, which has had this number, too
  FF_TRY(place_.disk.rename(folder(), kept));
  FF_TRY(place_.disk.sync_dir(place_.attempts));
  for (const Rank& rank : ranks_) {
    place_.living.remove(rank.dir);
    (void)remove_foreign_tree(io::join(kept, io::base_name(rank.dir)));
  }
  return {};
}

void LocalAttempt::tell(std::string_view what, const Error& error) {
  if (told_ == error.message) return;
  told_ = error.message;
  log_warning(what, {{"attempt", record_.name()}, {"cause", error.message}});
}

// Looking. ----------------------------------------------------------------------------------------

void LocalAttempt::look() {
  if (!begun_ || has_ended()) return;
  const task::Ranks own{.first = record_.node_rank * record_.processes, .count = record_.processes};
  // The ranks first: what one has said with its last breath is there by then.
  for (Rank& rank : ranks_) look_at(rank);
  auto said = task_side().read(own);
  if (!said) return tell("what a task says cannot be read", said.error());
  if (said->saved) saved_ = std::max(saved_.value_or(0), *said->saved);
  said->acked = said->acked || said_.acked;
  if (!said->life_state) said->life_state = said_.life_state;
  said_ = *std::move(said);
}

void LocalAttempt::look_at(Rank& rank) {
  if (rank.state.phase == shim::Phase::exited) return;
  auto state = shim::read_state(place_.disk, rank.dir);
  if (!state) return tell("a rank's state cannot be read", state.error());
  rank.state = *std::move(state);
  if (rank.state.phase == shim::Phase::lost) bury(rank);
  if (rank.state.phase == shim::Phase::exited) place_.living.remove(rank.dir);
}

// Of a rank whose shim is lost what runs on is killed, which may take long: on a thread of its own.
void LocalAttempt::bury(Rank& rank) {
  if (!rank.burial.valid()) {
    const int64_t now_ns = place_.clock.steady_ns();
    if (rank.killed_ns != 0 && now_ns - rank.killed_ns < kBuryAgainNs) return;
    rank.killed_ns = now_ns;
    rank.burial = std::async(std::launch::async,
                             [&disk = place_.disk, &clock = place_.clock, dir = rank.dir] {
                               return shim::kill_lost(disk, clock, dir);
                             });
    return;
  }
  if (rank.burial.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  auto exit = rank.burial.get();
  // It is killed by then; only that this is so could not be written down.
  if (!exit && exit.error().code == Errc::disk_full) {
    exit = shim::Exit{.ending = shim::Ending::lost, .why = "its shim was killed"};
  }
  if (!exit) return tell("a lost rank cannot be killed", exit.error());
  log_warning("the shim of a rank was lost", {{"dir", rank.dir}, {"killed", exit->killed}});
  rank.state.phase = shim::Phase::exited;
  rank.state.exit = *std::move(exit);
}

wire::Held LocalAttempt::held() const {
  wire::Held held;
  held.set_task(record_.task);
  held.set_attempt(record_.attempt);
  held.set_port(record_.port);
  held.set_prepared(true);
  held.set_acked(said_.acked);
  if (saved_) held.set_saved_step(*saved_);
  if (said_.life_state) held.set_life_state(*said_.life_state);
  for (uint32_t local = 0; local < record_.processes; local++) {
    *held.add_ranks() = rank_report(local);
  }
  return held;
}

wire::Rank LocalAttempt::rank_report(uint32_t local) const {
  const shim::State& state = ranks_[local].state;
  wire::Rank report;
  report.set_local(local);
  const auto set_state = [&report](RankState is) { report.set_state(static_cast<uint32_t>(is)); };
  const uint32_t number = record_.node_rank * record_.processes + local;
  for (const task::Heartbeat& beat : said_.heartbeats) {
    if (beat.rank == number) report.set_step(beat.step);
  }
  if (!failed_.empty()) {
    set_state(RankState::exited);
    report.set_status(kNotStarted);
    report.set_text(failed_);
    return report;
  }
  switch (state.phase) {
    case shim::Phase::not_started: set_state(RankState::waiting); break;
    // A lost one may run on until it is buried.
    case shim::Phase::running:
    case shim::Phase::lost:
      set_state(RankState::running);
      report.set_silent(silent_ns(local));
      break;
    case shim::Phase::exited: {
      const shim::Exit& exit = *state.exit;
      const bool is_lost = exit.ending == shim::Ending::lost || exit.given_up;
      set_state(is_lost ? RankState::lost : RankState::exited);
      report.set_status(exit.ending == shim::Ending::not_started ? kNotStarted : exit.status);
      if (!exit.why.empty()) report.set_text(exit.why);
      break;
    }
  }
  return report;
}

// Since its last output or heartbeat, by files' times.
int64_t LocalAttempt::silent_ns(uint32_t local) const {
  const Rank& rank = ranks_[local];
  int64_t last_ns = rank.state.running ? rank.state.running->began_ns : 0;
  const auto log = place_.disk.info(fmt::format("{}/{}.log", folder(), local));
  if (log) last_ns = std::max(last_ns, log->mtime_ns);
  const uint32_t number = record_.node_rank * record_.processes + local;
  for (const task::Heartbeat& beat : said_.heartbeats) {
    if (beat.rank == number) last_ns = std::max(last_ns, beat.mtime_ns);
  }
  return std::max<int64_t>(0, place_.clock.wall_ns() - last_ns);
}

}  // namespace ff::scheduler
