// The request of one rank for a collective operation, as it is stored in memory that the ranks of a
// host share. `count` has the meaning of NCCL: elements that one rank gives (all-gather, gather),
// gets (reduce-scatter, scatter), or both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/simd/reduce.h"

namespace ff::collective {

constexpr uint32_t kHostRanksMax = 64;

enum class Collective : uint8_t {
  barrier,
  allreduce,
  reduce,
  broadcast,
  allgather,
  reduce_scatter,
  gather,
  scatter,
  alltoall  // each rank has blocks of its own sizes: the request has no count
};

std::string_view collective_name(Collective kind);  // "allreduce", ...
// Whether the operation moves bytes without arithmetic.
bool is_copy(Collective kind);
// Whether its data travels as messages between pairs of ranks (messages.h), not in pieces.
bool uses_messages(Collective kind);

// An address in shared memory: a region that one rank has made, and an offset in it.
struct SharedAddress {
  uint64_t offset = 0;  // bytes
  uint32_t region = 0;  // 0: none
  uint32_t unused = 0;
};

struct CollectiveRequest {
  Collective kind = Collective::barrier;
  simd::DataType type = simd::DataType::f32;
  simd::ReduceOp op = simd::ReduceOp::sum;
  uint8_t unused = 0;
  uint32_t root = 0;                // of reduce, broadcast, gather and scatter
  uint64_t count = 0;               // elements
  SharedAddress in = {}, out = {};  // ignored where the rank has no input or output
};
static_assert(sizeof(CollectiveRequest) == 48);

// Bytes of a rank's input and output; 0: it has none.
uint64_t input_bytes(const CollectiveRequest& request, uint32_t rank, uint32_t ranks);
uint64_t output_bytes(const CollectiveRequest& request, uint32_t rank, uint32_t ranks);
// Errc::usage: the memory of this rank's input and output overlaps. Allowed is what NCCL calls in
// place: the same memory; of an all-gather or gather, the rank's block of the output as its input;
// of a reduce-scatter or scatter, the rank's block of the input as its output. Not for all-to-all.
Result<void> check_overlap(const CollectiveRequest& request, uint32_t rank, uint32_t ranks,
                           const void* in, const void* out);
// Inputs and outputs of all ranks together: the least memory traffic.
uint64_t traffic_bytes(const CollectiveRequest& request, uint32_t ranks);
// Whether a request that another process sent has values that exist.
bool is_valid(const CollectiveRequest& request);
// Whether both are the same but for their addresses.
bool agree(const CollectiveRequest& a, const CollectiveRequest& b);
// "allreduce of 1024 float, sum".
std::string text_of(const CollectiveRequest& request);

}  // namespace ff::collective
