// One connection of a Redis client: reads requests, starts commands in order, and sends replies in
// the same order, many of one turn with one write.
//
// A command that waits (BLPOP, XREAD with BLOCK) holds the ones behind it back. Meanwhile the
// connection reads on, so that it notices when the client leaves.
//
// A client that sends faster than it takes its replies waits: no request is read while too many
// commands run or too many bytes of replies lie here. If single replies are so large that the
// memory passes a further bound, the connection ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/gate.h"
#include "platform/net/stream.h"
#include "storage/gateway/gateway.h"
#include "storage/gateway/key_locks.h"
#include "storage/gateway/key_waits.h"
#include "storage/gateway/redis_client.h"
#include "storage/gateway/resp_parser.h"

namespace ff::gateway {

class RedisConnection final : private Runnable {
 public:
  static constexpr size_t kRunningMax = 256;             // commands
  static constexpr size_t kRunningBytesMax = 64 * kMiB;  // of their words
  static constexpr size_t kRepliesWait = kMiB;           // of replies that are not sent
  static constexpr size_t kRepliesMax = kGiB;

  RedisConnection(Gateway& gateway, std::unique_ptr<net::Stream> stream, RedisClient client);
  // After run() has ended, or been destroyed.
  ~RedisConnection();

  // Serves until the client closes its side, QUIT, an error, or drain().
  Task<void> run();
  // Runs no further commands; ends when the replies to those before are sent.
  void drain();

  const RedisClient& client() const { return client_; }
  // Bytes of replies that the client has not taken.
  size_t unsent() const { return out_.size() - sent_ + waiting_bytes_; }
  void release_idle_memory();
  // Whether a command of the client waits for a key.
  bool waits() const { return wait_ != nullptr; }
  // Ends the wait with the reply for the end of its time, or with an error. False: nothing waits.
  bool end_wait(std::optional<Error> error);

 private:
  // The command that waits for keys.
  struct OpenWait {
    explicit OpenWait(KeyWaits::KeyWait& in_line) : place(in_line) {}
    KeyWaits::KeyWait& place;
    bool ended = false;
    std::optional<Error> error = {};
  };

  struct RunningCommand {
    const CommandRow* row = nullptr;
    RespRequest words;
    size_t word_bytes = 0;
    std::optional<KeyLocks::KeyLock> lock;
    std::string reply;
    bool done = false;
  };

  Task<Result<void>> read_requests();
  Task<Result<void>> run_buffered();
  Task<Result<void>> wait_for_room();
  Task<Result<void>> wait_for_commands();
  Task<Result<void>> start_request(RespRequest words);
  Result<const CommandRow*> admit(const RespRequest& words) const;
  bool reply_cached(const CommandRow& row, const RespRequest& words);
  Result<void> check_owner(const CommandRow& row, const RespRequest& words) const;
  void queue_in_multi(RespRequest words);
  RunningCommand& add_keyed(const CommandRow& row, RespRequest words);
  Task<void> run_keyed(RunningCommand& command);
  Task<Result<void>> start_waiting(const CommandRow& row, RespRequest words);
  Task<void> run_waiting(RunningCommand& command);
  Task<Result<void>> attempt(RunningCommand& command, CommandWait& wait);
  Task<Result<void>> read_ahead();
  void finish(RunningCommand& command);
  void reply_error(std::string_view text);
  void update_parser_limits();
  void on_wake() override { flush(); }
  void flush();
  void fail_stream();
  Task<void> flush_when_writable();

  Gateway& gateway_;
  Loop& loop_;
  std::unique_ptr<net::Stream> stream_;
  RedisClient client_;
  RespParser parser_;
  bool limits_lifted_ = false;
  std::deque<std::unique_ptr<RunningCommand>> running_;  // in the order of their replies
  OpenWait* wait_ = nullptr;
  size_t running_bytes_ = 0;
  size_t waiting_bytes_ = 0;  // of replies behind one that is not done
  std::string out_;
  size_t sent_ = 0;  // of out_
  bool waits_for_stream_ = false;
  bool broken_ = false;  // the stream takes no more bytes
  Event changed_;        // a command is done, or bytes are sent
  CancellationToken reading_;
  std::optional<CancelScope> reading_ahead_;  // while a command waits
  Gate gate_;
};

}  // namespace ff::gateway
