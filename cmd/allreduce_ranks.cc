// local_ranks.cc: ranks as children of this process, which is rank 0 itself.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "base/rng.h"
#include "cmd/allreduce.h"

namespace ff::cmd {

namespace {

constexpr int64_t kLeaveNs = kSecond;  // for the others, once rank 0 has ended
constexpr int64_t kLookNs = 5 * kMillisecond;

// Ended in any case when this goes.
class Children {
 public:
  explicit Children(Clock& clock) : clock_(clock) {}
  ~Children() {
    const int64_t until_ns = clock_.steady_ns() + kLeaveNs;
    for (const pid_t pid : pids_) {
      while (::waitpid(pid, nullptr, WNOHANG) == 0 && clock_.steady_ns() < until_ns) {
        clock_.sleep_ns(kLookNs);
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

}  // namespace

Result<void> with_local_ranks(Session& session, uint32_t ranks, const RankOptions& options,
                              const std::function<Result<void>(reduce::Communicator&)>& body) {
  if (options.deadline_ns <= 0) return fail(Errc::usage, "--deadline: longer than nothing");
  if (options.simd) {
    FF_TRY(simd::choose_reduce_path(*options.simd));
  }
  SeededRng rng(system_seed());
  const std::string job = rng.hex_id();
  const reduce::Options limits{.operation_ns = options.deadline_ns};
  const auto be_rank = [&](uint32_t rank) -> Result<void> {
    const reduce::HostRank self{.rank = rank, .ranks = ranks, .job = job};
    FF_TRY(auto joined, reduce::Communicator::join(self, session.stop, limits));
    return body(*joined);
  };
  Children children(session.stop.clock());
  const pid_t parent = ::getpid();
  for (uint32_t rank = 1; rank < ranks; rank++) {
    const pid_t pid = ::fork();
    if (pid < 0) return errno_error(errno, fmt::format("starting rank {}", rank));
    if (pid > 0) {
      children.add(pid);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::_exit(be_rank(rank) ? 0 : 1);  // why not, rank 0 is told as well
  }
  return be_rank(0);
}

}  // namespace ff::cmd
