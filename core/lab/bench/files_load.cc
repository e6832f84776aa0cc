// files_load.cc: one forked process per client, started phase by phase through pipes. Times of
// single operations lie in memory that the processes share.
#include "lab/bench/files_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>

#include "platform/base/clock.h"
#include "platform/base/fd.h"
#include "platform/base/text.h"
#include "platform/io/cpu_use.h"

namespace ff::bench {

namespace {

enum class FilesStep : uint8_t { create, stat, rename, remove_renamed, write, read, remove };
struct PhaseKind {
  FilesStep step;
  const char* name;  // null: not reported
};
constexpr std::array<PhaseKind, 7> kPhases = {{{FilesStep::create, "create"},
                                               {FilesStep::stat, "stat"},
                                               {FilesStep::rename, "rename"},
                                               {FilesStep::remove_renamed, "remove"},
                                               {FilesStep::write, "write"},
                                               {FilesStep::read, "read"},
                                               {FilesStep::remove, nullptr}}};

// What a client tells after each phase.
struct ClientOutcome {
  int error = 0;  // errno of the first operation that failed
  std::array<char, PATH_MAX> path = {};
};

// Memory that the processes share: an outcome and the times of all operations for each client.
class SharedTimes {
 public:
  static Result<SharedTimes> make(const SmallFilesLoad& load) {
    const size_t size = load.processes * (sizeof(ClientOutcome) + load.files * sizeof(uint32_t));
    void* const at =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return errno_error(errno, "memory for the times of all operations");
    return SharedTimes(at, size, load);
  }
  SharedTimes(SharedTimes&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)),
        size_(other.size_),
        processes_(other.processes_),
        files_(other.files_) {}
  SharedTimes& operator=(SharedTimes&&) = delete;
  ~SharedTimes() {
    if (at_ != nullptr) ::munmap(at_, size_);
  }

  ClientOutcome& outcome(unsigned process) { return static_cast<ClientOutcome*>(at_)[process]; }
  // Nanoseconds of each operation of a phase.
  std::span<uint32_t> times(unsigned process) {
    auto* const first = reinterpret_cast<uint32_t*>(static_cast<ClientOutcome*>(at_) + processes_);
    return {first + process * files_, files_};
  }
  std::span<uint32_t> all_times() { return {times(0).data(), processes_ * files_}; }

 private:
  SharedTimes(void* at, size_t size, const SmallFilesLoad& load)
      : at_(at), size_(size), processes_(load.processes), files_(load.files) {}
  void* at_;
  size_t size_;
  size_t processes_;
  uint64_t files_;
};

// One process of the load. It makes no memory of its own while it measures.
class FilesClient {
 public:
  FilesClient(unsigned number, std::string dir, const SmallFilesLoad& load, SharedTimes& shared)
      : number_(number), dir_(std::move(dir)), shared_(shared), data_(load.bytes, 'f') {}

  void run_phase(FilesStep step) {
    SystemClock clock;
    const auto times = shared_.times(number_);
    for (size_t i = 0; i < times.size(); i++) {
      const int64_t began_ns = clock.steady_ns();
      const int error = run_one(step, i);
      times[i] = static_cast<uint32_t>(std::min<int64_t>(clock.steady_ns() - began_ns, UINT32_MAX));
      if (error == 0) continue;
      shared_.outcome(number_).error = error;
      const std::string_view failed = path('f', i);
      auto& into = shared_.outcome(number_).path;
      failed.copy(into.data(), into.size() - 1);
      return;
    }
  }

 private:
  const char* path(char kind, size_t i) {
    std::array<char, PATH_MAX>& into = kind == 'f' ? path_ : other_;
    std::snprintf(into.data(), into.size(), "%s/%c.%u.%zu", dir_.c_str(), kind, number_, i);
    return into.data();
  }

  int run_one(FilesStep step, size_t i) {
    struct stat facts = {};
    switch (step) {
      case FilesStep::create: return close_file(open_file(i, O_CREAT | O_EXCL | O_WRONLY));
      case FilesStep::stat: return ::stat(path('f', i), &facts) == 0 ? 0 : errno;
      case FilesStep::rename: return ::rename(path('f', i), path('r', i)) == 0 ? 0 : errno;
      case FilesStep::remove_renamed: return ::unlink(path('r', i)) == 0 ? 0 : errno;
      case FilesStep::write: return transfer(open_file(i, O_CREAT | O_EXCL | O_WRONLY), true);
      case FilesStep::read: return transfer(open_file(i, O_RDONLY), false);
      case FilesStep::remove: return ::unlink(path('f', i)) == 0 ? 0 : errno;
    }
    return EINVAL;
  }
  int open_file(size_t i, int flags) { return ::open(path('f', i), flags | O_CLOEXEC, 0644); }
  static int close_file(int fd) { return fd >= 0 && ::close(fd) == 0 ? 0 : errno; }
  int transfer(int fd, bool writes) {
    if (fd < 0) return errno;
    size_t done = 0;
    while (done < data_.size()) {
      const ssize_t moved = writes ? ::write(fd, data_.data() + done, data_.size() - done)
                                   : ::read(fd, data_.data() + done, data_.size() - done);
      if (moved < 0) {
        const int error = errno;
        ::close(fd);
        return error;
      }
      if (moved == 0) break;  // a file that is too short
      done += static_cast<size_t>(moved);
    }
    const int error = close_file(fd);
    return error == 0 && done < data_.size() ? EIO : error;
  }

  const unsigned number_;
  const std::string dir_;
  SharedTimes& shared_;
  std::string data_;
  std::array<char, PATH_MAX> path_ = {};
  std::array<char, PATH_MAX> other_ = {};
};

// The processes; they end when their pipes close, and are killed with this object.
class FilesClients {
 public:
  FilesClients() = default;
  FilesClients(const FilesClients&) = delete;
  FilesClients& operator=(const FilesClients&) = delete;
  ~FilesClients() {
    for (const Started& one : started_) ::kill(one.pid, SIGKILL);
    for (const Started& one : started_) ::waitpid(one.pid, nullptr, 0);
  }

  Result<void> start(FilesClient& client) {
    int orders[2];
    int reports[2];
    if (::pipe2(orders, O_CLOEXEC) != 0) return errno_error(errno, "a pipe");
    Fd order_reader(orders[0]), order_writer(orders[1]);
    if (::pipe2(reports, O_CLOEXEC) != 0) return errno_error(errno, "a pipe");
    Fd report_reader(reports[0]), report_writer(reports[1]);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return errno_error(errno, "starting a process of the load");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      uint8_t order = 0;
      while (::read(order_reader.get(), &order, 1) == 1) {
        client.run_phase(static_cast<FilesStep>(order));
        if (::write(report_writer.get(), &order, 1) != 1) break;
      }
      ::_exit(0);
    }
    started_.push_back({pid, std::move(order_writer), std::move(report_reader)});
    return {};
  }

  // Starts a phase in all processes, and waits until all have ended it.
  Result<void> run_phase(const StopToken& stop, FilesStep step) {
    const auto order = static_cast<uint8_t>(step);
    for (const Started& one : started_) {
      if (::write(one.orders.get(), &order, 1) != 1) return errno_error(errno, "a pipe");
    }
    constexpr int kLookMs = 100;
    for (const Started& one : started_) {
      pollfd report{one.reports.get(), POLLIN, 0};
      while (::poll(&report, 1, kLookMs) <= 0) FF_TRY(stop.check());
      uint8_t ended = 0;
      if (::read(one.reports.get(), &ended, 1) == 1) continue;
      return fail(Errc::failed, "a process of the load (pid {}) has died", one.pid);
    }
    return {};
  }

 private:
  struct Started {
    pid_t pid = 0;
    Fd orders, reports;
  };
  std::vector<Started> started_;
};

double quantile_seconds(std::span<uint32_t> times, double share) {
  const auto at = static_cast<size_t>(static_cast<double>(times.size() - 1) * share);
  std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(at));
  return to_seconds(times[at]);
}

std::string directory_of(const std::string& dir, const SmallFilesLoad& load, unsigned process) {
  return load.own_directories ? fmt::format("{}/{}", dir, process) : dir;
}

Result<void> first_error(SharedTimes& shared, const SmallFilesLoad& load) {
  for (unsigned i = 0; i < load.processes; i++) {
    const ClientOutcome& outcome = shared.outcome(i);
    if (outcome.error != 0) return errno_error(outcome.error, outcome.path.data());
  }
  return {};
}

}  // namespace

uint64_t files_operations(const SmallFilesLoad& load) {
  return load.processes * load.files * kPhases.size();
}

Result<std::vector<FilesPhase>> run_files_load(const StopToken& stop, Progress& progress,
                                               const std::string& dir, const SmallFilesLoad& load) {
  FF_TRY(auto shared, SharedTimes::make(load));
  FilesClients clients;
  for (unsigned i = 0; i < load.processes; i++) {
    const std::string where = directory_of(dir, load, i);
    if (load.own_directories && ::mkdir(where.c_str(), 0755) != 0) return errno_error(errno, where);
    FilesClient client(i, where, load, shared);
    FF_TRY(clients.start(client));
  }
  const uint64_t operations = load.processes * load.files;
  std::vector<FilesPhase> phases;
  SystemClock clock;
  for (const PhaseKind& phase : kPhases) {
    const io::CpuMeter cpu;
    const int64_t began_ns = clock.steady_ns();
    FF_TRY(clients.run_phase(stop, phase.step));
    const double seconds = to_seconds(clock.steady_ns() - began_ns);
    FF_TRY(first_error(shared, load));
    progress.done += operations;
    if (phase.name == nullptr) continue;
    phases.push_back({.name = phase.name,
                      .operations = operations,
                      .seconds = seconds,
                      .p50_seconds = quantile_seconds(shared.all_times(), 0.5),
                      .p99_seconds = quantile_seconds(shared.all_times(), 0.99),
                      .cpu_seconds = cpu.seconds() / static_cast<double>(operations)});
  }
  for (unsigned i = 0; load.own_directories && i < load.processes; i++) {
    const std::string where = directory_of(dir, load, i);
    if (::rmdir(where.c_str()) != 0) return errno_error(errno, where);
  }
  return phases;
}

}  // namespace ff::bench
