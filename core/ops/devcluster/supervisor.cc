// supervisor.cc: runs the daemons of a folder, and reads commands from the pipe.
#include "ops/devcluster/supervisor.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/wait.h"

namespace ff::devcluster {

Supervisor::Supervisor(Loop& loop, io::Disk& disk, Rng& rng, ClusterDir& folder,
                       ClusterConfig config, Options options)
    : loop_(loop),
      folder_(folder),
      config_(std::move(config)),
      options_(std::move(options)),
      status_{.supervisor = ::getpid(),
              .since_ns = loop.clock().wall_ns(),
              .mount = options_.mount,
              .schedule = options_.schedule,
              .kv = options_.kv,
              .services = {}},
      manager_(loop, disk, rng,
               {.program = options_.program, .env = options_.env, .logs = folder.logs()},
               [this] { write_status(); }) {}

void Supervisor::write_status() {
  status_.services = manager_.statuses();
  if (auto written = folder_.set_status(status_); !written) {
    log_warning("cannot write the status of the daemons", {{"cause", written.error().message}});
  }
  if (options_.changed) options_.changed();
}

Task<void> Supervisor::read_commands() {
  const auto watch = loop_.watch(options_.pipe);
  while (watch) {
    (*watch)->readable.reset();
    char command = 0;
    const ssize_t got = ::read(options_.pipe, &command, 1);
    if (got == 1 && command == static_cast<char>(SupervisorCommand::detach)) co_return;
    if (got == 1 && command == static_cast<char>(SupervisorCommand::mount)) {
      manager_.start(folder_.mount_service(config_, options_.mount));
    }
    if (got == 1 && command == static_cast<char>(SupervisorCommand::kv)) {
      manager_.start(folder_.kv_service(config_));
    }
    if (got == 1 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || errno != EAGAIN) break;
    const auto waited = co_await (*watch)->readable.wait();
    if (!waited) co_return;
  }
  log_warning("the process that started the supervisor is gone");
  parent_gone_ = true;
}

Task<void> Supervisor::run(std::function<bool()> stop) {
  log_info("the supervisor has started", {{"folder", folder_.path()}, {"pid", status_.supervisor}});
  Gate reading_commands(loop_);
  write_status();
  for (ServiceSpec& service : folder_.daemons(config_)) manager_.start(std::move(service));
  if (options_.schedule) {
    for (ServiceSpec& service : folder_.schedule_services(config_))
      manager_.start(std::move(service));
  }
  reading_commands.spawn(read_commands());
  auto waiting = poll_until(loop_, [this, &stop] { return parent_gone_ || stop(); });
  co_await std::move(waiting);
  log_info("stopping");
  Error over = fail(Errc::interrupted, "the supervisor is stopping");
  co_await reading_commands.close(std::move(over));
  co_await manager_.stop();
  log_info("all daemons have stopped");
  if (auto forgotten = folder_.clear_status(); !forgotten) {
    log_warning("cannot remove the status file", {{"cause", forgotten.error().message}});
  }
}

}  // namespace ff::devcluster
