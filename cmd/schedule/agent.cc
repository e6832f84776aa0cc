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
  uint64_t keep_log_bytes = scheduler::LogRetention().user_bytes;
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
      return fail(Errc::usage, "--label {}: expected KEY=VALUE", printable(mark));
    }
    node.add_marks(mark);
  }
  if (node.name().empty() || node.group().empty()) {
    return fail(Errc::usage, "a node needs a name and a partition: --name, --partition");
  }
  return node;
}

// The address at which ranks of other nodes reach this one: by default that of the agent.
std::string agent_address(const AgentOptions& options, const std::string& advertised_address) {
  if (options.address) return *options.address;
  const auto address = net::parse_address(advertised_address);
  if (!address || address->is_unix() || address->host.empty()) return net::host_name();
  return address->host;
}

Result<void> run_agent(Session& session, const AgentOptions& options) {
  FF_TRY(const auto scheduler, net::parse_address(options.scheduler));
  FF_TRY(scheduler::wire::Node node, node_of(options));
  FF_TRY(const std::string dir, dir_of(options));
  FF_TRY(const auto daemon,
         Daemon::make(session, options.daemon, auth::Role::agent, "schedule-agent", node.name()));
  if (::geteuid() == 0 && daemon->client().transport.keyring() == nullptr) {
    Error error = fail(Errc::refused,
                       "an agent that runs as root needs a key: without one every user of this "
                       "machine could run tasks as any user");
    error.hint =
        "Create a key with (umask 077; openssl rand -hex 32 >cluster.key), and give it to the "
        "scheduler and its agents with --key.";
    return error;
  }
  ::umask(022);  // not the inherited one: tasks of other users pass through folders created here
  io::SystemDisk disk;
  FF_TRY(const auto reconciler,
         scheduler::NodeReconciler::open(
             disk, session.stop.clock(),
             {.dir = dir,
              .tasks = tasks_of(options, dir),
              .shim = {own_program(), "schedule", "shim"},
              .cgroup = ::geteuid() == 0 ? "ff/tasks" : "",
              .zone = options.zone,
              .uid = ::geteuid(),
              .logs = {.keep_ns = options.keep_logs_ns, .user_bytes = options.keep_log_bytes}}));
  std::optional<scheduler::Agent> agent;
  // Methods must be added before the daemon listens; its address is known afterwards.
  agent.emplace(daemon->client(), daemon->router(), *reconciler,
                scheduler::Agent::Options{.node = std::move(node),
                                          .scheduler = scheduler,
                                          .checks = {own_program(), "validate", "run", "--level",
                                                     options.validate_level, "--json"}});
  Daemon::Service service;
  service.start = [&](const std::string& at) { agent->start(at, agent_address(options, at)); };
  service.drain = [&agent] { return agent->close(); };
  service.status = [&agent] { return agent->status(); };
  FF_TRY(daemon->run(std::move(service)));
  if (options.end_tasks && !reconciler->stop_all_ranks(kEndNs)) {
    return fail(Errc::deadline, "some killed ranks hang in the kernel");
  }
  return {};
}

void declare_log_retention(Command& agent, AgentOptions& options) {
  agent
      .option("--keep-logs", duration(options.keep_logs_ns),
              "How long the agent keeps the logs of finished tasks")
      .config("schedule-agent.keep-logs");
  agent
      .option("--keep-log-size", size(options.keep_log_bytes),
              "Maximum size of the logs of one user's finished tasks; of all users four times, and "
              "of one task a quarter of it. The agent removes the oldest of the user who has the "
              "most")
      .config("schedule-agent.keep-log-size");
}

}  // namespace

void declare_schedule_agent(Command& agent) {
  auto& options = agent.keep<AgentOptions>();
  agent.about(
      "Runs on each node of a cluster: it starts the ranks that the scheduler assigns to this "
      "node, forwards requests to stop, and reports how ranks end. It stores the output of ranks "
      "and serves it to 'ff schedule logs'.\n\nRanks do not depend on the agent: you can stop, "
      "kill or upgrade it, and it finds the ranks again through --dir. If the scheduler has not "
      "answered for the time of its lease, the agent kills the ranks, because the scheduler then "
      "restarts them elsewhere.\n\nAs root, the agent runs the tasks of all users, each with that "
      "user's rights, and requires the cluster key. As another user, it runs only the tasks of "
      "that user. A task and its agent exchange files in $FF_TASK_DIR, below --task-dir, which "
      "should be in memory; the default for root is /run/ff.\n\nThe scheduler has idle nodes run "
      "'ff validate' (--validate-every of 'ff schedule serve'). The agent runs it as its own user, "
      "with the settings and the history that 'ff validate' has from cron.");
  agent
      .option("--scheduler", text(options.scheduler, "HOST:PORT"),
              "Address of the scheduler ('ff schedule serve')")
      .config("schedule.scheduler")
      .env("FF_SCHEDULER")
      .section(kNetworkOptions);
  agent
      .option("--name", text(options.name, "NAME"),
              "Name of this node; without it the name of the machine")
      .config("schedule-agent.name");
  agent.option("--partition", text(options.group, "NAME"), "Partition of this node")
      .config("schedule-agent.partition")
      .old_config("schedule-agent.group")
      .alias("--group");
  agent.option("--zone", text(options.zone, "NAME"), "Network zone of this node")
      .config("schedule-agent.zone");
  agent.option("--leaf", text(options.leaf, "NAME"), "Leaf switch of this node")
      .config("schedule-agent.leaf");
  agent
      .option("--label", text(options.marks, "KEY=VALUE"),
              "Label of this node, which tasks can require")
      .alias("--mark");
  agent
      .option("--address", text(options.address, "ADDR"),
              "Address at which ranks on other nodes reach this node; without it the host of "
              "--advertise or --listen")
      .config("schedule-agent.address");
  agent
      .option("--dir", dir(options.dir),
              "Directory for the state of the agent, on a local disk; without it schedule-agent in "
              "the state directory")
      .config("schedule-agent.dir");
  agent
      .option("--task-dir", dir(options.task_dir),
              "Directory below which the agent creates $FF_TASK_DIR of each task")
      .config("schedule-agent.task-dir");
  declare_log_retention(agent, options);
  agent
      .flag("--end-tasks", options.end_tasks,
            "When the agent stops, also stop the ranks on this node: SIGTERM, and SIGKILL after 10 "
            "s. The scheduler restarts these tasks")
      .config("schedule-agent.end-tasks");
  agent
      .option("--validate-level", choice(options.validate_level, {"quick", "weekly"}),
              "Level of the checks that this node runs while it is idle")
      .config("schedule-agent.validate-level");
  declare_daemon(agent, options.daemon, "schedule-agent");
  agent.example("ff schedule agent", "scheduler and node on one machine");
  agent.example(
      "ff schedule agent --scheduler s1:4500 --listen '*:4510' --key cluster.key --leaf rack7",
      "one node of many");
  agent.run([&options](Session& session) { return run_agent(session, options); });
}

}  // namespace ff::cmd
