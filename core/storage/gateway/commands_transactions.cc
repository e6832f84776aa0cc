// Transactions: MULTI queues commands, EXEC runs them as one change of the store, WATCH makes EXEC
// depend on keys. All keys of a transaction are of one slot.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/command_table.h"
#include "storage/gateway/gateway.h"

namespace ff::gateway {

namespace {

constexpr int kExecAttemptsMax = 10;
// As for single commands (gateway.cc), while nobody serves the keys.
constexpr int64_t kExecWaitNs = 10 * kSecond;
constexpr int64_t kExecPollNs = 50 * kMillisecond;

struct Transaction {
  std::vector<RespRequest> commands;
  std::map<std::string, RedisClient::WatchedKey> watched;

  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (const RespRequest& words : commands) {
      const auto own = keys_of(**row_of(words), words);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
};

// Whether no watched key has changed.
Result<bool> is_unchanged(const StoreAccess& access, const Transaction& transaction) {
  for (const auto& [key, watched] : transaction.watched) {
    const auto info = access.store.find(key);
    if (!info) return access.reply_of(key, info.error());
    if ((*info ? (*info)->version : 0) != watched.version) return false;
    if (*watched.changes != watched.changes_before) return false;
  }
  return true;
}

// Whether the error says that this process does not serve the keys, or not now.
bool is_of_owner(const Error& error) {
  return error.code == Errc::busy || error.code == Errc::stale;
}

// Runs the commands on one view; their replies, one behind the other. The error of a command is its
// reply, and the others still run; but if the keys have another owner, it is the reply to EXEC.
Task<Result<std::string>> run_all(CommandCall& exec, const Transaction& transaction,
                                  StoreView& view) {
  std::string replies;
  for (const RespRequest& words : transaction.commands) {
    const CommandRow& row = **row_of(words);
    std::string reply;
    RespWriter writer(reply, exec.client.version);
    CommandCall call{exec.gateway, exec.client, row, words, view, writer, nullptr};
    const auto done = co_await row.handler(call);
    if (!done && is_of_owner(done.error())) co_return done.error();
    if (!done) {
      reply.clear();
      writer.error(done.error().message);
    }
    replies += reply;
  }
  co_return replies;
}

Error aborted(const Error& cause) {
  if (cause.code == Errc::stale) return cause;  // MOVED, as Redis Cluster says it
  return fail(cause.code, "EXECABORT Transaction discarded because of: {}", cause.message);
}

struct ExecAttempt {
  bool is_unchanged = true;  // the keys that the client watches
  bool is_written = false;   // false: other keys have changed meanwhile
  std::string replies = {};
};

Task<Result<ExecAttempt>> attempt_exec(CommandCall& call, const Transaction& transaction) {
  ExecAttempt attempt;
  const StoreAccess& access = call.gateway.access();
  FF_CO_TRY(attempt.is_unchanged, is_unchanged(access, transaction));
  if (!attempt.is_unchanged) co_return attempt;
  StoreView view(access, call.gateway.now_ms());
  FF_CO_TRY(attempt.replies, co_await run_all(call, transaction, view));
  FF_CO_TRY(attempt.is_written, co_await view.commit());
  co_return attempt;
}

}  // namespace

Task<Result<void>> run_multi(CommandCall& call) {
  if (call.client.in_multi) co_return fail(Errc::usage, "ERR MULTI calls can not be nested");
  call.client.in_multi = true;
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_exec(CommandCall& call) {
  RedisClient& client = call.client;
  if (!client.in_multi) co_return fail(Errc::usage, "ERR EXEC without MULTI");
  const bool failed = client.multi_failed;
  const Transaction transaction{std::move(client.queued), std::move(client.watched)};
  client.end_multi();
  if (failed) {
    co_return fail(Errc::usage, "EXECABORT Transaction discarded because of previous errors.");
  }
  auto keys = transaction.keys();
  FF_CO_TRY(check_one_slot(keys));
  for (const auto& [key, watched] : transaction.watched) keys.push_back(key);
  KeyLocks::KeyLock lock(call.gateway.locks(), std::move(keys), true);
  FF_CO_TRY(co_await lock.wait());
  Loop& loop = call.gateway.loop();
  const int64_t until_ns = loop.now_ns() + kExecWaitNs;
  for (int attempts = 0; attempts < kExecAttemptsMax;) {
    const auto attempt = co_await attempt_exec(call, transaction);
    if (!attempt) {
      const bool waits = attempt.error().code == Errc::busy && loop.now_ns() < until_ns;
      if (!waits) co_return aborted(attempt.error());
      FF_CO_TRY(co_await sleep_for(loop, kExecPollNs));
      continue;
    }
    attempts++;
    if (!attempt->is_unchanged) {
      call.reply.null_array();
      co_return Result<void>();
    }
    if (!attempt->is_written) continue;
    call.reply.array(transaction.commands.size());
    call.reply.append(attempt->replies);
    co_return Result<void>();
  }
  co_return fail(Errc::stale, "TRYAGAIN the keys change too often");
}

Task<Result<void>> run_discard(CommandCall& call) {
  if (!call.client.in_multi) co_return fail(Errc::usage, "ERR DISCARD without MULTI");
  call.client.end_multi();
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_watch(CommandCall& call) {
  if (call.client.in_multi) {
    co_return fail(Errc::usage, "ERR WATCH inside MULTI is not allowed");
  }
  for (size_t i = 1; i < call.size(); i++) {
    const StoreAccess& access = call.gateway.access();
    const auto info = access.store.find(call.word(i));
    if (!info) co_return access.reply_of(call.word(i), info.error());
    auto changes = access.watched.watch(call.word(i));
    const uint64_t before = *changes;
    call.client.watched.try_emplace(call.word(i), *info ? (*info)->version : 0, std::move(changes),
                                    before);
  }
  call.reply.ok();
  co_return Result<void>();
}

Task<Result<void>> run_unwatch(CommandCall& call) {
  call.client.watched.clear();
  call.reply.ok();
  co_return Result<void>();
}

}  // namespace ff::gateway
