// A connection to PostgreSQL for one loop, through libpq: statements with binary parameters, many
// in one round trip (libpq's pipeline mode). A thread opens the connection, because libpq waits for
// DNS and for each host of the list; after that the loop does everything, without blocking.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/fd.h"
#include "platform/base/fd_watch.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

struct pg_conn;
struct pg_result;

namespace ff::kv {

struct PostgresOptions {
  std::string url;   // of libpq; contains no password
  std::string name;  // for messages: "postgres://HOST,HOST/DATABASE"
  // A server that has not answered after this time counts as failed.
  int64_t answer_ns = 10 * kSecond;
};

// Parses postgres://[USER@]HOST[:PORT],.../DATABASE[?PARAMETER=VALUE&...], with libpq's parameters.
// Unless the URL says otherwise, TLS must verify the name of the server (sslmode=verify-full) with
// the certificates of the system, and only a server that accepts writes is used. Errc::usage, also
// for a URL with a password.
Result<PostgresOptions> parse_postgres_url(std::string_view url);

// A parameter of a statement in PostgreSQL's binary format; empty: NULL.
using PostgresValue = std::optional<std::string>;
PostgresValue postgres_number(int64_t number);
// Arrays bigint[] and bytea[] of one dimension.
PostgresValue postgres_numbers(std::span<const std::optional<int64_t>> numbers);
PostgresValue postgres_byte_strings(std::span<const std::optional<std::string_view>> values);

struct PostgresStatement {
  std::string_view
      name;              // the statement is prepared under it once per connection; empty: it is not
  std::string_view sql;  // outlives the connection
  std::vector<PostgresValue> values = {};
};

// The rows of one statement.
class PostgresRows {
 public:
  explicit PostgresRows(pg_result* result) : result_(result) {}
  size_t size() const;
  bool is_null(size_t row, int column) const;
  std::string_view bytes(size_t row, int column) const;
  int64_t number(size_t row, int column) const;  // of a bigint

 private:
  struct Clear {
    void operator()(pg_result* result) const;
  };
  std::unique_ptr<pg_result, Clear> result_;
};

class PostgresConnection {
 public:
  // `label` becomes the application_name. Errors: unreachable; refused (the server does not let
  // this user in, or its certificate is not trusted).
  static Task<Result<std::unique_ptr<PostgresConnection>>> open(Loop& loop, PostgresOptions options,
                                                                std::string label);
  ~PostgresConnection();
  PostgresConnection(const PostgresConnection&) = delete;
  PostgresConnection& operator=(const PostgresConnection&) = delete;

  // Sends all statements at once and returns the rows of those that have rows. They run in one
  // transaction, or in the one that BEGIN has started. One call at a time. Any error breaks the
  // connection. Errors after which none of the statements has taken effect:
  //   stale         the server gave the statements up; they may be repeated
  //   refused       no permission
  //   not_found     a table does not exist
  //   disk_full     the server has no space left
  //   corrupt       the server found its data damaged
  //   failed        other errors of the server
  // and after which they may have taken effect, or may still:
  //   unreachable   no answer in time, or the connection was lost, or a standby has not confirmed
  Task<Result<std::vector<PostgresRows>>> run(std::vector<PostgresStatement> statements);
  // Whether a call has failed or was given up.
  bool is_broken() const { return broken_; }

 private:
  using Rows = std::vector<PostgresRows>;
  struct Answer {
    Rows rows;
    std::optional<Error> error;  // the first one
    bool complete = false;       // everything has arrived
  };

  PostgresConnection(Loop& loop, PostgresOptions options, std::shared_ptr<pg_conn> connection);
  Result<void> send(const std::vector<PostgresStatement>& statements);
  Task<Result<void>> flush(int64_t deadline_ns);
  Task<Result<void>> receive(Answer& answer, int64_t deadline_ns);
  void take_results(Answer& answer);
  Error lost() const;
  Error refusal(const pg_result* result) const;
  bool has_more_input() const;
  static void on_notice(void* self, const pg_result* notice);

  Loop& loop_;
  const PostgresOptions options_;
  const std::shared_ptr<pg_conn> connection_;
  // Of its own: libpq closes its descriptor when the connection is lost, and another connection may
  // get the number while the loop still watches it.
  Fd socket_;
  std::unique_ptr<FdWatch> watch_;
  std::set<std::string_view> prepared_;
  bool broken_ = false;
  std::string warning_;  // of the server, during the statements under way
};

}  // namespace ff::kv
