// Ranks of a job, as threads of one process or as processes of their own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "training/collective/communicator.h"

namespace ff::collective {

inline std::string new_job() {
  SeededRng rng(system_seed());
  return "test-" + rng.hex_id();
}

// Each rank in a thread.
inline void with_ranks(uint32_t ranks, const std::function<void(Communicator&)>& body,
                       const CommunicatorOptions& options = {}) {
  const std::string job = new_job();
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank] {
      auto joined = Communicator::join({.rank = rank, .ranks = ranks, .job = job}, stop, options);
      ASSERT_TRUE(joined.ok()) << joined.error().message;
      body(**joined);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank in a process whose exit status `body` returns.
inline pid_t fork_rank(const HostRank& self, const CommunicatorOptions& options,
                       const std::function<int(Communicator&)>& body,
                       const std::optional<Network>& network = {}) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  SystemClock clock;
  const StopToken stop(clock);
  auto joined = Communicator::join(self, stop, options, network);
  const int code = joined ? body(**joined) : 99;
  if (joined) joined->reset();
  ::_exit(code);
}

inline int exit_of(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ff::collective
