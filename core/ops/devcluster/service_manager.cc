// service_manager.cc: runs and restarts each service, and stops all.
#include "ops/devcluster/service_manager.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/log.h"
#include "platform/io/files.h"

namespace ff::devcluster {
namespace {

constexpr size_t kLineMax = 1024;  // bytes that are kept of a line
constexpr size_t kLastLines = 5;   // lines

}  // namespace

struct ServiceManager::ManagedService {
  ManagedService(Loop& loop, ServiceSpec spec_of, LogFile file)
      : spec(std::move(spec_of)), log(std::move(file)), stop_requested(loop), over(loop) {
    status.name = spec.name;
  }

  const ServiceSpec spec;
  LogFile log;
  ServiceStatus status;
  std::unique_ptr<Process> process;     // null: not running
  std::string line;                     // the incomplete last line
  std::vector<std::string> last_lines;  // of this process
  Event stop_requested;
  Event over;
};

ServiceManager::ServiceManager(Loop& loop, io::Disk& disk, Rng& rng, Options options,
                               std::function<void()> changed)
    : loop_(loop),
      disk_(disk),
      rng_(rng),
      options_(std::move(options)),
      changed_(std::move(changed)),
      gate_(loop) {}

ServiceManager::~ServiceManager() = default;

void ServiceManager::start(ServiceSpec spec) {
  LogFile log(disk_, io::join(options_.logs, spec.name + ".log"), options_.log_limit);
  auto& service = *services_.emplace_back(
      std::make_unique<ManagedService>(loop_, std::move(spec), std::move(log)));
  gate_.spawn(supervise(service));
}

std::vector<ServiceStatus> ServiceManager::statuses() const {
  std::vector<ServiceStatus> all;
  for (const auto& service : services_) all.push_back(service->status);
  return all;
}

Task<void> ServiceManager::supervise(ManagedService& service) {
  Backoff backoff(rng_, options_.first_pause_ns, options_.last_pause_ns);
  while (!service.stop_requested.is_set()) {
    const int64_t started_ns = loop_.now_ns();
    const bool again = co_await run_once(service);
    if (!again) break;
    if (loop_.now_ns() - started_ns >= options_.healthy_ns) backoff.reset();
    const int64_t pause_ns = backoff.next_delay_ns();
    service.status.restarts++;
    log_warning("a daemon has exited and is restarted",
                {{"name", service.spec.name},
                 {"end", service.status.exit_text},
                 {"restarts", service.status.restarts},
                 {"pause_ms", pause_ns / kMillisecond},
                 {"said", service.last_lines.empty() ? "" : service.last_lines.back()}});
    changed_();
    (void)co_await service.stop_requested.wait(loop_.now_ns() + pause_ns);
  }
  service.over.set();
}

Task<bool> ServiceManager::run_once(ManagedService& service) {
  service.last_lines.clear();
  service.line.clear();
  ProcessOptions options{options_.program, service.spec.argv, options_.env};
  options.argv.insert(options.argv.begin(), "ff");
  auto started = Process::start(loop_, options);
  Result<int> wait_status = 0;
  if (started) {
    service.process = std::move(*started);
    service.status.pid = service.process->pid();
    log_info("started a daemon", {{"name", service.spec.name}, {"pid", service.status.pid}});
    changed_();
    auto running = service.process->run(
        [this, &service](std::string_view bytes) { handle_output(service, bytes); });
    wait_status = co_await std::move(running);
    service.process.reset();
  } else {
    wait_status = started.error();
  }
  if (!service.line.empty()) handle_line(service);
  ServiceStatus& status = service.status;
  status.pid = 0;
  status.ready = false;
  status.exit_text = wait_status ? describe_exit(*wait_status) : wait_status.error().message;
  status.exited_ns = loop_.clock().wall_ns();
  status.last_output = service.last_lines;
  changed_();
  co_return !service.stop_requested.is_set();
}

void ServiceManager::handle_output(ManagedService& service, std::string_view bytes) {
  service.log.write(bytes);
  for (const char c : bytes) {
    if (c == '\n') {
      handle_line(service);
    } else if (service.line.size() < kLineMax) {
      service.line += c;
    }
  }
}

void ServiceManager::handle_line(ManagedService& service) {
  std::string line = std::exchange(service.line, {});
  if (!service.status.ready && line.find(service.spec.ready_text) != line.npos) {
    service.status.ready = true;
    service.status.was_ready = true;
    changed_();
  }
  service.last_lines.push_back(std::move(line));
  if (service.last_lines.size() > kLastLines) service.last_lines.erase(service.last_lines.begin());
}

Task<void> ServiceManager::wait_stopped(ManagedService& service) {
  const auto ended = co_await service.over.wait(loop_.now_ns() + options_.patience_ns);
  if (ended || service.process == nullptr) co_return;
  log_error("a daemon does not stop and is killed", {{"name", service.spec.name}});
  service.process->signal(SIGKILL);
  (void)co_await service.over.wait();
}

Task<void> ServiceManager::stop() {
  std::set<unsigned, std::greater<>> priorities;
  for (const auto& service : services_) priorities.insert(service->spec.stop_priority);
  for (const unsigned priority : priorities) {
    for (const auto& service : services_) {
      if (service->spec.stop_priority != priority) continue;
      service->stop_requested.set();
      if (service->process != nullptr) service->process->signal(SIGTERM);
    }
    for (const auto& service : services_) {
      if (service->spec.stop_priority != priority) continue;
      co_await wait_stopped(*service);
    }
  }
  co_await gate_.wait_empty();
}

}  // namespace ff::devcluster
