// What the kernel has said since its boot, as far as it still has it: records of /dev/kmsg. The
// device is no file: each read gives one record, and the last of them would wait for the next.
#pragma once

#include <string>
#include <vector>

#include "platform/base/result.h"

namespace ff::validate {

// As they are (Documentation/ABI/testing/dev-kmsg): "4,1234,5678901234,-;text", then lines of a
// dictionary. Errors: refused (kernel.dmesg_restrict), not_found (a container).
Result<std::vector<std::string>> read_kernel_messages();

}  // namespace ff::validate
