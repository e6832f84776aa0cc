// host_state.cc: regions of other ranks, and waiting until a rank has shared one.
#include "training/collective/host_state.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace ff::collective {

namespace {

constexpr auto kRegionPoll = std::chrono::milliseconds(50);

}  // namespace

Result<std::shared_ptr<const MappedRegion>> MappedRegion::map(const Fd& fd, uint64_t size) {
  struct stat file = {};
  if (::fstat(fd.get(), &file) != 0) return errno_error(errno, "a rank's region");
  if (size == 0 || static_cast<uint64_t>(file.st_size) < size) {
    return fail(Errc::corrupt, "a rank's region has {} bytes, not {}", file.st_size, size);
  }
  void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return errno_error(errno, "mapping a rank's region");
  return std::make_shared<const MappedRegion>(ByteSpan(static_cast<std::byte*>(base), size));
}

MappedRegion::~MappedRegion() { ::munmap(memory_.data(), memory_.size()); }

std::string HostState::name_of(uint32_t rank) const {
  const auto pid = pids.find(rank);
  if (pid == pids.end()) return fmt::format("rank {}", rank + self.first_rank);
  return fmt::format("rank {} (process {})", rank + self.first_rank, pid->second);
}

bool HostState::has_ended(uint32_t rank) const {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pids.at(rank), 0)));
  if (process.get() < 0) return errno == ESRCH;
  pollfd exit{process.get(), POLLIN, 0};
  return ::poll(&exit, 1, 0) > 0;
}

void HostState::wake_leader() const {
  if (self.has_peers) (void)::eventfd_write(wake_fd.get(), 1);
}

Result<std::byte*> HostState::resolve(uint32_t rank, const SharedAddress& address, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  auto found = regions_.find({rank, address.region});
  if (found != regions_.end()) return check_bounds(found->second, rank, address, bytes);
  // A straggler check must name the rank that has not shared its region, not this one.
  const OperationTable::WorkMarks marks = operations->reassign_work(self.rank, rank);
  const int64_t until_ns = clock.steady_ns() + self.operation_ns;
  while (found == regions_.end()) {
    if (const auto failed = operations->failed_rank()) {
      return fail(Errc::unreachable, "{} is gone", name_of(failed->rank));
    }
    if (auto error = operations->async_error()) return std::move(*error);
    if (clock.steady_ns() >= until_ns) {
      operations->set_failed_rank({.rank = rank, .timed_out = true});
      wake_leader();
      return fail(Errc::deadline, "{} has not shared its memory", name_of(rank));
    }
    const bool is_last = operations->is_relay_closed();
    changed_.wait_for(lock, kRegionPoll);
    found = regions_.find({rank, address.region});
    if (is_last && found == regions_.end()) {
      return fail(Errc::unreachable, "{} has left: no rank passes on the memory of {}", name_of(0),
                  name_of(rank));
    }
  }
  operations->restore_work(self.rank, rank, marks);
  return check_bounds(found->second, rank, address, bytes);
}

Result<std::byte*> HostState::check_bounds(const Region& region, uint32_t rank,
                                           const SharedAddress& address, uint64_t bytes) const {
  const ByteSpan memory = region.memory;
  if (address.offset > memory.size() || bytes > memory.size() - address.offset) {
    return fail(Errc::corrupt, "{} names {} bytes at {} of its region of {}", name_of(rank), bytes,
                address.offset, memory.size());
  }
  return memory.data() + address.offset;
}

void HostState::add_region(uint32_t rank, uint32_t id, Region region) {
  const std::lock_guard lock(mutex_);
  regions_[{rank, id}] = std::move(region);
  changed_.notify_all();
}

void HostState::remove_region(uint32_t rank, uint32_t id) {
  Region last;  // unmapped after the lock
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find({rank, id});
  if (found == regions_.end()) return;
  last = std::move(found->second);
  regions_.erase(found);
}

}  // namespace ff::collective
