// Threads of the library in a program that is not ours: they take none of its signals, which are
// meant for threads that have handlers to run (Python's main thread wakes from a system call only
// when it is the one that is interrupted).
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
