// What each rank asks for: one collective operation, as it stands in memory that the ranks of a
// host share. Counts are NCCL's: of what one rank gives (all-gather), gets (reduce-scatter), or
// both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/simd/reduce.h"

namespace ff::collective {

enum class Collective : uint8_t {
  barrier,
  allreduce,
  reduce,
  broadcast,
  allgather,
  reduce_scatter
};

std::string_view collective_name(Collective kind);  // "allreduce", …
// Whether what comes out is what went in.
bool only_copies(Collective kind);

// Bytes of a region (a piece of shared memory that one rank has made), from `offset`.
struct Place {
  uint64_t offset = 0;
  uint32_t region = 0;  // 0: none
  uint32_t unused = 0;
};

struct Request {
  Collective kind = Collective::barrier;
  simd::DataType type = simd::DataType::f32;
  simd::ReduceOp op = simd::ReduceOp::sum;
  uint8_t unused = 0;
  uint32_t root = 0;        // of reduce and broadcast
  uint64_t count = 0;       // elements
  Place in = {}, out = {};  // where nothing is given or got, of no meaning
};
static_assert(sizeof(Request) == 48);

// Bytes that a rank gives and gets; 0: nothing.
uint64_t in_bytes(const Request& request, uint32_t rank, uint32_t ranks);
uint64_t out_bytes(const Request& request, uint32_t rank, uint32_t ranks);
// What all ranks give and get, together: the memory traffic that there must be.
uint64_t moved_bytes(const Request& request, uint32_t ranks);
// Whether a request from elsewhere is one at all.
bool is_valid(const Request& request);
// Whether all of it but the places is the same.
bool agree(const Request& a, const Request& b);
// "allreduce of 1024 float, sum".
std::string text_of(const Request& request);

}  // namespace ff::collective
