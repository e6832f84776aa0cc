// net_server.cc: assembles a server, and runs it in a child process.
#include "lab/bench/net_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lab/bench/net_service.h"
#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/rpc/http.h"
#include "platform/rpc/server.h"

namespace ff::bench {

namespace {

constexpr unsigned kDepth = 128;

std::string status(const rpc::Server& server, const net::Address& at) {
  return fmt::format(R"({{"role":"bench","address":"{}","connections":{}}})", at.text(),
                     server.connections());
}

// Closes what is still open.
void close_inherited(int keep) {
  for (int fd = 3; fd < 1024; fd++) {
    if (fd != keep) ::close(fd);
  }
}

bool hung_up(int fd) {
  pollfd watched = {fd, POLLIN, 0};
  return ::poll(&watched, 1, 0) > 0;
}

void tell(int fd, const std::string& line) {
  // hung_up() detects the death of the parent.
  (void)!::write(fd, line.data(), line.size());
}

// The child's whole life.
int serve_child(Clock& clock, NetServerOptions options, int life) {
  close_inherited(life);
  const auto listening = [life](const NetServerAddress& at) {
    tell(life, fmt::format("+{}\n", at.address.text()));
  };
  const auto served =
      serve_net(clock, std::move(options), listening, [life] { return hung_up(life); });
  if (served) return 0;
  tell(life, fmt::format("-{}\n", served.error().message));
  return 1;
}

Result<std::string> read_line(int fd) {
  std::string line;
  for (;;) {
    char c = 0;
    const ssize_t got = ::read(fd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(Errc::failed, "the benchmark's server process died");
    if (c == '\n') return line;
    line += c;
  }
}

}  // namespace

Result<void> serve_net(Clock& clock, NetServerOptions options,
                       std::function<void(const NetServerAddress&)> listening,
                       std::function<bool()> stop) {
  SystemLoop loop(clock);
  io::SystemDisk disk;
  std::unique_ptr<io::File> file;
  std::optional<io::AsyncQueue> queue;
  if (options.disk_dir) {
    auto made = make_bench_file(disk, *options.disk_dir);
    if (!made) {
      Error error = std::move(made).error();
      if (error.hint.empty()) error.hint = "Give --disk a directory with 1 GiB of free space.";
      return error;
    }
    file = std::move(*made);
    queue.emplace(disk, loop, kDepth);
  }
  net::SystemTransport transport(options.transport);
  FF_TRY(const ByteSpan memory, transport.allocate_shared_memory(NetService::kMemoryBytes));
  Metrics metrics;
  rpc::Router router;
  const NetService service(router, loop, memory, queue ? &*queue : nullptr, file.get());
  rpc::Identity self{.name = options.name, .software = options.software};
  rpc::Server server(loop, transport, router, metrics, std::move(self));
  NetServerAddress at;
  FF_TRY(at.address, server.listen(options.address));
  std::unique_ptr<rpc::HttpServer> http;
  if (options.http) {
    rpc::HttpOptions pages;
    pages.address = *options.http;
    pages.title = options.name;
    pages.status = [&server, &at] { return status(server, at.address); };
    auto started = rpc::HttpServer::start(loop, metrics, std::move(pages));
    if (!started) {
      run_task(loop, server.close(0));
      return std::move(started).error();
    }
    http = std::move(*started);
    at.http_port = http->port();
  }
  listening(at);
  run_task(loop, poll_until(loop, stop));
  http.reset();
  run_task(loop, server.close(0));
  run_task(loop, transport.drain(loop));
  return {};
}

Result<std::unique_ptr<NetServerChild>> NetServerChild::start(Clock& clock,
                                                              NetServerOptions options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error(errno, "a socket to the benchmark's server");
  }
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  std::unique_ptr<NetServerChild> child(new NetServerChild);
  child->pid_ = ::fork();
  if (child->pid_ < 0) return errno_error(errno, "the benchmark's server process");
  if (child->pid_ == 0) ::_exit(serve_child(clock, std::move(options), theirs.get()));
  theirs = Fd();
  child->lifeline_ = std::move(ours);
  FF_TRY(const std::string said, read_line(child->lifeline_.get()));
  if (!said.starts_with('+')) return fail(Errc::failed, "the server: {}", said.substr(1));
  FF_TRY(child->address_, net::parse_address(said.substr(1)));
  return child;
}

NetServerChild::~NetServerChild() {
  lifeline_ = Fd();
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ff::bench
