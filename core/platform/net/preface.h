// Transport negotiation: the first bytes on a TCP connection, before the first frame. The client
// offers all transports that it supports, the server chooses one. Little-endian:
//
//   shard  := magic:u32 number:u32
//   offer  := magic:u32 transports:u16 0:u16 uid:u32
//   choice := magic:u32 way:u16 0:u16 uid:u32 name:16     way 0: none of them; 8: none without a
//   key
//
// uid: the effective user id of the sender's process. Ends with keys exchange both inside TLS.
//
// shard: a client may send this word first, before TLS, to a daemon that has told of its shards:
// the daemon serves the connection in the loop of that shard. A number that it does not have, or no
// word: the first one.
//
// shm: the client connects to the abstract Unix socket "ff-" + hex(name), which the server opened
// for this client under a random name, and closes this connection. On the socket each end checks
// the user id of the other (SO_PEERCRED), and with keys proves that it knows the secret of the TLS
// connection (secure_stream.h): whoever took the name instead can neither prove nor relay it. Other
// transports: the name is zero. verbs: the set-up of queue pairs follows (verbs_setup.h). stream,
// plain: the frames follow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::net {

// Bits of a set of transports (TransportKinds).
enum class TransportKind : uint16_t {
  none = 0,
  stream = 1,  // this connection: TCP, or TLS over it
  shm = 2,     // a Unix socket and shared memory
  verbs = 4,   // RDMA
  key = 8,     // a choice only: none without a key, which the client does not have
  plain = 16,  // this connection without TLS from now on: both ends trust the network
};
using TransportKinds = uint16_t;
constexpr TransportKinds operator|(TransportKind a, TransportKind b) {
  return static_cast<TransportKinds>(static_cast<TransportKinds>(a) |
                                     static_cast<TransportKinds>(b));
}
constexpr bool has(TransportKinds kinds, TransportKind kind) {
  return (kinds & static_cast<TransportKinds>(kind)) != 0;
}
// "tcp, rdma".
std::string transport_names(TransportKinds kinds);

// The fastest transport that both ends support.
TransportKind best_transport(TransportKinds client, TransportKinds server);

constexpr uint32_t kOfferMagic = 0x324f4646;   // "FFO2"
constexpr uint32_t kChoiceMagic = 0x32434646;  // "FFC2"
constexpr uint32_t kShardMagic = 0x31534646;   // "FFS1"

constexpr size_t kShardWordBytes = 8;
std::array<std::byte, kShardWordBytes> encode_shard_word(uint32_t shard);
// `bytes` holds kShardWordBytes. Nothing: it is no shard word.
std::optional<uint32_t> parse_shard_word(ByteView bytes);

struct TransportOffer {
  TransportKinds kinds = 0;
  uint32_t uid = 0;
};
constexpr size_t kOfferBytes = 12;
std::array<std::byte, kOfferBytes> encode_offer(const TransportOffer& offer);
// `bytes` holds kOfferBytes. Errc::corrupt: the message shows the first bytes. Unknown bits of
// later versions are kept.
Result<TransportOffer> parse_offer(ByteView bytes);

struct TransportChoice {
  TransportKind kind = TransportKind::none;
  uint32_t uid = 0;
  std::array<std::byte, 16> name = {};
};
constexpr size_t kChoiceBytes = 28;
std::array<std::byte, kChoiceBytes> encode_choice(const TransportChoice& choice);
// `bytes` holds kChoiceBytes. Errc::corrupt.
Result<TransportChoice> parse_choice(ByteView bytes);

}  // namespace ff::net
