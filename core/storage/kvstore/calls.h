// What calls on a store of keys and values (store.h) take and return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/clock.h"

namespace ff::kvstore {

constexpr uint32_t kRedisSlots = 16384;  // slots as clients of Redis Cluster compute them
constexpr uint32_t kSlots = 4096;        // slots that partitions consist of: Redis's slot / 4
constexpr size_t kMaxKeyBytes = 32767;

// CRC16 (XMODEM) of the key, or of its hash tag ("{tag}"), modulo 16384, as Redis Cluster does.
uint32_t redis_slot(std::string_view key);

// What the index knows of a key, without a read.
struct KeyInfo {
  uint64_t version = 0;  // grows with each change of the key; never 0
  int64_t expires_ms = 0;
  uint64_t value_bytes = 0;
};

struct Entry {
  std::string value = {};
  int64_t expires_ms = 0;
  uint64_t version = 0;
};

struct Change {
  enum class Kind : uint8_t {
    put,     // value and expiry replace the former ones
    remove,  // of a missing key: no effect
    expire,  // sets the expiry of an existing key; reads and writes its value. Missing: no effect
  };
  Kind kind = Kind::put;
  std::string key = {};
  std::string value = {};
  int64_t expires_ms = 0;  // a time that has passed removes the key
};

// The version that a key must have (KeyInfo::version); 0: the key must not exist.
struct Precondition {
  std::string key = {};
  uint64_t version = 0;
};

struct Applied {
  bool done = false;     // false: a precondition did not hold, and nothing has changed
  uint64_t version = 0;  // if done: of all keys that were put
};

struct Counts {
  uint64_t keys = 0;         // may include expired ones that compaction has not met yet
  uint64_t live_bytes = 0;   // of their records
  uint64_t file_bytes = 0;   // of all segments
  uint64_t index_bytes = 0;  // memory
};

struct Options {
  std::string address = {};  // where clients reach this process: told to others by owner()
  uint32_t partitions = 16;  // at creation only; at most kSlots
  uint64_t segment_bytes = 256 * kMiB;
  uint64_t max_value_bytes = 64 * kMiB;  // of one value, and of all values of one apply()
  uint64_t max_bytes = 0;                // live bytes of the store; more evicts keys; 0: no limit
  bool durable = false;                  // sync before each acknowledgement
  bool claim = true;                     // claim free partitions and those of dead owners by itself
  int64_t heartbeat_ns = kSecond;
  int64_t lease_ns = 5 * kSecond;
};

struct ScanPage {
  std::vector<std::string> keys = {};
  uint64_t next = 0;  // the cursor of the next page; 0: this was the last one
};

}  // namespace ff::kvstore
