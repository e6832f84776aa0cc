// calls.cc: the slot of a key, as Redis Cluster computes it, and of a part.
#include "storage/kvstore/calls.h"

#include <array>

namespace ff::kvstore {

namespace {

// CRC16 (XMODEM), polynomial 0x1021: what one byte in front makes of the rest.
constexpr std::array<uint16_t, 256> kCrc16Table = [] {
  std::array<uint16_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    table[byte] = static_cast<uint16_t>(crc);
  }
  return table;
}();

uint16_t crc16(std::string_view text) {
  uint16_t crc = 0;
  for (const char c : text) {
    const auto first = static_cast<uint8_t>((crc >> 8) ^ static_cast<uint8_t>(c));
    crc = static_cast<uint16_t>((crc << 8) ^ kCrc16Table[first]);
  }
  return crc;
}

}  // namespace

uint32_t redis_slot(std::string_view key) {
  const size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  return crc16(key) % kRedisSlots;
}

std::string part_name(uint32_t redis_slot, std::string_view rest) {
  std::string name;
  name += static_cast<char>(redis_slot >> 8);
  name += static_cast<char>(redis_slot);
  return name.append(rest);
}

uint32_t slot_of_part(std::string_view name) {
  if (name.size() < 2) return 0;
  const uint32_t high = static_cast<uint8_t>(name[0]);
  return ((high << 8) | static_cast<uint8_t>(name[1])) % kRedisSlots;
}

}  // namespace ff::kvstore
