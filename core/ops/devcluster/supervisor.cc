// supervisor.cc: the daemons of a folder, and what those who started it say.
#include "ops/devcluster/supervisor.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/base/log.h"
#include "platform/base/wait.h"

namespace ff::devcluster {

Supervisor::Supervisor(Loop& loop, io::Disk& disk, Rng& rng, Folder& folder, Made made,
                       Options options)
    : loop_(loop),
      folder_(folder),
      made_(std::move(made)),
      options_(std::move(options)),
      running_{.supervisor = ::getpid(),
               .since_ns = loop.clock().wall_ns(),
               .mount = options_.mount,
               .schedule = options_.schedule,
               .services = {}},
      keeper_(loop, disk, rng,
              {.program = options_.program, .env = options_.env, .logs = folder.logs()},
              [this] { note(); }) {}

void Supervisor::note() {
  running_.services = keeper_.standings();
  if (auto noted = folder_.set_running(running_); !noted) {
    log_warning("what runs cannot be noted", {{"cause", noted.error().message}});
  }
  if (options_.changed) options_.changed();
}

Task<void> Supervisor::listen() {
  const auto watch = loop_.watch(options_.pipe);
  while (watch) {
    (*watch)->readable.reset();
    char said = 0;
    const ssize_t got = ::read(options_.pipe, &said, 1);
    if (got == 1 && said == static_cast<char>(Word::go_on)) co_return;
    if (got == 1 && said == static_cast<char>(Word::mount)) {
      keeper_.start(folder_.mount_service(made_, options_.mount));
    }
    if (got == 1 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || errno != EAGAIN) break;
    const auto waited = co_await (*watch)->readable.wait();
    if (!waited) co_return;
  }
  log_warning("whoever has started this is gone");
  left_ = true;
}

Task<void> Supervisor::run(std::function<bool()> stop) {
  log_info("supervises", {{"folder", folder_.path()}, {"pid", running_.supervisor}});
  Gate listening(loop_);
  note();
  for (Service& service : folder_.daemons(made_)) keeper_.start(std::move(service));
  if (options_.schedule) {
    for (Service& service : folder_.schedule_services(made_)) keeper_.start(std::move(service));
  }
  listening.spawn(listen());
  auto waiting = poll_until(loop_, [this, &stop] { return left_ || stop(); });
  co_await std::move(waiting);
  log_info("stopping");
  Error over = fail(Errc::interrupted, "it stops");
  auto closing = listening.close(std::move(over));
  co_await std::move(closing);
  auto stopping = keeper_.stop();
  co_await std::move(stopping);
  log_info("all have ended");
  if (auto forgotten = folder_.forget_running(); !forgotten) {
    log_warning("what ran cannot be forgotten", {{"cause", forgotten.error().message}});
  }
}

}  // namespace ff::devcluster
