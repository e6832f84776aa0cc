// fork.cc: blocks the signals until the child has no handlers.
#include "platform/base/fork.h"

#include <unistd.h>

#include <array>
#include <csignal>

namespace ff {

namespace {

constexpr std::array kHandledSignals = {SIGINT, SIGTERM};

void remove_handlers() {
  for (const int number : kHandledSignals) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
  }
}

}  // namespace

pid_t fork_for_exec() {
  sigset_t handled, before;
  ::sigemptyset(&handled);
  for (const int number : kHandledSignals) ::sigaddset(&handled, number);
  ::pthread_sigmask(SIG_BLOCK, &handled, &before);
  const pid_t pid = ::fork();
  if (pid == 0) remove_handlers();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

}  // namespace ff
