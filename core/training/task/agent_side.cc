// agent_side.cc: a task's folder as the node's agent uses it.
#include "training/task/agent_side.h"

#include <utility>

#include "platform/io/files.h"
#include "platform/io/owner.h"

namespace ff::task {
namespace {

// What a file says, once `parse` finds sense in it.
template <class T>
std::optional<T> take(const Fact& fact, const std::string& path,
                      std::optional<T> (*parse)(std::string_view),
                      std::vector<std::string>& ignored) {
  if (!fact.ignored.empty()) ignored.push_back(fact.ignored);
  if (!fact.line) return std::nullopt;
  auto value = parse(*fact.line);
  if (!value) ignored.push_back(path + ": its line makes no sense");
  return value;
}

}  // namespace

AgentSide::AgentSide(io::Disk& disk, Rng& rng, std::string dir, std::optional<Owner> owner)
    : disk_(disk), rng_(rng), dir_(std::move(dir)), owner_(owner) {}

Result<void> AgentSide::make() {
  auto made = disk_.make_dir(dir_, 0700);
  if (!made && made.error().code != Errc::exists) return made;
  FF_TRY(const auto info, disk_.info(dir_));
  if (info.kind != io::FileKind::directory) {
    return Error{Errc::refused, dir_ + ": not a directory", "Remove it."};
  }
  if (owner_) FF_TRY(io::set_owner(dir_, owner_->uid, owner_->gid));
  return {};
}

Result<void> AgentSide::request_stop(const StopRequest& request) {
  FF_TRY(const std::string line, stop_line(request));
  return write(kStop, line);
}

Result<void> AgentSide::set_life_state(uint32_t word) {
  return write(kLifeState, fmt::to_string(word));
}

Result<Snapshot> AgentSide::read(const Ranks& ranks) {
  if (ranks.count > kRanksMost || ranks.first > UINT32_MAX - ranks.count) {
    return fail(Errc::usage, "{} ranks from {} on are more than a node has", ranks.count,
                ranks.first);
  }
  FF_TRY(const auto info, disk_.info(dir_));
  if (info.kind != io::FileKind::directory) return fail(Errc::failed, "{}: not a directory", dir_);
  Snapshot all;
  const auto read_one = [&]<class T>(std::string_view name,
                                     std::optional<T> (*parse)(std::string_view)) {
    return take(read_fact(disk_, path(name)), path(name), parse, all.ignored);
  };
  all.stop = read_one(kStop, parse_stop);
  all.acked = has_file(disk_, path(kAck));
  all.saved = read_one(kSaved, parse_step);
  all.life_state = read_one(kLifeState, parse_life_state);
  for (uint32_t rank = ranks.first; rank < ranks.first + ranks.count; rank++) {
    const std::string file = path(heartbeat_name(rank));
    const Fact fact = read_fact(disk_, file);
    const auto step = take(fact, file, parse_step, all.ignored);
    if (step) all.heartbeats.push_back({.rank = rank, .step = *step, .mtime_ns = fact.mtime_ns});
  }
  return all;
}

Result<void> AgentSide::write(std::string_view name, std::string_view line) {
  const std::string unfinished = unfinished_name(rng_, io::parent(dir_), name);
  FF_TRY(write_line(disk_, unfinished, line));
  Result<void> done;
  // A shell of the task writes into it, and does not know how to rename.
  if (owner_) done = io::set_owner(unfinished, owner_->uid, owner_->gid);
  if (done) done = disk_.rename(unfinished, path(name));
  if (!done) (void)disk_.remove(unfinished);
  return done;
}

}  // namespace ff::task
