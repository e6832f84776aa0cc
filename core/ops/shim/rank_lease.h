// The lease of the ranks of a node: how long they may run without contact to the scheduler. The
// agent renews the file; each shim reads it when the lease should have expired. So ranks end in
// time also when the agent is gone.
//
//   "BOOT RENEWED LEASE CRC\n"   boot id of the kernel; time of the last contact and duration of
//   the
//                                lease (nanoseconds of the boot-time clock, twenty digits each);
//                                CRC32C of the text before its space, eight digits
//
// The file is overwritten in place, within one page, so a full disk does not prevent it. It is
// useless after a reboot, so it is not synced. The checksum reveals a torn read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/io/disk.h"

namespace ff::shim {

struct RankLease {
  std::string boot = {};
  int64_t renewed_ns = 0;
  int64_t lease_ns = 0;

  int64_t until_ns() const { return renewed_ns + lease_ns; }
  bool operator==(const RankLease&) const = default;
};

std::string lease_text(const RankLease& lease);
// Nothing: malformed, or of another boot.
std::optional<RankLease> parse_lease(std::string_view text, std::string_view boot);
std::optional<RankLease> read_lease(io::Disk& disk, const std::string& path, std::string_view boot);

}  // namespace ff::shim
