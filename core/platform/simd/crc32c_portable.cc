// crc32c_portable.cc: CRC32C for any CPU, eight bytes at a step through eight tables
// ("slicing-by-8", Kounavis and Berry). Table k holds the CRC of a byte followed by k zero bytes,
// so the eight look-ups of a step are independent.
#include <string.h>

#include "platform/simd/crc32c_paths.h"

namespace ff::simd {
namespace {

struct Tables {
  uint32_t of[8][256];
};

constexpr Tables kTables = [] {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    tables.of[0][byte] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables.of[k - 1][byte];
      tables.of[k][byte] = (crc >> 8) ^ tables.of[0][crc & 0xff];
    }
  }
  return tables;
}();

}  // namespace

uint32_t crc32c_portable(uint32_t crc, const unsigned char* data, size_t length) {
  for (; length >= 8; data += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables.of[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; length > 0; ++data, --length) {
    crc = (crc >> 8) ^ kTables.of[0][(crc ^ *data) & 0xff];
  }
  return crc;
}

}  // namespace ff::simd
