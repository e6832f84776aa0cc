// What the parts of flow.h share: pieces on their way, lanes, and the words between nodes. For
// flow*.cc only.
#pragma once

#include "training/collective/flow.h"

namespace ff::collective {

// Methods of frames. Numbers are little-endian; lanes are those of who sends the bytes.
enum Say : uint32_t {
  kAnnounce = 1,  // call: operation; a Request without its places
  kWindow,        // way:u32 slots:u32 slot_bytes:u64 token:u64 size:u64 address:u64 key:u32
  kCredit,        // way:u32 slot:u32
  kChunk,         // way:u32 slot:u32 number:u64 piece:u64 bytes:u64: it is in the slot
  kFault,         // code:u8 text: nobody can go on
  kLeft,          // rank:u32 operations:u64: it posts no more
  kAsk,           // answered by kStatus
  kStatus,        // for each rank of the node, operations:u64 and what it works on:u64 (+ 1)
  kBye,           // what comes next is the end
  kSeen,          // it has heard of the fault, or the bye
};

struct Flow::Op {
  uint64_t number = 0;
  Request request = {};
  simd::Wire wire = simd::Wire::none;
  bool goes_up = false, goes_down = false;
  uint64_t elements = 0;  // of a piece
  uint64_t pieces = 0;
  uint64_t next = 0;  // to admit
  uint64_t left = 0;  // that are not done on this node
};

// A piece that this node has something to do for.
struct Flow::Moving {
  std::shared_ptr<Op> op;
  uint64_t index = 0;
  Piece piece = {};
  Route route = {};
  uint64_t up = 0, down = 0;    // bytes on its ways
  std::optional<uint32_t> own;  // buffer
  uint32_t partials_missing = 0;
  std::array<uint32_t, kBelowMax> partial_slots = {};
  std::optional<uint32_t> result_slot = {};
  bool result_came = false;
  bool sums = false;                  // it has a first turn
  bool summed = false;                // which is done
  bool receives = false;              // it gets the result from another node
  bool received = false;              // and has put it where it belongs
  std::optional<uint64_t> turn = {};  // published
  uint32_t to_send = 0;               // lanes that have not sent it on
  bool is_done_here = false;

  bool is_root() const { return !route.up_to.has_value(); }
  uint64_t number() const { return op->number; }
};

struct Flow::Sending {
  struct Item {
    Moving* piece = nullptr;
    std::optional<ByteView> bytes = {};  // once they are there
  };
  std::optional<net::Slice> window = {};
  uint64_t slot_bytes = 0;
  std::deque<uint32_t> free = {};
  std::deque<Item> items = {};  // in the order of operations and pieces
  std::unique_ptr<Event> changed = {};
};

struct Flow::Receiving {
  struct Chunk {
    uint64_t number = 0, index = 0, bytes = 0;
    uint32_t slot = 0;
  };
  uint32_t node = 0;
  Way way = Way::up;
  std::shared_ptr<const net::Region> window = {};
  net::Connection::Exposure exposure = {};
  std::deque<Chunk> came = {};
  std::deque<Moving*> expected = {};  // in the same order
};

struct Flow::Peer {
  std::unique_ptr<net::Connection> connection;
  std::array<std::unique_ptr<Sending>, 2> sending = {};
  std::array<std::unique_ptr<Receiving>, 2> receiving = {};
  bool said_bye = false;
  bool has_seen = false;                   // that this node has a fault, or ends
  std::map<uint32_t, uint64_t> left = {};  // ranks that post no more, and what they had posted
  std::optional<std::vector<std::pair<uint64_t, uint64_t>>> status = {};
};

}  // namespace ff::collective
