// State that the parts of the pipeline share: operations, pieces in flight, channels, and the
// message types between nodes. For pipeline*.cc and peer_messages.cc only.
#pragma once

#include "training/collective/pipeline.h"

namespace ff::collective {

// Frame methods. Numbers are little-endian; `direction` is that of the bytes in the channel.
enum PeerMessage : uint32_t {
  kAnnounce = 1,   // call: operation; a CollectiveRequest with zero addresses
  kWindow,         // direction:u32 slots:u32 slot_bytes:u64 token:u64 size:u64 address:u64 key:u32
  kCredit,         // direction:u32 slot:u32
  kChunk,          // direction:u32 slot:u32 number:u64 piece:u64 bytes:u64 crc:u32: stored in the
                   // slot; crc: CRC32C of the bytes, which the receiver checks before it uses them
  kFailed,         // code:u8 text: the job fails with this error
  kDeparted,       // rank:u32 operations:u64: the rank posts no more
  kStatusRequest,  // answered by kStatusReply
  kStatusReply,    // for each rank of the node: posted operations:u64, current operation + 1:u64,
                   // the rank whose message it waits for + 1:u32
  kGoodbye,        // the sender closes the connection next
  kAcknowledge,    // of kFailed or kGoodbye
  kArrived,        // direction:u32 slot:u32: the piece is here, but its slot is not free before it
                   // has been forwarded
                   // from 32: MessageRelay::Method; 40: BlockRelay::Method; 48:
                   // NodeBallots::kMethod
};

struct Pipeline::OperationState {
  uint64_t number = 0;
  CollectiveRequest request = {};
  simd::WireType wire = simd::WireType::none;
  bool goes_up = false, goes_down = false;
  uint64_t elements_per_piece = 0;
  uint64_t pieces = 0;
  uint64_t next_piece = 0;  // to admit
  uint64_t unfinished = 0;  // pieces that this node has not finished
};

// A piece that this node has work for.
struct Pipeline::InflightPiece {
  std::shared_ptr<OperationState> op;
  uint64_t index = 0;
  Piece piece = {};
  PieceRoute route = {};
  uint64_t bytes_up = 0, bytes_down = 0;
  std::optional<uint32_t> send_slot;
  uint32_t partials_missing = 0;
  std::array<uint32_t, kChildrenMax> partial_slots = {};
  std::optional<uint32_t> result_slot = {};
  uint32_t result_crc = 0;
  bool result_arrived = false;
  bool reduces = false;   // it needs a work item that reduces or, at the root, reads the inputs
  bool reduced = false;   // which is done
  bool receives = false;  // the result comes from another node
  bool received = false;  // and is stored in the outputs
  std::optional<uint64_t> ticket = {};  // of its item in the work queue
  uint32_t unsent = 0;                  // channels that still read what they send of it
  bool is_done_locally = false;

  bool is_root() const { return !route.up_to.has_value(); }
  uint64_t number() const { return op->number; }
};

// Bytes for another node.
struct Pipeline::SendData {
  std::shared_ptr<const net::SharedRegion> region = {};  // where they are
  ByteView bytes = {};
  uint32_t crc = 0;  // of `bytes`
};

struct Pipeline::SendChannel {
  struct Item {
    InflightPiece* piece = nullptr;
    std::optional<SendData> data = {};  // once it is computed
  };
  std::optional<net::RemoteBuffer> window = {};
  uint64_t slot_bytes = 0;
  std::vector<uint32_t> free = {};  // slots; the last returned one is in the peer's cache
  std::deque<Item> items = {};      // in the order of operations and pieces
  // Sent from the memory of their region, by slot, until the peer has them.
  std::map<uint32_t, InflightPiece*> unconfirmed = {};
  std::unique_ptr<Event> changed = {};
};

struct Pipeline::ReceiveChannel {
  struct Chunk {
    uint64_t number = 0, index = 0, bytes = 0;
    uint32_t slot = 0, crc = 0;
  };
  uint32_t node = 0;
  Direction direction = Direction::up;
  std::shared_ptr<const net::SharedRegion> window = {};
  net::Connection::Exposure exposure = {};
  std::deque<Chunk> arrived = {};
  std::deque<InflightPiece*> expected = {};  // in the same order
};

struct Pipeline::RankStatus {
  uint64_t posted = 0;   // operations
  uint64_t current = 0;  // operation + 1 that it works on
  std::optional<uint32_t> awaited = {};
};

struct Pipeline::Peer {
  std::unique_ptr<net::Connection> connection;
  std::array<std::unique_ptr<SendChannel>, 2> sending = {};
  std::array<std::unique_ptr<ReceiveChannel>, 2> receiving = {};
  bool said_goodbye = false;
  bool acknowledged = false;                   // our kFailed or kGoodbye
  std::map<uint32_t, uint64_t> departed = {};  // ranks that have left, with their posted operations
  std::optional<std::vector<RankStatus>> status = {};  // of its ranks
};

}  // namespace ff::collective
