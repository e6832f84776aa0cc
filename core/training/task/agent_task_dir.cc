// agent_task_dir.cc: files created in the parent directory, then renamed into the task's.
#include "training/task/agent_task_dir.h"

#include <utility>

#include "platform/io/files.h"
#include "platform/io/owner.h"

namespace ff::task {
namespace {

// The value of a file; a malformed one is added to `ignored`.
template <class T>
std::optional<T> value_of(const TaskFile& file, const std::string& path,
                          std::optional<T> (*parse)(std::string_view),
                          std::vector<std::string>& ignored) {
  if (!file.ignored.empty()) ignored.push_back(file.ignored);
  if (!file.line) return std::nullopt;
  auto value = parse(*file.line);
  if (!value) ignored.push_back(path + ": malformed line");
  return value;
}

}  // namespace

AgentTaskDir::AgentTaskDir(io::Disk& disk, Rng& rng, std::string dir,
                           std::optional<FileOwner> owner)
    : disk_(disk), rng_(rng), dir_(std::move(dir)), owner_(owner) {}

Result<void> AgentTaskDir::create() {
  auto made = disk_.make_dir(dir_, 0700);
  if (!made && made.error().code != Errc::exists) return made;
  FF_TRY(const auto info, disk_.info(dir_));
  if (info.kind != io::FileKind::directory) {
    return Error{Errc::refused, dir_ + ": not a directory", "Remove it."};
  }
  if (owner_) FF_TRY(io::set_owner(dir_, owner_->uid, owner_->gid));
  return {};
}

Result<void> AgentTaskDir::request_stop(const StopRequest& request) {
  FF_TRY(const std::string line, stop_line(request));
  return write(kStop, line);
}

Result<void> AgentTaskDir::set_life_state(uint32_t value) {
  return write(kLifeState, fmt::to_string(value));
}

Result<TaskDirSnapshot> AgentTaskDir::read(const RankRange& ranks) {
  if (ranks.count > kNodeRanksMax || ranks.first > UINT32_MAX - ranks.count) {
    return fail(Errc::usage, "{} ranks from {} on: a node has fewer", ranks.count, ranks.first);
  }
  FF_TRY(const auto info, disk_.info(dir_));
  if (info.kind != io::FileKind::directory) return fail(Errc::failed, "{}: not a directory", dir_);
  TaskDirSnapshot snapshot;
  const auto read_one = [&]<class T>(std::string_view name,
                                     std::optional<T> (*parse)(std::string_view)) {
    return value_of(read_task_file(disk_, path(name)), path(name), parse, snapshot.ignored);
  };
  snapshot.stop = read_one(kStop, parse_stop);
  snapshot.acked = is_regular_file(disk_, path(kAck));
  snapshot.saved = read_one(kSaved, parse_step);
  snapshot.life_state = read_one(kLifeState, parse_life_state);
  for (uint32_t rank = ranks.first; rank < ranks.first + ranks.count; rank++) {
    const std::string name = path(heartbeat_name(rank));
    const TaskFile file = read_task_file(disk_, name);
    const auto step = value_of(file, name, parse_step, snapshot.ignored);
    if (step)
      snapshot.heartbeats.push_back({.rank = rank, .step = *step, .mtime_ns = file.mtime_ns});
  }
  return snapshot;
}

Result<void> AgentTaskDir::write(std::string_view name, std::string_view line) {
  const std::string temporary = temporary_name(rng_, io::parent(dir_), name);
  FF_TRY(write_line(disk_, temporary, line));
  Result<void> done;
  // Shell scripts of the task write into the file in place.
  if (owner_) done = io::set_owner(temporary, owner_->uid, owner_->gid);
  if (done) done = disk_.rename(temporary, path(name));
  if (!done) (void)disk_.remove(temporary);
  return done;
}

}  // namespace ff::task
