// `ff up`: a whole cluster on one machine: its daemons with a supervisor over them, formed when it
// is new, and mounted when that is wanted.
#include "cmd/up/up.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <utility>

#include "cmd/admin/admin.h"
#include "cmd/cli/background.h"
#include "cmd/cli/daemon.h"
#include "ops/devcluster/supervisor.h"
#include "platform/base/fd.h"
#include "platform/base/log.h"
#include "platform/base/state_dir.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "storage/cluster/routing.h"
#include "storage/mount/device.h"

namespace ff::cmd {
namespace {

constexpr int64_t kUpNs = 60 * kSecond;
constexpr int64_t kUpPollNs = 50 * kMillisecond;
// Copies to targets that come back may take long, and need not be waited for.
constexpr int64_t kWholeNs = 5 * kSecond;
// Of the supervisor, when it is not wanted any more: it gives each daemon 20 s.
constexpr int64_t kDaemonEndNs = 70 * kSecond;
constexpr int64_t kMountEndNs = 5 * kSecond;  // of a mount that was killed
constexpr uint64_t kSpaceMin = 64 * kMiB;     // that a new cluster begins with
constexpr uint64_t kRestartsMax = 5;          // of a daemon that has never served
constexpr uint64_t kStorageMax = 64;

struct UpOptions {
  std::optional<std::string> dir;
  std::optional<uint64_t> storage, replicas, targets_per_disk;
  std::optional<std::string> mount;
  bool schedule = false;
  bool foreground = false;
};

std::string absolute(const std::string& path) {
  std::string all = std::filesystem::absolute(path).lexically_normal();
  while (all.size() > 1 && all.ends_with('/')) all.pop_back();
  return all;
}

// Of a new folder.
Result<devcluster::Shape> wanted_shape(const UpOptions& options) {
  devcluster::Shape shape;
  shape.storage = options.storage.value_or(shape.storage);
  shape.replicas = options.replicas.value_or(std::min(shape.replicas, shape.storage));
  shape.targets_per_disk = options.targets_per_disk.value_or(shape.targets_per_disk);
  if (shape.storage == 0 || shape.storage > kStorageMax) {
    return fail(Errc::usage, "--storage {}: expected 1 to {}", shape.storage, kStorageMax);
  }
  if (shape.replicas == 0 || shape.replicas > cluster::kReplicasMax) {
    return fail(Errc::usage, "--replicas {}: expected 1 to {}", shape.replicas,
                cluster::kReplicasMax);
  }
  if (shape.replicas > shape.storage) {
    return Error{Errc::usage,
                 fmt::format("{} replicas need as many storage daemons, and there are {}",
                             shape.replicas, shape.storage),
                 "Use more --storage, or fewer --replicas."};
  }
  if (shape.targets_per_disk == 0)
    return fail(Errc::usage, "--targets-per-disk must be at least 1");
  return shape;
}

Result<void> check_shape(const devcluster::Folder& folder, const devcluster::Shape& made,
                         const UpOptions& options) {
  const devcluster::Shape wanted = {options.storage.value_or(made.storage),
                                    options.replicas.value_or(made.replicas),
                                    options.targets_per_disk.value_or(made.targets_per_disk)};
  if (wanted == made) return {};
  return Error{
      Errc::refused,
      fmt::format("{}: it was created with {}, which cannot change", folder.path(), describe(made)),
      fmt::format("Omit these options, or give another directory with --dir; '{} --purge' removes "
                  "this cluster with its data.",
                  down_command(folder))};
}

std::string as_text(const devcluster::Standing& one) {
  std::string text = one.name;
  if (one.end.empty()) return text + " does not serve yet";
  text += fmt::format(" does not come up ({})", one.end);
  for (const std::string& line : one.last_words) {
    // What follows an error is set in.
    text += (&line == &one.last_words.front() ? ": " : "; ") +
            line.substr(std::min(line.find_first_not_of(' '), line.size()));
  }
  return text;
}

Json up_json(const devcluster::Folder& folder, const devcluster::Made& made,
             const devcluster::Running& running, bool before) {
  Json daemons = Json::array();
  for (const devcluster::Standing& one : running.services) {
    daemons.push_back({{"name", one.name},
                       {"pid", one.pid},
                       {"restarts", one.restarts},
                       {"last_end", one.end.empty() ? Json() : Json(one.end)}});
  }
  return {{"dir", folder.path()},
          {"ran_before", before},
          {"supervisor", running.supervisor},
          {"meta", made.meta},
          {"storage", made.storage},
          {"key", folder.key()},
          {"mount", running.mount.empty() ? Json() : Json(running.mount)},
          {"scheduler", running.schedule ? Json(made.scheduler) : Json()},
          {"daemons", std::move(daemons)}};
}

void print_up(Session& session, const devcluster::Folder& folder, const devcluster::Made& made,
              const devcluster::Running& running, bool foreground) {
  Output& out = session.out;
  out.line("cluster  {}, in {}", describe(made.shape), folder.path());
  out.line("meta     {}", made.meta);
  out.line("storage  {}", fmt::join(made.storage, ", "));
  out.line("key      {}", folder.key());
  if (!running.mount.empty()) out.line("mount    {}", running.mount);
  if (running.schedule) out.line("tasks    {}", made.scheduler);
  for (const devcluster::Standing& one : running.services) {
    if (one.restarts == 0) continue;
    const int64_t ago_ns = session.stop.clock().wall_ns() - one.ended_ns;
    out.line(Color::yellow, "restarts {} has restarted {}, most recently {} ago ({})", one.name,
             one.restarts == 1 ? "once" : fmt::format("{} times", one.restarts),
             format_duration(std::max<int64_t>(ago_ns, 0)), one.end);
  }
  out.line("use it   export FF_META={} FF_KEY={}", made.meta, shell_text(folder.key()));
  out.line("         ff fs ls /    ff admin status    ff mount / DIR");
  if (running.schedule) {
    out.line("         export FF_SCHEDULER={}; ff schedule run -- COMMAND", made.scheduler);
  }
  out.line("stop it  {}", foreground ? "Ctrl-C" : down_command(folder));
}

// The new process. ----------------------------------------------------------------------------

// What daemons get of this one's environment: their options are all on their lines.
std::vector<std::string> daemon_env() {
  std::vector<std::string> env = {"FF_CONFIG=/dev/null"};
  for (char** one = environ; *one != nullptr; one++) {
    const std::string_view text = *one;
    if (!text.starts_with("FF_") && !text.starts_with("NOTIFY_SOCKET=")) env.emplace_back(text);
  }
  return env;
}

// By its path, when that still leads to it: its name is then what `ps` shows.
std::string supervisor_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return !error && std::filesystem::exists(path, error) ? path.string() : "/proc/self/exe";
}

struct Supervision {
  std::string mount;
  bool schedule = false;
  Fd pipe;  // devcluster/supervisor.h
};

[[noreturn]] void supervise(const Stop& stop, devcluster::Folder folder,
                            const devcluster::Made& made, const Supervision& what) {
  leave_terminal();
  ::umask(0077);
  (void)!::chdir("/");
  OwnLog log;
  (void)log.open(folder.logs() + "/supervisor.log");  // without it, it works all the same
  log_setup({});
  io::SystemDisk disk;
  SystemLoop loop(stop.clock());
  SeededRng rng(system_seed());
  devcluster::Supervisor supervisor(loop, disk, rng, folder, made,
                                    {.mount = what.mount,
                                     .schedule = what.schedule,
                                     .program = supervisor_program(),
                                     .env = daemon_env(),
                                     .pipe = what.pipe.get(),
                                     .changed = [&log] { log.look(); }});
  run_task(loop, supervisor.run([&stop] { return stop.requested(); }));
  ::_exit(0);
}

// The process that supervises, as its parent sees it: it stops when this goes before go_on().
class Supervising {
 public:
  Supervising() = default;
  ~Supervising() { (void)end(); }
  Supervising(const Supervising&) = delete;
  Supervising& operator=(const Supervising&) = delete;

  Result<void> start(const Stop& stop, const devcluster::Folder& folder,
                     const devcluster::Made& made, const std::string& mount, bool schedule) {
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
    Supervision what{mount, schedule, Fd(ends[0])};
    pipe_ = Fd(ends[1]);
    if (::fcntl(what.pipe.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(errno, "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      pipe_ = Fd();
      supervise(stop, folder, made, what);
    }
    if (pid_ < 0) return errno_error(errno, "the supervisor cannot be started");
    return {};
  }
  void say(devcluster::Word word) {
    const char byte = static_cast<char>(word);
    (void)!::write(pipe_.get(), &byte, 1);  // nobody there: ended() tells
  }
  bool ended() {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ <= 0;
  }
  // It stays when this goes.
  void go_on() {
    say(devcluster::Word::go_on);
    pid_ = 0;
  }
  // Lets it stop everything, and waits for that; false: it takes too long, and goes on by itself.
  bool end() {
    pipe_ = Fd();
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + kDaemonEndNs;
    while (!ended() && clock.steady_ns() < until_ns) clock.sleep_ns(kUpPollNs);
    const bool over = ended();
    pid_ = 0;
    return over;
  }

 private:
  Fd pipe_;
  pid_t pid_ = 0;
};

// The process that was started by hand. --------------------------------------------------------

// Brings one folder's cluster up.
class Bringing {
 public:
  Bringing(Session& session, const UpOptions& options, devcluster::Folder& folder,
           int64_t timeout_ns)
      : session_(session), options_(options), folder_(folder), timeout_ns_(timeout_ns) {
    admin_.net.key = folder.key();
  }
  // With the folder's lock.
  Result<void> run();

 private:
  Result<void> prepare();
  Result<void> wait_for_leftovers();
  Result<void> prepare_mount();
  Result<void> wait_for_daemons(const std::string& first_letters);
  Result<void> form();
  Result<void> wait_for_nodes(AdminCalls& calls);
  Result<void> wait_for_chains(AdminCalls& calls);
  Result<void> bring_up();
  // Between two looks: whether it is worth waiting on.
  Result<void> pause(const std::string& waits_for);
  Result<void> hopeless() const;
  uint64_t free_space() const;  // where the folder is; bytes

  Session& session_;
  const UpOptions& options_;
  devcluster::Folder& folder_;
  const int64_t timeout_ns_;
  devcluster::Made made_;
  devcluster::Running running_;
  AdminOptions admin_;
  std::string mount_;
  Supervising supervising_;
};

Result<void> Bringing::wait_for_leftovers() {
  // The kernel ends the daemons of a supervisor that was killed: soon, not at once.
  const auto before = folder_.running();
  while (before && folder_.any_left(*before)) {
    if (auto paused = session_.stop.sleep_ns(kUpPollNs); !paused) {
      return std::move(paused).error().within("daemons of an earlier start are still running: ");
    }
  }
  if (before && !before->mount.empty()) (void)wait_until_mountable(session_, before->mount);
  return folder_.forget_running();
}

Result<void> Bringing::prepare_mount() {
  if (!options_.mount) return {};
  mount_ = absolute(*options_.mount);
  auto mountable = mount::check_mountable(mount_);
  if (!mountable && mountable.error().code == Errc::not_found &&
      mountable.error().message.starts_with(mount_)) {
    io::SystemDisk disk;
    FF_TRY(io::make_dirs(disk, mount_));
    mountable = mount::check_mountable(mount_);
  }
  return mountable;
}

Result<void> Bringing::prepare() {
  io::SystemDisk disk;
  FF_TRY(wait_for_leftovers());
  FF_TRY(prepare_mount());
  auto made = folder_.made();
  if (!made && made.error().code == Errc::not_found) {
    FF_TRY(const auto shape, wanted_shape(options_));
    if (free_space() < kSpaceMin) {
      return Error{Errc::disk_full,
                   fmt::format("{}: only {} are free, but a new cluster needs {}", folder_.path(),
                               format_size(free_space()), format_size(kSpaceMin)),
                   "Free some space, or give a directory on another disk with --dir."};
    }
    FF_TRY(folder_.fill(shape));
    made = folder_.made();
  }
  FF_TRY(made_, std::move(made));
  FF_TRY(check_shape(folder_, made_.shape, options_));
  SeededRng rng(system_seed());
  FF_TRY(const auto told, devcluster::choose_ports(made_, options_.schedule, rng));
  for (const std::string& line : told) session_.out.warn("{}", line);
  FF_TRY(folder_.set_made(made_));
  FF_TRY(io::make_dirs(disk, folder_.logs(), 0700));
  admin_.meta = made_.meta;
  return {};
}

uint64_t Bringing::free_space() const {
  const auto space = io::SystemDisk().space(folder_.path());
  return space ? space->free : UINT64_MAX;
}

// A daemon that fails at each start is not waited for until the deadline.
Result<void> Bringing::hopeless() const {
  for (const devcluster::Standing& one : running_.services) {
    if (one.served || one.restarts < kRestartsMax) continue;
    return Error{Errc::failed, as_text(one),
                 fmt::format("Its log: {}/{}.log", folder_.logs(), one.name)};
  }
  return {};
}

Result<void> Bringing::pause(const std::string& waits_for) {
  if (auto running = folder_.running()) running_ = std::move(*running);
  FF_TRY(hopeless());
  if (supervising_.ended()) {
    return Error{Errc::failed, fmt::format("{}: its supervisor has exited", folder_.path()),
                 fmt::format("Stopped by somebody? Its log: {}/supervisor.log", folder_.logs())};
  }
  auto paused = session_.stop.sleep_ns(kUpPollNs);
  if (paused) return {};
  Error error = std::move(paused).error();
  error.message += ": " + waits_for;
  error.hint = "Logs: " + folder_.logs();
  return error;
}

Result<void> Bringing::wait_for_daemons(const std::string& first_letters) {
  for (;;) {
    const devcluster::Standing* missing = nullptr;
    bool any = false;
    for (const devcluster::Standing& one : running_.services) {
      if (!one.name.starts_with(first_letters)) continue;
      any = true;
      if (!one.serves) missing = &one;
    }
    if (any && missing == nullptr) return {};
    FF_TRY(pause(missing == nullptr ? first_letters + " does not serve yet" : as_text(*missing)));
  }
}

Result<void> Bringing::wait_for_nodes(AdminCalls& calls) {
  for (;;) {
    FF_TRY(const auto status, calls.status());
    const auto alive = static_cast<uint64_t>(std::ranges::count_if(
        status.nodes(), [](const auto& node) { return node.heard() && node.alive(); }));
    if (alive == made_.shape.storage) return {};
    FF_TRY(pause(fmt::format("{} of {} storage nodes report", alive, made_.shape.storage)));
  }
}

Result<void> Bringing::wait_for_chains(AdminCalls& calls) {
  int64_t broken_ns = session_.stop.clock().steady_ns();  // the last look at which a chain was
  for (unsigned looks = 0;;) {
    FF_TRY(const auto routing, calls.routing());
    const Health health = health_of(routing);
    const bool whole = health.chains > 0 && health.whole == health.chains;
    const bool serve = health.chains > 0 && health.lost == 0;
    const int64_t now_ns = session_.stop.clock().steady_ns();
    // What was heard last may be in the next routing only.
    looks = whole ? looks + 1 : 0;
    if (looks == 2) return {};
    if (!serve) broken_ns = now_ns;
    if (made_.formed && serve && now_ns - broken_ns > kWholeNs) {
      session_.out.note("{} of {} chains are still being copied; 'ff admin status' tells more",
                        health.degraded, health.chains);
      return {};
    }
    FF_TRY(pause(fmt::format("{} of {} chains are whole", health.whole, health.chains)));
  }
}

Result<void> Bringing::form() {
  FF_TRY(wait_for_daemons("meta"));
  FF_TRY(const auto calls, AdminCalls::open(session_, admin_, timeout_ns_));
  FF_TRY(const auto status, calls->status());
  if (status.cluster().empty()) {
    if (made_.formed) {
      return Error{Errc::corrupt,
                   fmt::format("{}: the metadata of the cluster is lost", folder_.meta()),
                   "Restore a backup: 'ff admin restore'."};
    }
    auto made = calls->call(cluster::kInit, cluster::wire::InitRequest(), AdminCalls::Kind::change);
    if (!made) return std::move(made).error();
  }
  FF_TRY(wait_for_daemons("storage"));
  FF_TRY(wait_for_nodes(*calls));
  if (!made_.formed) {
    FF_TRY(const auto routing, calls->routing());
    if (routing.tables.empty()) {
      FF_TRY(make_chains(*calls, made_.shape.targets_per_disk, made_.shape.replicas));
    }
  }
  FF_TRY(wait_for_chains(*calls));
  if (made_.formed) return {};
  made_.formed = true;
  return folder_.set_made(made_);
}

Result<void> Bringing::bring_up() {
  FF_TRY(form());
  if (options_.schedule) {
    FF_TRY(wait_for_daemons("scheduler"));
    FF_TRY(wait_for_daemons("agent"));
  }
  if (mount_.empty()) return {};
  supervising_.say(devcluster::Word::mount);
  return wait_for_daemons("mount");
}

Result<void> Bringing::run() {
  FF_TRY(prepare());
  session_.out.note("starting {} in {}", describe(made_.shape), folder_.path());
  FF_TRY(supervising_.start(session_.stop, folder_, made_, mount_, options_.schedule));
  if (auto up = bring_up(); !up) {
    if (free_space() < kSpaceMin) {
      up.error().hint = fmt::format("Is the disk full? {} are free. Logs: {}",
                                    format_size(free_space()), folder_.logs());
    }
    session_.out.note("stopping the started daemons");
    if (!supervising_.end()) session_.out.warn("it takes long, and continues in the background");
    return up;
  }
  if (auto running = folder_.running()) running_ = std::move(*running);
  print_up(session_, folder_, made_, running_, options_.foreground);
  const Json data = up_json(folder_, made_, running_, false);
  if (!options_.foreground) {
    session_.out.data(data);
    supervising_.go_on();
    return {};
  }
  auto told = session_.out.emit(data);
  notify_systemd("READY=1");
  while (told && !session_.stop.requested() && !supervising_.ended()) {
    session_.stop.clock().sleep_ns(kUpPollNs);
  }
  notify_systemd("STOPPING=1");
  if (told && !session_.stop.requested()) session_.out.note("it was stopped");
  session_.out.note("stopping");
  if (!supervising_.end()) return fail(Errc::deadline, "the daemons do not end");
  return told;
}

// Somebody else has the lock. -------------------------------------------------------------------

Result<void> look_at_mount(const devcluster::Folder& folder, const devcluster::Running& running,
                           const UpOptions& options) {
  if (!options.mount) return {};
  std::error_code error;
  const auto wanted = std::filesystem::weakly_canonical(*options.mount, error);
  const auto there = std::filesystem::weakly_canonical(running.mount, error);
  if (!error && !running.mount.empty() && wanted == there) return {};
  return Error{
      Errc::refused,
      running.mount.empty()
          ? fmt::format("{}: it runs already, without a mount", folder.path())
          : fmt::format("{}: it runs already, mounted on {}", folder.path(), running.mount),
      fmt::format("Mount it with 'ff mount', or stop it first: {}", down_command(folder))};
}

Result<void> look_at_schedule(const devcluster::Folder& folder, const devcluster::Running& running,
                              const UpOptions& options) {
  if (!options.schedule || running.schedule) return {};
  return Error{Errc::refused,
               fmt::format("{}: it runs already, without a scheduler", folder.path()),
               fmt::format("Stop it first: {}", down_command(folder))};
}

Result<void> show_running(Session& session, const UpOptions& options, devcluster::Folder& folder) {
  for (;;) {
    const auto made = folder.made();
    const auto running = folder.running();
    std::string waits_for = "it is starting";
    if (made && running) {
      FF_TRY(check_shape(folder, made->shape, options));
      FF_TRY(look_at_mount(folder, *running, options));
      FF_TRY(look_at_schedule(folder, *running, options));
      const auto missing = std::ranges::find_if(
          running->services, [](const devcluster::Standing& one) { return !one.serves; });
      const size_t daemons =
          1 + made->shape.storage + (running->mount.empty() ? 0 : 1) + (running->schedule ? 2 : 0);
      if (made->formed && running->services.size() == daemons &&
          missing == running->services.end()) {
        session.out.note("it runs already, since {}", format_time(running->since_ns));
        print_up(session, folder, *made, *running, false);
        session.out.data(up_json(folder, *made, *running, true));
        return {};
      }
      if (missing != running->services.end()) waits_for = as_text(*missing);
    }
    FF_TRY(const auto lock, folder.lock());
    if (lock != nullptr) {
      return Error{Errc::failed, fmt::format("{}: it has just been stopped", folder.path()),
                   "Run the same command again."};
    }
    if (auto paused = session.stop.sleep_ns(kUpPollNs); !paused) {
      Error error = std::move(paused).error();
      error.message += ": it runs already, but " + waits_for;
      error.hint = "Logs: " + folder.logs();
      return error;
    }
  }
}

Result<void> run_up(Session& session, const UpOptions& options, int64_t timeout_ns) {
  // What a shell has left open is none of ours to keep open: locks, pipes that others wait on.
  ::close_range(3, ~0U, 0);
  FF_TRY(const std::string dir, up_dir(options.dir));
  io::SystemDisk disk;
  devcluster::Folder folder(disk, dir);
  // Before anything is made.
  if (!folder.made()) FF_TRY(wanted_shape(options));
  FF_TRY(folder.make(options.mount ? absolute(*options.mount) : ""));
  FF_TRY(const auto lock, folder.lock());
  if (lock == nullptr) return show_running(session, options, folder);
  return Bringing(session, options, folder, timeout_ns).run();
}

}  // namespace

void declare_up_dir(Command& command, std::optional<std::string>& at) {
  command
      .option("--dir", dir(at),
              "Directory of the cluster; without it ff uses up under $FF_STATE or in the state "
              "directory of daemons")
      .config("up.dir");
}

Result<std::string> up_dir(const std::optional<std::string>& at) {
  if (at) return absolute(*at);
  FF_TRY(const auto state, state_dir(StateUse::daemon, process_state_sources()));
  return io::join(state.path, "up");
}

Result<void> wait_until_mountable(Session& session, const std::string& dir) {
  for (int64_t waited_ns = 0;; waited_ns += kUpPollNs) {
    auto mountable = mount::check_mountable(dir);
    if (mountable || mountable.error().code != Errc::exists || waited_ns > kMountEndNs) {
      return mountable;
    }
    FF_TRY(session.stop.sleep_ns(kUpPollNs));
  }
}

std::string down_command(const devcluster::Folder& folder) {
  return fmt::format("ff down --dir {}", shell_text(folder.path()));
}

void declare_up(Command& up) {
  auto& options = up.keep<UpOptions>();
  up.about(
      "Runs a whole cluster on this machine, in one directory: a serve-meta on SQLite, several "
      "serve-storage with one directory each as their disk, and optionally a mount. ff creates the "
      "cluster key and the cluster, waits until all daemons serve, and prints how to use them. All "
      "daemons listen on loopback only.\n\nA supervisor keeps running in the background. It "
      "restarts a daemon that exits, after a pause that grows from 0.1 to 10 seconds; 'ff up' on "
      "the same directory and 'ff admin status' show the number of restarts. 'ff down' stops "
      "everything. The same command on the same directory continues with all data, also after a "
      "power failure. You can run several clusters in different directories.\n\nAll copies are on "
      "one machine, usually on one disk: they protect against the crash of a daemon, but not "
      "against the loss of the machine. The logs are in log/ of the directory.\n\nWith --schedule "
      "a scheduler and an agent for this machine run as well; 'ff schedule run' submits tasks to "
      "them. 'ff down' stops running tasks; the same 'ff up' command restarts them.");
  declare_up_dir(up, options.dir);
  up.option("--storage", number(options.storage), "Number of storage daemons in a new cluster")
      .default_value("3")
      .config("up.storage");
  up.option("--replicas", number(options.replicas),
            "Copies of all data in a new cluster; always 1 with one storage daemon")
      .default_value("2")
      .config("up.replicas");
  up.option("--targets-per-disk", number(options.targets_per_disk),
            "Targets per storage daemon in a new cluster")
      .default_value("4")
      .config("up.targets-per-disk");
  up.option("--mount", dir(options.mount),
            "Mount the file system on this directory; ff creates it if needed")
      .config("up.mount");
  up.flag("--schedule", options.schedule, "Also run a scheduler, with this machine as its node")
      .config("up.schedule");
  up.flag("--foreground", options.foreground,
          "Stay in the foreground, and stop everything at Ctrl-C or SIGTERM: for systemd and "
          "containers");
  up.blocking(kUpNs);
  up.example("ff up", "three storage daemons, two copies of all data");
  up.example("ff up --dir /data/ff --mount /mnt/ff", "in its own directory, and mounted");
  up.example("ff up --schedule", "also tasks: 'ff schedule run -- COMMAND'");
  up.example("ff up --dir /data/ff --foreground", "as a systemd service");
  up.run([&](Session& session) { return run_up(session, options, up.timeout_ns()); });
}

}  // namespace ff::cmd
