// owner.cc: lchown(2), for copies that keep owners.
#include "platform/io/owner.h"

#include <unistd.h>

#include <cerrno>

namespace ff::io {

Result<void> set_owner(const std::string& path, std::optional<uint32_t> uid,
                       std::optional<uint32_t> gid) {
  constexpr uint32_t kSame = UINT32_MAX;
  if (lchown(path.c_str(), uid.value_or(kSame), gid.value_or(kSame)) == 0) return {};
  return errno_error(errno, path);
}

}  // namespace ff::io
