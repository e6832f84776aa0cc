// Commands on hashes. A hash is one value of the store, so a change of a field writes all of it.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/scan_options.h"

namespace ff::gateway {

namespace {

void reply_field(RespWriter& reply, const std::string* value) {
  if (value != nullptr) {
    reply.bulk(*value);
  } else {
    reply.null();
  }
}

Task<Result<HashValue>> read_hash(CommandCall& call) {
  int64_t expires_ms = 0;
  co_return co_await call.view.get_hash(call.word(1), expires_ms);
}

}  // namespace

Task<Result<void>> run_hset(CommandCall& call) {
  if (call.size() % 2 != 0) co_return wrong_arity(call.row);
  int64_t expires_ms = 0;
  FF_CO_TRY(HashValue hash, co_await call.view.get_hash(call.word(1), expires_ms));
  int64_t added = 0;
  for (size_t i = 2; i < call.size(); i += 2) {
    if (hash.set(call.word(i), call.word(i + 1))) added++;
  }
  call.view.put_hash(call.word(1), hash, expires_ms);
  call.reply.integer(added);
  co_return Result<void>();
}

Task<Result<void>> run_hsetnx(CommandCall& call) {
  int64_t expires_ms = 0;
  FF_CO_TRY(HashValue hash, co_await call.view.get_hash(call.word(1), expires_ms));
  const bool is_new = hash.find(call.word(2)) == nullptr;
  if (is_new) {
    hash.set(call.word(2), call.word(3));
    call.view.put_hash(call.word(1), hash, expires_ms);
  }
  call.reply.integer(is_new ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_hget(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  reply_field(call.reply, hash.find(call.word(2)));
  co_return Result<void>();
}

Task<Result<void>> run_hmget(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  call.reply.array(call.size() - 2);
  for (size_t i = 2; i < call.size(); i++) reply_field(call.reply, hash.find(call.word(i)));
  co_return Result<void>();
}

Task<Result<void>> run_hgetall(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  call.reply.map(hash.fields().size());
  for (const auto& [field, value] : hash.fields()) {
    call.reply.bulk(field);
    call.reply.bulk(value);
  }
  co_return Result<void>();
}

Task<Result<void>> run_hdel(CommandCall& call) {
  int64_t expires_ms = 0;
  FF_CO_TRY(HashValue hash, co_await call.view.get_hash(call.word(1), expires_ms));
  int64_t removed = 0;
  for (size_t i = 2; i < call.size(); i++) {
    if (hash.remove(call.word(i))) removed++;
  }
  if (removed > 0) call.view.put_hash(call.word(1), hash, expires_ms);
  call.reply.integer(removed);
  co_return Result<void>();
}

Task<Result<void>> run_hexists(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  call.reply.integer(hash.find(call.word(2)) != nullptr ? 1 : 0);
  co_return Result<void>();
}

Task<Result<void>> run_hlen(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  call.reply.integer(static_cast<int64_t>(hash.fields().size()));
  co_return Result<void>();
}

Task<Result<void>> run_hkeys(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  call.reply.array(hash.fields().size());
  for (const auto& [field, value] : hash.fields()) call.reply.bulk(field);
  co_return Result<void>();
}

Task<Result<void>> run_hvals(CommandCall& call) {
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  call.reply.array(hash.fields().size());
  for (const auto& [field, value] : hash.fields()) call.reply.bulk(value);
  co_return Result<void>();
}

Task<Result<void>> run_hincrby(CommandCall& call) {
  const auto by = parse_integer(call.word(3));
  if (!by) co_return not_an_integer();
  int64_t expires_ms = 0;
  FF_CO_TRY(HashValue hash, co_await call.view.get_hash(call.word(1), expires_ms));
  const std::string* const value = hash.find(call.word(2));
  const auto before = value != nullptr ? parse_integer(*value) : std::optional<int64_t>(0);
  if (!before) co_return fail(Errc::usage, "ERR hash value is not an integer");
  int64_t after = 0;
  if (__builtin_add_overflow(*before, *by, &after)) {
    co_return fail(Errc::usage, "ERR increment or decrement would overflow");
  }
  hash.set(call.word(2), std::to_string(after));
  call.view.put_hash(call.word(1), hash, expires_ms);
  call.reply.integer(after);
  co_return Result<void>();
}

// All fields in one page, as Redis does it for a hash that it stores as one block.
Task<Result<void>> run_hscan(CommandCall& call) {
  FF_CO_TRY(const ScanOptions options, parse_scan_options(call, 2, false));
  FF_CO_TRY(const HashValue hash, co_await read_hash(call));
  std::vector<const HashValue::Field*> found;
  for (const auto& field : hash.fields()) {
    if (!options.pattern || matches_pattern(*options.pattern, field.first)) found.push_back(&field);
  }
  call.reply.array(2);
  call.reply.bulk("0");
  call.reply.array(2 * found.size());
  for (const auto* const field : found) {
    call.reply.bulk(field->first);
    call.reply.bulk(field->second);
  }
  co_return Result<void>();
}

}  // namespace ff::gateway
