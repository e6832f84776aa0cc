// command_table.cc: the rows, and what follows from them.
#include "storage/gateway/command_table.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "storage/gateway/command_handlers.h"

namespace ff::gateway {

namespace {

// Flags that often go together.
constexpr uint32_t kRead = kReadsKeys;
constexpr uint32_t kReadFast = kReadsKeys | kFast;
constexpr uint32_t kWrite = kWritesKeys | kTakesSpace;
constexpr uint32_t kWriteFast = kWrite | kFast;
constexpr uint32_t kFree = kWritesKeys | kFast;
constexpr uint32_t kMulti = kFast | kRunsInMulti;
constexpr uint32_t kAnybody = kFast | kBeforeAuth;

constexpr ExpiryUnit kSeconds = {.seconds = true, .absolute = false};
constexpr ExpiryUnit kMs = {.seconds = false, .absolute = false};
constexpr ExpiryUnit kSecondsAt = {.seconds = true, .absolute = true};
constexpr ExpiryUnit kMsAt = {.seconds = false, .absolute = true};

constexpr std::array kClusterCommands = std::to_array<CommandRow>({
    {"cluster|info", 2, 0, 0, 0, 0, "cluster", "How many slots are served", run_cluster_info},
    {"cluster|keyslot", 3, 0, 0, 0, 0, "cluster", "The slot of a key", run_cluster_keyslot},
    {"cluster|myid", 2, 0, 0, 0, 0, "cluster", "The id of this gateway", run_cluster_myid},
    {"cluster|nodes", 2, 0, 0, 0, 0, "cluster", "The gateways, with their slots, as lines",
     run_cluster_nodes},
    {"cluster|shards", 2, 0, 0, 0, 0, "cluster", "Likewise, as a list", run_cluster_shards},
    {"cluster|slots", 2, 0, 0, 0, 0, "cluster", "The gateway of each range of slots",
     run_cluster_slots},
});

constexpr std::array kClientCommands = std::to_array<CommandRow>({
    {"client|getname", 2, 0, 0, 0, 0, "connection", "The name of this connection",
     run_client_getname},
    {"client|id", 2, 0, 0, 0, 0, "connection", "The number of this connection", run_client_id},
    {"client|info", 2, 0, 0, 0, 0, "connection", "What is known of this connection",
     run_client_info},
    {"client|list", 2, 0, 0, 0, 0, "connection", "Likewise, of all connections to this gateway",
     run_client_list},
    {"client|setinfo", 4, 0, 0, 0, 0, "connection", "Say which library the client uses",
     run_client_setinfo},
    {"client|setname", 3, 0, 0, 0, 0, "connection", "Name this connection", run_client_setname},
    {"client|unblock", -3, 0, 0, 0, 0, "connection", "End the wait of another connection",
     run_client_unblock},
});

constexpr std::array kCommandCommands = std::to_array<CommandRow>({
    {"command|count", 2, 0, 0, 0, 0, "server", "How many commands there are", run_command_count},
    {"command|docs", -2, 0, 0, 0, 0, "server", "What commands do", run_command_docs},
    {"command|getkeys", -3, 0, 0, 0, 0, "server", "The keys of a command", run_command_getkeys},
    {"command|info", -2, 0, 0, 0, 0, "server", "Arity, flags and keys of commands",
     run_command_info},
    {"command|list", 2, 0, 0, 0, 0, "server", "The names of all commands", run_command_list},
});

constexpr std::array kConfigCommands = std::to_array<CommandRow>({
    {"config|get", -3, 0, 0, 0, 0, "server", "Settings, by patterns of their names",
     run_config_get},
});

constexpr std::array kXgroupCommands = std::to_array<CommandRow>({
    {"xgroup|create", -5, kWrite, 2, 2, 1, "stream", "Begin a consumer group", run_xgroup_create},
    {"xgroup|createconsumer", 5, kWrite, 2, 2, 1, "stream", "Add a consumer to a group",
     run_xgroup_createconsumer},
    {"xgroup|delconsumer", 5, kWritesKeys, 2, 2, 1, "stream",
     "Remove a consumer, with what it has pending", run_xgroup_delconsumer},
    {"xgroup|destroy", 4, kWritesKeys, 2, 2, 1, "stream", "Remove a consumer group",
     run_xgroup_destroy},
    {"xgroup|setid", -5, kWritesKeys, 2, 2, 1, "stream", "Set up to where a group has read",
     run_xgroup_setid},
});

constexpr std::array kXinfoCommands = std::to_array<CommandRow>({
    {"xinfo|consumers", 4, kRead, 2, 2, 1, "stream", "The consumers of a group",
     run_xinfo_consumers},
    {"xinfo|groups", 3, kRead, 2, 2, 1, "stream", "The consumer groups of a stream",
     run_xinfo_groups},
    {"xinfo|stream", -3, kRead, 2, 2, 1, "stream", "What is known of a stream", run_xinfo_stream},
});

constexpr std::array kRows = std::to_array<CommandRow>({
    {"cluster", -2, 0, 0, 0, 0, "cluster", "Who serves which keys", nullptr, kClusterCommands},

    {"auth", -2, kAnybody | kNotInMulti, 0, 0, 0, "connection", "Log in with a token", run_auth},
    {"client", -2, 0, 0, 0, 0, "connection", "Names and numbers of connections", nullptr,
     kClientCommands},
    {"echo", 2, kFast, 0, 0, 0, "connection", "Return the message", run_echo},
    {"hello", -1, kAnybody | kNotInMulti, 0, 0, 0, "connection",
     "Choose version 2 or 3 of the protocol, and log in", run_hello},
    {"ping", -1, kFast, 0, 0, 0, "connection", "Return PONG, or the message", run_ping},
    {"quit", -1, kAnybody | kRunsInMulti, 0, 0, 0, "connection", "Close the connection", run_quit},
    {"reset", 1, kAnybody | kRunsInMulti, 0, 0, 0, "connection",
     "Make the connection as it was at its start", run_reset},
    {"select", 2, kFast, 0, 0, 0, "connection", "Choose the database: there is one, 0", run_select},

    {"copy", -3, kWrite, 1, 2, 1, "generic", "Copy a value to another key", run_copy},
    {"del", -2, kWritesKeys, 1, -1, 1, "generic", "Remove keys", run_del},
    {"exists", -2, kReadFast, 1, -1, 1, "generic", "How many of the keys exist", run_exists},
    {"expire",
     -3,
     kFree,
     1,
     1,
     1,
     "generic",
     "Let a key end in so many seconds",
     run_expire,
     {},
     kSeconds},
    {"expireat",
     -3,
     kFree,
     1,
     1,
     1,
     "generic",
     "Let a key end at a time in seconds",
     run_expire,
     {},
     kSecondsAt},
    {"expiretime",
     2,
     kReadFast,
     1,
     1,
     1,
     "generic",
     "When a key ends, in seconds",
     run_ttl,
     {},
     kSecondsAt},
    {"keys", 2, kReadsKeys | kNotInMulti, 0, 0, 0, "generic", "All keys that match a pattern",
     run_keys},
    {"persist", 2, kFree, 1, 1, 1, "generic", "Let a key stay for ever", run_persist},
    {"pexpire",
     -3,
     kFree,
     1,
     1,
     1,
     "generic",
     "Let a key end in so many milliseconds",
     run_expire,
     {},
     kMs},
    {"pexpireat",
     -3,
     kFree,
     1,
     1,
     1,
     "generic",
     "Let a key end at a time in milliseconds",
     run_expire,
     {},
     kMsAt},
    {"pexpiretime",
     2,
     kReadFast,
     1,
     1,
     1,
     "generic",
     "When a key ends, in milliseconds",
     run_ttl,
     {},
     kMsAt},
    {"pttl",
     2,
     kReadFast,
     1,
     1,
     1,
     "generic",
     "How many milliseconds a key still has",
     run_ttl,
     {},
     kMs},
    {"randomkey", 1, kReadsKeys | kNotInMulti, 0, 0, 0, "generic", "One of the keys, by chance",
     run_randomkey},
    {"rename", 3, kWrite, 1, 2, 1, "generic", "Give a value another key, and replace what is there",
     run_rename},
    {"renamenx", 3, kWriteFast, 1, 2, 1, "generic",
     "Give a value another key, if that does not exist", run_renamenx},
    {"scan", -2, kReadsKeys | kNotInMulti, 0, 0, 0, "generic", "All keys, page by page", run_scan},
    {"touch", -2, kReadFast, 1, -1, 1, "generic", "How many of the keys exist", run_exists},
    {"ttl",
     2,
     kReadFast,
     1,
     1,
     1,
     "generic",
     "How many seconds a key still has",
     run_ttl,
     {},
     kSeconds},
    {"type", 2, kReadFast, 1, 1, 1, "generic", "The type of a value, or none", run_type},
    {"unlink", -2, kFree, 1, -1, 1, "generic", "Remove keys", run_del},

    {"hdel", -3, kFree, 1, 1, 1, "hash", "Remove fields", run_hdel},
    {"hexists", 3, kReadFast, 1, 1, 1, "hash", "Whether a field exists", run_hexists},
    {"hget", 3, kReadFast, 1, 1, 1, "hash", "The value of a field", run_hget},
    {"hgetall", 2, kRead, 1, 1, 1, "hash", "All fields and values", run_hgetall},
    {"hincrby", 4, kWriteFast, 1, 1, 1, "hash", "Add to the number in a field", run_hincrby},
    {"hkeys", 2, kRead, 1, 1, 1, "hash", "All fields", run_hkeys},
    {"hlen", 2, kReadFast, 1, 1, 1, "hash", "How many fields there are", run_hlen},
    {"hmget", -3, kReadFast, 1, 1, 1, "hash", "The values of fields", run_hmget},
    {"hscan", -3, kRead, 1, 1, 1, "hash", "Fields and values that match a pattern", run_hscan},
    {"hset", -4, kWriteFast, 1, 1, 1, "hash", "Set fields", run_hset},
    {"hsetnx", 4, kWriteFast, 1, 1, 1, "hash", "Set a field, if it does not exist", run_hsetnx},
    {"hvals", 2, kRead, 1, 1, 1, "hash", "All values", run_hvals},

    {"blmove", 6, kWrite | kWaits, 1, 2, 1, "list", "Likewise LMOVE; waits for an element",
     run_blmove},
    {"blmpop", -5, kWritesKeys | kWaits | kCountedKeys, 0, 0, 0, "list",
     "Likewise LMPOP; waits for an element", run_blmpop},
    {"blpop", -3, kWritesKeys | kWaits, 1, -2, 1, "list",
     "Take the first element of the first list that has one, or wait for it", run_blpop},
    {"brpop", -3, kWritesKeys | kWaits, 1, -2, 1, "list", "Likewise, the last element", run_brpop},
    {"brpoplpush", 4, kWrite | kWaits, 1, 2, 1, "list", "Likewise RPOPLPUSH; waits for an element",
     run_brpoplpush},
    {"lindex", 3, kReadFast, 1, 1, 1, "list", "The element at a position", run_lindex},
    {"linsert", 5, kWrite, 1, 1, 1, "list", "Insert an element before or after another one",
     run_linsert},
    {"llen", 2, kReadFast, 1, 1, 1, "list", "How many elements there are", run_llen},
    {"lmove", 5, kWrite, 1, 2, 1, "list", "Move an element from one end to another, in one slot",
     run_lmove},
    {"lmpop", -4, kWritesKeys | kCountedKeys, 0, 0, 0, "list",
     "Take elements of the first list that has one", run_lmpop},
    {"lpop", -2, kFree, 1, 1, 1, "list", "Take the first elements", run_lpop},
    {"lpos", -3, kRead, 1, 1, 1, "list", "The positions of elements that are equal", run_lpos},
    {"lpush", -3, kWriteFast, 1, 1, 1, "list", "Insert elements at the front", run_lpush},
    {"lpushx", -3, kWriteFast, 1, 1, 1, "list", "Likewise, if the list exists", run_lpushx},
    {"lrange", 4, kRead, 1, 1, 1, "list", "The elements between two positions", run_lrange},
    {"lrem", 4, kWritesKeys, 1, 1, 1, "list", "Remove elements that are equal", run_lrem},
    {"lset", 4, kWrite, 1, 1, 1, "list", "Replace the element at a position", run_lset},
    {"ltrim", 4, kWritesKeys, 1, 1, 1, "list", "Remove all but the elements between two positions",
     run_ltrim},
    {"rpop", -2, kFree, 1, 1, 1, "list", "Take the last elements", run_rpop},
    {"rpoplpush", 3, kWrite, 1, 2, 1, "list", "Move the last element to the front of another list",
     run_rpoplpush},
    {"rpush", -3, kWriteFast, 1, 1, 1, "list", "Append elements", run_rpush},
    {"rpushx", -3, kWriteFast, 1, 1, 1, "list", "Likewise, if the list exists", run_rpushx},

    {"command", -1, 0, 0, 0, 0, "server", "All commands, with arity, flags and keys", run_command,
     kCommandCommands},
    {"config", -2, 0, 0, 0, 0, "server", "Settings of the gateway", nullptr, kConfigCommands},
    {"dbsize", 1, kReadFast | kNotInMulti, 0, 0, 0, "server",
     "How many keys there are; some may have expired", run_dbsize},
    {"flushall", -1, kWritesKeys | kNotInMulti, 0, 0, 0, "server", "Remove all keys", run_flushall},
    {"flushdb", -1, kWritesKeys | kNotInMulti, 0, 0, 0, "server", "Remove all keys", run_flushall},
    {"info", -1, 0, 0, 0, 0, "server", "Facts about gateway, clients and store", run_info},
    {"time", 1, kFast, 0, 0, 0, "server", "The time of the gateway: seconds and microseconds",
     run_time},

    {"sadd", -3, kWriteFast, 1, 1, 1, "set", "Add members", run_sadd},
    {"scard", 2, kReadFast, 1, 1, 1, "set", "How many members there are", run_scard},
    {"sdiff", -2, kRead, 1, -1, 1, "set", "Members of the first set that the others lack",
     run_sdiff},
    {"sdiffstore", -3, kWrite, 1, -1, 1, "set", "Likewise; stored in the first key, in one slot",
     run_sdiffstore},
    {"sinter", -2, kRead, 1, -1, 1, "set", "Members that all sets have", run_sinter},
    {"sintercard", -3, kRead | kCountedKeys, 0, 0, 0, "set", "How many members all sets have",
     run_sintercard},
    {"sinterstore", -3, kWrite, 1, -1, 1, "set", "Likewise; stored in the first key, in one slot",
     run_sinterstore},
    {"sismember", 3, kReadFast, 1, 1, 1, "set", "Whether there is a member", run_sismember},
    {"smembers", 2, kRead, 1, 1, 1, "set", "All members", run_smembers},
    {"smismember", -3, kReadFast, 1, 1, 1, "set", "Whether there are members", run_smismember},
    {"smove", 4, kFree, 1, 2, 1, "set", "Move a member to another set of the slot", run_smove},
    {"spop", -2, kFree, 1, 1, 1, "set", "Take members by chance", run_spop},
    {"srandmember", -2, kRead, 1, 1, 1, "set", "Members by chance", run_srandmember},
    {"srem", -3, kFree, 1, 1, 1, "set", "Remove members", run_srem},
    {"sscan", -3, kRead, 1, 1, 1, "set", "Members that match a pattern, page by page", run_sscan},
    {"sunion", -2, kRead, 1, -1, 1, "set", "Members that any of the sets has", run_sunion},
    {"sunionstore", -3, kWrite, 1, -1, 1, "set", "Likewise; stored in the first key, in one slot",
     run_sunionstore},

    {"xack", -4, kFree, 1, 1, 1, "stream", "Acknowledge entries of a group", run_xack},
    {"xadd", -5, kWriteFast, 1, 1, 1, "stream", "Add an entry", run_xadd},
    {"xautoclaim", -6, kFree, 1, 1, 1, "stream",
     "Give entries that were pending for long to a consumer", run_xautoclaim},
    {"xclaim", -6, kFree, 1, 1, 1, "stream", "Give pending entries to a consumer", run_xclaim},
    {"xdel", -3, kFree, 1, 1, 1, "stream", "Remove entries", run_xdel},
    {"xgroup", -2, 0, 0, 0, 0, "stream", "Consumer groups", nullptr, kXgroupCommands},
    {"xinfo", -2, 0, 0, 0, 0, "stream", "Facts about streams", nullptr, kXinfoCommands},
    {"xlen", 2, kReadFast, 1, 1, 1, "stream", "How many entries there are", run_xlen},
    {"xpending", -3, kRead, 1, 1, 1, "stream", "Entries that are not acknowledged", run_xpending},
    {"xrange", -4, kRead, 1, 1, 1, "stream", "Entries between two ids", run_xrange},
    {"xread", -4, kRead | kWaits | kStreamKeys, 0, 0, 0, "stream",
     "Entries behind ids, of several streams; may wait for them", run_xread},
    {"xreadgroup", -7, kWritesKeys | kWaits | kStreamKeys, 0, 0, 0, "stream",
     "Likewise, for a consumer of a group", run_xreadgroup},
    {"xrevrange", -4, kRead, 1, 1, 1, "stream", "Entries between two ids, the last one first",
     run_xrevrange},
    {"xsetid", -3, kWriteFast, 1, 1, 1, "stream", "Set the last id of a stream", run_xsetid},
    {"xtrim", -4, kWritesKeys, 1, 1, 1, "stream", "Remove the oldest entries", run_xtrim},

    {"append", 3, kWriteFast, 1, 1, 1, "string", "Append to a string", run_append},
    {"decr", 2, kWriteFast, 1, 1, 1, "string", "Subtract one", run_decr},
    {"decrby", 3, kWriteFast, 1, 1, 1, "string", "Subtract a number", run_decrby},
    {"ff.confirm", 3, kWrite | kNotInMulti, 1, 1, 1, "string",
     "Set a key to the value that lies in a reserved range", run_ff_confirm},
    {"ff.reserve", -3, kWrite | kNotInMulti, 1, 1, 1, "string",
     "Reserve a range of a segment, which ff.KV writes a large value to", run_ff_reserve},
    {"get", 2, kReadFast, 1, 1, 1, "string", "The value of a key", run_get},
    {"getdel", 2, kFree, 1, 1, 1, "string", "The value of a key, which is removed", run_getdel},
    {"getex", -2, kFree, 1, 1, 1, "string", "The value of a key, which gets another end",
     run_getex},
    {"getrange", 4, kRead, 1, 1, 1, "string", "A part of a string", run_getrange},
    {"getset", 3, kWriteFast, 1, 1, 1, "string", "Set a key, and return what it had", run_getset},
    {"incr", 2, kWriteFast, 1, 1, 1, "string", "Add one", run_incr},
    {"incrby", 3, kWriteFast, 1, 1, 1, "string", "Add a number", run_incrby},
    {"incrbyfloat", 3, kWriteFast, 1, 1, 1, "string", "Add a number with a fraction",
     run_incrbyfloat},
    {"mget", -2, kReadFast, 1, -1, 1, "string", "The values of several keys", run_mget},
    {"mset", -3, kWrite, 1, -1, 2, "string", "Set several keys", run_mset},
    {"msetnx", -3, kWrite, 1, -1, 2, "string", "Set several keys of one slot, if none exists",
     run_msetnx},
    {"psetex", 4, kWrite, 1, 1, 1, "string", "Set a key for so many milliseconds", run_psetex},
    {"set", -3, kWrite, 1, 1, 1, "string", "Set a key", run_set},
    {"setex", 4, kWrite, 1, 1, 1, "string", "Set a key for so many seconds", run_setex},
    {"setnx", 3, kWriteFast, 1, 1, 1, "string", "Set a key, if it does not exist", run_setnx},
    {"setrange", 4, kWrite, 1, 1, 1, "string", "Replace a part of a string", run_setrange},
    {"strlen", 2, kReadFast, 1, 1, 1, "string", "The size of a string", run_strlen},

    {"discard", 1, kMulti, 0, 0, 0, "transactions", "Drop the commands since MULTI", run_discard},
    {"exec", 1, kMulti, 0, 0, 0, "transactions", "Run the commands since MULTI together", run_exec},
    {"multi", 1, kMulti, 0, 0, 0, "transactions", "Queue the next commands for EXEC", run_multi},
    {"unwatch", 1, kFast, 0, 0, 0, "transactions", "Forget all watched keys", run_unwatch},
    {"watch", -2, kReadFast | kRunsInMulti, 1, -1, 1, "transactions",
     "Let EXEC do nothing if one of the keys changes", run_watch},
});

constexpr size_t kShownNameMax = 128;

bool arity_fits(const CommandRow& row, size_t words) {
  const auto count = static_cast<int>(std::min<size_t>(words, INT32_MAX));
  return row.arity >= 0 ? count == row.arity : count >= -row.arity;
}

// Redis shows the words until so many characters are full.
Error unknown_command(const RespRequest& words) {
  std::string arguments;
  for (size_t i = 1; i < words.size() && arguments.size() < kShownNameMax; i++) {
    const size_t room = kShownNameMax - arguments.size();
    arguments += fmt::format("'{}' ", std::string_view(words[i]).substr(0, room));
  }
  return fail(Errc::usage, "ERR unknown command '{}', with args beginning with: {}",
              std::string_view(words[0]).substr(0, kShownNameMax), arguments);
}

const std::unordered_map<std::string_view, const CommandRow*>& rows_by_name() {
  static const auto all = [] {
    std::unordered_map<std::string_view, const CommandRow*> rows;
    for (const CommandRow& row : kRows) {
      rows.emplace(row.name, &row);
      for (const CommandRow& sub : row.subcommands) rows.emplace(sub.name, &sub);
    }
    return rows;
  }();
  return all;
}

}  // namespace

std::span<const CommandRow> command_table() { return kRows; }

const CommandRow* find_command(std::string_view name) {
  const auto found = rows_by_name().find(lower_case(name));
  return found == rows_by_name().end() ? nullptr : found->second;
}

Result<const CommandRow*> row_of(const RespRequest& words) {
  const bool is_sub = words[0].find('|') != words[0].npos;
  const CommandRow* row = is_sub ? nullptr : find_command(words[0]);
  if (row == nullptr) return unknown_command(words);
  if (!row->subcommands.empty() && words.size() > 1) {
    const std::string name = fmt::format("{}|{}", row->name, words[1]);
    if (const CommandRow* const sub = find_command(name)) {
      row = sub;
    } else {
      return fail(Errc::usage, "ERR unknown subcommand '{}'. Try {} HELP.",
                  std::string_view(words[1]).substr(0, kShownNameMax), upper_case(row->name));
    }
  }
  if (!arity_fits(*row, words.size())) return wrong_arity(*row);
  return row;
}

}  // namespace ff::gateway
