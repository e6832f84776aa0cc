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

// What a record is. A value that is too large to be written as a whole has parts: its key is an
// owner, and the parts are records of their own with names instead of keys. Whoever changes parts
// changes the owner with them (in one apply()); so its version stands for the whole value.
//
// The store does not know which parts belong to which owner. So it neither evicts nor removes
// owners and parts by itself: an owner that has expired is not visible any more, and leftovers()
// finds it for whoever knows its parts. Scans and Counts::keys leave parts out.
enum class RecordRole : uint8_t {
  plain = 0,
  owner = 1,     // a key whose value has parts
  part = 2,      // its key is a name, as part_name() makes it
  leftover = 3,  // likewise; says which parts have lost their owner
};

// The name of a part: the slot of its owner (16 bits, big-endian), then what the caller chooses.
std::string part_name(uint32_t redis_slot, std::string_view rest);
// The inverse, of the slot; a name has at least two bytes.
uint32_t slot_of_part(std::string_view name);
inline bool is_part(RecordRole role) { return role >= RecordRole::part; }

// What the index knows of a key, without a read.
struct KeyInfo {
  uint64_t version = 0;  // grows with each change of the key; never 0
  int64_t expires_ms = 0;
  uint64_t value_bytes = 0;
  RecordRole role = RecordRole::plain;
};

struct Entry {
  std::string value = {};
  int64_t expires_ms = 0;
  uint64_t version = 0;
  RecordRole role = RecordRole::plain;
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
  // Of a put, what it is; of a removal, whether `key` is a name; parts have no expiry.
  RecordRole role = RecordRole::plain;
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
  uint64_t keys = 0;         // may include expired ones that compaction has not met yet; no parts
  uint64_t live_bytes = 0;   // of their records
  uint64_t file_bytes = 0;   // of all segments
  uint64_t index_bytes = 0;  // memory
};

struct Options {
  std::string address = {};  // where clients reach this process: told to others by owner()
  // The machine whose clients alone reach that address; empty: all clients do.
  std::string host = {};
  uint32_t partitions = 16;  // at creation only; at most kSlots
  uint64_t segment_bytes = 256 * kMiB;
  uint64_t max_value_bytes = 64 * kMiB;  // of one value, and of all values of one apply()
  uint64_t max_bytes = 0;  // live bytes of the store; more evicts plain keys; 0: no limit
  bool durable = false;    // sync before each acknowledgement
  bool claim = true;       // claim partitions that no live process owns
  // Each process that has the store open gets its share of the partitions, from the others if it
  // must; but processes of which some clients reach only some do not share: one of them owns what
  // there is, and the others stand by. Without, whoever claims a partition keeps it. The same for
  // all processes.
  bool share = true;
  int64_t heartbeat_ns = kSecond;
  int64_t lease_ns = 5 * kSecond;
};

// A range of a segment in which a program writes the record of a key instead of the owner
// (reservation_writer.h), so that the bytes of a large value do not pass through the owner. The
// record counts when the owner has confirmed it. A range that is never confirmed costs nothing but
// the space that was written, which compaction frees.
struct RecordReservation {
  uint64_t segment_epoch = 0;  // SegmentName of the segment
  uint64_t segment_number = 0;
  uint64_t offset = 0;     // where the record begins
  uint64_t version = 0;    // of the record
  int64_t expires_ms = 0;  // likewise
  bool durable = false;    // Options::durable of the store
};

// An owner that has expired, or a record of RecordRole::leftover.
struct Leftover {
  std::string key = {};  // or its name
  Entry entry = {};
};

struct ScanPage {
  std::vector<std::string> keys = {};
  uint64_t next = 0;  // the cursor of the next page; 0: this was the last one
};

}  // namespace ff::kvstore
