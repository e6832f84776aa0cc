// Reads the kernel ring buffer: records of /dev/kmsg since boot, as far as they are kept. Each
// read(2) of the device returns one record; after the last one it would block.
#pragma once

#include <string>
#include <vector>

#include "platform/base/result.h"

namespace ff::validate {

// The raw records (Documentation/ABI/testing/dev-kmsg): "4,1234,5678901234,-;text", then lines of a
// dictionary. Errors: refused (kernel.dmesg_restrict), not_found (a container).
Result<std::vector<std::string>> read_kernel_messages();

}  // namespace ff::validate
