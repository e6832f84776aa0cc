// ranks.cc: starts the ranks of a command: as children of this process, which is the first rank of
// its host, as a part of a larger job, or on other hosts (hosts.cc).
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cmd/allreduce/allreduce.h"
#include "cmd/allreduce/hosts.h"
#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "training/collective/environment.h"

namespace ff::cmd {

namespace {

constexpr int64_t kLeaveNs = kSecond;  // for the other ranks, after rank 0 has ended
constexpr int64_t kRanksPollNs = 5 * kMillisecond;

// Kills the children that still run.
class Children {
 public:
  explicit Children(Clock& clock) : clock_(clock) {}
  ~Children() {
    const int64_t until_ns = clock_.steady_ns() + kLeaveNs;
    for (const pid_t pid : pids_) {
      while (::waitpid(pid, nullptr, WNOHANG) == 0 && clock_.steady_ns() < until_ns) {
        clock_.sleep_ns(kRanksPollNs);
      }
      if (::waitpid(pid, nullptr, WNOHANG) != 0) continue;
      ::kill(pid, SIGKILL);
      (void)::waitpid(pid, nullptr, 0);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  void add(pid_t pid) { pids_.push_back(pid); }

 private:
  Clock& clock_;
  std::vector<pid_t> pids_;
};

using Body = std::function<Result<void>(collective::Communicator&)>;

// Runs as one rank.
Result<void> be_rank(Session& session, const collective::JobConfig& config, uint32_t rank,
                     const RankOptions& options, const Body& body) {
  if (options.deadline_ns <= 0) return fail(Errc::usage, "--deadline must be longer than 0");
  if (options.simd) {
    FF_TRY(simd::choose_reduce_path(*options.simd));
  }
  const collective::CommunicatorOptions limits{.operation_ns = options.deadline_ns,
                                               .pin = options.pin};
  collective::HostRank self = config.self;
  self.rank = rank;
  FF_TRY(auto joined, collective::Communicator::join(self, session.stop, limits, config.network));
  return body(*joined);
}

// Runs all ranks of this host; this process is the first.
Result<void> be_ranks(Session& session, const collective::JobConfig& config,
                      const RankOptions& options, const Body& body) {
  Children children(session.stop.clock());
  const pid_t parent = ::getpid();
  for (uint32_t rank = 1; rank < config.self.ranks; rank++) {
    const pid_t pid = ::fork();
    if (pid < 0) return errno_error(errno, fmt::format("starting rank {}", rank));
    if (pid > 0) {
      children.add(pid);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    // Rank 0 gets the error, too.
    ::_exit(be_rank(session, config, rank, options, body) ? 0 : 1);
  }
  return be_rank(session, config, 0, options, body);
}

// The process that started this over ssh holds the other end of standard input: exit when it is
// closed.
void follow_input(StopToken& stop) {
  std::thread([&stop] {
    pollfd input{STDIN_FILENO, 0, 0};  // POLLHUP is always reported
    while (::poll(&input, 1, -1) < 0 || (input.revents & (POLLHUP | POLLERR)) == 0) {
    }
    stop.request();
  }).detach();
}

// The environment variables of a job; options replace some of them.
class JobVariables {
 public:
  explicit JobVariables(const JobOptions& job) : job_(job) {
    if (job.port) port_ = fmt::format("{}", *job.port);
  }
  const char* operator()(const char* name) const {
    const std::string_view wanted = name;
    if (wanted == "FF_PORT" && !port_.empty()) return port_.c_str();
    if (wanted == "FF_ZONE" && job_.zone) return job_.zone->c_str();
    if (wanted == "FF_KEY_FILE") return job_.key_file ? job_.key_file->c_str() : nullptr;
    if (wanted == "FF_ALGO") return job_.algorithm.c_str();
    if (wanted == "FF_WIRE") return job_.wire.c_str();
    if (wanted == "FF_DETERMINISTIC") return job_.deterministic ? "1" : "0";
    if (wanted == "FF_NET") return job_.net.c_str();
    if (wanted == "FF_NET_SECURITY") return job_.security.c_str();
    return std::getenv(name);
  }

 private:
  const JobOptions& job_;
  std::string port_;
};

Result<void> check_job(const JobOptions& job) {
  if (job.nproc && (*job.nproc == 0 || *job.nproc > collective::kHostRanksMax)) {
    return fail(Errc::usage, "--nproc {}: 1 to {}", *job.nproc, collective::kHostRanksMax);
  }
  if (job.deterministic && job.algorithm == "ring") {
    return fail(Errc::usage,
                "--deterministic uses one tree: it and --algo ring exclude each other");
  }
  return {};
}

}  // namespace

collective::PipelineOptions JobOptions::pipeline() const {
  return {.algorithm = *collective::algorithm_of(algorithm),
          .wire = *simd::wire_type_of(wire),
          .deterministic = deterministic};
}

void declare_job_options(Command& command, JobOptions& options) {
  const auto option = [&command](std::string names, Binding binding,
                                 std::string description) -> Option& {
    return command.option(std::move(names), std::move(binding), std::move(description))
        .section(kCommonOptions);
  };
  option("--nproc", number(options.nproc), "Ranks per host; without it, one per core");
  option("--hosts", text(options.hosts, "HOST[,HOST...]"),
         "Start ranks on these hosts over ssh; ff must have the same path there. A slash separates "
         "hosts in different zones of the network: a,b/c,d");
  option("--ssh", text(options.ssh, "COMMAND"),
         "Program that runs a line on a host, called as COMMAND HOST LINE");
  option("--port", number(options.port),
         "Port on which the host of rank 0 listens; without it a free one, or MASTER_PORT + 5")
      .env("FF_PORT");
  option("--key-file", file(options.key_file),
         "Key of the job: a file with 64 hex digits that other users cannot read; - means standard "
         "input. With --hosts ff creates a key")
      .env("FF_KEY_FILE");
  option("--net", choice(options.net, {"auto", "tcp", "verbs"}),
         "Transport between hosts: auto uses RDMA when both ends support it, and TCP otherwise; "
         "verbs uses RDMA only")
      .env("FF_NET");
  command
      .option("--net-security", choice(options.security, {"tls", "trusted-network"}),
              "Encrypt TCP connections; trusted-network: only until both ends have proven their "
              "keys, if both say so")
      .config("net.security")
      .env("FF_NET_SECURITY")
      .hidden();
  option("--algo", choice(options.algorithm, {"auto", "tree", "ring"}),
         "Algorithm between hosts: double binary tree or ring; auto uses the ring for two hosts")
      .env("FF_ALGO");
  option("--wire", choice(options.wire, {"none", "bf16", "fp8"}),
         "Format to which ff rounds sums of floats between hosts; fp8 is MXFP8")
      .env("FF_WIRE");
  option("--deterministic", flag(options.deterministic),
         "Make the result depend only on the inputs and on the host of each rank, bit for bit")
      .env("FF_DETERMINISTIC");
  option("--zone", text(options.zone, "NAME"),
         "Zone of this host in the network; only one pair of hosts communicates between two zones")
      .env("FF_ZONE");
}

bool is_single_host(const JobOptions& job) {
  return !job.hosts && !collective::has_job(JobVariables(job));
}

Result<void> run_ranks(Session& session, const JobOptions& job, const RankOptions& options,
                       uint32_t default_ranks, const Body& body) {
  FF_TRY(check_job(job));
  const JobVariables variables(job);
  if (job.hosts) return run_on_hosts(session, job);
  if (is_single_host(job)) {
    SeededRng rng(system_seed());
    collective::JobConfig config;
    config.self = {.ranks = job.nproc.value_or(default_ranks), .job = rng.hex_id()};
    config.network.ranks = config.self.ranks;
    return be_ranks(session, config, options, body);
  }
  io::SystemDisk disk;
  FF_TRY(const collective::JobConfig config,
         collective::read_job_config(variables, job.nproc, disk));
  if (job.key_file == "-") follow_input(session.stop);
  if (job.nproc) return be_ranks(session, config, options, body);
  return be_rank(session, config, config.self.rank, options, body);
}

}  // namespace ff::cmd
