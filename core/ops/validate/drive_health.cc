// drive_health.cc: the NVMe admin command, and ATA commands through SCSI (SAT, ATA PASS-THROUGH
// (16)).
#include "ops/validate/drive_health.h"

#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <scsi/sg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>

namespace ff::validate {

namespace {

constexpr unsigned kTimeoutMs = 5000;

class Device {
 public:
  static Result<Device> open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno_error(errno, path);
    return Device(fd, path);
  }
  ~Device() {
    if (fd_ >= 0) ::close(fd_);
  }
  Device(Device&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) {
    other.fd_ = -1;
  }
  Device& operator=(Device&&) = delete;
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  Device(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

// ATA/ATAPI Command Set 3, 7.46.
constexpr uint8_t kSmart = 0xb0, kReadData = 0xd0, kReturnStatus = 0xda;
constexpr uint8_t kMid = 0x4f, kHigh = 0xc2;                // signature of the request
constexpr uint8_t kMidFailing = 0xf4, kHighFailing = 0x2c;  // signature of a failing disk

using Sense = std::array<uint8_t, 32>;

// `into` empty: a command without data, which returns its registers as sense data.
Result<Sense> smart(const Device& device, uint8_t feature, std::span<std::byte> into) {
  constexpr uint8_t kPassThrough = 0x85, kNoData = 3 << 1, kIn = 4 << 1, kWantsRegisters = 0x20;
  constexpr uint8_t kFromDevice = 0x08, kBlocks = 0x04, kCountSaysLength = 0x02;
  std::array<uint8_t, 16> command = {kPassThrough};
  command[1] = into.empty() ? kNoData : kIn;
  command[2] = into.empty() ? kWantsRegisters : kFromDevice | kBlocks | kCountSaysLength;
  command[4] = feature;
  command[6] = into.empty() ? 0 : 1;  // blocks of 512 bytes
  command[10] = kMid;
  command[12] = kHigh;
  command[14] = kSmart;
  Sense sense = {};
  sg_io_hdr_t request = {};
  request.interface_id = 'S';
  request.dxfer_direction = into.empty() ? SG_DXFER_NONE : SG_DXFER_FROM_DEV;
  request.cmd_len = command.size();
  request.cmdp = command.data();
  request.mx_sb_len = sense.size();
  request.sbp = sense.data();
  request.dxfer_len = static_cast<unsigned>(into.size());
  request.dxferp = into.data();
  request.timeout = kTimeoutMs;
  if (::ioctl(device.fd(), SG_IO, &request) != 0) return errno_error(errno, device.path());
  const bool registers_came = into.empty() && sense[0] == 0x72 && sense[8] == 0x09;
  if (request.status != 0 && !registers_came) {
    return fail(Errc::unsupported, "{}: the disk does not answer to SMART", device.path());
  }
  return sense;
}

}  // namespace

Result<SmartPage> nvme_health_log(const std::string& path) {
  FF_TRY(const auto device, Device::open(path));
  SmartPage page = {};
  nvme_admin_cmd command = {};
  constexpr uint8_t kGetLogPage = 0x02, kHealth = 0x02;
  constexpr uint32_t kAllNamespaces = 0xffffffff;
  command.opcode = kGetLogPage;
  command.nsid = kAllNamespaces;
  command.addr = reinterpret_cast<uintptr_t>(page.data());
  command.data_len = page.size();
  command.cdw10 = kHealth | (static_cast<uint32_t>(page.size() / 4 - 1) << 16);
  command.timeout_ms = kTimeoutMs;
  const int status = ::ioctl(device.fd(), NVME_IOCTL_ADMIN_CMD, &command);
  if (status < 0) return errno_error(errno, path);
  if (status > 0)
    return fail(Errc::failed, "{}: the disk answered with status {:#x}", path, status);
  return page;
}

Result<AtaHealth> ata_health(const std::string& path) {
  FF_TRY(const auto device, Device::open(path));
  AtaHealth health;
  FF_TRY(const Sense sense, smart(device, kReturnStatus, {}));
  // The ATA register descriptor follows the 8-byte header of the sense data.
  constexpr size_t kMidAt = 8 + 9, kHighAt = 8 + 11;
  health.failing = sense[kMidAt] == kMidFailing && sense[kHighAt] == kHighFailing;
  FF_TRY(smart(device, kReadData, health.data));
  return health;
}

}  // namespace ff::validate
