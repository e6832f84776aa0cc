// keeper.cc: the life of each program that is kept, and the end of all.
#include "ops/devcluster/keeper.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/log.h"
#include "platform/io/files.h"

namespace ff::devcluster {
namespace {

constexpr size_t kLineMax = 1024;  // of what is kept of a line, bytes
constexpr size_t kLastWords = 5;   // lines

}  // namespace

struct Keeper::Kept {
  Kept(Loop& loop, Service told, LogFile file)
      : service(std::move(told)), log(std::move(file)), told_to_stop(loop), over(loop) {
    standing.name = service.name;
  }

  const Service service;
  LogFile log;
  Standing standing;
  std::unique_ptr<Process> process;  // null: between two of them
  std::string line;                  // as far as it was heard
  std::vector<std::string> words;    // the last lines of this process
  Event told_to_stop;
  Event over;
};

Keeper::Keeper(Loop& loop, io::Disk& disk, Rng& rng, Options options, std::function<void()> changed)
    : loop_(loop),
      disk_(disk),
      rng_(rng),
      options_(std::move(options)),
      changed_(std::move(changed)),
      gate_(loop) {}

Keeper::~Keeper() = default;

void Keeper::start(Service service) {
  LogFile log(disk_, io::join(options_.logs, service.name + ".log"), options_.log_limit);
  auto& kept =
      *kept_.emplace_back(std::make_unique<Kept>(loop_, std::move(service), std::move(log)));
  gate_.spawn(keep(kept));
}

std::vector<Standing> Keeper::standings() const {
  std::vector<Standing> all;
  for (const auto& kept : kept_) all.push_back(kept->standing);
  return all;
}

Task<void> Keeper::keep(Kept& kept) {
  Backoff backoff(rng_, options_.first_pause_ns, options_.last_pause_ns);
  while (!kept.told_to_stop.is_set()) {
    const int64_t started_ns = loop_.now_ns();
    auto running = run_once(kept);
    const bool again = co_await std::move(running);
    if (!again) break;
    if (loop_.now_ns() - started_ns >= options_.healthy_ns) backoff.reset();
    const int64_t pause_ns = backoff.pause_ns();
    kept.standing.restarts++;
    log_warning("a daemon has ended and is started again",
                {{"name", kept.service.name},
                 {"end", kept.standing.end},
                 {"restarts", kept.standing.restarts},
                 {"pause_ms", pause_ns / kMillisecond},
                 {"said", kept.words.empty() ? "" : kept.words.back()}});
    changed_();
    (void)co_await kept.told_to_stop.wait(loop_.now_ns() + pause_ns);
  }
  kept.over.set();
}

Task<bool> Keeper::run_once(Kept& kept) {
  kept.words.clear();
  kept.line.clear();
  ProcessOptions options{options_.program, kept.service.argv, options_.env};
  options.argv.insert(options.argv.begin(), "ff");
  auto started = Process::start(loop_, options);
  Result<int> status = 0;
  if (started) {
    kept.process = std::move(*started);
    kept.standing.pid = kept.process->pid();
    log_info("has started a daemon", {{"name", kept.service.name}, {"pid", kept.standing.pid}});
    changed_();
    auto running = kept.process->run([this, &kept](std::string_view bytes) { hear(kept, bytes); });
    status = co_await std::move(running);
    kept.process.reset();
  } else {
    status = started.error();
  }
  if (!kept.line.empty()) hear_line(kept);
  Standing& standing = kept.standing;
  standing.pid = 0;
  standing.serves = false;
  standing.end = status ? how_it_ended(*status) : status.error().message;
  standing.ended_ns = loop_.clock().wall_ns();
  standing.last_words = kept.words;
  changed_();
  co_return !kept.told_to_stop.is_set();
}

void Keeper::hear(Kept& kept, std::string_view bytes) {
  kept.log.write(bytes);
  for (const char c : bytes) {
    if (c == '\n') {
      hear_line(kept);
    } else if (kept.line.size() < kLineMax) {
      kept.line += c;
    }
  }
}

void Keeper::hear_line(Kept& kept) {
  std::string line = std::exchange(kept.line, {});
  if (!kept.standing.serves && line.find(kept.service.serves) != line.npos) {
    kept.standing.serves = true;
    kept.standing.served = true;
    changed_();
  }
  kept.words.push_back(std::move(line));
  if (kept.words.size() > kLastWords) kept.words.erase(kept.words.begin());
}

Task<void> Keeper::end(Kept& kept) {
  const auto ended = co_await kept.over.wait(loop_.now_ns() + options_.patience_ns);
  if (ended || kept.process == nullptr) co_return;
  log_error("a daemon does not end and is killed", {{"name", kept.service.name}});
  kept.process->signal(SIGKILL);
  (void)co_await kept.over.wait();
}

Task<void> Keeper::stop() {
  std::set<unsigned, std::greater<>> ranks;
  for (const auto& kept : kept_) ranks.insert(kept->service.rank);
  for (const unsigned rank : ranks) {
    for (const auto& kept : kept_) {
      if (kept->service.rank != rank) continue;
      kept->told_to_stop.set();
      if (kept->process != nullptr) kept->process->signal(SIGTERM);
    }
    for (const auto& kept : kept_) {
      if (kept->service.rank != rank) continue;
      auto ending = end(*kept);
      co_await std::move(ending);
    }
  }
  auto emptying = gate_.wait_empty();
  co_await std::move(emptying);
}

}  // namespace ff::devcluster
