// What the ends of a TCP connection settle before the first frame: the way that its bytes will go.
// The client offers all that it could take, the server chooses. Little-endian:
//
//   offer  := magic:u32 ways:u16 0:u16
//   choice := magic:u32 way:u16 0:u16 name:16     way 0: none of them
//
// After `shm` the client connects to the abstract Unix socket of that name, which nobody can guess
// and which is there for it alone, and closes this connection; for all others the name is zeros.
// After `verbs` the set-up of queue pairs follows (verbs_setup.h), after `stream` the frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::net {

// Bits of a set of ways.
enum class Way : uint16_t {
  none = 0,
  stream = 1,  // this connection: TCP, or TLS over it
  shm = 2,     // a Unix socket and shared memory
  verbs = 4,   // RDMA
};
using Ways = uint16_t;
constexpr Ways operator|(Way a, Way b) {
  return static_cast<Ways>(static_cast<Ways>(a) | static_cast<Ways>(b));
}
constexpr bool has(Ways ways, Way way) { return (ways & static_cast<Ways>(way)) != 0; }
// "tcp, rdma".
std::string ways_text(Ways ways);

// The fastest of those that both can.
Way best_way(Ways client, Ways server);

constexpr uint32_t kOfferMagic = 0x314f4646;   // "FFO1"
constexpr uint32_t kChoiceMagic = 0x31434646;  // "FFC1"

struct Offer {
  Ways ways = 0;
};
constexpr size_t kOfferBytes = 8;
std::array<std::byte, kOfferBytes> encode_offer(const Offer& offer);
// `bytes` holds kOfferBytes. Errc::corrupt shows how they begin. Ways of later versions are kept.
Result<Offer> parse_offer(ByteView bytes);

struct Choice {
  Way way = Way::none;
  std::array<std::byte, 16> name = {};
};
constexpr size_t kChoiceBytes = 24;
std::array<std::byte, kChoiceBytes> encode_choice(const Choice& choice);
// `bytes` holds kChoiceBytes. Errc::corrupt.
Result<Choice> parse_choice(ByteView bytes);

}  // namespace ff::net
