// The library side of rings: allocates slots, writes submission entries and reads completion
// entries (ring.h).
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/iov_link_name.h"
#include "storage/usrbio/mount_points.h"
#include "storage/usrbio/registered_files.h"
#include "storage/usrbio/ring.h"
#include "storage/usrbio/shm.h"

namespace ff::usrbio {

namespace {

// How often a waiting thread checks that the mount still exists and knows the ring: a process that
// continues the mount of one that has died does not.
constexpr time_t kMountCheckSeconds = 2;

// The state of a ring in this process.
struct OpenRing {
  ~OpenRing() {
    if (wake_socket >= 0) ::close(wake_socket);
    unmap(shm);
  }

  std::shared_ptr<const MountPoint> mount = {};
  std::string link = {};
  pid_t creator = 0;
  Shm shm = {};
  Ring ring = {};
  int wake_socket = -1;             // a socket that wakes the daemon
  std::atomic<time_t> checked = 0;  // when check_mount() has last asked

  std::mutex mutex = {};  // protects the fields below
  std::vector<uint32_t> free = {};
  std::vector<const void*> userdata = {};  // by slot
  uint32_t prepared = 0;
  uint32_t reaped = 0;
};

OpenRing* ring_of(const hf3fs_ior* ior) {
  return ior == nullptr ? nullptr : static_cast<OpenRing*>(ior->iorh);
}

// Connects to the wake socket; any datagram wakes the daemon.
int connect_wake_socket(const MountPoint& mount, int priority, int& wake_socket) {
  const std::string path = read_link(mount.iovs, std::string(wake_link(priority)));
  if (path.empty()) return -errno;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  wake_socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (wake_socket < 0) return -errno;
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(wake_socket, to, sizeof address) == 0 ? 0 : -errno;
}

// Removes the link of the ring.
void remove_link(OpenRing& open) {
  ::unlinkat(open.mount->iovs, open.link.c_str(), 0);
  open.link.clear();
}

struct RingOptions {
  int entries = 0;
  bool read = false;
  int depth = 0;
  int priority = 0;
  int timeout_ms = 0;
  int numa = -1;
  uint64_t flags = 0;
};

int create_ring(OpenRing& open, const RingOptions& options, const IovId& id) {
  const size_t bytes = ring_bytes(options.entries);
  int error = create_shm(bytes, options.numa, open.shm);
  if (error != 0) return error;
  const auto entries = static_cast<uint32_t>(options.entries);
  open.ring = Ring(open.shm.base, entries);
  open.ring.head().magic = kRingMagic;
  open.ring.head().version = kRingVersion;
  open.ring.head().entries = entries;
  const IovLinkName name{.id = id,
                         .ring = true,
                         .read = options.read,
                         .depth = options.depth,
                         .priority = std::clamp(options.priority, -1, 1),
                         .timeout_ms = options.timeout_ms,
                         .flags = options.flags};
  open.link = text_of(name);
  open.creator = ::getpid();
  if (::symlinkat(open.shm.path.c_str(), open.mount->iovs, open.link.c_str()) != 0) error = -errno;
  // The daemon has opened the file.
  ::unlink(open.shm.path.c_str());
  if (error != 0) return error;
  error = connect_wake_socket(*open.mount, options.priority, open.wake_socket);
  if (error != 0) remove_link(open);
  for (uint32_t i = entries; i > 0; i--) open.free.push_back(i - 1);
  open.userdata.resize(entries);
  return error;
}

int create(hf3fs_ior* ior, const char* point, const RingOptions& options) {
  if (ior == nullptr || point == nullptr || ring_bytes(options.entries) == 0) return -EINVAL;
  if (std::strlen(point) >= sizeof ior->mount_point || options.timeout_ms < 0) return -EINVAL;
  if (options.depth > options.entries || options.depth == INT32_MIN) return -EINVAL;
  auto open = std::make_unique<OpenRing>();
  int error = 0;
  open->mount = open_mount_point(point, error);
  if (open->mount == nullptr) return -error;
  const IovId id = random_id();
  error = create_ring(*open, options, id);
  if (error != 0) return error;
  *ior = {};
  std::memcpy(ior->mount_point, point, std::strlen(point) + 1);
  std::memcpy(ior->iov.mount_point, point, std::strlen(point) + 1);
  std::memcpy(ior->iov.id, id.data(), id.size());
  ior->iov.base = static_cast<uint8_t*>(open->shm.base);
  ior->iov.size = open->shm.size;
  ior->iov.numa = options.numa;
  ior->for_read = options.read;
  ior->io_depth = options.depth;
  ior->priority = options.priority;
  ior->timeout = options.timeout_ms;
  ior->flags = options.flags;
  ior->iorh = open.release();
  return 0;
}

int check_request(const hf3fs_ior& ior, const hf3fs_iov& iov, bool read, const void* at,
                  uint64_t offset, uint64_t length) {
  if (read != ior.for_read) return -EINVAL;
  const auto begin = reinterpret_cast<uintptr_t>(iov.base);
  const auto place = reinterpret_cast<uintptr_t>(at);
  if (place < begin || place - begin > iov.size) return -EINVAL;
  const uint64_t from = place - begin;
  if (length > iov.size - from || offset > INT64_MAX || length > INT64_MAX - offset) return -EINVAL;
  const uint64_t block = iov.block_size;
  const bool crosses = block > 0 && length > 0 && from / block != (from + length - 1) / block;
  return crosses ? -EINVAL : 0;
}

int check_file(const OpenRing& open, const RegisteredFile* file, bool read) {
  if (file == nullptr || file->device != open.mount->device) return -EBADF;
  return (read ? file->reads : file->writes) ? 0 : -EACCES;
}

// Stores available completions, at most `room`.
int reap(OpenRing& open, hf3fs_cqe* into, int room) {
  const std::lock_guard lock(open.mutex);
  const uint32_t completed = open.ring.head().completed.load(std::memory_order_acquire);
  int got = 0;
  while (got < room && open.reaped != completed) {
    const CompletionEntry outcome = open.ring.completion(open.reaped++);
    if (outcome.slot >= open.userdata.size()) continue;
    into[got++] = {static_cast<int32_t>(outcome.slot), 0, outcome.result,
                   open.userdata[outcome.slot]};
    open.free.push_back(outcome.slot);
  }
  return got;
}

// Whether the mount still knows the ring, asked now and then. Returns 0, or the errno why not.
int check_mount(OpenRing& open) {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (now.tv_sec - open.checked.load() < kMountCheckSeconds) return 0;
  open.checked.store(now.tv_sec);
  if (::faccessat(open.mount->iovs, open.link.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return 0;
  return errno == ENOENT ? ECONNRESET : errno;
}

// Waits for completions after `seen`. Returns 0, ETIMEDOUT, or the errno why there will be none.
int wait_for_more(OpenRing& open, uint32_t seen, const timespec* until) {
  Shared32& completed = open.ring.head().completed;
  auto* const word = reinterpret_cast<uint32_t*>(&completed);
  open.ring.head().waiters.fetch_add(1);
  int error = 0;
  while (error == 0 && completed.load() == seen) {
    const timespec look = {kMountCheckSeconds, 0};
    const long woken = until != nullptr
                           ? ::syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME,
                                       seen, until, nullptr, FUTEX_BITSET_MATCH_ANY)
                           : ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &look, nullptr, 0);
    if (woken == 0 || errno == EAGAIN || errno == EINTR) continue;
    if (errno != ETIMEDOUT || until != nullptr) error = errno;
    // A time before the epoch has passed already.
    if (error == EINVAL) error = ETIMEDOUT;
    if (const int gone = check_mount(open); gone != 0) error = gone;
  }
  open.ring.head().waiters.fetch_sub(1);
  return error;
}

}  // namespace

}  // namespace ff::usrbio

using namespace ff::usrbio;

size_t hf3fs_ior_size(int entries) { return ring_bytes(entries); }

int hf3fs_iorcreate(hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                    int io_depth, int numa) {
  return create(ior, mount_point,
                {.entries = entries, .read = for_read, .depth = io_depth, .numa = numa});
}

int hf3fs_iorcreate2(hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int priority, int numa) {
  return hf3fs_iorcreate3(ior, mount_point, entries, for_read, io_depth, priority, 0, numa);
}

int hf3fs_iorcreate3(hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int priority, int timeout, int numa) {
  return create(ior, mount_point,
                {.entries = entries,
                 .read = for_read,
                 .depth = io_depth,
                 .priority = priority,
                 .timeout_ms = timeout,
                 .numa = numa});
}

int hf3fs_iorcreate4(hf3fs_ior* ior, const char* mount_point, int entries, bool for_read,
                     int io_depth, int timeout, int numa, uint64_t flags) {
  return create(ior, mount_point,
                {.entries = entries,
                 .read = for_read,
                 .depth = io_depth,
                 .timeout_ms = timeout,
                 .numa = numa,
                 .flags = flags});
}

void hf3fs_iordestroy(hf3fs_ior* ior) {
  if (ring_of(ior) == nullptr) return;
  const std::unique_ptr<OpenRing> open(ring_of(ior));
  if (!open->link.empty() && open->creator == ::getpid()) remove_link(*open);
  ior->iorh = nullptr;
}

int hf3fs_io_entries(const hf3fs_ior* ior) {
  const OpenRing* const open = ring_of(ior);
  return open == nullptr ? -EINVAL : static_cast<int>(open->userdata.size());
}

int hf3fs_prep_io(const hf3fs_ior* ior, const hf3fs_iov* iov, bool read, void* ptr, int fd,
                  size_t off, uint64_t len, const void* userdata) {
  OpenRing* const open = ring_of(ior);
  if (open == nullptr || iov == nullptr) return -EINVAL;
  int error = check_request(*ior, *iov, read, ptr, off, len);
  if (error != 0) return error;
  const auto file = find_registered(fd);
  error = check_file(*open, file.get(), read);
  if (error != 0) return error;
  const std::lock_guard lock(open->mutex);
  if (open->free.empty()) return -EAGAIN;
  const uint32_t slot = open->free.back();
  open->free.pop_back();
  open->userdata[slot] = userdata;
  SubmissionEntry& request = open->ring.submission(open->prepared++);
  request = {};
  std::memcpy(request.memory, iov->id, sizeof request.memory);
  request.at = static_cast<uint64_t>(static_cast<const uint8_t*>(ptr) - iov->base);
  request.length = len;
  request.file = file->inode;
  request.offset = off;
  request.slot = slot;
  return static_cast<int>(slot);
}

int hf3fs_submit_ios(const hf3fs_ior* ior) {
  OpenRing* const open = ring_of(ior);
  if (open == nullptr) return -EINVAL;
  {
    const std::lock_guard lock(open->mutex);
    open->ring.head().submitted.store(open->prepared);
  }
  Shared32& daemon_sleeping = open->ring.head().daemon_sleeping;
  if (daemon_sleeping.load() == 0 || daemon_sleeping.exchange(0) == 0) return 0;
  // If the socket is full, the daemon is awake or will be.
  const bool rung = ::send(open->wake_socket, "", 1, MSG_NOSIGNAL) == 1 || errno == EAGAIN;
  if (rung) return 0;
  const bool ended = errno == ECONNREFUSED || errno == ENOTCONN;  // nobody has the socket any more
  return ended ? -ECONNRESET : -errno;
}

int hf3fs_wait_for_ios(const hf3fs_ior* ior, hf3fs_cqe* cqes, int cqec, int min_results,
                       const timespec* abs_timeout) {
  OpenRing* const open = ring_of(ior);
  if (open == nullptr || cqes == nullptr || cqec <= 0) return -EINVAL;
  const int least = std::clamp(min_results, 0, cqec);
  int got = 0;
  for (;;) {
    const uint32_t seen = open->ring.head().completed.load();
    got += reap(*open, cqes + got, cqec - got);
    if (got >= least) return got;
    const int error = wait_for_more(*open, seen, abs_timeout);
    if (error == ETIMEDOUT) return got + reap(*open, cqes + got, cqec - got);
    if (error != 0) return got > 0 ? got : -error;
  }
}
