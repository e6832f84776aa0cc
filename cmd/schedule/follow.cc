// follow.cc: where a rank's log is, and reading it to its end.
#include "cmd/schedule/follow.h"

#include <algorithm>

#include "cmd/schedule/words.h"
#include "ops/scheduler/book.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using scheduler::wire::Attempt;
using scheduler::wire::ListedTask;
using scheduler::wire::LogReply;

constexpr uint32_t kPieceBytes = 256 << 10;
constexpr uint32_t kLinesBytesMax = 768 << 10;  // a message has room for no more
constexpr int64_t kFollowPollNs = 500 * kMillisecond;

bool is_finished(const scheduler::wire::Task& task) {
  return scheduler::phase_of(task) == scheduler::TaskPhase::finished;
}

// Of a character that was begun at the end of `bytes` and goes on behind them.
size_t cut_off(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); back++) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t whole = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return whole > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string TerminalText::take(std::string_view bytes) {
  const std::string all = rest_ + std::string(bytes);
  const size_t end = all.size() - cut_off(all);
  rest_ = all.substr(end);
  std::string text;
  size_t at = 0;
  while (at < end) {
    const size_t next = std::min(all.find_first_of("\n\t", at), end);
    append_printable(text, std::string_view(all).substr(at, next - at));
    if (next < end) text += all[next];
    at = next + 1;
  }
  return text;
}

LogReader::LogReader(ScheduleCalls& calls, const LogWanted& wanted)
    : calls_(calls), wanted_(wanted) {}

Result<ListedTask> LogReader::run() {
  for (;;) {
    FF_TRY(auto listed, calls_.task(wanted_.task));
    FF_TRY(const bool done, step(listed));
    if (done) return listed;
    FF_TRY(calls_.session().stop.sleep_ns(kFollowPollNs));
  }
}

// The one that is to be read next, null when there is none yet.
const Attempt* LogReader::choose(const scheduler::wire::Task& task) const {
  const auto& all = task.attempts();
  if (all.empty()) return nullptr;
  const uint32_t wanted = wanted_.attempt.value_or(attempt_);
  if (wanted == 0) return wanted_.all ? &*all.begin() : &*all.rbegin();
  const auto found = std::ranges::find(all, wanted, &Attempt::number);
  return found == all.end() ? nullptr : &*found;
}

// What is there now is read to its end; whether nothing can follow. `listed` is older than what is
// read, so that a finished task's last words are in it.
Result<bool> LogReader::step(const ListedTask& listed) {
  const scheduler::wire::Task& task = listed.task();
  const uint64_t ranks = uint64_t{task.spec().nodes()} * task.spec().processes();
  if (wanted_.rank >= ranks) {
    return fail(Errc::usage, "--rank {}: task {} has {} ranks, from 0", wanted_.rank, task.id(),
                ranks);
  }
  const Attempt* tried = choose(task);
  if (tried == nullptr && (is_finished(task) || (!wanted_.follow && task.attempts_made() == 0))) {
    Error error = fail(Errc::not_found, "task {} has no log{}", task.id(),
                       wanted_.attempt ? fmt::format(" of attempt {}", *wanted_.attempt)
                                       : std::string(": it never got nodes"));
    error.hint = fmt::format("Its attempts: ff schedule show {}", task.id());
    return error;
  }
  if (tried == nullptr && !wanted_.follow) {
    return fail(Errc::not_found, "task {} has no attempt {}", task.id(),
                wanted_.attempt.value_or(0));
  }
  if (tried == nullptr) {
    tell_waiting(listed);
    return false;
  }
  if (tried->number() != attempt_) FF_TRY(begin(task, *tried));
  auto reading = read_rest();
  const bool is_newest = tried->number() == task.attempts().rbegin()->number();
  if (!reading && wanted_.all && !is_newest && reading.error().code != Errc::interrupted) {
    // It may be gone; what came after it is worth having.
    calls_.session().out.note("attempt {}: {}", tried->number(), reading.error().message);
    reading = {};
  }
  if (reading) {
    was_lost_ = false;
  } else {
    const bool may_come = reading.error().code == Errc::unreachable ||
                          reading.error().code == Errc::not_found ||
                          reading.error().code == Errc::deadline;
    const bool is_over = is_finished(task) && was_lost_;
    if (!wanted_.follow || !may_come || is_over) return std::move(reading).error();
    FF_TRY(calls_.session().stop.check());
    if (!was_lost_ && begun_) calls_.session().out.note("{}", reading.error().message);
    was_lost_ = true;
    return false;
  }
  const bool goes_on = wanted_.follow || wanted_.all;
  if (!goes_on || (wanted_.attempt && tried->ended() != 0)) return true;
  if (!is_newest) {
    const auto next = std::ranges::upper_bound(task.attempts(), attempt_, {}, &Attempt::number);
    FF_TRY(begin(task, *next));
    return wanted_.follow ? Result<bool>(false) : step(listed);
  }
  if (!wanted_.follow) return true;
  if (is_finished(task)) return true;
  if (tried->ended() != 0) tell_waiting(listed);
  return false;
}

void LogReader::tell_waiting(const ListedTask& listed) {
  const std::string why = why_text(listed, 0);
  if (told_ == why + task_state(listed.task())) return;
  told_ = why + task_state(listed.task());
  calls_.session().out.note("{}", explanation(listed, calls_.wall_ns()));
}

Result<void> LogReader::begin(const scheduler::wire::Task& task, const Attempt& tried) {
  if (attempt_ != 0 || wanted_.all)
    calls_.session().out.note("attempt {} of task {}", tried.number(), task.id());
  attempt_ = tried.number();
  begun_ = false;
  offset_ = 0;
  told_.clear();
  agent_.clear();
  const uint32_t place = wanted_.rank / task.spec().processes();
  local_rank_ = wanted_.rank % task.spec().processes();
  if (place >= static_cast<uint32_t>(tried.nodes_size())) {
    return fail(Errc::not_found, "the scheduler no longer knows where rank {} of attempt {} was",
                wanted_.rank, tried.number());
  }
  node_ = tried.nodes(static_cast<int>(place));
  return {};
}

Result<LogReply> LogReader::read(uint64_t offset, uint32_t limit, bool from_end) {
  if (agent_.empty()) {
    FF_TRY(const auto nodes, calls_.nodes());
    for (const auto& listed : nodes) {
      if (listed.node().name() == node_) agent_ = listed.node().agent();
    }
    if (agent_.empty()) {
      return Error{Errc::not_found,
                   fmt::format("the scheduler does not know the agent of node {}", node_),
                   "Is its agent running? ff schedule nodes"};
    }
  }
  scheduler::wire::LogRequest request;
  request.set_task(wanted_.task);
  request.set_attempt(attempt_);
  request.set_rank(local_rank_);
  request.set_offset(offset);
  request.set_limit(limit);
  request.set_from_end(from_end);
  auto reply = calls_.ask_agent(agent_, scheduler::kLog, request);
  if (reply) return reply;
  Error error = std::move(reply).error();
  if (error.code == Errc::unreachable || error.code == Errc::deadline) {
    error.hint = "Is the agent of that node running? ff schedule nodes";
    agent_.clear();  // it may come back elsewhere
  }
  return std::move(error).within(fmt::format("node {}: ", node_));
}

// Where the last lines begin, as far back as one message reaches.
Result<void> LogReader::find_lines() {
  lines_done_ = true;
  FF_TRY(const auto reply, read(0, kLinesBytesMax, true));
  const std::string& data = reply.data();
  uint64_t left = *wanted_.lines;
  size_t at = data.size();
  // The newline at the very end closes the last line.
  if (left > 0 && at > 0 && data[at - 1] == '\n') at--;
  while (left > 0 && at > 0) {
    const size_t before = data.rfind('\n', at - 1);
    if (before == data.npos) {
      at = 0;
      left--;
      break;
    }
    at = before;
    left--;
  }
  if (*wanted_.lines == 0) at = data.size();
  if (at > 0 && at < data.size() && data[at] == '\n') at++;
  offset_ = reply.offset() + at;
  return print(reply, std::string_view(data).substr(at));
}

Result<void> LogReader::read_rest() {
  if (wanted_.lines && !lines_done_) {
    auto found = find_lines();
    if (!found) lines_done_ = false;
    FF_TRY(std::move(found));
  }
  for (;;) {
    FF_TRY(const auto reply, read(offset_, kPieceBytes, false));
    begun_ = true;
    if (reply.offset() > offset_ && !reply.data().empty()) {
      calls_.session().out.note("the agent no longer has {} of it",
                                format_size(reply.offset() - offset_));
    }
    if (reply.data().empty()) return {};
    FF_TRY(print(reply, reply.data()));
    FF_TRY(calls_.session().stop.check());
  }
}

Result<void> LogReader::print(const LogReply& reply, std::string_view data) {
  Output& out = calls_.session().out;
  const uint64_t begin = reply.offset() + reply.data().size() - data.size();
  offset_ = reply.offset() + reply.data().size();
  if (data.empty()) return {};
  if (out.mode().json) {
    Json json = {{"task", wanted_.task}, {"attempt", attempt_},  {"rank", wanted_.rank},
                 {"offset", begin},      {"bytes", data.size()}, {"text", data}};
    if (!valid_utf8(data)) json["hex"] = hex(as_bytes(data));
    return out.emit(json);
  }
  out.trusted(out.stdout_is_terminal() ? text_.take(data) : std::string(data));
  return out.flush();
}

}  // namespace ff::cmd
