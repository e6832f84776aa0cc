// calls.cc: the slot of a key, as Redis Cluster computes it.
#include "storage/kvstore/calls.h"

namespace ff::kvstore {

namespace {

// CRC16 (XMODEM), polynomial 0x1021.
uint16_t crc16(std::string_view text) {
  uint16_t crc = 0;
  for (const char c : text) {
    crc = static_cast<uint16_t>(crc ^ (static_cast<uint8_t>(c) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<uint16_t>((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
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

}  // namespace ff::kvstore
