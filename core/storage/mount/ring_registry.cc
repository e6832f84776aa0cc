// ring_registry.cc: links, round-robin service, and the wake socket.
#include "storage/mount/ring_registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>

#include "platform/base/log.h"
#include "platform/base/text.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {

namespace {

constexpr std::string_view kWakeSocketPrefix = "hf3fs-submit-ios.";
constexpr int64_t kOwnerCheckNs = 1 * kSecond;
constexpr size_t kLinksMax = 4096;      // for all users
constexpr size_t kRunningMax = 256;     // batches of all rings
constexpr size_t kWakeupsAtOnce = 256;  // datagrams

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

Fd datagrams() { return Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// Removes the sockets of daemons that were killed.
void remove_stale_wake_sockets() {
  DIR* const dir = ::opendir(usrbio::kShm.data());
  if (dir == nullptr) return;
  while (const dirent* const entry = ::readdir(dir)) {
    if (!std::string_view(entry->d_name).starts_with(kWakeSocketPrefix)) continue;
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

RingRegistry::RingRegistry(Loop& loop, Operations& operations, chain::BufferPool& memory,
                           RegisterMemory register_memory, DescriptorStore* store)
    : loop_(loop),
      operations_(operations),
      memory_(memory),
      register_memory_(std::move(register_memory)),
      store_(store),
      work_(loop),
      gate_(loop) {}

RingRegistry::~RingRegistry() {
  if (!wake_path_.empty()) ::unlink(wake_path_.c_str());
}

Result<void> RingRegistry::start() {
  // The kernel keeps the targets of links by their numbers.
  const usrbio::IovId random = usrbio::random_id();
  std::memcpy(&last_number_, random.data(), sizeof last_number_);
  last_number_ >>= 24;  // room for all later ones
  restore_dirs();
  FF_TRY(open_journal());
  gate_.spawn(serve());
  gate_.spawn(check_lost_owners());
  FF_TRY(open_wake_socket());
  FF_TRY(wake_watch_, loop_.watch(wake_socket_.get()));
  gate_.spawn(receive_wakeups());
  return {};
}

Result<void> RingRegistry::make_wake_socket() {
  remove_stale_wake_sockets();
  std::string path(usrbio::kShm);
  path += kWakeSocketPrefix;
  path += usrbio::text_of(usrbio::random_id());
  wake_socket_ = datagrams();
  const sockaddr_un address = address_of(path);
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  if (wake_socket_.get() < 0 || ::bind(wake_socket_.get(), at, sizeof address) != 0) {
    return errno_error(errno, path);
  }
  wake_path_ = path;
  wake_number_ = last_number_ + 1;
  last_number_ += std::size(usrbio::kWakeLinks);
  // Every user of the mount may wake the daemon; that is all the socket does.
  if (::chmod(path.c_str(), 0666) != 0) return errno_error(errno, path);
  return {};
}

Task<void> RingRegistry::close() {
  for (const auto& ring : rings_) ring->close();
  Error reason = fail(Errc::interrupted, "the mount is shutting down");
  co_await gate_.close(std::move(reason));
  links_.clear();
  by_id_.clear();
  rings_.clear();
}

Task<void> RingRegistry::receive_wakeups() {
  for (;;) {
    std::array<char, 8> bytes;
    wake_watch_->readable.reset();
    size_t received = 0;
    while (received < kWakeupsAtOnce &&
           ::recv(wake_socket_.get(), bytes.data(), bytes.size(), 0) >= 0)
      received++;
    if (received > 0) work_.set();
    if (received == kWakeupsAtOnce) {
      YieldWait turn(loop_);
      const auto yielded = co_await turn;
      if (!yielded) co_return;
      continue;
    }
    const auto waited = co_await wake_watch_->readable.wait();
    if (!waited) co_return;
  }
}

// Serves each ring once. True: there is more work already.
bool RingRegistry::serve_turn() {
  if (paused_) return false;
  size_t running = 0;
  for (const auto& ring : rings_) running += ring->running();
  bool more = false;
  // Taking entries never closes other rings, so the vector does not change.
  for (const auto& ring : rings_) {
    // The end of a batch wakes this task.
    if (running >= kRunningMax) return false;
    if (repeats_wait_ && ring->repeats()) continue;
    if (journal_->room() < RingServer::kBatchMax && !ring->repeats()) continue;
    const size_t before = ring->running();
    const uint32_t taken = ring->take_requests();
    running += ring->running() - before;
    more |= taken == RingServer::kBatchMax || !ring->prepare_to_sleep();
  }
  return more;
}

Task<void> RingRegistry::serve() {
  for (;;) {
    const auto waited = co_await work_.wait();
    if (!waited) co_return;
    work_.reset();
    const bool more = serve_turn();
    // The first ring of a priority becomes the last one.
    const auto rest = std::ranges::upper_bound(
        rings_, rings_.empty() ? 0 : rings_.front()->priority(), {}, &RingServer::priority);
    if (rings_.begin() != rest) std::rotate(rings_.begin(), rings_.begin() + 1, rest);
    if (more) work_.set();
    YieldWait turn(loop_);
    const auto yielded = co_await turn;
    if (!yielded) co_return;
  }
}

// Drops links whose process has ended, if no open directory stands for it.
Task<void> RingRegistry::check_lost_owners() {
  for (;;) {
    const auto waited = co_await sleep_for(loop_, kOwnerCheckNs);
    if (!waited) co_return;
    for (const auto& ring : rings_) ring->cancel_lost_reads();
    for (auto link = links_.begin(); link != links_.end();) {
      const auto& [name, what] = *link;
      const auto process = static_cast<pid_t>(what.owner.process);
      const bool lost = what.dir == 0 && process != 0 && ::kill(process, 0) != 0 && errno == ESRCH;
      const auto next = std::next(link);
      if (lost) drop_abandoned(link);
      link = next;
    }
  }
}

Result<const RingRegistry::Link*> RingRegistry::add(const std::string& name,
                                                    const std::string& target, Owner owner) {
  if (journal_ == nullptr) return errno_error(EOPNOTSUPP, "USRBIO");  // start() has failed
  const auto parsed = usrbio::parse_iov_link_name(name);
  if (!parsed) return errno_error(EINVAL, printable(name));
  if (links_.contains(name)) return errno_error(EEXIST, printable(name));
  if (by_id_.contains(parsed->id)) return errno_error(EEXIST, printable(name));
  if (links_.size() >= kLinksMax) return errno_error(ENOSPC, "links of programs");
  FF_TRY(ClientMemoryFile file, open_client_memory(target, owner.uid));
  Link link{.target = target, .owner = owner, .number = ++last_number_, .id = parsed->id};
  const auto dir = std::ranges::find_if(dirs_, [&](const auto& one) {
    return owner.process != 0 && one.second.process == owner.process;
  });
  if (dir != dirs_.end()) link.dir = dir->first;
  if (parsed->ring) {
    FF_TRY(link.ring, RingServer::make(*this, *parsed, owner.uid, file, link.number));
  }
  const std::string stored = stored_name(name, link);
  const Fd left(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0));
  FF_TRY(const Link* const added, insert(name, *parsed, std::move(link), std::move(file)));
  leave(stored, left.get());
  return added;
}

// Serves the ring, or registers the memory.
Result<const RingRegistry::Link*> RingRegistry::insert(const std::string& name,
                                                       const usrbio::IovLinkName& parsed, Link link,
                                                       ClientMemoryFile file) {
  if (link.ring != nullptr) {
    const auto place = std::ranges::upper_bound(rings_, parsed.priority, {}, &RingServer::priority);
    rings_.insert(place, link.ring);
  } else {
    auto memory = std::make_shared<RegisteredMemory>();
    memory->uid = link.owner.uid;
    memory->block = parsed.block;
    FF_TRY(memory->memory, register_memory_(file));
    memory->fd = std::move(file.fd);
    link.memory = memory;
    by_id_[parsed.id] = memory;
  }
  work_.set();
  return &(links_[name] = std::move(link));
}

void RingRegistry::remove_link(Links::iterator link) {
  // Batches in flight keep what they use.
  if (link->second.memory != nullptr) by_id_.erase(link->second.id);
  if (link->second.ring != nullptr) {
    link->second.ring->close();
    std::erase(rings_, link->second.ring);
  }
  if (store_ != nullptr) store_->release(stored_name(link->first, link->second));
  links_.erase(link);
}

// The process has ended: remove its link, and a memory file that the library created.
void RingRegistry::drop_abandoned(Links::iterator link) {
  const Link& lost = link->second;
  const bool made = lost.target.starts_with(usrbio::kShmPrefix);
  struct stat there = {};
  struct stat ours = {};
  if (made && lost.memory != nullptr && ::lstat(lost.target.c_str(), &there) == 0 &&
      ::fstat(lost.memory->fd.get(), &ours) == 0 && there.st_ino == ours.st_ino) {
    ::unlink(lost.target.c_str());
  }
  remove_link(link);
}

Result<void> RingRegistry::remove(const std::string& name, uint32_t uid) {
  if (find(name, uid) == nullptr) return errno_error(ENOENT, printable(name));
  remove_link(links_.find(name));
  return {};
}

const RingRegistry::Link* RingRegistry::find(const std::string& name, uint32_t uid) const {
  const auto found = links_.find(name);
  if (found == links_.end()) return nullptr;
  return uid == 0 || found->second.owner.uid == uid ? &found->second : nullptr;
}

std::vector<std::pair<std::string, const RingRegistry::Link*>> RingRegistry::links(
    uint32_t uid) const {
  std::vector<std::pair<std::string, const Link*>> of_user;
  for (const auto& [name, link] : links_) {
    if (uid == 0 || link.owner.uid == uid) of_user.emplace_back(name, &link);
  }
  return of_user;
}

RegisteredMemoryRef RingRegistry::find(const usrbio::IovId& id, uint32_t uid) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  return uid == 0 || found->second->uid == uid ? found->second : nullptr;
}

bool RingRegistry::idle() const {
  return std::ranges::all_of(rings_, [](const auto& ring) { return ring->running() == 0; });
}

void RingRegistry::dir_closed(uint64_t dir) {
  dirs_.erase(dir);
  for (auto link = links_.begin(); link != links_.end();) {
    const auto next = std::next(link);
    if (link->second.dir == dir) drop_abandoned(link);
    link = next;
  }
}

}  // namespace ff::mount
