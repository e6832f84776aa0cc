// What the programs share that ff is compared with (socket_peer, grpc_peer): errors, strict
// options, time, and a child process that is never left behind.
#pragma once

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "platform/base/units.h"

namespace ff::peer {

using SteadyClock = std::chrono::steady_clock;

constexpr double kWarmUpSeconds = 0.5;  // before anything is counted

// A wrong command line: exit 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws the error that a system call left in errno.
inline void check(bool ok, const char* what) {
  if (!ok) throw std::system_error(errno, std::generic_category(), what);
}

inline SteadyClock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

// A number from 1 to `most`, units allowed.
inline uint64_t parse_number(const char* text, uint64_t most) {
  const Result<uint64_t> size = parse_size(text);
  if (!size.ok()) throw UsageError(size.error().message);
  if (*size == 0 || *size > most) throw UsageError(fmt::format("{} is not in 1..{}", text, most));
  return *size;
}

inline double parse_seconds(const char* text) {
  const Result<int64_t> ns = parse_duration_ns(text);
  if (!ns.ok()) throw UsageError(ns.error().message);
  if (*ns == 0) throw UsageError(fmt::format("{}: a time above zero is needed", text));
  return static_cast<double>(*ns) * 1e-9;
}

// Two connected sockets: this process keeps one, its child the other.
struct SocketPair {
  int ours;
  int childs;
};

inline SocketPair unix_pair() {
  int ends[2];
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  return {ends[0], ends[1]};
}

// A child process that runs `work` on its socket. `work` has to return once our socket is closed,
// as it also is when this process is killed: then waiting for the child is short.
class Child {
 public:
  Child(SocketPair sockets, const std::function<void(int socket)>& work) : socket_(sockets.ours) {
    pid_ = ::fork();
    check(pid_ >= 0, "fork");
    ::close(pid_ == 0 ? sockets.ours : sockets.childs);
    if (pid_ == 0) run(work, sockets.childs);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { reap(); }

  int socket() const { return socket_; }

  // Ends the child; throws if it failed.
  void finish() {
    if (reap() != 0) throw std::runtime_error("the child process failed");
  }

 private:
  [[noreturn]] static void run(const std::function<void(int socket)>& work, int socket) {
    try {
      work(socket);
    } catch (const std::exception& error) {
      fmt::print(stderr, "child: {}\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }

  // The child's wait status; 0 when it ended well.
  int reap() {
    if (pid_ <= 0) return 0;
    ::close(socket_);
    int status = 0;
    const pid_t waited = ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return waited > 0 ? status : -1;
  }

  int socket_;
  pid_t pid_ = 0;
};

// main() of a peer: `run` prints its result, or throws.
inline int run_main(std::string_view usage, const std::function<void()>& run) {
  try {
    run();
    check(std::fflush(stdout) == 0, "stdout");
    return 0;
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}\n{}", error.what(), usage);
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace ff::peer
