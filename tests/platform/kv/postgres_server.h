// Real PostgreSQL servers on loopback (Debian's packages postgresql-15 and later), each with a
// directory of its own. A test can kill, restart and promote them. They end with the test process.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/temp_dir.h"
#include "platform/kv/postgres_connection.h"

namespace ff::kv {

class PostgresServer {
 public:
  struct Options {
    std::vector<std::string> settings = {};   // lines of postgresql.conf
    std::vector<std::string> hba = {};        // lines of pg_hba.conf, before "trust"
    const PostgresServer* primary = nullptr;  // the server is its standby
    int disk_mib = 0;  // size of a disk of its own for everything (tmpfs, needs root); 0: no limit
  };
  // A new server, which accepts connections.
  PostgresServer() : PostgresServer(Options{}) {}
  explicit PostgresServer(Options options) : port_(free_port()) {
    std::filesystem::permissions(dir_.path(), std::filesystem::perms::all);
    if (options.disk_mib > 0) set_disk_size(options.disk_mib);
    if (options.primary == nullptr) {
      execute({program("initdb"), "-D", data(), "-U", "ff", "-A", "trust", "-E", "UTF8",
               "--no-locale", "--no-sync", "--wal-segsize=1"});
    } else {
      execute({program("pg_basebackup"), "-D", data(), "-R", "-c", "fast", "--no-sync", "-d",
               fmt::format("host=127.0.0.1 port={} user=ff application_name=standby",
                           options.primary->port())});
    }
    // Data need not survive the machine, only the server: no test takes the power away.
    append("postgresql.conf",
           {"fsync = off", "shared_buffers = 16MB", "max_connections = 60", "max_wal_senders = 4",
            "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''",
            "log_min_messages = fatal", fmt::format("port = {}", port_)});
    append("postgresql.conf", options.settings);
    std::ostringstream rest;
    rest << std::ifstream(data() + "/pg_hba.conf").rdbuf();
    std::filesystem::resize_file(data() + "/pg_hba.conf", 0);
    append("pg_hba.conf", options.hba);
    append("pg_hba.conf", {rest.str()});
    start();
  }
  ~PostgresServer() {
    stop(SIGQUIT);
    if (mounted_) ::umount2(data().c_str(), MNT_DETACH);
  }
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  uint16_t port() const { return port_; }
  // Of the server's own disk, which a full one may outgrow.
  void set_disk_size(int mib) {
    std::filesystem::create_directory(data());
    ASSERT_EQ(::mount("none", data().c_str(), "tmpfs", mounted_ ? MS_REMOUNT : 0,
                      fmt::format("size={}m", mib).c_str()),
              0);
    if (!mounted_) give_path(data(), 0700);
    mounted_ = true;
  }
  std::string file(const std::string& name) const { return data() + "/" + name; }
  // Makes the server the owner of a file in its directory, which nobody else may read.
  void give(const std::string& name) const { give_path(file(name), 0600); }
  static void give_path(const std::string& path, mode_t mode) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const passwd* const user = ::getpwnam("postgres");
    if (::getuid() != 0) return;
    ASSERT_EQ(::chown(path.c_str(), user != nullptr ? user->pw_uid : 65534, -1), 0);
  }
  static std::string url(const std::vector<uint16_t>& ports, const std::string& database) {
    std::string hosts;
    for (const uint16_t port : ports) {
      hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", port);
    }
    return fmt::format("postgres://ff@{}/{}?sslmode=disable", hosts, database);
  }
  static PostgresOptions options(const std::vector<uint16_t>& ports, const std::string& database) {
    return parse_postgres_url(url(ports, database)).value();
  }

  // Repeats it while processes of a killed server still hold its memory.
  void start() {
    const bool started = until([&] {
      if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
      if (pid_ <= 0) pid_ = spawn({program("postgres"), "-D", data()});
      return accepts();
    });
    ASSERT_TRUE(started) << "PostgreSQL (package postgresql) does not serve:\n" << log();
  }
  // SIGQUIT: ends at once and cleans up. SIGKILL: with all its processes, which would otherwise go
  // on until they notice.
  void stop(int signal) {
    if (pid_ <= 0) return;
    std::vector<pid_t> all = {pid_};
    std::ifstream children(fmt::format("/proc/{}/task/{}/children", pid_, pid_));
    for (pid_t child = 0; signal == SIGKILL && children >> child;) all.push_back(child);
    for (const pid_t one : all) ::kill(one, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void promote() {
    execute({program("pg_ctl"), "-D", data(), "-W", "promote"});
    EXPECT_TRUE(until([&] { return sql("postgres", "SELECT pg_is_in_recovery()") == "f"; }));
  }
  // The first value of the result, or the error.
  std::string sql(const std::string& database, const std::string& text) const {
    const std::unique_ptr<PGconn, decltype(&PQfinish)> connection(
        PQconnectdb(
            fmt::format("host=127.0.0.1 port={} user=ff dbname={} sslmode=disable", port_, database)
                .c_str()),
        &PQfinish);
    if (PQstatus(connection.get()) != CONNECTION_OK) return PQerrorMessage(connection.get());
    const std::unique_ptr<PGresult, decltype(&PQclear)> result(
        PQexec(connection.get(), text.c_str()), &PQclear);
    if (PQresultStatus(result.get()) == PGRES_COMMAND_OK) return "";
    if (PQresultStatus(result.get()) != PGRES_TUPLES_OK) return PQerrorMessage(connection.get());
    return PQntuples(result.get()) == 0 ? "" : PQgetvalue(result.get(), 0, 0);
  }
  // A new database, and its name.
  std::string create_database() {
    const std::string name = fmt::format("ff{}", ++databases_);
    EXPECT_EQ(sql("postgres", "CREATE DATABASE " + name), "");
    return name;
  }
  template <class Condition>
  static bool until(Condition condition) {
    SystemClock clock;
    const int64_t deadline_ns = clock.steady_ns() + 60 * kSecond;
    while (!condition()) {
      if (clock.steady_ns() > deadline_ns) return false;
      clock.sleep_ns(20 * kMillisecond);
    }
    return true;
  }

 private:
  std::string data() const { return dir_.path() + "/data"; }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(dir_.path() + "/log").rdbuf();
    return text.str();
  }
  // The newest version that is installed.
  static std::string program(const std::string& name) {
    std::string found = name;
    std::error_code error;
    for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", error)) {
      const std::string path = version.path() / "bin" / name;
      if (std::filesystem::exists(path)) found = std::max(found == name ? path : found, path);
    }
    return found;
  }
  void append(const std::string& name, const std::vector<std::string>& lines) {
    std::ofstream out(data() + "/" + name, std::ios::app);
    for (const std::string& line : lines) out << line << "\n";
  }
  bool accepts() const { return sql("postgres", "SELECT 1") == "1"; }

  // PostgreSQL refuses to run as root.
  static void drop_root() {
    if (::getuid() != 0) return;
    const passwd* const user = ::getpwnam("postgres");
    const uid_t uid = user != nullptr ? user->pw_uid : 65534;
    if (::setgroups(0, nullptr) != 0 || ::setgid(user != nullptr ? user->pw_gid : 65534) != 0 ||
        ::setuid(uid) != 0) {
      ::_exit(126);
    }
  }
  pid_t spawn(std::vector<std::string> words) const {
    const std::string log = dir_.path() + "/log";
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    drop_root();
    ::prctl(PR_SET_PDEATHSIG, SIGQUIT);
    if (::getppid() != parent) ::_exit(1);
    const int out = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  void execute(std::vector<std::string> words) const {
    int status = 0;
    ::waitpid(spawn(std::move(words)), &status, 0);
    ASSERT_EQ(status, 0) << log();
  }
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

  io::TempDir dir_;
  const uint16_t port_;
  pid_t pid_ = -1;
  int databases_ = 0;
  bool mounted_ = false;  // on data()
};

// A server that all tests of the process share, each with databases of its own.
inline PostgresServer& shared_postgres() {
  static PostgresServer shared;
  return shared;
}

}  // namespace ff::kv
