// Changes the owner of a file of this machine. Not part of Disk: simulated files have no owners.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/result.h"

namespace ff::io {

// nullopt leaves an id unchanged. Does not follow a symbolic link.
Result<void> set_owner(const std::string& path, std::optional<uint32_t> uid,
                       std::optional<uint32_t> gid);

}  // namespace ff::io
