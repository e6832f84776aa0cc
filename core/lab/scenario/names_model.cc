// names_model.cc: the sequential model, and the search for an order.
#include "lab/scenario/names_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <unordered_set>

namespace ff::scenario::files_parts {

namespace {

// Inode number of an unacknowledged creation by step `number`, until an operation observes it.
constexpr uint64_t kUnseen = uint64_t{1} << 63;

}  // namespace

std::string NameStep::text() const {
  static constexpr const char* kNames[] = {"make file", "make directory", "link",
                                           "unlink",    "rmdir",          "rename",
                                           "exchange",  "lookup",         "list"};
  std::string text = fmt::format("{} {}/{}", kNames[static_cast<size_t>(kind)], dir, name);
  if (kind == Kind::link) text += fmt::format(" of {}", inode);
  if (kind == Kind::rename || kind == Kind::exchange) {
    text += fmt::format(" {} {}/{}", no_replace ? "onto nothing" : "to", to_dir, to_name);
  }
  if (!known()) return text + ": unknown";
  if (sys != 0) return text + fmt::format(": errno {}", sys);
  if (kind == Kind::list) return text + fmt::format(": {}", fmt::join(names, " "));
  return text + fmt::format(": inode {} with {} links", got, links);
}

bool NamesModel::is_dir(uint64_t inode) const {
  const auto at = inodes_.find(inode);
  return at != inodes_.end() && at->second.directory;
}

std::set<std::string> NamesModel::names_in(uint64_t dir) const {
  std::set<std::string> names;
  for (auto at = names_.lower_bound({dir, ""}); at != names_.end() && at->first.first == dir;
       ++at) {
    names.insert(at->first.second);
  }
  return names;
}

bool NamesModel::is_empty(uint64_t dir) const { return names_in(dir).empty(); }

bool NamesModel::is_above(uint64_t inode, uint64_t dir) const {
  for (uint64_t at = dir; at != 0; at = inodes_.at(at).parent) {
    if (at == inode) return true;
  }
  return false;
}

std::optional<uint64_t> NamesModel::find(const Name& name) const {
  const auto at = names_.find(name);
  if (at == names_.end()) return std::nullopt;
  return at->second;
}

void NamesModel::drop(uint64_t inode) {
  Inode& gone = inodes_.at(inode);
  // A file without names stays known: a program may still try to link it.
  if (gone.directory) {
    inodes_.erase(inode);
  } else {
    gone.links--;
  }
}

NamesModel::Answer NamesModel::make(const NameStep& step, size_t number) {
  if (!is_dir(step.dir)) return {ENOENT};
  if (find({step.dir, step.name})) return {EEXIST};
  const bool told = step.known() && step.sys == 0;
  const uint64_t id = told ? step.got : kUnseen + number;
  const bool directory = step.kind == NameStep::Kind::make_dir;
  inodes_[id] = {.directory = directory, .links = 1, .parent = directory ? step.dir : 0};
  names_[{step.dir, step.name}] = id;
  return {0, id};
}

NamesModel::Answer NamesModel::link(const NameStep& step) {
  if (!is_dir(step.dir)) return {ENOENT};
  if (find({step.dir, step.name})) return {EEXIST};
  const auto at = inodes_.find(step.inode);
  if (at == inodes_.end()) return {ESTALE};
  if (at->second.directory) return {EPERM};
  if (at->second.links == 0) return {ENOENT};
  at->second.links++;
  names_[{step.dir, step.name}] = step.inode;
  return {0, step.inode};
}

NamesModel::Answer NamesModel::remove(const NameStep& step) {
  if (!is_dir(step.dir)) return {ENOENT};
  const auto found = find({step.dir, step.name});
  if (!found) return {ENOENT};
  const bool wants_dir = step.kind == NameStep::Kind::rmdir;
  if (is_dir(*found) != wants_dir) return {wants_dir ? ENOTDIR : EISDIR};
  if (wants_dir && !is_empty(*found)) return {ENOTEMPTY};
  names_.erase({step.dir, step.name});
  drop(*found);
  return {0, *found};
}

int NamesModel::check_rename(const NameStep& step, uint64_t source,
                             std::optional<uint64_t> there) const {
  const bool exchange = step.kind == NameStep::Kind::exchange;
  if (step.dir != step.to_dir) {
    if (is_dir(source) && is_above(source, step.to_dir)) return EINVAL;
    if (exchange && there && is_dir(*there) && is_above(*there, step.dir)) return EINVAL;
  }
  if (step.no_replace && there) return EEXIST;
  if (exchange) return there ? 0 : ENOENT;
  if (!there) return 0;
  if (is_dir(source) != is_dir(*there)) return is_dir(source) ? ENOTDIR : EISDIR;
  if (*there != source && is_dir(*there) && !is_empty(*there)) return ENOTEMPTY;
  return 0;
}

NamesModel::Answer NamesModel::rename(const NameStep& step) {
  if (!is_dir(step.dir)) return {ENOENT};
  const auto source = find({step.dir, step.name});
  if (!source || !is_dir(step.to_dir)) return {ENOENT};
  const auto there = find({step.to_dir, step.to_name});
  if (const int sys = check_rename(step, *source, there)) return {sys};
  if (there == source) return {0, *source};
  const auto put = [&](uint64_t inode, uint64_t dir, const std::string& name) {
    names_[{dir, name}] = inode;
    if (is_dir(inode)) inodes_.at(inode).parent = dir;
  };
  if (step.kind == NameStep::Kind::exchange) {
    put(*there, step.dir, step.name);
  } else {
    if (there) drop(*there);
    names_.erase({step.dir, step.name});
  }
  put(*source, step.to_dir, step.to_name);
  return {0, *source};
}

NamesModel::Answer NamesModel::run(const NameStep& step, size_t number) {
  switch (step.kind) {
    case NameStep::Kind::make_file:
    case NameStep::Kind::make_dir: return make(step, number);
    case NameStep::Kind::link: return link(step);
    case NameStep::Kind::unlink:
    case NameStep::Kind::rmdir: return remove(step);
    case NameStep::Kind::rename:
    case NameStep::Kind::exchange: return rename(step);
    case NameStep::Kind::lookup: {
      const auto found = is_dir(step.dir) ? find({step.dir, step.name}) : std::nullopt;
      return found ? Answer{0, *found} : Answer{ENOENT};
    }
    case NameStep::Kind::list: return {is_dir(step.dir) ? 0 : ENOENT};
  }
  return {};
}

// An operation has observed the inode: it gets its real number.
void NamesModel::bind_inode(uint64_t inode, uint64_t real) {
  inodes_[real] = inodes_.at(inode);
  inodes_.erase(inode);
  for (auto& [name, id] : names_) {
    if (id == inode) id = real;
  }
  for (auto& [id, one] : inodes_) {
    if (one.parent == inode) one.parent = real;
  }
}

bool NamesModel::matches(const NameStep& step, Answer answer) {
  if (!step.known()) return true;
  // A file without names may have been garbage-collected, or not yet.
  const bool nameless = step.kind == NameStep::Kind::link && answer.sys == ENOENT;
  if (nameless && step.sys == ESTALE) return true;
  if (step.sys != answer.sys) return false;
  if (answer.sys != 0) return true;
  if (step.kind == NameStep::Kind::list) return step.names == names_in(step.dir);
  if (answer.got != step.got) {
    if ((answer.got & kUnseen) == 0 || inodes_.contains(step.got)) return false;
    if (inodes_.contains(answer.got)) bind_inode(answer.got, step.got);
  }
  const auto at = inodes_.find(step.got);
  return at == inodes_.end() || at->second.directory || at->second.links == step.links;
}

bool NamesModel::apply(const NameStep& step, size_t number) {
  const Answer answer = run(step, number);
  return matches(step, answer);
}

uint64_t NamesModel::hash() const {
  uint64_t hash = 0;
  for (const auto& [name, inode] : names_) {
    const uint64_t one = std::hash<std::string>()(name.second) ^ name.first * 0x9e3779b97f4a7c15;
    hash += (one ^ inode * 0xff51afd7ed558ccd) * 0xc4ceb9fe1a85ec53;
  }
  for (const auto& [id, inode] : inodes_) hash += (id * 31 + inode.links) * 0x94d049bb133111eb;
  return hash;
}

namespace {

// Limit of the search: if the system is wrong, steps with unknown results allow too many orders.
constexpr size_t kPlacesMax = 1'000'000;

// Depth-first search over the orders of the steps.
struct Search {
  const std::vector<NameStep>& steps;  // by when they began
  std::vector<bool> done;
  std::unordered_set<uint64_t> seen = {};
  size_t deepest = 0;

  bool gave_up() const { return seen.size() >= kPlacesMax; }
  uint64_t place(const NamesModel& model) const {
    return model.hash() ^ std::hash<std::vector<bool>>()(done) * 0x2545f4914f6cdd1d;
  }

  bool from(const NamesModel& model, size_t count) {
    deepest = std::max(deepest, count);
    // The next step must have begun before any remaining step ended.
    int64_t first_end_ns = INT64_MAX;
    bool all = true;
    for (size_t i = 0; i < steps.size(); i++) {
      if (done[i]) continue;
      if (steps[i].known()) all = false;
      if (steps[i].began_ns > first_end_ns) break;
      first_end_ns = std::min(first_end_ns, steps[i].ended_ns);
    }
    if (all) return true;
    if (gave_up() || !seen.insert(place(model)).second) return false;
    for (size_t i = 0; i < steps.size() && steps[i].began_ns <= first_end_ns; i++) {
      if (done[i]) continue;
      NamesModel next = model;
      if (!next.apply(steps[i], i)) continue;
      done[i] = true;
      if (from(next, count + 1)) return true;
      done[i] = false;
    }
    return false;
  }
};

}  // namespace

std::optional<std::string> find_contradiction(const std::vector<NameStep>& all, uint64_t root) {
  std::vector<NameStep> steps = all;
  std::ranges::stable_sort(steps, {}, &NameStep::began_ns);
  Search search{steps, std::vector<bool>(steps.size())};
  if (search.from(NamesModel(root), 0)) return std::nullopt;
  const size_t at = std::min(search.deepest, steps.size() - 1);
  std::string text = fmt::format("no order{} explains the answers; near step {}:",
                                 search.gave_up() ? " that was tried" : "", at);
  const size_t first = at < 12 ? 0 : at - 12;
  for (size_t i = first; i < std::min(at + 6, steps.size()); i++) {
    text += fmt::format(" | {} to {}: {}", steps[i].began_ns / 1000, steps[i].ended_ns / 1000,
                        steps[i].text());
  }
  return text;
}

}  // namespace ff::scenario::files_parts
