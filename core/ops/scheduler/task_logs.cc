// task_logs.cc: finds the attempt, checks the owner, and reads across files.
#include "ops/scheduler/task_logs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/shim/rank_log.h"
#include "ops/shim/records.h"
#include "platform/base/bytes.h"
#include "platform/io/files.h"

namespace ff::scheduler {
namespace {

constexpr int kPutAwayTries = 3;           // an attempt is moved to ended/ once
constexpr uint64_t kFilesMost = 1000;      // shim/launch.cc
constexpr size_t kFirstLineMost = 128;     // longer than the line with the byte count
constexpr uint64_t kLeastRead = 4 * kKiB;  // for a caller without a limit

ByteSpan span_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

}  // namespace

// Newest first: a file that is rotated meanwhile is then met again, and never missed.
Result<RotatedLog> RotatedLog::open(io::Disk& disk, const std::string& path) {
  RotatedLog log;
  for (uint64_t age = 0; age < kFilesMost; age++) {
    const std::string name = age == 0 ? path : fmt::format("{}.{}", path, age);
    const io::OpenOptions options{.no_follow = true};
    auto file = disk.open(name, options);
    if (!file && file.error().code == Errc::not_found && age > 0) break;
    if (!file && file.error().code == Errc::not_found) continue;  // just rotated, or none yet
    if (!file) return std::move(file).error();
    FF_TRY(const auto info, (*file)->info());
    if (info.kind != io::FileKind::regular) return fail(Errc::failed, "{}: not a file", name);
    const bool met = std::ranges::any_of(
        log.files_, [&info](const Part& part) { return part.inode == info.inode; });
    if (met) continue;
    log.files_.push_back({.file = *std::move(file), .inode = info.inode, .size = info.size});
  }
  std::ranges::reverse(log.files_);
  for (size_t i = 0; i < log.files_.size(); i++) {
    Part& part = log.files_[i];
    FF_TRY(const auto told, recorded_begin(part));
    const uint64_t behind = i == 0 ? 0 : log.files_[i - 1].begin + log.files_[i - 1].size;
    part.begin = told.value_or(behind);
    // It grew after its size was read, and was then rotated.
    if (i > 0 && told && *told > behind) log.files_[i - 1].size += *told - behind;
  }
  return log;
}

Result<std::optional<uint64_t>> RotatedLog::recorded_begin(const Part& part) {
  std::array<std::byte, kFirstLineMost> bytes;
  FF_TRY(const size_t got, part.file->read_at(bytes, 0));
  const std::string_view text = as_text(ByteView(bytes).first(got));
  if (text.find('\n') == text.npos) return std::optional<uint64_t>();
  return shim::bytes_before(text.substr(0, text.find('\n')));
}

Result<std::string> RotatedLog::read(uint64_t offset, uint64_t limit) const {
  std::string all;
  for (const Part& part : files_) {
    const uint64_t at = offset + all.size();
    if (at < part.begin || at >= part.begin + part.size || all.size() >= limit) continue;
    std::string piece(std::min(limit - all.size(), part.begin + part.size - at), '\0');
    FF_TRY(const size_t got, part.file->read_at(span_of(piece), at - part.begin));
    all.append(piece, 0, got);
    if (got < piece.size()) break;
  }
  return all;
}

Result<TaskLogs::Found> TaskLogs::find(uint64_t task, uint32_t attempt) const {
  std::optional<std::pair<AttemptName, std::string>> newest;
  for (const std::string& folder : {attempts_, ended_}) {
    FF_TRY(const auto entries, disk_.list(folder));
    for (const io::DirEntry& entry : entries) {
      const auto name = parse_attempt_name(entry.name);
      if (!name || name->task != task || (attempt != 0 && name->attempt != attempt)) continue;
      if (newest && newest->first >= *name) continue;
      newest = {*name, io::join(folder, entry.name)};
    }
  }
  const auto gone = [&] {
    return fail(Errc::not_found, "this node has no log of task {}{}", task,
                attempt == 0 ? std::string() : fmt::format(", attempt {}", attempt));
  };
  if (!newest) return gone();
  const auto text =
      io::read_file(disk_, io::join(newest->second, kAttemptFile), kAttemptRecordBytesMax);
  if (!text && text.error().code == Errc::not_found) return gone();
  if (!text) return text.error();
  FF_TRY(auto record, parse_attempt(*text));
  return Found{.dir = newest->second,
               .record = std::move(record),
               .ended = newest->second.starts_with(ended_ + "/")};
}

Result<wire::LogReply> TaskLogs::read(const wire::LogRequest& request,
                                      std::optional<uint32_t> reader) const {
  for (int tries = 1;; tries++) {
    auto reply = try_read(request, reader);
    if (reply && *reply) return **std::move(reply);
    const bool may_have_moved = reply || reply.error().code == Errc::not_found;
    if (!may_have_moved || tries == kPutAwayTries) {
      return reply ? fail(Errc::not_found, "the log of task {} is gone", request.task())
                   : std::move(reply).error();
    }
  }
}

Result<std::optional<wire::LogReply>> TaskLogs::try_read(const wire::LogRequest& request,
                                                         std::optional<uint32_t> reader) const {
  FF_TRY(const Found found, find(request.task(), request.attempt()));
  if (reader && *reader != found.record.uid) {
    return fail(Errc::refused, "task {} is another user's", request.task());
  }
  if (request.rank() >= found.record.processes) {
    return fail(Errc::not_found, "task {} has {} ranks on this node", request.task(),
                found.record.processes);
  }
  // Before its files: what is there then is all.
  const std::string exit = fmt::format("{}/rank.{}/{}", found.dir, request.rank(), shim::kExitFile);
  FF_TRY(const bool exited, io::exists(disk_, exit));
  FF_TRY(const RotatedLog log,
         RotatedLog::open(disk_, fmt::format("{}/{}.log", found.dir, request.rank())));
  const uint64_t limit =
      std::clamp<uint64_t>(request.limit() == 0 ? kLeastRead : request.limit(), 1, kLogReadMax);
  uint64_t offset = std::clamp(request.offset(), log.begin(), log.end());
  if (request.from_end()) offset = std::max(log.begin(), log.end() - std::min(log.end(), limit));
  wire::LogReply reply;
  FF_TRY(*reply.mutable_data(), log.read(offset, limit));
  reply.set_offset(offset);
  reply.set_end(log.end());
  reply.set_ended((found.ended || exited) && offset + reply.data().size() >= log.end());
  reply.set_attempt(found.record.attempt);
  FF_TRY(const bool stayed, io::exists(disk_, found.dir));
  return stayed ? std::optional(std::move(reply)) : std::nullopt;
}

}  // namespace ff::scheduler
