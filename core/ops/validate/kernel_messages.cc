// kernel_messages.cc: reads /dev/kmsg until it would block.
#include "ops/validate/kernel_messages.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ff::validate {

namespace {

constexpr const char* kPath = "/dev/kmsg";
constexpr size_t kRecordMax = 8192;  // maximum record size of the kernel
constexpr size_t kRecordsMax = 1'000'000;

}  // namespace

Result<std::vector<std::string>> read_kernel_messages() {
  const int fd = ::open(kPath, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    Error error = errno_error(errno, kPath);
    if (error.code == Errc::refused) error.hint = std::string("Run it as root.");
    return error;
  }
  std::vector<std::string> records;
  std::array<char, kRecordMax> record;
  while (records.size() < kRecordsMax) {
    const ssize_t got = ::read(fd, record.data(), record.size());
    if (got > 0) {
      records.emplace_back(record.data(), static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && (errno == EINTR || errno == EPIPE))
      continue;  // EPIPE: the record was overwritten
    if (got == 0 || errno == EAGAIN) break;
    Error error = errno_error(errno, kPath);
    ::close(fd);
    return error;
  }
  ::close(fd);
  return records;
}

}  // namespace ff::validate
