// log_reader.cc: finds the log of a rank, and reads it to the end.
#include "cmd/schedule/log_reader.h"

#include <algorithm>

#include "cmd/schedule/format.h"
#include "ops/scheduler/scheduler_state.h"
#include "ops/shim/rank_log.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using scheduler::wire::Attempt;
using scheduler::wire::ListedTask;
using scheduler::wire::LogReply;

constexpr uint32_t kReadBytes = 256 << 10;
constexpr uint32_t kLinesBytesMax = 768 << 10;  // limit of a message
constexpr int64_t kFollowPollNs = 500 * kMillisecond;

bool is_finished(const scheduler::wire::Task& task) {
  return scheduler::phase_of(task) == scheduler::TaskPhase::finished;
}

// Number of bytes of an incomplete UTF-8 character at the end of `bytes`.
size_t incomplete_bytes(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); back++) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t whole = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return whole > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string TerminalText::escape(std::string_view bytes) {
  const std::string all = incomplete_ + std::string(bytes);
  const size_t end = all.size() - incomplete_bytes(all);
  incomplete_ = all.substr(end);
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

std::string PlainOutput::strip(std::string_view log, std::vector<std::string>& messages) {
  incomplete_ += log;
  std::string text;
  std::string_view rest = incomplete_;
  for (size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    const std::string_view whole = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    const auto line = shim::parse_rank_log_line(whole);
    if (line && line->own) {
      if (!shim::bytes_before(whole)) messages.emplace_back(line->text);
      continue;
    }
    if (!line || !line->continues) text += end_line();
    text += line ? line->text : whole;  // a killed shim may have left a line without a timestamp
    held_newline_ = true;
  }
  incomplete_.erase(0, incomplete_.size() - rest.size());
  return text;
}

std::string PlainOutput::finish() {
  std::vector<std::string> messages;
  std::string text = incomplete_.empty() ? "" : strip("\n", messages);
  return text + end_line();
}

LogReader::LogReader(SchedulerClient& client, const LogSelection& wanted)
    : client_(client), selection_(wanted) {}

Result<ListedTask> LogReader::run() {
  for (;;) {
    FF_TRY(auto listed, client_.task(selection_.task));
    FF_TRY(const bool done, step(listed));
    if (done) {
      if (selection_.plain) client_.session().out.raw_text(plain_.finish());
      return listed;
    }
    FF_TRY(client_.session().stop.sleep_ns(kFollowPollNs));
  }
}

// The attempt to read next; null: none yet.
const Attempt* LogReader::choose_attempt(const scheduler::wire::Task& task) const {
  const auto& all = task.attempts();
  if (all.empty()) return nullptr;
  const uint32_t wanted = selection_.attempt.value_or(attempt_);
  if (wanted == 0) return selection_.all ? &*all.begin() : &*all.rbegin();
  const auto found = std::ranges::find(all, wanted, &Attempt::number);
  return found == all.end() ? nullptr : &*found;
}

// Reads to the present end; returns whether nothing can follow. `listed` is older than the data, so
// the last output of a finished task is included.
Result<bool> LogReader::step(const ListedTask& listed) {
  const scheduler::wire::Task& task = listed.task();
  const uint64_t ranks = uint64_t{task.spec().nodes()} * task.spec().processes();
  if (selection_.rank >= ranks) {
    return fail(Errc::usage, "--rank {}: task {} has {} ranks, from 0", selection_.rank, task.id(),
                ranks);
  }
  const Attempt* current = choose_attempt(task);
  if (current == nullptr &&
      (is_finished(task) || (!selection_.follow && task.attempts_made() == 0))) {
    Error error = fail(Errc::not_found, "task {} has no log{}", task.id(),
                       selection_.attempt ? fmt::format(" of attempt {}", *selection_.attempt)
                                          : std::string(": it never got nodes"));
    error.hint = fmt::format("Its attempts: ff schedule show {}", task.id());
    return error;
  }
  if (current == nullptr && !selection_.follow) {
    return fail(Errc::not_found, "task {} has no attempt {}", task.id(),
                selection_.attempt.value_or(0));
  }
  if (current == nullptr) {
    print_waiting(listed);
    return false;
  }
  if (current->number() != attempt_) FF_TRY(open_attempt(task, *current));
  auto reading = read_to_end();
  const bool is_newest = current->number() == task.attempts().rbegin()->number();
  if (!reading && selection_.all && !is_newest && reading.error().code != Errc::interrupted) {
    // The log may be removed; continue with the next attempt.
    client_.session().out.note("attempt {}: {}", current->number(), reading.error().message);
    reading = {};
  }
  if (reading) {
    was_lost_ = false;
  } else {
    const bool may_come = reading.error().code == Errc::unreachable ||
                          reading.error().code == Errc::not_found ||
                          reading.error().code == Errc::deadline;
    const bool is_over = is_finished(task) && was_lost_;
    if (!selection_.follow || !may_come || is_over) return std::move(reading).error();
    FF_TRY(client_.session().stop.check());
    if (!was_lost_ && begun_) client_.session().out.note("{}", reading.error().message);
    was_lost_ = true;
    return false;
  }
  const bool goes_on = selection_.follow || selection_.all;
  if (!goes_on || (selection_.attempt && current->ended() != 0)) return true;
  if (!is_newest) {
    const auto next = std::ranges::upper_bound(task.attempts(), attempt_, {}, &Attempt::number);
    FF_TRY(open_attempt(task, *next));
    return selection_.follow ? Result<bool>(false) : step(listed);
  }
  if (!selection_.follow) return true;
  if (is_finished(task)) return true;
  if (current->ended() != 0) print_waiting(listed);
  return false;
}

void LogReader::print_waiting(const ListedTask& listed) {
  const std::string why = reason_text(listed, 0);
  if (last_reason_ == why + task_state(listed.task())) return;
  last_reason_ = why + task_state(listed.task());
  client_.session().out.note("{}", explanation(listed, client_.wall_ns()));
}

Result<void> LogReader::open_attempt(const scheduler::wire::Task& task, const Attempt& current) {
  if (attempt_ != 0 || selection_.all)
    client_.session().out.note("attempt {} of task {}", current.number(), task.id());
  attempt_ = current.number();
  begun_ = false;
  offset_ = 0;
  last_reason_.clear();
  agent_.clear();
  const uint32_t place = selection_.rank / task.spec().processes();
  local_rank_ = selection_.rank % task.spec().processes();
  if (place >= static_cast<uint32_t>(current.nodes_size())) {
    return fail(Errc::not_found, "the scheduler no longer knows the node of rank {} of attempt {}",
                selection_.rank, current.number());
  }
  node_ = current.nodes(static_cast<int>(place));
  return {};
}

Result<LogReply> LogReader::read(uint64_t offset, uint32_t limit, bool from_end) {
  if (agent_.empty()) {
    FF_TRY(const auto nodes, client_.nodes());
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
  request.set_task(selection_.task);
  request.set_attempt(attempt_);
  request.set_rank(local_rank_);
  request.set_offset(offset);
  request.set_limit(limit);
  request.set_from_end(from_end);
  auto reply = client_.call_agent(agent_, scheduler::kLog, request);
  if (reply) return reply;
  Error error = std::move(reply).error();
  if (error.code == Errc::unreachable || error.code == Errc::deadline) {
    error.hint = "Is the agent of that node running? ff schedule nodes";
    agent_.clear();  // it may return with another address
  }
  return std::move(error).with_context(fmt::format("node {}: ", node_));
}

// Finds the begin of the last lines, within the limit of one message.
Result<void> LogReader::seek_last_lines() {
  lines_found_ = true;
  FF_TRY(const auto reply, read(0, kLinesBytesMax, true));
  const std::string& data = reply.data();
  uint64_t left = *selection_.lines;
  size_t at = data.size();
  // The last newline ends the last line.
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
  if (*selection_.lines == 0) at = data.size();
  if (at > 0 && at < data.size() && data[at] == '\n') at++;
  offset_ = reply.offset() + at;
  return print(reply, std::string_view(data).substr(at));
}

Result<void> LogReader::read_to_end() {
  if (selection_.lines && !lines_found_) {
    auto found = seek_last_lines();
    if (!found) lines_found_ = false;
    FF_TRY(std::move(found));
  }
  for (;;) {
    FF_TRY(const auto reply, read(offset_, kReadBytes, false));
    begun_ = true;
    if (reply.offset() > offset_ && !reply.data().empty()) {
      client_.session().out.note("the agent no longer has {} of the log",
                                 format_size(reply.offset() - offset_));
    }
    if (reply.data().empty()) {
      if (!selection_.plain) return {};
      client_.session().out.raw_text(plain_.end_line());
      return client_.session().out.flush();
    }
    FF_TRY(print(reply, reply.data()));
    FF_TRY(client_.session().stop.check());
  }
}

Result<void> LogReader::print(const LogReply& reply, std::string_view data) {
  Output& out = client_.session().out;
  const uint64_t begin = reply.offset() + reply.data().size() - data.size();
  offset_ = reply.offset() + reply.data().size();
  if (data.empty()) return {};
  if (out.mode().json) {
    Json json = {{"task", selection_.task}, {"attempt", attempt_},  {"rank", selection_.rank},
                 {"offset", begin},         {"bytes", data.size()}, {"text", data}};
    if (!valid_utf8(data)) json["hex"] = hex(as_bytes(data));
    return out.emit(json);
  }
  if (selection_.plain) {
    std::vector<std::string> messages;
    out.raw_text(plain_.strip(data, messages));
    for (const std::string& message : messages) out.note("{}", message);
  } else {
    out.raw_text(out.stdout_is_terminal() ? text_.escape(data) : std::string(data));
  }
  return out.flush();
}

}  // namespace ff::cmd
