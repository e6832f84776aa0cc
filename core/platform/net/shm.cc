// shm.cc: checking what the peer says of its regions, and copying from and to them.
#include "platform/net/shm.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/base/wait.h"

namespace ff::net {

namespace {

// The most that is copied before other tasks get their turn: some 200 us.
constexpr size_t kShmPieceBytes = 1 * kMiB;

// Frames that were queued have left by then, or the connection has failed.
constexpr int64_t kOnItsWayNs = kSecond;

Error cut_off() {
  Error error = fail(Errc::refused, "the peer has cut off its region of shared memory");
  error.sys = EFAULT;
  return error;
}

Error refused_by_kernel(int err) {
  return fail(Errc::unreachable, "the peer's region of shared memory: {}", ::strerror(err));
}

// What is wrong with a descriptor that shall be a region of `size` bytes; null when nothing is.
// Only memory files: on others the peer could make the kernel wait, and this loop with it. Asking
// for the seals tells without asking the file's own file system, which may be the peer's.
const char* fault_of(int fd, uint64_t size) {
  if (::fcntl(fd, F_GET_SEALS) < 0) return "is not memory";
  struct stat status;
  struct statfs system;
  if (::fstat(fd, &status) != 0 || ::fstatfs(fd, &system) != 0) return "cannot be looked at";
  if (system.f_type != TMPFS_MAGIC) return "is not memory that can be written";  // hugetlbfs
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) return "is not open for reading and writing";
  // Shorter than announced: cut off already, which its owner's program may do at any moment, and is
  // no fault of the peer's. Whoever goes there gets an error.
  if (size == 0) return "has no bytes";
  return nullptr;
}

// Whether bytes up to `end` are there now. The owner may cut them off right afterwards: a pread
// then comes back short, and a pwrite gives back to the file the length it was announced with.
Result<void> check_end(int fd, uint64_t end) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return refused_by_kernel(errno);
  if (static_cast<uint64_t>(status.st_size) < end) return cut_off();
  return {};
}

Result<void> write_all(int fd, uint64_t at, ByteView from) {
  while (!from.empty()) {
    const ssize_t done = ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == ENOSPC) return cut_off();  // no page that its owner would find
    if (done < 0) return refused_by_kernel(errno);
    at += static_cast<uint64_t>(done);
    from = from.subspan(static_cast<size_t>(done));
  }
  return {};
}

Result<void> read_all(int fd, uint64_t at, ByteSpan into) {
  while (!into.empty()) {
    const ssize_t done = ::pread(fd, into.data(), into.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return refused_by_kernel(errno);
    if (done == 0) return cut_off();
    at += static_cast<uint64_t>(done);
    into = into.subspan(static_cast<size_t>(done));
  }
  return {};
}

}  // namespace

ShmBulk::~ShmBulk() {
  for (const auto& [id, region] : mapped_) ::munmap(region.base, region.size);
  for (const ByteSpan addresses : forgotten_) ::munmap(addresses.data(), addresses.size());
}

Result<void> ShmBulk::share(ByteView memory, bool, Slice& slice) {
  const auto region = own_.find(memory);
  if (region == nullptr) return {};
  if (!told_.contains(region->id())) {
    const uint64_t size = region->memory().size();
    if (told_.size() >= kRegionsMax || size > kRegionBytesMax - told_bytes_) return {};
    told_[region->id()] = region;
    told_bytes_ += size;
    to_tell_.push_back({.id = region->id(), .size = size, .fd = region->fd()});
  }
  slice.key = region->id();
  slice.address = static_cast<uint64_t>(memory.data() - region->memory().data());
  return {};
}

void ShmBulk::find_removed() {
  const int64_t now_ns = loop_.now_ns();
  while (!gone_.empty() && now_ns - gone_.front().first > kOnItsWayNs) gone_.pop_front();
  const uint64_t removals = own_.removals();
  if (removals == removals_) return;
  removals_ = removals;
  for (auto told = told_.begin(); told != told_.end();) {
    const auto next = std::next(told);
    if (told->second->removed()) {
      to_tell_.push_back({.id = told->first});
      told_bytes_ -= told->second->memory().size();
      gone_.emplace_back(now_ns, std::move(told->second));
      told_.erase(told);
    }
    told = next;
  }
}

std::optional<Bulk::Region> ShmBulk::next_region() {
  if (to_tell_.empty()) find_removed();
  if (to_tell_.empty()) return std::nullopt;
  const Region next = to_tell_.front();
  to_tell_.pop_front();
  return next;
}

// Its memory goes at once, its addresses stay for a while: what may still be on its way there must
// not meet something else.
Result<void> ShmBulk::forget(uint32_t id) {
  const auto found = mapped_.find(id);
  if (found == mapped_.end()) {
    return fail(Errc::corrupt, "the peer has region {} forgotten, which it never announced", id);
  }
  const ByteSpan addresses(found->second.base, found->second.size);
  mapped_bytes_ -= addresses.size();
  mapped_.erase(found);
  if (::mmap(addresses.data(), addresses.size(), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return errno_error(errno, "the peer's region of shared memory");
  }
  forgotten_.push_back(addresses);
  forgotten_bytes_ += addresses.size();
  while (forgotten_bytes_ > kForgottenBytesMax) {
    forgotten_bytes_ -= forgotten_.front().size();
    ::munmap(forgotten_.front().data(), forgotten_.front().size());
    forgotten_.pop_front();
  }
  return {};
}

Result<void> ShmBulk::add_region(const Region& region) {
  if (region.size == 0 && region.fd < 0) return forget(region.id);
  Mapped mapped;
  mapped.fd = Fd(region.fd);
  if (region.id == 0 || mapped_.contains(region.id)) {
    return fail(Errc::corrupt, "the peer announced region {} of shared memory {}", region.id,
                region.id == 0 ? "" : "twice");
  }
  if (mapped_.size() >= kRegionsMax || region.size > kRegionBytesMax - mapped_bytes_) {
    return fail(Errc::corrupt, "the peer announced more than {} regions or {} GiB of shared memory",
                kRegionsMax, kRegionBytesMax / kGiB);
  }
  if (const char* const fault = fault_of(region.fd, region.size)) {
    return fail(Errc::corrupt, "what the peer announced as shared memory {}", fault);
  }
  mapped.sealed = (::fcntl(region.fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0;
  void* const base = ::mmap(nullptr, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0);
  if (base == MAP_FAILED) return errno_error(errno, "the peer's region of shared memory");
  mapped.base = static_cast<std::byte*>(base);
  mapped.size = region.size;
  mapped_bytes_ += region.size;
  mapped_[region.id] = std::move(mapped);
  return {};
}

// `offset` and `size` were checked against the slice, but the slice is what the peer says.
Result<ShmBulk::Place> ShmBulk::place(const Slice& slice, uint64_t offset, uint64_t size) const {
  const auto found = mapped_.find(slice.key);
  if (found == mapped_.end()) {
    return fail(Errc::corrupt, "the peer named memory in region {}, which it never announced",
                slice.key);
  }
  const Mapped& region = found->second;
  if (slice.address > region.size || offset > region.size - slice.address ||
      size > region.size - slice.address - offset) {
    return fail(Errc::corrupt, "the peer named {} bytes at {} of a region of {}", slice.size,
                slice.address, region.size);
  }
  return Place{&region, slice.address + offset};
}

// Lets other tasks go first when much was copied since they last did.
Task<Result<void>> ShmBulk::turn() {
  if (moved_ >= kShmPieceBytes) {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    moved_ = 0;
  }
  if (closed_) co_return fail(Errc::unreachable, "the connection is closed");
  co_return {};
}

Task<Result<void>> ShmBulk::push(const Slice& sink, uint64_t offset, ByteView from) {
  FF_CO_TRY(const Place place, this->place(sink, offset, from.size()));
  for (uint64_t at = place.at; !from.empty();) {
    FF_CO_TRY(co_await turn());
    const ByteView piece = from.first(std::min(from.size(), kShmPieceBytes));
    const int fd = place.region->fd.get();
    if (!place.region->sealed) FF_CO_TRY(check_end(fd, at + piece.size()));
    FF_CO_TRY(write_all(fd, at, piece));
    moved_ += piece.size();
    at += piece.size();
    from = from.subspan(piece.size());
  }
  co_return {};
}

Task<Result<void>> ShmBulk::pull(const Slice& source, uint64_t offset, ByteSpan into) {
  FF_CO_TRY(const Place place, this->place(source, offset, into.size()));
  for (uint64_t at = place.at; !into.empty();) {
    FF_CO_TRY(co_await turn());
    const ByteSpan piece = into.first(std::min(into.size(), kShmPieceBytes));
    FF_CO_TRY(read_all(place.region->fd.get(), at, piece));
    moved_ += piece.size();
    at += piece.size();
    into = into.subspan(piece.size());
  }
  co_return {};
}

std::optional<ByteSpan> ShmBulk::reach(const Slice& slice) {
  const auto place = this->place(slice, 0, slice.size);
  if (!place) return std::nullopt;
  return ByteSpan(place->region->base + place->at, slice.size);
}

}  // namespace ff::net
