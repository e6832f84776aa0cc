// Who owns a file of this machine. No part of Disk: nothing that is simulated has other owners.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/result.h"

namespace ff::io {

// Nothing: as it is. Does not follow a symbolic link.
Result<void> set_owner(const std::string& path, std::optional<uint32_t> uid,
                       std::optional<uint32_t> gid);

}  // namespace ff::io
