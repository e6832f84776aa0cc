// `ff up`: runs a whole cluster on one machine: starts its daemons with a supervisor, initializes a
// new cluster, and mounts it on request.
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
#include "storage/mount/fuse_device.h"

namespace ff::cmd {
namespace {

constexpr int64_t kUpTimeoutNs = 60 * kSecond;
constexpr int64_t kUpPollNs = 50 * kMillisecond;
// Resync of returning targets may take long, and is not waited for.
constexpr int64_t kChainsWholeNs = 5 * kSecond;
// Timeout of the supervisor to stop: it gives each daemon 20 s.
constexpr int64_t kSupervisorEndNs = 70 * kSecond;
constexpr int64_t kMountEndNs = 5 * kSecond;   // for a mount whose daemon was killed
constexpr uint64_t kFreeSpaceMin = 64 * kMiB;  // required for a new cluster
constexpr uint64_t kRestartsMax = 5;           // of a daemon that was never ready
constexpr uint64_t kStorageMax = 64;

struct UpOptions {
  std::optional<std::string> dir;
  std::optional<uint64_t> storage, replicas, targets_per_disk;
  std::optional<std::string> mount;
  bool schedule = false;
  bool kv = false;
  bool foreground = false;
};

std::string absolute(const std::string& path) {
  std::string all = std::filesystem::absolute(path).lexically_normal();
  while (all.size() > 1 && all.ends_with('/')) all.pop_back();
  return all;
}

// The shape of a new cluster.
Result<devcluster::ClusterShape> wanted_shape(const UpOptions& options) {
  devcluster::ClusterShape shape;
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
                 fmt::format("{} replicas need as many storage daemons, but there are {}",
                             shape.replicas, shape.storage),
                 "Use more --storage, or fewer --replicas."};
  }
  if (shape.targets_per_disk == 0)
    return fail(Errc::usage, "--targets-per-disk must be at least 1");
  return shape;
}

Result<void> check_shape(const devcluster::ClusterDir& folder,
                         const devcluster::ClusterShape& config, const UpOptions& options) {
  const devcluster::ClusterShape wanted = {
      options.storage.value_or(config.storage), options.replicas.value_or(config.replicas),
      options.targets_per_disk.value_or(config.targets_per_disk)};
  if (wanted == config) return {};
  return Error{
      Errc::refused,
      fmt::format("{}: it was created with {}, which cannot change", folder.path(),
                  describe(config)),
      fmt::format("Omit these options, or give another directory with --dir; '{} --purge' removes "
                  "this cluster with its data.",
                  down_command(folder))};
}

std::string problem_text(const devcluster::ServiceStatus& one) {
  std::string text = one.name;
  if (one.exit_text.empty()) return text + " is not ready yet";
  text += fmt::format(" does not start ({})", one.exit_text);
  for (const std::string& line : one.last_output) {
    // Continuation lines of an error are indented.
    text += (&line == &one.last_output.front() ? ": " : "; ") +
            line.substr(std::min(line.find_first_not_of(' '), line.size()));
  }
  return text;
}

Json up_json(devcluster::ClusterDir& folder, const devcluster::ClusterConfig& config,
             const devcluster::ClusterStatus& status, bool before) {
  Json daemons = Json::array();
  for (const devcluster::ServiceStatus& one : status.services) {
    daemons.push_back({{"name", one.name},
                       {"pid", one.pid},
                       {"restarts", one.restarts},
                       {"last_end", one.exit_text.empty() ? Json() : Json(one.exit_text)}});
  }
  return {{"dir", folder.path()},
          {"ran_before", before},
          {"supervisor", status.supervisor},
          {"meta", config.meta},
          {"storage", config.storage},
          {"key", folder.key()},
          {"mount", status.mount.empty() ? Json() : Json(status.mount)},
          {"scheduler", status.schedule ? Json(config.scheduler) : Json()},
          {"page", status.schedule ? Json(folder.page_link(config)) : Json()},
          {"redis", status.kv ? Json(config.redis) : Json()},
          {"s3", status.kv ? Json("http://" + config.s3) : Json()},
          {"kv_key", status.kv ? Json(folder.kv_key()) : Json()},
          {"daemons", std::move(daemons)}};
}

void print_up(Session& session, devcluster::ClusterDir& folder,
              const devcluster::ClusterConfig& config, const devcluster::ClusterStatus& status,
              bool foreground) {
  Output& out = session.out;
  out.line("cluster  {}, in {}", describe(config.shape), folder.path());
  out.line("meta     {}", config.meta);
  out.line("storage  {}", fmt::join(config.storage, ", "));
  out.line("key      {}", folder.key());
  if (!status.mount.empty()) out.line("mount    {}", status.mount);
  if (status.schedule) {
    out.line("tasks    {}", config.scheduler);
    out.line("page     {}", folder.page_link(config));
  }
  if (status.kv) {
    out.line("redis    {}", config.redis);
    out.line("s3       http://{}", config.s3);
  }
  for (const devcluster::ServiceStatus& one : status.services) {
    if (one.restarts == 0) continue;
    const int64_t ago_ns = session.stop.clock().wall_ns() - one.exited_ns;
    out.line(Color::yellow, "restarts {} has restarted {}, most recently {} ago ({})", one.name,
             one.restarts == 1 ? "once" : fmt::format("{} times", one.restarts),
             format_duration(std::max<int64_t>(ago_ns, 0)), one.exit_text);
  }
  out.line("use it   export FF_META={} FF_KEY={}", config.meta,
           shell_quote_if_needed(folder.key()));
  out.line("         ff fs ls /    ff admin status    ff mount / DIR");
  if (status.schedule) {
    out.line("         export FF_SCHEDULER={}; ff schedule run -- COMMAND", config.scheduler);
  }
  if (status.kv) print_kv_use(out, folder, config);
  out.line("stop it  {}", foreground ? "Ctrl-C" : down_command(folder));
}

// The supervisor. -----------------------------------------------------------------------------

// The environment of daemons: all their options are on their command lines.
std::vector<std::string> daemon_env() {
  std::vector<std::string> env = {"FF_CONFIG=/dev/null"};
  for (char** one = environ; *one != nullptr; one++) {
    const std::string_view text = *one;
    if (!text.starts_with("FF_") && !text.starts_with("NOTIFY_SOCKET=")) env.emplace_back(text);
  }
  return env;
}

// Its path if it is still valid, so that `ps` shows the name.
std::string supervisor_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return !error && std::filesystem::exists(path, error) ? path.string() : "/proc/self/exe";
}

struct Supervision {
  std::string mount;
  devcluster::OptionalDaemons extras;
  Fd pipe;  // devcluster/supervisor.h
};

[[noreturn]] void supervise(const StopToken& stop, devcluster::ClusterDir folder,
                            const devcluster::ClusterConfig& config, const Supervision& what) {
  detach_from_terminal();
  ::umask(0077);
  (void)!::chdir("/");
  BackgroundLog log;
  (void)log.open(folder.logs() + "/supervisor.log");  // optional
  log_setup({});
  io::SystemDisk disk;
  SystemLoop loop(stop.clock());
  SeededRng rng(system_seed());
  devcluster::Supervisor supervisor(loop, disk, rng, folder, config,
                                    {.mount = what.mount,
                                     .schedule = what.extras.schedule,
                                     .kv = what.extras.kv,
                                     .program = supervisor_program(),
                                     .env = daemon_env(),
                                     .pipe = what.pipe.get(),
                                     .changed = [&log] { log.rotate_if_needed(); }});
  run_task(loop, supervisor.run([&stop] { return stop.requested(); }));
  ::_exit(0);
}

// The supervisor process, as its parent sees it: it stops when this object is destroyed before
// detach().
class SupervisorProcess {
 public:
  SupervisorProcess() = default;
  ~SupervisorProcess() { (void)end(); }
  SupervisorProcess(const SupervisorProcess&) = delete;
  SupervisorProcess& operator=(const SupervisorProcess&) = delete;

  Result<void> start(const StopToken& stop, const devcluster::ClusterDir& folder,
                     const devcluster::ClusterConfig& config, const std::string& mount,
                     devcluster::OptionalDaemons extras) {
    std::array<int, 2> ends = {};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
    Supervision what{mount, extras, Fd(ends[0])};
    pipe_ = Fd(ends[1]);
    if (::fcntl(what.pipe.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(errno, "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      pipe_ = Fd();
      supervise(stop, folder, config, what);
    }
    if (pid_ < 0) return errno_error(errno, "cannot start the supervisor");
    return {};
  }
  void send(devcluster::SupervisorCommand word) {
    const char byte = static_cast<char>(word);
    (void)!::write(pipe_.get(), &byte, 1);  // on EPIPE ended() tells
  }
  bool ended() {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ <= 0;
  }
  // The supervisor keeps running after this object is destroyed.
  void detach() {
    send(devcluster::SupervisorCommand::detach);
    pid_ = 0;
  }
  // Stops the supervisor with all daemons, and waits. False: it takes too long and continues in the
  // background.
  bool end() {
    pipe_ = Fd();
    SystemClock clock;
    const int64_t until_ns = clock.steady_ns() + kSupervisorEndNs;
    while (!ended() && clock.steady_ns() < until_ns) clock.sleep_ns(kUpPollNs);
    const bool over = ended();
    pid_ = 0;
    return over;
  }

 private:
  Fd pipe_;
  pid_t pid_ = 0;
};

// The foreground process. ----------------------------------------------------------------------

// Starts the cluster of one folder.
class ClusterStarter {
 public:
  ClusterStarter(Session& session, const UpOptions& options, devcluster::ClusterDir& folder,
                 int64_t timeout_ns)
      : session_(session), options_(options), folder_(folder), timeout_ns_(timeout_ns) {
    admin_.net.key = folder.key();
  }
  // The caller holds the lock of the folder.
  Result<void> run();

 private:
  Result<void> prepare();
  Result<void> wait_for_leftovers();
  Result<void> prepare_mount();
  Result<void> wait_for_daemons(const std::string& name_prefix);
  Result<void> form();
  Result<void> wait_for_nodes(AdminClient& calls);
  Result<void> wait_for_chains(AdminClient& calls);
  Result<void> bring_up();
  // Waits one poll interval; an error if further waiting is useless.
  Result<void> poll_wait(const std::string& waits_for);
  Result<void> check_crash_loop() const;
  uint64_t free_space() const;  // bytes, on the disk of the folder
  devcluster::OptionalDaemons extras() const {
    return {.schedule = options_.schedule, .kv = options_.kv};
  }

  Session& session_;
  const UpOptions& options_;
  devcluster::ClusterDir& folder_;
  const int64_t timeout_ns_;
  devcluster::ClusterConfig config_;
  devcluster::ClusterStatus status_;
  AdminOptions admin_;
  std::string mount_;
  SupervisorProcess supervisor_;
};

Result<void> ClusterStarter::wait_for_leftovers() {
  // The kernel ends the daemons of a killed supervisor soon, but not at once.
  const auto before = folder_.status();
  while (before && folder_.any_process_left(*before)) {
    if (auto paused = session_.stop.sleep_ns(kUpPollNs); !paused) {
      return std::move(paused).error().with_context(
          "daemons of an earlier start are still running: ");
    }
  }
  if (before && !before->mount.empty()) (void)wait_until_mountable(session_, before->mount);
  return folder_.clear_status();
}

Result<void> ClusterStarter::prepare_mount() {
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

Result<void> ClusterStarter::prepare() {
  io::SystemDisk disk;
  FF_TRY(wait_for_leftovers());
  FF_TRY(prepare_mount());
  auto config = folder_.config();
  if (!config && config.error().code == Errc::not_found) {
    FF_TRY(const auto shape, wanted_shape(options_));
    if (free_space() < kFreeSpaceMin) {
      return Error{Errc::disk_full,
                   fmt::format("{}: only {} are free, but a new cluster needs {}", folder_.path(),
                               format_size(free_space()), format_size(kFreeSpaceMin)),
                   "Free some space, or give a directory on another disk with --dir."};
    }
    FF_TRY(folder_.initialize(shape));
    config = folder_.config();
  }
  FF_TRY(config_, std::move(config));
  FF_TRY(check_shape(folder_, config_.shape, options_));
  SeededRng rng(system_seed());
  FF_TRY(const auto warnings, devcluster::choose_ports(config_, extras(), rng));
  for (const std::string& line : warnings) session_.out.warn("{}", line);
  FF_TRY(folder_.set_config(config_));
  FF_TRY(io::make_dirs(disk, folder_.logs(), 0700));
  admin_.meta = config_.meta;
  return {};
}

uint64_t ClusterStarter::free_space() const {
  const auto space = io::SystemDisk().space(folder_.path());
  return space ? space->free : UINT64_MAX;
}

// Stops waiting for a daemon that fails at each start.
Result<void> ClusterStarter::check_crash_loop() const {
  for (const devcluster::ServiceStatus& one : status_.services) {
    if (one.was_ready || one.restarts < kRestartsMax) continue;
    return Error{Errc::failed, problem_text(one),
                 fmt::format("Its log: {}/{}.log", folder_.logs(), one.name)};
  }
  return {};
}

Result<void> ClusterStarter::poll_wait(const std::string& waits_for) {
  if (auto status = folder_.status()) status_ = std::move(*status);
  FF_TRY(check_crash_loop());
  if (supervisor_.ended()) {
    return Error{Errc::failed, fmt::format("{}: its supervisor has exited", folder_.path()),
                 fmt::format("Was it stopped? Its log: {}/supervisor.log", folder_.logs())};
  }
  auto paused = session_.stop.sleep_ns(kUpPollNs);
  if (paused) return {};
  Error error = std::move(paused).error();
  error.message += ": " + waits_for;
  error.hint = "Logs: " + folder_.logs();
  return error;
}

Result<void> ClusterStarter::wait_for_daemons(const std::string& name_prefix) {
  for (;;) {
    const devcluster::ServiceStatus* missing = nullptr;
    bool any = false;
    for (const devcluster::ServiceStatus& one : status_.services) {
      if (!one.name.starts_with(name_prefix)) continue;
      any = true;
      if (!one.ready) missing = &one;
    }
    if (any && missing == nullptr) return {};
    FF_TRY(
        poll_wait(missing == nullptr ? name_prefix + " is not ready yet" : problem_text(*missing)));
  }
}

Result<void> ClusterStarter::wait_for_nodes(AdminClient& calls) {
  for (;;) {
    FF_TRY(const auto status, calls.status());
    const auto alive = static_cast<uint64_t>(std::ranges::count_if(
        status.nodes(), [](const auto& node) { return node.heard() && node.alive(); }));
    if (alive == config_.shape.storage) return {};
    FF_TRY(poll_wait(fmt::format("{} of {} storage nodes report", alive, config_.shape.storage)));
  }
}

Result<void> ClusterStarter::wait_for_chains(AdminClient& calls) {
  int64_t broken_ns = session_.stop.clock().steady_ns();  // the last look at which a chain was
  for (unsigned looks = 0;;) {
    FF_TRY(const auto routing, calls.routing());
    const ChainHealth health = health_of(routing);
    const bool whole = health.chains > 0 && health.healthy == health.chains;
    const bool serve = health.chains > 0 && health.lost == 0;
    const int64_t now_ns = session_.stop.clock().steady_ns();
    // The last heartbeat may be missing in this routing: check twice.
    looks = whole ? looks + 1 : 0;
    if (looks == 2) return {};
    if (!serve) broken_ns = now_ns;
    if (config_.formed && serve && now_ns - broken_ns > kChainsWholeNs) {
      session_.out.note("{} of {} chains are still being copied; 'ff admin status' tells more",
                        health.degraded, health.chains);
      return {};
    }
    FF_TRY(poll_wait(fmt::format("{} of {} chains are complete", health.healthy, health.chains)));
  }
}

Result<void> ClusterStarter::form() {
  FF_TRY(wait_for_daemons("meta"));
  FF_TRY(const auto calls, AdminClient::open(session_, admin_, timeout_ns_));
  FF_TRY(const auto status, calls->status());
  if (status.cluster().empty()) {
    if (config_.formed) {
      return Error{Errc::corrupt,
                   fmt::format("{}: the metadata of the cluster is lost", folder_.meta()),
                   "Restore a backup: 'ff admin restore'."};
    }
    auto created =
        calls->call(cluster::kInit, cluster::wire::InitRequest(), AdminClient::CallKind::write);
    if (!created) return std::move(created).error();
  }
  FF_TRY(wait_for_daemons("storage"));
  FF_TRY(wait_for_nodes(*calls));
  if (!config_.formed) {
    FF_TRY(const auto routing, calls->routing());
    if (routing.tables.empty()) {
      FF_TRY(make_chains(*calls, config_.shape.targets_per_disk, config_.shape.replicas));
    }
  }
  FF_TRY(wait_for_chains(*calls));
  if (config_.formed) return {};
  config_.formed = true;
  return folder_.set_config(config_);
}

Result<void> ClusterStarter::bring_up() {
  FF_TRY(form());
  if (options_.schedule) {
    FF_TRY(wait_for_daemons("scheduler"));
    FF_TRY(wait_for_daemons("agent"));
  }
  if (options_.kv) {
    FF_TRY(prepare_kv(session_, admin_, folder_, timeout_ns_));
    supervisor_.send(devcluster::SupervisorCommand::kv);
    FF_TRY(wait_for_daemons("kv"));
  }
  if (mount_.empty()) return {};
  supervisor_.send(devcluster::SupervisorCommand::mount);
  return wait_for_daemons("mount");
}

Result<void> ClusterStarter::run() {
  FF_TRY(prepare());
  session_.out.note("starting {} in {}", describe(config_.shape), folder_.path());
  FF_TRY(supervisor_.start(session_.stop, folder_, config_, mount_, extras()));
  if (auto up = bring_up(); !up) {
    if (free_space() < kFreeSpaceMin) {
      up.error().hint = fmt::format("Is the disk full? {} are free. Logs: {}",
                                    format_size(free_space()), folder_.logs());
    }
    session_.out.note("stopping the started daemons");
    if (!supervisor_.end()) session_.out.warn("the daemons are still stopping in the background");
    return up;
  }
  if (auto status = folder_.status()) status_ = std::move(*status);
  print_up(session_, folder_, config_, status_, options_.foreground);
  const Json data = up_json(folder_, config_, status_, false);
  if (!options_.foreground) {
    session_.out.data(data);
    supervisor_.detach();
    return {};
  }
  auto warnings = session_.out.emit(data);
  notify_systemd("READY=1");
  while (warnings && !session_.stop.requested() && !supervisor_.ended()) {
    session_.stop.clock().sleep_ns(kUpPollNs);
  }
  notify_systemd("STOPPING=1");
  if (warnings && !session_.stop.requested()) session_.out.note("the cluster was stopped");
  session_.out.note("stopping");
  if (!supervisor_.end()) return fail(Errc::deadline, "the daemons do not stop");
  return warnings;
}

// Another process has the lock. -----------------------------------------------------------------

Result<void> check_running_mount(const devcluster::ClusterDir& folder,
                                 const devcluster::ClusterStatus& status,
                                 const UpOptions& options) {
  if (!options.mount) return {};
  std::error_code error;
  const auto wanted = std::filesystem::weakly_canonical(*options.mount, error);
  const auto there = std::filesystem::weakly_canonical(status.mount, error);
  if (!error && !status.mount.empty() && wanted == there) return {};
  return Error{
      Errc::refused,
      status.mount.empty()
          ? fmt::format("{}: it is already running, without a mount", folder.path())
          : fmt::format("{}: it is already running, mounted on {}", folder.path(), status.mount),
      fmt::format("Mount it with 'ff mount', or stop it first: {}", down_command(folder))};
}

Result<void> check_running_extras(const devcluster::ClusterDir& folder,
                                  const devcluster::ClusterStatus& status,
                                  const UpOptions& options) {
  const bool no_scheduler = options.schedule && !status.schedule;
  const bool no_gateway = options.kv && !status.kv;
  if (!no_scheduler && !no_gateway) return {};
  return Error{Errc::refused,
               fmt::format("{}: it is already running, without a {}", folder.path(),
                           no_scheduler ? "scheduler" : "gateway"),
               fmt::format("Stop it first: {}", down_command(folder))};
}

// Waits until all of its daemons serve, and prints them. False: its supervisor has ended meanwhile.
Result<bool> show_running(Session& session, const UpOptions& options,
                          devcluster::ClusterDir& folder) {
  for (;;) {
    const auto config = folder.config();
    const auto status = folder.status();
    std::string waits_for = "it is starting";
    if (config && status) {
      FF_TRY(check_shape(folder, config->shape, options));
      FF_TRY(check_running_mount(folder, *status, options));
      FF_TRY(check_running_extras(folder, *status, options));
      const auto missing = std::ranges::find_if(
          status->services, [](const devcluster::ServiceStatus& one) { return !one.ready; });
      const size_t daemons = 1 + config->shape.storage + (status->mount.empty() ? 0 : 1) +
                             (status->schedule ? 2 : 0) + (status->kv ? 1 : 0);
      if (config->formed && status->services.size() == daemons &&
          missing == status->services.end() && folder.is_supervised(*status)) {
        session.out.note("it is already running, since {}", format_time(status->since_ns));
        print_up(session, folder, *config, *status, false);
        session.out.data(up_json(folder, *config, *status, true));
        return true;
      }
      if (missing != status->services.end()) waits_for = problem_text(*missing);
    }
    FF_TRY(const auto lock, folder.lock());
    if (lock != nullptr) return false;
    if (auto paused = session.stop.sleep_ns(kUpPollNs); !paused) {
      Error error = std::move(paused).error();
      error.message += ": it is already running, but " + waits_for;
      error.hint = "Logs: " + folder.logs();
      return error;
    }
  }
}

Result<void> run_up(Session& session, const UpOptions& options, int64_t timeout_ns) {
  // Close inherited descriptors, such as locks and pipes that other processes wait on.
  ::close_range(3, ~0U, 0);
  FF_TRY(const std::string dir, up_dir(options.dir));
  io::SystemDisk disk;
  devcluster::ClusterDir folder(disk, dir);
  // Before anything is created.
  if (!folder.config()) FF_TRY(wanted_shape(options));
  FF_TRY(folder.create(options.mount ? absolute(*options.mount) : ""));
  for (;;) {
    FF_TRY(const auto lock, folder.lock());
    if (lock != nullptr) return ClusterStarter(session, options, folder, timeout_ns).run();
    FF_TRY(const bool shown, show_running(session, options, folder));
    if (shown) return {};
  }
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
  FF_TRY(const auto state, state_dir(StateUse::daemon, process_state_environment()));
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

std::string down_command(const devcluster::ClusterDir& folder) {
  return fmt::format("ff down --dir {}", shell_quote_if_needed(folder.path()));
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
      "them, and ff prints a link to the web page of the scheduler, which logs a browser in once "
      "('ff up' on the same directory prints a new one). 'ff down' stops running tasks; the same "
      "'ff up' command restarts them.\n\nWith --kv a gateway ('ff serve-kv') runs as well: it "
      "serves "
      "a store of keys and values in the folder /kv of the cluster to clients of Redis, and the "
      "files below the folder /objects to clients of S3. Clients log in with the key file kv.key "
      "in the directory of the cluster, which has the rights of the user who ran 'ff up'; ff "
      "prints the commands. The ports stay the same as long as they are free.");
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
  up.flag("--kv", options.kv, "Also run a gateway for clients of Redis and S3").config("up.kv");
  up.flag("--foreground", options.foreground,
          "Stay in the foreground, and stop everything at Ctrl-C or SIGTERM: for systemd and "
          "containers");
  up.blocking(kUpTimeoutNs);
  up.example("ff up", "three storage daemons, two copies of all data");
  up.example("ff up --dir /data/ff --mount /mnt/ff", "in its own directory, and mounted");
  up.example("ff up --schedule", "also tasks: 'ff schedule run -- COMMAND'");
  up.example("ff up --kv",
             "also keys and values for clients of Redis, and objects for those of S3");
  up.example("ff up --dir /data/ff --foreground", "as a systemd service");
  up.run([&](Session& session) { return run_up(session, options, up.timeout_ns()); });
}

}  // namespace ff::cmd
