// Commands about the gateway itself: what it can do, how it is set up, what it has done.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/gateway/command_handlers.h"
#include "storage/gateway/command_table.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/redis_numbers.h"
#include "storage/gateway/server_info.h"

namespace ff::gateway {

namespace {

std::vector<std::string_view> flag_names(const CommandRow& row) {
  std::vector<std::string_view> names;
  const auto add = [&](CommandFlag flag, std::string_view name) {
    if (row.has(flag)) names.push_back(name);
  };
  add(kReadsKeys, "readonly");
  add(kWritesKeys, "write");
  add(kTakesSpace, "denyoom");
  add(kFast, "fast");
  add(kBeforeAuth, "no_auth");
  add(kNotInMulti, "no_multi");
  add(kWaits, "blocking");
  add(kStreamKeys, "movablekeys");
  add(kCountedKeys, "movablekeys");
  return names;
}

std::vector<std::string> category_names(const CommandRow& row) {
  std::vector<std::string> names;
  if (row.has(kReadsKeys)) names.emplace_back("@read");
  if (row.has(kWritesKeys)) names.emplace_back("@write");
  names.emplace_back(row.has(kFast) ? "@fast" : "@slow");
  if (row.has(kWaits)) names.emplace_back("@blocking");
  names.push_back(fmt::format("@{}", row.group == "generic" ? "keyspace" : row.group));
  return names;
}

// The ten elements of a command's description.
void reply_row(RespWriter& reply, const CommandRow& row) {
  reply.array(10);
  reply.bulk(row.name);
  reply.integer(row.arity);
  const auto flags = flag_names(row);
  reply.set(flags.size());
  for (const std::string_view flag : flags) reply.simple(flag);
  reply.integer(row.first_key);
  reply.integer(row.last_key);
  reply.integer(row.key_step);
  const auto categories = category_names(row);
  reply.set(categories.size());
  for (const std::string& category : categories) reply.simple(category);
  reply.array(0);  // tips
  reply.array(0);  // key specifications
  reply.array(row.subcommands.size());
  for (const CommandRow& sub : row.subcommands) reply_row(reply, sub);
}

void reply_docs(RespWriter& reply, const CommandRow& row) {
  const bool has_subs = !row.subcommands.empty();
  reply.bulk(row.name);
  reply.map(has_subs ? 3 : 2);
  reply.bulk("summary");
  reply.bulk(row.summary);
  reply.bulk("group");
  reply.bulk(row.group);
  if (!has_subs) return;
  reply.bulk("subcommands");
  reply.map(row.subcommands.size());
  for (const CommandRow& sub : row.subcommands) reply_docs(reply, sub);
}

// The settings that clients ask for.
std::vector<std::pair<std::string, std::string>> settings_of(Gateway& gateway) {
  const GatewayOptions& options = gateway.options();
  return {{"appendfsync", options.durable ? "always" : "no"},
          {"appendonly", "yes"},
          {"databases", "1"},
          {"maxclients", std::to_string(options.connections_max)},
          {"maxmemory", std::to_string(options.max_bytes)},
          {"maxmemory-policy", options.max_bytes == 0 ? "noeviction" : "allkeys-lru"},
          {"port", std::to_string(gateway.address().port)},
          {"proto-max-bulk-len", std::to_string(options.value_max)},
          {"save", ""}};
}

}  // namespace

Task<Result<void>> run_command(CommandCall& call) {
  const auto rows = command_table();
  call.reply.array(rows.size());
  for (const CommandRow& row : rows) reply_row(call.reply, row);
  co_return Result<void>();
}

Task<Result<void>> run_command_count(CommandCall& call) {
  call.reply.integer(static_cast<int64_t>(command_table().size()));
  co_return Result<void>();
}

Task<Result<void>> run_command_getkeys(CommandCall& call) {
  const RespRequest words(call.words.begin() + 2, call.words.end());
  const auto row = row_of(words);
  if (!row && find_command(words[0]) == nullptr) {
    co_return fail(Errc::usage, "ERR Invalid command specified");
  }
  if (!row) co_return fail(Errc::usage, "ERR Invalid number of arguments specified for command");
  const auto keys = keys_of(**row, words);
  if (!(*row)->has_keys()) co_return fail(Errc::usage, "ERR The command has no key arguments");
  if (keys.empty()) co_return fail(Errc::usage, "ERR Invalid arguments specified for command");
  call.reply.array(keys.size());
  for (const std::string& key : keys) call.reply.bulk(key);
  co_return Result<void>();
}

Task<Result<void>> run_command_docs(CommandCall& call) {
  std::vector<const CommandRow*> rows;
  for (size_t i = 2; i < call.size(); i++) {
    if (const CommandRow* const row = find_command(call.word(i))) rows.push_back(row);
  }
  if (call.size() == 2) {
    for (const CommandRow& row : command_table()) rows.push_back(&row);
  }
  call.reply.map(rows.size());
  for (const CommandRow* const row : rows) reply_docs(call.reply, *row);
  co_return Result<void>();
}

Task<Result<void>> run_command_info(CommandCall& call) {
  if (call.size() == 2) co_return co_await run_command(call);
  call.reply.array(call.size() - 2);
  for (size_t i = 2; i < call.size(); i++) {
    if (const CommandRow* const row = find_command(call.word(i))) {
      reply_row(call.reply, *row);
    } else {
      call.reply.null_array();
    }
  }
  co_return Result<void>();
}

Task<Result<void>> run_command_list(CommandCall& call) {
  call.reply.array(command_table().size());
  for (const CommandRow& row : command_table()) call.reply.bulk(row.name);
  co_return Result<void>();
}

Task<Result<void>> run_config_get(CommandCall& call) {
  std::vector<std::pair<std::string, std::string>> found;
  for (auto& setting : settings_of(call.gateway)) {
    for (size_t i = 2; i < call.size(); i++) {
      if (!matches_pattern(lower_case(call.word(i)), setting.first)) continue;
      found.push_back(std::move(setting));
      break;
    }
  }
  call.reply.map(found.size());
  for (const auto& [name, value] : found) {
    call.reply.bulk(name);
    call.reply.bulk(value);
  }
  co_return Result<void>();
}

Task<Result<void>> run_info(CommandCall& call) {
  std::string text = call.size() == 1 ? info_text(call.gateway, "") : std::string();
  for (size_t i = 1; i < call.size(); i++) {
    const std::string section = info_text(call.gateway, lower_case(call.word(i)));
    if (!text.empty() && !section.empty()) text += "\r\n";
    text += section;
  }
  call.reply.verbatim(text);
  co_return Result<void>();
}

Task<Result<void>> run_time(CommandCall& call) {
  const int64_t now_us = call.gateway.loop().clock().wall_ns() / kMicrosecond;
  constexpr int64_t kPerSecond = kSecond / kMicrosecond;
  call.reply.array(2);
  call.reply.bulk(std::to_string(now_us / kPerSecond));
  call.reply.bulk(std::to_string(now_us % kPerSecond));
  co_return Result<void>();
}

}  // namespace ff::gateway
