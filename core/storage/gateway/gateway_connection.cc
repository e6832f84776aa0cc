// gateway_connection.cc: the order of requests and replies, and the bounds of both.
#include "storage/gateway/gateway_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "platform/base/log.h"
#include "storage/gateway/command_handlers.h"
#include "storage/gateway/command_table.h"

namespace ff::gateway {

namespace {

// Reads of one client in a row, before others have their turn.
constexpr size_t kReadsInARow = 16;
constexpr size_t kKeptBytes = 256 * kKiB;  // of a buffer for replies that is empty
constexpr size_t kMultiBytesMax = 256 * kMiB;
constexpr size_t kReadAheadMax = kMiB;  // while a command waits

Error no_auth() { return fail(Errc::refused, "NOAUTH Authentication required."); }

// XREAD and XREADGROUP wait only if they are asked to.
bool may_wait(const CommandRow& row, const RespRequest& words) {
  if (!row.has(kStreamKeys)) return row.has(kWaits);
  return std::ranges::any_of(words, [](std::string_view w) { return upper_case(w) == "BLOCK"; });
}

size_t bytes_of(const RespRequest& words) {
  size_t bytes = 0;
  for (const std::string& word : words) bytes += word.size() + sizeof(std::string);
  return bytes;
}

}  // namespace

RedisConnection::RedisConnection(Gateway& gateway, std::unique_ptr<net::Stream> stream,
                                 RedisClient client)
    : gateway_(gateway),
      loop_(gateway.loop()),
      stream_(std::move(stream)),
      client_(std::move(client)),
      changed_(loop_),
      gate_(loop_) {
  if (!client_.authenticated) parser_.set_limits(kRespLimitsBeforeAuth);
  gateway_.add(client_.id, *this);
}

RedisConnection::~RedisConnection() { gateway_.remove(client_.id); }

Task<void> RedisConnection::run() {
  (void)co_await read_requests().with_cancellation(reading_);
  (void)co_await wait_for_commands();
  while (unsent() > 0 && !broken_) {
    changed_.reset();
    const auto waited = co_await changed_.wait();
    if (!waited) break;
  }
  stream_->close();
  broken_ = true;
  Error over = fail(Errc::interrupted, "the client has left");
  co_await gate_.close(std::move(over));
}

void RedisConnection::drain() {
  client_.closing = true;
  reading_.request(fail(Errc::interrupted, "the gateway goes down"));
}

void RedisConnection::release_idle_memory() {
  if (running_.empty()) parser_.release_memory();
  if (out_.empty()) out_.shrink_to_fit();
}

Task<Result<void>> RedisConnection::read_requests() {
  for (size_t reads = 0;; reads++) {
    if (reads % kReadsInARow == kReadsInARow - 1) {
      YieldWait yield(loop_);
      FF_CO_TRY(co_await yield);
    }
    const std::array<ByteSpan, 1> space = {parser_.space()};
    FF_CO_TRY(const auto got, stream_->try_read(space));
    if (!got) {
      FF_CO_TRY(co_await stream_->readable().wait());
      continue;
    }
    if (*got == 0) co_return Result<void>();
    parser_.commit(*got);
    FF_CO_TRY(co_await run_buffered());
    if (client_.closing || broken_) co_return Result<void>();
  }
}

// Starts what has arrived completely.
Task<Result<void>> RedisConnection::run_buffered() {
  while (!client_.closing && !broken_) {
    FF_CO_TRY(co_await wait_for_room());
    update_parser_limits();
    auto request = parser_.next();
    if (!request) {
      FF_CO_TRY(co_await wait_for_commands());
      reply_error("ERR " + request.error().message);
      client_.closing = true;
    } else if (!*request) {
      break;
    } else {
      FF_CO_TRY(co_await start_request(std::move(**request)));
    }
  }
  co_return Result<void>();
}

void RedisConnection::update_parser_limits() {
  if (limits_lifted_ || !client_.authenticated) return;
  parser_.set_limits(RespLimits());
  limits_lifted_ = true;
}

Task<Result<void>> RedisConnection::wait_for_room() {
  while (!broken_ && (running_.size() >= kRunningMax || running_bytes_ >= kRunningBytesMax ||
                      unsent() >= kRepliesWait)) {
    changed_.reset();
    FF_CO_TRY(co_await changed_.wait());
  }
  co_return Result<void>();
}

Task<Result<void>> RedisConnection::wait_for_commands() {
  while (!running_.empty()) {
    changed_.reset();
    FF_CO_TRY(co_await changed_.wait());
  }
  co_return Result<void>();
}

// The row of a command that may run, or be queued, now. The error is the reply.
Result<const CommandRow*> RedisConnection::admit(const RespRequest& words) const {
  FF_TRY(const CommandRow* const row, row_of(words));
  if (!client_.authenticated && !row->has(kBeforeAuth)) return no_auth();
  if (client_.read_only && row->has(kWritesKeys)) {
    return fail(Errc::refused, "NOPERM this user has no permissions to run the '{}' command",
                row->name);
  }
  if (client_.in_multi && row->has(kNotInMulti)) {
    return fail(Errc::usage, "ERR Command not allowed inside a transaction");
  }
  return row;
}

Task<Result<void>> RedisConnection::start_request(RespRequest words) {
  client_.active_ns = loop_.now_ns();
  const auto row = admit(words);
  if (!row) {
    client_.multi_failed = client_.in_multi;
    reply_error(row.error().message);
    co_return Result<void>();
  }
  client_.last_command = *row;
  if (client_.in_multi && !(*row)->has(kRunsInMulti)) {
    const auto here = check_owner(**row, words);
    if (here) {
      queue_in_multi(std::move(words));
    } else {
      client_.multi_failed = true;
      reply_error(here.error().message);
    }
    co_return Result<void>();
  }
  if ((*row)->handler == run_get && reply_cached(**row, words)) co_return Result<void>();
  if (may_wait(**row, words)) co_return co_await start_waiting(**row, std::move(words));
  if ((*row)->has_keys()) {
    gate_.spawn(run_keyed(add_keyed(**row, std::move(words))));
    co_return Result<void>();
  }
  FF_CO_TRY(co_await wait_for_commands());
  running_.push_back(std::make_unique<RunningCommand>());
  RunningCommand& command = *running_.back();
  co_await gateway_.execute(client_, **row, words, command.reply, nullptr);
  finish(command);
  co_return Result<void>();
}

// GET of a value in memory is most of what a cache does: it runs at once, without a task.
bool RedisConnection::reply_cached(const CommandRow& row, const RespRequest& words) {
  if (running_.empty()) {
    if (!gateway_.get_cached(client_, row, words, out_)) return false;
    loop_.wake_at_turn_end(*this);
    return true;
  }
  std::string reply;
  if (!gateway_.get_cached(client_, row, words, reply)) return false;
  running_.push_back(std::make_unique<RunningCommand>());
  running_.back()->reply = std::move(reply);
  finish(*running_.back());
  return true;
}

// The reply MOVED, if another gateway is to be asked.
Result<void> RedisConnection::check_owner(const CommandRow& row, const RespRequest& words) const {
  if (!row.has_keys() || !gateway_.store().is_shared()) return {};
  const auto keys = keys_of(row, words);
  if (keys.empty()) return {};
  const auto found = gateway_.store().find(keys.front());
  if (found) return {};
  Error error = gateway_.access().reply_of(keys.front(), found.error());
  if (error.code == Errc::stale) return error;
  return {};
}

void RedisConnection::queue_in_multi(RespRequest words) {
  client_.queued_bytes += bytes_of(words);
  if (client_.queued_bytes > kMultiBytesMax) {
    client_.multi_failed = true;
    return reply_error("ERR the transaction is too large");
  }
  client_.queued.push_back(std::move(words));
  running_.push_back(std::make_unique<RunningCommand>());
  running_.back()->reply = "+QUEUED\r\n";
  finish(*running_.back());
}

RedisConnection::RunningCommand& RedisConnection::add_keyed(const CommandRow& row,
                                                            RespRequest words) {
  auto command = std::make_unique<RunningCommand>();
  command->row = &row;
  command->words = std::move(words);
  command->word_bytes = bytes_of(command->words);
  command->lock.emplace(gateway_.locks(), keys_of(row, command->words), row.has(kWritesKeys));
  running_bytes_ += command->word_bytes;
  running_.push_back(std::move(command));
  return *running_.back();
}

Task<void> RedisConnection::run_keyed(RunningCommand& command) {
  const auto held = co_await command.lock->wait();
  if (held) {
    co_await gateway_.execute(client_, *command.row, command.words, command.reply, nullptr);
  }
  command.lock.reset();
  finish(command);
}

// Starts a command that may wait, and returns when it has ended.
Task<Result<void>> RedisConnection::start_waiting(const CommandRow& row, RespRequest words) {
  FF_CO_TRY(co_await wait_for_commands());
  reading_ahead_.emplace(loop_, co_await current_cancellation(), INT64_MAX, "");
  gate_.spawn(run_waiting(add_keyed(row, std::move(words))));
  auto read = co_await read_ahead().with_cancellation(reading_ahead_->cancellation());
  if (running_.empty()) co_return Result<void>();
  // The client has left, or the gateway goes down.
  client_.closing = true;
  (void)end_wait(std::nullopt);
  co_return read;
}

// Reads while a command waits: until the client leaves, or until it is cancelled.
Task<Result<void>> RedisConnection::read_ahead() {
  for (;;) {
    if (parser_.buffered() > kReadAheadMax) {
      Event never(loop_);
      FF_CO_TRY(co_await never.wait());
    }
    const std::array<ByteSpan, 1> space = {parser_.space()};
    FF_CO_TRY(const auto got, stream_->try_read(space));
    if (!got) {
      FF_CO_TRY(co_await stream_->readable().wait());
      continue;
    }
    if (*got == 0) co_return Result<void>();
    parser_.commit(*got);
  }
}

// One attempt, with the locks of its keys.
Task<Result<void>> RedisConnection::attempt(RunningCommand& command, CommandWait& wait) {
  if (!command.lock) {
    command.lock.emplace(gateway_.locks(), keys_of(*command.row, command.words),
                         command.row->has(kWritesKeys));
  }
  auto held = co_await command.lock->wait();
  command.reply.clear();
  if (held) {
    co_await gateway_.execute(client_, *command.row, command.words, command.reply, &wait);
  }
  command.lock.reset();
  if (!wait.words.empty()) command.words = std::move(wait.words);
  co_return held;
}

Task<void> RedisConnection::run_waiting(RunningCommand& command) {
  const int64_t begin_ns = loop_.now_ns();
  KeyWaits::KeyWait place(gateway_.waits(), keys_of(*command.row, command.words));
  OpenWait open(place);
  CommandWait wait;
  for (;;) {
    place.announced().reset();
    const auto attempted = co_await attempt(command, wait);
    if (!attempted || !wait.waits) break;
    const int64_t most_ms = (INT64_MAX - begin_ns) / kMillisecond;
    const bool forever = wait.timeout_ms == 0 || wait.timeout_ms >= most_ms;
    const int64_t until_ns = forever ? INT64_MAX : begin_ns + wait.timeout_ms * kMillisecond;
    wait_ = &open;
    if (client_.closing) open.ended = true;
    if (!open.ended) {
      const auto woken = co_await place.announced().wait(until_ns);
      if (!woken) open.ended = true;
    }
    wait_ = nullptr;
    if (!open.ended) continue;
    if (open.error) {
      command.reply.clear();
      RespWriter(command.reply, client_.version).error(open.error->message);
    }
    break;
  }
  finish(command);
  reading_ahead_->cancellation().request(fail(Errc::interrupted, "the command has ended"));
}

bool RedisConnection::end_wait(std::optional<Error> error) {
  if (wait_ == nullptr) return false;
  wait_->error = std::move(error);
  wait_->ended = true;
  wait_->place.announced().set();
  return true;
}

void RedisConnection::reply_error(std::string_view text) {
  running_.push_back(std::make_unique<RunningCommand>());
  RespWriter(running_.back()->reply, client_.version).error(text);
  finish(*running_.back());
}

// Moves the replies of all commands that nothing before delays to the output.
void RedisConnection::finish(RunningCommand& command) {
  command.done = true;
  running_bytes_ -= command.word_bytes;
  command.words.clear();
  waiting_bytes_ += command.reply.size();
  while (!running_.empty() && running_.front()->done) {
    std::string& reply = running_.front()->reply;
    waiting_bytes_ -= reply.size();
    if (out_.empty()) {
      out_.swap(reply);
    } else {
      out_ += reply;
    }
    running_.pop_front();
  }
  if (unsent() > kRepliesMax) {
    log_warning("client closed: it takes no replies",
                {{"address", client_.address}, {"bytes", unsent()}});
    fail_stream();
  }
  changed_.set();
  loop_.wake_at_turn_end(*this);
}

void RedisConnection::fail_stream() {
  broken_ = true;
  out_.clear();
  sent_ = 0;
  stream_->close();
  changed_.set();
}

void RedisConnection::flush() {
  while (!broken_ && !waits_for_stream_ && sent_ < out_.size()) {
    const std::array<ByteView, 1> bytes = {as_bytes(std::string_view(out_).substr(sent_))};
    const auto sent = stream_->try_write(bytes);
    if (!sent) return fail_stream();
    if (!*sent) {
      waits_for_stream_ = true;
      gate_.spawn(flush_when_writable());
      break;
    }
    sent_ += **sent;
  }
  if (sent_ == out_.size()) {
    out_.clear();
    if (out_.capacity() > kKeptBytes) out_ = std::string();
    sent_ = 0;
  } else if (sent_ > kRepliesWait) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  changed_.set();
}

Task<void> RedisConnection::flush_when_writable() {
  const auto waited = co_await stream_->writable().wait();
  waits_for_stream_ = false;
  if (waited) flush();
}

}  // namespace ff::gateway
