// CRC32C (Castagnoli, polynomial 0x1EDC6F41, reflected, as in iSCSI, RFC 3720, and ext4). The
// fastest code path that the CPU supports is chosen once at run time; all give the same value.
#pragma once

#include <cstdint>
#include <string_view>

#include "platform/base/bytes.h"

namespace ff::simd {

// CRC of `data` following bytes whose CRC is `seed`: crc32c(ab) == crc32c(b, crc32c(a)).
uint32_t crc32c(ByteView data, uint32_t seed = 0);

// crc32c(ab) from crc32c(a), crc32c(b) and the length of b in bytes.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_length);

// The code path in use: "avx512-vpclmul", "sse42-pclmul", "sse42", "portable".
std::string_view crc32c_path();

}  // namespace ff::simd
