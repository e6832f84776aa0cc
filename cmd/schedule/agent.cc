// `ff schedule agent`: the daemon of a node, which runs tasks for the scheduler.
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cmd/cli/daemon.h"
#include "cmd/schedule/schedule.h"
#include "ops/scheduler/agent.h"
#include "platform/base/state_dir.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"
#include "platform/simd/digest.h"

namespace ff::cmd {
namespace {

constexpr const char* kSelf = "/proc/self/exe";
constexpr size_t kDirDigits = 8;
constexpr int64_t kEndNs = 10 * kSecond;  // from SIGTERM to SIGKILL

struct AgentOptions {
  DaemonOptions daemon = {.listen = "127.0.0.1:4510", .advertise = {}, .http = {}, .net = {}};
  std::string scheduler = "127.0.0.1:4500";
  std::optional<std::string> name;
  std::string group = "default";
  std::string zone = "default";
  std::string leaf = "default";
  std::vector<std::string> marks;
  std::optional<std::string> address;
  std::optional<std::string> dir;
  std::optional<std::string> task_dir;
  int64_t keep_logs_ns = 7 * 24 * 3600 * kSecond;
  bool end_tasks = false;
  std::string validate_level = "weekly";
};

Result<std::string> dir_of(const AgentOptions& options) {
  if (options.dir) {
    if (options.dir->starts_with('/')) return *options.dir;
    std::string here(PATH_MAX, '\0');
    if (::getcwd(here.data(), here.size()) == nullptr) return errno_error(errno, *options.dir);
    return io::join(here.c_str(), *options.dir);
  }
  FF_TRY(const auto state, state_dir(StateUse::daemon, process_state_environment()));
  return io::join(state.path, "schedule-agent");
}

// On a tmpfs, different for each folder of an agent.
std::string tasks_of(const AgentOptions& options, const std::string& dir) {
  if (options.task_dir) return *options.task_dir;
  const char* const own = ::getenv("XDG_RUNTIME_DIR");
  std::string run;
  if (::geteuid() == 0) run = "/run";
  if (::geteuid() != 0 && own != nullptr && own[0] == '/') run = own;
  if (run.empty()) return io::join(dir, "tasks");
  const auto print = simd::fingerprint(simd::DigestKind::xxh128, as_bytes(dir));
  return fmt::format("{}/ff/agent-{}", run, print.digest.hex().substr(0, kDirDigits));
}

// The running program, also when its file was replaced meanwhile.
std::string own_program() {
  std::string path(PATH_MAX, '\0');
  const ssize_t got = ::readlink(kSelf, path.data(), path.size());
  if (got <= 0) return kSelf;
  path.resize(static_cast<size_t>(got));
  return ::access(path.c_str(), X_OK) == 0 ? path : kSelf;
}

Result<scheduler::wire::Node> node_of(const AgentOptions& options) {
  scheduler::wire::Node node;
  node.set_name(options.name.value_or(net::host_name()));
  node.set_group(options.group);
  node.set_zone(options.zone);
  node.set_leaf(options.leaf);
  for (const std::string& mark : options.marks) {
    if (mark.find('=') == 0 || mark.find('=') == mark.npos) {
      return fail(Errc::usage, "--mark {}: it is KEY=VALUE", printable(mark));
    }
    node.add_marks(mark);
  }
  if (node.name().empty() || node.group().empty()) {
    return fail(Errc::usage, "a node needs a name and a group: --name, --group");
  }
  return node;
}

// The address at which ranks of other nodes reach this one: by default that of the agent.
std::string agent_address(const AgentOptions& options, const std::string& reached_at) {
  if (options.address) return *options.address;
  const auto address = net::parse_address(reached_at);
  if (!address || address->is_unix() || address->host.empty()) return net::host_name();
  return address->host;
}

Result<void> run_agent(Session& session, const AgentOptions& options) {
  FF_TRY(const auto scheduler, net::parse_address(options.scheduler));
  FF_TRY(scheduler::wire::Node node, node_of(options));
  FF_TRY(const std::string dir, dir_of(options));
  FF_TRY(const auto daemon, Daemon::make(session, options.daemon, "schedule-agent"));
  if (::geteuid() == 0 && !daemon->client().self.key) {
    Error error = fail(Errc::refused,
                       "an agent that runs as root needs a key: without one any local user could "
                       "run a task as any user");
    error.hint =
        "Make one with (umask 077; openssl rand -hex 32 >cluster.key), and give it to the "
        "scheduler "
        "and its agents with --key.";
    return error;
  }
  ::umask(022);  // not the inherited one: tasks of other users pass through folders created here
  io::SystemDisk disk;
  FF_TRY(const auto reconciler,
         scheduler::NodeReconciler::open(disk, session.stop.clock(),
                                         {.dir = dir,
                                          .tasks = tasks_of(options, dir),
                                          .shim = {own_program(), "schedule", "shim"},
                                          .cgroup = ::geteuid() == 0 ? "ff/tasks" : "",
                                          .key = daemon->client().self.key,
                                          .uid = ::geteuid(),
                                          .keep_logs_ns = options.keep_logs_ns}));
  std::optional<scheduler::Agent> agent;
  // Methods must be added before the daemon listens; its address is known afterwards.
  agent.emplace(daemon->client(), daemon->router(), *reconciler,
                scheduler::Agent::Options{.node = std::move(node),
                                          .scheduler = scheduler,
                                          .checks = {own_program(), "validate", "run", "--level",
                                                     options.validate_level, "--json"}});
  Daemon::Service service;
  service.start = [&](const std::string& at) { agent->start(at, agent_address(options, at)); };
  service.stop = [&agent] { return agent->close(); };
  service.status = [&agent] { return agent->status(); };
  FF_TRY(daemon->run(std::move(service)));
  if (options.end_tasks && !reconciler->stop_all_ranks(kEndNs)) {
    return fail(Errc::deadline, "some killed ranks hang in the kernel");
  }
  return {};
}

}  // namespace

void declare_schedule_agent(Command& agent) {
  auto& options = agent.keep<AgentOptions>();
  agent.about(
      "Runs on each node of a cluster: starts the ranks that the scheduler gives this node, hands "
      "on its wish that they stop, and tells how they end. What they print is kept here, and "
      "answered to 'ff schedule logs'.\n\n"
      "Ranks do not need the agent to run: it may be stopped, killed or replaced by a newer one, "
      "and finds them again in --dir. Only when the scheduler has been silent for the time of its "
      "lease are they killed, for it starts them elsewhere then.\n\n"
      "As root the agent runs the tasks of all users, each with the rights of its own, and needs "
      "the "
      "cluster's key; as another user, that user's alone. $FF_TASK_DIR, in which a task and its "
      "node tell each other things, "
      "lies under --task-dir, which is best in memory: by default /run/ff for root.\n\n"
      "Now and then the scheduler has an idle node run 'ff validate' (--validate-every of 'ff "
      "schedule serve'). It runs here as it would for cron, with the same settings and the same "
      "history, as the agent's user.");
  agent
      .option("--scheduler", text(options.scheduler, "HOST:PORT"),
              "Where ff schedule serve listens")
      .config("schedule.scheduler")
      .env("FF_SCHEDULER");
  agent
      .option("--name", text(options.name, "NAME"),
              "What the node is called; without it the name of this machine")
      .config("schedule-agent.name");
  agent.option("--group", text(options.group, "NAME"), "What kind of node it is")
      .config("schedule-agent.group");
  agent.option("--zone", text(options.zone, "NAME"), "In which part of the network it is")
      .config("schedule-agent.zone");
  agent.option("--leaf", text(options.leaf, "NAME"), "On which leaf switch")
      .config("schedule-agent.leaf");
  agent.option("--mark", text(options.marks, "KEY=VALUE"),
               "What tasks may ask for; give it once for each");
  agent
      .option("--address", text(options.address, "ADDR"),
              "Where ranks of other nodes reach this one; without it the host of --advertise, or "
              "of --listen")
      .config("schedule-agent.address");
  agent
      .option("--dir", dir(options.dir),
              "Its own folder, on a local disk; schedule-agent in the state folder by default")
      .config("schedule-agent.dir");
  agent.option("--task-dir", dir(options.task_dir), "Under which each task's $FF_TASK_DIR is made")
      .config("schedule-agent.task-dir");
  agent
      .option("--keep-logs", duration(options.keep_logs_ns),
              "How long the logs of tasks that are over stay")
      .config("schedule-agent.keep-logs");
  agent
      .flag("--end-tasks", options.end_tasks,
            "When it is told to stop, end what runs here: SIGTERM, SIGKILL 10 s later. The "
            "scheduler starts these tasks again")
      .config("schedule-agent.end-tasks");
  agent
      .option("--validate-level", choice(options.validate_level, {"quick", "weekly"}),
              "Level of the checks that the scheduler has this node run while it is idle")
      .config("schedule-agent.validate-level");
  declare_daemon(agent, options.daemon, "schedule-agent");
  agent.example("ff schedule agent", "scheduler and node are one machine");
  agent.example(
      "ff schedule agent --scheduler s1:4500 --listen '*:4510' --key cluster.key --leaf rack7",
      "one node of many");
  agent.run([&options](Session& session) { return run_agent(session, options); });
}

}  // namespace ff::cmd
