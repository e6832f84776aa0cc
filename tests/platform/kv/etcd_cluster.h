// Real etcd members on loopback, each a process with its own directory. A test can kill, pause and
// restart them. They end with the test process.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/io/temp_dir.h"
#include "platform/kv/etcd_gateway.h"

namespace ff::kv {

class EtcdCluster {
 public:
  // TLS: files of a certificate for 127.0.0.1 and of who has signed it; clients must show one too.
  struct Tls {
    std::string ca_file, cert_file, key_file;
  };
  explicit EtcdCluster(size_t members, Tls tls = {}) : tls_(std::move(tls)) {
    // Somebody else may take a port between the look and the start.
    for (int tries = 0; tries < 5 && !serves_; tries++) {
      for (size_t i = 0; i < members_.size(); i++) kill(i);
      members_.clear();
      run_++;
      for (size_t i = 0; i < members; i++) members_.push_back({free_port(), free_port(), -1});
      for (size_t i = 0; i < members; i++) start(i);
      wait_until_it_serves();
    }
    EXPECT_TRUE(serves_) << "etcd (package etcd-server) does not serve:\n" << log();
  }
  ~EtcdCluster() {
    for (size_t i = 0; i < members_.size(); i++) kill(i);
  }
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  size_t size() const { return members_.size(); }
  uint16_t port(size_t i) const { return members_[i].client_port; }
  std::string endpoint(size_t i) const {
    return fmt::format("{}://127.0.0.1:{}", tls_.ca_file.empty() ? "http" : "https",
                       members_[i].client_port);
  }
  EtcdOptions options() const {
    EtcdOptions options;
    for (size_t i = 0; i < members_.size(); i++) options.endpoints.push_back(endpoint(i));
    options.tls = {tls_.ca_file, tls_.cert_file, tls_.key_file};
    return options;
  }

  void start(size_t i) {
    std::string cluster;
    for (size_t m = 0; m < members_.size(); m++) {
      cluster +=
          fmt::format("{}m{}=http://127.0.0.1:{}", m == 0 ? "" : ",", m, members_[m].peer_port);
    }
    const std::string peer = fmt::format("http://127.0.0.1:{}", members_[i].peer_port);
    std::vector<std::string> words = {
        "etcd", "--name", fmt::format("m{}", i), "--data-dir", dir_of(i), "--listen-peer-urls",
        peer, "--initial-advertise-peer-urls", peer, "--listen-client-urls", endpoint(i),
        "--advertise-client-urls", endpoint(i), "--initial-cluster", cluster,
        "--initial-cluster-state", "new",
        // A member of a test machine is slow to write, not far away.
        "--heartbeat-interval", "100", "--election-timeout", "1000"};
    if (!tls_.ca_file.empty()) {
      words.insert(words.end(), {"--cert-file", tls_.cert_file, "--key-file", tls_.key_file,
                                 "--trusted-ca-file", tls_.ca_file, "--client-cert-auth"});
    }
    const std::string log = log_of(i);
    const pid_t parent = ::getpid();
    members_[i].pid = ::fork();
    ASSERT_GE(members_[i].pid, 0);
    if (members_[i].pid != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const int out = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp("etcd", argv.data());
    ::_exit(127);
  }
  void kill(size_t i) {
    if (members_[i].pid <= 0) return;
    ::kill(members_[i].pid, SIGKILL);
    ::waitpid(members_[i].pid, nullptr, 0);
    members_[i].pid = -1;
  }
  // Returns when all of its threads are stopped.
  void halt(size_t i) {
    ::kill(members_[i].pid, SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(members_[i].pid, &status, WUNTRACED), members_[i].pid);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void go_on(size_t i) { ::kill(members_[i].pid, SIGCONT); }

 private:
  struct Member {
    uint16_t client_port = 0;
    uint16_t peer_port = 0;
    pid_t pid = -1;
  };

  // Below the ephemeral port range.
  static uint16_t free_port() {
    SeededRng rng(system_seed());
    for (;;) {
      const auto port = static_cast<uint16_t>(12'000 + rng.below(20'000));
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port);
      const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
      ::close(fd);
      if (bound) return port;
    }
  }
  std::string dir_of(size_t i) const { return dir_.path() + fmt::format("/m{}.{}", i, run_); }
  std::string log_of(size_t i) const { return dir_of(i) + ".log"; }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(log_of(0)).rdbuf();
    return text.str();
  }

  // Until a transaction could be written, or a member has ended.
  void wait_until_it_serves() {
    SystemClock clock;
    SystemLoop loop(clock);
    EtcdGateway gateway(options());
    const int64_t deadline_ns = loop.now_ns() + 120 * kSecond;
    while (loop.now_ns() < deadline_ns) {
      serves_ = run_task(loop, gateway.grant(loop, 600, deadline_ns)).ok();
      if (serves_) return;
      for (Member& member : members_) {
        if (::waitpid(member.pid, nullptr, WNOHANG) != member.pid) continue;
        member.pid = -1;
        return;
      }
      (void)run_task(loop, pause(loop));
    }
  }
  static Task<Result<void>> pause(Loop& loop) {
    co_return co_await sleep_for(loop, 20 * kMillisecond);
  }

  const Tls tls_;
  io::TempDir dir_;
  int run_ = 0;
  bool serves_ = false;
  std::vector<Member> members_;
};

}  // namespace ff::kv
