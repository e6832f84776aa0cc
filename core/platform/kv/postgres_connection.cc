// postgres_connection.cc: URLs, binary parameters, the thread that connects, and the pipeline.
#include "platform/kv/postgres_connection.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/base/thread_result.h"

namespace ff::kv {

namespace {

constexpr int kBinary = 1;
// Types of PostgreSQL's catalog (pg_type.dat), which never change.
constexpr uint32_t kBytea = 17;
constexpr uint32_t kBigint = 20;

// Settings of each session. A join of parameters with a table shall look up each key in the index,
// whatever the statistics say; the statements are planned once. A client that is gone releases its
// locks soon.
constexpr std::string_view kSession =
    "-c enable_hashjoin=off -c enable_mergejoin=off -c enable_seqscan=off -c enable_bitmapscan=off "
    "-c max_parallel_workers_per_gather=0 -c jit=off -c plan_cache_mode=force_generic_plan "
    "-c idle_in_transaction_session_timeout=300s -c tcp_keepalives_idle=2 "
    "-c tcp_keepalives_interval=1 -c tcp_keepalives_count=3";
constexpr const char* kSystemCertificates = "/etc/ssl/certs/ca-certificates.crt";

// A parameter that a URL does not name. libpq takes the later one of two values.
struct Default {
  const char* keyword;
  std::string value;
};
using Parsed = std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)>;

const char* parameter_of(const Parsed& parsed, std::string_view keyword) {
  for (const PQconninfoOption* one = parsed.get(); one->keyword != nullptr; one++) {
    if (one->keyword == keyword) return one->val;
  }
  return nullptr;
}

Parsed parse(const std::string& url, std::string& problem) {
  char* message = nullptr;
  Parsed parsed(PQconninfoParse(url.c_str(), &message), &PQconninfoFree);
  if (message != nullptr) {
    problem = message;
    PQfreemem(message);
  }
  while (problem.ends_with('\n')) problem.pop_back();
  return parsed;
}

bool only_unix_sockets(const std::string& hosts) {
  return std::ranges::all_of(split(hosts, ','),
                             [](std::string_view host) { return host.starts_with('/'); });
}

std::vector<Default> defaults_for(const std::string& url, const std::string& label) {
  std::string problem;
  const Parsed parsed = parse(url, problem);
  std::vector<Default> defaults = {{"target_session_attrs", "read-write"},
                                   {"connect_timeout", "5"},
                                   {"application_name", label}};
  const char* const hosts = parameter_of(parsed, "host");  // null: in a service file
  if (hosts == nullptr || !only_unix_sockets(hosts)) {
    defaults.push_back({"sslmode", "verify-full"});
    defaults.push_back({"tcp_user_timeout", "20000"});
    if (hosts != nullptr) defaults.push_back({"sslrootcert", kSystemCertificates});
  }
  std::erase_if(defaults,
                [&](const Default& one) { return parameter_of(parsed, one.keyword) != nullptr; });
  const char* const options = parameter_of(parsed, "options");
  defaults.push_back({"options", fmt::format("{} {}", kSession, options ? options : "")});
  return defaults;
}

struct Finish {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};

// Whether every host was reached and turned this client away, so that a retry would not help. A
// standby among several hosts may only not have the database yet.
bool is_refusal(std::string_view message, bool several) {
  static constexpr std::string_view kReasons[] = {
      "password authentication failed",
      "no password supplied",
      "no pg_hba.conf entry",
      "pg_hba.conf rejects",
      "certificate",
      "authentication failed",
      "permission denied",
      "server does not support SSL",
      "channel binding",
      "not permitted to log in",
  };
  bool refused = false;
  for (const std::string_view line : split(message, '\n')) {
    if (!line.starts_with("connection to server")) continue;
    if (!several && line.ends_with("\" does not exist")) return true;
    refused = std::ranges::any_of(
        kReasons, [&](std::string_view reason) { return line.find(reason) != line.npos; });
    if (!refused) return false;
  }
  return refused;
}

// One line of a message of libpq.
std::string one_line(std::string_view message) {
  std::string line;
  for (const std::string_view part : split(message, '\n')) {
    const size_t from = part.find_first_not_of(" \t");
    if (from == part.npos) continue;
    line += (line.empty() ? "" : "; ") + printable(part.substr(from));
  }
  return line;
}

using Opened = std::shared_ptr<PGconn>;

Result<Opened> connect(const PostgresOptions& options, const std::string& label) {
  const auto defaults = defaults_for(options.url, label);
  std::vector<const char*> keywords = {"dbname"}, values = {options.url.c_str()};
  for (const Default& one : defaults) {
    keywords.push_back(one.keyword);
    values.push_back(one.value.c_str());
  }
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  constexpr int kExpandUrl = 1;
  Opened connection(PQconnectdbParams(keywords.data(), values.data(), kExpandUrl), Finish());
  if (PQstatus(connection.get()) == CONNECTION_OK) return connection;
  const std::string message = PQerrorMessage(connection.get());
  const bool refused = is_refusal(message, options.name.find(',') != options.name.npos);
  Error error =
      fail(refused ? Errc::refused : Errc::unreachable, "{}: {}", options.name, one_line(message));
  if (refused) {
    error.hint =
        "Check the user, its password in the passfile, sslrootcert and the server's pg_hba.conf; "
        "see ff-cluster(7).";
  }
  return error;
}

void append_int(std::string& to, uint32_t value) { append_le(to, __builtin_bswap32(value)); }

// The header of an array: dimensions, whether it has NULLs, type, length, first index.
std::string array_of(uint32_t type, size_t size) {
  std::string array;
  append_int(array, size == 0 ? 0 : 1);
  append_int(array, 1);
  append_int(array, type);
  if (size == 0) return array;
  append_int(array, static_cast<uint32_t>(size));
  append_int(array, 1);
  return array;
}

Errc code_of(std::string_view state) {
  const auto of_class = [&](std::string_view prefix) { return state.starts_with(prefix); };
  if (state == "53100") return Errc::disk_full;
  if (state == "42P01") return Errc::not_found;
  if (state == "42501" || of_class("28")) return Errc::refused;
  if (of_class("XX001") || of_class("XX002")) return Errc::corrupt;
  // Conflicts, missing resources, a standby, cancelled statements, I/O errors.
  for (const std::string_view again : {"40", "53", "25", "55", "57", "58"}) {
    if (of_class(again)) return Errc::stale;
  }
  return Errc::failed;
}

}  // namespace

Result<PostgresOptions> parse_postgres_url(std::string_view url) {
  const auto bad = [](const std::string& why) {
    return Error{Errc::usage, fmt::format("no database of PostgreSQL: {}", why),
                 "For example: postgres://ff@db1,db2/ff"};
  };
  if (!url.starts_with("postgres://") && !url.starts_with("postgresql://"))
    return bad("the URL does not begin with postgres://");
  std::string problem;
  const Parsed parsed = parse(std::string(url), problem);
  if (parsed == nullptr) return bad(printable(problem));
  if (parameter_of(parsed, "password") != nullptr ||
      parameter_of(parsed, "sslpassword") != nullptr) {
    return Error{Errc::usage, "--kv contains a password, which other users could see in ps",
                 "Put it into a passfile (~/.pgpass of the daemon's user, or "
                 "postgres://...?passfile=FILE), readable by that user only."};
  }
  const char* const hosts = parameter_of(parsed, "host");
  const char* const database = parameter_of(parsed, "dbname");
  const bool service = parameter_of(parsed, "service") != nullptr;
  if (hosts == nullptr && !service) return bad("a host is missing");
  if (database == nullptr && !service) return bad("the name of the database is missing");
  PostgresOptions options;
  options.url = url;
  options.name = fmt::format("postgres://{}/{}", hosts != nullptr ? printable(hosts) : "",
                             database != nullptr ? printable(database) : "");
  return options;
}

PostgresValue postgres_number(int64_t number) {
  std::string value;
  append_be(value, static_cast<uint64_t>(number));
  return value;
}

PostgresValue postgres_numbers(std::span<const std::optional<int64_t>> numbers) {
  std::string array = array_of(kBigint, numbers.size());
  for (const auto& number : numbers) {
    append_int(array, number ? 8 : UINT32_MAX);
    if (number) append_be(array, static_cast<uint64_t>(*number));
  }
  return array;
}

PostgresValue postgres_byte_strings(std::span<const std::optional<std::string_view>> values) {
  std::string array = array_of(kBytea, values.size());
  for (const auto& value : values) {
    append_int(array, value ? static_cast<uint32_t>(value->size()) : UINT32_MAX);
    if (value) array += *value;
  }
  return array;
}

void PostgresRows::Clear::operator()(pg_result* result) const { PQclear(result); }

size_t PostgresRows::size() const { return static_cast<size_t>(PQntuples(result_.get())); }

bool PostgresRows::is_null(size_t row, int column) const {
  return PQgetisnull(result_.get(), static_cast<int>(row), column) != 0;
}

std::string_view PostgresRows::bytes(size_t row, int column) const {
  const int at = static_cast<int>(row);
  return {PQgetvalue(result_.get(), at, column),
          static_cast<size_t>(PQgetlength(result_.get(), at, column))};
}

int64_t PostgresRows::number(size_t row, int column) const {
  const std::string_view value = bytes(row, column);
  if (value.size() != 8) return 0;
  return static_cast<int64_t>(__builtin_bswap64(load_le<uint64_t>(as_bytes(value).data())));
}

Task<Result<std::unique_ptr<PostgresConnection>>> PostgresConnection::open(Loop& loop,
                                                                           PostgresOptions options,
                                                                           std::string label) {
  using Connecting = ThreadResult<Opened>;
  auto connecting = Connecting::wait(loop, [&](std::shared_ptr<Connecting> result) {
    std::thread([result, options, label] { result->set(connect(options, label)); }).detach();
  });
  FF_CO_TRY(Opened opened, co_await std::move(connecting));
  FF_CHECK(PQsetnonblocking(opened.get(), 1) == 0 && PQenterPipelineMode(opened.get()) == 1);
  std::unique_ptr<PostgresConnection> made(
      new PostgresConnection(loop, std::move(options), std::move(opened)));
  made->socket_ = Fd(::fcntl(PQsocket(made->connection_.get()), F_DUPFD_CLOEXEC, 0));
  if (made->socket_.get() < 0) co_return errno_error(errno, "a socket to PostgreSQL");
  FF_CO_TRY(made->watch_, loop.watch(made->socket_.get()));
  co_return made;
}

PostgresConnection::PostgresConnection(Loop& loop, PostgresOptions options,
                                       std::shared_ptr<pg_conn> connection)
    : loop_(loop), options_(std::move(options)), connection_(std::move(connection)) {
  PQsetNoticeReceiver(connection_.get(), &on_notice, this);
}

PostgresConnection::~PostgresConnection() = default;

void PostgresConnection::on_notice(void* self, const pg_result* notice) {
  const char* const severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
  if (severity == nullptr || std::string_view(severity) != "WARNING") return;
  static_cast<PostgresConnection*>(self)->warning_ =
      one_line(PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY));
}

Error PostgresConnection::lost() const {
  const std::string why = one_line(PQerrorMessage(connection_.get()));
  return fail(Errc::unreachable, "{}: {}", options_.name,
              why.empty() ? "the connection was lost" : why);
}

Error PostgresConnection::refusal(const pg_result* result) const {
  const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char* const text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  if (state == nullptr) return lost();
  Error error = fail(code_of(state), "{}: {} (SQLSTATE {})", options_.name,
                     text != nullptr ? one_line(text) : "", state);
  if (error.code == Errc::disk_full) error.hint = "Free space on the disk of the database server.";
  if (error.code == Errc::refused) {
    error.hint = "Make the user of ff the owner of the database; see ff-cluster(7).";
  }
  return error;
}

Result<void> PostgresConnection::send(const std::vector<PostgresStatement>& statements) {
  PGconn* const connection = connection_.get();
  bool sent = true;
  for (const PostgresStatement& statement : statements) {
    std::vector<const char*> values;
    std::vector<int> lengths, formats(statement.values.size(), kBinary);
    for (const PostgresValue& value : statement.values) {
      values.push_back(value ? value->data() : nullptr);
      lengths.push_back(value ? static_cast<int>(value->size()) : 0);
    }
    const int count = static_cast<int>(values.size());
    const std::string name(statement.name), sql(statement.sql);
    if (name.empty()) {
      sent = sent && PQsendQueryParams(connection, sql.c_str(), count, nullptr, values.data(),
                                       lengths.data(), formats.data(), kBinary) == 1;
      continue;
    }
    if (prepared_.insert(statement.name).second) {
      sent = sent && PQsendPrepare(connection, name.c_str(), sql.c_str(), 0, nullptr) == 1;
    }
    sent = sent && PQsendQueryPrepared(connection, name.c_str(), count, values.data(),
                                       lengths.data(), formats.data(), kBinary) == 1;
  }
  if (!sent || PQpipelineSync(connection) != 1) return lost();
  return {};
}

// Reads while it writes: a server that waits for this end to read would not go on reading.
Task<Result<void>> PostgresConnection::flush(int64_t deadline_ns) {
  for (;;) {
    const int left = PQflush(connection_.get());
    if (left == 0) co_return Result<void>();
    if (left < 0 || PQconsumeInput(connection_.get()) != 1) co_return lost();
    watch_->arm_writable();
    const int64_t soon_ns = loop_.now_ns() + 10 * kMillisecond;
    const auto waited = co_await watch_->writable.wait(std::min(deadline_ns, soon_ns));
    if (!waited && waited.error().code != Errc::deadline) co_return waited;
    if (loop_.now_ns() >= deadline_ns) co_return fail(Errc::deadline, "no answer");
  }
}

// The watch reports changes only, and libpq may leave something in the socket or in OpenSSL.
bool PostgresConnection::has_more_input() const {
  pollfd waiting = {socket_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, 0) > 0) return true;
  auto* const ssl = static_cast<SSL*>(PQsslStruct(connection_.get(), "OpenSSL"));
  return ssl != nullptr && SSL_pending(ssl) > 0;
}

// Takes what has arrived.
void PostgresConnection::take_results(Answer& answer) {
  while (!answer.complete && PQisBusy(connection_.get()) == 0) {
    PGresult* const result = PQgetResult(connection_.get());
    if (result == nullptr) {
      // The end of one statement; in a broken connection there is nothing else.
      if (PQstatus(connection_.get()) == CONNECTION_BAD) return;
      continue;
    }
    PostgresRows rows(result);
    switch (PQresultStatus(result)) {
      case PGRES_PIPELINE_SYNC: answer.complete = true; break;
      case PGRES_TUPLES_OK: answer.rows.push_back(std::move(rows)); break;
      case PGRES_COMMAND_OK: break;  // of PREPARE, or of a statement without rows
      case PGRES_PIPELINE_ABORTED: break;
      default:
        if (!answer.error) answer.error = refusal(result);
    }
  }
}

Task<Result<void>> PostgresConnection::receive(Answer& answer, int64_t deadline_ns) {
  for (;;) {
    watch_->readable.reset();
    const bool alive = PQconsumeInput(connection_.get()) == 1;
    take_results(answer);
    if (answer.complete) co_return Result<void>();
    if (!alive || PQstatus(connection_.get()) == CONNECTION_BAD) co_return lost();
    if (has_more_input()) continue;
    FF_CO_TRY(co_await watch_->readable.wait(deadline_ns));
  }
}

Task<Result<std::vector<PostgresRows>>> PostgresConnection::run(
    std::vector<PostgresStatement> statements) {
  // Unless all of it succeeds: also if the task is destroyed meanwhile.
  FF_CHECK(!broken_);
  broken_ = true;
  warning_.clear();
  const int64_t deadline_ns = loop_.now_ns() + options_.answer_ns;
  FF_CO_TRY(send(statements));
  Answer answer;
  auto sent = co_await flush(deadline_ns);
  if (sent) sent = co_await receive(answer, deadline_ns);
  if (!sent && sent.error().code == Errc::deadline) {
    co_return fail(Errc::unreachable, "{}: no answer within {} ms", options_.name,
                   options_.answer_ns / kMillisecond);
  }
  if (!sent && answer.error) {  // such as "terminating connection due to administrator command"
    co_return fail(Errc::unreachable, "{}", answer.error->message);
  }
  FF_CO_TRY(std::move(sent));
  if (!warning_.empty()) {
    co_return fail(Errc::unreachable, "{}: {}", options_.name, warning_);
  }
  // Which statements are prepared is unknown after an error.
  if (answer.error) co_return *answer.error;
  broken_ = false;
  co_return std::move(answer.rows);
}

}  // namespace ff::kv
