// ranks.cc: where the ranks of a command are: children of this process, which is rank 0
// of its host itself, a part of a larger job, or on other hosts (hosts.cc).
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

constexpr int64_t kLeaveNs = kSecond;  // for the others, once rank 0 has ended
constexpr int64_t kRanksPollNs = 5 * kMillisecond;

// Ended in any case when this goes.
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

// As one rank.
Result<void> be_rank(Session& session, const collective::JobConfig& config, uint32_t rank,
                     const RankOptions& options, const Body& body) {
  if (options.deadline_ns <= 0) return fail(Errc::usage, "--deadline: longer than nothing");
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

// As all ranks of this host: this process is the first of them.
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
    // Why not, rank 0 is told as well.
    ::_exit(be_rank(session, config, rank, options, body) ? 0 : 1);
  }
  return be_rank(session, config, 0, options, body);
}

// Whoever started this over a network holds the other end of standard input: when that goes, so
// does this.
void follow_input(StopToken& stop) {
  std::thread([&stop] {
    pollfd input{STDIN_FILENO, 0, 0};  // POLLHUP comes unasked
    while (::poll(&input, 1, -1) < 0 || (input.revents & (POLLHUP | POLLERR)) == 0) {
    }
    stop.request();
  }).detach();
}

// The variables of a job, of which options of the line say some.
class JobVariables {
 public:
  explicit JobVariables(const JobOptions& job) : job_(job) {
    if (job.port) port_ = fmt::format("{}", *job.port);
    if (job.zone) zone_ = fmt::format("{}", *job.zone);
  }
  const char* operator()(const char* name) const {
    const std::string_view wanted = name;
    if (wanted == "FF_PORT" && !port_.empty()) return port_.c_str();
    if (wanted == "FF_ZONE" && !zone_.empty()) return zone_.c_str();
    if (wanted == "FF_KEY_FILE") return job_.key_file ? job_.key_file->c_str() : nullptr;
    if (wanted == "FF_ALGO") return job_.algorithm.c_str();
    if (wanted == "FF_WIRE") return job_.wire.c_str();
    if (wanted == "FF_DETERMINISTIC") return job_.deterministic ? "1" : "0";
    if (wanted == "FF_NET") return job_.net.c_str();
    return std::getenv(name);
  }

 private:
  const JobOptions& job_;
  std::string port_, zone_;
};

Result<void> check_job(const JobOptions& job) {
  if (job.nproc && (*job.nproc == 0 || *job.nproc > collective::kHostRanksMax)) {
    return fail(Errc::usage, "--nproc {}: 1 to {}", *job.nproc, collective::kHostRanksMax);
  }
  if (job.deterministic && job.algorithm == "ring") {
    return fail(Errc::usage,
                "--deterministic takes one tree for all: it and --algo ring exclude each other");
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
  command.option("--nproc", number(options.nproc),
                 "Ranks on each host (without it: one for each core)");
  command.option("--hosts", text(options.hosts, "HOST[,HOST...]"),
                 "Where ranks are started, over ssh: ff stands there under the same path. Hosts of "
                 "different zones of the network are parted by a slash: a,b/c,d");
  command.option("--ssh", text(options.ssh, "COMMAND"),
                 "What runs a line on a host: COMMAND HOST LINE");
  command
      .option("--port", number(options.port),
              "Where the host of rank 0 listens (without it: one by chance, or MASTER_PORT + 5)")
      .env("FF_PORT");
  command
      .option("--key-file", file(options.key_file),
              "The job's key, 64 hex digits in a file that others cannot read; - is standard "
              "input. With --hosts one is made")
      .env("FF_KEY_FILE");
  command
      .option("--net", choice(options.net, {"auto", "tcp", "verbs"}),
              "Between hosts: auto takes RDMA where both ends have it, else TCP; verbs is RDMA or "
              "nothing")
      .env("FF_NET");
  command
      .option("--algo", choice(options.algorithm, {"auto", "tree", "ring"}),
              "Between hosts: a double binary tree, or a ring; auto takes the ring for two hosts")
      .env("FF_ALGO");
  command
      .option("--wire", choice(options.wire, {"none", "bf16", "fp8"}),
              "What sums of floats are rounded to between hosts; fp8 is MXFP8")
      .env("FF_WIRE");
  command
      .flag("--deterministic", options.deterministic,
            "Bits that depend on the inputs and on which host has which ranks alone")
      .env("FF_DETERMINISTIC");
  command
      .option("--zone", number(options.zone),
              "The part of the network that this host is in: one pair of hosts talks across")
      .env("FF_ZONE");
}

bool is_of_this_host(const JobOptions& job) {
  return !job.hosts && !collective::has_job(JobVariables(job));
}

Result<void> with_ranks(Session& session, const JobOptions& job, const RankOptions& options,
                        uint32_t otherwise, const Body& body) {
  FF_TRY(check_job(job));
  const JobVariables variables(job);
  if (job.hosts) return run_on_hosts(session, job);
  if (is_of_this_host(job)) {
    SeededRng rng(system_seed());
    collective::JobConfig config;
    config.self = {.ranks = job.nproc.value_or(otherwise), .job = rng.hex_id()};
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
