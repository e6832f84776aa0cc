// Commands: the row of a command (command_table.h) has all that clients, the manual page and the
// gateway must know of it before it runs. Its handler runs it: it reads and changes keys through
// the view of its call, and writes the reply. Its locks are held, its words are as many as its row
// says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/task.h"
#include "storage/gateway/resp_parser.h"
#include "storage/gateway/resp_writer.h"
#include "storage/gateway/store_view.h"

namespace ff::gateway {

class Gateway;
struct RedisClient;
struct CommandRow;

// How a command waits until there is something (kWaits).
struct CommandWait {
  bool waits = false;      // it has found nothing: it runs again when one of its keys is announced
  int64_t timeout_ms = 0;  // from its first attempt on; 0: it waits for ever
  RespRequest words;       // of the next attempts; empty: the same
};

// A command that runs.
struct CommandCall {
  Gateway& gateway;
  RedisClient& client;
  const CommandRow& row;
  const RespRequest& words;
  StoreView& view;
  RespWriter& reply;
  CommandWait* wait = nullptr;  // null: it may not wait, as between MULTI and EXEC

  // The command has found nothing. It has written the reply for the end of its time.
  void wait_for_keys(int64_t timeout_ms) const {
    if (wait == nullptr) return;
    wait->waits = true;
    wait->timeout_ms = timeout_ms;
  }
  size_t size() const { return words.size(); }
  const std::string& word(size_t i) const { return words[i]; }
  // Whether word i is the option `name`, in capitals: case does not matter.
  bool is_option(size_t i, std::string_view name) const;
};

// How a command gives a time of expiry.
struct ExpiryUnit {
  bool seconds = false;   // or milliseconds
  bool absolute = false;  // since the Unix epoch, or from now on
};

// An error is the reply: its message is the line without the '-' in front. A handler may run
// several times for one request: it leaves the words as they are.
using CommandHandler = Task<Result<void>> (*)(CommandCall& call);

// What clients see of them in COMMAND, and:
enum CommandFlag : uint32_t {
  kReadsKeys = 1U << 0,
  kWritesKeys = 1U << 1,
  kTakesSpace = 1U << 2,   // what it writes may be more than what it replaces
  kFast = 1U << 3,         // takes the same time whatever the keys hold
  kBeforeAuth = 1U << 4,   // for clients that have not authenticated, too
  kNotInMulti = 1U << 5,   // refused between MULTI and EXEC
  kRunsInMulti = 1U << 6,  // not queued between MULTI and EXEC
  kWaits = 1U << 7,        // may wait: the commands of the client behind it begin when it has ended
  kStreamKeys = 1U << 8,   // its keys are behind the word STREAMS
  kCountedKeys = 1U << 9,  // their number is in front of them: word 1, or 2 behind a time to wait
};

struct CommandRow {
  std::string_view name;  // in small letters; of a subcommand "client|setname"
  // Words with the name; -n: at least n.
  int arity = 0;
  uint32_t flags = 0;
  // Positions of keys, as in COMMAND: the last may be negative, from the end. 0: there are none.
  int first_key = 0, last_key = 0, key_step = 0;
  std::string_view group;    // "string"
  std::string_view summary;  // one sentence without full stop
  CommandHandler handler = nullptr;
  std::span<const CommandRow> subcommands = {};
  ExpiryUnit unit = {};  // of EXPIRE, TTL and their kin

  bool has(CommandFlag flag) const { return (flags & flag) != 0; }
  bool has_keys() const { return first_key != 0 || has(kStreamKeys) || has(kCountedKeys); }
};

// The keys of a request with a right number of words.
std::vector<std::string> keys_of(const CommandRow& row, const RespRequest& words);

// The reply "CROSSSLOT ..." unless all keys are of one slot.
Result<void> check_one_slot(const std::vector<std::string>& keys);

Error syntax_error();
Error not_an_integer();
Error wrong_arity(const CommandRow& row);
// Of letters A to Z alone.
std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

}  // namespace ff::gateway
