// `ff schedule serve`: the scheduler daemon, on SQLite in its own folder or on etcd.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cmd/cli/daemon.h"
#include "cmd/options/kv_options.h"
#include "cmd/options/meta_option.h"
#include "cmd/schedule/schedule.h"
#include "cmd/schedule/token_checker.h"
#include "ops/scheduler/page.h"
#include "ops/scheduler/service.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "storage/client/mode.h"

namespace ff::cmd {
namespace {

struct ScheduleServeOptions {
  DaemonOptions daemon = {.listen = "127.0.0.1:4500", .advertise = {}, .http = {}, .net = {}};
  KvOptions kv = {.profile = kScheduleKv};
  int64_t lease_ns = scheduler::SchedulerTimeouts().lease_ns;
  uint64_t keep_tasks = scheduler::SchedulerTimeouts().max_finished_tasks;
  int64_t validate_every_ns = 7 * 24 * 3600 * kSecond;
  uint32_t max_drained_percent = scheduler::HealthPolicy().max_drained_percent;
  std::optional<std::string> meta;
};

constexpr int64_t kLeaseLeastNs = 10 * kSecond;  // agents call every few seconds

// Parses "5%" or "5".
Binding percent(uint32_t& field) {
  constexpr uint32_t kAll = 100;
  const auto parse = [](std::string_view text) -> Result<uint32_t> {
    const auto value = parse_u64(text.substr(0, text.size() - (text.ends_with('%') ? 1 : 0)));
    if (value && *value <= kAll) return static_cast<uint32_t>(*value);
    return fail(Errc::usage, "'{}' is not a percentage between 0% and 100%", printable(text));
  };
  return bind(Kind::text, field, "PERCENT", parse,
              [](uint32_t value) { return fmt::format("{}%", value); });
}

// Parses "never" or a duration.
Binding period(int64_t& field) {
  const auto parse = [](std::string_view text) -> Result<int64_t> {
    if (text == "never") return 0;
    return parse_duration_ns(text);
  };
  return bind(Kind::duration, field, "DURATION", parse, exact_duration);
}

// Names of token holders. The files are read again for an unknown one.
class UserNames {
 public:
  UserNames() : accounts_(disk_) {}
  std::string of(uint32_t uid) {
    std::string name = accounts_.user(uid);
    if (name != fmt::to_string(uid)) return name;
    accounts_ = client::AccountNames(disk_);
    return accounts_.user(uid);
  }

 private:
  io::SystemDisk disk_;
  client::AccountNames accounts_;
};

Result<void> run_serve(Session& session, const ScheduleServeOptions& options) {
  FF_TRY(const auto daemon,
         Daemon::make(session, options.daemon, auth::Role::scheduler, "schedule serve"));
  FF_TRY(const auto store,
         KvStore::open(session.stop.clock(), options.kv, KvStore::Access::exclusive));
  for (const std::string& told : store->warnings()) log_warning(told);
  const auto engine = store->engine(daemon->loop(), daemon->rng());
  UserNames names;
  if (options.lease_ns < kLeaseLeastNs) {
    return fail(Errc::usage, "--lease {}: must be at least {}", format_duration(options.lease_ns),
                format_duration(kLeaseLeastNs));
  }
  scheduler::SchedulerService::Options how;
  how.timeouts.lease_ns = options.lease_ns;
  how.timeouts.max_finished_tasks = options.keep_tasks;
  how.health.validate_every_ns = options.validate_every_ns;
  how.health.max_drained_percent = options.max_drained_percent;
  how.name_of = [&names](uint32_t uid) { return names.of(uid); };
  how.metrics = &daemon->metrics();
  how.keyring = daemon->client().transport.keyring();
  std::optional<TokenChecker> tokens;
  if (options.meta) {
    FF_TRY(const auto servers, parse_meta(*options.meta));
    tokens.emplace(daemon->client(), servers);
    how.check_token = [&tokens](auth::TokenId token) { return tokens->check(token); };
  }
  scheduler::SchedulerService scheduler(*engine, daemon->loop(), daemon->rng(), daemon->router(),
                                        std::move(how));
  Daemon::Service service;
  service.start = [&scheduler](const std::string&) { scheduler.start(); };
  service.drain = [&scheduler] { return scheduler.close(); };
  if (tokens) service.close = [&tokens] { return tokens->close(); };
  service.status = [&scheduler] { return scheduler.status(); };
  service.pages = scheduler::pages(scheduler);
  service.failed = [&scheduler] { return scheduler.halted(); };
  return daemon->run(std::move(service));
}

}  // namespace

void declare_schedule_serve(Command& serve) {
  auto& options = serve.keep<ScheduleServeOptions>();
  serve.about(
      "Runs the scheduler: users submit tasks ('ff schedule submit'), and the agents of the nodes "
      "ask it what to run. The scheduler keeps its state in SQLite under --dir, or in etcd with "
      "--kv, and stores each change before it answers. After a crash it continues from that state; "
      "running tasks are not affected. If a second scheduler starts on the same store, it takes "
      "over and the first one exits.\n\nWith --key, users authenticate with tokens ('ff admin "
      "user') and can change only their own tasks; whoever holds the cluster key is the operator. "
      "Without a key only this machine can connect, and all its users are operators. With --meta "
      "the scheduler refuses a removed token ('ff admin user remove') within seconds; without it, "
      "the token stays valid until the cluster key changes.\n\n--http also serves a web page with "
      "running tasks, waiting tasks and their reasons, and the nodes by zone and leaf switch. The "
      "log contains a link that logs in once.\n\nThe scheduler has idle nodes run their checks "
      "('ff validate') every --validate-every: at most one of fifty nodes at a time, and no node "
      "that a waiting task could use. A new node runs its checks at some time within the first "
      "period. The scheduler drains a node whose checks fail, unless it has already drained "
      "--max-drained of all nodes for that reason; the node then runs its checks daily until they "
      "pass. 'ff schedule nodes' shows the results.\n\nIf the scheduler cannot write its store, it "
      "exits with an error. Start it again when the store works.");
  serve
      .option("--lease", duration(options.lease_ns),
              "How long tasks keep running on a node that cannot reach the scheduler; only after "
              "this time the scheduler restarts them elsewhere")
      .config("schedule-serve.lease");
  serve
      .option("--keep-tasks", number(options.keep_tasks),
              "Number of finished tasks that 'list -a', 'show' and 'history' remember; the oldest "
              "are removed first")
      .config("schedule-serve.keep-tasks");
  serve
      .option("--meta", text(options.meta, "ADDR:PORT,..."),
              "Addresses of the cluster managers ('ff serve-meta'), which know the valid tokens")
      .config("schedule-serve.meta");
  declare_kv(serve, options.kv);
  serve.flag("--accept-data-loss", options.kv.accept_data_loss,
             "Start with an empty SQLite file if the file is corrupt; ff keeps the corrupt file");
  serve
      .option("--validate-every", period(options.validate_every_ns),
              "How often an idle node runs its checks; 0 or never disables this")
      .config("schedule-serve.validate-every");
  serve
      .option("--max-drained", percent(options.max_drained_percent),
              "Maximum share of nodes drained by failed validation (at least one node); beyond it "
              "the scheduler only warns")
      .config("schedule-serve.max-drained");
  declare_daemon(serve, options.daemon, "schedule-serve");
  serve.example("ff schedule serve", "one machine, with its state under /var/lib/ff");
  serve.example("ff schedule serve --listen '*:4500' --key cluster.key --http 9105",
                "for a cluster, with /metrics and the web page; the log has a login link");
  serve.run([&options](Session& session) { return run_serve(session, options); });
}

}  // namespace ff::cmd
