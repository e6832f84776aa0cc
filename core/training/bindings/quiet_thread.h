// Threads of the library in a foreign program: all signals are blocked, so that the kernel delivers
// them to the threads of the program (a system call in Python's main thread returns only if the
// signal interrupts that thread).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace ff::bindings {

template <class Body>
std::thread quiet_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ff::bindings
