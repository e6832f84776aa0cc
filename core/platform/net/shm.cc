// shm.cc: validates the peer's regions and copies from and to them.
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

// Bytes copied between two yields to other tasks: about 200 us.
constexpr size_t kShmPieceBytes = 1 * kMiB;

// After this time queued frames have been sent, or the connection has failed.
constexpr int64_t kSendDelayMaxNs = kSecond;

Error truncated() {
  Error error = fail(Errc::refused, "the peer has truncated its shared memory region");
  error.sys = EFAULT;
  return error;
}

Error kernel_error(int err) {
  return fail(Errc::unreachable, "the peer's shared memory region: {}", ::strerror(err));
}

// The reason why a descriptor cannot be a region of `size` bytes; null if it can. Only memory files
// are accepted: I/O on other files could block this loop. F_GET_SEALS does not call into the file's
// own file system, which may be under the peer's control.
const char* region_fault(int fd, uint64_t size) {
  if (::fcntl(fd, F_GET_SEALS) < 0) return "is not a memory file";
  struct stat status;
  struct statfs system;
  if (::fstat(fd, &status) != 0 || ::fstatfs(fd, &system) != 0) return "cannot be examined";
  if (system.f_type != TMPFS_MAGIC) return "is not a writable memory file";  // hugetlbfs
  if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) return "is not open for reading and writing";
  // A file shorter than announced is valid: its owner may truncate it at any moment. Access to the
  // missing part fails.
  if (size == 0) return "has no bytes";
  return nullptr;
}

// Checks that the file has bytes up to `end` now. If the owner truncates it right afterwards, a
// pread is short, and a pwrite extends the file again, at most to the announced length.
Result<void> check_end(int fd, uint64_t end) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return kernel_error(errno);
  if (static_cast<uint64_t>(status.st_size) < end) return truncated();
  return {};
}

Result<void> write_all(int fd, uint64_t at, ByteView from) {
  while (!from.empty()) {
    const ssize_t done = ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == ENOSPC) return truncated();  // no page that its owner would find
    if (done < 0) return kernel_error(errno);
    at += static_cast<uint64_t>(done);
    from = from.subspan(static_cast<size_t>(done));
  }
  return {};
}

Result<void> read_all(int fd, uint64_t at, ByteSpan into) {
  while (!into.empty()) {
    const ssize_t done = ::pread(fd, into.data(), into.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return kernel_error(errno);
    if (done == 0) return truncated();
    at += static_cast<uint64_t>(done);
    into = into.subspan(static_cast<size_t>(done));
  }
  return {};
}

}  // namespace

ShmBulk::~ShmBulk() {
  for (const auto& [id, region] : mapped_) ::munmap(region.base, region.size);
  for (const ByteSpan addresses : reserved_) ::munmap(addresses.data(), addresses.size());
}

Result<void> ShmBulk::register_memory(ByteView memory, bool, RemoteBuffer& buffer) {
  const auto region = own_.find(memory);
  if (region == nullptr) return {};
  if (!announced_.contains(region->id())) {
    const uint64_t size = region->memory().size();
    if (announced_.size() >= kRegionsMax || size > kRegionBytesMax - announced_bytes_) return {};
    announced_[region->id()] = region;
    announced_bytes_ += size;
    updates_.push_back({.id = region->id(), .size = size, .fd = region->fd()});
  }
  buffer.key = region->id();
  buffer.address = static_cast<uint64_t>(memory.data() - region->memory().data());
  return {};
}

void ShmBulk::queue_removals() {
  const int64_t now_ns = loop_.now_ns();
  while (!removed_.empty() && now_ns - removed_.front().first > kSendDelayMaxNs)
    removed_.pop_front();
  const uint64_t removals = own_.removals();
  if (removals == removals_) return;
  removals_ = removals;
  for (auto told = announced_.begin(); told != announced_.end();) {
    const auto next = std::next(told);
    if (told->second->removed()) {
      updates_.push_back({.id = told->first});
      announced_bytes_ -= told->second->memory().size();
      removed_.emplace_back(now_ns, std::move(told->second));
      announced_.erase(told);
    }
    told = next;
  }
}

std::optional<Bulk::RegionUpdate> ShmBulk::next_region_update() {
  if (updates_.empty()) queue_removals();
  if (updates_.empty()) return std::nullopt;
  const RegionUpdate next = updates_.front();
  updates_.pop_front();
  return next;
}

// Frees the memory at once and reserves the addresses for a while: running I/O must not hit another
// mapping.
Result<void> ShmBulk::unmap(uint32_t id) {
  const auto found = mapped_.find(id);
  if (found == mapped_.end()) {
    return fail(Errc::corrupt, "the peer removed region {}, which it never announced", id);
  }
  const ByteSpan addresses(found->second.base, found->second.size);
  mapped_bytes_ -= addresses.size();
  mapped_.erase(found);
  if (::mmap(addresses.data(), addresses.size(), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return errno_error(errno, "the peer's region of shared memory");
  }
  reserved_.push_back(addresses);
  reserved_bytes_ += addresses.size();
  while (reserved_bytes_ > reserved_max_) {
    reserved_bytes_ -= reserved_.front().size();
    ::munmap(reserved_.front().data(), reserved_.front().size());
    reserved_.pop_front();
  }
  return {};
}

Result<void> ShmBulk::apply_region_update(const RegionUpdate& region) {
  if (region.size == 0 && region.fd < 0) return unmap(region.id);
  MappedRegion mapped;
  mapped.fd = Fd(region.fd);
  if (region.id == 0 || mapped_.contains(region.id)) {
    return fail(Errc::corrupt, "the peer announced shared memory region {}{}", region.id,
                region.id == 0 ? "" : " twice");
  }
  if (mapped_.size() >= kRegionsMax || region.size > kRegionBytesMax - mapped_bytes_) {
    return fail(Errc::corrupt, "the peer announced more than {} shared regions or {} GiB",
                kRegionsMax, kRegionBytesMax / kGiB);
  }
  if (const char* const fault = region_fault(region.fd, region.size)) {
    return fail(Errc::corrupt, "the file that the peer announced as shared memory {}", fault);
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

// The caller checked `offset` and `size` against the buffer; the buffer itself is untrusted.
Result<ShmBulk::RegionOffset> ShmBulk::locate(const RemoteBuffer& buffer, uint64_t offset,
                                              uint64_t size) const {
  const auto found = mapped_.find(buffer.key);
  if (found == mapped_.end()) {
    return fail(Errc::corrupt, "the peer used shared region {}, which it never announced",
                buffer.key);
  }
  const MappedRegion& region = found->second;
  if (buffer.address > region.size || offset > region.size - buffer.address ||
      size > region.size - buffer.address - offset) {
    return fail(Errc::corrupt, "the peer named {} bytes at offset {} of a region of {} bytes",
                buffer.size, buffer.address, region.size);
  }
  return RegionOffset{&region, buffer.address + offset};
}

// Yields to other tasks after each kShmPieceBytes.
Task<Result<void>> ShmBulk::yield_if_due() {
  if (copied_ >= kShmPieceBytes) {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    copied_ = 0;
  }
  if (closed_) co_return fail(Errc::unreachable, "the connection is closed");
  co_return {};
}

Task<Result<void>> ShmBulk::push(const RemoteBuffer& sink, uint64_t offset, ByteView from) {
  FF_CO_TRY(const RegionOffset place, this->locate(sink, offset, from.size()));
  for (uint64_t at = place.at; !from.empty();) {
    FF_CO_TRY(co_await yield_if_due());
    const ByteView piece = from.first(std::min(from.size(), kShmPieceBytes));
    const int fd = place.region->fd.get();
    if (!place.region->sealed) FF_CO_TRY(check_end(fd, at + piece.size()));
    FF_CO_TRY(write_all(fd, at, piece));
    copied_ += piece.size();
    at += piece.size();
    from = from.subspan(piece.size());
  }
  co_return {};
}

Task<Result<void>> ShmBulk::pull(const RemoteBuffer& source, uint64_t offset, ByteSpan into) {
  FF_CO_TRY(const RegionOffset place, this->locate(source, offset, into.size()));
  for (uint64_t at = place.at; !into.empty();) {
    FF_CO_TRY(co_await yield_if_due());
    const ByteSpan piece = into.first(std::min(into.size(), kShmPieceBytes));
    FF_CO_TRY(read_all(place.region->fd.get(), at, piece));
    copied_ += piece.size();
    at += piece.size();
    into = into.subspan(piece.size());
  }
  co_return {};
}

std::optional<ByteSpan> ShmBulk::mapped_memory(const RemoteBuffer& buffer) {
  const auto place = this->locate(buffer, 0, buffer.size);
  if (!place) return std::nullopt;
  return ByteSpan(place->region->base + place->at, buffer.size);
}

}  // namespace ff::net
