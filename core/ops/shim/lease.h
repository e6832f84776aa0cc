// How long ranks may run without a word of the scheduler: a file that their agent keeps, and that
// each shim looks at when it should be over. So ranks end in time also where no agent is left.
//
//   "BOOT SUCCESS LEASE CRC\n"   the kernel's boot; when the scheduler last answered, and for how
//                                long that is good (nanoseconds of the boot-time clock, twenty
//                                digits each); CRC32C of what stands before its space, eight digits
//
// It is written in place, within one page, so that a full disk takes it; nobody needs it after
// another boot, so it is not synced. The sum shows a reader who came in between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/io/disk.h"

namespace ff::shim {

struct Lease {
  std::string boot = {};
  int64_t success_ns = 0;
  int64_t lease_ns = 0;

  int64_t until_ns() const { return success_ns + lease_ns; }
  bool operator==(const Lease&) const = default;
};

std::string lease_text(const Lease& lease);
// Nothing: it is none, or of another boot.
std::optional<Lease> parse_lease(std::string_view text, std::string_view boot);
std::optional<Lease> read_lease(io::Disk& disk, const std::string& path, std::string_view boot);

}  // namespace ff::shim
