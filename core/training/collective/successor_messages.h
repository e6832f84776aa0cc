// What the successor of a leader and the leader of another node say to each other (successor.h),
// after the handshake (peer_handshake.h). Little-endian numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "training/collective/vote_table.h"

namespace ff::collective {

// Methods of frames.
enum class SuccessorMethod : uint32_t {
  report = 1,  // to the leader
  decision,    // from the leader
  active,      // from the leader; ballot:u32: some rank of the job has voted in it
  differs,     // from the leader: another decision was made than the successor's last one
};

// In the handshake.
struct SuccessorHello {
  uint64_t world = 0;  // World::mark()
  uint32_t node = 0;   // whose leader is gone
  uint32_t rank = 0;   // of the successor, in the world
};

// Where the host of the successor stands.
struct SuccessorReport {
  uint32_t ballot = 0;                   // the current one
  uint64_t mark = 0;                     // mark_of() the decision before it
  std::optional<NodeMembers> vote = {};  // of the host
};

struct SuccessorDecision {
  uint32_t ballot = 0;
  bool all_joined = false;              // of an odd ballot
  std::vector<NodeMembers> nodes = {};  // of an even one
};

std::string encode_hello(const SuccessorHello& hello);
std::string encode_report(const SuccessorReport& report);
std::string encode_decision(const SuccessorDecision& decision);
// Errc::corrupt: malformed.
Result<SuccessorHello> parse_hello(ByteView bytes);
Result<SuccessorReport> parse_report(ByteView bytes);
// `nodes`: of the world.
Result<SuccessorDecision> parse_decision(ByteView bytes, size_t nodes);

}  // namespace ff::collective
