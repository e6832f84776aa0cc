// device_reader.cc: aligns the data of a WRITE to a page, so that it can go to disks without a
// copy.
#include "storage/mount/device_reader.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "platform/base/log.h"

namespace ff::mount {

namespace {

constexpr uint64_t kSlotHeader = 4 * kKiB;
// The headers before the data of a WRITE.
constexpr size_t kWriteHead = sizeof(fuse_in_header) + sizeof(fuse_write_in);
constexpr size_t kSmallReply = 512;  // more than attributes and a handle
constexpr size_t kSpareSlots = 3;    // not for data that stays in its slot
constexpr int64_t kLogFailureEveryNs = kSecond;

}  // namespace

Result<DeviceReader::State> DeviceReader::read(FuseRequest& into) {
  std::byte* const at = slots_.memory(slot_).data() + kSlotHeader - kWriteHead;
  for (;;) {
    const ssize_t got = ::read(fd_, at, kWriteHead + kWriteMax);
    if (got >= static_cast<ssize_t>(sizeof(fuse_in_header))) {
      into = request_of(ByteView(at, static_cast<size_t>(got)));
      return State::request;
    }
    if (got == 0) return State::unmounted;
    // ENOENT: the program was interrupted.
    if (got > 0 || errno == EINTR || errno == ENOENT) continue;
    if (errno == ENODEV) return State::unmounted;
    if (errno == EAGAIN) return State::empty;
    return errno_error(errno, "/dev/fuse");
  }
}

// The data of a WRITE stays in the slot while enough slots are free; everything else is copied out.
FuseRequest DeviceReader::request_of(ByteView bytes) {
  FuseRequest request;
  request.device = fd_;
  std::memcpy(&request.header, bytes.data(), sizeof(fuse_in_header));
  const bool is_write = request.header.opcode == FUSE_WRITE;
  const size_t head = is_write ? std::min(bytes.size(), kWriteHead) : bytes.size();
  request.body = as_text(bytes.first(head).subspan(sizeof(fuse_in_header)));
  request.payload = bytes.subspan(head);
  if (request.payload.empty()) return request;
  if (const auto next = slots_.acquire(kSpareSlots)) {
    request.buffer_owner = std::shared_ptr<const void>(
        bytes.data(), [slots = &slots_, slot = slot_](const void*) { slots->release(slot); });
    slot_ = *next;
    return request;
  }
  auto kept = std::make_shared<chain::BufferPool::Buffer>(memory_.allocate(request.payload.size()));
  std::memcpy(kept->span().data(), request.payload.data(), request.payload.size());
  request.payload = kept->span().first(request.payload.size());
  request.buffer_owner = std::move(kept);
  return request;
}

void write_device_reply(const FuseRequest& request, int error, std::string_view bytes,
                        ByteView data) {
  fuse_out_header header = {};
  header.len = static_cast<uint32_t>(sizeof header + bytes.size() + data.size());
  header.error = -error;
  header.unique = request.header.unique;
  // The kernel maps the page of each part: one part costs least.
  std::array<char, kSmallReply> small;
  if (data.empty() && header.len <= small.size()) {
    std::memcpy(small.data(), &header, sizeof header);
    bytes.copy(small.data() + sizeof header, bytes.size());
    (void)!::write(request.device, small.data(), header.len);
    return;
  }
  iovec parts[3] = {{&header, sizeof header},
                    {const_cast<char*>(bytes.data()), bytes.size()},
                    {const_cast<std::byte*>(data.data()), data.size()}};
  // ENOENT: the request was interrupted; ENODEV: unmounted.
  (void)!::writev(request.device, parts, 3);
}

FailureLog::FailureLog(Metrics& metrics)
    : failed_(
          metrics.counter("ff_mount_failed_total",
                          "Requests that failed with EIO or ETIMEDOUT because of the cluster")) {}

int FailureLog::errno_for(const Error& error, int64_t now_ns) {
  const int number = errno_of(error);
  if (number != EIO && number != ETIMEDOUT) return number;
  failed_.add();
  if (now_ns - logged_ns_ >= kLogFailureEveryNs) {
    logged_ns_ = now_ns;
    log_warning("a FUSE request failed", {{"errno", number}, {"cause", error.message}});
  }
  return number;
}

}  // namespace ff::mount
