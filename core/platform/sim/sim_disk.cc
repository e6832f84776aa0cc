// sim_disk.cc: names, directories and faults of the simulated disk (sim_disk.h).
//
// Every directory has two maps: the current entries and the durable entries. unsynced_names_ lists
// the changes between the two, in order. sync_dir() applies the changes of its directory to the
// durable entries, with the earlier changes that they depend on. A power loss applies a random part
// and makes the current entries equal to the durable ones.
#include "platform/sim/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <set>
#include <utility>

#include "platform/sim/sim_beneath.h"
#include "platform/sim/sim_disk_file.h"

namespace ff::sim {

using io::FileKind;

namespace {

constexpr std::string_view kCrashText = "the simulated machine has stopped";
constexpr uint32_t kUmask = 022;
constexpr size_t kMaxName = 255;                    // as Linux
constexpr unsigned kMaxLinks = 40;                  // symbolic links followed in one path, as Linux
constexpr uint64_t kUnlimited = uint64_t{1} << 38;  // blocks: 1 PiB

// "a//b/" -> {"a", "b"}.
std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_dir(const std::shared_ptr<SimInode>& node) {
  return node != nullptr && node->kind == FileKind::directory;
}

// Identifies a directory entry, to find dependent changes.
using EntryKey = std::pair<const SimInode*, std::string>;

}  // namespace

Error crash_error(const std::string& path) {
  return fail(Errc::failed, "{}: {}", path, kCrashText);
}

bool is_crash(const Error& error) { return error.message.find(kCrashText) != std::string::npos; }

SimDisk::SimDisk(uint64_t seed, Clock& clock) : rng_(seed), clock_(clock), capacity_(kUnlimited) {
  root_ = new_inode(FileKind::directory, 0777);
  root_->links = 1;
}

SimDisk::~SimDisk() {
  // A directory can contain another in one map and be inside it in the other: break such cycles.
  for (const auto& weak : dirs_) {
    if (const InodeRef dir = weak.lock()) {
      dir->entries.clear();
      dir->durable_entries.clear();
    }
  }
}

// Faults.

void SimDisk::set_fault(SimOp kind, double probability, int err) {
  faults_[kind] = {.probability = probability, .err = err};
}

Result<void> SimDisk::inject_fault(SimOp kind, bool mutates, const std::string& path) {
  if (crashed_) return crash_error(path);
  if (mutates) {
    const uint64_t operation = mutations_++;
    if (operation == crash_at_) {
      crash();
      return crash_error(path);
    }
    if (const auto failure = failures_.find(operation); failure != failures_.end()) {
      return errno_error(failure->second, path);
    }
  }
  const auto fault = faults_.find(kind);
  if (fault != faults_.end() && rng_.uniform01() < fault->second.probability) {
    return errno_error(fault->second.err, path);
  }
  if (mutates && read_only_ && kind != SimOp::sync && kind != SimOp::sync_dir) {
    return errno_error(EROFS, path);
  }
  return {};
}

void SimDisk::crash() {
  if (crashed_) return;
  for (SimQueue* queue : queues_) queue->apply_in_flight();
  crashed_ = true;
}

void SimDisk::kill() {
  crash();
  restart();
}

void SimDisk::power_loss() {
  crash();
  const Survival survival = pick_survival(rng_);
  drop_unsynced_names(survival);
  std::set<const SimInode*> seen;
  std::deque<InodeRef> todo{root_};
  while (!todo.empty()) {
    const InodeRef node = todo.front();
    todo.pop_front();
    if (!seen.insert(node.get()).second) continue;  // a second name of the same file
    node->content.power_loss(rng_, survival);
    node->reserved = {};
    node->entries = node->durable_entries;
    for (const auto& [name, child] : node->entries) todo.push_back(child);
  }
  restart();
}

// Applies a random part of the unsynced name changes, each only with those it depends on.
void SimDisk::drop_unsynced_names(Survival survival) {
  std::set<EntryKey> lost;
  bool lost_dir_move = false;
  for (const NameChange& change : unsynced_names_) {
    bool kept =
        survival == Survival::everything || (survival == Survival::some && rng_.below(2) == 0);
    if (change.moves_dir && lost_dir_move) kept = false;
    for (const Entry& entry : change.entries) {
      if (lost.contains({entry.dir.get(), entry.name})) kept = false;
    }
    if (kept) {
      make_durable(change);
      continue;
    }
    lost_dir_move |= change.moves_dir;
    for (const Entry& entry : change.entries) lost.insert({entry.dir.get(), entry.name});
  }
  unsynced_names_.clear();
}

void SimDisk::restart() {
  crashed_ = false;
  crash_at_ = UINT64_MAX;
  failures_.clear();
  ++handle_epoch_;
  recount_blocks();
}

// Recomputes link counts and used space from the reachable nodes; handles and locks are reset.
void SimDisk::recount_blocks() {
  used_ = 0;
  std::set<const SimInode*> seen;
  std::deque<InodeRef> todo{root_};
  while (!todo.empty()) {
    const InodeRef node = todo.front();
    todo.pop_front();
    if (!seen.insert(node.get()).second) {
      ++node->links;
      continue;
    }
    node->links = 1;
    node->opens = 0;
    node->locked = nullptr;
    node->blocks = node->content.allocated_pages(node->reserved);
    used_ += node->blocks + 1;
    for (const auto& [name, child] : node->entries) todo.push_back(child);
  }
}

Result<void> SimDisk::flip_bit(const std::string& path, uint64_t bit) {
  FF_TRY(const InodeRef node, find(path, true));
  if (node->kind != FileKind::regular || bit / 8 >= node->content.size()) {
    return fail(Errc::failed, "{}: has no bit {}", path, bit);
  }
  node->content.flip(bit);
  return {};
}

// Nodes and space.

SimDisk::InodeRef SimDisk::new_inode(FileKind kind, uint32_t mode) {
  auto node = std::make_shared<SimInode>();
  node->inode = next_inode_++;
  node->kind = kind;
  node->mode = mode;
  node->mtime_ns = clock_.wall_ns();
  if (kind == FileKind::directory) {
    std::erase_if(dirs_, [](const auto& dir) { return dir.expired(); });
    dirs_.push_back(node);
  }
  ++used_;  // every node takes a block
  return node;
}

int SimDisk::make_inode(const PathLookup& found, FileKind kind, uint32_t mode, InodeRef& node) {
  if (found.name.size() > kMaxName) return ENAMETOOLONG;
  if (used_ >= capacity_) return ENOSPC;
  node = new_inode(kind, mode);
  apply({.entries = {{found.dir, found.name, node}}});
  return 0;
}

bool SimDisk::take_blocks(uint64_t blocks) {
  if (blocks > 0 && (used_ >= capacity_ || capacity_ - used_ < blocks)) return false;
  used_ += blocks;
  return true;
}

void SimDisk::release_if_gone(SimInode& node) {
  if (node.links == 0 && node.opens == 0) used_ -= node.blocks + 1;
}

// Makes a change visible, and durable at some later time.
void SimDisk::apply(NameChange change) {
  for (const Entry& entry : change.entries) {
    InodeRef& held = entry.dir->entries[entry.name];
    const InodeRef before = std::exchange(held, entry.node);
    if (entry.node) {
      ++entry.node->links;
    } else {
      entry.dir->entries.erase(entry.name);
    }
    if (before) {
      --before->links;
      // A renamed node is counted again at its new name.
      const bool moves = std::any_of(change.entries.begin(), change.entries.end(),
                                     [&](const Entry& other) { return other.node == before; });
      if (!moves) release_if_gone(*before);
    }
    entry.dir->mtime_ns = clock_.wall_ns();
  }
  unsynced_names_.push_back(std::move(change));
}

void SimDisk::make_durable(const NameChange& change) {
  for (const Entry& entry : change.entries) {
    if (entry.node) {
      entry.dir->durable_entries[entry.name] = entry.node;
    } else {
      entry.dir->durable_entries.erase(entry.name);
    }
  }
}

// Paths.

int SimDisk::walk(const std::string& path, bool follow_last, PathLookup& found) {
  if (path.empty()) return ENOENT;
  const std::vector<std::string> first = split(path);
  std::deque<std::string> parts(first.begin(), first.end());
  const bool wants_dir = path.back() == '/';
  std::vector<InodeRef> trail{root_};
  found = {.dir = nullptr, .name = {}, .node = root_};
  unsigned links = 0;
  while (!parts.empty()) {
    const std::string part = std::move(parts.front());
    parts.pop_front();
    if (!is_dir(found.node)) return ENOTDIR;
    if (part == "." || part == "..") {
      if (part == ".." && trail.size() > 1) trail.pop_back();
      found = {.dir = nullptr, .name = {}, .node = trail.back()};
      continue;
    }
    const InodeRef here = trail.back();
    const auto child = here->entries.find(part);
    if (child == here->entries.end()) {
      found = {.dir = here, .name = part, .node = nullptr};
      return parts.empty() ? 0 : ENOENT;
    }
    const InodeRef node = child->second;
    if (node->kind == FileKind::symlink && (!parts.empty() || follow_last || wants_dir)) {
      if (++links > kMaxLinks) return ELOOP;
      const std::vector<std::string> target = split(node->target);
      parts.insert(parts.begin(), target.begin(), target.end());
      if (node->target.front() == '/') trail.resize(1);
      found = {.dir = nullptr, .name = {}, .node = trail.back()};
      continue;
    }
    found = {.dir = here, .name = part, .node = node};
    if (is_dir(node)) trail.push_back(node);
  }
  return wants_dir && !is_dir(found.node) ? ENOTDIR : 0;
}

Result<SimDisk::InodeRef> SimDisk::find(const std::string& path, bool follow_last) {
  PathLookup found;
  if (const int err = walk(path, follow_last, found); err != 0) return errno_error(err, path);
  if (!found.node) return errno_error(ENOENT, path);
  return found.node;
}

io::FileInfo SimDisk::info_of(const SimInode& node) {
  io::FileInfo info;
  info.kind = node.kind;
  info.mode = node.mode;
  info.size = node.kind == FileKind::symlink ? node.target.size() : node.content.size();
  info.allocated = node.blocks * kPage;
  info.mtime_ns = node.mtime_ns;
  info.device = 1;
  info.inode = node.inode;
  return info;
}

// Disk.

Result<std::unique_ptr<io::File>> SimDisk::open(const std::string& path, io::OpenOptions options) {
  const bool writes = options.access != io::AccessMode::read;
  FF_TRY(inject_fault(SimOp::open, options.create || options.truncate, path));
  const bool exclusive = options.create && options.exclusive;
  PathLookup found;
  if (const int err = walk(path, !options.no_follow && !exclusive, found); err != 0) {
    return errno_error(err, path);
  }
  if (found.node) {
    if (exclusive) return errno_error(EEXIST, path);
    if (found.node->kind == FileKind::symlink) return errno_error(ELOOP, path);
    if (found.node->kind == FileKind::directory) return errno_error(EISDIR, path);
    if (writes && read_only_) return errno_error(EROFS, path);
  } else {
    if (!options.create) return errno_error(ENOENT, path);
    const uint32_t mode = options.mode & 07777 & ~kUmask;
    const int err = make_inode(found, FileKind::regular, mode, found.node);
    if (err != 0) return errno_error(err, path);
  }
  auto file = std::make_unique<SimFile>(*this, found.node, path, options);
  if (options.truncate && found.node->content.size() > 0) file->shrink(0);
  return std::unique_ptr<io::File>(std::move(file));
}

std::unique_ptr<io::IoQueue> SimDisk::make_queue(io::QueueOptions options) {
  return std::make_unique<SimQueue>(*this, options);
}

Result<io::FileInfo> SimDisk::info(const std::string& path) {
  FF_TRY(inject_fault(SimOp::read, false, path));
  FF_TRY(const InodeRef node, find(path, false));
  return info_of(*node);
}

Result<std::vector<io::DirEntry>> SimDisk::list(const std::string& dir) {
  FF_TRY(inject_fault(SimOp::read, false, dir));
  FF_TRY(const InodeRef node, find(dir, true));
  if (!is_dir(node)) return errno_error(ENOTDIR, dir);
  std::vector<io::DirEntry> entries;
  for (const auto& [name, child] : node->entries) entries.push_back({name, child->kind});
  return entries;
}

Result<void> SimDisk::make_dir(const std::string& path, uint32_t mode) {
  FF_TRY(inject_fault(SimOp::name, true, path));
  PathLookup found;
  int err = walk(path, false, found);
  if (err == 0 && found.node) err = EEXIST;
  InodeRef made;
  if (err == 0) err = make_inode(found, FileKind::directory, mode & 07777 & ~kUmask, made);
  if (err != 0) return errno_error(err, path);
  return {};
}

Result<void> SimDisk::make_symlink(const std::string& target, const std::string& path) {
  FF_TRY(inject_fault(SimOp::name, true, path));
  PathLookup found;
  int err = target.empty() ? ENOENT : walk(path, false, found);
  if (err == 0 && found.node) err = EEXIST;
  InodeRef made;
  if (err == 0) err = make_inode(found, FileKind::symlink, 0777, made);
  if (err != 0) return errno_error(err, path);
  made->target = target;
  return {};
}

Result<void> SimDisk::remove(const std::string& path) {
  FF_TRY(inject_fault(SimOp::name, true, path));
  PathLookup found;
  int err = walk(path, false, found);
  if (err == 0 && !found.node) err = ENOENT;
  if (err == 0 && is_dir(found.node)) err = EISDIR;
  if (err != 0) return errno_error(err, path);
  apply({.entries = {{found.dir, found.name, nullptr}}});
  return {};
}

Result<void> SimDisk::remove_dir(const std::string& path) {
  FF_TRY(inject_fault(SimOp::name, true, path));
  PathLookup found;
  int err = walk(path, false, found);
  if (err == 0 && !found.node) err = ENOENT;
  if (err == 0 && !is_dir(found.node)) err = ENOTDIR;
  if (err == 0 && !found.dir) err = EBUSY;
  if (err == 0 && !found.node->entries.empty()) err = ENOTEMPTY;
  if (err != 0) return errno_error(err, path);
  apply({.entries = {{found.dir, found.name, nullptr}}});
  return {};
}

// The errno of a rename of `from` to `to`; 0: allowed.
int SimDisk::check_rename(const PathLookup& from, const PathLookup& to,
                          const InodeRef& moved) const {
  if (!moved) return ENOENT;
  if (!from.dir || !to.dir) return EBUSY;
  if (to.name.size() > kMaxName) return ENAMETOOLONG;
  if (to.node && is_dir(to.node) && !is_dir(moved)) return EISDIR;
  if (to.node && !is_dir(to.node) && is_dir(moved)) return ENOTDIR;
  if (is_dir(to.node) && to.node != moved && !to.node->entries.empty()) return ENOTEMPTY;
  // A directory cannot move below itself.
  std::deque<InodeRef> below{moved};
  while (!below.empty()) {
    if (below.front() == to.dir) return EINVAL;
    for (const auto& [name, child] : below.front()->entries) {
      if (is_dir(child)) below.push_back(child);
    }
    below.pop_front();
  }
  return 0;
}

Result<void> SimDisk::rename(const std::string& from, const std::string& to) {
  const std::string what = from + " -> " + to;
  FF_TRY(inject_fault(SimOp::name, true, what));
  PathLookup old_entry;
  PathLookup new_entry;
  int err = walk(from, false, old_entry);
  if (err == 0) err = walk(to, false, new_entry);
  if (err == 0) err = check_rename(old_entry, new_entry, old_entry.node);
  if (err != 0) return errno_error(err, what);
  if (old_entry.node == new_entry.node) return {};  // two names of one file: POSIX does nothing
  apply({.entries = {{old_entry.dir, old_entry.name, nullptr},
                     {new_entry.dir, new_entry.name, old_entry.node}},
         .moves_dir = is_dir(old_entry.node)});
  return {};
}

Result<void> SimDisk::link(const std::string& from, const std::string& to) {
  const std::string what = from + " -> " + to;
  FF_TRY(inject_fault(SimOp::name, true, what));
  PathLookup old_entry;
  PathLookup new_entry;
  int err = walk(from, false, old_entry);
  if (err == 0 && !old_entry.node) err = ENOENT;
  if (err == 0) err = walk(to, false, new_entry);
  if (err == 0 && new_entry.node) err = EEXIST;
  if (err == 0 && is_dir(old_entry.node)) err = EPERM;
  if (err == 0 && new_entry.name.size() > kMaxName) err = ENAMETOOLONG;
  if (err != 0) return errno_error(err, what);
  apply({.entries = {{new_entry.dir, new_entry.name, old_entry.node}}});
  return {};
}

Result<std::string> SimDisk::read_symlink(const std::string& path) {
  FF_TRY(inject_fault(SimOp::read, false, path));
  FF_TRY(const InodeRef node, find(path, false));
  if (node->kind != FileKind::symlink) return errno_error(EINVAL, path);
  return node->target;
}

Result<void> SimDisk::set_mode(const std::string& path, uint32_t mode) {
  FF_TRY(inject_fault(SimOp::name, true, path));
  FF_TRY(const InodeRef node, find(path, true));
  node->mode = mode & 07777;
  return {};
}

Result<void> SimDisk::set_mtime(const std::string& path, int64_t mtime_ns) {
  FF_TRY(inject_fault(SimOp::name, true, path));
  FF_TRY(const InodeRef node, find(path, false));
  node->mtime_ns = mtime_ns == -1 ? clock_.wall_ns() : mtime_ns;
  return {};
}

// Makes the changes of this directory durable, and the earlier changes that they depend on.
Result<void> SimDisk::sync_dir(const std::string& path) {
  FF_TRY(inject_fault(SimOp::sync_dir, true, path));
  FF_TRY(const InodeRef dir, find(path, true));
  if (!is_dir(dir)) return errno_error(ENOTDIR, path);
  std::set<EntryKey> needed;
  bool needed_dir_moves = false;
  std::vector<bool> settled(unsynced_names_.size());
  for (size_t i = unsynced_names_.size(); i-- > 0;) {
    const NameChange& change = unsynced_names_[i];
    settled[i] = change.moves_dir && needed_dir_moves;
    for (const Entry& entry : change.entries) {
      if (entry.dir == dir || needed.contains({entry.dir.get(), entry.name})) settled[i] = true;
    }
    if (!settled[i]) continue;
    needed_dir_moves |= change.moves_dir;
    for (const Entry& entry : change.entries) needed.insert({entry.dir.get(), entry.name});
  }
  std::vector<NameChange> rest;
  for (size_t i = 0; i < settled.size(); ++i) {
    if (settled[i]) {
      make_durable(unsynced_names_[i]);
    } else {
      rest.push_back(std::move(unsynced_names_[i]));
    }
  }
  unsynced_names_ = std::move(rest);
  return {};
}

Result<io::Space> SimDisk::space(const std::string& path) {
  FF_TRY(inject_fault(SimOp::read, false, path));
  FF_TRY(find(path, true));
  return io::Space{.total = capacity_ * kPage,
                   .free = used_ < capacity_ ? (capacity_ - used_) * kPage : 0};
}

Result<std::unique_ptr<io::Disk>> SimDisk::beneath(const std::string& dir) {
  return SimBeneath::open(*this, dir);
}

}  // namespace ff::sim
