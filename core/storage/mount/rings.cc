// rings.cc: links, turns, and the datagrams that wake it.
#include "storage/mount/rings.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {

namespace {

constexpr std::string_view kBellPrefix = "hf3fs-submit-ios.";
constexpr int64_t kLookNs = 1 * kSecond;
constexpr size_t kLinksMax = 4096;    // of all users
constexpr size_t kRunningMax = 256;   // jobs of all rings
constexpr size_t kHeardAtOnce = 256;  // datagrams

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

Fd datagrams() { return Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// Of daemons that were killed.
void remove_old_bells() {
  DIR* const dir = ::opendir(usrbio::kShm.data());
  if (dir == nullptr) return;
  while (const dirent* const entry = ::readdir(dir)) {
    if (!std::string_view(entry->d_name).starts_with(kBellPrefix)) continue;
    const std::string path = std::string(usrbio::kShm) + entry->d_name;
    const sockaddr_un address = address_of(path);
    const Fd socket = datagrams();
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    const bool dead = ::connect(socket.get(), to, sizeof address) != 0 && errno == ECONNREFUSED;
    if (dead) ::unlink(path.c_str());
  }
  ::closedir(dir);
}

}  // namespace

Rings::Rings(Loop& loop, Operations& operations, chain::Memory& memory, Adopt adopt)
    : loop_(loop),
      operations_(operations),
      memory_(memory),
      adopt_(std::move(adopt)),
      more_(loop),
      gate_(loop) {}

Rings::~Rings() {
  if (!bell_path_.empty()) ::unlink(bell_path_.c_str());
}

Result<void> Rings::start() {
  remove_old_bells();
  std::string path(usrbio::kShm);
  path += kBellPrefix;
  path += usrbio::text_of(usrbio::random_id());
  bell_ = datagrams();
  const sockaddr_un address = address_of(path);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  if (bell_.get() < 0 || ::bind(bell_.get(), at, sizeof address) != 0) {
    return errno_error(errno, path);
  }
  bell_path_ = path;
  // Whoever may see the mount may wake it, which is all that comes of it.
  if (::chmod(path.c_str(), 0666) != 0) return errno_error(errno, path);
  FF_TRY(bell_watch_, loop_.watch(bell_.get()));
  gate_.spawn(hear());
  gate_.spawn(serve());
  gate_.spawn(look_for_lost());
  return {};
}

Task<void> Rings::close() {
  for (const auto& ring : rings_) ring->close();
  Error reason = fail(Errc::interrupted, "the mount goes down");
  co_await gate_.close(std::move(reason));
  links_.clear();
  by_id_.clear();
  rings_.clear();
}

Task<void> Rings::hear() {
  for (;;) {
    std::array<char, 8> bytes;
    bell_watch_->readable.reset();
    size_t heard = 0;
    while (heard < kHeardAtOnce && ::recv(bell_.get(), bytes.data(), bytes.size(), 0) >= 0) heard++;
    if (heard > 0) more_.set();
    if (heard == kHeardAtOnce) {
      YieldWait turn(loop_);
      const auto yielded = co_await turn;
      if (!yielded) co_return;
      continue;
    }
    const auto waited = co_await bell_watch_->readable.wait();
    if (!waited) co_return;
  }
}

// True: there is more to do already.
bool Rings::scan() {
  size_t running = 0;
  for (const auto& ring : rings_) running += ring->running();
  bool more = false;
  // Taking requests may end rings of others in no way; the vector stays as it is.
  for (const auto& ring : rings_) {
    if (running >= kRunningMax) return false;  // whichever ends will ask again
    const size_t before = ring->running();
    const uint32_t taken = ring->scan();
    running += ring->running() - before;
    more |= taken == RingServer::kTakenMax || !ring->sleep();
  }
  return more;
}

Task<void> Rings::serve() {
  for (;;) {
    const auto waited = co_await more_.wait();
    if (!waited) co_return;
    more_.reset();
    const bool more = scan();
    // Who came first in this turn comes last in the next, of one priority.
    const auto rest = std::ranges::upper_bound(
        rings_, rings_.empty() ? 0 : rings_.front()->priority(), {}, &RingServer::priority);
    if (rings_.begin() != rest) std::rotate(rings_.begin(), rings_.begin() + 1, rest);
    if (more) more_.set();
    YieldWait turn(loop_);
    const auto yielded = co_await turn;
    if (!yielded) co_return;
  }
}

// Links of programs that keep no directory open.
Task<void> Rings::look_for_lost() {
  for (;;) {
    const auto waited = co_await after(loop_, kLookNs);
    if (!waited) co_return;
    for (const auto& ring : rings_) ring->give_up_lost();
    for (auto link = links_.begin(); link != links_.end();) {
      const auto& [name, what] = *link;
      const auto process = static_cast<pid_t>(what.owner.process);
      const bool lost = what.dir == 0 && process != 0 && ::kill(process, 0) != 0 && errno == ESRCH;
      const auto next = std::next(link);
      if (lost) drop_lost(link);
      link = next;
    }
  }
}

Result<const Rings::Link*> Rings::add(const std::string& name, const std::string& target,
                                      Owner owner) {
  const auto parsed = usrbio::parse_link_name(name);
  if (!parsed) return errno_error(EINVAL, printable(name));
  if (links_.contains(name)) return errno_error(EEXIST, printable(name));
  if (by_id_.contains(parsed->id)) return errno_error(EEXIST, printable(name));
  if (links_.size() >= kLinksMax) return errno_error(ENOSPC, "links of programs");
  FF_TRY(ForeignFile file, open_foreign(target, owner.uid));
  Link link{.target = target, .owner = owner, .number = ++last_number_, .id = parsed->id};
  const auto dir = std::ranges::find_if(
      dirs_, [&](const auto& one) { return owner.process != 0 && one.second == owner.process; });
  if (dir != dirs_.end()) link.dir = dir->first;
  if (parsed->ring) {
    FF_TRY(link.ring, RingServer::make(*this, *parsed, owner.uid, file));
    const auto place =
        std::ranges::upper_bound(rings_, parsed->priority, {}, &RingServer::priority);
    rings_.insert(place, link.ring);
  } else {
    auto memory = std::make_shared<ProgramMemory>();
    memory->uid = owner.uid;
    memory->block = parsed->block;
    FF_TRY(memory->memory, adopt_(file));
    memory->fd = std::move(file.fd);
    link.memory = memory;
    by_id_[parsed->id] = memory;
  }
  more_.set();
  return &(links_[name] = std::move(link));
}

void Rings::drop(Links::iterator link) {
  // Jobs under way keep what they use; it goes with the last of them.
  if (link->second.memory != nullptr) by_id_.erase(link->second.id);
  if (link->second.ring != nullptr) {
    link->second.ring->close();
    std::erase(rings_, link->second.ring);
  }
  links_.erase(link);
}

// Its program has gone without a word, or with it: what the library has made for it is nobody's.
void Rings::drop_lost(Links::iterator link) {
  const Link& lost = link->second;
  const bool made = lost.target.starts_with(usrbio::kShmPrefix);
  struct stat there = {};
  struct stat ours = {};
  if (made && lost.memory != nullptr && ::lstat(lost.target.c_str(), &there) == 0 &&
      ::fstat(lost.memory->fd.get(), &ours) == 0 && there.st_ino == ours.st_ino) {
    ::unlink(lost.target.c_str());
  }
  drop(link);
}

Result<void> Rings::remove(const std::string& name, uint32_t uid) {
  if (find(name, uid) == nullptr) return errno_error(ENOENT, printable(name));
  drop(links_.find(name));
  return {};
}

const Rings::Link* Rings::find(const std::string& name, uint32_t uid) const {
  const auto found = links_.find(name);
  if (found == links_.end()) return nullptr;
  return uid == 0 || found->second.owner.uid == uid ? &found->second : nullptr;
}

std::vector<std::pair<std::string, const Rings::Link*>> Rings::links(uint32_t uid) const {
  std::vector<std::pair<std::string, const Link*>> of_user;
  for (const auto& [name, link] : links_) {
    if (uid == 0 || link.owner.uid == uid) of_user.emplace_back(name, &link);
  }
  return of_user;
}

ProgramMemoryRef Rings::find(const usrbio::Id& id, uint32_t uid) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  return uid == 0 || found->second->uid == uid ? found->second : nullptr;
}

void Rings::dir_opened(uint64_t dir, uint32_t process) { dirs_[dir] = process; }

void Rings::dir_closed(uint64_t dir) {
  dirs_.erase(dir);
  for (auto link = links_.begin(); link != links_.end();) {
    const auto next = std::next(link);
    if (link->second.dir == dir) drop_lost(link);
    link = next;
  }
}

}  // namespace ff::mount
