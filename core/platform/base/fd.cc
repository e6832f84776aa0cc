// fd.cc: closing an owned file descriptor.
#include "platform/base/fd.h"

#include <unistd.h>

namespace ff {

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ff
