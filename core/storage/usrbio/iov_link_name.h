// The names of links in 3fs-virt/iovs: the target is a memory file in /dev/shm, the name describes
// it.
//
//   ID[.bBLOCK]                       memory for data; I/O must not cross a block of BLOCK bytes
//   ID.rDEPTH or .wDEPTH [.ph|.pl] .tMS [.fFLAGS]   a ring for reads or writes; FLAGS are binary
//
// ID: 32 hexadecimal digits, dashes are ignored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ff::usrbio {

using IovId = std::array<uint8_t, 16>;

struct IovLinkName {
  IovId id = {};
  uint64_t block = 0;  // 0: no limit
  bool ring = false;
  // Only of a ring.
  bool read = false;
  int32_t depth = 0;
  int priority = 0;  // -1: high, 1: low
  int32_t timeout_ms = 0;
  uint64_t flags = 0;
};

std::string text_of(const IovId& id);
std::string text_of(const IovLinkName& name);
// None: not a valid name.
std::optional<IovLinkName> parse_iov_link_name(std::string_view text);

// The links to the wake socket of the daemon, one per ring priority.
constexpr std::string_view kWakeLinks[] = {"submit-ios.ph", "submit-ios", "submit-ios.pl"};
inline std::string_view wake_link(int priority) {
  return kWakeLinks[priority < 0 ? 0 : priority == 0 ? 1 : 2];
}

constexpr std::string_view kVirtualDir = "3fs-virt";
constexpr std::string_view kShm = "/dev/shm/";
constexpr std::string_view kShmPrefix = "/dev/shm/hf3fs-iov-";  // of files that the library creates

}  // namespace ff::usrbio
