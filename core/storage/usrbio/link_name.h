// The names in 3fs-virt/iovs: each is a link to memory in /dev/shm, and says what that memory is.
//
//   ID[.bBLOCK]                       memory for data, in blocks of so many bytes
//   ID.rDEPTH or .wDEPTH [.ph|.pl] .tMS [.fFLAGS]   a ring for reads or writes; flags are binary
//
// ID is 32 hexadecimal digits, which may have dashes among them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ff::usrbio {

using Id = std::array<uint8_t, 16>;

struct LinkName {
  Id id = {};
  uint64_t block = 0;  // 0: one
  bool ring = false;
  // Of a ring.
  bool read = false;
  int32_t depth = 0;
  int priority = 0;  // -1: before others, 1: behind them
  int32_t timeout_ms = 0;
  uint64_t flags = 0;
};

std::string text_of(const Id& id);
std::string text_of(const LinkName& name);
// Nothing: it is none.
std::optional<LinkName> parse_link_name(std::string_view text);

// Beside them: where the daemon is woken, by rings of each priority.
constexpr std::string_view kWakeLinks[] = {"submit-ios.ph", "submit-ios", "submit-ios.pl"};
inline std::string_view wake_link(int priority) {
  return kWakeLinks[priority < 0 ? 0 : priority == 0 ? 1 : 2];
}

constexpr std::string_view kVirtualDir = "3fs-virt";
constexpr std::string_view kShm = "/dev/shm/";
constexpr std::string_view kShmPrefix = "/dev/shm/hf3fs-iov-";  // of what the library makes

}  // namespace ff::usrbio
