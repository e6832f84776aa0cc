// A port for a rendezvous that the program has not chosen.
#pragma once

#include <cstdint>

#include "platform/base/result.h"

namespace ff::collective {

// A TCP port that no program uses now. Errors: those of the system calls.
Result<uint16_t> find_free_port();

}  // namespace ff::collective
