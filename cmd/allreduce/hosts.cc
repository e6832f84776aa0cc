// hosts.cc: runs one ssh process for each host, with its input, output and exit.
#include "cmd/allreduce/hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <set>
#include <sstream>
#include <thread>

#include "ops/validate/program.h"
#include "platform/base/fd.h"
#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "training/collective/environment.h"

namespace ff::cmd {

namespace {

constexpr int kTurnMs = 20;
constexpr int64_t kOthersNs =
    3 * kSecond;  // after the first failure, for the other hosts to report theirs
constexpr size_t kOutputMax = 64 * kMiB;
// Below the ephemeral ports of the kernel.
constexpr uint32_t kFirstPort = 20'000, kPorts = 12'000;
constexpr size_t kHostsMax = 1024;

struct Host {
  std::string name;
  uint32_t zone = 0;
  pid_t pid = -1;
  std::optional<int> status = {};  // as of waitpid(2)
  Fd input = {};                   // closed to end it
};

Result<std::vector<Host>> hosts_of(const std::string& list) {
  std::vector<Host> hosts;
  std::set<std::string> seen;
  std::string name;
  uint32_t zone = 0;
  for (const char c : list + ",") {
    if (c != ',' && c != '/') {
      name += c;
      continue;
    }
    if (name.empty() || name.starts_with('-')) {
      return fail(Errc::usage, "--hosts {}: '{}' is not a host name", list, name);
    }
    if (!seen.insert(name).second) {
      return fail(Errc::usage, "--hosts {}: {} is given twice", list, name);
    }
    hosts.push_back({.name = std::exchange(name, {}), .zone = zone});
    if (c == '/') zone++;
  }
  if (hosts.size() > kHostsMax) return fail(Errc::usage, "--hosts: at most {}", kHostsMax);
  return hosts;
}

// The arguments of this process.
Result<std::vector<std::string>> own_words() {
  io::SystemDisk disk;
  FF_TRY(const std::string line, io::read_file(disk, "/proc/self/cmdline", kMiB));
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

// The arguments for a host, without the options of this process only.
std::vector<std::string> words_for_host(std::vector<std::string> words) {
  const std::array<std::string, 5> kOwn = {"--hosts", "--ssh", "--port", "--key-file", "--nproc"};
  std::vector<std::string> kept;
  for (size_t i = 1; i < words.size(); i++) {
    const auto names = [&](const std::string& own) {
      return words[i] == own || words[i].starts_with(own + "=");
    };
    const auto own = std::ranges::find_if(kOwn, names);
    if (own == kOwn.end()) {
      kept.push_back(words[i]);
    } else if (words[i] == *own) {
      i++;  // and its value
    }
  }
  return kept;
}

// HOST of USER@HOST.
std::string address_of(const std::string& host) { return host.substr(host.find('@') + 1); }

class Hosts {
 public:
  Hosts(Session& session, const JobOptions& job) : session_(session), job_(job) {}
  ~Hosts() {
    for (Host& host : hosts_) host.input = {};
    for (const Host& host : hosts_) {
      if (host.pid > 0 && !host.status) ::kill(host.pid, SIGTERM);
    }
    const int64_t until_ns = clock().steady_ns() + kSecond;
    while (!reap() && clock().steady_ns() < until_ns) clock().sleep_ns(kTurnMs * kMillisecond);
    for (const Host& host : hosts_) {
      if (host.pid > 0 && !host.status) ::kill(host.pid, SIGKILL);
    }
    while (!reap()) clock().sleep_ns(kTurnMs * kMillisecond);
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  Result<void> run() {
    FF_TRY(hosts_, hosts_of(*job_.hosts));
    FF_TRY(read_key());
    FF_TRY(start_all());
    int64_t until_ns = INT64_MAX;
    for (bool hears = true; hears || !reap();) {
      FF_TRY(session_.stop.check());
      if (hears) hears = validate::read_available(output_.get(), heard_, kOutputMax);
      pass_on(false);
      reap();
      const bool is_over = failed_.has_value() || (job_.shrinks() && hosts_[0].status);
      if (is_over && until_ns == INT64_MAX) until_ns = clock().steady_ns() + kOthersNs;
      if (clock().steady_ns() > until_ns) break;
      pollfd wait{hears ? output_.get() : -1, POLLIN, 0};
      (void)::poll(&wait, 1, kTurnMs);
    }
    pass_on(true);
    return outcome();
  }

 private:
  Clock& clock() const { return session_.stop.clock(); }

  Result<void> read_key() {
    if (!job_.key_file) {
      auth::SecureRng rng;
      auth::Key key;
      auth::fill_random(key, rng);
      key_ = hex(key);
      return {};
    }
    io::SystemDisk disk;
    FF_TRY(const auth::Key key, collective::read_job_key(disk, *job_.key_file));
    key_ = hex(key);
    return {};
  }

  Result<void> start_all() {
    FF_TRY(auto words, own_words());
    words = words_for_host(std::move(words));
    std::array<char, 4096> path;
    const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
    if (size <= 0) return errno_error(errno, "/proc/self/exe");
    const std::string program(path.data(), static_cast<size_t>(size));
    const uint32_t each =
        job_.nproc.value_or(std::clamp(std::thread::hardware_concurrency(), 1U, 64U));
    SeededRng rng(system_seed());
    const uint64_t port = job_.port.value_or(kFirstPort + rng.below(kPorts));
    std::array<int, 2> ends;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
    output_ = Fd(ends[0]);
    const Fd write_end(ends[1]);
    ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
    for (size_t i = 0; i < hosts_.size(); i++) {
      std::string line = fmt::format(
          "RANK={} WORLD_SIZE={} MASTER_ADDR={} MASTER_PORT={} FF_PORT={} FF_KEY_FILE=- "
          "FF_ZONE={} FF_NET_SECURITY={} ",
          i * each, hosts_.size() * each, shell_quote(address_of(hosts_[0].name)), port, port,
          hosts_[i].zone, job_.security);
      line += shell_quote(program);
      for (const std::string& word : words) line += " " + shell_quote(word);
      line += fmt::format(" --nproc {}", each);
      FF_TRY(start(hosts_[i], line, i == 0 ? write_end.get() : -1));
    }
    return {};
  }

  // `output`: file descriptor for its output; -1: discarded.
  Result<void> start(Host& host, const std::string& line, int output) {
    std::vector<std::string> words;
    std::istringstream in(job_.ssh);
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty()) return fail(Errc::usage, "--ssh '{}': no command", job_.ssh);
    words.push_back(host.name);
    words.push_back(line);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::array<int, 2> ends;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe");
    const Fd read_end(ends[0]);
    host.input = Fd(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, read_end.get(), STDIN_FILENO);
    if (output >= 0) {
      ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    } else {
      ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    const int failed =
        ::posix_spawnp(&host.pid, argv[0], &actions, nullptr, argv.data(), ::environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
      host.pid = -1;
      return errno_error(failed, argv[0]);
    }
    const std::string digits = key_ + "\n";
    // If it has exited already, its exit code is the error.
    if (::write(host.input.get(), digits.data(), digits.size()) < 0) host.input = {};
    return {};
  }

  // Whether all hosts have ended.
  bool reap() {
    bool all = true;
    for (Host& host : hosts_) {
      if (host.pid <= 0 || host.status) continue;
      int status = 0;
      if (::waitpid(host.pid, &status, WNOHANG) == host.pid) {
        host.status = status;
        const auto index = static_cast<size_t>(&host - hosts_.data());
        const bool is_needed = index == 0 || !job_.shrinks();
        if (status != 0 && !failed_ && is_needed) failed_ = index;
      } else {
        all = false;
      }
    }
    return all;
  }

  // Prints the output of the first host: line by line, or at the end the data of its envelope.
  void pass_on(bool is_end) {
    if (session_.out.mode().json) return;
    size_t begin = 0;
    for (size_t end = 0; (end = heard_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      session_.out.line("{}", std::string_view(heard_).substr(begin, end - begin));
    }
    heard_.erase(0, begin);
    if (is_end && !heard_.empty()) session_.out.line("{}", heard_);
    (void)session_.out.flush();
  }

  Result<void> outcome() {
    std::optional<Error> said;
    if (session_.out.mode().json) said = take_envelope();
    if (!failed_) return {};
    const Host& host = hosts_[*failed_];
    if (said && *failed_ == 0) return *said;
    const int status = *host.status;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const std::string how = code >= 0 ? fmt::format("ended with exit code {}", code)
                                      : fmt::format("was ended by signal {}", WTERMSIG(status));
    Error error = fail(code_of(code), "{}: {} {}", host.name, job_.ssh, how);
    error.hint = code == 255 || code == 127
                     ? "Try the command by hand, and check that ff has the same path on that host."
                     : "See its messages above.";
    return error;
  }
  static Errc code_of(int exit) {
    for (size_t code = 0; code < kErrcCount; code++) {
      if (exit_code(static_cast<Errc>(code)) == exit) return static_cast<Errc>(code);
    }
    return Errc::failed;
  }
  std::optional<Error> take_envelope() {
    const Json envelope = Json::parse(heard_, nullptr, false);
    if (envelope.is_discarded() || !envelope.is_object()) return std::nullopt;
    if (envelope.contains("data")) session_.out.data(envelope["data"]);
    const auto error = envelope.find("error");
    if (error == envelope.end() || !error->is_object()) return std::nullopt;
    Error said = fail(errc_from_name(error->value("code", "")).value_or(Errc::failed), "{}",
                      error->value("message", ""));
    said.hint = error->value("hint", "");
    return said;
  }

  Session& session_;
  const JobOptions& job_;
  std::vector<Host> hosts_;
  std::string key_;  // hex
  Fd output_;        // of the first host
  std::string heard_;
  std::optional<size_t> failed_;  // the first host that failed and is needed
};

}  // namespace

Result<void> run_on_hosts(Session& session, const JobOptions& job) {
  return Hosts(session, job).run();
}

}  // namespace ff::cmd
