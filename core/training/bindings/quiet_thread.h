// Threads of the library in a foreign program: all signals are blocked, so that the kernel delivers
// them to the threads of the program (a system call in Python's main thread returns only if the
// signal interrupts that thread).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace ff::bindings {

// Blocks all signals in the calling thread while it lives; threads that start meanwhile inherit it.
class QuietSignals {
 public:
  QuietSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~QuietSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t before_;
};

template <class Body>
std::thread quiet_thread(Body body) {
  const QuietSignals quiet;
  return std::thread(std::move(body));
}

}  // namespace ff::bindings
