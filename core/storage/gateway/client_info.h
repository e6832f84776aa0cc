// The lines of CLIENT INFO and CLIENT LIST: "id=3 addr=127.0.0.1:4000 ...".
#pragma once

#include <cstdint>
#include <string>

#include "storage/gateway/redis_client.h"

namespace ff::gateway {

// With a line end. `now_ns`: steady time.
std::string client_line(const RedisClient& client, int64_t now_ns);

}  // namespace ff::gateway
