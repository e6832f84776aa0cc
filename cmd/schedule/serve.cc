// `ff schedule serve`: the scheduler daemon, on SQLite in its own folder, etcd or PostgreSQL.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cmd/cli/daemon.h"
#include "cmd/options/kv_options.h"
#include "cmd/options/meta_option.h"
#include "cmd/schedule/schedule.h"
#include "ops/scheduler/page.h"
#include "ops/scheduler/revoked_tokens.h"
#include "ops/scheduler/service.h"
#include "ops/scheduler/token_checker.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"
#include "storage/client/mode.h"
#include "storage/cluster/revocation_poller.h"
#include "storage/meta/meta_client.h"

namespace ff::cmd {
namespace {

struct ScheduleServeOptions {
  DaemonOptions daemon = {.listen = "127.0.0.1:4500", .advertise = {}, .http = {}, .net = {}};
  KvOptions kv = {.profile = kScheduleKv};
  int64_t lease_ns = scheduler::SchedulerTimeouts().lease_ns;
  uint64_t keep_tasks = scheduler::SchedulerTimeouts().max_finished_tasks;
  int64_t validate_every_ns = 7 * 24 * 3600 * kSecond;
  uint32_t max_drained_percent = scheduler::HealthPolicy().max_drained_percent;
  uint64_t max_tasks = scheduler::TaskLimits().tasks;
  uint64_t max_user_tasks = scheduler::TaskLimits().tasks_per_user;
  std::optional<std::string> meta;
  std::optional<std::string> revoked_tokens;
};

constexpr int64_t kLeaseLeastNs = 10 * kSecond;  // agents call every few seconds
constexpr uint64_t kMaxTasksMost = 1'000'000;

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

// Checks tokens with what the options name: the metadata servers, a file, or both. Metadata servers
// also tell which keys are revoked.
class TokenChecks {
 public:
  static Result<std::unique_ptr<TokenChecks>> make(Daemon& daemon, Clock& clock,
                                                   const ScheduleServeOptions& options) {
    std::unique_ptr<TokenChecks> made(new TokenChecks());
    if (options.revoked_tokens) {
      made->revoked_.emplace(made->disk_, clock, *options.revoked_tokens);
      // No user has this uid; this finds mistakes in the file at the start.
      FF_TRY(made->revoked_->check({.uid = UINT32_MAX, .serial = 0}));
    }
    if (options.meta) {
      FF_TRY(const auto servers, parse_meta(*options.meta));
      made->meta_.emplace(daemon.client(), servers);
      made->listed_.emplace(daemon.loop(), [meta = &*made->meta_] { return list(*meta); });
      if (auth::Keyring* const keyring = daemon.client().transport.keyring()) {
        made->keys_.emplace(daemon.client(), servers, *keyring);
      }
    }
    return made;
  }
  bool empty() const { return !revoked_ && !listed_; }
  void start() {
    if (keys_) keys_->start();
  }
  Task<Result<void>> check(auth::TokenId token) {
    if (revoked_) FF_CO_TRY(revoked_->check(token));
    if (listed_) FF_CO_TRY(co_await listed_->check(token));
    co_return Result<void>();
  }
  Task<void> close() {
    if (keys_) co_await keys_->close();
    if (meta_) co_await meta_->close();
  }

 private:
  TokenChecks() = default;
  static Task<Result<scheduler::TokenChecker::Tokens>> list(meta::MetaClient& meta) {
    FF_CO_TRY(const auto users, co_await meta.users());
    scheduler::TokenChecker::Tokens tokens;
    for (const auto& user : users) {
      for (const uint64_t serial : user.serials()) tokens.emplace(user.uid(), serial);
    }
    co_return tokens;
  }

  io::SystemDisk disk_;
  std::optional<scheduler::RevokedTokens> revoked_;
  std::optional<meta::MetaClient> meta_;
  std::optional<scheduler::TokenChecker> listed_;
  std::optional<cluster::RevocationPoller> keys_;
};

Result<void> check_limits(const ScheduleServeOptions& options) {
  if (options.lease_ns < kLeaseLeastNs) {
    return fail(Errc::usage, "--lease {}: must be at least {}", format_duration(options.lease_ns),
                format_duration(kLeaseLeastNs));
  }
  for (const auto& [name, tasks] : {std::pair("--max-tasks", options.max_tasks),
                                    std::pair("--max-user-tasks", options.max_user_tasks)}) {
    if (tasks > 0 && tasks <= kMaxTasksMost) continue;
    return fail(Errc::usage, "{} {}: must be 1 to {}", name, tasks, kMaxTasksMost);
  }
  return {};
}

Result<void> run_serve(Session& session, const ScheduleServeOptions& options) {
  FF_TRY(check_limits(options));
  FF_TRY(const auto daemon,
         Daemon::make(session, options.daemon, auth::Role::scheduler, "schedule serve"));
  FF_TRY(const auto store,
         KvStore::open(session.stop.clock(), options.kv, KvStore::Access::exclusive));
  for (const std::string& told : store->warnings()) log_warning(told);
  const auto engine = store->engine(daemon->loop(), daemon->rng(), daemon->metrics());
  UserNames names;
  scheduler::SchedulerService::Options how;
  how.timeouts.lease_ns = options.lease_ns;
  how.timeouts.max_finished_tasks = options.keep_tasks;
  how.health.validate_every_ns = options.validate_every_ns;
  how.health.max_drained_percent = options.max_drained_percent;
  how.name_of = [&names](uint32_t uid) { return names.of(uid); };
  how.metrics = &daemon->metrics();
  auth::Keyring* const keyring = daemon->client().transport.keyring();
  how.keyring = keyring;
  how.limits = {.tasks = options.max_tasks, .tasks_per_user = options.max_user_tasks};
  FF_TRY(const auto tokens, TokenChecks::make(*daemon, session.stop.clock(), options));
  if (!tokens->empty()) {
    how.check_token = [&tokens](auth::TokenId token) { return tokens->check(token); };
  } else if (keyring != nullptr) {
    log_warning("users with tokens are refused: neither --meta nor --revoked-tokens is given");
  }
  scheduler::SchedulerService scheduler(*engine, daemon->loop(), daemon->rng(), daemon->router(),
                                        std::move(how));
  Daemon::Service service;
  service.start = [&scheduler, &tokens](const std::string&) {
    scheduler.start();
    tokens->start();
  };
  service.drain = [&scheduler] { return scheduler.close(); };
  service.close = [&tokens] { return tokens->close(); };
  service.status = [&scheduler] { return scheduler.status(); };
  service.pages = scheduler::pages(scheduler);
  service.failed = [&scheduler] { return scheduler.halted(); };
  return daemon->run(std::move(service));
}

// How tokens are checked, and what users may hold.
void declare_users(Command& serve, ScheduleServeOptions& options) {
  serve
      .option("--meta", text(options.meta, "ADDR:PORT,..."),
              "Addresses of the cluster managers ('ff serve-meta'), which know the valid tokens")
      .config("schedule-serve.meta");
  serve
      .option("--revoked-tokens", file(options.revoked_tokens),
              "File of tokens to refuse, one UID or UID SERIAL per line; read again when it "
              "changes. While it cannot be read, all tokens are refused")
      .config("schedule-serve.revoked-tokens");
  serve
      .option("--max-tasks", number(options.max_tasks),
              "Number of unfinished tasks of all users; the last tenth is for operators")
      .config("schedule-serve.max-tasks");
  serve
      .option("--max-user-tasks", number(options.max_user_tasks),
              "Number of unfinished tasks of one user")
      .config("schedule-serve.max-user-tasks");
}

}  // namespace

void declare_schedule_serve(Command& serve) {
  auto& options = serve.keep<ScheduleServeOptions>();
  serve.about(
      "Runs the scheduler: users submit tasks ('ff schedule submit'), and the agents of the nodes "
      "ask it what to run. The scheduler keeps its state in SQLite under --dir, or in etcd or "
      "PostgreSQL with --kv, and stores each change before it answers. After a crash it continues "
      "from that state; "
      "running tasks are not affected. If a second scheduler starts on the same store, it takes "
      "over and the first one exits.\n\nWith --key, users authenticate with tokens ('ff admin "
      "user') and can change only their own tasks; whoever holds the cluster key is the operator. "
      "Without a key only this machine can connect, and all its users are operators. The scheduler "
      "checks each token at each call. With --meta it asks the metadata servers, and a token that "
      "'ff admin user remove' has removed is refused within 10 seconds; if no server answers for 5 "
      "minutes, all tokens are refused until one does. The scheduler also asks these servers for "
      "revoked keys ('ff admin key revoke') and passes them on to its agents. Without metadata "
      "servers, write the tokens to refuse into the file of --revoked-tokens: lines with a uid, or "
      "with a uid and the serial number of one token. Without both options the scheduler refuses "
      "all tokens.\n\nOne user may "
      "hold a share of the scheduler: --max-user-tasks unfinished tasks, with 16 KiB of commands "
      "and environments per task on average. All users together may hold nine tenths of "
      "--max-tasks; the rest is for operators.\n\n--http also serves a web page with running "
      "tasks, waiting tasks and their reasons, and the nodes by zone and leaf switch. The log "
      "contains a link that logs in once.\n\nThe scheduler has idle nodes run their checks ('ff "
      "validate') every --validate-every: at most one of fifty nodes at a time, and no node that a "
      "waiting task could use. A new node runs its checks at some time within the first period. "
      "The scheduler drains a node whose checks fail, unless it has already drained --max-drained "
      "of all nodes for that reason; the node then runs its checks daily until they pass. 'ff "
      "schedule nodes' shows the results.\n\nIf the scheduler cannot write its store, it exits "
      "with an error. Start it again when the store works.");
  serve
      .option("--lease", duration(options.lease_ns),
              "How long tasks keep running on a node that cannot reach the scheduler; only after "
              "this time the scheduler restarts them elsewhere")
      .config("schedule-serve.lease");
  serve
      .option("--keep-tasks", number(options.keep_tasks),
              "Number of finished tasks that 'list -a', 'show' and 'history' remember, at most 4 "
              "KiB each on average; beyond it the oldest of the user who has the most is removed")
      .config("schedule-serve.keep-tasks");
  declare_users(serve, options);
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
  serve.example("ff schedule serve --key cluster.key",
                "one machine, with its state under /var/lib/ff");
  serve.example("ff schedule serve --listen '*:4500' --key cluster.key --meta m1:4400 --http 9105",
                "for a cluster, with /metrics and the web page; the log has a login link");
  serve.run([&options](Session& session) { return run_serve(session, options); });
}

}  // namespace ff::cmd
